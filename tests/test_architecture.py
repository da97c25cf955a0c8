"""Paths and tables in docs/architecture.md and CONTRIBUTING.md are what there is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tilewright import Schedule
from tilewright.backends.native.passes import native_passes
from tilewright.targets.cpu import cpu

PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src" / "tilewright"
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
IS_PATH = re.compile(r"[\w./-]+(\.(py|md|c|h|txt|onnx)|/)")


def blocks(page: str) -> Iterator[str]:
    """Paragraphs; tables and lists with the paragraph before them, which may name their folder."""
    before = ""
    for block in re.split(r"\n\s*\n", page):
        yield f"{before}\n{block}" if block.startswith(("|", "- ")) else block
        before = block


def missing(page: str) -> list[str]:
    """What is written as a path, and is not there: seen from the project, from the package, or
    from a folder that its paragraph names, alone or in the path of a file."""
    found = []
    for block in blocks(page):
        folders = [PROJECT, SOURCE]
        for path in (x for x in re.findall(r"`([^`\n]+)`", block) if IS_PATH.fullmatch(x)):
            there = next((f / path for f in folders if (f / path).exists()), None)
            if there is None:
                found.append(path)
            else:
                folders.append(there if there.is_dir() else there.parent)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_paths_exist(name: str):
    assert missing((PROJECT / name).read_text(encoding="utf-8")) == []


def test_a_path_that_is_not_there_is_found():
    page = (
        "`ir/loop.py` and `tensor.py`, `nothing.py`.\n\n`plan/`:\n\n| `default.py` | `graph.py` |"
    )
    assert missing(page) == ["nothing.py", "graph.py"]


def table(head: str) -> list[list[str]]:
    """The rows of the table in docs/architecture.md whose first line begins so: what each cell has
    in backticks."""
    page = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = page[page.index(f"\n{head}") :].strip().split("\n\n")[0].splitlines()[2:]
    return [[" ".join(re.findall(r"`([^`]+)`", cell)) for cell in r.split("|")[1:-1]] for r in rows]


def test_every_primitive_is_in_its_row():
    written = {file: set(names.split()) for file, names in table("| `schedule/primitives/` |")}
    there: dict[str, set[str]] = {}
    for name, function in Schedule.primitives().items():
        path = Path(inspect.getfile(inspect.unwrap(function))).relative_to(SOURCE / "schedule")
        file = path.name if path.parent.name == "primitives" else f"../{path.as_posix()}"
        there.setdefault(file, set()).add(name)
    assert written == there


def test_every_pass_of_lowering_is_in_its_row():
    passes = [p.func if isinstance(p, partial) else p for p in native_passes(cpu("avx2"))]
    assert [name for name, _ in table("| pass |")] == [p.__name__ for p in passes]
