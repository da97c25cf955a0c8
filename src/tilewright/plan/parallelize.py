"""Sharing a nest's outer loops among the cores."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.loop import Block, For, sub_blocks
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

WORK = 1 << 14  # fewer statement instances than this are not worth waking anyone for


def parallelize(s: Schedule, loops: Sequence[Loop], target: Target) -> None:
    """Fuses as many of a nest's outer loops as give every core its pieces, and shares them."""
    if target.cores == 1 or not loops or _work(s.for_(loops[0])) < WORK:
        return
    outer, *rest = loops
    while rest and not _enough(s.for_(outer).extent, target):
        inner = rest.pop(0)
        body = s.for_(outer).body
        if len(body) != 1 or body[0] is not s.for_(inner):
            break
        outer = s.fuse(outer, inner)
    attempt(s.parallel, outer)


def _enough(extent: object, target: Target) -> bool:
    return not isinstance(extent, int) or extent >= target.tasks


def _work(loop: For) -> int:
    """Iterations of the longest path through a nest; symbolic extents count as many."""
    total = loop.extent if isinstance(loop.extent, int) else 1 << 10
    return total * max((_work(x) for x in inner_loops(loop.body)), default=1)


def inner_loops(block: Block) -> list[For]:
    """The outermost loops of a block, those in conditionals included."""
    found: list[For] = []
    for stmt in block:
        if isinstance(stmt, For):
            found.append(stmt)
        else:
            for inner in sub_blocks(stmt):
                found += inner_loops(inner)
    return found
