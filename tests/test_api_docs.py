"""docs/api.md is what tools/api_docs.py writes, and has every public name."""

import importlib
import sys
from pathlib import Path

import pytest

import tilewright

PROJECT = Path(__file__).parents[1]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT / "tools"))
    yield importlib.import_module("api_docs")
    sys.modules.pop("api_docs", None)


def test_page(tool):
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.page(), "docstrings or signatures have changed: run `make docs`"


def test_every_public_name_is_on_it(tool):
    page = tool.PAGE.read_text(encoding="utf-8")
    for name in tilewright.__all__:
        assert f"### {name}\n" in page or f"`{name}`" in page or f"tilewright.{name}`" in page, name


def test_a_name_without_a_section_is_said(tool, monkeypatch):
    monkeypatch.setitem(tool.SECTIONS, "Errors", tool.SECTIONS["Errors"][1:])
    with pytest.raises(SystemExit) as caught:
        tool.page()
    assert str(caught.value) == "tools/api_docs.py has no section for TilewrightError"


def test_a_member_without_a_docstring_is_said(tool, monkeypatch):
    monkeypatch.setattr(tilewright.Module.save, "__doc__", None)
    with pytest.raises(SystemExit) as caught:
        tool.page()
    assert str(caught.value) == "Module.save has no docstring"
