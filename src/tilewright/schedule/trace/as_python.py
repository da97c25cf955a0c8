"""A trace as a Python program that does the same to a schedule `s`."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Sequence

from tilewright.base.identifiers import identifier
from tilewright.ir.instruction import Instruction
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.trace.steps import Place, Reference, Step, leaves, signature_of
from tilewright.target.pairs import selectable

_INSTRUCTIONS = "instructions"
_TAKEN = ("s", "target", _INSTRUCTIONS)


class PythonWriter:
    """Writes the lines of the steps, one each; `imports` are those that they need."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.imports: dict[str, None] = {}
        self.uses_instructions = self.uses_pairs = False
        self._reserved = {*_TAKEN, *_imported(steps)}
        self._names = self._results()

    def program(self) -> str:
        """The whole program."""
        lines = [self.line(number) for number in range(len(self.steps))]
        head = sorted(self.imports)
        if self.uses_instructions:
            every = "selectable(target)" if self.uses_pairs else "target.instructions"
            head.append(f"{_INSTRUCTIONS} = {{x.name: x for x in {every}}}")
        return "\n".join([*head, *([""] if head else []), *lines])

    def line(self, number: int) -> str:
        """One step."""
        step = self.steps[number]
        names = [self._names[number, place] for place, _ in step.gives]
        call = self._call(step)
        if not names:
            return call
        if step.gives[0][0] == ():
            return f"{names[0]} = {call}"
        return f"{_pattern(dict(zip((p for p, _ in step.gives), names, strict=True)))} = {call}"

    def _call(self, step: Step) -> str:
        texts: list[str] = []
        given = dict(step.arguments)
        skipped = False
        for name, parameter in list(signature_of(step.function).parameters.items())[1:]:
            value = given.get(name, parameter.default)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                texts += [self._text(x) for x in value]
            elif parameter.default is not parameter.empty and value == parameter.default:
                skipped = True  # those that follow cannot be positional
            elif skipped or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                texts.append(f"{name}={self._text(value)}")
            else:
                texts.append(self._text(value))
        if ":" not in step.primitive:
            return f"s.{step.primitive}({', '.join(texts)})"
        module, function = step.primitive.split(":")
        self.imports[f"from {module} import {function}"] = None
        return f"s.apply({', '.join([function, *texts])})"

    def _text(self, value: object) -> str:
        if isinstance(value, Reference):
            if value.step is None:
                return f"s.{value.kind.value}({value.name!r})".replace("'", '"')
            return self._names[value.step, value.place]
        if isinstance(value, tuple):
            inner = ", ".join(map(self._text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, enum.Enum):
            self.imports[_import(type(value))] = None
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, Layout):
            self.imports[_import(Layout)] = None
            blocks = f", {value.blocks!r}" if value.blocks else ""
            return f"Layout({value.order!r}{blocks})"
        if isinstance(value, Instruction):
            self.uses_instructions = True
            if value.pair is not None:
                self.uses_pairs = True
                self.imports[f"from {selectable.__module__} import {selectable.__name__}"] = None
            return f'{_INSTRUCTIONS}["{value.name}"]'
        if isinstance(value, str) and '"' not in value and "\\" not in value:
            return f'"{value}"' if value.isprintable() else repr(value)
        return repr(value)

    def _results(self) -> dict[tuple[int, Place], str]:
        """A variable for each result: named after it, and anew where the old one is still used."""
        last = {
            (x.step, x.place): number
            for number, step in enumerate(self.steps)
            for _, x in leaves(tuple(v for _, v in step.arguments))
            if isinstance(x, Reference) and x.step is not None
        }
        names: dict[tuple[int, Place], str] = {}
        in_use: dict[str, int] = {}  # until which step
        for number, step in enumerate(self.steps):
            here: set[str] = set()
            for place, given in step.gives:
                base = identifier(given.name)
                name, n = base, 1
                while name in self._reserved or in_use.get(name, -1) > number or name in here:
                    name, n = f"{base}_{n}", n + 1
                here.add(name)
                names[number, place] = name
            for place, _ in step.gives:
                in_use[names[number, place]] = last.get((number, place), -1)
        return names


def _pattern(names: dict[Place, str], place: Place = ()) -> str:
    """What a nest of results is assigned to."""
    if place in names:
        return names[place]
    inside = [p[len(place)] for p in names if p[: len(place)] == place]
    parts = [_pattern(names, (*place, i)) for i in range(max(inside, default=-1) + 1)]
    if not parts:
        return "_"
    text = ", ".join(parts) + ("," if len(parts) == 1 else "")
    return text if place == () else f"({text})"


def _import(cls: type) -> str:
    return f"from {cls.__module__} import {cls.__name__}"


def _imported(steps: Sequence[Step]) -> set[str]:
    """Names that the program imports."""
    values = [x for step in steps for _, x in leaves(tuple(v for _, v in step.arguments))]
    names = {type(x).__name__ for x in values if isinstance(x, (enum.Enum, Layout))}
    return names | {s.primitive.split(":")[1] for s in steps if ":" in s.primitive}
