"""One step of a trace: a primitive, and what it was applied to.

Loops and buffers are references, to what an earlier step gave, or to what has a name in the program
at that moment. Everything else is a plain value.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Var

Place = tuple[int, ...]  # where in a nest of sequences; () is the value itself


@dataclass(frozen=True)
class Loop:
    """A handle on one loop. It stays valid until a primitive consumes the loop."""

    var: Var

    def __str__(self) -> str:
        return self.var.name

    __repr__ = __str__


Handle = Loop | Buffer


class Schedules(Protocol):
    """The class of the schedules that traces make (schedule/schedule.py)."""

    def __call__(self, program: Any, /) -> Any: ...
    def primitives(self) -> Mapping[str, Callable[..., Any]]: ...


class ReferenceKind(enum.Enum):
    """What a reference is to."""

    LOOP = "loop"
    BUFFER = "buffer"


@dataclass(frozen=True, repr=False)
class Reference:
    """A loop or a buffer. `step` is the number (from 0) of the step that gave it, at `place` in its
    result; with None it is what has this name when the step is applied."""

    kind: ReferenceKind
    name: str
    step: int | None = None
    place: Place = ()

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(frozen=True)
class Step:
    """One application of a primitive. `gives` are the loops and buffers of its result, by place."""

    primitive: str  # a method's name; "module:function" for one from outside of the package
    function: Callable[..., Any] = field(compare=False, repr=False)
    arguments: tuple[tuple[str, Any], ...]
    gives: tuple[tuple[Place, Reference], ...] = ()
    handles: tuple[Handle, ...] = field(default=(), compare=False, repr=False)  # behind `gives`

    def __str__(self) -> str:
        return described(self.primitive, self.arguments)


def described(primitive: str, arguments: Sequence[tuple[str, object]]) -> str:
    """An application in a line, for messages."""
    name = primitive.split(":")[-1]
    return f"{name}({', '.join(f'{k}={v}' for k, v in arguments)})"


# ---------------------------------------------------------------- handles and references


def leaves(value: object, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """What a nest of sequences holds, and where."""
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from leaves(item, (*place, i))
    else:
        yield place, value


def map_leaves(value: object, function: Callable[[Any], object]) -> Any:
    """The nest with function(leaf) for each leaf, and tuples for all sequences."""
    if isinstance(value, (tuple, list)):
        return tuple(map_leaves(item, function) for item in value)
    return function(value)


def record(
    primitive: str,
    function: Callable[..., object],
    arguments: tuple[tuple[str, object], ...],
    result: object,
) -> Step:
    """A step whose arguments are references already."""
    given = [(place, x) for place, x in leaves(result) if isinstance(x, (Loop, Buffer))]
    gives = tuple((place, Reference(_kind(x), _name(x))) for place, x in given)
    return Step(primitive, function, arguments, gives, tuple(x for _, x in given))


def referred(value: object, steps: Sequence[Step]) -> Any:
    """The value with references for its handles: to the last step that gave it, if it is still as
    it was then; else by name."""
    return map_leaves(value, lambda x: _reference(x, steps) if isinstance(x, Handle) else x)


def _reference(handle: Handle, steps: Sequence[Step]) -> Reference:
    kind, name = _kind(handle), _name(handle)
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        for (place, given), live in zip(step.gives, step.handles, strict=True):
            if (given.kind, given.name) == (kind, name):
                if live == handle:
                    return Reference(kind, name, number, place)
                return Reference(kind, name)
    return Reference(kind, name)


def _kind(handle: Handle) -> ReferenceKind:
    return ReferenceKind.LOOP if isinstance(handle, Loop) else ReferenceKind.BUFFER


def _name(handle: Handle) -> str:
    return handle.var.name if isinstance(handle, Loop) else handle.name


# ---------------------------------------------------------------- signatures


@functools.lru_cache(maxsize=256)
def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """The signature of a primitive, the state included."""
    return inspect.signature(function)


def bound_arguments(
    function: Callable[..., object],
    state: object,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> inspect.BoundArguments:
    """All arguments by name, defaults included; ScheduleError where they do not fit."""
    try:
        bound = signature_of(function).bind(state, *args, **kwargs)
    except TypeError as error:
        name, parameters = function.__name__, list(signature_of(function).parameters.values())[1:]
        hint = f"{name}({', '.join(map(str, parameters))})"
        raise ScheduleError(f"{name}: {error}", hint=hint) from None
    bound.apply_defaults()
    return bound


def call(function: Callable[..., Any], state: Any, arguments: Mapping[str, Any]) -> Any:
    """Applies a primitive to arguments that are given by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in list(signature_of(function).parameters.items())[1:]:
        if name not in arguments:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(arguments[name])
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs[name] = arguments[name]
        else:
            args.append(arguments[name])
    return function(state, *args, **kwargs)
