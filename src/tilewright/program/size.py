"""Sizes: integer arithmetic over a model's symbolic dimensions, as plain data.

    size = 4 | "n" | Arithmetic(operator, size, size)
    operator = add | sub | mul | div | floordiv | mod | rem | min | max

What the operators mean is as in ir/expr.py. Nothing here runs code from a file: evaluating walks
the records.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Union

from tilewright.base.errors import InputError
from tilewright.base.identifiers import identifier
from tilewright.base.node import Node, node

LIMIT = 1 << 62  # compiled code computes in 64 bits


@node
class Arithmetic(Node):
    op: str
    a: Size
    b: Size

    def __str__(self) -> str:
        """As Python writes it, without needless parentheses."""
        if self.op not in _SIGNS:
            return f"{self.op}({format_size(self.a)}, {format_size(self.b)})"
        sign, binds = _SIGNS[self.op]
        return f"{_inside(self.a, binds)} {sign} {_inside(self.b, binds + 1)}"

    __repr__ = __str__


Size = Union[int, str, Arithmetic]  # noqa: UP007 - a record of it names it


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
_SIGNS = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2)}  # and how strongly each binds
_SIGNS |= {"div": ("/", 2), "floordiv": ("//", 2), "mod": ("%", 2)}


def _inside(size: Size, least: int) -> str:
    """An operand, in parentheses if it binds more weakly than `least`."""
    weak = isinstance(size, Arithmetic) and size.op in _SIGNS and _SIGNS[size.op][1] < least
    return f"({size})" if weak else format_size(size)


def evaluate_size(size: Size, symbols: Mapping[str, int]) -> int:
    """The number that `size` is when its symbols have these values."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return symbols[size]
    left, right = evaluate_size(size.a, symbols), evaluate_size(size.b, symbols)
    if right == 0 and size.op in ("div", "floordiv", "mod", "rem"):
        raise InputError(f"{size} divides by zero{given(size, symbols)}")
    value = OPERATORS[size.op](left, right)
    if abs(value) > LIMIT:
        raise InputError(f"{size} does not fit in 64 bits{given(size, symbols)}")
    return value


def given(size: Size, symbols: Mapping[str, int]) -> str:
    """ " for n = 3": the symbols that an error about `size` is about."""
    used = [f"{name} = {symbols[name]}" for name in dict.fromkeys(symbols_of(size))]
    return f" for {', '.join(used)}" if used else ""


def symbols_of(size: Size) -> Iterator[str]:
    """The symbols in `size`, from left to right."""
    if isinstance(size, str):
        yield size
    elif isinstance(size, Arithmetic):
        yield from symbols_of(size.a)
        yield from symbols_of(size.b)


def times(a: Size, b: Size) -> Size:
    """The product."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return b if a == 1 else a if b == 1 else 0 if 0 in (a, b) else Arithmetic("mul", a, b)


def plus(a: Size, b: Size) -> Size:
    """The sum."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if a == 0 else a if b == 0 else Arithmetic("add", a, b)


def format_size(size: Size) -> str:
    """As a reader of programs wants it: a symbol by its identifier."""
    return identifier(size) if isinstance(size, str) else str(size)


def format_shape(shape: Sequence[Size]) -> str:
    return f"[{', '.join(map(format_size, shape))}]"
