"""Kernels of a chip as what its simulator runs (runtime/simulator.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.backends.stream.stream import Stream
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Instruction
from tilewright.runtime.device_run import SUFFIX, DeviceRun
from tilewright.runtime.program import DevicePart
from tilewright.runtime.simulator import Tables
from tilewright.sim.data import lists_of
from tilewright.sim.meaning import site_object
from tilewright.target.target import Target

KIND = "simulator"


def simulator_part(
    device: str,
    kernels: Mapping[str, tuple[Stream, tuple[Buffer, ...]]],
    host: Target,
    runs: Mapping[str, DeviceRun],
) -> DevicePart:
    """What a simulated chip is given: streams by their kernels' names, with the parameters in the
    order of arrays; instructions become machine code of `host`. What `runs` says of the kernels is
    for people."""
    codes: dict[Instruction, int] = {}
    files = [
        (f"{name}.npz", tables(stream, parameters, codes).to_bytes())
        for name, (stream, parameters) in kernels.items()
    ]
    files += [(f"code.{k}.o", site_object(i, host)) for i, k in codes.items()]
    files += [(name + SUFFIX, run.to_bytes()) for name, run in runs.items()]
    return DevicePart(device, KIND, tuple(files))


def tables(stream: Stream, parameters: tuple[Buffer, ...], codes: dict[Instruction, int]) -> Tables:
    """A stream as tables; `codes` has the number of each instruction, and is added to."""
    names = {m.name: k for k, m in enumerate(stream.target.memories)}
    shape = (len(stream.sites), stream.addresses.shape[1])
    memory, lists = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    entries: list[np.ndarray] = []
    code = np.zeros(len(stream.sites), np.int64)
    for k, site in enumerate(stream.sites):
        i = site.instruction
        if i.black_box is not None:
            raise CompileError(
                f"{i.name} of {stream.target.name} is a black box, a function of its author's, and"
                " cannot be part of a model",
                hint="write its meaning as a loop program",
            )
        code[k] = codes.setdefault(i, len(codes))
        memory[k, : len(site.memories)] = [names[m] for m in site.memories]
        for o, found in enumerate(lists_of(site)):
            if found is not None:
                lists[k, o] = sum(map(len, entries))
                entries.append(found)
    places = [(names[p.memory], p.offset) for p in map(stream.places.__getitem__, parameters)]
    held = [(stream.places[b], np.ascontiguousarray(a)) for b, a in stream.constants.items()]
    return Tables(
        site=np.ascontiguousarray(stream.site, np.int32),
        fields=np.ascontiguousarray(stream.fields, np.int64),
        addresses=np.ascontiguousarray(stream.addresses, np.int64),
        code=code,
        memory=memory,
        shifts=_shifts(stream, shape),
        lists=lists,
        entries=np.concatenate([np.zeros(0, np.int64), *entries]),
        sizes=np.array([stream.sizes.get(name, 0) for name in names], np.int64),
        places=np.array(places, np.int64).reshape(-1, 2),
        constants=np.concatenate(
            [np.zeros(0, np.uint8), *(a.reshape(-1).view(np.uint8) for _, a in held)]
        ),
        constant_places=np.array(
            [(names[p.memory], p.offset, a.nbytes) for p, a in held], np.int64
        ).reshape(-1, 3),
    )


def _shifts(stream: Stream, shape: tuple[int, int]) -> np.ndarray:
    """How many bytes further each operand lies, for each core that runs the stream."""
    if stream.shifts is None:
        return np.zeros((1, *shape), np.int64)
    return np.ascontiguousarray(stream.shifts, np.int64)
