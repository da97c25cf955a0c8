"""A kernel cut in two: transfers, which queues do on their own, and sections of bundles.

A section is what the slots do between two transfers. To what surrounds it, it is one instruction of
the chip: it reads and writes buffers in memory, takes the variables of the loops around it as
fields, and its body is what it means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.simplify import Simplifier
from tilewright.backends.bundles.code import Code, cycles, issues
from tilewright.backends.bundles.fill_bundles import place
from tilewright.backends.bundles.operations import Body, read_operations, unroll_registers
from tilewright.base.errors import CompileError
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import Buffer, Dim, Expr, Symbol, Var
from tilewright.ir.instruction import Cost, Field, Instruction, Region, axis
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    If,
    Kernel,
    Stmt,
    buffers_written,
    map_block,
    map_exprs,
    map_inner_blocks,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.target.target import Target

CORE = "bundles"  # the queue of sections


@dataclass(frozen=True, eq=False)
class Section:
    """What slots do between transfers: as the kernel says it, as operations, as code; and the one
    instruction that it is for the rest."""

    block: Block
    body: Body
    code: Code
    instruction: Instruction


def cut_sections(kernel: Kernel, target: Target) -> tuple[Kernel, list[Section]]:
    """The kernel with a call in the place of each section."""
    assert target.bundles is not None
    slots = {name for name, _ in target.bundles.slots}
    cutter = _Cutter(target, slots)
    return kernel.with_(body=cutter.block(kernel.body, {})), cutter.sections


class _Cutter:
    def __init__(self, target: Target, slots: set[str]) -> None:
        self.target, self.slots = target, slots
        self.files = {m.name for m in target.memories if m.row}
        self.sections: list[Section] = []

    def block(self, block: Block, loops: dict[Var, Dim]) -> Block:
        out: list[Stmt] = []
        mine: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Alloc):
                out += [] if stmt.buffer.memory in self.files else [stmt]
            elif self._in_section(stmt):
                mine.append(stmt)
            else:
                if mine:
                    out.append(self._section(tuple(mine), loops))
                    mine = []
                out.append(self._outside(stmt, loops))
        if mine:
            out.append(self._section(tuple(mine), loops))
        return tuple(out)

    def _in_section(self, stmt: Stmt) -> bool:
        if isinstance(stmt, If):
            return False
        inner = list(walk_statements((stmt,)))
        calls = [s for s in inner if isinstance(s, Call)]
        return bool(calls) and all(c.instruction.queue in self.slots for c in calls)

    def _outside(self, stmt: Stmt, loops: dict[Var, Dim]) -> Stmt:
        if isinstance(stmt, For):
            return stmt.with_(body=self.block(stmt.body, {**loops, stmt.var: stmt.extent}))
        return map_inner_blocks(stmt, lambda b: self.block(b, loops))

    def _section(self, block: Block, loops: dict[Var, Dim]) -> Call:
        used = _buffers(block)
        touched = [b for b in used if b.memory not in self.files]
        inside = {s.buffer for s in walk_statements(block) if isinstance(s, Alloc)}
        own = [b for b in used if b.memory in self.files and b not in inside]
        block = (*map(Alloc, own), *block)
        plain = map_block(block, self._expanded)
        free = sorted(_free(block), key=lambda v: v.name)
        fields = tuple(_field(v, loops) for v in free)
        values: dict[Expr, Expr] = {v: f.symbol for v, f in zip(free, fields, strict=True)}
        body = map_block(plain, lambda s: map_exprs(s, lambda e: substitute(e, values)))
        piece = unroll_registers(Kernel("section", (), (), block), self.target)
        known = {s.var: s.extent for s in walk_statements(piece.body) if isinstance(s, For)}
        operations = read_operations(piece.body, self.target, Simplifier({**loops, **known}))
        _check_defined(operations, set(own))
        code = place(operations, self.target)
        name = f"section{len(self.sections)}"
        energy = sum(x.operation.energy * times for x, times in issues(code))
        cost = Cost(busy=cycles(code), energy=round(energy))
        instruction = Instruction(name, tuple(touched), fields, body, CORE, cost)
        self.sections.append(Section(block, operations, code, instruction))
        regions = tuple(Region(b, tuple(axis(d) for d in range(len(b.shape)))) for b in touched)
        return Call(instruction, regions, tuple(free))

    def _expanded(self, stmt: Stmt) -> Stmt | Block:
        if isinstance(stmt, Call):
            return expand_call(stmt)
        return map_inner_blocks(stmt, lambda b: map_block(b, self._expanded))


def _check_defined(body: Body, buffers: set[Buffer]) -> None:
    """Registers are a section's own: it writes all that it reads. Loops are taken to run once."""
    written: set[tuple[Buffer, int]] = set()
    for operation in body.walk():
        for operand in operation.operands:
            if operand.buffer not in buffers:
                continue
            missing = {(operand.buffer, c) for c in operand.cells} - written
            if missing and operand.reads and not operand.writes:
                raise CompileError(
                    f"{operand.buffer} is in registers, and used behind a transfer",
                    program=operation.call,
                    hint="registers hold nothing while transfers are started: load it again",
                )
        for operand in operation.operands:
            if operand.writes and operand.row:
                written |= {(operand.buffer, c) for c in operand.cells}


def _field(var: Var, loops: dict[Var, Dim]) -> Field:
    extent = loops.get(var)
    if not isinstance(extent, int):
        raise CompileError(f"loop {var} runs {extent} times, which is not a number")
    return Field(Symbol(var.name, 0, extent - 1), 0, extent - 1)


def _buffers(block: Block) -> list[Buffer]:
    """The buffers of all calls, those that are written first."""
    calls = (s for s in walk_statements(block) if isinstance(s, Call))
    found = dict.fromkeys(r.buffer for c in calls for r in c.regions)
    written = buffers_written(block)
    return sorted(found, key=lambda b: (b not in written, b.name))


def _free(block: Block) -> set[Var]:
    """The variables of loops outside of a block that it uses."""

    def used(block: Block, bound: frozenset[Var]) -> Iterator[Var]:
        for stmt in block:
            inner = bound | {stmt.var} if isinstance(stmt, For) else bound
            if isinstance(stmt, Call):
                places = [i for r in stmt.regions for i in r.indices]
                axes = {axis(d) for r in stmt.regions for d in range(len(r.indices) + 8)}
                for e in (*places, *stmt.fields):
                    yield from variables(e) - inner - axes
            for b in sub_blocks(stmt):
                yield from used(b, inner)

    return set(used(block, frozenset()))
