"""README.md: what it says can be pasted can be, what it links to is there."""

import ast
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tilewright.cli import main as cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.M | re.S)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with the examples, where files may be written."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_snippet(clone, capsys):
    (code,) = [text for kind, text in BLOCKS if kind == "python"]
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out.splitlines()
    shown = "Module(digits: image: f32[batch, 1, 8, 8] -> scores: f32[batch, 10]; for host ("
    assert out[0].startswith(shown)
    assert out[1] == "98.6% of the digits are read right"
    assert len(out) > 5


def test_the_shell_snippet(clone, capsys, monkeypatch):
    (block,) = [text for kind, text in BLOCKS if not kind and "tilewright run" in text]
    for line in block.strip().splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, line
        assert capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http:", "https:", "#")):
            assert ((ROOT / page).parent / link.split("#")[0]).exists(), link


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in sorted(p.name for p in ROOT.glob("docs/*.md")):
        assert page == "index.md" or f"]({page})" in index, page


def test_every_command_of_make_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):.*##", makefile, re.M))
    assert set(re.findall(r"`make ([a-z-]+)`", README)) <= known


# ---------------------------------------------------------------- docs/architecture.md

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_files_that_it_names_are_there():
    package = ROOT / "src" / "tilewright"
    places = [ROOT, package, *(p for p in package.rglob("*") if p.is_dir())]
    names = re.findall(r"`([\w/]+\.(?:py|h)|\w+/)`", ARCHITECTURE)
    assert len(names) > 60
    assert [n for n in names if not any((place / n).exists() for place in places)] == []


def test_the_ranks_that_it_gives_are_those_of_the_test():
    tree = ast.parse((ROOT / "tests" / "test_structure.py").read_text(encoding="utf-8"))
    layers = next(
        ast.literal_eval(n.value)
        for n in tree.body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "LAYERS"
    )
    for rank, parts in re.findall(
        r"^\| (\d+) \| (.*) \|$", ARCHITECTURE.split("## Layers")[1], re.M
    ):
        found = re.findall(r"`([\w/]+?)(/|\.py)`", parts)
        for path, ending in found:
            folder, _, name = path.replace("/", ".").rpartition(".")
            part = folder if folder and ending == ".py" else f"{folder}.{name}".strip(".")
            assert part in layers[int(rank)], part
