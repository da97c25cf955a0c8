"""Operands and memories: what is where, whether it fits, and whether data gets there and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.analyze.bounds import faults
from tilewright.backends.stream.micro_ops import list_loader
from tilewright.backends.stream.rows import Rows, operand_extents
from tilewright.base.errors import TargetError, did_you_mean
from tilewright.check.problem import (
    Problems,
    error,
    memories_read,
    memories_written,
    operands_read,
    operands_written,
    warning,
)
from tilewright.ir.expr import DRAM, Binary, BinaryOp, Expr
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, Block, If, Kernel, loads, walk_statements
from tilewright.target.target import Target


def operands(target: Target) -> Problems:
    """Operands lie in memories that there are, and have a part in the meaning."""
    known = [m.name for m in target.memories]
    for i in target.instructions:
        part = f"instruction {i.name}"
        for o in i.operands:
            name = f"operand {o.name} of {i.name}"
            if o.memory not in known:
                where = f"lies in {o.memory!r}" if o.memory else "names no memory"
                yield error(
                    target, part, f"{name} {where}",
                    "the compiler must know where to put it",
                    did_you_mean(o.memory, known) if o.memory
                    else f'say where: {o.dtype}[…] @ "…"; memories: {", ".join(known)}',
                )  # fmt: skip
            if o not in operands_read(i) and o not in operands_written(i):
                yield error(
                    target, part, f"{name} is not in its meaning",
                    "nothing is read from it or written to it",
                    "use it, or take it out of the parameters",
                )  # fmt: skip


def subscripts(target: Target) -> Problems:
    """An instruction stays in its operands, whatever its fields are."""
    for i in target.instructions:
        body: Block = i.body
        for condition in i.limits:
            body = (If(condition, body),)
        for fault in faults(Kernel(i.name, i.operands, (), body)):
            yield error(
                target, f"instruction {i.name}", f"{i.name}: {fault}",
                "an operand's shape is the largest that its fields can make of it",
                "enlarge the operand, or limit the field",
            )  # fmt: skip


def micro_operations(target: Target) -> Problems:
    """Lists of micro-operations can be loaded."""
    kinds = {i.micro_ops.with_(axes=()): i for i in target.instructions if i.micro_ops is not None}
    for kind, instruction in kinds.items():
        try:
            target.memory(kind.memory)
            list_loader(target, kind)
        except TargetError as refused:
            yield error(
                target, f"instruction {instruction.name}", refused.what,
                f"{instruction.name} takes its steps from there", refused.hint or "describe it",
            )  # fmt: skip


def sizes(target: Target) -> Problems:
    """The smallest operands that an instruction has fit into their memories."""
    limits = {m.name: m.size for m in target.memories if m.size is not None and not m.cached}
    for k, i in enumerate(target.instructions):
        least = least_bytes(target, k)
        for memory in dict.fromkeys(o.memory for o in i.operands if o.memory in limits):
            here = [c for c, o in enumerate(i.operands) if o.memory == memory]
            need, limit = sum(least[c] for c in here), limits[memory]
            which = " and ".join(i.operands[c].name for c in here)
            if need > limit:
                many = len(here) > 1
                yield error(
                    target, f"instruction {i.name}",
                    f"operand{'s' * many} {which} of {i.name} take{'s' * (not many)} {need} bytes "
                    f"of {memory} at least",
                    f"{memory} has {limit}: the instruction can never run",
                    f"enlarge {memory}, or make the operand{'s' * many} smaller",
                )  # fmt: skip


def least_bytes(target: Target, k: int) -> list[int]:
    """The bytes of each operand of the k-th instruction, with all fields at their lowest."""
    instruction = target.instructions[k]
    rows = Rows.empty(target, np.array([k]))
    rows.fields[0, : len(instruction.fields)] = [f.low for f in instruction.fields]
    (extents,) = operand_extents(target, rows)
    pairs = zip(extents, instruction.operands, strict=True)
    return [math.prod(shape) * o.dtype.bytes for shape, o in pairs]


# ---------------------------------------------------------------- there and back


def flow(target: Target) -> Problems:
    """Data comes from the host's memory to every operand, and results get back there."""
    fed, useful = fed_memories(target), useful_memories(target)
    for m in target.memories:
        written = [i.name for i in target.instructions if m.name in memories_written(i)]
        read = [i.name for i in target.instructions if m.name in memories_read(i)]
        part = f"memory {m.name}"
        if m.name == DRAM:
            continue
        if not written and not read:
            yield warning(
                target, part, f"no instruction uses memory {m.name}",
                "nothing can be put there", "take it away, or describe what uses it",
            )  # fmt: skip
        elif not written:
            yield error(
                target, part, f"no instruction writes to memory {m.name}",
                f"{_and(read)} would read what was never put there",
                f'describe one that does: an operand out(…[…] @ "{m.name}")',
            )  # fmt: skip
        elif not read:
            yield error(
                target, part, f"no instruction reads memory {m.name}",
                f"what {_and(written)} puts there is of no use to anybody",
                f'describe one that does: an operand …[…] @ "{m.name}"',
            )  # fmt: skip
        elif m.name not in fed:
            yield error(
                target, part, f"nothing brings data from {DRAM} to memory {m.name}",
                f"{_and(written)} writes there, from memories that get no data themselves",
                f"describe an instruction that copies from {DRAM}, or from where data gets",
            )  # fmt: skip
        elif m.name not in useful:
            yield error(
                target, part, f"nothing brings data from memory {m.name} back to {DRAM}",
                f"{_and(read)} reads it, for memories that the host does not see either",
                f"describe an instruction that copies to {DRAM}, or to where data gets out",
            )  # fmt: skip


def fed_memories(target: Target) -> set[str]:
    """Where data of the host gets: an instruction writes it that has data for all it reads."""
    fed = {DRAM}
    while True:
        new = set()
        for i in target.instructions:
            written = operands_written(i)
            sources = {o.memory for o in operands_read(i) if o not in written}
            if sources and sources <= fed:
                new |= memories_written(i) - fed
        if not new:
            return fed
        fed |= new


def useful_memories(target: Target) -> set[str]:
    """From where data gets to the host."""
    useful = {DRAM}
    while True:
        new = set()
        for i in target.instructions:
            if memories_written(i) & useful:
                new |= memories_read(i) - useful
        if not new:
            return useful
        useful |= new


def contraction(target: Target) -> Problems:
    """Something multiplies and adds."""
    if not any(_multiplies(i) for i in target.instructions):
        yield warning(
            target, "target", "no instruction multiplies and adds",
            "convolutions and matrix products are what a chip is for: they stay on the host",
            "describe one: c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])",
        )  # fmt: skip


def _multiplies(i: Instruction) -> bool:
    """Whether it adds up products of what it reads."""
    sums = (s.value for s in walk_statements(i.body) if isinstance(s, Accumulate))
    products = (x for value in sums for x in value.walk() if isinstance(x, Binary))
    return any(x.op is BinaryOp.MUL and all(map(_reads, (x.a, x.b))) for x in products)


def _reads(e: Expr) -> bool:
    return any(True for _ in loads(e))


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others"
