"""A timed run of a stream as what is kept of it with the compiled model."""

from __future__ import annotations

import math

import numpy as np

from tilewright.backends.stream.boxes import queue_numbers
from tilewright.ir.instruction import Instruction
from tilewright.plan.rates import most_a_cycle, most_for
from tilewright.plan.units import units
from tilewright.runtime.device_run import GROUPS, DeviceRun, MemoryUse, RunFacts, group
from tilewright.sim.timeline import Timeline
from tilewright.target.target import Target


def device_run(timeline: Timeline, chip: Target, expected: float | None) -> DeviceRun:
    """The groups of instructions and the facts of a run on a chip; `expected` are the model's
    cycles. Of several cores, these are the groups of the one that is done last. (The stream's own
    target is another where bundles are instructions of it.)"""
    stream = timeline.stream
    target, n = stream.target, len(stream)
    names = tuple(dict.fromkeys(site.instruction.name for site in stream.sites))
    number = np.array([names.index(s.instruction.name) for s in stream.sites], np.int64)
    instruction = number[np.asarray(stream.site, np.int64)] if n else np.zeros(0, np.int64)
    rows = np.stack(
        [
            np.asarray(queue_numbers(stream), np.int64),
            instruction,
            np.ones(n, np.int64),
            timeline.begin,
            timeline.leave,
            timeline.work,
        ]
    )
    far = target.memories[0]
    used = [MemoryUse(m.name, m.size, stream.sizes.get(m.name, 0)) for m in target.memories]
    facts = RunFacts(
        cycles=timeline.cycles,
        clock=round(target.clock),
        expected=None if expected is None else round(expected),
        moved=timeline.bytes_moved,
        operations_per_second=peak(chip),
        bytes_per_second=None if far.bandwidth is None else round(far.bandwidth * target.clock),
        queues=tuple(q.name for q in target.queues),
        instructions=names,
        memories=tuple(used),
    )
    return DeviceRun(facts, group(rows, timeline.cycles, GROUPS))


def peak(target: Target) -> int | None:
    """Operations a second of what multiplies and adds, at best, on all cores; a multiply-add is
    two."""
    rates = [_most(u.instruction, target) for u in units(target)]
    best = max((r for r in rates if math.isfinite(r)), default=0.0)
    return round(2 * best * target.clock * target.cores) or None


def _most(instruction: Instruction, target: Target) -> float:
    """Iterations of an instruction's loops in a cycle: bundles have so many of it each cycle."""
    if target.bundles is None:
        return most_a_cycle(instruction)
    return most_for(instruction, 1) * target.bundles.count(instruction.queue)
