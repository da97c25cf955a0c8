"""Traces as JSON: data only. What a file says is checked against the signatures of the primitives;
nothing in it is imported or evaluated.

    {"format": "tilewright.trace", "version": 1, "steps": [
      {"primitive": "split", "arguments": {"loop": {"loop": "i"}, "factor": 14, "tail": "guard"},
       "gives": [{"loop": "i_o", "place": [0]}, {"loop": "i_i", "place": [1]}]},
      {"primitive": "unroll", "arguments": {"loop": {"loop": "i_i", "step": 1, "place": [1]}}}]}

Steps count from 1, as people do. A reference without a step is what has the name in the program.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tilewright.base.errors import ScheduleError, did_you_mean
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Instruction
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.trace.steps import Loop, Reference, ReferenceKind, Step, signature_of

FORMAT, VERSION = "tilewright.trace", 1
Functions = Mapping[str, Callable[..., Any]]
Instructions = Mapping[str, Instruction] | None


# ---------------------------------------------------------------- writing


def write_steps(steps: Sequence[Step]) -> str:
    """The text for steps, a line for each."""
    lines = []
    for number, step in enumerate(steps, 1):
        arguments = {name: _value(x, number, step, name) for name, x in step.arguments}
        record: dict[str, Any] = {"primitive": step.primitive, "arguments": arguments}
        if step.gives:
            record["gives"] = [_reference(x) | {"place": list(p)} for p, x in step.gives]
        lines.append(json.dumps(record, ensure_ascii=False))
    inner = ",\n  ".join(lines)
    body = f"[\n  {inner}\n]" if lines else "[]"
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "steps": {body}}}\n'


def _reference(x: Reference) -> dict[str, Any]:
    found: dict[str, Any] = {x.kind.value: x.name}
    if x.step is not None:
        found |= {"step": x.step + 1, "place": list(x.place)}
    return found


def _value(x: object, number: int, step: Step, name: str) -> Any:
    if isinstance(x, Reference):
        return _reference(x)
    if isinstance(x, tuple):
        return [_value(item, number, step, name) for item in x]
    if isinstance(x, enum.Enum):
        return x.value
    if isinstance(x, Layout):
        return {"order": list(x.order), "blocks": [list(b) for b in x.blocks]}
    if isinstance(x, Instruction):
        return {"instruction": x.name}
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    what = f"{name} of step {number}, {step}, is a {type(x).__name__}, which JSON cannot hold"
    raise ScheduleError(what, hint="save numbers, texts, enums, layouts, instructions, handles")


# ---------------------------------------------------------------- reading


def read_steps(text: str, functions: Functions, instructions: Instructions) -> tuple[Step, ...]:
    """The steps that a text says; `functions` are the primitives that it may name."""
    try:
        data = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ScheduleError(f"a trace is not JSON: {error}") from None
    _object(data, "a trace", ("format", "version", "steps"))
    if data["format"] != FORMAT:
        refuse(f"this is no trace: its format is {data['format']!r}, not {FORMAT!r}")
    if data["version"] != VERSION or isinstance(data["version"], bool):
        what = f"the trace has version {data['version']!r}; this program reads {VERSION}"
        refuse(what, "save it again from the schedule's program, or use a newer tilewright")
    if not isinstance(data["steps"], list):
        refuse("the steps of a trace are a list")
    steps: list[Step] = []
    for number, item in enumerate(data["steps"], 1):
        try:
            steps.append(_step(item, steps, functions, instructions))
        except ScheduleError as error:
            error.add_context(f"reading step {number} of a trace")
            raise
    return tuple(steps)


def _step(item: Any, before: list[Step], functions: Functions, instructions: Instructions) -> Step:
    _object(item, "a step", ("primitive", "arguments"), ("gives",))
    name = item["primitive"]
    if not isinstance(name, str) or name not in functions:
        if isinstance(name, str) and ":" in name:
            hint = f"pass it: primitives={{{name!r}: …}}; nothing is imported by its name"
            refuse(f"the primitive {name} is not one of tilewright's", hint)
        refuse(f"there is no primitive {name!r}", did_you_mean(str(name), list(functions)))
    function = functions[name]
    arguments = _arguments(item["arguments"], name, function, _Reader(before, instructions))
    if not isinstance(item.get("gives", []), list):
        refuse("what a step gives is a list")
    gives = tuple(_given(x) for x in item.get("gives", []))
    return Step(name, function, arguments, gives)


def _given(x: Any) -> tuple[tuple[int, ...], Reference]:
    kind = _kind(x, "what a step gives")
    _object(x, "what a step gives", (kind.value, "place"))
    return _place(x["place"]), Reference(kind, _text(x[kind.value]))


def _arguments(
    given: object, name: str, function: Callable[..., object], reader: _Reader
) -> tuple[tuple[str, Any], ...]:
    parameters = dict(list(signature_of(function).parameters.items())[1:])
    if not isinstance(given, dict):
        refuse(f"the arguments of {name} are an object")
    for key in given:
        if key not in parameters:
            refuse(f"{name} has no argument {key!r}", did_you_mean(key, list(parameters)))
    annotations = _annotations(function)
    found = []
    for key, parameter in parameters.items():
        annotation = annotations.get(key, Any)
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            annotation = types.GenericAlias(Sequence, (annotation,))
        if key in given:
            found.append((key, reader.read(given[key], annotation, f"{key} of {name}")))
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            found.append((key, ()))
        elif parameter.default is inspect.Parameter.empty:
            refuse(f"{name} needs its argument {key!r}")
        else:
            found.append((key, parameter.default))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _annotations(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:  # names that only a type checker has: values are read as they stand
        return {}


class _Reader:
    """Reads values as the annotations of primitives say."""

    def __init__(self, before: list[Step], instructions: Instructions) -> None:
        self.before = before
        self.instructions = instructions

    def read(self, value: object, annotation: object, what: str) -> Any:
        """The value; ScheduleError unless it is of the type."""
        origin = typing.get_origin(annotation)
        if origin in (typing.Union, types.UnionType):
            return self._union(value, typing.get_args(annotation), what)
        if annotation in (Loop, Buffer):
            return self._handle(
                value, ReferenceKind.LOOP if annotation is Loop else ReferenceKind.BUFFER, what
            )
        if isinstance(annotation, type) and annotation in _PLAIN:
            if not _PLAIN[annotation](value):
                refuse(f"{what} is {_shown(value)}, not {_SPELLED[annotation]}")
            return value
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            known = {x.value: x for x in annotation}
            if not isinstance(value, (str, int)) or value not in known:
                refuse(
                    f"{what} is {_shown(value)}", did_you_mean(str(value), list(map(str, known)))
                )
            return known[value]
        if annotation is Layout:
            return _layout(value, what)
        if annotation is Instruction:
            return self._instruction(value, what)
        if origin is not None or annotation in (list, tuple):
            return self._items(value, origin or annotation, typing.get_args(annotation), what)
        return self._any(value, what)

    def _union(self, value: object, options: Sequence[object], what: str) -> Any:
        if value is None and type(None) in options:
            return None
        errors: list[ScheduleError] = []
        for option in options:
            if option is not type(None):
                try:
                    return self.read(value, option, what)
                except ScheduleError as error:
                    errors.append(error)
        raise errors[0]

    def _items(self, value: object, origin: object, args: Sequence[object], what: str) -> Any:
        if not isinstance(value, list):
            refuse(f"{what} is {_shown(value)}, not a list")
        if origin is tuple and args and args[-1] is not Ellipsis:
            if len(args) != len(value):
                refuse(f"{what} has {len(value)} items, not {len(args)}")
            pairs = zip(value, args, strict=True)
            return tuple(self.read(x, a, what) for x, a in pairs)
        inner = args[0] if args else Any
        return tuple(self.read(x, inner, f"an item of {what}") for x in value)

    def _handle(self, value: object, kind: ReferenceKind, what: str) -> Reference:
        if not isinstance(value, dict) or kind.value not in value:
            refuse(f"{what} is {_shown(value)}, not a {kind.value}")
        name = _text(value[kind.value])
        if "step" not in value:
            _object(value, what, (kind.value,))
            return Reference(kind, name)
        _object(value, what, (kind.value, "step", "place"))
        step, place = value["step"], _place(value["place"])
        if not _PLAIN[int](step) or not 1 <= step <= len(self.before):
            refuse(f"{what} comes from step {_shown(step)}, which is not one before")
        given = dict(self.before[step - 1].gives)
        if place not in given or given[place].kind is not kind:
            shown = ", ".join(x.name for x in given.values()) or "nothing"
            refuse(
                f"{what}: step {step} gives no {kind.value} at {list(place)}", f"it gives {shown}"
            )
        return Reference(kind, name, step - 1, place)

    def _instruction(self, value: Any, what: str) -> Instruction:
        _object(value, what, ("instruction",))
        name = _text(value["instruction"])
        if self.instructions is None:
            refuse(f"{what} is the instruction {name!r} of a target", "pass it: target=…")
        if name not in self.instructions:
            hint = did_you_mean(name, list(self.instructions))
            refuse(f"the target has no instruction {name!r}", hint)
        return self.instructions[name]

    def _any(self, value: object, what: str) -> Any:
        """A value of a parameter whose type says nothing."""
        if isinstance(value, list):
            return tuple(self._any(x, what) for x in value)
        if not isinstance(value, dict):
            return value
        for kind in ReferenceKind:
            if kind.value in value:
                return self._handle(value, kind, what)
        return self._instruction(value, what) if "instruction" in value else _layout(value, what)


def _is_int(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


_PLAIN: dict[type, Callable[[Any], bool]] = {
    int: _is_int,
    bool: lambda x: isinstance(x, bool),
    str: lambda x: isinstance(x, str),
    float: lambda x: isinstance(x, float) or _is_int(x),
    type(None): lambda x: x is None,
}
_SPELLED = {int: "a whole number", bool: "true or false", str: "a text", float: "a number"}
_SPELLED[type(None)] = "null"


def _layout(value: Any, what: str) -> Layout:
    _object(value, what, ("order", "blocks"))
    order, blocks = value["order"], value["blocks"]
    is_ints = isinstance(order, list) and all(map(_is_int, order))
    is_pairs = isinstance(blocks, list) and all(
        isinstance(b, list) and len(b) == 2 and all(map(_is_int, b)) for b in blocks
    )
    if not is_ints or not is_pairs:
        refuse(f"{what} is {_shown(value)}, which is no layout")
    return Layout(tuple(order), tuple((a, f) for a, f in blocks))


def _kind(value: object, what: str) -> ReferenceKind:
    for kind in ReferenceKind:
        if isinstance(value, dict) and kind.value in value:
            return kind
    return refuse(f"{what} is {_shown(value)}, neither a loop nor a buffer")


def _place(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(_is_int(x) and x >= 0 for x in value):
        refuse(f"{_shown(value)} is no place in a result")
    return tuple(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        refuse(f"{_shown(value)} is no name")
    return value


def _object(
    value: object, what: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Refuses what is no object with exactly these fields."""
    if not isinstance(value, dict):
        refuse(f"{what} is {_shown(value)}, not an object")
    for key in value:
        if key not in (*needed, *optional):
            refuse(f"{what} has a field {key!r}", did_you_mean(key, [*needed, *optional]))
    for key in needed:
        if key not in value:
            refuse(f"{what} has no field {key!r}")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        refuse(f"a trace says {twice!r} twice in one object")
    return found


def _no_constant(text: str) -> NoReturn:
    refuse(f"{text} is no value of a trace")


def refuse(what: str, hint: str | None = None) -> NoReturn:
    raise ScheduleError(what, hint=hint)
