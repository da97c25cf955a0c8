"""A kernel in a form that a unit takes, of arrays that the host makes of the kernel's own.

A form computes the same. Its inputs are the kernel's, or made of them by index formulas: a border
of zeros, a diagonal, windows side by side, an identity matrix. Results are read in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from tilewright.base.node import cached_property
from tilewright.ir.evaluate import evaluate_program
from tilewright.ir.expr import Buffer, Cast, Expr, Load, const, select
from tilewright.ir.loop import Accumulate, Kernel, Stmt, Store, loads, walk_statements
from tilewright.ir.substitute import rewrite, substitute
from tilewright.ir.tensor import Builder, TensorProgram, stages

T = TypeVar("T")

BYTE = 127  # by which numbers of elements are cut, so that any type can hold the parts


@dataclass(frozen=True)
class Stack:
    """Arrays, by name, as parts of one: so many places (`run`) of its axis are of each of them, in
    this order."""

    names: tuple[str, ...]
    axis: int
    run: int

    @property
    def extent(self) -> int:
        """Of the axis."""
        return len(self.names) * self.run

    def part(self, of_axes: tuple[T, ...], within: T) -> tuple[T, ...]:
        """What a part has for each of its axes, where the whole has this for each of its own: as
        many, or one less where a part has one place of the axis."""
        before, after = of_axes[: self.axis], of_axes[self.axis + 1 :]
        return (*before, *((within,) if self.run > 1 else ()), *after)

    def whole_order(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """The order of the whole's axes, where parts have theirs in this one: parts of one place
        are outermost."""
        if self.run > 1:
            return order
        return (self.axis, *(d + (d >= self.axis) for d in order))


@dataclass(frozen=True)
class MadeArray:
    """How an array is made: by `program`, of the arrays named in `sources`, in this order; without
    a program it is the only one of them, as it is. What is beside the sources' elements is 0;
    results are the same with any other number there where the `rest_is_unused`."""

    sources: tuple[str, ...]
    program: TensorProgram | None = None
    rest_is_unused: bool = False

    def of(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The array, made of arrays."""
        if self.program is None:
            return arrays[0]
        return evaluate_program(self.program, list(arrays))[0]

    def renamed(self, names: Mapping[str, str]) -> MadeArray:
        """The same, of sources of other names."""
        sources = tuple(names.get(n, n) for n in self.sources)
        if self.program is None:
            return replace(self, sources=sources)
        new = {b: b.with_(name=names.get(b.name, b.name)) for b in self.program.inputs}
        (stage,) = stages(self.program.items)

        def read(e: Expr) -> Expr:
            return Load(new[e.buffer], e.indices) if isinstance(e, Load) else e

        items = (stage.with_(value=rewrite(stage.value, read)),)
        program = self.program.with_(inputs=tuple(new.values()), items=items)
        return replace(self, sources=sources, program=program)

    @cached_property
    def keeps_order(self) -> bool:
        """Whether the elements are those of the only source, in the same order."""
        if self.program is None:
            return True
        if len(self.program.inputs) != 1:
            return False
        numbers = self.numbers.reshape(-1)
        return np.array_equal(numbers, np.arange(math.prod(sizes_of(self.program.inputs[0]))))

    @cached_property
    def begins_in_order(self) -> bool:
        """Whether the only source's elements come first, in the same order, and others behind them
        are unused."""
        if self.program is None or len(self.program.inputs) != 1 or not self.rest_is_unused:
            return False
        numbers = self.numbers.reshape(-1)
        size = math.prod(sizes_of(self.program.inputs[0]))
        return np.array_equal(numbers[:size], np.arange(size)) and bool(np.all(numbers[size:] < 0))

    @cached_property
    def comes_first(self) -> bool:
        """Whether the elements are the first of the only source, in the same order."""
        numbers = np.arange(0) if self.program is None else self.numbers.reshape(-1)
        return np.array_equal(numbers, np.arange(numbers.size))

    @cached_property
    def keeps_elements(self) -> bool:
        """Whether the elements are those of the only source, each once, in any order; there may be
        0s beside them."""
        if self.program is None:
            return True
        if len(self.program.inputs) != 1:
            return False
        size = math.prod(sizes_of(self.program.inputs[0]))
        return _all_once(self.numbers.reshape(-1), 0, size)

    @cached_property
    def stacked(self) -> Stack | None:
        """The sources as parts of the array, one after the other along an axis, with 0s in and
        behind each if need be; None where it is anything else, or of one source."""
        if self.program is None or len(self.program.inputs) < 2:
            return None
        inputs, (output,) = self.program.inputs, self.program.outputs
        sizes = {math.prod(sizes_of(b)) for b in inputs}
        if len(sizes) > 1 or 0 in sizes or any(b.dtype != output.dtype for b in inputs):
            return None
        (size,) = sizes
        numbers = self.numbers.reshape(sizes_of(output))
        shape = sizes_of(output)
        for axis, n in enumerate(shape):
            count = int(np.count_nonzero(numbers >= 0)) // size
            if count == 0 or n % count:
                continue
            apart = np.moveaxis(numbers, axis, 0).reshape(count, -1)
            of = apart[:, 0] // size
            if all(_all_once(part, k * size, size) for part, k in zip(apart, of, strict=True)):
                return Stack(tuple(self.sources[k] for k in of), axis, n // count)
        return None

    @property
    def numbers(self) -> np.ndarray:
        """The array with the numbers of the sources' elements as these, counted through from one
        source to the next, and -1 for a 0 beside them."""
        assert self.program is not None
        return _numbers(self.program)


@lru_cache(maxsize=16)  # each may have megabytes
def _numbers(program: TensorProgram) -> np.ndarray:
    """What a program makes of the numbers of its inputs' elements, -1 for its 0s: digit by digit,
    so that any type can hold them."""
    ends = np.cumsum([1, *(math.prod(sizes_of(b)) for b in program.inputs)])
    found: np.ndarray = np.zeros((), np.int64)
    digit = 1
    while digit <= ends[-1]:
        given = [
            (np.arange(start, end) // digit % BYTE).reshape(sizes_of(b)).astype(b.dtype.numpy)
            for b, start, end in zip(program.inputs, ends, ends[1:], strict=False)
        ]
        found = found + evaluate_program(program, given)[0].astype(np.int64) * digit
        digit *= BYTE
    numbers = np.asarray(found - 1)
    numbers.flags.writeable = False
    return numbers


def _all_once(numbers: np.ndarray, first: int, count: int) -> bool:
    """Whether so many numbers are those from the first on, each once; -1 is not one of them."""
    found = numbers[numbers >= 0] - first
    if found.size != count or (count and not 0 <= found.min() <= found.max() < count):
        return False
    return bool(np.bincount(found, minlength=count).max(initial=1) == 1)


@dataclass(frozen=True)
class UnitForm:
    """A form of a kernel: how those of its inputs are made that are not the kernel's, and how the
    kernel's results are made of its own, by name; those left out are as they are. One that does
    more than others, `instead` of which it is, is wanted only where all of them are refused."""

    kernel: Kernel
    made: Mapping[str, MadeArray] = field(default_factory=dict)
    results: Mapping[str, MadeArray] = field(default_factory=dict)
    instead: tuple[UnitForm, ...] = field(default=(), compare=False, repr=False)

    def is_wanted(self, refused: Collection[UnitForm]) -> bool:
        """Whether it is wanted where these are refused."""
        return all(any(form is x for x in refused) for form in self.instead)

    def keeps(self, names: Collection[str], *, in_order: bool = True) -> bool:
        """Whether parameters of these names, inputs or results, lie as the kernel's do, be it one
        after the other; or have at least the same elements, unless `in_order`."""

        def lies(a: MadeArray) -> bool:
            return a.keeps_order or a.begins_in_order if in_order else a.keeps_elements

        inputs = [(n, a) for n, a in self.made.items() if {*a.sources} & {*names}]
        if not all(a.stacked or (n in names and lies(a)) for n, a in inputs):
            return False
        results = (a for n, a in self.results.items() if n in names)
        return not in_order or all(a.comes_first for a in results)


def reads_alone(kernel: Kernel, stmt: Stmt, buffer: Buffer) -> bool:
    """Whether one statement alone reads an input, so that it can have another in its place."""
    every = walk_statements(kernel.body)
    users = [s for s in every if isinstance(s, (Store, Accumulate)) and _reads(s, buffer)]
    return users == [stmt]


def converted(factor: Expr) -> Expr:
    """What a factor is before it is converted to the type of the sums; a conversion in between,
    which may cut it off, is a part of that."""
    return factor.a if isinstance(factor, Cast) else factor


def _reads(stmt: Store | Accumulate, buffer: Buffer) -> bool:
    values = (stmt.value, *stmt.indices)
    return any(x.buffer == buffer for value in values for x in loads(value))


def made(
    name: str, shape: Sequence[int], sources: Sequence[Buffer], value: Callable[..., Expr]
) -> MadeArray:
    """The array of this shape whose elements are value(*subscripts), of the sources' elements."""
    builder = Builder({b.name for b in sources})
    out = builder.compute(name, shape, value)
    program = TensorProgram(name, tuple(sources), builder.items, (out,))
    return MadeArray(tuple(b.name for b in sources), program)


def one_of(at: Expr, values: Sequence[Expr]) -> Expr:
    """The value of this number."""
    found = values[-1]
    for k in reversed(range(len(values) - 1)):
        found = found if values[k] == found else select(at.equals(k), values[k], found)
    return found


def places_along(at: Expr, extents: Sequence[int]) -> list[Expr]:
    """The place along each axis, outermost first, of a place along all as one; or the iteration of
    each loop, of an iteration of all."""
    found: list[Expr] = []
    for n in reversed(extents[1:]):
        found.insert(0, at % n)
        at = at // n
    return [at, *found]


def fresh(name: str, names: set[str]) -> str:
    """The name, with a number behind it if it is taken; it is taken then."""
    return Builder(names).fresh(name)


def composed(first: UnitForm, second: UnitForm) -> UnitForm:
    """A form of a form's kernel, as one of the kernel's own."""
    arrays = {name: _composed(array, first.made) for name, array in second.made.items()}
    kept = {b.name for b in second.kernel.inputs} - set(arrays)
    arrays |= {name: array for name, array in first.made.items() if name in kept}
    results = {**first.results}
    for name, array in second.results.items():
        before = first.results.get(name)
        results[name] = array if before is None else _composed(before, {name: array})
    return UnitForm(second.kernel, arrays, results)


def _composed(array: MadeArray, before: Mapping[str, MadeArray]) -> MadeArray:
    """An array that is made of others, some of which are made themselves, in one step."""
    if array.program is None:
        return before.get(array.sources[0], array)
    (stage,) = stages(array.program.items)
    sources = {b.name: b for b in array.program.inputs if b.name not in before}

    def element(e: Expr) -> Expr:
        made_before = before.get(e.buffer.name) if isinstance(e, Load) else None
        if made_before is None or not isinstance(e, Load):
            return e
        if made_before.program is None:
            (name,) = made_before.sources
            sources[name] = e.buffer.with_(name=name)
            return Load(sources[name], e.indices)
        (inner,) = stages(made_before.program.items)
        sources.update({b.name: b for b in made_before.program.inputs})
        return substitute(
            inner.value, dict(zip((a.var for a in inner.axes), e.indices, strict=True))
        )

    value = rewrite(stage.value, element)
    items = (stage.with_(value=value),)
    program = array.program.with_(inputs=tuple(sources.values()), items=items)
    inner_ones = (before[n] for n in array.sources if n in before)
    unused = all(a.program is None or a.rest_is_unused for a in inner_ones)
    return MadeArray(tuple(sources), program, array.rest_is_unused and unused)


def in_blocks(old: Buffer, new: Buffer, axis: int) -> MadeArray:
    """An array with an axis as two: blocks of a size that divides it, and places within one."""
    size = sizes_of(new)[axis + 1]

    def value(*at: Expr) -> Expr:
        return Load(old, (*at[:axis], at[axis] * size + at[axis + 1], *at[axis + 2 :]))

    return made(f"{old.name}_blocks", sizes_of(new), [old], value)


def of_blocks(old: Buffer, new: Buffer, axis: int) -> MadeArray:
    """A kernel's result, of one with an axis as blocks, the last of which may be full in part."""
    size = sizes_of(new)[axis + 1]

    def value(*at: Expr) -> Expr:
        return Load(new, (*at[:axis], at[axis] // size, at[axis] % size, *at[axis + 1 :]))

    return made(f"{old.name}_joined", sizes_of(old), [new], value)


# ---------------------------------------------------------------- arrays of models


def sizes_of(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a buffer, which is numbers."""
    return tuple(int(n) for n in buffer.shape)


def of_operands(
    array: MadeArray, operands: Sequence[Buffer], axes: Mapping[str, tuple[int, ...]]
) -> TensorProgram:
    """The program that makes an array of a model's operands x0, x1, …, which have more axes, of one
    element, than those that `axes` names."""
    before = {}
    for k, operand in enumerate(operands):
        x, kept = operand.with_(name=f"x{k}"), axes[operand.name]

        def value(*at: Expr, x: Buffer = x, kept: tuple[int, ...] = kept) -> Expr:
            found = dict(zip(kept, at, strict=False))
            return Load(x, tuple(found.get(d, const(0)) for d in range(len(x.shape))))

        shape = tuple(int(operand.shape[d]) for d in kept) or (1,)
        before[operand.name] = made(operand.name, shape, [x], value)
    program = _composed(array, before).program
    assert program is not None
    order = [operand.with_(name=f"x{k}") for k, operand in enumerate(operands)]
    return program.with_(inputs=tuple(order))


def with_axes(array: MadeArray, shape: tuple[int, ...], kept: tuple[int, ...]) -> TensorProgram:
    """The program that makes a model's result, which has more axes, of one element, than `kept`."""
    assert array.program is not None
    (stage,) = stages(array.program.items)

    def value(*at: Expr) -> Expr:
        inner = [at[d] for d in kept] or [const(0)]
        names = dict(zip((a.var for a in stage.axes), inner, strict=True))
        return substitute(stage.value, names)

    program = made(array.program.name, shape, array.program.inputs, value).program
    assert program is not None
    return program
