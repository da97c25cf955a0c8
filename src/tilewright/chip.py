"""Kernels on chips that have queues: scheduled from the description, run on its simulators.

    f = build_chip(gemm.kernel, tiny())
    c = f(a, b, c)            the functional simulator: to the bit
    f.timeline.cycles         the timed one

A few of the best tiles by the analytic model are built and timed; the fastest stays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType

from tilewright.backends.bundles.build import best_plans, build_bundles
from tilewright.backends.bundles.choose import BundleChoice, choose_plans, least_cycles
from tilewright.backends.stream.addresses import check_capacity
from tilewright.base.errors import CompileError, ScheduleError, TargetError, TilewrightError
from tilewright.chip_kernel import (
    ChipKernel,
    bundle_kernel,
    check_order,
    check_sizes,
    stream_kernel,
)
from tilewright.form_tiles import GAIN, FormTiles, InOrder, most_promising, with_tiles
from tilewright.ir.loop import Kernel
from tilewright.join_pieces import Check, Known, PieceRefused, build_pieces, join_pieces
from tilewright.passed_arrays import OtherOrder
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.borders import Borders, choose_borders
from tilewright.plan.bound import ContractionBound
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.fastest import build_fastest
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.form_models import SAME, FormQueue, Wanted, form_models
from tilewright.plan.fused_rows import FusedChoices, FusedPlan, tile_fused
from tilewright.plan.limit_forms import limits_apart
from tilewright.plan.normal_form import normal_form
from tilewright.plan.places import Places, orders_of, with_room
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
from tilewright.plan.unit_forms import unit_forms
from tilewright.plan.vector_model import VectorChoice
from tilewright.plan.vector_schedule import tile_vectors
from tilewright.plan.vector_tiles import VectorChoices, row_sizes, vector_choices
from tilewright.plan.window_rows import rows_apart
from tilewright.resident_arrays import Residents
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
        build = _build_stream if target.bundles is None else _build_bundles
        try:
            return build(kernel, target, control, parameters)
        except (CompileError, TargetError) as error:
            refused = error
        apart = limits_apart(plain)
        if apart is None:
            raise refused
        try:
            build(apart[1], target, CHOSEN, ())  # which says soonest that it cannot be
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
) -> ChipKernel:
    """A kernel that is split already, piece by piece; of those that are `known` none is built. With
    `in_order`, all that passes between pieces lies row by row; without, what a piece would take in
    another order than it was made in does. One core does them all."""
    target = one_core(target)
    check_capacity(split.pieces, target)

    def build(
        piece: Kernel, left: Target, kept: Collection[str], check: Check, places: Places,
        rows: Collection[str],
    ) -> ChipKernel:  # fmt: skip
        rows = kept if in_order else rows
        if target.bundles is not None:
            return _build_bundles(piece, left, control, (), kept, check, places)
        try:
            return _build_stream(piece, left, control, (), kept, check, rows, places)
        except OtherOrder:
            pass
        try:
            return _build_stream(piece, left, control, (), kept, check, rows, places, as_made=True)
        except (CompileError, TargetError):
            return _build_stream(piece, left, control, (), kept, check, kept)

    def joined(residents: Residents) -> ChipKernel:
        pieces = build_pieces(split, target, build, partial(_least, target), known, residents)
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
    control: Control,
    parameters: Sequence[str],
    kept: Collection[str] = (),
    check: Check = lambda chip: None,
    in_order: Collection[str] = (),
    places: Places = MappingProxyType({}),
    *,
    as_made: bool = False,
) -> ChipKernel:
    """The fastest of a kernel's forms, of those that may be, have the parameters named in `kept`
    as they are, and those in `in_order` row by row, and pass a check. `places` says where in
    memory those are that were made before, of which the order is kept with `as_made`."""
    models = FormQueue(kernel, target, Wanted(control, kept, in_order, places, as_made))
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
            built = _build_form(tiled, target, control, parameters)
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


def _build_bundles(
    kernel: Kernel,
    target: Target,
    control: Control,
    parameters: Sequence[str],
    kept: Collection[str] = (),
    check: Check = lambda chip: None,
    places: Places = MappingProxyType({}),
) -> ChipKernel:
    """A kernel's form of which least cycles are expected, of those that a statically scheduled chip
    does, have the parameters named in `kept` as they are, and pass a check; another one where that
    is built slower than expected, and slower than the other may be. `places` says where in memory
    those are that were made before."""
    check_order(target, control.serial)
    refusals: list[TilewrightError] = []
    best: ChipKernel | None = None
    for form in _bundle_forms(kernel, target, control, kept, places, refusals):
        if best is not None and form.expected >= best.cycles * GAIN:
            break
        stacks = stacks_of(form.form)
        made = {n for stack in stacks.values() for n in stack.names}
        ways: list[Stacks] = [stacks] if stacks else []
        if not made & {*kept}:
            ways.append({})  # the host makes one array of them
        for each in ways:
            try:
                built = _built_form(form, target, control, parameters, each)
                check(built)
            except (CompileError, TargetError) as error:
                refusals.append(error)
                continue
            best = built if best is None or built.cycles < best.cycles else best
            break
    if best is None:
        raise refusals[0]  # the kernel itself is a form
    return best


@dataclass(frozen=True)
class _BundleForm:
    """A form of a kernel, with its borders, and its plans, the most promising first."""

    form: UnitForm
    kernel: Kernel
    borders: Borders
    choices: Sequence[BundleChoice]

    @property
    def expected(self) -> float:
        """Cycles; arrays as they are come first."""
        return self.choices[0].cycles * (1 + SAME * bool(self.form.made))


def _bundle_forms(
    kernel: Kernel,
    target: Target,
    control: Control,
    kept: Collection[str],
    places: Places,
    refusals: list[TilewrightError],
) -> Iterator[_BundleForm]:
    """The forms of a kernel that may suit a statically scheduled chip, the most promising first;
    those of which the chip does nothing add to the refusals. Plans are made of a form once it may
    be the best."""
    waiting: list[tuple[float, tuple[UnitForm, Kernel, Borders]]] = []
    refused: list[UnitForm] = []
    # Registers hold parts of lines, so that axes stay as they are.
    forms = unit_forms(normal_form(kernel), target, fused=False, every_axis=bool(kept))
    for k, form in enumerate(forms):
        if k and not (form.keeps(kept, in_order=False) and form.is_wanted(refused)):
            continue
        wider, borders = choose_borders(form.kernel, target)
        wider = with_room(wider, {n: at for n, at in places.items() if n not in form.made})
        try:
            waiting.append((least_cycles(wider, target), (form, wider, borders)))
        except (CompileError, TargetError) as error:
            refusals.append(error)
            refused.append(form)

    def planned(found: tuple[UnitForm, Kernel, Borders]) -> _BundleForm | None:
        form, wider, borders = found
        try:
            plans = best_plans(wider, target, control, orders_of(form, places))
        except (CompileError, TargetError) as error:
            refusals.append(error)
            return None
        return _BundleForm(form, wider, borders, plans)

    return most_promising(InOrder(reversed(waiting)), planned)  # of equal ones the particular first


def _built_form(
    form: _BundleForm, target: Target, control: Control, parameters: Sequence[str], stacks: Stacks
) -> ChipKernel:
    """A form in bundles, where `stacks` are read as the arrays that they are made of."""
    bundled = build_bundles(form.kernel, target, form.choices, control, stacks)
    found = bundle_kernel(
        bundled.kernel, bundled.scheduled, bundled.program, target, parameters, bundled.layouts
    )
    return replace(
        found, form=form_of_sources(form.form, stacks),
        borders=borders_of_sources(form.borders, stacks), predicted=bundled.predicted,
        tile=bundled.tile, expect=partial(expected_cycles, form.kernel, control),
    )  # fmt: skip


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


def expected_cycles(kernel: Kernel, control: Control, target: Target) -> float | None:
    """What the models expect of the best tiles of all forms on a chip; None if no tile fits."""
    if target.bundles is not None:
        return next((c.cycles for c in choose_plans(kernel, target, control)), None)
    found = with_tiles(FormQueue(kernel, target, Wanted(control)), control, [], gain=1.0)
    best = next(found, None)
    return None if best is None else min((t.cycles for t in best.tiles), default=None)


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
