"""Rings for whole operators: what consecutive tiles share stays in memory.

An operand of a whole operator cannot go round the end of a ring. So the tiles of a lap lie behind
each other, as many as the memory has room for, and the next lap begins anew: the first tile of a
lap is loaded whole, of the others what is new.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Alloc, loads, walk_statements
from tilewright.plan.unit_plan import nest_with
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


@dataclass(frozen=True)
class _Moving:
    """A buffer whose box moves by `step` along an axis of `extent` elements, in each of the `turns`
    of a loop over tiles."""

    buffer: Buffer
    loop: Loop
    turns: int
    axis: int
    extent: int
    step: int

    def places(self, turns: int) -> int:
        """Along the axis, for so many tiles."""
        return self.extent + (turns - 1) * self.step

    def is_free_in_time(self, turns: int, distance: int) -> bool:
        """Whether no tile is loaded, `distance` steps before its use, where one that is still used
        lies, though laps of so many tiles follow each other in one place."""
        return turns >= distance + -(-self.extent // self.step)

    def bytes(self, turns: int) -> int:
        return _bytes(self.buffer) // self.extent * self.places(turns)


def keep_shared(
    s: Schedule, target: Target, tiles: Sequence[Loop], result: str, distance: int
) -> tuple[list[Loop], list[str]]:
    """Gives buffers that loops over `tiles` fill (`distance` steps before their use) a ring, where
    consecutive tiles share elements, and the memory has room beside the others and the `result`.
    The loops over tiles, of which one may be cut into laps, and the buffers that need no second
    place for the next lap."""
    tiles, once = list(tiles), []
    for moving in list(_moving(s, tiles)):
        if moving.loop not in tiles:  # cut into laps for another buffer
            continue
        turning = {result: min(distance, 1), moving.buffer.name: -1}  # places besides one
        room = _room(s, target, tiles, moving.buffer.memory, turning, distance)
        for turns in (n for n in range(moving.turns, 1, -1) if moving.turns % n == 0):
            outermost = turns == moving.turns and moving.loop == tiles[0]
            single = outermost or moving.is_free_in_time(turns, distance)
            if moving.bytes(turns) * (1 if single else 2) > room:
                continue
            ring = _keep(s, tiles, moving, turns)
            once += [ring.name] if ring is not None and single else []
            break
    return tiles, once


def _moving(s: Schedule, tiles: Sequence[Loop]) -> Iterator[_Moving]:
    """Buffers of which consecutive tiles share elements."""
    for loop in tiles:
        turns = s.for_(loop).extent
        for stmt in s.for_(loop).body:
            if isinstance(stmt, Alloc) and isinstance(turns, int):
                found = (_moves(s, stmt.buffer, loop, turns, d) for d in _axes(stmt.buffer))
                yield from (m for m in found if m is not None and 0 < m.step < m.extent)


def _axes(buffer: Buffer) -> range:
    return range(len(buffer.shape))


def _moves(s: Schedule, buffer: Buffer, loop: Loop, turns: int, axis: int) -> _Moving | None:
    """How a copy's box moves along an axis; None for what is no copy."""
    nest, extent = nest_with(s, buffer), buffer.shape[axis]
    read = list(loads(nest.store.value))
    if nest.update is not None or len(read) != 1 or not isinstance(extent, int):
        return None
    step = s.simplifier.linear(read[0].indices[axis]).get(loop.var, 0)
    return _Moving(buffer, loop, turns, axis, extent, step)


def _keep(s: Schedule, tiles: list[Loop], moving: _Moving, turns: int) -> Buffer | None:
    """The ring, in a loop over the tiles of a lap; None where it is refused."""
    at, loop = tiles.index(moving.loop), moving.loop
    if turns < moving.turns:
        tiles[at : at + 1] = s.split(loop, turns)
        loop = tiles[at + 1]
    return attempt(s.ring_buffer, moving.buffer, loop, moving.places(turns), True)


def _room(
    s: Schedule,
    target: Target,
    tiles: Sequence[Loop],
    memory: str,
    turning: Mapping[str, int],
    distance: int,
) -> float:
    """Bytes that are left of a memory. What loops over tiles fill has one place and those that
    `turning` says, or else one for each step of the prefetch distance."""
    inside = {x.buffer for x in walk_statements(s.for_(tiles[0]).body) if isinstance(x, Alloc)}
    used = 0
    for buffer in s.allocations():
        if buffer.memory == memory:
            more = turning.get(buffer.name, distance) if buffer in inside else 0
            used += _bytes(buffer) * (1 + more)
    size = target.memory(memory).size
    return math.inf if size is None else size - used


def _bytes(buffer: Buffer) -> int:
    return math.prod(n for n in buffer.shape if isinstance(n, int)) * buffer.dtype.bytes
