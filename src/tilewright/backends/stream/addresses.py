"""Where buffers lie in a chip's memories.

In a memory of several banks, of which each serves one queue at a time, what is filled and what is
used should be in different ones: the turns of a ring lie in one bank each, and what is filled once
lies behind them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.backends.stream.lifetimes import lifetimes, packed
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.expr import Buffer, Expr, Var, const
from tilewright.ir.instruction import Region
from tilewright.ir.loop import Alloc, Call, For, Kernel, walk_statements
from tilewright.ir.substitute import variables
from tilewright.target.target import Memory, Target

ALIGN = 64  # bytes, of every buffer in a memory; more where addresses are encoded in such units


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: bytes from the start of a memory; `apart` is how many bytes are left
    free between its elements along the first axis."""

    memory: str
    offset: int
    apart: int = 0

    def end(self, buffer: Buffer) -> int:
        """The byte behind the buffer's last."""
        gaps = self.apart * (int(buffer.shape[0]) - 1) if self.apart else 0
        return self.offset + bytes_of(buffer) + gaps


def place_buffers(kernel: Kernel, target: Target) -> tuple[dict[Buffer, Place], dict[str, int]]:
    """Every buffer gets a place of its own in its memory; the bytes used of each."""
    places: dict[Buffer, Place] = {}
    used: dict[str, int] = {}
    by_memory: dict[str, list[Buffer]] = {}
    for buffer in (*kernel.params, *_allocated(kernel)):
        by_memory.setdefault(buffer.memory, []).append(buffer)
    turning = set(_rings(kernel))
    for name, buffers in by_memory.items():
        memory = target.memory(name)
        align = math.lcm(ALIGN, target.alignment(name))
        found = _in_banks(buffers, turning, memory, align) if memory.banks > 1 else None
        found = found or _in_a_row(buffers, name, align)
        if memory.size is not None and _end(found) > memory.size:
            found = _in_turn(kernel, found, memory, align)
        if memory.size is not None and _end(found) > memory.size and memory.banks == 1:
            found = _while_needed(kernel, found, name, align)
        places |= found
        used[name] = _end(found)
    return places, used


def _end(places: Mapping[Buffer, Place]) -> int:
    return max(place.end(buffer) for buffer, place in places.items())


def _in_a_row(
    buffers: Iterable[Buffer], memory: str, align: int, end: int = 0
) -> dict[Buffer, Place]:
    places = {}
    for buffer in buffers:
        places[buffer] = Place(memory, _aligned(end, align))
        end = places[buffer].end(buffer)
    return places


def _in_turn(
    kernel: Kernel, buffers: Collection[Buffer], memory: Memory, align: int
) -> dict[Buffer, Place]:
    """What is allocated in different statements of a kernel shares the memory behind what is
    allocated for all: of every second statement it lies there, of the others at the memory's end.
    Waits are for bytes, so that operands of a statement may come while the one before works."""
    assert memory.size is not None
    every = [
        [x.buffer for x in walk_statements((stmt,)) if isinstance(x, Alloc)] for stmt in kernel.body
    ]
    within = [bs for stmt, bs in zip(kernel.body, every, strict=True) if isinstance(stmt, For)]
    inside = {b for bs in within for b in bs}
    places = _in_a_row((b for b in buffers if b not in inside), memory.name, align)
    start = _end(places) if places else 0
    rows = (
        _in_a_row((b for b in several if b in buffers), memory.name, align, start)
        for several in within
    )
    for k, row in enumerate(row for row in rows if row):
        left = (memory.size - _end(row)) // align * align if k % 2 else 0
        for buffer, place in row.items():
            places[buffer] = replace(place, offset=place.offset + max(0, left))
    return places


def _while_needed(
    kernel: Kernel, buffers: Collection[Buffer], memory: str, align: int
) -> dict[Buffer, Place]:
    """What never holds something at the same time lies in the same place."""
    sizes = {b: bytes_of(b) for b in buffers}
    starts = packed(list(buffers), sizes, lifetimes(kernel), align)
    return {b: Place(memory, at) for b, at in starts.items()}


def _in_banks(
    buffers: list[Buffer], turning: set[Buffer], memory: Memory, align: int
) -> dict[Buffer, Place] | None:
    """The turns of rings in one bank each, the others in the emptiest; None if they do not fit
    in that way."""
    assert memory.size is not None
    bank = memory.size // memory.banks
    ends = [0] * memory.banks
    places: dict[Buffer, Place] = {}
    for buffer in sorted(buffers, key=lambda b: b not in turning):
        turns = int(buffer.shape[0]) if buffer in turning else 1
        size = bytes_of(buffer) // turns
        if turns > memory.banks or (turns == 1 and size > bank):
            return None
        chosen = range(turns) if turns > 1 else [ends.index(min(ends))]
        at = max(_aligned(ends[k], align) for k in chosen)
        if at + size > bank:
            return None
        for k in chosen:
            ends[k] = at + size
        places[buffer] = Place(memory.name, chosen[0] * bank + at, bank - size if turns > 1 else 0)
    return places


def _aligned(end: int, align: int) -> int:
    return -(-end // align) * align


def _rings(kernel: Kernel) -> Iterator[Buffer]:
    """Buffers whose first axis turns with the kernel's own loops, and with nothing inside of them:
    places that are filled and used in turn."""
    outer = {s.var for s in kernel.body if isinstance(s, For)}
    regions: dict[Buffer, list[Expr]] = {}
    for stmt in walk_statements(kernel.body):
        for region in stmt.regions if isinstance(stmt, Call) else ():
            regions.setdefault(region.buffer, []).append(_first(region))
    for buffer, firsts in regions.items():
        moved: set[Var] = set().union(*map(variables, firsts))
        if moved and moved <= outer:
            yield buffer


def _first(region: Region) -> Expr:
    return region.indices[0] if region.indices else const(0)


def _allocated(kernel: Kernel) -> list[Buffer]:
    return [s.buffer for s in walk_statements(kernel.body) if isinstance(s, Alloc)]


def check_sizes(kernel: Kernel, target: Target, used: Mapping[str, int]) -> None:
    """TargetError if a memory is too small."""
    for name, size in used.items():
        limit = target.memory(name).size
        if limit is not None and size > limit:
            found = (b for b in _allocated(kernel) if b.memory == name)
            held = ", ".join(f"{b} ({bytes_of(b)})" for b in found)
            raise TargetError(
                f"{kernel.name} needs {size} bytes of {name}, and {target.name} has {limit}",
                hint=f"it holds {held}: make tiles smaller",
            )


def check_capacity(kernels: Sequence[Kernel], target: Target) -> None:
    """TargetError if the arrays that kernels are given, each once, and make, are more than there
    is of the memory outside, whatever forms they lie there in."""
    arrays = {b.name: b for k in kernels for b in k.params}
    outside = [m for m in target.memories if m.size is None]
    size = sum(map(bytes_of, arrays.values()))
    for m in outside if len(outside) == 1 else ():
        _check_room(", ".join(dict.fromkeys(k.name for k in kernels)), m, target, size)


def check_used(name: str, target: Target, used: Mapping[str, int]) -> None:
    """TargetError if a kernel takes more of a memory outside than there is."""
    for memory, size in used.items():
        _check_room(name, target.memory(memory), target, size)


def _check_room(name: str, memory: Memory, target: Target, size: int) -> None:
    if memory.capacity is not None and size > memory.capacity:
        raise TargetError(
            f"{name} needs {size:,} bytes of {memory.name} at a time, and {target.name} has"
            f" {memory.capacity:,}",
            hint="cut the operator in two, leave it to the host, or describe a chip with more",
        )


def bytes_of(buffer: Buffer) -> int:
    """What a buffer of known shape takes."""
    size = buffer.dtype.bytes
    for n in buffer.shape:
        if not isinstance(n, int):
            raise CompileError(f"{buffer} has no constant size", hint="bind its dimensions")
        size *= n
    return size
