"""Kernels on chips that have queues: scheduled from the description, run on its simulators.

    f = build_chip(gemm.kernel, tiny())
    c = f(a, b, c)            the functional simulator: to the bit
    f.timeline.cycles         the timed one

A few of the best tiles by the analytic model are built and timed; the fastest stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.codegen.stream import Stream, expand_stream
from tilewright.ir.arguments import check_arguments
from tilewright.ir.expr import Buffer
from tilewright.ir.graph import Layout, TensorType
from tilewright.ir.loop import Kernel
from tilewright.ir.verify import verify_kernel
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.schedule.accelerate import accelerate, find_mapping
from tilewright.schedule.choose_tiles import Bound, Choice, Model, choose_tiles
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import State
from tilewright.sim.check import check_waits
from tilewright.sim.data import run_stream
from tilewright.sim.events import simulate
from tilewright.sim.faults import Fault
from tilewright.sim.memory import check_memory
from tilewright.sim.replay import replay
from tilewright.sim.timeline import Timeline
from tilewright.sim.waits import Waits, synchronise
from tilewright.target.target import Target
from tilewright.targets import cpu

TRIES = 6  # tiles that are built and timed
MOST = 4  # times as many are tried, if some cannot be built


@dataclass(eq=False)
class ChipKernel:
    """A kernel as a chip's stream of instructions, proven free of races. Called with its arrays,
    in the order of its parameters: outputs are written in place, and returned."""

    source: Kernel  # as it was written
    kernel: Kernel  # as scheduled: loops over calls
    target: Target
    stream: Stream
    waits: Waits
    timeline: Timeline
    parameters: tuple[str, ...]
    layouts: Mapping[str, Layout] = field(
        default_factory=dict
    )  # of parameters, in the chip's memory

    def __call__(self, *arrays: Any) -> Any:
        given, inputs = self._arguments(arrays)
        results = run_stream(self.stream, cpu.host(threads=1), inputs, self.kernel.outputs)
        for held, memory in zip(self.kernel.outputs, results, strict=True):
            array = given[held.name]
            array[...] = read_arranged(memory, self._type(held.name), array.shape)
        outputs = [given[b.name] for b in self.source.outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def replay(self, *arrays: Any, orders: int = 32, seed: int = 0) -> Fault | None:
        """Runs it on its arrays in many orders that the waits allow, with every byte watched; the
        first fault if there is one. Outputs are what it should compute, and are not written."""
        given, inputs = self._arguments(arrays)

        def read(held: Buffer, memory: np.ndarray) -> np.ndarray:
            return read_arranged(memory, self._type(held.name), given[held.name].shape)

        outputs = self.kernel.outputs
        expected = [given[held.name] for held in outputs]
        return replay(
            self.stream, self.waits, cpu.host(threads=1), inputs, outputs, expected,
            orders=orders, seed=seed, read=read,
        )  # fmt: skip

    def _arguments(self, arrays: Any) -> tuple[dict[str, Any], dict[Buffer, np.ndarray]]:
        """The arrays by the parameters' names, and the inputs as they lie in the chip's memory."""
        by_name = {b.name: b for b in (*self.source.inputs, *self.source.outputs)}
        order = [by_name[name] for name in self.parameters]
        found, _ = check_arguments(self.source.name, order, arrays)
        given = {b.name: a for b, a in zip(order, found, strict=True)}
        held = self.kernel.inputs
        return given, {b: arrange(given[b.name], self._type(b.name)) for b in held}

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    @property
    def bound(self) -> Bound:
        """What no schedule of this kernel can beat."""
        return lower_bound(self.source, self.target)

    def _type(self, name: str) -> TensorType:
        buffer = next(b for b in self.source.params if b.name == name)
        return TensorType(buffer.dtype, buffer.shape, self.layouts.get(name))


def lower_bound(kernel: Kernel, target: Target) -> Bound:
    """Cycles that no schedule of a kernel with one contraction can beat."""
    s = Schedule(kernel)
    return Model(s, target, *find_mapping(s, target)).bound()


def build_chip(
    kernel: Kernel,
    target: Target,
    *,
    overlap: bool = True,
    parameters: Sequence[str] = (),
) -> ChipKernel:
    """The kernel on the chip's instructions; without `overlap` one tile is done after another."""
    first = Schedule(kernel)
    choices = choose_tiles(first, target, *find_mapping(first, target), overlap=overlap)
    if not choices:
        held = ", ".join(f"{m.name} {m.size}" for m in target.memories if m.size is not None)
        raise TargetError(
            f"no tile of {kernel.name} fits the memories of {target.name}",
            hint=f"they have ({held}) bytes: not twice what one step of the unit takes",
        )
    built, refusal = [], None
    for choice in choices[: MOST * TRIES]:
        try:
            built.append(_built(kernel, target, choice, overlap, parameters))
        except (ScheduleError, TargetError, CompileError) as error:  # the model sees less than that
            refusal = refusal or error
        if len(built) == TRIES:
            break
    if refusal is not None and not built:
        raise refusal
    return min(built, key=lambda b: b.timeline.cycles)


def _built(
    kernel: Kernel, target: Target, choice: Choice, overlap: bool, parameters: Sequence[str]
) -> ChipKernel:
    s = Schedule(kernel)
    layouts = accelerate(s, target, choice.plan, overlap=overlap)
    return stream_kernel(s, target, parameters, layouts)


def stream_kernel(
    s: State,
    target: Target,
    parameters: Sequence[str] = (),
    layouts: Mapping[str, Layout] | None = None,
) -> ChipKernel:
    """A schedule that is all calls, as a stream with its waits, proven and timed. `layouts` says
    how parameters lie in the chip's memory, where that is not row by row."""
    verify_kernel(s.kernel)
    done = synchronise(expand_stream(s.kernel, target))
    stream, waits = done.stream, done.waits
    fault = check_memory(stream, s.kernel.inputs, done.boxes) or check_waits(
        stream, done.need, waits, done.boxes
    )
    if fault is not None:
        raise CompileError(f"the stream of {s.kernel.name} is wrong: {fault}")
    timeline = simulate(stream, waits, found=done.boxes)
    buffers = (*s.original.inputs, *s.original.outputs)
    order = tuple(parameters) or tuple(b.name for b in buffers)
    return ChipKernel(
        s.original, s.kernel, target, stream, waits, timeline, order, dict(layouts or {})
    )
