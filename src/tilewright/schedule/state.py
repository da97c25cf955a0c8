"""A kernel and how it was rewritten: what every primitive reads and changes.

A primitive is a function `name(state, *arguments) -> handles` under `@primitive`: a picture
(docstring), preconditions (`refuse`), and an edit that leaves a new program in `state.kernel`.
The decorator records the application in the trace and says in every error what was applied.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from tilewright.analyze.rewrite import replace_in, simplify_block
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import ScheduleError, TilewrightError, did_you_mean
from tilewright.ir.expr import Buffer, Symbol, Var
from tilewright.ir.loop import Alloc, Block, For, Kernel, Stmt, sub_blocks, walk_statements


@dataclass(frozen=True)
class Loop:
    """A handle on one loop. It stays valid until a primitive consumes the loop."""

    var: Var

    def __str__(self) -> str:
        return self.var.name

    __repr__ = __str__


@dataclass(frozen=True)
class Applied:
    """One step of the trace."""

    primitive: str
    arguments: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join(f'{k}={v}' for k, v in self.arguments)})"


class State:
    """The current program of a schedule, and lookups in it."""

    def __init__(self, kernel: Kernel) -> None:
        self.original = kernel
        self.kernel = kernel
        self.trace: list[Applied] = []
        self._cached: tuple[Kernel, Simplifier] | None = None
        self.simplify_all()  # primitives find subscripts in canonical form, and leave them so

    # ---------------------------------------------------------- lookups

    def loops(self) -> list[Loop]:
        """All loops, outermost first, in program order."""
        return [Loop(s.var) for s in walk_statements(self.kernel.body) if isinstance(s, For)]

    def loop(self, name: str) -> Loop:
        """The handle of the loop called `name`."""
        names = [loop.var.name for loop in self.loops()]
        if name not in names:
            refuse(f"there is no loop called {name!r}", self, did_you_mean(name, names))
        return self.loops()[names.index(name)]

    def for_(self, loop: Loop) -> For:
        """The statement behind a handle."""
        for stmt in walk_statements(self.kernel.body):
            if isinstance(stmt, For) and stmt.var == loop.var:
                return stmt
        return refuse(f"there is no loop {loop} any more", self)

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`: a parameter or an allocation."""
        found = {b.name: b for b in (*self.kernel.params, *self.allocations())}
        if name not in found:
            refuse(f"there is no buffer called {name!r}", self, did_you_mean(name, list(found)))
        return found[name]

    def check_buffer(self, buffer: Buffer) -> None:
        """Refuses a buffer that is not in the program (any more)."""
        found = [*self.kernel.params, *self.allocations()]
        if buffer not in found:
            hint = did_you_mean(str(buffer), list(map(str, found)))
            refuse(f"there is no buffer {buffer} (any more)", self, hint)

    def allocations(self) -> Iterator[Buffer]:
        return (s.buffer for s in walk_statements(self.kernel.body) if isinstance(s, Alloc))

    def loops_around(self, target: Stmt) -> list[For]:
        """The loops that enclose a statement, outermost first."""
        found = _path(self.kernel.body, target)
        assert found is not None, "the statement is not in the program"
        return [s for s in found if isinstance(s, For)]

    @property
    def simplifier(self) -> Simplifier:
        """Knows the extent of every loop of the current program."""
        if self._cached is None or self._cached[0] is not self.kernel:
            loops = (s for s in walk_statements(self.kernel.body) if isinstance(s, For))
            self._cached = (self.kernel, Simplifier({s.var: s.extent for s in loops}))
        return self._cached[1]

    def names(self) -> set[str]:
        """Every name taken in the program."""
        taken = {x.name for x in self.kernel.walk() if isinstance(x, (Var, Buffer, Symbol))}
        return taken | {b.name for b in self.kernel.params}

    def fresh(self, name: str) -> str:
        """`name`, with a number behind it if it is taken."""
        taken, unique, n = self.names(), name, 1
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        return unique

    # ---------------------------------------------------------- edits

    def set_body(self, body: Block) -> None:
        self.kernel = self.kernel.with_(body=body)

    def replace(self, target: Stmt, new: Stmt | Block | None) -> None:
        """Puts `new` in the place of one statement (found by identity)."""
        self.set_body(replace_in(self.kernel.body, target, new))

    def simplify_all(self) -> None:
        """Brings every subscript and condition to canonical form; drops decided conditionals."""
        simplifier = self.simplifier
        self.set_body(simplify_block(self.kernel.body, simplifier))


def _path(block: Block, target: Stmt) -> list[Stmt] | None:
    for stmt in block:
        if stmt is target:
            return []
        for inner in sub_blocks(stmt):
            found = _path(inner, target)
            if found is not None:
                return [stmt, *found]
    return None


F = TypeVar("F", bound=Callable[..., Any])


def primitive(function: F) -> F:
    """Makes a function a schedule primitive: recorded, all or nothing, with errors in context."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def apply(state: State, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(state, *args, **kwargs)
        bound.apply_defaults()
        before = state.kernel
        shown = tuple(list(bound.arguments.items())[1:])
        try:
            result = function(*bound.args, **bound.kwargs)
        except TilewrightError as error:
            state.kernel = before
            error.add_context(f"applying {Applied(function.__name__, shown)}")
            raise
        state.trace.append(Applied(function.__name__, shown))
        return result

    return apply  # type: ignore[return-value]


def refuse(what: str, state: State | None = None, hint: str | None = None) -> NoReturn:
    """Raises ScheduleError, showing the current program."""
    raise ScheduleError(what, program=state.kernel if state else None, hint=hint)
