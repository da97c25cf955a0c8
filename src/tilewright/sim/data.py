"""The functional simulator: a stream's effect on memory, in program order or any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.backends.stream.cores import core_stream
from tilewright.backends.stream.stream import Site, Stream
from tilewright.ir.expr import Buffer
from tilewright.runtime import stream_functions as native
from tilewright.runtime.simulator import FILL
from tilewright.sim.black_box import BlackBoxCode, check_shapes
from tilewright.sim.meaning import site_code
from tilewright.target.target import Target


class DataEngine:
    """A stream's machine code on the host; `run` applies it to memories."""

    def __init__(self, stream: Stream, host: Target) -> None:
        self.stream = stream
        check_shapes(stream)
        self.codes = [
            site_code(i, host) if i.black_box is None else BlackBoxCode(i, i.black_box)
            for i in (s.instruction for s in stream.sites)
        ]
        self.functions = np.array([c.address for c in self.codes], np.int64)
        names = {m.name: k for k, m in enumerate(stream.target.memories)}
        self.memory = np.zeros((len(stream.sites), stream.addresses.shape[1]), np.int64)
        for k, site in enumerate(stream.sites):
            self.memory[k, : len(site.memories)] = [names[m] for m in site.memories]
        self._take_lists()
        self.site = np.ascontiguousarray(stream.site, np.int32)
        self.fields = np.ascontiguousarray(stream.fields, np.int64)

    def _take_lists(self) -> None:
        """Lists of micro-operations, in elements, and where they are."""
        self.lists = np.zeros_like(self.memory)
        self.kept: list[np.ndarray] = []
        for k, site in enumerate(self.stream.sites):
            for o, entries in enumerate(lists_of(site)):
                if entries is not None:
                    self.kept.append(entries)
                    self.lists[k, o] = entries.ctypes.data

    def run(
        self, memories: Mapping[str, np.ndarray], order: np.ndarray | None = None, core: int = 0
    ) -> None:
        """Runs all instructions of a core on these memories (bytes, by name), in place: in program
        order, or in the given one. Nothing is checked: see check_memory."""
        names = [m.name for m in self.stream.target.memories]
        bases = np.array([memories[n].ctypes.data if n in memories else 0 for n in names], np.int64)
        addresses = np.ascontiguousarray(core_stream(self.stream, core).addresses, np.int64)
        code = native.Code(
            self.fields.shape[1], addresses.shape[1], self.site, self.fields, addresses,
            self.memory, self.functions, self.lists,
        )  # fmt: skip
        count = len(self.stream) if order is None else len(order)
        native.run(code, count, order, bases)
        for done in self.codes:
            if isinstance(done, BlackBoxCode):
                done.raise_error()


def lists_of(site: Site) -> list[np.ndarray | None]:
    """For each operand, how many elements from its first the entries of its list are."""
    pairs = zip(site.offsets, site.instruction.operands, strict=False)
    return [
        None if moves is None else np.ascontiguousarray(moves // b.dtype.bytes, np.int64)
        for moves, b in pairs
    ]


def put_inputs(
    stream: Stream, inputs: Mapping[Buffer, np.ndarray], fill: int = FILL
) -> dict[str, np.ndarray]:
    """The chip's memories with these arrays where their buffers lie; `fill` in all other bytes."""
    memories = {name: fresh_memory(size, fill) for name, size in stream.sizes.items()}
    for buffer, array in {**stream.constants, **inputs}.items():
        place = stream.places[buffer]
        data = np.ascontiguousarray(array, buffer.dtype.numpy).reshape(-1).view(np.uint8)
        memories[place.memory][place.offset : place.offset + data.size] = data
    return memories


def fresh_memory(size: int, fill: int = FILL) -> np.ndarray:
    """Bytes as they are before anything is written."""
    return np.full(size, fill, np.uint8)


def get_outputs(
    stream: Stream, memories: Mapping[str, np.ndarray], outputs: Sequence[Buffer]
) -> list[np.ndarray]:
    """What lies at these buffers' places."""
    found = []
    for buffer in outputs:
        place = stream.places[buffer]
        shape = tuple(int(n) for n in buffer.shape if isinstance(n, int))
        size = int(np.prod(shape)) * buffer.dtype.bytes
        data = memories[place.memory][place.offset : place.offset + size]
        found.append(data.view(buffer.dtype.numpy).reshape(shape))
    return found


def run_stream(
    stream: Stream, host: Target, inputs: Mapping[Buffer, np.ndarray], outputs: Sequence[Buffer]
) -> list[np.ndarray]:
    """The outputs of a stream for these inputs, in program order, one core after the other. Memory
    starts with a pattern nobody expects."""
    memories = put_inputs(stream, inputs)
    engine = DataEngine(stream, host)
    for core in range(stream.cores):
        for memory in (m for m in stream.target.memories if m.shared_by == 1):
            if core and memory.name in memories:
                memories[memory.name][:] = FILL
        engine.run(memories, core=core)
    return get_outputs(stream, memories, outputs)
