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

from tilewright.analyze.linear import substitute
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import ScheduleError, TilewrightError, did_you_mean
from tilewright.base.node import Node
from tilewright.ir.expr import Buffer, Expr, Load, Var, constant_value
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    map_block,
    map_exprs,
    map_inner_blocks,
    sub_blocks,
    walk_statements,
)


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
        taken = {x.name for x in self.kernel.walk() if isinstance(x, (Var, Buffer))}
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


def replace_in(block: Block, target: Stmt, new: Stmt | Block | None) -> Block:
    """The block with one statement (found by identity) replaced."""

    def visit(stmt: Stmt) -> Stmt | Block | None:
        if stmt is target:
            return new
        return map_inner_blocks(stmt, lambda inner: map_block(inner, visit))

    return map_block(block, visit)


def _path(block: Block, target: Stmt) -> list[Stmt] | None:
    for stmt in block:
        if stmt is target:
            return []
        for inner in sub_blocks(stmt):
            found = _path(inner, target)
            if found is not None:
                return [stmt, *found]
    return None


def simplify_block(block: Block, simplifier: Simplifier) -> Block:
    """Simplifies every expression; a conditional that is decided gives way to its branch."""

    def visit(stmt: Stmt) -> Stmt | Block:
        if isinstance(stmt, If):
            cond = simplifier(stmt.cond)
            taken = constant_value(cond)
            if taken is not None:
                return map_block(stmt.body if taken else stmt.orelse, visit)
            stmt = stmt if cond is stmt.cond else stmt.with_(cond=cond)
            return map_inner_blocks(stmt, lambda b: map_block(b, visit))
        if isinstance(stmt, For):
            extent = simplifier.dim(stmt.extent)
            stmt = stmt if extent == stmt.extent else stmt.with_(extent=extent)
            return map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return map_exprs(stmt, simplifier)

    return map_block(block, visit)


def substitute_block(block: Block, values: dict[Expr, Expr]) -> Block:
    """The block with variables replaced everywhere."""
    return map_block(block, lambda stmt: map_exprs(stmt, lambda e: substitute(e, values)))


def rewrite_accesses(
    block: Block, buffer: Buffer, new: Buffer, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
) -> Block:
    """Every access to `buffer` becomes one to `new` at place(indices); its Alloc follows."""

    def read(e: Any) -> Any:
        if not isinstance(e, Expr):
            return e
        e = e.map(read)
        return Load(new, place(e.indices)) if isinstance(e, Load) and e.buffer == buffer else e

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc):
            return Alloc(new) if stmt.buffer == buffer else stmt
        if isinstance(stmt, (For, If)):
            stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
            if isinstance(stmt, If):
                cond = read(stmt.cond)
                return stmt if cond is stmt.cond else stmt.with_(cond=cond)
            return stmt
        assert isinstance(stmt, (Store, Accumulate))
        stmt = map_exprs(stmt, read)
        if stmt.buffer == buffer:
            return stmt.with_(buffer=new, indices=place(stmt.indices))
        return stmt

    return map_block(block, visit)


def uses(node: Node, buffer: Buffer) -> bool:
    """Whether a statement or expression mentions a buffer."""
    return any(x == buffer for x in node.walk() if isinstance(x, Buffer))


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

