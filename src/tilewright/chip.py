"""Kernels on chips that have queues: scheduled from the description, run on its simulators.

    f = build_chip(gemm.kernel, tiny())
    c = f(a, b, c)            the functional simulator: to the bit
    f.timeline.cycles         the timed one

A few of the best tiles by the analytic model are built and timed; the fastest stays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType

from tilewright.backends.stream.addresses import check_capacity
from tilewright.base.errors import CompileError, ScheduleError, TargetError, TilewrightError
from tilewright.base.passes import Watch, unwatched
from tilewright.base.remembered import Memo
from tilewright.build_pieces import Check, Known, PieceBuilder, PieceRefused, build_pieces
from tilewright.bundle_forms import build_in_bundles
from tilewright.chip_kernel import (
    ChipKernel,
    check_sizes,
    stream_kernel,
)
from tilewright.form_tiles import GAIN, FormTiles, expected_cycles, with_tiles
from tilewright.ir.loop import Kernel
from tilewright.join_pieces import join_pieces
from tilewright.passed_arrays import OtherOrder
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.bound import ContractionBound
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.fastest import build_fastest
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.form_models import FormQueue, Wanted, follows_places, form_models
from tilewright.plan.fused_rows import FusedChoices, FusedPlan, tile_fused
from tilewright.plan.limit_forms import limits_apart
from tilewright.plan.normal_form import normal_form
from tilewright.plan.places import Places
from tilewright.plan.restrict_tiles import no_tile, no_tile_fits
from tilewright.plan.row_products import fill_products
from tilewright.plan.same_kernels import with_plain_names
from tilewright.plan.split_kernel import Split, check_written_once, has_pieces, split_kernel
from tilewright.plan.stacked_inputs import (
    Stacks,
    borders_of_sources,
    form_of_sources,
    stacks_of,
)
from tilewright.plan.tile_model import TileModel
from tilewright.plan.unit_form import UnitForm
from tilewright.plan.vector_model import VectorChoice
from tilewright.plan.vector_schedule import tile_vectors
from tilewright.plan.vector_tiles import VectorChoices, row_sizes, vector_choices
from tilewright.plan.window_rows import rows_apart
from tilewright.resident_arrays import Residents
from tilewright.runtime.processes import in_processes
from tilewright.schedule.schedule import Schedule
from tilewright.share_cores import build_on_cores
from tilewright.target.cores import all_cores, one_core
from tilewright.target.target import Target

TRIES = 4  # tiles that are built and timed
# Another form is built while less than so many times the cycles of the fastest one are expected of
# it: CLOSE where that took MISJUDGED times what was expected, or else SURE; GAIN from FORMS on.
FORMS = 3
CLOSE, SURE, MISJUDGED = 1.1, 0.985, 1.02
# No tile is built of which more than what is built, divided by this, is expected, and no form whose
# bound is at least so much of what is built.
NEAR = 0.997


def lower_bound(kernel: Kernel, target: Target) -> ContractionBound:
    """Cycles that no schedule of a kernel with one contraction, or none, can beat, in the form of
    which that is least; on all cores, where there are several. Where the chip cannot guard reads,
    what lies around an input are bytes to bring. TargetError where its arrays are more than there
    is room for."""
    check_capacity([kernel], target)
    return _bound_of_core(kernel, target).shared(target.cores)


def _bound_of_core(kernel: Kernel, target: Target) -> ContractionBound:
    """The same of one core, with the bandwidth of all."""
    return FormQueue(kernel, all_cores(target)).bound


def check_form(kernel: Kernel, target: Target) -> None:
    """Raises what `build_chip` would if the chip does no form of a kernel with one contraction, or
    none: most of that without choosing tiles. TargetError where its arrays are more than there is
    room for."""
    check_capacity([kernel], target)
    check_written_once(normal_form(kernel))
    next(form_models(kernel, target))


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
    check_capacity([kernel], target)
    order = tuple(parameters) or tuple(b.name for b in kernel.params)
    return replace(_build_whole(kernel, target, control, order), source=kernel)


def _build_whole(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """A kernel that the chip does at once; or in pieces, where it has several contractions, or
    reductions behind one. All of a chip's cores do it."""
    if target.cores > 1:
        return _build_shared(kernel, target, control, parameters)
    plain = normal_form(kernel)
    check_written_once(plain)
    if not has_pieces(plain):
        try:
            return _build_alone(kernel, target, control, parameters)
        except (CompileError, TargetError) as error:
            refused = error
        apart = limits_apart(plain)
        if apart is None:
            raise refused
        try:
            _build_alone(apart[1], target, CHOSEN, ())  # which says soonest that it cannot be
            return _build_pieces(kernel, Split(apart), target, control, parameters)
        except (CompileError, TargetError):
            raise refused from None
    split = split_kernel(plain, target)
    rows, refusal = None, None
    if target.bundles is None and row_sizes(target):
        try:
            filled = fill_products(plain, target)
        except ScheduleError as error:
            filled, refusal = None, error
        if filled is not None:
            rows = _build_rows(plain, filled, target, control, parameters)
    if rows is not None and rows.cycles <= _least_of_pieces(split, target):
        return rows
    try:
        pieces = _build_pieces(kernel, split, target, control, parameters)
    except PieceRefused as error:
        if rows is None:
            raise refusal or error from None
        return rows
    return pieces if rows is None or pieces.cycles < rows.cycles else rows


def _build_alone(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """A kernel that a chip does at once, by itself."""
    if target.bundles is not None:
        return build_in_bundles(kernel, target, control, parameters)
    return _build_stream(kernel, target, Wanted(control), parameters)


def _build_rows(
    kernel: Kernel, filled: Kernel, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel | None:
    """A kernel with products, `filled` to what a matrix unit takes, in tiles of rows that never
    leave the chip: the unit makes its sums, and element-wise instructions all else; None where
    they cannot."""
    try:
        found = vector_choices(filled, target, control)
        built = _build_vectors(filled, target, control, parameters, found)
    except (CompileError, TargetError):
        return None
    return replace(built, form=UnitForm(kernel), bound=found.bound)


def _build_pieces(
    kernel: Kernel, split: Split, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """The same with what passes between products outside; row by row, where a piece refuses other
    orders, and with rows of windows made by a piece of their own, where it refuses any."""
    try:
        return build_split(kernel, split, target, control, parameters)
    except PieceRefused as error:
        refusal = error
    try:
        return build_split(kernel, split, target, control, parameters, in_order=True)
    except PieceRefused:
        pass
    apart = _with_rows_apart(split, refusal.number)
    if apart is not None:
        try:
            return _build_pieces(kernel, apart, target, control, parameters)
        except PieceRefused:
            pass
    raise refusal


def _with_rows_apart(split: Split, number: int) -> Split | None:
    """The pieces with another one before that of a number, which makes rows of the windows that it
    reads of what passes; None where it reads none."""
    before, piece, after = split.pieces[:number], split.pieces[number], split.pieces[number + 1 :]
    for name in (b.name for b in piece.inputs if b.name in split.passed.keys() - split.in_order):
        apart = rows_apart(piece, name)
        if apart is not None:
            (made,) = apart[0].outputs
            pieces = (*before, *apart, *after)
            return replace(split, pieces=pieces, in_order=split.in_order | {made.name})
    return None


def _least_of_pieces(split: Split, target: Target) -> float:
    """Cycles that no schedule of its pieces, one after the other, can beat; 0 where the chip does
    not do one of them."""
    try:
        return sum(_least(target, piece, frozenset()) for piece in split.pieces)
    except (CompileError, TargetError):
        return 0.0


def _build_shared(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """A kernel on a chip of several cores."""

    def build(part: Kernel, core: Target) -> ChipKernel:
        built = _build_whole(part, core, control, [b.name for b in part.params])
        return replace(built, source=part)

    def expect(part: Kernel, core: Target) -> float:
        plain = normal_form(part)
        if not has_pieces(plain):
            return expected_cycles(part, control, core) or math.inf
        return _least_of_pieces(split_kernel(plain, core), core) or math.inf

    try:
        bound = _bound_of_core(kernel, target)
    except (CompileError, TargetError):
        bound = None  # of several contractions
    return build_on_cores(kernel, target, build, expect, bound, parameters)


def build_split(
    kernel: Kernel,
    split: Split,
    target: Target,
    control: Control,
    parameters: Sequence[str],
    known: Known | None = None,
    *,
    in_order: bool = False,
    watch: Watch = unwatched,
) -> ChipKernel:
    """A kernel that is split already, piece by piece; of those that are `known` none is built. With
    `in_order`, all that passes between pieces lies row by row; without, what a piece would take in
    another order than it was made in does. One core does them all. `watch` is told of it."""
    target = one_core(target)
    check_capacity(split.pieces, target)

    def build(
        piece: Kernel, left: Target, kept: Collection[str], check: Check, places: Places,
        rows: Collection[str], memo: Memo,
    ) -> ChipKernel:  # fmt: skip
        rows = kept if in_order else rows
        if target.bundles is not None:
            return build_in_bundles(piece, left, control, (), kept, check, places, memo)
        wanted = Wanted(control, kept, rows, places)
        try:
            return _build_stream(piece, left, wanted, (), check, memo)
        except OtherOrder:
            pass
        try:
            return _build_stream(piece, left, replace(wanted, as_made=True), (), check, memo)
        except (CompileError, TargetError):
            return _build_stream(piece, left, Wanted(control, kept, kept), (), check, memo)

    def independent(piece: Kernel, left: Target, kept: Collection[str]) -> bool:
        made = {b.name for b in piece.inputs} & {*kept}
        if target.bundles is not None:  # which follow all that was made
            return not made
        return not made or not follows_places(piece, left, Wanted(control, kept))

    def may_beat(piece: Kernel, kept: frozenset[str], memo: Memo, cycles: float) -> bool:
        if control != CHOSEN:  # an author's models are others than the bound's
            return _least(target, piece, kept) < cycles
        models = partial(FormQueue, piece, target, Wanted(kept=kept), memo)
        return memo.of(("beats", cycles), lambda: models().may_beat(cycles))

    builder = PieceBuilder(build, may_beat, independent, in_processes, watch)

    def joined(residents: Residents) -> ChipKernel:
        pieces = build_pieces(split, target, builder, known, residents)
        watch("streams proven", 0, 1)
        return join_pieces(kernel, split, target, pieces, parameters)

    residents = Residents(
        split, target, lambda piece: _takes_inside(target, with_plain_names(piece)[0])
    )
    if residents.memory is not None:
        try:
            return joined(residents)
        except (CompileError, TargetError):
            pass  # there is no room, or what is made inside is not as others take it
    return joined(Residents(split, target, lambda piece: False))


@lru_cache(maxsize=256)  # layers are often equal
def _least(target: Target, piece: Kernel, kept: frozenset[str]) -> float:
    """Cycles that no form of a piece, with the parameters named in `kept` as they are, can beat."""
    return FormQueue(piece, target, Wanted(kept=kept)).bound.cycles


@lru_cache(maxsize=256)
def _takes_inside(target: Target, kernel: Kernel) -> bool:
    """Whether a chip does a kernel with its parameters where they lie, some in its own memory."""
    inside = {b.name: b.memory for b in kernel.params if target.memory(b.memory).size is not None}
    try:
        for found in form_models(kernel, target, Wanted(kept=inside, alone=frozenset(inside))):
            if inside.items() <= {b.name: b.memory for b in found.kernel.params}.items():
                return True
    except (CompileError, TargetError):
        pass
    return False


def _build_stream(
    kernel: Kernel,
    target: Target,
    wanted: Wanted,
    parameters: Sequence[str],
    check: Check = lambda chip: None,
    memo: Memo | None = None,
) -> ChipKernel:
    """The fastest of a kernel's forms, of those that are wanted and pass a check. A `memo` has what
    was found of them before, with the same parameters kept."""
    memo, control = memo or Memo(), wanted.control
    models = FormQueue(kernel, target, wanted, memo)
    best: ChipKernel | None = None
    refusals: list[TilewrightError] = []
    count, limit = 0, CLOSE

    def useful() -> float:
        """Cycles that a form must be able to beat, whatever its model says."""
        return math.inf if best is None else best.cycles * NEAR

    for tiled in with_tiles(models, control, refusals, below=useful):
        if best is not None and tiled.expected >= best.cycles * limit:
            break
        if tiled.found.bound.cycles >= useful():
            continue
        try:
            question = ("built", tiled.found.key)
            build = partial(_build_form, tiled, target, control, parameters)
            built = memo.of(question, build)
            check(built)
        except (CompileError, TargetError) as error:
            refusals.append(error)
            models.refuse(tiled.found.form)
            continue
        count += 1
        misjudged = built.cycles > MISJUDGED * tiled.expected
        limit = (CLOSE if misjudged else SURE) if count < FORMS else GAIN
        best = built if best is None or built.cycles < best.cycles else best
    if best is None:
        raise next((e for e in refusals if isinstance(e, OtherOrder)), refusals[0])
    return replace(best, bound=models.bound)


def _build_form(
    tiled: FormTiles, target: Target, control: Control, parameters: Sequence[str]
) -> ChipKernel:
    """A kernel in one of its forms, of its arrays where they lie rather than of one that has them
    one after the other."""
    stacks = stacks_of(tiled.found.form)
    if stacks and isinstance(tiled.found.model, TileModel):
        try:
            return _build_stacks(tiled, target, control, parameters, stacks)
        except ScheduleError:
            pass  # the host makes one array of them
    return _build_stacks(tiled, target, control, parameters, {})


def _build_stacks(
    tiled: FormTiles, target: Target, control: Control, parameters: Sequence[str], stacks: Stacks
) -> ChipKernel:
    """The same, where `stacks` are read as the arrays that they are made of."""
    kernel, model = tiled.found.kernel, tiled.found.model
    if isinstance(model, VectorChoices):
        best = _build_vectors(kernel, target, control, parameters, model)
    elif isinstance(model, FusedChoices):
        best = _build_fused(kernel, target, control, parameters, model)
    else:
        best = _build_contraction(tiled, target, control, parameters, model, stacks)
    # The model knows of no order but that of tiles.
    expect = None if control.serial else partial(expected_cycles, kernel, control)
    form, borders = tiled.found.form, borders_of_sources(tiled.found.borders, stacks)
    return replace(best, form=form_of_sources(form, stacks), borders=borders, expect=expect)


def _build_contraction(
    tiled: FormTiles, target: Target, control: Control, parameters: Sequence[str],
    model: TileModel, stacks: Stacks,
) -> ChipKernel:  # fmt: skip
    """A kernel with a contraction, on a unit that contracts."""
    kernel = tiled.found.kernel
    choices = [c for c in tiled.tiles if isinstance(c, Choice)]
    if not choices:
        raise no_tile(kernel, model, control)
    return build_fastest(
        choices,
        lambda choice: build_choice(kernel, target, choice, control, parameters, stacks),
        tries=TRIES,
        near=NEAR,
        kind=lambda choice: (*choice.plan.tile.values(), *choice.plan.order),
    )


def _build_vectors(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str],
    found: VectorChoices,
) -> ChipKernel:  # fmt: skip
    """A kernel without a contraction, on a chip's element-wise instructions."""

    def build(choice: VectorChoice) -> ChipKernel:
        s = Schedule(choice.form.kernel)
        tiled = tile_vectors(s, target, choice.plan, choice.form, overlap=control.overlap)
        built = stream_kernel(s, target, parameters, tiled.layouts, serial=control.serial)
        tile = {v.name: n for v, n in choice.plan.tile.items()}
        return replace(built, filled=choice.form.source, predicted=choice.cycles, tile=tile)

    if not found.plans:
        raise no_tile_fits(kernel, target, control)
    return build_fastest(found.plans, build, tries=TRIES, near=NEAR)


def _build_fused(
    kernel: Kernel, target: Target, control: Control, parameters: Sequence[str],
    found: FusedChoices,
) -> ChipKernel:  # fmt: skip
    """A kernel that is one instruction of several steps, in tiles of rows."""

    def build(plan: FusedPlan) -> ChipKernel:
        s = Schedule(kernel)
        tile_fused(s, target, plan, overlap=control.overlap)
        built = stream_kernel(s, target, parameters, serial=control.serial)
        return replace(built, predicted=plan.cycles, tile={plan.loop: plan.rows})

    return build_fastest(found.plans, build, tries=TRIES, near=NEAR)


def build_choice(
    kernel: Kernel,
    target: Target,
    choice: Choice,
    control: Control = CHOSEN,
    parameters: Sequence[str] = (),
    stacks: Stacks = MappingProxyType({}),
) -> ChipKernel:
    """The kernel with certain tiles: what `choose_tiles` offers, or a plan of the caller's. Of
    `stacks` it has the arrays that these are made of."""
    s = Schedule(fill_kernel(kernel, choice.plan.extents))
    layouts = tile_for_unit(s, target, choice.plan, overlap=control.overlap, stacks=stacks)
    unit = choice.plan.unit.instruction
    built = stream_kernel(
        s, target, parameters, layouts, serial=control.serial, shared=unit, stacks=stacks
    )
    tile = {v.name: n for v, n in choice.plan.tile.items()}
    return replace(built, source=kernel, predicted=choice.cycles, tile=tile)
