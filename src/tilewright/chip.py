"""Kernels on chips that have queues: scheduled from the description, run on its simulators.

    f = build_chip(gemm.kernel, tiny())
    c = f(a, b, c)            the functional simulator: to the bit
    f.timeline.cycles         the timed one

A few of the best tiles by the analytic model are built and timed; the fastest stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.backends.bundles.assembly import assembly
from tilewright.backends.bundles.build import build_bundles
from tilewright.backends.bundles.choose import choose_plans
from tilewright.backends.bundles.program import BundleProgram, make_program
from tilewright.backends.bundles.resource_bound import ResourceBound, program_bound
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.encode import encode
from tilewright.backends.stream.faults import Fault
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.micro_ops import place_lists
from tilewright.backends.stream.order_transfers import order_transfers
from tilewright.backends.stream.registers import place_settings
from tilewright.backends.stream.stream import Stream, expand_stream
from tilewright.backends.stream.waits import Waits, synchronise
from tilewright.base.errors import CompileError, TargetError, TilewrightError
from tilewright.explain.explain import explain
from tilewright.explain.explanation import Explanation
from tilewright.ir.arguments import check_arguments
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import (
    Kernel,
    symbols,
)
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.verify.loop import verify_kernel
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.borders import Border, Borders, choose_borders
from tilewright.plan.bound import ContractionBound
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.fastest import build_fastest
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.normal_form import normal_form
from tilewright.plan.restrict_tiles import controlled_tiles, no_tile, no_tile_fits
from tilewright.plan.tile_model import TileModel
from tilewright.plan.unit_form import MadeArray, UnitForm
from tilewright.plan.unit_forms import unit_forms
from tilewright.plan.units import has_contraction
from tilewright.plan.vector_schedule import tile_vectors
from tilewright.plan.vector_tiles import VectorChoice, VectorChoices, vector_choices
from tilewright.plan.ways import Way, find_ways
from tilewright.schedule.core.state import State
from tilewright.schedule.schedule import Schedule
from tilewright.sim.data import run_stream
from tilewright.sim.events import simulate
from tilewright.sim.replay import replay
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.sim.timeline import Timeline
from tilewright.target.target import Target
from tilewright.targets import cpu

TRIES = 4  # tiles that are built and timed
GAIN = 0.97  # of the cycles of a kernel's first form: others that cannot be so fast are not tried
NEAR = 0.997  # of what the model expects: better than the next one is likely to be


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

    def __call__(self, *arrays: object) -> Any:
        given, inputs = self._arguments(arrays)
        results = run_stream(self.stream, cpu.host(threads=1), inputs, self.kernel.outputs)
        for held, memory in zip(self.kernel.outputs, results, strict=True):
            given[held.name][...] = self._read(held, memory)
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
            orders=orders, seed=seed, read=self._read,
            found=self.program.boxes if self.program is not None else None,
        )  # fmt: skip

    def _arguments(self, arrays: Any) -> tuple[dict[str, Any], dict[Buffer, np.ndarray]]:
        """The arrays by the parameters' names, and the inputs as they lie in the chip's memory."""
        by_name = {b.name: b for b in (*self.source.inputs, *self.source.outputs)}
        order = [by_name[name] for name in self.parameters]
        found, _ = check_arguments(self.source.name, order, arrays)
        given = {b.name: a for b, a in zip(order, found, strict=True)}
        held = self.kernel.inputs
        return given, {b: self._arrange(b, self._made(b.name, given)) for b in held}

    def _made(self, name: str, given: Mapping[str, Any]) -> np.ndarray:
        """An input of the form, made of the arrays that are given."""
        made = self.form.made.get(name, MadeArray((name,)))
        return made.of([given[source] for source in made.sources])

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
        """The instructions in the chip's own bits, as it fetches them (stream/encode.py)."""
        return encode(self.stream, self.waits)

    @property
    def assembly(self) -> str:
        """The bundles of a statically scheduled chip, as a person reads them."""
        if self.program is None:
            raise TargetError(f"{self.target.name} has no bundles", hint="print(kernel.kernel)")
        return assembly(self.program)

    def _arrange(self, held: Buffer, array: np.ndarray) -> np.ndarray:
        """An input as it lies in the chip's memory, with its border."""
        kind = self._type(held)
        shape = [int(n) for n in kind.shape]
        border = self.borders.get(held.name, Border((0,) * len(shape)))
        sizes = zip(border.before, shape, array.shape, strict=True)
        added = [(b, n - m - b) for b, n, m in sizes]
        if any(map(any, added)):
            array = np.pad(array, added, constant_values=border.fill)
        return arrange(array, kind)

    def _read(self, held: Buffer, memory: np.ndarray) -> np.ndarray:
        """An output that lies in the chip's memory, without what was added of it."""
        kind = self._type(held)
        made = next(b for b in self.form.kernel.outputs if b.name == held.name)
        whole = read_arranged(memory, kind, tuple(int(n) for n in kind.shape))
        inside = whole[tuple(slice(0, int(n)) for n in made.shape)]
        return self.form.results.get(held.name, MadeArray((held.name,))).of([inside])

    def _type(self, held: Buffer) -> TensorType:
        buffer = next(b for b in self.filled.params if b.name == held.name)
        return TensorType(buffer.dtype, buffer.shape, self.layouts.get(held.name))


def lower_bound(kernel: Kernel, target: Target) -> ContractionBound:
    """Cycles that no schedule of a kernel with one contraction, or none, can beat, in the form of
    which that is least. Where the chip cannot guard reads, what lies around an input are bytes to
    bring."""
    return find_ways(kernel, target)[0].bound


def build_chip(
    kernel: Kernel,
    target: Target,
    *,
    tile: Mapping[str, int] | None = None,
    whole: Sequence[str] | bool = (),
    overlap: bool = True,
    rings: bool | None = None,
    serial: bool = False,
    parameters: Sequence[str] = (),
) -> ChipKernel:
    """The kernel on the chip's instructions, tiled as its author says (plan/control.py) and, in
    the rest, as is best. `parameters` are the names of its arrays, in the order of calls."""
    control = Control(tile or {}, whole, overlap, rings, serial)
    return build_controlled(kernel, target, control, parameters)


def build_controlled(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str] = ()
) -> ChipKernel:
    """The same, with what the author decides as one record."""
    check_sizes(kernel, target)
    order = tuple(parameters) or tuple(b.name for b in kernel.params)
    if target.bundles is not None:
        built = _build_bundles(kernel, target, control, order)
    else:
        built = _build_stream(kernel, target, control, order)
    return replace(built, source=kernel)


def _build_stream(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """The fastest of a kernel's forms, of those that may be."""
    ways = find_ways(kernel, target, control)
    best: ChipKernel | None = None
    refusal: TilewrightError | None = None
    for way in ways:
        if best is not None and way.bound.cycles >= GAIN * best.cycles:
            break
        try:
            built = _build_way(way, target, control, parameters)
        except (CompileError, TargetError) as error:
            refusal = refusal or error
            continue
        best = built if best is None or built.cycles < best.cycles else best
    if best is None:
        assert refusal is not None  # there is a way
        raise refusal
    return replace(best, bound=ways[0].bound)


def _build_way(way: Way, target: Target, control: Control, parameters: Sequence[str]) -> ChipKernel:
    """A kernel in one of its forms."""
    kernel, model = way.kernel, way.model
    if isinstance(model, VectorChoices):
        best = _build_vectors(kernel, target, control, parameters, model)
    else:
        best = _build_contraction(kernel, target, control, parameters, model)
    # The model knows of no order but that of tiles.
    expect = None if control.serial else partial(expected_cycles, kernel, control)
    return replace(best, form=way.form, borders=way.borders, expect=expect)


def _build_contraction(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str], model: TileModel
) -> ChipKernel:
    """A kernel with a contraction, on a unit that contracts."""
    choices = controlled_tiles(kernel, model, control, run_pipelines)
    if not choices:
        raise no_tile(kernel, model, control)
    return build_fastest(
        choices,
        lambda choice: build_choice(kernel, target, choice, control, parameters),
        tries=TRIES,
        near=NEAR,
        kind=lambda choice: (*choice.plan.tile.values(), *choice.plan.order),
    )


def _build_bundles(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """The first of a kernel's forms that a statically scheduled chip does."""
    _check_order(target, control.serial)
    refusal: TilewrightError | None = None
    for form in unit_forms(normal_form(kernel), target):
        wider, borders = choose_borders(form.kernel, target)
        try:
            bundled = build_bundles(wider, target, control)
        except (CompileError, TargetError) as error:
            refusal = refusal or error
            continue
        found = _bundled(bundled.schedule, bundled.program, target, parameters, bundled.layouts)
        expect = partial(expected_cycles, wider, control)
        return replace(
            found, form=form, borders=borders, predicted=bundled.predicted, tile=bundled.tile,
            expect=expect,
        )  # fmt: skip
    assert refusal is not None  # the kernel itself is a form
    raise refusal


def _build_vectors(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str],
    found: VectorChoices,
) -> ChipKernel:  # fmt: skip
    """A kernel without a contraction, on a chip's element-wise instructions."""

    def build(choice: VectorChoice) -> ChipKernel:
        s = Schedule(choice.form.kernel)
        tiled = tile_vectors(s, target, choice.plan, choice.form.memories, overlap=control.overlap)
        built = stream_kernel(s, target, parameters, tiled.layouts, serial=control.serial)
        tile = {v.name: n for v, n in choice.plan.tile.items()}
        return replace(built, filled=choice.form.source, predicted=choice.cycles, tile=tile)

    if not found.plans:
        raise no_tile_fits(kernel, target, control)
    return build_fastest(found.plans, build, tries=TRIES, near=NEAR)


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


def _check_order(target: Target, serial: bool) -> None:
    """TargetError for a statically scheduled chip that is to run one instruction after another."""
    if serial:
        raise TargetError(
            f"{target.name} issues its bundles in order, and serial is for chips with queues alone",
            hint="overlap=False lets transfers and bundles take turns",
        )


def expected_cycles(kernel: Kernel, control: Control, target: Target) -> float | None:
    """What the analytic model expects of the best tiles on a chip; None if no tile fits."""
    if target.bundles is not None:
        return next((c.cycles for c in choose_plans(kernel, target, control)), None)
    if not has_contraction(kernel):
        plans = vector_choices(kernel, target, control).plans
        return min((c.cycles for c in plans), default=None)
    model = analytic_model(kernel, target)
    return next((c.cycles for c in controlled_tiles(kernel, model, control, run_pipelines)), None)


def build_choice(
    kernel: Kernel,
    target: Target,
    choice: Choice,
    control: Control = CHOSEN,
    parameters: Sequence[str] = (),
) -> ChipKernel:
    """The kernel with certain tiles: what `choose_tiles` offers, or a plan of the caller's."""
    s = Schedule(fill_kernel(kernel, choice.plan.extents))
    layouts = tile_for_unit(s, target, choice.plan, overlap=control.overlap)
    built = stream_kernel(s, target, parameters, layouts, serial=control.serial)
    tile = {v.name: n for v, n in choice.plan.tile.items()}
    return replace(built, source=kernel, predicted=choice.cycles, tile=tile)


def stream_kernel(
    s: State,
    target: Target,
    parameters: Sequence[str] = (),
    layouts: Mapping[str, Layout] | None = None,
    *,
    serial: bool = False,
) -> ChipKernel:
    """A schedule that is all calls, as a stream with its waits, proven and timed. `layouts` says
    how parameters lie in the chip's memory, where that is not row by row. With `serial` every
    instruction waits until all before it are done, as far as queues can wait for each other: what
    is then still wrong is no matter of waits."""
    check_sizes(s.original, target)
    verify_kernel(s.kernel)
    if target.bundles is not None:
        _check_order(target, serial)
        return _bundled(s, make_program(s.kernel, target), target, parameters, layouts)
    stream = place_settings(order_transfers(place_lists(expand_stream(s.kernel, target))))
    done = synchronise(stream, serial=serial)
    stream, waits = done.stream, done.waits
    fault = (
        check_memory(stream, (*s.kernel.inputs, *stream.constants), done.boxes)
        or check_distances(stream, done.boxes)
        or check_waits(stream, done.need, waits, done.boxes)
    )
    if fault is not None:
        raise CompileError(f"the stream of {s.kernel.name} is wrong: {fault}")
    timeline = simulate(stream, waits, found=done.boxes)
    buffers = (*s.original.inputs, *s.original.outputs)
    order = tuple(parameters) or tuple(b.name for b in buffers)
    return ChipKernel(
        s.original, UnitForm(s.original), s.original, s.kernel, target, stream, waits, timeline,
        order, dict(layouts or {}),
    )  # fmt: skip


def _bundled(
    s: State,
    program: BundleProgram,
    target: Target,
    parameters: Sequence[str],
    layouts: Mapping[str, Layout] | None,
) -> ChipKernel:
    """A program of bundles, as a kernel to be called."""
    order = tuple(parameters) or tuple(b.name for b in (*s.original.inputs, *s.original.outputs))
    return ChipKernel(
        s.original, UnitForm(s.original), s.original, s.kernel, target, program.stream,
        program.tokens, program.timeline, order, dict(layouts or {}),
        bound=program_bound(program), program=program,
    )  # fmt: skip
