"""Kernels without a contraction as a chip's element-wise instructions compute them: reductions in
the type of the instruction that accumulates, of operands that are brought there in that type.

    for c, h, w:                                  for …: X_rows[…] = cast(i32, X[…])
        Y[c, h, w] = -128                         for c, h, w: Y_zero[c, h, w] = 0
        for r, s: Y max= X[c, h + r, w + s]  ->   for c, h, w:
                                                      Y_rows[c, h, w] = Y_zero[c, h, w] + -128
                                                      for r, s: Y_rows max= X_rows[c, h + r, w + s]
                                                  for c, h, w: Y[c, h, w] = cast(i8, Y_rows[c, h, w])

Maxima and minima are the same in a wider type of integers; sums and products that wrap around are
the same once they are cut off. What is computed is the same, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analyze.nests import Nest, nest_of, without_casts
from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import (
    DRAM,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Select,
    Var,
    cast,
    const,
)
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, Alloc, Block, For, Kernel, Stmt, Store, loads, map_block, map_exprs
from tilewright.ir.substitute import rewrite
from tilewright.plan.map_values import write_of
from tilewright.schedule.primitives.loops import copy_block
from tilewright.target.target import Target


@dataclass(frozen=True)
class VectorForm:
    """A kernel in that form, and the memory in which each of its local buffers is computed."""

    kernel: Kernel
    memories: dict[str, str]


def vector_form(kernel: Kernel, target: Target) -> VectorForm:
    """The kernel in that form. ScheduleError where a reduction has no instruction."""
    return _Form(kernel, target).formed()


@dataclass(frozen=True)
class _Accumulation:
    """An instruction that combines rows with rows: acc[…] op= operand[…]."""

    instruction: Instruction
    acc: Buffer
    operand: Buffer


def accumulation(target: Target, op: BinaryOp, dtype: DType) -> _Accumulation | None:
    """The target's instruction that accumulates with an operator: in this type, or in a wider one
    that gives the same once it is cut off."""
    found = []
    for instruction in target.instructions:
        pattern = write_of(instruction)
        if not isinstance(pattern, Accumulate) or pattern.op is not op:
            continue
        operand = without_casts(pattern.value)
        acc = pattern.buffer
        if not isinstance(operand, Load) or target.memory(acc.memory).size is None:
            continue
        wider = acc.dtype.is_integer and dtype.is_integer and acc.dtype.bits >= dtype.bits
        if acc.dtype == dtype or (wider and acc.dtype.is_signed):
            found.append(_Accumulation(instruction, acc, operand.buffer))
    return min(found, key=lambda a: a.acc.dtype.bits, default=None)


class _Form:
    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        self.memories: dict[str, str] = {}

    def formed(self) -> VectorForm:
        body: list[Stmt] = []
        wide: dict[Buffer, Buffer] = {}  # reductions, by what they were
        for stmt in self.kernel.body:
            stmt = _reading(stmt, wide)
            nest = nest_of(stmt)
            if nest is None or nest.update is None:
                body.append(stmt)
                continue
            body += self._reduction(nest, wide)
        allocated = tuple(s for s in body if not isinstance(s, Alloc) or s.buffer not in wide)
        return VectorForm(self.kernel.with_(body=allocated), self.memories)

    def _reduction(self, nest: Nest, wide: dict[Buffer, Buffer]) -> Block:
        update = nest.update
        assert update is not None
        unit = accumulation(self.target, update.op, nest.buffer.dtype)
        if unit is None or len(nest.writes) != 2:
            raise ScheduleError(
                f"no instruction of {self.target.name} accumulates {nest.buffer.name} by"
                f" {update.op.name.lower()}",
                program=nest.stmt,
                hint="a reduction needs an instruction that combines rows with rows in place",
            )
        acc = self._local(nest.buffer, unit.acc, "rows")
        before: list[Stmt] = []
        value = self._staged(nest, update.value, unit, before)
        first = self._first(nest, unit, before)
        at = update.indices

        def visit(stmt: Stmt) -> Stmt:
            if isinstance(stmt, For):
                return stmt.with_(body=map_block(stmt.body, visit))
            if isinstance(stmt, Accumulate):
                return Accumulate(acc, at, update.op, value)
            return Store(acc, nest.store.indices, first)

        (reduced,) = map_block((nest.stmt,), visit)
        found = (*before, Alloc(acc), reduced)
        if nest.buffer not in self.kernel.outputs:
            wide[nest.buffer] = acc
            return found
        last: Stmt = Store(nest.buffer, at, _narrow(Load(acc, at), nest.buffer.dtype))
        for loop in reversed(nest.axes):
            last = loop.with_(body=(last,))
        return (*found, *copy_block((last,), self.names))

    def _local(self, like: Buffer, operand: Buffer, suffix: str) -> Buffer:
        """A local buffer of the shape of one, as an instruction's operand."""
        name = self._name(f"{like.name}_{suffix}")
        self.memories[name] = operand.memory
        return like.with_(name=name, dtype=operand.dtype, memory=DRAM)

    def _staged(self, nest: Nest, value: Expr, unit: _Accumulation, before: list[Stmt]) -> Expr:
        """What is accumulated, once it lies in the operand's memory in its type: for every element
        of the buffer that it is made of."""
        places = dict.fromkeys(x.indices for x in loads(value))
        shapes = {x.buffer.shape for x in loads(value)}
        if len(places) != 1 or len(shapes) != 1 or any(isinstance(x, Select) for x in value.walk()):
            raise ScheduleError(
                f"{value} is accumulated, and {unit.instruction.name} takes elements of one array",
                program=nest.stmt,
                hint="a reduction has to read one place of its operands, without a condition",
            )
        (at,), (shape,) = places, shapes
        source = next(loads(value)).buffer
        staged = self._local(source.with_(name=nest.buffer.name), unit.operand, "operand")
        axes = tuple(Var(self._name(f"{source.name}_{d}")) for d in range(len(shape)))

        def here(e: Expr) -> Expr:
            return Load(e.buffer, axes) if isinstance(e, Load) else e

        stmt: Stmt = Store(staged, axes, cast(staged.dtype, rewrite(value, here)))
        for var, extent in zip(reversed(axes), reversed(shape), strict=True):
            stmt = For(var, extent, (stmt,))
        before += [Alloc(staged), stmt]
        return Load(staged, at)

    def _first(self, nest: Nest, unit: _Accumulation, before: list[Stmt]) -> Expr:
        """What a reduction begins with: a number that no instruction stores is added to 0."""
        value, dtype = nest.store.value, unit.acc.dtype
        if not isinstance(value, Const):
            return cast(dtype, value)
        first = const(value.value, dtype)
        if any(_stores(i, unit.acc, first.value) for i in self.target.instructions):
            return first
        zero = self._local(nest.buffer, unit.acc, "zero")
        clear: Stmt = Store(zero, nest.store.indices, const(0, zero.dtype))
        for loop in reversed(nest.axes):
            clear = loop.with_(body=(clear,))
        before += [Alloc(zero), *copy_block((clear,), self.names)]
        return Load(zero, nest.store.indices) + first

    def _name(self, wish: str) -> str:
        name, n = wish, 1
        while name in self.names:
            name, n = f"{wish}_{n}", n + 1
        self.names.add(name)
        return name


def _stores(instruction: Instruction, acc: Buffer, value: object) -> bool:
    """Whether an instruction stores a number in rows like these."""
    pattern = write_of(instruction)
    if not isinstance(pattern, Store) or not isinstance(pattern.value, Const):
        return False
    kind = (pattern.buffer.memory, pattern.buffer.dtype)
    return kind == (acc.memory, acc.dtype) and pattern.value.value == value


def _narrow(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else cast(dtype, value)


def _reading(stmt: Stmt, wide: dict[Buffer, Buffer]) -> Stmt:
    def other(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer not in wide:
            return e
        return _narrow(Load(wide[e.buffer], e.indices), e.dtype)

    return map_exprs(stmt, lambda e: rewrite(e, other)) if wide else stmt
