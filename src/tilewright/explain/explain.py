"""Explains a stream: where its cycles go, what keeps better tiles out, what would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.waits import Waits
from tilewright.explain.explanation import Explanation, Spent
from tilewright.explain.times import longest_chain, memory_times, queue_times
from tilewright.explain.what_if import WhatIf, ask, changes, retimed
from tilewright.sim.timeline import Timeline
from tilewright.target.target import Target

BINDS = 1e-3  # of the time: what saves less keeps nothing out
HELPS = 0.01

Expect = Callable[[Target], float | None]


def explain(
    kernel: str,
    target: Target,
    timeline: Timeline,
    waits: Waits,
    tile: Mapping[str, int],
    bound: Mapping[str, int] | None,
    cycles: int | None,
    expect: Expect | None,
) -> Explanation:
    """Of a kernel's run on a chip with these tiles; `bound` by its parts, and in all `cycles`;
    `expect` is the model of the best tiles, None for tiles that are given."""
    queues, memories = queue_times(timeline), memory_times(timeline)
    chain = {} if target.bundles is not None else longest_chain(timeline)
    now, binding, helps = _what_ifs(target, timeline, waits, expect)
    name, share = _bottleneck(timeline, target, bound)
    return Explanation(
        kernel, target.name, timeline.cycles, timeline.seconds, dict(tile), cycles,
        dict(bound or {}), now if expect is not None else None, name, share, queues, memories,
        tuple(Spent(queue, what, n) for (queue, what), n in chain.items()), binding, helps,
        "model" if expect is not None else "simulator", timeline.stream.cores,
    )  # fmt: skip


def _bottleneck(
    timeline: Timeline, target: Target, bound: Mapping[str, int] | None
) -> tuple[str, float]:
    """What is busy longest, and its share of the time."""
    if target.bundles is not None and bound:
        used = dict(bound)
    else:
        used = {f"memory {name}": n for name, n in memory_times(timeline).items()}
        used |= {f"queue {q.name}": q.busy for q in queue_times(timeline)}
    name = max(used, key=lambda k: used[k])
    return name, used[name] / max(timeline.cycles, 1)


def _what_ifs(
    target: Target, timeline: Timeline, waits: Waits, expect: Expect | None
) -> tuple[int, WhatIf | None, tuple[WhatIf, ...]]:
    """What is expected as it is; what binds; what helps."""
    found = changes(target, timeline.stream)
    if expect is None:
        if target.bundles is not None:  # their operations would be placed anew
            return timeline.cycles, None, ()
        boxed = boxes(timeline.stream)
        expect = partial(retimed, timeline.stream, waits, boxed)
        found = [c for c in found if not c.limits]
    now = expect(target)
    assert now is not None
    asked = ask(found, now, expect)
    binding = next((w for c, w in asked if c.limits and w.gain >= BINDS), None)
    helps = tuple(w for _, w in asked if w.gain >= HELPS)
    return round(now), binding, helps
