"""Kernels on chips, as they are called, explained and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.backends.bundles.assembly import assembly
from tilewright.backends.bundles.program import BundleProgram, make_program
from tilewright.backends.bundles.resource_bound import ResourceBound, program_bound
from tilewright.backends.stream.addresses import check_used
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.cores import check_cores, core_stream, on_cores
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.encode import encode
from tilewright.backends.stream.faults import Fault
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.merge_pieces import merged_order, stands_still
from tilewright.backends.stream.micro_ops import place_lists
from tilewright.backends.stream.order_transfers import order_transfers
from tilewright.backends.stream.registers import place_settings
from tilewright.backends.stream.steps import check_steps
from tilewright.backends.stream.stream import Stream, expand_stream, statements_of_sites
from tilewright.backends.stream.waits import Synchronised, Waits, synchronise
from tilewright.base.errors import CompileError, TargetError
from tilewright.explain.explain import explain
from tilewright.explain.explanation import Explanation
from tilewright.ir.arguments import check_arguments
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Kernel,
    symbols,
)
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.verify.loop import verify_kernel
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.plan.borders import Border, Borders
from tilewright.plan.bound import ContractionBound
from tilewright.plan.equal_units import share_calls
from tilewright.plan.stacked_inputs import Stacks, layouts_of_sources, stacks_in, with_sources
from tilewright.plan.unit_form import MadeArray, UnitForm
from tilewright.schedule.core.state import State
from tilewright.sim.data import run_stream
from tilewright.sim.events import simulate
from tilewright.sim.issue_order import issue_in_time
from tilewright.sim.replay import replay
from tilewright.sim.timeline import Timeline
from tilewright.target.cores import one_core
from tilewright.target.target import Target
from tilewright.targets import cpu


@dataclass(frozen=True)
class PieceTime:
    """One of the kernels that a stream does one after the other: the `cycles` from when those
    before it are done until it is, which add up to the stream's, and what it takes at least where
    it is alone."""

    cycles: int
    bound: int | None


@dataclass(eq=False)
class ChipKernel:
    """A kernel as a chip's stream of instructions, proven free of races. Called with its arrays,
    in the order of its parameters: outputs are written in place, and returned."""

    source: Kernel  # as it was written
    form: UnitForm  # the same as the unit takes it, and how its arrays are made
    filled: Kernel  # the same with loops that fill the unit, and parameters with room for them
    kernel: Kernel  # as scheduled: loops over calls
    target: Target
    stream: Stream
    waits: Waits
    timeline: Timeline
    parameters: tuple[str, ...]
    layouts: Mapping[str, Layout] = field(default_factory=dict)  # of parameters, on the chip
    borders: Borders = field(default_factory=dict)  # what lies around inputs, on the chip
    predicted: float | None = None  # cycles, by the model that chose its tiles
    bound: ContractionBound | ResourceBound | None = None  # what no schedule can beat
    program: BundleProgram | None = None  # of bundles, on a statically scheduled chip
    tile: Mapping[str, int] = field(default_factory=dict)  # iterations of each loop in a tile
    expect: Callable[[Target], float | None] | None = None  # cycles of the best tiles on a chip, by
    # the model, decided alike; None for a schedule by hand
    pieces: tuple[PieceTime, ...] = ()  # of a stream that does several kernels

    def __call__(self, *arrays: object) -> Any:
        given, inputs = self._arguments(arrays)
        results = run_stream(self.stream, cpu.host(threads=1), inputs, self.kernel.outputs)
        for held, memory in zip(self.kernel.outputs, results, strict=True):
            given[held.name][...] = self.read(held, memory)
        outputs = [given[b.name] for b in self.source.outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def replay(self, *arrays: object, orders: int = 32, seed: int = 0) -> Fault | None:
        """Runs it on its arrays in many orders that the waits allow, with every byte watched; the
        first fault if there is one. Outputs are what it should compute, and are not written."""
        given, inputs = self._arguments(arrays)

        outputs = self.kernel.outputs
        expected = [given[held.name] for held in outputs]
        return replay(
            self.stream, self.waits, cpu.host(threads=1), inputs, outputs, expected,
            orders=orders, seed=seed, read=self.read,
            found=self.program.boxes if self.program is not None else None,
        )  # fmt: skip

    def _arguments(self, arrays: Any) -> tuple[dict[str, Any], dict[Buffer, np.ndarray]]:
        """The arrays by the parameters' names, and the inputs as they lie in the chip's memory."""
        by_name = {b.name: b for b in (*self.source.inputs, *self.source.outputs)}
        order = [by_name[name] for name in self.parameters]
        found, _ = check_arguments(self.source.name, order, arrays)
        given = {b.name: a for b, a in zip(order, found, strict=True)}
        held = self.kernel.inputs
        return given, {b: self.arranged(b, given) for b in held}

    def arranged(self, held: Buffer, given: Mapping[str, Any]) -> np.ndarray:
        """An input as it lies in the chip's memory, made of the arrays that are given."""
        made = self.form.made.get(held.name, MadeArray((held.name,)))
        return self._arrange(held, made.of([given[source] for source in made.sources]))

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    def explain(self) -> Explanation:
        """Where its cycles go, what keeps better tiles out, and what would help: some seconds."""
        parts = self.bound.parts if self.bound is not None else None
        cycles = self.bound.cycles if self.bound is not None else None
        return explain(
            self.source.name, self.target, self.timeline, self.waits, self.tile, parts, cycles,
            self.expect,
        )  # fmt: skip

    def words(self) -> np.ndarray:
        """The instructions in the chip's own bits, as it fetches them (stream/encode.py); those of
        each core behind those of the one before."""
        every = range(self.stream.cores)
        return np.concatenate([encode(core_stream(self.stream, k), self.waits) for k in every])

    @property
    def assembly(self) -> str:
        """The bundles of a statically scheduled chip, as a person reads them."""
        if self.program is None:
            raise TargetError(f"{self.target.name} has no bundles", hint="print(kernel.kernel)")
        return assembly(self.program)

    def _arrange(self, held: Buffer, array: np.ndarray) -> np.ndarray:
        """An input of the form as it lies in the chip's memory, with its border."""
        kind = self._type(held)
        shape = [int(n) for n in kind.shape]
        border = self.borders.get(held.name, Border((0,) * len(shape)))
        sizes = zip(border.before, shape, array.shape, strict=True)
        added = [(b, n - m - b) for b, n, m in sizes]
        if any(map(any, added)):
            array = np.pad(array, added, constant_values=border.fill)
        return arrange(array, kind)

    def read(self, held: Buffer, memory: np.ndarray) -> np.ndarray:
        """An output that lies in the chip's memory, without what was added of it."""
        kind = self._type(held)
        made = next(b for b in self.form.kernel.outputs if b.name == held.name)
        memory = memory.reshape([int(n) for n in kind.physical_shape])  # of one axis in a stream
        whole = read_arranged(memory, kind, tuple(int(n) for n in kind.shape))
        inside = whole[tuple(slice(0, int(n)) for n in made.shape)]
        return self.form.results.get(held.name, MadeArray((held.name,))).of([inside])

    def _type(self, held: Buffer) -> TensorType:
        buffer = next(b for b in self.filled.params if b.name == held.name)
        return TensorType(buffer.dtype, buffer.shape, self.layouts.get(held.name))


def check_sizes(kernel: Kernel, target: Target) -> None:
    """CompileError for a kernel with dimensions that have no number."""
    names = [s.name for s in symbols(kernel)]
    if names:
        verb = "have" if len(names) > 1 else "has"
        raise CompileError(
            f"{', '.join(names)} of {kernel.name} {verb} no number, and the instructions of"
            f" {target.name} are for certain sizes",
            hint=f"bind({', '.join(f'{n}=…' for n in names)}) gives one",
        )


def check_order(target: Target, serial: bool) -> None:
    """TargetError for a statically scheduled chip that is to run one instruction after another."""
    if serial:
        raise TargetError(
            f"{target.name} issues its bundles in order, and serial is for chips with queues alone",
            hint="overlap=False lets transfers and bundles take turns",
        )


def stream_kernel(
    s: State,
    target: Target,
    parameters: Sequence[str] = (),
    layouts: Mapping[str, Layout] | None = None,
    *,
    serial: bool = False,
    shared: Instruction | None = None,
    stacks: Stacks = MappingProxyType({}),
) -> ChipKernel:
    """A schedule that is all calls, as a stream with its waits, proven and timed. `layouts` says
    how parameters lie in the chip's memory, where that is not row by row. With `serial` every
    instruction waits until all before it are done, as far as queues can wait for each other: what
    is then still wrong is no matter of waits. Calls of the instruction `shared` are shared out
    among all that are equal to it. `stacks` are inputs that are read as the arrays in them."""
    check_sizes(s.original, target)
    verify_kernel(s.kernel)
    if target.bundles is not None:
        check_order(target, serial)
        return bundle_kernel(
            s.original, s.kernel, make_program(s.kernel, target), target, parameters, layouts
        )
    held = layouts_of_sources(layouts or {}, stacks)
    original = with_sources(s.original, stacks)
    kernel = with_sources(s.kernel, stacks_in(stacks, layouts or {}))
    order = tuple(parameters) or tuple(b.name for b in (*original.inputs, *original.outputs))
    if shared is not None:
        kernel = share_calls(kernel, target, shared)
    made = proven_stream(kernel, target, serial=serial)
    return ChipKernel(
        original, UnitForm(original), original, kernel, target, *made, order, held,
    )  # fmt: skip


def proven_stream(
    kernel: Kernel,
    target: Target,
    constants: Mapping[Buffer, np.ndarray] | None = None,
    *,
    serial: bool = False,
    moved: Mapping[Buffer, np.ndarray] | None = None,
    merges: bool = False,
) -> tuple[Stream, Waits, Timeline]:
    """The stream of a kernel that is all calls, with its waits, proven and timed. `constants` is
    what some of its buffers hold from the start. Several cores run it where `moved` says how many
    bytes further the part of each parameter lies for each of them [cores]. With `merges`
    the kernel's statements are kernels of their own, which may go along with each other."""
    expanded = replace(expand_stream(kernel, one_core(target)), constants=constants or {})
    timeline = None
    if serial or moved is not None:
        done = synchronise(_ordered(expanded), serial=serial)
    else:
        done, timeline = issue_in_time(_ordered(expanded))
        if merges and stands_still(done.stream, timeline.cycles):
            done, timeline = _merged(expanded, statements_of_sites(kernel), done, timeline)
    stream, waits = done.stream, done.waits
    if moved is not None:
        stream = on_cores(stream, target, moved)
    check_used(kernel.name, target, stream.sizes)
    fault = (
        check_steps(stream)
        or check_memory(stream, (*kernel.inputs, *stream.constants), done.boxes)
        or check_distances(stream, done.boxes)
        or check_waits(stream, done.need, waits, done.boxes)
        or check_cores(stream, done.boxes)
    )
    if fault is not None:
        raise CompileError(f"the stream of {kernel.name} is wrong: {fault}")
    return stream, waits, timeline or simulate(stream, waits, found=done.boxes)


def _ordered(stream: Stream) -> Stream:
    """An expanded stream with lists, settings, and transfers in the order of their needs."""
    return place_settings(order_transfers(place_lists(stream)))


def _merged(
    stream: Stream, piece: np.ndarray, done: Synchronised, timeline: Timeline
) -> tuple[Synchronised, Timeline]:
    """An expanded stream, whose sites are of the kernels that `piece` numbers, with its waits and
    its run: with kernels along with each other if that is faster, or as it is known already."""
    order = merged_order(stream, piece[stream.site])
    if order is None:
        return done, timeline
    again, faster = issue_in_time(_ordered(stream.reordered(order)))
    return (again, faster) if faster.cycles < timeline.cycles else (done, timeline)


def bundle_kernel(
    original: Kernel,
    scheduled: Kernel,
    program: BundleProgram,
    target: Target,
    parameters: Sequence[str],
    layouts: Mapping[str, Layout] | None,
) -> ChipKernel:
    """A program of bundles, as a kernel to be called."""
    order = tuple(parameters) or tuple(b.name for b in (*original.inputs, *original.outputs))
    return ChipKernel(
        original, UnitForm(original), original, scheduled, target, program.stream,
        program.tokens, program.timeline, order, dict(layouts or {}),
        bound=program_bound(program), program=program,
    )  # fmt: skip
