"""Which kernels a chip can do at all: a search among short sequences of its instructions, on arrays
of numbers, that shares no code with what plans and schedules.

Values are arrays in memories. All that an instruction makes of values that are there is a value
more: parameters are brought in slices, with their axes in any order, as a host may arrange them.
Sums of products would be too many: of what a unit makes, values stay that a kernel is known to go
through (`Case.between`). A kernel can be done where every part of its result is a value of the
memory of results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from drawn_kernels import Arrays, Case
from fast_interpret import Numbers, Program, to_array, to_memory

from tilewright.ir.expr import Binary, BinaryOp, Buffer, Symbol, Var, as_expr
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import (
    For,
    Kernel,
    Load,
    Store,
    Write,
    buffers_written,
    loads,
    walk_statements,
)
from tilewright.target.target import Target

ROUNDS = 12
MOST = 300  # values of a memory that are tried as operands
ALL = 5_000  # calls of instructions
CLOSE = 1e-3
TRIED = 50_000  # operands that are tried together


@dataclass(frozen=True, eq=False)
class Value:
    memory: str
    array: np.ndarray
    made: str  # by which instruction, of what
    again: Callable[[Arrays], np.ndarray]  # the same, of other inputs


@dataclass
class Search:
    """The search for one kernel's result on a chip. It ends when nothing new is made, or when the
    work is more than ALL calls or TRIED combinations: then `ended` is false."""

    target: Target
    case: Case
    inputs: Arrays
    others: Sequence[Arrays]  # more inputs, for which a program has to be right as well
    values: dict[str, list[Value]] = field(default_factory=dict)  # by memory
    kept: set[tuple[object, ...]] = field(default_factory=set)
    known: dict[object, Value] = field(default_factory=dict)  # parts of parameters and of values
    visited: dict[object, list[int]] = field(default_factory=dict)  # operands of the last visit
    products: dict[object, np.ndarray] = field(default_factory=dict)
    calls: int = 0
    tried: int = 0
    ended: bool = True
    programs: list[str] = field(default_factory=list)  # of parts of the result

    def __post_init__(self) -> None:
        kernel = self.case.kernel
        (self.wanted,) = interpret(kernel, list(self.inputs))
        self.also = [interpret(kernel, list(x))[0] for x in self.others]
        self.outside = {m.name for m in self.target.memories if m.size is None}
        self.params = list(zip(kernel.inputs, self.inputs, strict=True))
        self.between = [*self.case.between(self.inputs), self.wanted]
        self.parts: dict[tuple[object, ...], set[tuple[int, ...]]] = {}  # of the result, by shape
        self.slices: dict[tuple[object, ...], set[bytes]] = {}
        self.near: dict[object, np.ndarray] = {}
        self.brought: dict[tuple[object, ...], list[Value]] = {}
        self.sizes: list[int] = []
        self.units = {i for i in self.target.instructions if _multiplies(i)}

    def found(self) -> bool:
        """Whether a sequence of instructions makes the result: first of instructions as long as the
        kernel's axes, then of shorter ones as well."""
        long, *_ = self._sizes()
        for sizes in ([n for n in self._sizes() if 2 * n >= min(long, 8)], self._sizes()):
            self.sizes, self.calls, self.tried, self.ended = sizes, 0, 0, True
            if self._found():
                return True
        return False

    def _sizes(self) -> list[int]:
        """Extents that a kernel's arrays have, and a unit's, the longest first."""
        every = (b.shape for b in (*self.case.kernel.params, *self._unit_operands()))
        return sorted({n for shape in every for n in shape if isinstance(n, int)}, reverse=True)

    def _found(self) -> bool:
        for _ in range(ROUNDS):
            before = sum(map(len, self.values.values()))
            for instruction in self.target.instructions:
                if instruction.body and self._apply(instruction):
                    return True
            if self._too_much():
                self.ended = False
                return False
            if sum(map(len, self.values.values())) == before:
                return False
        return False

    def _too_much(self) -> bool:
        return self.calls > ALL or self.tried > TRIED

    def _apply(self, i: Instruction) -> bool:
        """Tries an instruction with all operands that it was not tried with before."""
        (written,) = buffers_written(i.body)
        read = [b for b in i.operands if b != written]
        for fields in self._fields(i):
            own = reads_result(i, fields)
            shapes = dict(zip(i.operands, i.shapes(fields), strict=True))
            lists = [list(self._operands(b, shapes[b])) for b in (*read, *([written] * own))]
            for chosen in self._new((i.name, tuple(fields.items())), lists):
                self.tried += 1
                if self._too_much():
                    return False
                start = chosen[-1].array if own else None
                arrays = [v.array for v in chosen[: len(read)]]
                added = start is not None and i in self.units
                if added and not self._may_add(i, fields, arrays, start):
                    continue
                self.calls += 1
                made = run(i, fields, arrays, start, shapes[written])
                text = f"{i.name}({', '.join(v.made for v in chosen)})"
                again = partial(run_again, i, fields, chosen, len(read), shapes[written])
                if self._keep(i, Value(written.memory, made, text, again), written):
                    return True
        return False

    def _new(self, key: object, lists: list[list[Value]]) -> Iterator[tuple[Value, ...]]:
        """Choices of one of each list, apart from those of the last visit: lists only grow."""
        before = self.visited.get(key)
        self.visited[key] = [len(values) for values in lists]
        if before is None:
            yield from itertools.product(*lists)
            return
        for k in range(len(lists)):
            older = [values[:n] for values, n in zip(lists[:k], before[:k], strict=True)]
            yield from itertools.product(*older, lists[k][before[k] :], *lists[k + 1 :])

    def _keep(self, i: Instruction, value: Value, written: Buffer) -> bool:
        """Remembers a value, if it is of use; returns whether the result is complete with it."""
        if written.memory in self.outside:
            return self._completes(value)
        if (i in self.units or _follows_sums(i)) and not self._between(value.array):
            return False
        key = (value.memory, value.array.shape, str(value.array.dtype), value.array.tobytes())
        if key in self.kept:
            return False
        self.kept.add(key)
        self.values.setdefault(value.memory, []).append(value)
        return False

    def _may_add(
        self, i: Instruction, fields: dict[str, int], arrays: Sequence[np.ndarray], start: Any
    ) -> bool:
        """Whether the sum of what there is and the products of arrays is of use: products are made
        once, whatever they are added to."""
        places = tuple((a.ctypes.data, a.shape, a.strides) for a in arrays)
        key = i.name, tuple(fields.items()), places
        if key not in self.products:
            self.calls += 1
            self.products[key] = run(i, fields, arrays, None, start.shape)
        total = self.products[key] + start
        return self._between(total) if i.operands[-1].dtype.is_integer else self._near(total)

    # ---------------------------------------------------------- fields and operands

    def _fields(self, i: Instruction) -> Iterator[dict[str, int]]:
        """Values of its fields: extents that a kernel's arrays have, numbers of the kernel."""
        extents = {n.name for b in i.operands for n in b.shape if isinstance(n, Symbol)}
        steps = {name for *_, name in i.strides}
        every = []
        for f in i.fields:
            if f.name in steps:
                every.append([f.low])
            elif f.name in extents:
                every.append([n for n in self.sizes if f.admits(n)])
            else:
                every.append(self._numbers(f))
        for chosen in itertools.product(*every):
            yield {f.name: n for f, n in zip(i.fields, chosen, strict=True)}

    def _unit_operands(self) -> Iterator[Buffer]:
        return (b for i in self.units for b in i.operands)

    def _numbers(self, f: Field) -> list[int]:
        wanted = dict.fromkeys((*self.case.numbers, 0, *(() if f.high > 1 else (1,))))
        return [n for n in wanted if f.admits(n)]

    def _operands(self, b: Buffer, shape: tuple[int, ...]) -> Iterator[Value]:
        if b.memory in self.outside:
            yield from self._brought(b, shape)
        for value in self.values.get(b.memory, [])[:MOST]:
            if value.array.dtype == b.dtype.numpy:
                yield from self._rows_of(value, shape)

    def _brought(self, b: Buffer, shape: tuple[int, ...]) -> list[Value]:
        """Parts of parameters, of that shape, each only once."""
        key = (b.memory, b.dtype, shape)
        if key not in self.brought:
            found: dict[bytes, Value] = {}
            for n, (param, array) in enumerate(self.params):
                for part, at in parts(array, shape) if param.dtype == b.dtype else ():
                    again = partial(part_again, n, shape, at)
                    value = Value(b.memory, part, f"{param.name}{list(at)}", again)
                    found.setdefault(part.tobytes(), value)
            nothing = np.zeros(shape, b.dtype.numpy)
            zeros = Value(b.memory, nothing, "zeros", lambda inputs: nothing)
            self.brought[key] = [*found.values(), zeros]
        return self.brought[key]

    def _rows_of(self, value: Value, shape: tuple[int, ...]) -> Iterator[Value]:
        """The value, or rows of it: what begins at a later row is only another address."""
        array = value.array
        if array.shape == shape:
            yield value
            return
        if array.ndim == len(shape) + 1 and array.shape[1:] == shape:  # one row
            for k in range(array.shape[0]):
                yield self._remembered(value, k, lambda a, k=k: a[k])
        if array.ndim == len(shape) and array.shape[1:] == shape[1:] and array.shape[0] > shape[0]:
            for k in range(array.shape[0] - shape[0] + 1):
                yield self._remembered(value, k, lambda a, k=k: a[k : k + shape[0]])
        if array.ndim + 1 == len(shape) and shape == (1, *array.shape):
            yield self._remembered(value, 0, lambda a: a[None])

    def _remembered(self, value: Value, k: int, rows: Callable[[np.ndarray], np.ndarray]) -> Value:
        array = rows(value.array)
        key = (id(value), k, array.shape)
        if key not in self.known:
            again = lambda inputs: rows(value.again(inputs))  # noqa: E731
            self.known[key] = Value(value.memory, array, f"{value.made}[{k}:]", again)
        return self.known[key]

    # ---------------------------------------------------------- what is looked for

    def _between(self, array: np.ndarray) -> bool:
        """Whether a part of what a kernel goes through is equal to an array."""
        key = (array.shape, str(array.dtype))
        if key not in self.slices:
            self.slices[key] = {
                np.ascontiguousarray(part, array.dtype).tobytes()
                for whole in self.between
                if np.array_equal(whole, whole.astype(array.dtype))
                for part, _ in parts(whole, array.shape)
            }
        return array.tobytes() in self.slices[key]

    def _near(self, array: np.ndarray) -> bool:
        """The same, where sums of floats may be rounded otherwise."""
        key = ("near", array.shape)
        if key not in self.near:
            every = [part for whole in self.between for part, _ in parts(whole, array.shape)]
            self.near[key] = np.array(every).reshape(len(every), array.size)
        return bool((np.abs(self.near[key] - array.reshape(-1)) < CLOSE).all(axis=1).any())

    def _completes(self, value: Value) -> bool:
        """Whether a value is the last part of the result that was missing."""
        array = value.array
        if array.dtype != self.wanted.dtype:
            return False
        also = None
        for part, at in parts(self.wanted, array.shape):
            if np.array_equal(part, array):
                also = [value.again(x) for x in self.others] if also is None else also
                wanted = (part_again(0, array.shape, at, [x]) for x in self.also)
                if not all(np.array_equal(a, b) for a, b in zip(wanted, also, strict=True)):
                    continue
                key = tuple(x if isinstance(x, str) else "at" for x in at)
                there = self.parts.setdefault((array.shape, key), set())
                there.add(tuple(x for x in at if not isinstance(x, str)))
                self.programs.append(value.made)
                if self._covered(array.shape, at, there):
                    return True
        return False

    def _covered(
        self, shape: tuple[int, ...], at: tuple[object, ...], there: set[tuple[int, ...]]
    ) -> bool:
        done = np.zeros(self.wanted.shape, bool)
        for part, place in parts(np.arange(done.size).reshape(done.shape), shape):
            same = tuple(x if isinstance(x, str) else "at" for x in place)
            wanted = tuple(x if isinstance(x, str) else "at" for x in at)
            if same == wanted and tuple(x for x in place if not isinstance(x, str)) in there:
                done.reshape(-1)[part.reshape(-1)] = True
        return bool(done.all())


def parts(
    array: np.ndarray, shape: Sequence[int]
) -> Iterator[tuple[np.ndarray, tuple[object, ...]]]:
    """The parts of an array that have a shape, with its axes in any order; and where each lies: the
    letters are the part's axes, the numbers where it begins along each of the array's."""
    for axes in itertools.permutations(range(array.ndim), min(len(shape), array.ndim)):
        sizes = [1] * (len(shape) - len(axes)) + [array.shape[d] for d in axes]
        lead = len(shape) - len(axes)
        if any(n != 1 for n in shape[:lead]) or any(
            n > size for n, size in zip(shape, sizes, strict=True)
        ):
            continue
        if len(axes) > 1 and all(shape[lead + p] == 1 for p in range(len(axes))):
            continue
        begins: list[Sequence[int]] = [range(n) for n in array.shape]
        for p, d in enumerate(axes):
            begins[d] = _begins(array.shape[d], shape[lead + p])
        for at in itertools.product(*begins):
            place: list[slice | int] = list(at)
            for p, d in enumerate(axes):
                place[d] = slice(at[d], at[d] + shape[lead + p])
            part = array[tuple(place)]
            part = part.transpose(_order(axes)).reshape(tuple(shape))
            yield part, ("".join("ijkl"[d] for d in axes), *at)


def _begins(size: int, part: int) -> list[int]:
    """Where parts of an axis begin: one behind another, or a window's places."""
    return [k for k in range(size - part + 1) if k % part == 0 or size - part < 2]


def _order(axes: Sequence[int]) -> list[int]:
    """What puts the axes that are left, which are in the array's order, in this one."""
    left = sorted(axes)
    return [left.index(d) for d in axes]


# ---------------------------------------------------------------- instructions


def run(
    i: Instruction,
    fields: dict[str, int],
    arrays: Sequence[np.ndarray],
    start: np.ndarray | None,
    shape: tuple[int, ...],
) -> np.ndarray:
    """What an instruction writes, where `start` was before."""
    (written,) = buffers_written(i.body)
    program = _program(i, tuple(fields.items()))
    before = np.zeros(shape, written.dtype.numpy) if start is None else start
    (memory,) = program([to_memory(a) for a in (*arrays, before)])
    return to_array(memory, shape, written.dtype.numpy)


def run_again(
    i: Instruction,
    fields: dict[str, int],
    operands: Sequence[Value],
    read: int,
    shape: tuple[int, ...],
    inputs: Arrays,
) -> np.ndarray:
    """What an instruction makes of other inputs; of its operands so many are read alone."""
    arrays = [v.again(inputs) for v in operands]
    return run(i, fields, arrays[:read], arrays[read] if arrays[read:] else None, shape)


def part_again(
    number: int, shape: Sequence[int], at: tuple[object, ...], inputs: Arrays
) -> np.ndarray:
    """The part of an input that lies at a place."""
    return next(part for part, place in parts(inputs[number], shape) if place == at)


@lru_cache(maxsize=4096)
def _program(i: Instruction, fields: tuple[tuple[str, int], ...]) -> Program:
    (written,) = buffers_written(i.body)
    read = [b for b in i.operands if b != written]
    before = Buffer("before", written.dtype, written.shape)
    at = tuple(Var(f"at{d}") for d in range(len(written.shape)))
    body: tuple[object, ...] = (Store(written, at, Load(before, at)),)
    for var, n in zip(reversed(at), reversed(written.shape), strict=True):
        body = (For(var, as_expr(n), body),)
    kernel = Kernel(i.name, (*read, before), (written,), (*body, *i.body))
    return Program(kernel, dict(fields), Numbers())


@lru_cache(maxsize=4096)
def _reads_result(i: Instruction, fields: tuple[tuple[str, int], ...]) -> bool:
    (written,) = buffers_written(i.body)
    values = dict(fields)
    rng = np.random.default_rng(0)
    shapes = dict(zip(i.operands, i.shapes(values), strict=True))
    arrays = [
        rng.integers(-9, 9, shapes[b]).astype(b.dtype.numpy) for b in i.operands if b != written
    ]
    found = []
    for fill in (3, 5):
        start = np.full(shapes[written], fill, written.dtype.numpy)
        found.append(run(i, values, arrays, start, shapes[written]))
    return not np.array_equal(*found)


def reads_result(i: Instruction, fields: dict[str, int]) -> bool:
    """Whether what an instruction writes depends on what was there."""
    return _reads_result(i, tuple(fields.items()))


def _multiplies(i: Instruction) -> bool:
    """Whether an instruction makes products of two of its operands."""
    stored = [s.value for s in walk_statements(i.body) if isinstance(s, Write)]
    values = (e for v in stored for e in v.walk())
    products = [e for e in values if isinstance(e, Binary) and e.op is BinaryOp.MUL]
    return any(list(loads(e.a)) and list(loads(e.b)) for e in products)


def _follows_sums(i: Instruction) -> bool:
    """Whether an instruction computes, and does not move."""
    values = [s.value for s in walk_statements(i.body) if isinstance(s, Write)]
    return any(not isinstance(v, Load) and any(True for _ in loads(v)) for v in values)
