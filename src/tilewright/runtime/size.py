"""Sizes: integer arithmetic over a model's symbolic dimensions, as plain data.

    size = 4 | "n" | (operator, size, size)
    operator = add | sub | mul | div | floordiv | mod | rem | min | max

What the operators mean is as in ir/expr.py. In JSON a triple is a list. Nothing here runs code
from a file: evaluating walks the triples.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union

from tilewright.base.errors import ArtifactError, InputError

Size = Union[int, str, tuple[str, "Size", "Size"]]  # noqa: UP007 - it names itself

MAX_DEPTH = 64  # of a size read from a file: far beyond what a model's shapes need
LIMIT = 1 << 62  # compiled code computes in 64 bits


def _quotient(a: int, b: int) -> int:
    """a / b towards zero."""
    return -(-a // b) if (a < 0) != (b < 0) else a // b


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _quotient,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "rem": lambda a, b: a - b * _quotient(a, b),
    "min": min,
    "max": max,
}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"}


def evaluate_size(size: Size, symbols: Mapping[str, int]) -> int:
    """The number that `size` is when its symbols have these values."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return symbols[size]
    name, a, b = size
    left, right = evaluate_size(a, symbols), evaluate_size(b, symbols)
    if right == 0 and name in ("div", "floordiv", "mod", "rem"):
        raise InputError(f"{format_size(size)} divides by zero{given(size, symbols)}")
    value = OPERATORS[name](left, right)
    if abs(value) > LIMIT:
        raise InputError(f"{format_size(size)} does not fit in 64 bits{given(size, symbols)}")
    return value


def given(size: Size, symbols: Mapping[str, int]) -> str:
    """ " for n = 3": the symbols that an error about `size` is about."""
    used = [f"{name} = {symbols[name]}" for name in dict.fromkeys(symbols_of(size))]
    return f" for {', '.join(used)}" if used else ""


def symbols_of(size: Size) -> Iterator[str]:
    """The symbols in `size`, from left to right."""
    if isinstance(size, str):
        yield size
    elif isinstance(size, tuple):
        yield from symbols_of(size[1])
        yield from symbols_of(size[2])


def format_size(size: Size) -> str:
    """As Python writes it; every operation within another is in parentheses."""
    if not isinstance(size, tuple):
        return str(size)
    name, a, b = size
    sides = [f"({format_size(s)})" if isinstance(s, tuple) else format_size(s) for s in (a, b)]
    if name in _SIGNS:
        return f"{sides[0]} {_SIGNS[name]} {sides[1]}"
    return f"{name}({format_size(a)}, {format_size(b)})"


def format_shape(shape: tuple[Size, ...]) -> str:
    return f"[{', '.join(format_size(s) for s in shape)}]"


def size_to_json(size: Size) -> Any:
    if not isinstance(size, tuple):
        return size
    return [size[0], size_to_json(size[1]), size_to_json(size[2])]


def size_from_json(value: Any, where: str, depth: int = 0) -> Size:
    """The size that `value` stands for; ArtifactError, naming the place, if it is none."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LIMIT:
        return value
    if isinstance(value, str):
        return value
    if depth < MAX_DEPTH and isinstance(value, list) and len(value) == 3:
        name, a, b = value
        if isinstance(name, str) and name in OPERATORS:
            return (name, size_from_json(a, where, depth + 1), size_from_json(b, where, depth + 1))
    raise ArtifactError(f"{where} is not a size")
