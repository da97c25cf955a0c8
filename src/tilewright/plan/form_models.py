"""The forms of a kernel that a chip with queues does, each with the model that chooses its tiles,
and with cycles that no tiles of it beat."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tilewright.base.errors import CompileError, TargetError, TilewrightError
from tilewright.ir.loop import For, Kernel, walk_statements
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.borders import Borders, choose_borders
from tilewright.plan.bound import ContractionBound, find_bound
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.fused_rows import FusedChoices, fused_choices
from tilewright.plan.normal_form import normal_form
from tilewright.plan.place_inputs import placed_inputs
from tilewright.plan.places import Places, order_as_made
from tilewright.plan.stacked_inputs import stacks_of
from tilewright.plan.tile_model import TileModel
from tilewright.plan.unit_form import UnitForm, sizes_of
from tilewright.plan.unit_forms import unit_forms
from tilewright.plan.units import has_contraction
from tilewright.plan.vector_tiles import VectorChoices, vector_choices
from tilewright.target.target import Target

SAME = 0.001  # of the cycles: no difference, and arrays as they are come first


@dataclass(frozen=True)
class FormModel:
    """A form of a kernel, with the borders that its inputs get, the model of its contraction, or
    its tiles if it has none, and the cycles that it takes at least."""

    form: UnitForm
    kernel: Kernel  # of the form, with borders
    borders: Borders
    model: TileModel | VectorChoices | FusedChoices
    bound: ContractionBound


def form_models(
    kernel: Kernel,
    target: Target,
    control: Control = CHOSEN,
    kept: Collection[str] = (),
    in_order: Collection[str] = (),
    places: Places = MappingProxyType({}),
    as_made: bool = False,
) -> Iterator[FormModel]:
    """The forms of a kernel, first as it is; raises the first refusal if the chip does none. An
    author who names loops means the kernel's: forms that have others are left out, as are those in
    which the parameters named in `kept` are not as they are in the kernel. Those named in
    `in_order` lie in memory row by row; `places` says of some where their elements lie, which is
    followed where several inputs are taken as one, and with `as_made` everywhere."""
    named = set(control.tile) | set(control.whole if not isinstance(control.whole, bool) else ())
    count = 0
    refusal: TilewrightError | None = None
    for k, form in enumerate(unit_forms(normal_form(kernel), target)):
        loops = {x.var.name for x in walk_statements(form.kernel.body) if isinstance(x, For)}
        if k and not (named <= loops and form.keeps(kept)):
            continue
        if count and _has_constants(form) and not has_contraction(form.kernel):
            continue  # which are for what no instruction does with a number
        try:
            found = _modelled(form, target, control, _orders(form, in_order, places, as_made))
        except (CompileError, TargetError) as error:
            refusal = refusal or error
            continue
        count += 1
        yield found
    if refusal is not None and not count:
        raise refusal


def _has_constants(form: UnitForm) -> bool:
    """Whether arrays of a number stand for numbers."""
    return any(a.program is not None and not a.sources for a in form.made.values())


def least_first(models: Iterable[FormModel]) -> list[FormModel]:
    """Those first that may take least."""
    return sorted(models, key=lambda m: m.bound.cycles * (1 + SAME * bool(m.form.made)))


def _modelled(
    form: UnitForm, target: Target, control: Control, orders: Mapping[str, tuple[int, ...]]
) -> FormModel:
    """A form with its inputs where the chip takes them from: few of them elsewhere than they are,
    and of as many those with which it may be fastest, since memories differ in their bandwidth."""
    kernel, borders = choose_borders(form.kernel, target)
    refusal: TilewrightError | None = None
    found: list[tuple[int, FormModel]] = []
    for placed in placed_inputs(kernel, target):
        moved = sum(a != b for a, b in zip(placed.inputs, kernel.inputs, strict=True))
        if found and moved > found[0][0]:
            break
        try:
            model = _placed_model(placed, form, borders, target, control, orders)
            found.append((moved, model))
        except (CompileError, TargetError) as error:
            refusal = refusal or error
    if not found:
        assert refusal is not None  # the kernel as it is comes first
        raise refusal
    return min((model for _, model in found), key=lambda m: m.bound.cycles)


def _orders(
    form: UnitForm, in_order: Collection[str], places: Places, as_made: bool
) -> dict[str, tuple[int, ...]]:
    """The order of axes in memory, from outside inwards, of inputs that have one."""
    stacks = stacks_of(form)
    found: dict[str, tuple[int, ...]] = {}
    for b in form.kernel.params:
        stack = stacks.get(b.name)
        sources = (b.name,) if stack is None else stack.names
        size = math.prod(sizes_of(b)) // len(sources)
        rows = {n: np.arange(size) for n in sources if n in in_order}
        order = None
        if rows and stack is None:
            order = tuple(range(len(b.shape)))
        elif rows or stack is not None or as_made:
            order = order_as_made(form, b, stack, rows or places)
        if order is None:
            continue
        found[b.name] = order if stack is None else stack.whole_order(order)
        for out in form.kernel.outputs if not rows else ():  # which others then find in that order
            if len(out.shape) == len(order) and (stack is None or stack.run == 1):
                found[out.name] = order
    return found


def _placed_model(
    kernel: Kernel, form: UnitForm, borders: Borders, target: Target, control: Control,
    orders: Mapping[str, tuple[int, ...]],
) -> FormModel:  # fmt: skip
    """A kernel as an instruction of several steps does it, or as others do."""
    if has_contraction(kernel):
        model = analytic_model(kernel, target, orders)
        return FormModel(form, kernel, borders, model, find_bound(model))
    fused = fused_choices(kernel, target, control)
    if fused is not None:
        return FormModel(form, kernel, borders, fused, fused.bound)
    choices = vector_choices(kernel, target, control)
    return FormModel(form, kernel, borders, choices, choices.bound)
