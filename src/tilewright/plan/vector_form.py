"""Kernels without a contraction as a chip's element-wise instructions compute them: reductions in
the type of the instruction that accumulates, of operands that are brought there in that type.

    for c, w:                              for …: X_rows[…] = cast(i32, X[…])
        Y[c, w] = -128                     for c, w: Y_zero[c, w] = 0
        for s: Y max= X[c, 2 * w + s]  ->  for c, w:
                                               Y_rows[c, w] = Y_zero[c, w] + -128
                                               for s: Y_rows max= X_rows[c, 2 * w + s]
                                           for c, w: Y[c, w] = cast(i8, Y_rows[c, w])

Maxima and minima are the same in a wider type of integers; sums and products that wrap around are
the same once they are cut off. What is computed is the same, to the bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tilewright.analyze.nests import Nest, nest_of, nests, stride, without_casts
from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import (
    DRAM,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    cast,
    const,
)
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    buffers_written,
    loads,
    map_block,
    map_exprs,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.ir.tensor import Axis, Builder, Stage, neutral
from tilewright.plan.create_loops import stage_loops
from tilewright.plan.element_writes import reduction_of, write_of
from tilewright.plan.first_elements import window_of
from tilewright.plan.fit_operators import (
    fit_value,
    row_instructions,
    row_operators,
    row_size,
)
from tilewright.plan.row_products import RowProduct, find_product
from tilewright.plan.separate_windows import IN_PLACE_GAIN, LEAST_GAIN, separate_stage
from tilewright.plan.share_values import share_values
from tilewright.plan.value_ranges import Interval, value_range, within
from tilewright.schedule.primitives.loops import copy_block
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

IDEMPOTENT = (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.AND, BinaryOp.OR)


@dataclass(frozen=True)
class VectorForm:
    """A kernel in that form, and the memory in which each of its local buffers is computed; the
    kernel with its parameters as they are, which lie in memory as those of a flat one do; the
    buffers of sums that a matrix unit makes, and those of factors that all rows have in common."""

    kernel: Kernel
    memories: dict[str, str]
    source: Kernel
    products: frozenset[str] = frozenset()
    common: frozenset[str] = frozenset()

    @property
    def is_flat(self) -> bool:
        return self.kernel is not self.source


def vector_form(
    kernel: Kernel, target: Target, *, along_rows: bool = False, in_place: bool = False
) -> VectorForm:
    """The kernel in that form; with `along_rows`, instructions accumulate the elements of a row;
    with `in_place`, what slides over an array leaves its intermediate results there, if they are
    no other window's elements. ScheduleError where a reduction has no instruction."""
    inputs = [b.name for b in kernel.inputs]
    products = {n.buffer for n in nests(kernel.body) if find_product(n, target, inputs) is not None}
    shared = share_values(kernel, products) if _leave_operands(target) else kernel
    return _Form(shared, target, along_rows, in_place).formed()


def _leave_operands(target: Target) -> bool:
    """Whether a chip has each operator of rows in an instruction that overwrites no operand."""
    writes = [write_of(i) for i in row_instructions(target)]
    in_place = {w.op for w in writes if isinstance(w, Accumulate)}
    apart = {
        x.op
        for w in writes
        if isinstance(w, Store)
        for x in w.value.walk()
        if isinstance(x, Binary)
    }
    return bool(apart) and in_place <= apart


def flat_form(form: VectorForm) -> VectorForm | None:
    """A kernel of one nest that goes through every array as it lies in memory, with one loop; None
    for others."""
    s = Schedule(form.kernel)
    found = nests(s.kernel.body)
    if len(found) != 1 or found[0].update is not None:
        return None
    (nest,) = found
    reads = [(x.buffer, x.indices) for x in loads(nest.store.value)]
    for buffer, indices in [*reads, (nest.buffer, nest.store.indices)]:
        step = 1
        for loop in reversed(nest.axes):
            if loop.extent != 1 and stride(buffer, indices, loop.var, s.simplifier) != step:
                return None
            step *= int(loop.extent) if isinstance(loop.extent, int) else 0
        if math.prod(int(n) for n in buffer.shape) != step:
            return None
    var = Var("_".join(x.var.name for x in nest.axes))
    flat = {b: b.with_(shape=(step,)) for b in form.kernel.params}

    def along(e: Expr) -> Expr:
        return Load(flat[e.buffer], (var,)) if isinstance(e, Load) else e

    store = Store(flat[nest.buffer], (var,), rewrite(nest.store.value, along))
    if variables(store.value) - {var}:
        return None  # a value that depends on where it is
    kernel = form.kernel.with_(
        inputs=tuple(flat[b] for b in form.kernel.inputs),
        outputs=tuple(flat[b] for b in form.kernel.outputs),
        body=(For(var, step, (store,)),),
    )
    return replace(form, kernel=kernel)


@dataclass(frozen=True)
class Accumulation:
    """An instruction that combines rows with rows: acc[…] op= operand[…]."""

    instruction: Instruction
    acc: Buffer
    operand: Buffer


def find_accumulation(
    target: Target, op: BinaryOp, dtype: DType, *, along_rows: bool = False
) -> Accumulation | None:
    """The target's instruction that accumulates with an operator: in this type, or in a wider one
    that gives the same once it is cut off."""
    found = []
    for instruction in target.instructions:
        pattern = reduction_of(instruction) if along_rows else write_of(instruction)
        if not isinstance(pattern, Accumulate) or pattern.op is not op:
            continue
        operand = without_casts(pattern.value)
        acc = pattern.buffer
        if not isinstance(operand, Load) or target.memory(acc.memory).size is None:
            continue
        wider = acc.dtype.is_integer and dtype.is_integer and acc.dtype.bits > dtype.bits
        if acc.dtype == dtype or (wider and acc.dtype.is_signed):
            found.append(Accumulation(instruction, acc, operand.buffer))
    return min(found, key=lambda a: a.acc.dtype.bits, default=None)


class _Form:
    def __init__(self, kernel: Kernel, target: Target, along_rows: bool, in_place: bool) -> None:
        self.kernel, self.target = kernel, target
        self.along_rows, self.in_place = along_rows, in_place
        self.names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        self.builder = Builder(self.names)
        self.memories: dict[str, str] = {}
        self.added: set[str] = set()  # what begins with an array's element and 0
        self.exact: dict[Buffer, DType] = {}  # what is wider than it was, and holds nothing more
        self.inputs = [b.name for b in kernel.inputs]
        self.products: set[str] = set()
        self.copies: dict[tuple[Buffer, str], Buffer] = {}  # of factors, by their memory
        self.common: set[str] = set()
        self.overwrites = not _leave_operands(target)
        self.reads = Counter(x.buffer for n in nests(kernel.body) for x in _reads_of(n))
        self.rows = row_operators(target)
        self.operands = [b for i in row_instructions(target) for b in i.operands]

    def formed(self) -> VectorForm:
        self._check()
        body: list[Stmt] = []
        wide: dict[Buffer, Buffer] = {}  # what nests compute, by what it was
        for stmt in self.kernel.body:
            stmt = _reading(stmt, wide)
            nest = nest_of(stmt)
            if nest is None:
                body.append(stmt)
            elif nest.update is None:
                body += self._elementwise(nest, wide)
            elif (product := find_product(nest, self.target, self.inputs)) is not None:
                body += self._product(nest, product, wide)
            else:
                body += self._reduction(nest, wide)
        allocated = tuple(s for s in body if not isinstance(s, Alloc) or s.buffer not in wide)
        formed = self.kernel.with_(body=_needed(allocated, self.kernel.outputs))
        return VectorForm(
            formed, self.memories, formed, frozenset(self.products), frozenset(self.common)
        )

    def _check(self) -> None:
        """Refuses a kernel of which nests depend on conditions, or compute parts of one array."""
        for stmt in walk_statements(self.kernel.body):
            if isinstance(stmt, If):
                raise ScheduleError(
                    f"{self.kernel.name} does something under a condition, and instructions of"
                    f" {self.target.name} do all of their elements",
                    program=stmt,
                    hint="select a value instead: a if condition else b",
                )
        written = [n.buffer for n in nests(self.kernel.body)]
        several = next((b for b in written if written.count(b) > 1), None)
        if several is not None:
            raise ScheduleError(
                f"{several.name} is computed in several parts, and a chip's tiles need one nest of"
                " loops for each array",
                program=self.kernel,
                hint="make a kernel of each part",
            )

    def _elementwise(self, nest: Nest, wide: dict[Buffer, Buffer]) -> Block:
        """A nest of one store, in the types and operators of the target's instructions."""
        value = self._with_held(fit_value(nest.store.value, self.rows))
        value, before = self._not_overwritten(nest, value, wide)
        if nest.buffer in self.kernel.params:
            stored = partial(_storing, buffer=nest.buffer, value=value)
            return (*before, *map_block((nest.stmt,), stored))
        if isinstance(value, Cast) and value.dtype not in self.rows.types:
            value = value.a
        like = next((b for b in self.operands if b.dtype == value.dtype), None)
        if like is None:
            raise ScheduleError(
                f"no instruction of {self.target.name} has rows of {value.dtype}, which"
                f" {nest.buffer.name} needs",
                program=nest.stmt,
            )
        local = self._local(nest.buffer, like, "rows")
        wide[nest.buffer] = local
        if self._holds(nest.buffer.dtype, value):
            self.exact[local] = nest.buffer.dtype
        stored = partial(_storing, buffer=local, value=value)
        return (*before, Alloc(local), *map_block((nest.stmt,), stored))

    def _not_overwritten(
        self, nest: Nest, value: Expr, wide: dict[Buffer, Buffer]
    ) -> tuple[Expr, Block]:
        """A value in which no operator has only elements that are read again, one of which an
        instruction would overwrite: one is added to 0 first, in an array that the block clears."""
        before: list[Stmt] = []

        def apart(e: Expr) -> Expr:
            if not isinstance(e, (Binary, Unary)):
                return e
            parts = [x for x in e.children() if isinstance(x, Expr) and not isinstance(x, Const)]
            if all(isinstance(x, Load) and self._is_read_again(x, wide) for x in parts):
                first = next((x for x in parts if isinstance(x, Load)), None)
                zero = self._cleared(nest, first, before) if first is not None else None
                if first is not None and zero is not None:
                    return substitute(e, {first: zero + first})
            return e

        if isinstance(value, Cast):
            return value.with_(a=rewrite(value.a, apart)), tuple(before)
        return rewrite(value, apart), tuple(before)

    def _cleared(self, nest: Nest, like: Load, before: list[Stmt]) -> Load | None:
        """An element of an array of zeros for each of a nest, where another one's elements lie;
        None where instructions do not clear, or add."""
        memory = self.memories[like.buffer.name]
        zero = nest.buffer.with_(
            name=self.builder.fresh(f"{nest.buffer.name}_zero"), dtype=like.dtype, memory=DRAM
        )
        held = zero.with_(memory=memory)
        if not any(_stores(i, held, 0) for i in self.target.instructions):
            return None
        if BinaryOp.ADD not in self.rows.operators:
            return None
        self.memories[zero.name] = memory
        axes = tuple(Axis(x.var, x.extent) for x in nest.axes)
        clear = Stage(zero, axes, nest.store.indices, const(0, zero.dtype))
        before += [Alloc(zero), *copy_block(stage_loops(clear), self.names)]
        return Load(zero, nest.store.indices)

    def _with_held(self, value: Expr) -> Expr:
        """A value of such parts; what it is cut off to last is its type."""
        if isinstance(value, Cast):
            return value.with_(a=rewrite(value.a, self._as_held))
        return rewrite(value, self._as_held)

    def _as_held(self, e: Expr) -> Expr:
        """A value as it lies in a wider type, if it was cut off to what it holds anyway and made
        wider again."""
        held = self._uncut(e.a) if isinstance(e, Cast) else e
        return held if isinstance(e, Cast) and held.dtype == e.dtype else e

    def _uncut(self, e: Expr) -> Expr:
        """An element that is cut off to what it holds anyway, as it lies."""
        if isinstance(e, Cast) and isinstance(e.a, Load):
            return e.a if self.exact.get(e.a.buffer) == e.dtype else e
        return e

    def _holds(self, dtype: DType, value: Expr) -> bool:
        """Whether all that a value of integers may be is in a type."""
        if not dtype.is_integer or not value.dtype.is_integer:
            return False
        known: dict[Expr, Interval] = {x: _range_of(kept) for x in loads(value)
                 if (kept := self.exact.get(x.buffer)) is not None}  # fmt: skip
        return within(value_range(value, known), _range_of(dtype))

    def _is_read_again(self, read: Load, wide: dict[Buffer, Buffer]) -> bool:
        """Whether instructions would overwrite what is read of an array of integers, which then is
        read elsewhere."""
        count = sum(self.reads[old] for old, new in wide.items() if new == read.buffer)
        return self.overwrites and read.dtype.is_integer and count > 1

    def _reduction(self, nest: Nest, wide: dict[Buffer, Buffer]) -> Block:
        update = nest.update
        assert update is not None
        unit = find_accumulation(
            self.target, update.op, nest.buffer.dtype, along_rows=self.along_rows
        )
        if unit is None or len(nest.writes) != 2:
            raise ScheduleError(
                f"no instruction of {self.target.name} accumulates {nest.buffer.name} by"
                f" {update.op.name.lower()}",
                program=nest.stmt,
                hint="a reduction needs an instruction that combines rows with rows in place",
            )
        before: list[Stmt] = []
        value = self._staged(nest, self._uncut(update.value), unit, before)
        acc = self._local(nest.buffer, unit.acc, "rows")
        axes, over = ([Axis(x.var, x.extent) for x in loops] for loops in (nest.axes, nest.reduce))
        first = self._uncut(nest.store.value)
        first = (
            const(first.value, acc.dtype) if isinstance(first, Const) else cast(acc.dtype, first)
        )
        if update.op in IDEMPOTENT and acc.dtype.is_integer:
            self.exact[acc] = nest.buffer.dtype
        if isinstance(first, Load) and self._is_read_again(first, wide):
            self.added.add(acc.name)
        stage = Stage(acc, tuple(axes), update.indices, value, tuple(over), update.op, first)
        found = [*before]
        least = neutral(update.op, nest.buffer.dtype)
        for passed in self._passes(stage, unit, const(least.value, acc.dtype)):
            found += self._loops(passed, unit)
        if nest.buffer not in self.kernel.outputs:
            wide[nest.buffer] = acc
            return tuple(found)
        return (*found, *self._stored(nest, acc))

    def _stored(self, nest: Nest, acc: Buffer) -> Block:
        """What stores the sums of a nest, which are in another buffer."""
        value = _narrow(Load(acc, nest.store.indices), nest.buffer.dtype)
        last: Stmt = Store(nest.buffer, nest.store.indices, value)
        for loop in reversed(nest.axes):
            last = loop.with_(body=(last,))
        return copy_block((last,), self.names)

    def _product(self, nest: Nest, product: RowProduct, wide: dict[Buffer, Buffer]) -> Block:
        """A nest that a matrix unit does, of factors in the unit's memories."""
        update = nest.update
        assert update is not None
        before: list[Stmt] = []
        held: dict[Expr, Load] = {}
        for access, operand in product.operands:
            local = access.buffer
            if self.memories.get(local.name) != operand.buffer.memory:
                local = self._copied(access.buffer, operand.buffer, before)
            held[access] = Load(local, access.indices)
        self.common.add(held[product.common].buffer.name)
        acc = self._local(nest.buffer, product.unit.result.buffer, "rows")
        self.products.add(acc.name)
        axes, over = ([Axis(x.var, x.extent) for x in loops] for loops in (nest.axes, nest.reduce))
        stage = Stage(
            acc, tuple(axes), update.indices, rewrite(update.value, lambda e: held.get(e, e)),
            tuple(over), update.op, nest.store.value,
        )  # fmt: skip
        found = (*before, Alloc(acc), *stage_loops(stage))
        if nest.buffer not in self.kernel.outputs:
            wide[nest.buffer] = acc
            return found
        return (*found, *self._stored(nest, acc))

    def _copied(self, source: Buffer, operand: Buffer, before: list[Stmt]) -> Buffer:
        """An array as it is, in the memory of a unit's operand: one copy for all products."""
        key = source, operand.memory
        if key in self.copies:
            return self.copies[key]
        local = self.copies[key] = self._local(source, operand, "operand")
        axes = tuple(Var(self.builder.fresh(f"{source.name}_{d}")) for d in range(len(local.shape)))
        stmt: Stmt = Store(local, axes, Load(source, axes))
        for var, extent in zip(reversed(axes), reversed(local.shape), strict=True):
            stmt = For(var, extent, (stmt,))
        before += [Alloc(local), stmt]
        return local

    def _passes(self, stage: Stage, unit: Accumulation, least: Const) -> list[Stage]:
        """A reduction over a window as one along each side, where that saves work; and one of a few
        rows in parts, so that an instruction does not come back to a row too soon. `least` is what
        changes no element."""
        if self.along_rows:
            return [stage]
        gain = IN_PLACE_GAIN if self.in_place and stage.op in IDEMPOTENT else LEAST_GAIN
        every = [s for s in separate_stage(stage, self.builder, gain) if isinstance(s, Stage)]
        found: list[Stage] = []
        for each in every:
            if each is not every[-1]:
                self.memories[each.buffer.name] = unit.acc.memory
                each = each.with_(init=_first_of_part(stage))
            parts = self._in_parts(each, unit)
            if len(parts) == 1:
                parts = [self._from_first(each, each is every[-1], unit, least)]
            found += parts
        return found

    def _from_first(self, stage: Stage, last: bool, unit: Accumulation, least: Const) -> Stage:
        """A reduction over windows that begins with one of their elements: in its place, where that
        is no other window's, or added to 0, where no instruction stores what it begins with now."""
        window = window_of(stage)
        if window is None or stage.op not in IDEMPOTENT:
            return stage
        there = self.memories.get(window.load.buffer.name), window.load.dtype
        if there != (unit.acc.memory, unit.acc.dtype):
            return stage
        own = next(window.own(), None)
        if self.in_place and not last and own is not None:
            return window.begins_with(own)
        if stage.init == least and not self._has_store(unit.acc, least.value):
            self.added.add(stage.buffer.name)
            return window.begins_with(0)
        return stage

    def _in_parts(self, stage: Stage, unit: Accumulation) -> list[Stage]:
        rows = math.prod(int(a.extent) for a in stage.axes) / row_size(unit.instruction)
        wanted = max((n for _, n in unit.instruction.distances), default=0)
        extent = int(stage.reduce[-1].extent)
        parts = [n for n in range(2, extent + 1) if extent % n == 0 and n * rows >= wanted]
        if rows >= wanted or not parts:
            return [stage]
        last, count = stage.reduce[-1], parts[0]
        part = Axis(Var(self.builder.fresh(f"{last.var.name}_part")), count)
        within = Axis(Var(self.builder.fresh(last.var.name)), extent // count)
        again = Axis(Var(self.builder.fresh(f"{last.var.name}_part")), count)
        axes = tuple(Axis(Var(self.builder.fresh(a.var.name)), a.extent) for a in stage.axes)
        names: dict[Expr, Expr] = {a.var: b.var for a, b in zip(stage.axes, axes, strict=True)}
        names[last.var] = part.var * within.extent + within.var
        shape = tuple(int(a.extent) for a in (part, *axes))
        held = stage.buffer.with_(
            name=self.builder.fresh(f"{stage.buffer.name}_parts"), shape=shape
        )
        self.memories[held.name] = unit.acc.memory
        places = (part.var, *(a.var for a in axes))
        value, over = substitute(stage.value, names), (*stage.reduce[:-1], within)
        start = _first_of_part(stage)
        first = Stage(held, (part, *axes), places, value, over, stage.op, start)
        return [
            first,
            stage.with_(
                value=Load(held, (again.var, *(a.var for a in stage.axes))), reduce=(again,)
            ),
        ]

    def _loops(self, stage: Stage, unit: Accumulation) -> Block:
        """A reduction as a nest. A number that no instruction stores is added to 0."""
        assert stage.op is not None
        start = stage.start(stage.op)
        before: Block = ()
        if (
            not self._has_store(unit.acc, start.value)
            if isinstance(start, Const)
            else stage.buffer.name in self.added
        ):
            zero = self._local(stage.buffer, unit.acc, "zero")
            clear = Stage(zero, stage.axes, stage.indices, const(0, zero.dtype))
            before = (Alloc(zero), *copy_block(stage_loops(clear), self.names))
            start = Load(zero, stage.indices) + start
        return (*before, Alloc(stage.buffer), *stage_loops(stage.with_(init=start)))

    def _has_store(self, acc: Buffer, number: object) -> bool:
        return any(_stores(i, acc, number) for i in self.target.instructions)

    def _local(self, like: Buffer, operand: Buffer, suffix: str) -> Buffer:
        """A local buffer of the shape of one, as an instruction's operand."""
        name = self.builder.fresh(f"{like.name}_{suffix}")
        self.memories[name] = operand.memory
        return like.with_(name=name, dtype=operand.dtype, memory=DRAM)

    def _staged(self, nest: Nest, value: Expr, unit: Accumulation, before: list[Stmt]) -> Expr:
        """What is accumulated, once it lies in the operand's memory in its type: for every element
        of the buffer that it is made of."""
        places = dict.fromkeys(x.indices for x in loads(value))
        shapes = {x.buffer.shape for x in loads(value)}
        there = self.memories.get(value.buffer.name) if isinstance(value, Load) else None
        if there == unit.operand.memory and value.dtype == unit.operand.dtype:
            return value
        if len(places) != 1 or len(shapes) != 1 or any(isinstance(x, Select) for x in value.walk()):
            raise ScheduleError(
                f"{value} is accumulated, and {unit.instruction.name} takes elements of one array",
                program=nest.stmt,
                hint="a reduction has to read one place of its operands, without a condition",
            )
        (at,), (shape,) = places, shapes
        source = next(loads(value)).buffer
        staged = self._local(source.with_(name=nest.buffer.name), unit.operand, "operand")
        axes = tuple(Var(self.builder.fresh(f"{source.name}_{d}")) for d in range(len(shape)))

        def here(e: Expr) -> Expr:
            return Load(e.buffer, axes) if isinstance(e, Load) else e

        if not isinstance(value, Load):  # which an instruction brings as it is
            value = fit_value(value, self.rows)
        stmt: Stmt = Store(staged, axes, cast(staged.dtype, rewrite(value, here)))
        for var, extent in zip(reversed(axes), reversed(shape), strict=True):
            stmt = For(var, extent, (stmt,))
        before += [Alloc(staged), stmt]
        return Load(staged, at)


def _reads_of(nest: Nest) -> set[Load]:
    return {x for w in nest.writes for x in loads(w.value)}


def _range_of(dtype: DType) -> Interval:
    return int(dtype.min), int(dtype.max)


def _needed(body: Block, outputs: Sequence[Buffer]) -> Block:
    """A block without what computes arrays that nothing reads: values that turned out constant."""
    while True:
        read = {x.buffer for stmt in body for x in loads(stmt)} | {*outputs}
        kept = tuple(s for s in body if not (written := buffers_written((s,))) or written & read)
        kept = tuple(s for s in kept if not isinstance(s, Alloc) or s.buffer in read)
        if len(kept) == len(body):
            return kept
        body = kept


def _first_of_part(stage: Stage) -> Expr | None:
    """What a part of a reduction begins with: the same as all of it, if that may count twice; None
    for what changes nothing."""
    return stage.init if stage.op in IDEMPOTENT and isinstance(stage.init, Const) else None


def _stores(instruction: Instruction, acc: Buffer, value: object) -> bool:
    """Whether an instruction stores a number in rows like these."""
    pattern = write_of(instruction)
    if not isinstance(pattern, Store) or not isinstance(pattern.value, Const):
        return False
    kind = (pattern.buffer.memory, pattern.buffer.dtype)
    return kind == (acc.memory, acc.dtype) and pattern.value.value == value


def _storing(stmt: Stmt, buffer: Buffer, value: Expr) -> Stmt:
    """A nest of one store, of another value in another buffer."""
    if isinstance(stmt, For):
        return stmt.with_(body=map_block(stmt.body, partial(_storing, buffer=buffer, value=value)))
    return Store(buffer, stmt.indices, value) if isinstance(stmt, Store) else stmt


def _narrow(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else cast(dtype, value)


def _reading(stmt: Stmt, wide: dict[Buffer, Buffer]) -> Stmt:
    def other(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer not in wide:
            return e
        return _narrow(Load(wide[e.buffer], e.indices), e.dtype)

    return map_exprs(stmt, lambda e: rewrite(e, other)) if wide else stmt
