"""A piece of a kernel as operations in loops: what is scheduled into bundles.

Registers have no addresses, so that loops over them are unrolled; every operand is then a span of
bytes, from a place that is a number (registers) or steps with the loops around (memory).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.linear import Linear, linear, scaled
from tilewright.analyze.rewrite import simplify_block
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import Buffer, Dim, Expr, Var, as_expr, const, constant_value
from tilewright.ir.instruction import Cost, Instruction, Region, axis
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    Kernel,
    LoopKind,
    Stmt,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.lower.unroll import unroll
from tilewright.target.target import Target

SPECIAL = 4  # iterations that may be special: each is written out


@dataclass(frozen=True, eq=False)
class Operand:
    """What an operation touches of a buffer: `span` bytes from `start` on, which is a linear form
    of the loops' variables. Its first element is `lead` bytes behind that, its axes step by `steps`
    bytes. `row` is the bytes of a register, 0 in a memory with addresses."""

    buffer: Buffer
    start: Linear
    span: int
    reads: bool
    writes: bool
    row: int
    lead: int
    steps: tuple[int, ...]

    @property
    def first(self) -> int:
        """The first byte of an operand in registers."""
        return self.start.get(None, 0)

    @property
    def cells(self) -> range:
        """The registers of its buffer, counted from the buffer's own first."""
        return range(self.first // self.row, (self.first + self.span - 1) // self.row + 1)


@dataclass(frozen=True, eq=False)
class Operation:
    """A call that takes one slot of a bundle: for `busy` cycles; its results are there `latency`
    cycles after it was issued. Its fields are numbers, but that they may be others in the first
    `special` iterations of its loop."""

    number: int
    call: Call
    operands: tuple[Operand, ...]
    slot: str
    busy: int
    latency: int
    energy: float
    fields: tuple[int, ...]
    special: int

    def __str__(self) -> str:
        return f"{self.call.instruction.name} (operation {self.number})"


@dataclass(frozen=True, eq=False)
class OperationLoop:
    """`count` times the body, with the variable from 0 on."""

    var: Var
    count: int
    body: Body


@dataclass(frozen=True, eq=False)
class Body:
    """Operations and loops in order, and the register buffers that are new each time."""

    items: tuple[Operation | OperationLoop, ...]
    buffers: tuple[Buffer, ...]

    @property
    def is_straight(self) -> bool:
        return all(isinstance(x, Operation) for x in self.items)

    def walk(self) -> Iterator[Operation]:
        for item in self.items:
            if isinstance(item, Operation):
                yield item
            else:
                yield from item.body.walk()


def read_operations(block: Block, target: Target, simplifier: Simplifier) -> Body:
    """The operations of a block whose register loops are unrolled; the simplifier knows all
    loops, those around the block too."""
    return _Reader(target, simplifier).body(block)


def unroll_registers(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with loops unrolled as far as registers are told apart by them."""
    files = {m.name for m in target.memories if m.row}

    def chosen(stmt: For) -> bool:
        calls = (s for s in walk_statements(stmt.body) if isinstance(s, Call))
        regions = (r for c in calls for r in c.regions if r.buffer.memory in files)
        return any(stmt.var in variables(i) for r in regions for i in r.indices)

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return stmt.with_(kind=LoopKind.UNROLL) if isinstance(stmt, For) and chosen(stmt) else stmt

    return unroll(kernel.with_(body=map_block(kernel.body, visit)))


class _Reader:
    """Numbers operations in program order."""

    def __init__(self, target: Target, simplifier: Simplifier) -> None:
        self.target, self.simplifier = target, simplifier
        self.count = 0

    def body(self, block: Block, around: For | None = None) -> Body:
        """The operations of a block, the body of a loop that is `around` it."""
        items: list[Operation | OperationLoop] = []
        buffers = []
        for stmt in block:
            if isinstance(stmt, Call):
                items.append(self._operation(stmt, around))
            elif isinstance(stmt, For):
                items.append(OperationLoop(stmt.var, _count(stmt), self.body(stmt.body, stmt)))
            elif isinstance(stmt, Alloc):
                buffers.append(stmt.buffer)
            else:
                raise CompileError(
                    "a statement is left that no operation of a bundle does", program=stmt,
                    hint="map it with tensorize; conditions belong outside of what is bundled",
                )  # fmt: skip
        return Body(tuple(items), tuple(buffers))

    def _operation(self, call: Call, around: For | None) -> Operation:
        instruction = call.instruction
        special, fields = self._fields(call, around)
        uses = _uses(instruction, fields)
        operands = tuple(
            self._operand(call, operand, region, use)
            for operand, region, use in zip(instruction.operands, call.regions, uses, strict=True)
        )
        cost = _cost(instruction, fields)
        number, self.count = self.count, self.count + 1
        slot, busy, energy = instruction.queue, max(int(cost.busy), 1), float(int(cost.energy))
        latency = max(int(cost.latency), 1)
        numbers = tuple(int(constant_value(f) or 0) for f in fields)
        return Operation(number, call, operands, slot, busy, latency, energy, numbers, special)

    def _fields(self, call: Call, around: For | None) -> tuple[int, tuple[Expr, ...]]:
        """In how many first iterations fields are special, and what they are in the others."""
        special, found = 0, []
        for f, e in zip(call.instruction.fields, call.fields, strict=True):
            value = self.simplifier(e)
            if constant_value(value) is None and around is not None:
                values = _values(value, around)
                if values is not None:
                    value = const(int(values[-1]))
                    changes = np.flatnonzero(values != values[-1])
                    special = max(special, int(changes[-1]) + 1 if len(changes) else 0)
            if constant_value(value) is None or special > SPECIAL:
                raise CompileError(
                    f"{f.name} of {call.instruction.name} is {e}, and a bundle's operation has"
                    " numbers for its fields",
                    program=call,
                    hint="only the first iterations of the innermost loop may have others: unroll,"
                    " or peel",
                )
            found.append(value)
        return special, tuple(found)

    def _operand(self, call: Call, operand: Buffer, region: Region, use: _Use) -> Operand:
        size = operand.dtype.bytes
        start, steps = self._place(region, len(operand.shape))
        start, steps = scaled(start, size), [step * size for step in steps]
        low, high = 0, size
        for step, extent in zip(steps, use.extents, strict=True):
            low += min(step * (extent - 1), 0)
            high += max(step * (extent - 1), 0)
        start = {**start, None: start.get(None, 0) + low}
        row, span, reads = self.target.memory(region.buffer.memory).row, high - low, use.reads
        if row:
            _check_register(call, region, start, span, row)
            whole = start[None] % row == 0 and span % row == 0
            reads = reads or (use.writes and not whole)  # the rest of the register stays
        return Operand(region.buffer, start, span, reads, use.writes, row, -low, tuple(steps))

    def _place(self, region: Region, axes: int) -> tuple[Linear, list[int]]:
        """Where a region begins in its buffer, and its steps along the operand's axes; in
        elements."""
        form = self.simplifier.position(region.indices, region.buffer.shape)
        steps = [form.get(axis(d), 0) for d in range(axes)]
        own = {axis(d) for d in range(axes)}
        start = {atom: k for atom, k in form.items() if atom not in own}
        if any(atom is not None and variables(atom) & own for atom in start):
            raise CompileError(f"the steps of {region} are not even", program=region)
        return start, steps


def _values(e: Expr, loop: For) -> np.ndarray | None:
    """What an expression is in each iteration of a loop; None if others change it, too."""
    if variables(e) != {loop.var}:
        return None
    count = _count(loop)
    found = evaluate_expr(e, {loop.var: np.arange(count)}, {})
    return np.broadcast_to(found, (count,)).astype(np.int64)


def _check_register(call: Call, region: Region, start: Linear, span: int, row: int) -> None:
    if any(atom is not None for atom in start):
        raise CompileError(
            f"{region} is in registers, which have numbers only", program=call,
            hint="the loop it changes with must run a number of times that is known, to be"
            " unrolled",
        )  # fmt: skip
    if span % row == 0 and start[None] % row:
        raise CompileError(
            f"{region} fills registers of {row} bytes, and begins inside of one", program=call
        )


def _count(loop: For) -> int:
    if not isinstance(loop.extent, int):
        raise CompileError(f"loop {loop.var} runs {loop.extent} times, which is not a number")
    return loop.extent


# ---------------------------------------------------------------- what instructions touch


@dataclass(frozen=True)
class _Use:
    """What an instruction does with an operand: how many elements along each axis; whether it
    reads what was there before, and writes."""

    extents: tuple[int, ...]
    reads: bool
    writes: bool


@functools.lru_cache(maxsize=1024)
def _uses(instruction: Instruction, fields: tuple[Expr, ...]) -> tuple[_Use, ...]:
    regions = tuple(
        Region(o, tuple(axis(d) for d in range(len(o.shape)))) for o in instruction.operands
    )
    block = expand_call(Call(instruction, regions, fields))
    loops = (s for s in walk_statements(block) if isinstance(s, For))
    simplifier = Simplifier({s.var: s.extent for s in loops})
    found = list(accesses(simplify_block(block, simplifier)))
    return tuple(_use(o, [a for a in found if a.buffer == o]) for o in instruction.operands)


def _use(operand: Buffer, found: list[Access]) -> _Use:
    extents = []
    for d in range(len(operand.shape)):
        reach = (_reach(a.indices[d], a.loops) for a in found)
        extents.append(1 + max(reach, default=0))
    reads = any(not a.writes or a.op is not None for a in found)
    return _Use(tuple(extents), reads and not _defines(found), any(a.writes for a in found))


def _defines(found: list[Access]) -> bool:
    """Whether an instruction stores an element before it does anything else with it."""
    first = found[0]
    return (
        first.writes
        and first.op is None
        and not first.conditions
        and all(a.indices == first.indices for a in found)
    )


def _reach(i: Expr, loops: tuple[For, ...]) -> int:
    """The greatest value of a subscript."""
    extents: dict[Expr, Dim] = {loop.var: loop.extent for loop in loops}
    total = 0
    for atom, k in linear(i).items():
        extent = 1 if atom is None else extents[atom]
        assert isinstance(extent, int)
        total += k if atom is None else max(k, 0) * (extent - 1)
    return total


@functools.lru_cache(maxsize=1024)
def _cost(instruction: Instruction, fields: tuple[Expr, ...]) -> Cost:
    """The terms as numbers."""
    values = {f.symbol: v for f, v in zip(instruction.fields, fields, strict=True)}
    cost = instruction.cost

    def term(e: Dim) -> int:
        found = constant_value(Simplifier()(substitute(as_expr(e), values)))
        assert found is not None
        return math.ceil(found)

    given = (cost.setup, cost.busy, cost.latency, cost.bytes, cost.energy)
    setup, busy, latency, moved, energy = map(term, given)
    return Cost(setup, busy, latency, moved, energy)
