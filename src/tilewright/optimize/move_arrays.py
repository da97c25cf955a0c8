"""Arrays on their way to a device and back: how the host arranges them.

    x: i8[1, 3, 8, 8]                     for c, i, j:
    y: i8[3, 10, 10] @ layout[1, 2, 0]        y[c, i, j] = x[0, c, i - 1, j - 1] if inside else 0

A device's kernel may want an operand in other blocks, with zeros around it, or without axes of one
element. What it wants is a `Held`; that of a constant is made while compiling, others by kernels of
the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir.expr import Buffer, Expr, all_of, const, select
from tilewright.ir.tensor import Builder, TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.arrange import arrange


@dataclass(frozen=True)
class Held:
    """How an array of `shape` lies in a device's memory: as `type`, without the axes of one element
    that `axes` leaves out, with `before` elements before the first along each of the others, which
    hold `fill`, as those behind the last do. It is arranged by the host's kernel called `kernel`;
    without one the bytes are the same."""

    shape: tuple[int, ...]
    type: TensorType
    axes: tuple[int, ...]
    before: tuple[int, ...]
    fill: float = 0
    kernel: str = ""

    @staticmethod
    def row_major(buffer: Buffer) -> Held:
        """The array of a buffer whose shape is numbers, as it is."""
        shape = tuple(int(n) for n in buffer.shape)
        return Held(
            shape, TensorType(buffer.dtype, shape), tuple(range(len(shape))), (0,) * len(shape)
        )

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape without what is added around it."""
        return tuple(self.shape[a] for a in self.axes) or (1,) * self.type.rank

    @property
    def is_same(self) -> bool:
        """Whether the bytes are those of the row-major array."""
        return self.type.layout is None and self.inner == self.type.shape

    def arranged(self, array: np.ndarray) -> np.ndarray:
        """The elements of an array as they lie in the device's memory."""
        sizes = zip(self.before, self.type.shape, self.inner, strict=True)
        added = [(b, int(n) - m - b) for b, n, m in sizes]
        return arrange(
            np.pad(array.reshape(self.inner), added, constant_values=self.fill), self.type
        )


def packing(held: Held, name: str) -> TensorProgram:
    """The program that makes, of x0, what the device is given."""
    builder = Builder({"x0"})
    x = Buffer("x0", held.type.dtype, held.shape)

    def value(*index: Expr) -> Expr:
        inside = []
        for i, before, size, n in zip(index, held.before, held.inner, held.type.shape, strict=True):
            inside += [i >= before] if before else []
            inside += [i < before + size] if before + size < n else []
        inner = [i - b for i, b in zip(index, held.before, strict=True)]
        at = dict(zip(held.axes, inner, strict=False))  # an array of one element has no axes
        element = x[tuple(at.get(a, 0) for a in range(len(held.shape)))]
        return select(all_of(*inside), element, const(held.fill, x.dtype)) if inside else element

    out = builder.compute("y", held.type.shape, value)
    return TensorProgram(name, (x,), builder.items, (out,))


def unpacking(held: Held, name: str) -> TensorProgram:
    """The program that makes the array of x0, which the device gives."""
    builder = Builder({"x0"})
    x = Buffer("x0", held.type.dtype, held.type.shape)

    def value(*index: Expr) -> Expr:
        kept = [index[a] for a in held.axes] or [const(0)]
        return x[tuple(i + b for i, b in zip(kept, held.before, strict=True))]

    out = builder.compute("y", held.shape, value)
    return TensorProgram(name, (x,), builder.items, (out,))
