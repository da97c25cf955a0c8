"""Writes docs/api.md: every public name of tilewright, from its docstring.

python tools/api_docs.py            writes the page
python tools/api_docs.py --check    says whether it is as it would be written
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tilewright
from tilewright.base.dtype import DType
from tilewright.ir.python.words import Word

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
INTRODUCTION = """\
# The Python API

Every public name, from the docstrings; `help(tilewright.compile)` shows the same. This page is
written by `tools/api_docs.py` (`make docs`). `from tilewright import …` has all of them; targets
are in `tilewright.targets`.
"""
SECTIONS = {
    "Models": (
        "compile",
        "load",
        "quantize",
        "QuantizedModel",
        "Module",
        "Options",
        "Profile",
        "StepTime",
        "write_report",
        "Recorder",
        "Target",
    ),
    "Kernels": ("kernel", "dims", "out", "KernelFunction", "Schedule", "build", "BuiltKernel"),
    "Errors": (
        "TilewrightError",
        "ModelError",
        "CompileError",
        "ScheduleError",
        "TargetError",
        "InputError",
        "CheckError",
        "MemoryShortage",
        "ArtifactError",
    ),
}
NOTES = {
    "Kernels": "The language is on [a page of its own](kernels.md), the primitives of schedules on "
    "[another](primitives.md).",
    "Errors": "All are TilewrightErrors. `str(error)` says what is wrong, where, and what to do.",
}


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        if title in NOTES:
            parts.append(f"{NOTES[title]}\n")
        for name in names:
            parts += section(name, getattr(tilewright, name))
    rest = [n for n in tilewright.__all__ if n not in {m for s in SECTIONS.values() for m in s}]
    words = [n for n in rest if isinstance(getattr(tilewright, n), Word)]
    types = [n for n in rest if isinstance(getattr(tilewright, n), DType)]
    missing = sorted({*rest} - {*words, *types, "__version__"})
    if missing:
        raise SystemExit(f"tools/api_docs.py has no section for {', '.join(missing)}")
    parts += [
        "## Words of kernels\n",
        f"What they mean stands in [kernels](kernels.md): {_listed(words)}.\n",
        "## Element types\n",
        f"{_listed(types)}. What operations on them mean: [semantics](semantics.md).\n",
        "## The version\n",
        "`tilewright.__version__` is a text.\n",
    ]
    return "\n".join(parts)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def section(name: str, value: Any) -> Iterator[str]:
    """One name: how it is called, what it is, and of a class its public members."""
    yield f"### {name}\n"
    if not inspect.isclass(value):
        yield f"```text\n{_call(name, value)}\n```\n"
    said = inspect.getdoc(value)
    if not said:
        raise SystemExit(f"{name} has no docstring")
    yield f"{said}\n"
    if inspect.isclass(value) and not issubclass(value, Exception):
        if dataclasses.is_dataclass(value):
            fields = [f for f in dataclasses.fields(value) if not f.name.startswith("_")]
            yield f"Fields: {', '.join(f'`{f.name}: {f.type}`' for f in fields)}.\n"
        rows = list(_members(value))
        if rows:
            yield "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def _members(kind: type) -> Iterator[str]:
    """A row for each public method and property; a schedule's primitives have a page."""
    found: dict[str, Any] = {}
    for base in reversed([c for c in kind.__mro__[:2] if c is not object]):
        found |= vars(base)
    primitives = getattr(kind, "primitives", dict)()
    for name, value in found.items():
        is_own = not name.startswith("_") or name == "__call__"
        function = getattr(value, "fget", getattr(value, "func", value))
        if not is_own or name in primitives or not inspect.isfunction(function):
            continue
        said = inspect.getdoc(function)
        if not said:
            raise SystemExit(f"{kind.__name__}.{name} has no docstring")
        name = kind.__name__.lower() if name == "__call__" else name
        call = name if function is not value else _call(name, value, width=1000)
        text = " ".join(said.split())
        yield f"| `{_in_cell(call)}` | {_in_cell(text)} |"


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _call(name: str, function: Any, width: int = 100) -> str:
    """A call as the function declares it, a line for each parameter where it is long."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    given = [_spelled(p) for p in parameters]
    kinds = [p.kind for p in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        given.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = signature.return_annotation
    back = "" if result in ("None", inspect.Signature.empty) else f" -> {result}"
    line = f"{name}({', '.join(given)}){back}"
    if len(line) <= width:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in given), f"){back}"])


def _spelled(parameter: inspect.Parameter) -> str:
    return re.sub(r": '([^']*)'", r": \1", str(parameter))


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("docs/api.md is", "as it should be" if fresh else "old: run `make docs`")
        return 0 if fresh else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
