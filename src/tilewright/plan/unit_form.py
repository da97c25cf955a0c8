"""A kernel in a form that a unit takes, of arrays that the host makes of the kernel's own.

A form computes the same. Its inputs are the kernel's, or made of them by index formulas: a border
of zeros, a diagonal, windows side by side, an identity matrix. Results are read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir.evaluate import evaluate_program
from tilewright.ir.expr import Buffer, Expr
from tilewright.ir.loop import Kernel
from tilewright.ir.tensor import Builder, TensorProgram


@dataclass(frozen=True)
class MadeArray:
    """How an array is made: by `program`, of the arrays named in `sources`, in this order; without
    a program it is the only one of them, as it is."""

    sources: tuple[str, ...]
    program: TensorProgram | None = None

    def of(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The array, made of arrays."""
        if self.program is None:
            return arrays[0]
        return evaluate_program(self.program, list(arrays))[0]


@dataclass(frozen=True)
class UnitForm:
    """A form of a kernel: how those of its inputs are made that are not the kernel's, and how the
    kernel's results are made of its own, by name; those left out are as they are."""

    kernel: Kernel
    made: Mapping[str, MadeArray] = field(default_factory=dict)
    results: Mapping[str, MadeArray] = field(default_factory=dict)


def made(
    name: str, shape: Sequence[int], sources: Sequence[Buffer], value: Callable[..., Expr]
) -> MadeArray:
    """The array of this shape whose elements are value(*subscripts), of the sources' elements."""
    builder = Builder({b.name for b in sources})
    out = builder.compute(name, shape, value)
    program = TensorProgram(name, tuple(sources), builder.items, (out,))
    return MadeArray(tuple(b.name for b in sources), program)


def fresh(name: str, names: set[str]) -> str:
    """The name, with a number behind it if it is taken; it is taken then."""
    unique, n = name, 1
    while unique in names:
        unique, n = f"{name}_{n}", n + 1
    names.add(unique)
    return unique
