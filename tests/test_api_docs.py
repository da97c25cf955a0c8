"""docs/api.md is what tools/api_docs.py writes, and has every public name."""

import api_docs as tool
import pytest

import tilewright


def test_page():
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.page(), "docstrings or signatures have changed: run `make docs`"


def test_every_public_name_is_on_it():
    page = tool.PAGE.read_text(encoding="utf-8")
    for name in tilewright.__all__:
        assert f"### {name}\n" in page or f"`{name}`" in page or f"tilewright.{name}`" in page, name


def test_a_name_without_a_section_is_said(monkeypatch):
    monkeypatch.setitem(tool.SECTIONS, "Errors", tool.SECTIONS["Errors"][1:])
    with pytest.raises(SystemExit) as caught:
        tool.page()
    assert str(caught.value) == "tools/api_docs.py has no section for TilewrightError"


def test_a_member_without_a_docstring_is_said(monkeypatch):
    monkeypatch.setattr(tilewright.Module.save, "__doc__", None)
    with pytest.raises(SystemExit) as caught:
        tool.page()
    assert str(caught.value) == "Module.save has no docstring"
