"""One core of a chip that has several, as a chip of its own."""

from __future__ import annotations

from dataclasses import replace

from tilewright.target.target import Memory, Target


def one_core(target: Target, working: int = 1) -> Target:
    """A core as it sees the chip while `working` cores do the same: it has its part of what is
    shared, of a memory's bandwidth among those that work, of its bytes among all."""
    if target.cores == 1:
        return target
    memories = tuple(_seen(m, target.cores, working) for m in target.memories)
    return replace(target, cores=1, memories=memories)


def _seen(memory: Memory, cores: int, working: int) -> Memory:
    if memory.shared_by == 1:
        return memory
    rate, size = memory.bandwidth, memory.size
    return replace(
        memory,
        shared_by=1,
        bandwidth=None if rate is None else rate / working,
        size=None if size is None else size // cores,
    )


def all_cores(target: Target) -> Target:
    """All cores as one of a chip, of which each moves bytes through memories of its own: what that
    one computes in so many cycles, all compute in a part of them."""
    if target.cores == 1:
        return target
    own = [m for m in target.memories if m.shared_by == 1 and m.bandwidth is not None]
    wider = {m: replace(m, bandwidth=(m.bandwidth or 0) * target.cores) for m in own}
    found = one_core(target)
    return replace(found, memories=tuple(wider.get(m, m) for m in found.memories))
