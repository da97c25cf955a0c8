"""Which loops may stand in which, by their kinds: workers are shared out once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.loop import Block, Bound, For, LoopKind, Pieces, sub_blocks

Kind = LoopKind | Bound | Pieces
Order = set[tuple[str, str]]  # axes: a loop bound to the first stands in one bound to the second


@dataclass(frozen=True)
class Misplaced:
    """What is wrong with the place of a loop, and what helps."""

    what: str
    hint: str | None = None


def bound_axes(around: Sequence[Kind]) -> list[str]:
    """The axes among the kinds of the loops around."""
    return [kind.axis for kind in around if isinstance(kind, Bound)]


def all_misplaced(block: Block) -> Iterator[Misplaced]:
    """What is wrong with the places of loops, in program order."""
    order: Order = set()

    def visit(block: Block, around: tuple[Kind, ...]) -> Iterator[Misplaced]:
        for s in block:
            if isinstance(s, For):
                found = misplaced(s, around, order)
                if found is not None:
                    yield found
            inside = (*around, s.kind) if isinstance(s, For) else around
            for inner in sub_blocks(s):
                yield from visit(inner, inside)

    return visit(block, ())


def misplaced(loop: For, around: Sequence[Kind], order: Order) -> Misplaced | None:
    """Why a loop may not stand in loops of these kinds, if so. The order of axes so far comes to
    know the loop's."""
    if loop.kind is LoopKind.PARALLEL:
        return _misplaced_parallel(loop.var.name, around)
    if loop.axis is not None:
        return _misplaced_bound(loop.var.name, loop.axis, around, order)
    return None


def _misplaced_parallel(name: str, around: Sequence[Kind]) -> Misplaced | None:
    if LoopKind.PARALLEL in around:
        hint = "workers are shared out once; fuse the loops"
        return Misplaced(f"parallel loop {name} stands in another one", hint)
    if bound_axes(around):
        hint = "a worker has no workers but those of an axis: bind the loop to one"
        return Misplaced(f"parallel loop {name} stands in a bound loop", hint)
    return None


def _misplaced_bound(
    name: str, axis: str, around: Sequence[Kind], order: Order
) -> Misplaced | None:
    where = f"loop {name}, bound to {axis},"
    if axis == "":
        return Misplaced(f"loop {name} is bound to an axis without a name")
    if axis in bound_axes(around):
        return Misplaced(f"{where} stands in another one", "fuse the loops")
    if LoopKind.VECTORIZE in around:
        return Misplaced(f"{where} stands in a vector loop")
    for outer in bound_axes(around):
        if (outer, axis) in order:
            what = f"stands in one bound to {outer}, and elsewhere {outer} in {axis}"
            return Misplaced(f"{where} {what}", "the axes of a kernel are nested in one order")
        order.add((axis, outer))
    return None
