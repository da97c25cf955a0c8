"""Where the statements of a kernel stand in the user's file, and which of them an error means.

Nothing of this is in the program itself: it is a list of line numbers beside it, one for each
statement in program order, and a look at the words of an error. After a schedule the statements are
others, but the names of loops and buffers still begin as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.errors import CompileError, TilewrightError
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    For,
    Kernel,
    Stmt,
    Store,
    format_stmt,
    walk_statements,
)

# What schedules put behind names: i_o, i_i, C_local, i_init_1 …
_SUFFIX = re.compile(r"_(o|i|t|c|init|local|\d+)\Z")
_NAME = re.compile(r"[A-Za-z_]\w*")
_PROSE = re.compile(r"(an?|and|are|as|at|be|by|for|from|into?|is|it|not?|o[fnr]|so|to)\Z")


@dataclass(frozen=True)
class SourceLines:
    """`lines` has the line of each statement, in the order of walk_statements; `start` is the
    function's own; `text` the file's lines by number."""

    file: str
    start: int
    lines: tuple[int, ...]
    text: Mapping[int, str]

    def place(self, line: int) -> str:
        """file.py:12: C[i] = 0.0"""
        return f"{self.file}:{line}: {self.text.get(line, '').strip()}"

    def error_at(
        self, kernel: Kernel, stmt: Stmt | None, what: str, hint: str | None
    ) -> CompileError:
        """The error to raise about a statement of the kernel (found by identity), or all of it."""
        found = zip(walk_statements(kernel.body), self.lines, strict=True)
        line = next((line for s, line in found if s is stmt), self.start)
        text = self.text.get(line, "").strip()
        return CompileError(f"{self.file}:{line}: {what}", program=f"{text}\n^", hint=hint)

    def locate(self, kernel: Kernel, error: TilewrightError) -> str | None:
        """The line that an error about `kernel`, or about a schedule of it, means."""
        line = self._shown(kernel, error)
        if line is None:
            line = self._named(kernel, error.what)
        return None if line is None else self.place(line)

    def _shown(self, kernel: Kernel, error: TilewrightError) -> int | None:
        """The line of the statement that the error shows: the innermost of an excerpt."""
        if error.program is None or isinstance(error.program, Kernel):
            return None
        heads: dict[str, int] = {}
        for stmt, line in zip(walk_statements(kernel.body), self.lines, strict=True):
            heads.setdefault(format_stmt(stmt)[0], line)
        shown = [text.strip() for text in str(error.program).splitlines()]
        for text in reversed(shown):
            if text in heads:
                return heads[text]
        first = shown[0] if shown else ""  # a part of a statement
        return next((line for head, line in heads.items() if first and first in head), None)

    def _named(self, kernel: Kernel, what: str) -> int | None:
        """The line of the first loop or buffer that the words name."""
        known = self._definitions(kernel)
        for match in _NAME.finditer(what):
            name = match[0]
            if _PROSE.match(name) and what[match.end() : match.end() + 1] != "[":
                continue
            while name not in known and _SUFFIX.search(name):
                name = _SUFFIX.sub("", name)
            if name in known:
                return known[name]
        return None

    def _definitions(self, kernel: Kernel) -> dict[str, int]:
        """The line where each loop begins, and where each buffer is first written."""
        found: dict[str, int] = {}
        for stmt, line in zip(walk_statements(kernel.body), self.lines, strict=True):
            if isinstance(stmt, For):
                found[stmt.var.name] = line
            elif isinstance(stmt, (Alloc, Store, Accumulate)):
                found.setdefault(stmt.buffer.name, line)
        return found | {b.name: self.start for b in kernel.inputs}
