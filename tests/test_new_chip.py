"""docs/new-chip.md is run as it stands: its files, its commands, its Python."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from tilewright.cli import main as cli

PAGE = (Path(__file__).parents[1] / "docs" / "new-chip.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's files, from which they can be imported."""
    for kind, name, text in BLOCKS:
        if kind == "python" and name:
            (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in ("first", "second"):
        sys.modules.pop(module, None)


def test_the_commands(folder, capsys, monkeypatch):
    lines = [x for kind, _, text in BLOCKS if kind == "sh" for x in text.strip().splitlines()]
    assert len(lines) == 2
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, line
        assert "gemm" in capsys.readouterr().out


def test_the_python(folder, capsys):
    """In one file, since the second part goes on with what the first imports."""
    parts = [text for kind, name, text in BLOCKS if kind == "python" and not name]
    (folder / "walk.py").write_text("\n".join(parts))
    runpy.run_path(str(folder / "walk.py"))
    out = capsys.readouterr().out
    assert len(re.findall(r"cycles \(", out)) == 3
    assert "what keeps better tiles out: spad (4,096 bytes): twice as large" in out
    assert "compute works" in out
