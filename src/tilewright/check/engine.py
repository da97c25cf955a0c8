"""Devices that claim to be a chip: what runs a stream, with its waits, on memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.micro_ops import place_lists
from tilewright.backends.stream.registers import place_settings
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Synchronised, Waits, no_waits, synchronise
from tilewright.check.reference import Memories
from tilewright.sim.data import DataEngine
from tilewright.targets import cpu

Engine = Callable[[Stream, Waits, Memories], None]  # changes the memories in place


def simulator(stream: Stream, waits: Waits, memories: Memories) -> None:
    """The chip's own simulator: an engine."""
    DataEngine(stream, cpu.host(threads=1)).run(memories)


def whole(stream: Stream) -> Stream:
    """A stream with what the compiler adds to it: lists of micro-operations and what loads them,
    and what sets registers."""
    return place_settings(place_lists(stream))


def run(done: Synchronised, engine: Engine, start: Mapping[str, np.ndarray]) -> Memories:
    """The memories that an engine leaves."""
    memories = constants(done.stream, start)
    engine(done.stream, done.waits, memories)
    return memories


def synchronised(stream: Stream) -> Synchronised:
    """A stream with all that it takes to run; CompileError where nothing orders what must be. In a
    chip with bundles the order is the compiler's, not the stream's."""
    full = whole(stream)
    if stream.target.bundles is None:
        return synchronise(full)
    need = np.full((len(full), 0), -1, np.int32)
    return Synchronised(full, boxes(full), need, no_waits(full))


def constants(stream: Stream, start: Mapping[str, np.ndarray]) -> Memories:
    """Copies of memories with what a stream takes for granted, which may make them larger."""
    memories = {}
    for name, array in start.items():
        more = max(0, stream.sizes.get(name, 0) - len(array))
        memories[name] = np.concatenate([array, np.zeros(more, np.uint8)])
    for buffer, array in stream.constants.items():
        place = stream.places[buffer]
        data = np.ascontiguousarray(array).view(np.uint8)
        memories[place.memory][place.offset : place.offset + len(data)] = data
    return memories


def are_safe(done: Synchronised, waits: Waits) -> bool:
    """Whether these waits order all that must be ordered."""
    return check_waits(done.stream, done.need, waits, done.boxes) is None


def left_out(waits: Waits) -> Iterator[Waits]:
    """The waits without one of them, for each."""
    for name in ("pops", "awaits"):
        masks = getattr(waits, name)
        for row in np.flatnonzero(masks):
            for bit in range(64):
                if int(masks[row]) >> bit & 1:
                    fewer = masks.copy()
                    fewer[row] = int(masks[row]) & ~(1 << bit)
                    yield replace(waits, **{name: fewer})
    for row in np.flatnonzero(waits.barriers):
        fewer = waits.barriers.copy()
        fewer[row] = 0
        yield replace(waits, barriers=fewer)
