"""A kernel and how it was rewritten: what every primitive reads and changes.

A primitive is a function `name(state, *arguments) -> handles` under `@primitive`: a picture
(docstring), preconditions (`refuse`), and an edit that leaves a new program in `state.kernel`.
The decorator records the application in the trace (trace.py) and says in every error what was
applied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar, overload

from tilewright.analyze.rewrite import replace_in, simplify_block
from tilewright.analyze.simplify import Simplifier
from tilewright.analyze.workers import check_workers
from tilewright.base.errors import CompileError, ScheduleError, TilewrightError, did_you_mean
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Alloc, Block, For, Kernel, Stmt, sub_blocks, walk_statements
from tilewright.ir.substitute import mentioned
from tilewright.schedule.core.notes import Notes
from tilewright.schedule.trace.steps import Loop, bound_arguments, described, record, referred
from tilewright.schedule.trace.trace import Trace
from tilewright.target.target import Target


@dataclass(frozen=True)
class Moment:
    """What a schedule was after some of its steps."""

    kernel: Kernel
    trace: Trace
    notes: Notes


class State:
    """The current program of a schedule, and lookups in it."""

    def __init__(self, kernel: Kernel) -> None:
        self.original = kernel
        self.kernel = kernel
        self.trace = Trace(schedule=type(self))
        self.notes = Notes()  # annotations of loops
        self.fallback = ""  # what the rules refused, where this is a plain schedule instead
        self._cached: tuple[Kernel, Simplifier] | None = None
        self._named: tuple[Kernel, set[str]] | None = None
        self.simplify_all()  # primitives find subscripts in canonical form, and leave them so

    @property
    def moment(self) -> Moment:
        """What `back_to` brings back."""
        return Moment(self.kernel, self.trace, self.notes)

    def back_to(self, moment: Moment) -> None:
        """Undoes the steps since then, annotations too."""
        self.kernel, self.trace, self.notes = moment.kernel, moment.trace, moment.notes

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
            extents = {s.var: s.extent for s in loops}
            known = self._cached[1] if self._cached is not None else None
            if known is None or not known.learn(extents):
                known = Simplifier(extents)
            self._cached = (self.kernel, known)
        return self._cached[1]

    def names(self) -> set[str]:
        """Every name taken in the program."""
        if self._named is None or self._named[0] is not self.kernel:
            taken = {x.name for x in mentioned(self.kernel)}
            self._named = (self.kernel, taken | {b.name for b in self.kernel.params})
        return set(self._named[1])

    def fresh(self, name: str) -> str:
        """`name`, with a number behind it if it is taken."""
        taken, unique, n = self.names(), name, 1
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        return unique

    # ---------------------------------------------------------- primitives

    @classmethod
    def primitives(cls) -> dict[str, Callable[..., Any]]:
        """The primitives that are methods, by name."""
        found = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}
        return {name: f for name, f in found.items() if hasattr(f, "is_primitive")}

    def name_of(self, function: Callable[..., Any]) -> str:
        """What a trace calls a primitive: "module:function" unless it is a method."""
        name = function.__name__
        if getattr(type(self), name, None) is function:
            return name
        return f"{function.__module__}:{function.__qualname__}"

    def apply(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Applies a primitive from outside of the package: s.apply(mine, …) for a function `mine`
        under @primitive."""
        if not hasattr(function, "is_primitive"):
            name = getattr(function, "__name__", function)
            refuse(f"{name} is no primitive", hint="write it as a function under @primitive")
        return function(self, *args, **kwargs)

    @classmethod
    def read_trace(
        cls,
        text: str,
        primitives: Mapping[str, Callable[..., Any]] | None = None,
        target: Target | None = None,
    ) -> Trace:
        """A trace saved as JSON, whose replays are schedules of this class; see Trace.from_json."""
        return Trace.from_json(text, cls, primitives, target)

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


P = ParamSpec("P")
R = TypeVar("R")


def primitive(function: Callable[Concatenate[State, P], R]) -> Callable[Concatenate[State, P], R]:
    """Makes a function a schedule primitive: recorded, all or nothing, with errors in context. One
    that applies others is recorded alone."""

    @functools.wraps(function)
    def apply(state: State, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = bound_arguments(function, state, args, kwargs)
        before = state.moment
        shown = tuple(list(bound.arguments.items())[1:])
        given = tuple((name, referred(value, before.trace.steps)) for name, value in shown)
        try:
            result = function(*bound.args, **bound.kwargs)
            state.notes = state.notes.after(before.kernel, state.kernel)
            _check_workers(state, before.kernel)
        except BaseException as error:
            state.back_to(before)
            if isinstance(error, TilewrightError):
                error.add_context(f"applying {described(function.__name__, shown)}")
            raise
        state.trace = before.trace.with_step(record(state.name_of(apply), apply, given, result))
        return result

    vars(apply)["is_primitive"] = True
    return apply


def _check_workers(state: State, before: Kernel) -> None:
    """Parallel and bound loops stay so that workers may run them, whatever is done around them."""
    try:
        check_workers(state.kernel)
    except CompileError as error:
        raise ScheduleError(f"then {error.what}", program=before, hint=error.hint) from None


def refuse(what: str, state: State | None = None, hint: str | None = None) -> NoReturn:
    """Raises ScheduleError, showing the current program."""
    raise ScheduleError(what, program=state.kernel if state else None, hint=hint)


@overload
def attempt(
    primitive: Callable[P, None], *arguments: P.args, **named: P.kwargs
) -> Literal[True] | None: ...
@overload
def attempt(primitive: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R | None: ...
def attempt(
    primitive: Callable[P, R], *arguments: P.args, **named: P.kwargs
) -> R | Literal[True] | None:
    """Applies a primitive if it is legal: its result (True if it has none); None if refused."""
    try:
        result = primitive(*arguments, **named)
    except ScheduleError:
        return None
    return True if result is None else result
