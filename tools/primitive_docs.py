"""Writes docs/primitives.md: what each schedule primitive does, from its docstring, with an example
that is run while the page is written.

    python tools/primitive_docs.py            writes the page
    python tools/primitive_docs.py --check    says whether it is as it would be written
"""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from primitive_examples import EXAMPLES

from tilewright import Schedule
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.schedule.primitives.loops import Tail
from tilewright.targets.tiny import tiny

PAGE = Path(__file__).parents[1] / "docs" / "primitives.md"
INTRODUCTION = Path(__file__).with_name("primitive_docs.md")
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def page() -> str:
    """The whole page."""
    parts = [introduction(), "# The primitives\n"]
    primitives = Schedule.primitives()
    missing = sorted(primitives.keys() - EXAMPLES.keys())
    if missing:
        raise SystemExit(f"tools/primitive_examples.py has no example of {', '.join(missing)}")
    named = [name for name in EXAMPLES if name in primitives]
    parts.append(", ".join(f"[{name}](#{name})" for name in named) + "\n")
    parts += [section(name, primitives[name]) for name in named]
    return "\n".join(parts)


def section(name: str, function: Callable[..., Any]) -> str:
    """One primitive: how it is called, what it does, an example."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    arguments = ", ".join(map(spelled, parameters))
    result = inspect.signature(function).return_annotation
    given = "" if result == "None" else f" -> {result}"
    call = f"s.{name}({arguments}){given}"
    before, steps, after = example(name)
    return "\n".join(
        [
            f"## {name}\n",
            f"`{call}`\n",
            prose(inspect.getdoc(function) or ""),
            f"```text\n{before}\n```\n```python\n{steps}\n```\n```text\n{after}\n```\n",
        ]
    )


def spelled(parameter: inspect.Parameter) -> str:
    """A parameter as its function declares it."""
    text = re.sub(r": '([^']*)'", r": \1", str(parameter))
    return re.sub(r"<(\w+\.\w+): .*>", r"\1", text)


def prose(docstring: str) -> str:
    """A docstring as Markdown: what is indented is a picture."""
    parts = []
    for paragraph in docstring.split("\n\n"):
        lines = paragraph.splitlines()
        if any(line.startswith(("    ", "->")) for line in lines):
            parts.append("```text\n" + "\n".join(lines) + "\n```\n")
        else:
            parts.append(paragraph + "\n")
    return "\n".join(parts)


def example(name: str) -> tuple[str, str, str]:
    """The program before, the steps, the program after; the result is checked."""
    program, steps = EXAMPLES[name]
    kernel = parse_kernel(program.strip())
    verify_kernel(kernel)
    s = Schedule(kernel)
    exec(steps, {"s": s, "Tail": Tail, "Layout": Layout, "target": tiny()})
    if name not in [step.primitive for step in s.trace]:
        raise SystemExit(f"the example of {name} does not use it")
    verify_kernel(s.kernel)
    s.check()
    return program.strip(), steps, s.show()


def introduction() -> str:
    """The text beside this script, with what its examples print."""
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:

        def run(found: re.Match[str]) -> str:
            source = found[1]
            path = str(Path(folder) / f"{len(linecache.cache)}" / "schedule.py")
            lines = source.splitlines(keepends=True)
            linecache.cache[path] = (len(source), None, lines, path)  # kernels read their source
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(source, path, "exec"), names)
            printed = said.getvalue().rstrip()
            return found[0] + (f"```text\n{printed}\n```\n" if printed else "")

        return BLOCK.sub(run, INTRODUCTION.read_text(encoding="utf-8"))


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("docs/primitives.md is", "as it should be" if fresh else "old: run `make docs`")
        return 0 if fresh else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
