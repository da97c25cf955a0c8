"""What instructions do to memories by their meaning alone: the interpreter, on whole memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.backends.stream.rows import Rows, operand_extents, stream_of_rows
from tilewright.backends.stream.stream import Site, Stream
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Call, Kernel
from tilewright.ir.samples import BOUND, first_difference
from tilewright.target.target import Target

Memories = dict[str, np.ndarray]  # bytes, by name


def interpret_rows(target: Target, rows: Rows, memories: Memories) -> None:
    """Runs instructions one after another, in place: the operands of each are taken out of memory,
    what it means is interpreted, and they are put back."""
    stream, extents = stream_of_rows(target, rows, {}), operand_extents(target, rows)
    for row, k in enumerate(stream.site.tolist()):
        site = stream.sites[k]
        instruction = site.instruction
        names = (f.name for f in instruction.fields)
        fields = dict(zip(names, rows.fields[row].tolist(), strict=False))
        places = [
            _bytes_of(site, o, extents[row][o]) + stream.addresses[row, o]
            for o in range(len(instruction.operands))
        ]
        pairs = list(zip(instruction.operands, places, strict=True))
        arrays = [memories[o.memory][at].view(o.dtype.numpy)[..., 0] for o, at in pairs]
        interpret(_meaning(instruction), arrays, fields)
        for (o, at), array in zip(pairs, arrays, strict=True):
            memories[o.memory][at] = np.ascontiguousarray(array)[..., None].view(np.uint8)


def _meaning(i: Instruction) -> Kernel:
    """One call of an instruction, on arrays that are its operands."""
    regions = (Region(o, tuple(axis(d) for d in range(len(o.shape)))) for o in i.operands)
    call = Call(i, tuple(regions), tuple(f.symbol for f in i.fields))
    return Kernel(i.name, i.operands, (), (call,))


def _bytes_of(site: Site, o: int, extents: tuple[int, ...]) -> np.ndarray:
    """Where the bytes of an operand are, from its first on [extents of its axes, bytes]."""
    operand = site.instruction.operands[o]
    listed = site.instruction.listed(operand)
    at = np.zeros((), np.int64)
    for d, (count, step) in enumerate(zip(extents, site.steps[o], strict=True)):
        along = np.arange(count) * step
        if d == listed and (offsets := site.offsets[o]) is not None:
            along = offsets
        at = at[..., None] + along
    return at[..., None] + np.arange(operand.dtype.bytes)


def _elements(memory: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)


def random_memories(
    instructions: Sequence[Instruction], rng: np.random.Generator, sizes: Mapping[str, int]
) -> Memories:
    """Memories of any bytes; where instructions have floats (or truth values), of small ones that
    arithmetic is exact on."""
    memories = {name: rng.integers(0, 256, size, np.uint8) for name, size in sizes.items()}
    for o in (o for i in instructions for o in i.operands):
        if not o.dtype.is_integer:
            low, high = (-BOUND, BOUND) if o.dtype.is_float else (0, 1)
            count = sizes[o.memory] // o.dtype.bytes
            values = rng.integers(low, high, count, endpoint=True).astype(o.dtype.numpy)
            data = values.view(np.uint8)
            memories[o.memory][: len(data)] = data
    return memories


def differences(stream: Stream, expected: Mapping[str, np.ndarray], found: Memories) -> str:
    """The first place where memories differ, in words; nothing where they do not. What is in the
    memory of micro-operations is the compiler's."""
    kinds = {s.instruction.micro_ops for s in stream.sites}
    lists = {kind.memory for kind in kinds if kind is not None}
    for name, wanted in expected.items():
        here = {o for s in stream.sites for o in s.instruction.operands if o.memory == name}
        floats = [o.dtype.numpy for o in here if o.dtype.is_float]
        dtype = floats[0] if floats else np.dtype(np.uint8)
        a, b = (_elements(m[: len(wanted)], dtype) for m in (wanted, found[name]))
        place = None if name in lists else first_difference(a, b)
        if place is not None:
            (at,) = place
            return f"{name}[0x{at * dtype.itemsize:x}] is {b[at]} and should be {a[at]}"
    return ""
