"""Instructions in the order in which their units begin them.

A chip is issued the instructions of all queues in one order, and one whose queue has no room holds
up those behind it, of other queues as well. In the order in which instructions would begin if
queues had room for all, an instruction is issued about when its unit is free for it. Each queue
keeps its own order, and so does whatever depends on each other, since it does not begin in the same
cycle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Synchronised, synchronise
from tilewright.sim.events import simulate
from tilewright.sim.timeline import Timeline

WORTH_A_TRY = 0.01  # of all cycles, that the busiest queue waits for instructions to be issued
GAIN = 0.002  # of the cycles, at least


def issue_in_time(stream: Stream) -> tuple[Synchronised, Timeline]:
    """The stream with its waits, and its run; in another order where queues that are full keep the
    busiest one from its next instruction, and that order is faster."""
    done = synchronise(stream)
    timeline = simulate(done.stream, done.waits, found=done.boxes)
    stalls = timeline.stalls[timeline.bottleneck]["issue"] if len(stream) else 0
    kept = np.array_equal(done.stream.site[: len(stream)], stream.site)  # nothing was put between
    if stalls < WORTH_A_TRY * timeline.cycles or not kept:
        return done, timeline
    order = np.argsort(_begins(done)[: len(stream)], kind="stable")
    again = synchronise(stream.reordered(order))
    faster = simulate(again.stream, again.waits, found=again.boxes)
    if faster.cycles > (1 - GAIN) * timeline.cycles:
        return done, timeline
    return again, faster


def _begins(done: Synchronised) -> np.ndarray:
    """When the instructions would begin if each queue had room for all of its own."""
    target, most = done.stream.target, len(done.stream)
    queues = tuple(replace(q, depth=max(most, q.depth)) for q in target.queues)
    deep = replace(done.stream, target=replace(target, queues=queues))
    return simulate(deep, done.waits, found=done.boxes).begin
