"""Kernels on statically scheduled chips, in the form of which fewest cycles are expected."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from tilewright.backends.bundles.build import best_plans, build_bundles
from tilewright.backends.bundles.choose import BundleChoice, least_cycles
from tilewright.base.errors import CompileError, TargetError, TilewrightError
from tilewright.base.remembered import Memo
from tilewright.build_pieces import Check
from tilewright.chip_kernel import ChipKernel, bundle_kernel, check_order
from tilewright.form_tiles import GAIN, InOrder, expected_cycles, most_promising
from tilewright.ir.loop import Kernel
from tilewright.plan.borders import Borders, choose_borders
from tilewright.plan.control import Control
from tilewright.plan.form_models import SAME
from tilewright.plan.normal_form import normal_form
from tilewright.plan.places import Places, orders_of, with_room
from tilewright.plan.stacked_inputs import (
    Stacks,
    borders_of_sources,
    form_of_sources,
    stacks_of,
)
from tilewright.plan.unit_form import UnitForm
from tilewright.plan.unit_forms import unit_forms
from tilewright.target.target import Target


def build_in_bundles(
    kernel: Kernel,
    target: Target,
    control: Control,
    parameters: Sequence[str],
    kept: Collection[str] = (),
    check: Check = lambda chip: None,
    places: Places = MappingProxyType({}),
    memo: Memo | None = None,
) -> ChipKernel:
    """A kernel's form of which least cycles are expected, of those that a statically scheduled chip
    does, have the parameters named in `kept` as they are, and pass a check; another one where that
    is built slower than expected, and slower than the other may be. `places` says where in memory
    those are that were made before; a `memo` has what was found of them before, with the same
    parameters kept."""
    memo = memo or Memo()
    check_order(target, control.serial)
    refusals: list[TilewrightError] = []
    best: ChipKernel | None = None
    for form in _bundle_forms(kernel, target, control, kept, places, refusals, memo):
        if best is not None and form.expected >= best.cycles * GAIN:
            break
        stacks = stacks_of(form.form)
        made = {n for stack in stacks.values() for n in stack.names}
        ways: list[Stacks] = [stacks] if stacks else []
        if not made & {*kept}:
            ways.append({})  # the host makes one array of them
        for each in ways:
            try:
                build = partial(_built_form, form, target, control, parameters, each)
                built = memo.of(("built", form.key, bool(each)), build)
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
    key: Hashable  # of a memo of one kernel

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
    memo: Memo,
) -> Iterator[_BundleForm]:
    """The forms of a kernel that may suit a statically scheduled chip, the most promising first;
    those of which the chip does nothing add to the refusals. Plans are made of a form once it may
    be the best."""
    waiting: list[tuple[float, tuple[int, UnitForm, Kernel, Borders]]] = []
    refused: list[UnitForm] = []
    # Registers hold parts of lines, so that axes stay as they are.
    forms = unit_forms(normal_form(kernel), target, fused=False, every_axis=bool(kept))
    for k, form in enumerate(forms):
        if k and not (form.keeps(kept, in_order=False) and form.is_wanted(refused)):
            continue
        wider, borders = choose_borders(form.kernel, target)
        wider = with_room(wider, {n: at for n, at in places.items() if n not in form.made})
        try:
            least = memo.of(("least", wider), partial(least_cycles, wider, target))
            waiting.append((least, (k, form, wider, borders)))
        except (CompileError, TargetError) as error:
            refusals.append(error)
            refused.append(form)

    def planned(found: tuple[int, UnitForm, Kernel, Borders]) -> _BundleForm | None:
        k, form, wider, borders = found
        orders = orders_of(form, places)
        key = (wider, *sorted(orders.items()))
        try:
            find = partial(best_plans, wider, target, control, orders)
            plans = memo.of(("plans", key), find)
        except (CompileError, TargetError) as error:
            refusals.append(error)
            return None
        return _BundleForm(form, wider, borders, plans, (k, *key))

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
