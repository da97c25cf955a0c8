"""Barriers: where the workers of an axis wait for each other, as seldom as possible."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilewright.analyze.workers import Gap, Need, Place, axes, barriers, check_workers, needs
from tilewright.base.errors import CompileError
from tilewright.ir.loop import (
    Barrier,
    Block,
    Kernel,
    Stmt,
    map_inner_blocks,
)


def place_barriers(kernel: Kernel) -> Kernel:
    """Puts a barrier wherever one worker of an axis needs what another did before, or may spoil
    what another still needs.

        for k: for t in bind(n, "thread"): fill tile      for k: for t …: fill tile
               for u in bind(n, "thread"): use tile   ->         barrier("thread")
                                                                 for u …: use tile
                                                                 barrier("thread")

    Barriers that are there already count. Each block gets as few as can be, given those of the
    loops inside of it (which run more often, and come first).
    """
    check_workers(kernel)
    for axis in axes(kernel):  # outer axes first: their barriers hold up the inner ones, too
        wanted = needs(kernel, axis)
        placed = barriers(kernel, axis)
        for home in sorted({n.home for n in wanted}, key=len, reverse=True):
            unmet = [n for n in wanted if n.home == home and not n.gaps & placed]
            if unmet:
                placed |= _fewest(unmet, home, placed, wanted)
        new = placed - barriers(kernel, axis)
        if new:
            kernel = kernel.with_(body=_insert(kernel.body, (), new, axis))
    return kernel


def check_barriers(kernel: Kernel) -> None:
    """CompileError where workers of an axis may meet at an element, one of them writing it."""
    check_workers(kernel)
    for axis in axes(kernel):
        placed = barriers(kernel, axis)
        for need in needs(kernel, axis):
            if not need.gaps & placed:
                what = f"workers of {axis} do not wait for each other: {need.conflict}"
                raise CompileError(what, program=kernel, hint="place_barriers puts barriers there")


def _fewest(
    unmet: Sequence[Need], home: Place, placed: set[Gap], wanted: Sequence[Need]
) -> set[Gap]:
    """As few gaps of one block as meet all needs: each can be met anywhere between two of its
    statements, in a loop perhaps around its end. Of several ways, the one that meets most needs of
    the blocks around, and then the last."""
    spans = [{gap for place, gap in n.gaps if place == home} for n in unmet]
    ways = [_from(start, spans) for start in sorted(set().union(*spans))]

    def rank(way: set[int]) -> tuple[int, int, list[int]]:
        after = placed | {(home, gap) for gap in way}
        return len(way), sum(not n.gaps & after for n in wanted), sorted(-gap for gap in way)

    return {(home, gap) for gap in min(ways, key=rank)}


def _from(start: int, spans: Sequence[set[int]]) -> set[int]:
    """The fewest gaps with `start` among them: cut there, the circle of gaps is a line, on which it
    is best to go as far as the nearest end of a span."""
    last = max(max(span) for span in spans)

    def along(gap: int) -> int:
        return (gap - start) % (last + 1)

    way = {start}
    for end, span in sorted((max(map(along, s)), i) for i, s in enumerate(spans)):
        if not way & spans[span]:
            way.add((start + end) % (last + 1))
    return way


def _insert(block: Block, place: Place, gaps: set[Gap], axis: str) -> Block:
    out: list[Stmt] = []
    position = 0
    for s in block:
        if not isinstance(s, Barrier):
            if (place, position) in gaps:
                out.append(Barrier(axis))
            s = _insert_inside(s, (*place, position), gaps, axis)
            position += 1
        out.append(s)
    return (*out, Barrier(axis)) if (place, position) in gaps else tuple(out)


def _insert_inside(s: Stmt, place: Place, gaps: set[Gap], axis: str) -> Stmt:
    branches = itertools.count()
    return map_inner_blocks(s, lambda b: _insert(b, (*place, next(branches)), gaps, axis))
