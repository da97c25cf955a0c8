"""Arrays on their way to a device and back: how the host arranges them.

    x: i8[1, 3, 8, 8]                     for c, i, j:
    y: i8[3, 10, 10] @ layout[1, 2, 0]        y[c, i, j] = x[0, c, i - 1, j - 1] if inside else 0

A device's kernel may want an operand in other blocks, with zeros around it, or without axes of one
element. What it wants is a `Held`; that of a constant is made while compiling, others by kernels of
the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.ir.evaluate import evaluate_program
from tilewright.ir.expr import Buffer, Expr, Load, all_of, const, select
from tilewright.ir.substitute import rewrite, substitute
from tilewright.ir.tensor import Builder, TensorProgram, stages
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.arrange import arrange


@dataclass(frozen=True)
class Held:
    """How an array of `shape` lies in a device's memory: as `type`, without the axes of one element
    that `axes` leaves out, with `before` elements before the first along each of the others, which
    hold `fill`, as those behind the last do. It is arranged by the host's kernel called `kernel`;
    without one the bytes are the same.

    What a device takes may be `made` of several of a kernel's operands, or of none, by one stage of
    index formulas; `operands` are their numbers, where that is not the one with its own number. The
    array of a result is `made` of what the device gives. `shape` is then that of what is made."""

    shape: tuple[int, ...]
    type: TensorType
    axes: tuple[int, ...]
    before: tuple[int, ...]
    fill: float = 0
    kernel: str = ""
    operands: tuple[int, ...] | None = None
    made: TensorProgram | None = None

    @staticmethod
    def row_major(buffer: Buffer) -> Held:
        """The array of a buffer whose shape is numbers, as it is."""
        shape = tuple(int(n) for n in buffer.shape)
        return Held(
            shape, TensorType(buffer.dtype, shape), tuple(range(len(shape))), (0,) * len(shape)
        )

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape without what is added around it, as the device has it."""
        if self.made is not None and self.operands is None:  # a result
            return tuple(int(n) for n in self.made.inputs[0].shape)
        return tuple(self.shape[a] for a in self.axes) or (1,) * self.type.rank

    @property
    def is_same(self) -> bool:
        """Whether the bytes are those of the row-major array."""
        same = self.type.layout is None and self.inner == self.type.shape
        return same and self.made is None

    @property
    def arrangement(self) -> Held:
        """The same, whichever operands it is made of: what a program that arranges depends on."""
        return self if self.operands is None else replace(self, operands=())

    def arranged(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The elements of operands, in the shapes of the model or of the device's kernel, as they
        lie in the device's memory."""
        if self.made is None:
            array = arrays[0]
        else:
            pairs = zip(arrays, self.made.inputs, strict=True)
            (array,) = evaluate_program(self.made, [a.reshape(b.shape) for a, b in pairs])
        sizes = zip(self.before, self.type.shape, self.inner, strict=True)
        added = [(b, int(n) - m - b) for b, n, m in sizes]
        return arrange(
            np.pad(array.reshape(self.inner), added, constant_values=self.fill), self.type
        )


def packing(held: Held, name: str) -> TensorProgram:
    """The program that makes, of x0 and more, what the device is given."""
    plain = Buffer("x0", held.type.dtype, held.shape)
    inputs = (plain,) if held.made is None else held.made.inputs
    builder = Builder({b.name for b in inputs})

    def value(*index: Expr) -> Expr:
        inside = []
        for i, before, size, n in zip(index, held.before, held.inner, held.type.shape, strict=True):
            inside += [i >= before] if before else []
            inside += [i < before + size] if before + size < n else []
        inner = [i - b for i, b in zip(index, held.before, strict=True)]
        at = dict(zip(held.axes, inner, strict=False))  # an array of one element has no axes
        place = tuple(at.get(a, const(0)) for a in range(len(held.shape)))
        element = plain[place] if held.made is None else _element(held.made, place)
        return (
            select(all_of(*inside), element, const(held.fill, plain.dtype)) if inside else element
        )

    out = builder.compute("y", held.type.shape, value)
    return TensorProgram(name, tuple(inputs), builder.items, (out,))


def unpacking(held: Held, name: str) -> TensorProgram:
    """The program that makes the array of x0, which the device gives."""
    builder = Builder({"x0"})
    x = Buffer("x0", held.type.dtype, held.type.shape)

    def inside(at: Sequence[Expr]) -> Expr:
        return x[tuple(i + b for i, b in zip(at, held.before, strict=True))]

    def value(*index: Expr) -> Expr:
        if held.made is None:
            return inside([index[a] for a in held.axes] or [const(0)])
        made = _element(held.made, index)
        return rewrite(made, lambda e: inside(e.indices) if isinstance(e, Load) else e)

    out = builder.compute("y", held.shape, value)
    return TensorProgram(name, (x,), builder.items, (out,))


def _element(made: TensorProgram, at: Sequence[Expr]) -> Expr:
    """The element at a place of what a program of one stage makes."""
    (stage,) = stages(made.items)
    return substitute(stage.value, dict(zip((a.var for a in stage.axes), at, strict=True)))
