"""Devices that claim to be a chip: what runs a stream, with its waits, on memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tilewright.check.reference import Memories
from tilewright.codegen.stream import Stream
from tilewright.sim.data import DataEngine
from tilewright.sim.engine import Waits, check_waits, dependences, place_waits
from tilewright.target.target import Target
from tilewright.targets import cpu

Engine = Callable[[Stream, Waits, Memories], None]  # changes the memories in place


def simulator(stream: Stream, waits: Waits, memories: Memories) -> None:
    """The chip's own simulator: an engine."""
    DataEngine(stream, cpu.host(threads=1)).run(memories)


def run(stream: Stream, engine: Engine, start: Mapping[str, np.ndarray]) -> Memories:
    """The memories that an engine leaves."""
    memories = constants(stream, {name: a.copy() for name, a in start.items()})
    engine(stream, waits_of(stream), memories)
    return memories


def constants(stream: Stream, memories: Memories) -> Memories:
    """The memories with what a stream takes for granted in them, which may make them larger."""
    for name, size in stream.sizes.items():
        more = np.zeros(max(0, size - len(memories[name])), np.uint8)
        memories[name] = np.concatenate([memories[name], more])
    for buffer, array in stream.constants.items():
        place = stream.places[buffer]
        data = np.ascontiguousarray(array).view(np.uint8)
        memories[place.memory][place.offset : place.offset + len(data)] = data
    return memories


def waits_of(stream: Stream) -> Waits:
    """The waits that the compiler derives; CompileError where the target has none for a need."""
    return place_waits(stream, dependences(stream))


def are_safe(stream: Stream, waits: Waits) -> bool:
    """Whether these waits order all that must be ordered."""
    return check_waits(stream, dependences(stream), waits) is None


def left_out(target: Target, waits: Waits) -> Iterator[Waits]:
    """The waits without one of them, for each."""
    for row in np.flatnonzero(waits.pops):
        for q in range(len(target.queues)):
            if waits.pops[row] >> q & 1:
                pops = waits.pops.copy()
                pops[row] &= ~np.uint32(1 << q)
                yield Waits(pops, waits.pushes)
