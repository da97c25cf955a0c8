"""Chips as devices of a model: kernels that are built for them, and how they hold arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.backends.binary import Binary, PlacedArray
from tilewright.backends.stream.cores import core_stream
from tilewright.backends.stream.disassemble import disassemble
from tilewright.backends.stream.parts import part_lengths
from tilewright.backends.table import Backend, Member, Option, Part
from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.base.passes import Watch
from tilewright.build_pieces import PieceRefused
from tilewright.chip import build_chip, build_split, check_form
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Alloc, Kernel, symbols, walk_statements
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.move_arrays import Held
from tilewright.passed_arrays import PartsApart
from tilewright.plan.borders import Border
from tilewright.plan.control import CHOSEN
from tilewright.plan.create_loops import create_loops
from tilewright.plan.device_form import DeviceForm, device_forms
from tilewright.plan.limit_forms import limits_apart
from tilewright.plan.normal_form import normal_form
from tilewright.plan.reshape_operand import with_operand_shape
from tilewright.plan.same_kernels import told_in_names, with_param_names, with_plain_names
from tilewright.plan.split_kernel import Join, has_pieces, with_passed_borders
from tilewright.plan.unit_form import MadeArray, of_operands, sizes_of, with_axes
from tilewright.runtime.devices import DEVICES
from tilewright.runtime.program import DevicePart
from tilewright.sim.device_run import device_run
from tilewright.sim.part import KIND as SIMULATOR
from tilewright.sim.part import simulator_part
from tilewright.target.target import Target


def chip_options(program: TensorProgram, target: Target) -> list[Option]:
    """The fastest kernel for a chip, timed by its simulator; or what is in the way."""

    def built(kernel: Kernel, form: DeviceForm) -> Option:
        return _option(kernel, form, build_chip(form.kernel, target))

    return _first_form(program, built)


def chip_outlook(program: TensorProgram, target: Target) -> Option:
    """The form in which a chip with queues does a kernel; or what is in the way."""

    def done(kernel: Kernel, form: DeviceForm) -> Option:
        try:
            check_form(with_plain_names(form.kernel)[0], target)  # as a piece is built
        except (ScheduleError, TargetError, CompileError) as error:
            raise CompileError(told_in_names(error.what, form.kernel)) from None
        return Option(built=BuiltKernel(None, form))

    return _first_form(program, done)[0]


def _first_form(
    program: TensorProgram, offered: Callable[[Kernel, DeviceForm], Option]
) -> list[Option]:
    """What is offered for the first form of a kernel that is not refused; or all refusals."""
    try:
        kernel = create_loops(program)
        unnumbered = [s.name for s in symbols(kernel)]
        if unnumbered:
            names = ", ".join(unnumbered)
            verb = "has" if len(unnumbered) == 1 else "have"
            return [Option(obstacle=f"{names} {verb} no number (dims={{…}} gives one)")]
    except CompileError as error:
        return [Option(obstacle=error.what)]
    refused = []
    for form in device_forms(kernel):
        try:
            return [offered(kernel, form)]
        except (ScheduleError, TargetError, CompileError) as error:
            refused.append(Option(obstacle=error.what))
    return refused


@dataclass(frozen=True, eq=False)
class BuiltKernel:
    """A kernel of a model in the form that a chip takes it in, and as it is built; not yet, where
    it is to be a part of a subgraph."""

    chip: ChipKernel | None
    form: DeviceForm


def _option(kernel: Kernel, form: DeviceForm, chip: ChipKernel) -> Option:
    given = [_given(chip, form, kernel, b) for b in chip.form.kernel.inputs]
    results = [_result(chip, form, b) for b in kernel.outputs]
    return Option(
        operands=tuple(h.type for h in given),
        results=tuple(h.type for h in results),
        seconds=chip.cycles / chip.target.clock,
        cycles=chip.cycles,
        joules=chip.timeline.joules or None,
        bytes=chip.timeline.bytes_moved,
        trace=", ".join(f"{name}={n}" for name, n in chip.tile.items()),
        held=(*given, *results),
        built=BuiltKernel(chip, form),
        bound=None if chip.bound is None else chip.bound.cycles,
    )


def subgraph_option(
    members: Sequence[Member],
    inputs: Sequence[str],
    target: Target,
    known: dict[Any, Any],
    watch: Watch,
) -> Option:
    """Kernels one after the other as one stream, what passes between them in the chip's memory."""
    pieces: list[Kernel] = []
    owners: list[int] = []  # of each piece, the number of the member
    whole: dict[str, Buffer] = {}  # arrays as the model has them, by the value's name
    axes: dict[str, tuple[int, ...]] = {}
    joins = _Joins(pieces)
    for number, member in enumerate(members):
        if member.joins is not None:
            try:
                joins.add(member, axes)
            except ScheduleError as error:
                return Option(obstacle=error.what, fits=number)
            whole[member.result] = member.program.outputs[0].with_(name=member.result)
            continue
        built: BuiltKernel = member.option.built
        program, form = member.program, built.form
        values = dict(zip((b.name for b in program.inputs), member.operands, strict=True))
        values[program.outputs[0].name] = member.result
        for b in (*program.inputs, *program.outputs):
            name, kept = values[b.name], form.axes[b.name]
            whole.setdefault(name, b.with_(name=name))
            axes.setdefault(name, kept)
        piece = with_param_names(form.kernel, values)
        try:
            alike = _alike(piece, pieces, joins.made)
        except ScheduleError as error:
            return Option(obstacle=error.what, fits=number)
        before = {b.name: sizes_of(b) for p in pieces for b in p.inputs}
        outside = [x for x in zip(piece.inputs, alike.inputs, strict=True) if x[1].name in inputs]
        pieces += _pieces(alike, built)
        owners += [number] * (len(pieces) - len(owners))
        for old, new in outside:
            if before.get(new.name, sizes_of(new)) != sizes_of(new):
                return Option(obstacle=f"{new.name} is read in two shapes", fits=number)
            if new != old and new.name not in before:  # the same elements in another shape
                whole[new.name], axes[new.name] = new, tuple(range(len(new.shape)))
    result = joins.made[-1].result if members[-1].joins is not None else pieces[-1].outputs[0]
    given = tuple(_find(pieces, n) for n in inputs)
    kernel = pieces[-1].with_(name=alike.name, inputs=given, outputs=(result,))
    try:
        chip = _build_joined(kernel, pieces, joins.made, target, known, watch)
    except PieceRefused as error:
        return Option(obstacle=error.what, fits=owners[error.number])
    except (ScheduleError, TargetError, CompileError) as error:
        return Option(obstacle=error.what)
    model = kernel.with_(
        inputs=tuple(whole[n] for n in inputs), outputs=(whole[members[-1].result],)
    )
    return replace(
        _option(model, DeviceForm(kernel, axes), chip),
        parts=tuple(_part(m, chip, owners, number) for number, m in enumerate(members)),
    )


def _build_joined(
    kernel: Kernel,
    pieces: Sequence[Kernel],
    joins: Sequence[Join],
    target: Target,
    known: dict[Any, Any],
    watch: Watch,
) -> ChipKernel:
    """The pieces of a kernel as one stream. Parts of an array are made as if they were alone; where
    their rows take turns with those of others, with room for these."""
    (result,) = kernel.outputs
    order = (*(b.name for b in kernel.inputs), result.name)
    for room in (False, True) if joins else (False,):
        split = with_passed_borders(pieces, target, joins, room=room)
        if result.name in split.borders:
            raise ScheduleError(f"{result.name} has a border, which the host does not read")
        try:
            return build_split(kernel, split, target, CHOSEN, order, known, watch=watch)
        except (ScheduleError, TargetError, CompileError) as error:
            apart = not isinstance(error, PieceRefused) or isinstance(error.error, PartsApart)
            if room or not joins or not apart:
                raise
    raise AssertionError("built or refused")


def _pieces(kernel: Kernel, built: BuiltKernel) -> tuple[Kernel, ...]:
    """A member of a stream; or two, where it was built alone in two: its sums, then its limits."""
    if built.chip is None or not built.chip.pieces:
        return (kernel,)
    plain = normal_form(kernel)
    apart = None if has_pieces(plain) else limits_apart(plain)  # several contractions stay one
    return apart or (kernel,)


def _part(member: Member, chip: ChipKernel, owners: Sequence[int], number: int) -> Part:
    """What a member's pieces take."""
    own = [p for p, owner in zip(chip.pieces, owners, strict=True) if owner == number]
    bounds = [p.bound for p in own if p.bound is not None]
    bound = sum(bounds) if len(bounds) == len(own) else None
    return Part(member.program, sum(p.cycles for p in own), bound)


class _Joins:
    """The arrays of a stream that others make up."""

    def __init__(self, pieces: Sequence[Kernel]) -> None:
        self.pieces = pieces
        self.made: list[Join] = []
        self.operands: list[tuple[int | None, tuple[str, ...]]] = []  # as the model has them

    def add(self, member: Member, axes: dict[str, tuple[int, ...]]) -> None:
        """One more, whose axes are those of its parts. What begins with the parts of another one
        begins with that. ScheduleError where a stream cannot have it."""
        known = {b.name: b for p in self.pieces for b in p.outputs}
        known |= {j.result.name: j.result for j in self.made}
        parts = member.operands
        for join, (axis, operands) in zip(self.made, self.operands, strict=True):
            # The longest comes last.
            if (member.joins, member.operands[: len(operands)]) == (axis, operands):
                parts = (join.result.name, *member.operands[len(operands) :])
        kept = {axes.get(p) for p in parts}
        taken = {p for j in self.made for p in j.parts}
        (along,) = kept if len(kept) == 1 else (None,)
        can_have = set(parts) <= known.keys() - taken
        ranks = {len(known[p].shape) for p in parts} if can_have else set()
        if not along or member.joins not in along or ranks != {len(along)}:
            raise ScheduleError("not all that is to lie side by side is made there, for this alone")
        place = along.index(member.joins)
        shape = list(sizes_of(known[parts[0]]))
        sizes = tuple(sizes_of(known[p])[place] for p in parts)
        shape[place] = sum(sizes)
        result = known[parts[0]].with_(name=member.result, shape=tuple(shape))
        axes[member.result] = along
        self.made.append(Join(result, parts, place, sizes))
        self.operands.append((member.joins, member.operands))


def _alike(piece: Kernel, before: Sequence[Kernel], joins: Sequence[Join]) -> Kernel:
    """A piece that reads what those before it make, or read, in the shape in which they do."""
    known = {b.name: sizes_of(b) for p in reversed(before) for b in (*p.inputs, *p.outputs)}
    known |= {j.result.name: sizes_of(j.result) for j in joins}
    for name in [b.name for b in piece.inputs if b.name in known]:
        piece = with_operand_shape(piece, name, known[name])
    return piece


def _find(pieces: Sequence[Kernel], name: str) -> Buffer:
    return next(b for p in pieces for b in p.inputs if b.name == name)


def _given(chip: ChipKernel, form: DeviceForm, kernel: Kernel, given: Buffer) -> Held:
    """How the chip holds an input of its form of the model's kernel."""
    filled = next(b for b in chip.filled.params if b.name == given.name)
    kind = TensorType(filled.dtype, filled.shape, chip.layouts.get(given.name))
    border = chip.borders.get(given.name, Border((0,) * len(filled.shape)))
    array = chip.form.made.get(given.name, MadeArray((given.name,)))
    numbers = {b.name: k for k, b in enumerate(kernel.inputs)}
    operands = tuple(numbers[name] for name in array.sources)
    if array.program is None:
        source = kernel.inputs[operands[0]]
        axes = form.axes[source.name]
        return Held(sizes_of(source), kind, axes, border.before, border.fill, operands=operands)
    shape = sizes_of(given)
    made = of_operands(array, [kernel.inputs[k] for k in operands], form.axes)
    axes = tuple(range(len(shape)))
    return Held(shape, kind, axes, border.before, border.fill, "", operands, made)


def _result(chip: ChipKernel, form: DeviceForm, given: Buffer) -> Held:
    """How the chip gives a result of the model's kernel."""
    filled = next(b for b in chip.filled.params if b.name == given.name)
    kind = TensorType(filled.dtype, filled.shape, chip.layouts.get(given.name))
    array, axes = chip.form.results.get(given.name), form.axes[given.name]
    before = (0,) * len(filled.shape)
    made = None if array is None else with_axes(array, sizes_of(given), axes)
    return Held(sizes_of(given), kind, axes, before, made=made)


def chip_part(device: str, kernels: Mapping[str, BuiltKernel], host: Target) -> DevicePart:
    """What the simulator of a chip is given."""
    chips = {name: built.chip for name, built in kernels.items() if built.chip is not None}
    streams = {name: (chip.stream, chip.kernel.params) for name, chip in chips.items()}
    runs = {name: device_run(c.timeline, c.target, c.predicted) for name, c in chips.items()}
    return simulator_part(device, streams, host, runs)


def chip_binary(built: BuiltKernel) -> Binary:
    """What the chip itself would be given for a kernel."""
    chip = built.chip
    assert chip is not None  # kernels that are submitted are built
    stream = chip.stream

    def placed(b: Buffer, contents: np.ndarray | None = None) -> PlacedArray:
        place = stream.places[b]
        return PlacedArray(b.name, b.dtype, sizes_of(b), place.memory, place.offset, contents)

    passed = {s.buffer for s in walk_statements(chip.kernel.body) if isinstance(s, Alloc)}
    parameters = tuple(placed(b) for b in chip.kernel.params)
    held = [(b in passed, placed(b, array)) for b, array in stream.constants.items()]
    tables, filled = (tuple(a for inside, a in held if inside is k) for k in (False, True))
    used = dict.fromkeys(a.memory for a in (*parameters, *tables, *filled))
    return Binary(
        chip.target.name, tuple(part_lengths(stream).tolist()), parameters, tables, filled,
        {name: stream.sizes[name] for name in used},
        code=lambda: chip.words().tobytes(),
        listing=lambda: _listing(chip),
        cores=stream.cores,
    )  # fmt: skip


def _listing(chip: ChipKernel) -> Iterator[str]:
    for core in range(chip.stream.cores):
        if chip.stream.cores > 1:
            yield f"core {core}"
        yield from disassemble(core_stream(chip.stream, core), chip.waits)


SIMULATED = DEVICES[SIMULATOR]
BUNDLES = Backend(
    "bundles", chip_options, chip_part, SIMULATOR, SIMULATED, subgraph_option, None, chip_binary
)
STREAM = Backend(
    "stream", chip_options, chip_part, SIMULATOR, SIMULATED, subgraph_option, chip_outlook,
    chip_binary,
)  # fmt: skip
