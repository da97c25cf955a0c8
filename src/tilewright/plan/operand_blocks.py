"""Operands that come to a unit block by block: nothing copies them to its memory from outside, and
their tiles lie in a memory between the two (weights that go to a scratchpad, and from there to the
register of a matrix unit)."""

from __future__ import annotations

from tilewright.backends.stream.addresses import bytes_of
from tilewright.ir.expr import Buffer, Load
from tilewright.plan.units import copies
from tilewright.target.target import Target


def memory_between(target: Target, access: Load, operand: Load) -> str | None:
    """The memory from which such an operand comes: the first that loads fill; None for others."""
    outside, inside, dtype = access.buffer.memory, operand.buffer.memory, access.buffer.dtype
    if outside == inside or any(True for _ in copies(target, outside, inside, dtype)):
        return None
    if not all(isinstance(n, int) for n in operand.buffer.shape):
        return None
    for memory in target.memories:
        hops = (outside, memory.name), (memory.name, inside)
        if memory.size is not None and all(any(copies(target, *hop, dtype)) for hop in hops):
            return memory.name
    return None


def block_places(target: Target, block: Buffer) -> int:
    """How many blocks of an operand the unit's memory has at a time: two, so that one comes while
    the other is in use, or one where there is no room."""
    room = target.memory(block.memory).size
    return 2 if room is None or room >= 2 * bytes_of(block) else 1
