"""The forms of a kernel that a chip with queues does, each with the model that chooses its tiles,
and with cycles that no tiles of it beat."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from tilewright.base.errors import CompileError, TargetError, TilewrightError
from tilewright.base.remembered import Memo
from tilewright.ir.loop import For, Kernel, walk_statements
from tilewright.plan.analytic_model import analytic_model, bare_model
from tilewright.plan.borders import Borders, choose_borders
from tilewright.plan.bound import ContractionBound, find_bound, least_cycles
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.find_mappings import first_reason
from tilewright.plan.fused_rows import FusedChoices, fused_choices
from tilewright.plan.normal_form import normal_form
from tilewright.plan.place_inputs import placed_inputs
from tilewright.plan.places import Places, order_as_made
from tilewright.plan.stacked_inputs import stacks_of
from tilewright.plan.tile_model import TileModel
from tilewright.plan.unit_form import UnitForm, sizes_of
from tilewright.plan.unit_forms import unit_forms
from tilewright.plan.units import (
    has_contraction,
    is_contraction_alone,
    products_among_rows,
    units,
)
from tilewright.plan.vector_tiles import VectorChoices, vector_choices
from tilewright.target.target import Target

REFUSALS = (CompileError, TargetError)
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
    key: Hashable = field(default=None, compare=False)  # of a memo of one kernel


@dataclass(frozen=True)
class Wanted:
    """What forms are wanted: an author who names loops means the kernel's, and parameters named in
    `kept` are as they are in the kernel, those in `alone` not even a part of an array that the form
    takes instead. Those named in `in_order` lie in memory row by row;
    `places` says of some where their elements lie, which is followed where several inputs are taken
    as one, and with `as_made` everywhere."""

    control: Control = CHOSEN
    kept: Collection[str] = ()
    in_order: Collection[str] = ()
    places: Places = field(default_factory=dict)
    as_made: bool = False
    alone: frozenset[str] = frozenset()

    def forms(self, kernel: Kernel, target: Target) -> Iterator[UnitForm]:
        """The forms of a kernel that are wanted, first as it is."""
        control = self.control
        whole = control.whole if not isinstance(control.whole, bool) else ()
        named = {*control.tile, *whole}
        forms = unit_forms(normal_form(kernel), target, every_axis=bool(self.kept))
        for k, form in enumerate(forms):
            loops = {x.var.name for x in walk_statements(form.kernel.body) if isinstance(x, For)}
            held = {b.name for b in form.kernel.params}
            if not k or (named <= loops and self.alone <= held and form.keeps(self.kept)):
                yield form

    def orders(self, form: UnitForm) -> dict[str, tuple[int, ...]]:
        """The order of axes in memory, from outside inwards, of inputs that have one."""
        stacks = stacks_of(form)
        found: dict[str, tuple[int, ...]] = {}
        for b in form.kernel.params:
            stack = stacks.get(b.name)
            sources = (b.name,) if stack is None else stack.names
            size = math.prod(sizes_of(b)) // len(sources)
            rows = {n: np.arange(size) for n in sources if n in self.in_order}
            order = None
            if rows and stack is None:
                order = tuple(range(len(b.shape)))
            elif rows or stack is not None or self.as_made:
                order = order_as_made(form, b, stack, rows or self.places)
            if order is None:
                continue
            found[b.name] = order if stack is None else stack.whole_order(order)
            # Which others then find in that order.
            for out in form.kernel.outputs if not rows else ():
                if len(out.shape) == len(order) and (stack is None or stack.run == 1):
                    found[out.name] = order
        return found


ANY = Wanted()


def follows_places(kernel: Kernel, target: Target, wanted: Wanted) -> bool:
    """Whether a form of a kernel takes inputs as one array, among them some that are kept, so that
    what is found of it depends on where those lie."""
    for form in wanted.forms(kernel, target):
        stacked = {name for stack in stacks_of(form).values() for name in stack.names}
        if stacked & {*wanted.kept}:
            return True
    return False


def form_models(kernel: Kernel, target: Target, wanted: Wanted = ANY) -> Iterator[FormModel]:
    """The forms of a kernel that a chip does, first as it is; raises the first refusal if it does
    none."""
    count = 0
    refusals: list[TilewrightError] = []
    refused: list[UnitForm] = []
    memo = Memo()
    for k, form in enumerate(wanted.forms(kernel, target)):
        if (count and _stands_in(form)) or not form.is_wanted(refused):
            continue
        try:
            found = _all_modelled(k, form, target, wanted, memo)
        except REFUSALS as error:
            refusals.append(error)
            refused.append(form)
            continue
        count += 1
        yield from found
    if not count:
        raise first_reason(refusals)


class FormQueue:
    """The forms of a kernel that a chip does, those first that may take least. Each is modelled
    once its turn may have come, by what its unit and its operands take, whatever is made of the
    sums: most of a model is that. What is found goes to a `memo` of this kernel on this target,
    with the same parameters kept."""

    def __init__(
        self, kernel: Kernel, target: Target, wanted: Wanted = ANY, memo: Memo | None = None
    ) -> None:
        self.target, self.wanted, self.memo = target, wanted, memo or Memo()
        self.refusals: dict[int, TilewrightError] = {}  # by the number of the form
        self.bounds: list[ContractionBound] = []  # of those that are modelled
        self.left: list[tuple[float, int, int, UnitForm | FormModel]] = []
        self.last: list[tuple[int, UnitForm]] = []  # if the chip does none of the others
        self.refused: list[UnitForm] = []
        self.instead: list[tuple[int, UnitForm]] = []  # if the chip does not do another
        for k, form in enumerate(wanted.forms(kernel, target)):
            if _stands_in(form):
                self.last.append((k, form))
            elif form.is_wanted(self.refused):
                self._wait(k, form)
            else:
                self.instead.append((k, form))

    @property
    def floor(self) -> float:
        """Cycles that none of those left beats; infinitely many if there is none left. Raises the
        first refusal if the chip does none."""
        if not self.bounds:
            self._find()
        return self.left[0][0] if self.left else math.inf

    def take(self) -> FormModel | None:
        """The one that may take least; None where the chip does none of those left."""
        self._find()
        if not self.left:
            return None
        *_, found = heapq.heappop(self.left)
        assert isinstance(found, FormModel)
        return found

    @property
    def bound(self) -> ContractionBound:
        """What none of the forms beats. Raises the first refusal if the chip does none."""
        if not self.bounds:
            self._find()
        least = min(self.bounds, key=lambda b: b.cycles)
        while (
            self.left
            and isinstance(self.left[0][-1], UnitForm)
            and self.floor < least.cycles * (1 + SAME)  # forms of made arrays wait a little longer
        ):
            self._find()
            least = min(self.bounds, key=lambda b: b.cycles)
        return least

    def may_beat(self, cycles: float) -> bool:
        """Whether one of the forms may take fewer cycles than so many, which takes fewer models
        than to find the `bound`. Raises the first refusal if the chip does none."""
        if not self.bounds:
            self._find()
        while min(b.cycles for b in self.bounds) >= cycles:
            if not self.left or isinstance(self.left[0][-1], FormModel):
                return False
            if self.left[0][0] >= cycles * (1 + SAME):  # as forms of made arrays wait
                return False
            self._find()
        return True

    def _wait(self, k: int, form: UnitForm) -> None:
        """A form waits until it may be the one that takes least."""
        try:
            self._push(_least(k, form, self.target, self.wanted, self.memo), k, form)
        except REFUSALS as error:
            self.refusals[k] = error
            self.refuse(form)

    def refuse(self, form: UnitForm) -> None:
        """Takes note of a form that the chip does not do: others are wanted then."""
        self.refused.append(form)
        wanted = [x for x in self.instead if x[1].is_wanted(self.refused)]
        self.instead = [x for x in self.instead if not x[1].is_wanted(self.refused)]
        for other in wanted:
            self._wait(*other)

    def _push(self, cycles: float, k: int, form: UnitForm | FormModel, n: int = 0) -> None:
        made = form.made if isinstance(form, UnitForm) else form.form.made
        heapq.heappush(self.left, (cycles * (1 + SAME * bool(made)), k, n, form))

    def _find(self) -> None:
        """Models forms until the first of those left is modelled."""
        while not self.left or isinstance(self.left[0][-1], UnitForm):
            if not self.left:
                if self.bounds:
                    return
                if not self.last:
                    raise first_reason([e for _, e in sorted(self.refusals.items())])
                self.left, self.last = [(0.0, k, 0, form) for k, form in self.last], []
            _, k, _, form = heapq.heappop(self.left)
            assert isinstance(form, UnitForm)
            try:
                found = _all_modelled(k, form, self.target, self.wanted, self.memo)
            except REFUSALS as error:
                self.refusals[k] = error
                self.refuse(form)
                continue
            for n, each in enumerate(found):
                self.bounds.append(each.bound)
                self._push(each.bound.cycles, k, each, n)


def _stands_in(form: UnitForm) -> bool:
    """Whether a form is for what no instruction does with a number: arrays of one stand for it."""
    made = any(a.program is not None and not a.sources for a in form.made.values())
    return made and not has_contraction(form.kernel) and not products_among_rows(form.kernel)


def _least(k: int, form: UnitForm, target: Target, wanted: Wanted, memo: Memo) -> float:
    """Cycles that a form, of this number, takes at least, of what is known before it is
    modelled."""
    orders = wanted.orders(form)

    def find() -> float:
        kernel, _ = choose_borders(form.kernel, target)
        if not is_contraction_alone(kernel):
            return 0.0
        return min(_placed(kernel, target, lambda x: least_cycles(bare_model(x, target, orders))))

    return memo.of(("least", k, *sorted(orders.items())), find)


def _all_modelled(
    k: int, form: UnitForm, target: Target, wanted: Wanted, memo: Memo
) -> list[FormModel]:
    """A form, of this number, with its inputs where it may be fastest; also as others made them, be
    it with other axes between those that a whole unit takes."""
    found: list[FormModel] = []
    refusal: TilewrightError | None = None
    as_made = replace(wanted, as_made=True)
    several = bool(as_made.orders(form)) and any(u.whole for u in units(target))
    for between in (False, True) if several else (False,):
        try:
            orders = (as_made if between else wanted).orders(form)
            key = (k, between, *sorted(orders.items()))
            find = partial(_modelled, form, target, wanted.control, orders, between, key)
            found.append(memo.of(("model", key), find))
        except REFUSALS as error:
            refusal = refusal or error
    if not found:
        assert refusal is not None
        raise refusal
    return found


def _modelled(
    form: UnitForm, target: Target, control: Control, orders: Mapping[str, tuple[int, ...]],
    between: bool, key: Hashable,
) -> FormModel:  # fmt: skip
    """A form with its inputs where it may be fastest."""
    kernel, borders = choose_borders(form.kernel, target)

    def model(placed: Kernel) -> FormModel:
        return _placed_model(placed, form, borders, target, control, orders, between)

    found = min(_placed(kernel, target, model), key=lambda m: m.bound.cycles)
    return replace(found, key=key)


T = TypeVar("T")


def _placed(kernel: Kernel, target: Target, model: Callable[[Kernel], T]) -> list[T]:
    """What a model says of a kernel with its inputs where a chip takes them from: few of them
    elsewhere than they are, in each way to do that, since memories differ in their bandwidth."""
    refusal: TilewrightError | None = None
    found: list[T] = []
    fewest = 0
    for placed in placed_inputs(kernel, target):
        moved = sum(a != b for a, b in zip(placed.inputs, kernel.inputs, strict=True))
        if found and moved > fewest:
            break
        try:
            found.append(model(placed))
            fewest = moved
        except REFUSALS as error:
            refusal = refusal or error
    if not found:
        assert refusal is not None  # the kernel as it is comes first
        raise refusal
    return found


def _placed_model(
    kernel: Kernel, form: UnitForm, borders: Borders, target: Target, control: Control,
    orders: Mapping[str, tuple[int, ...]], between: bool,
) -> FormModel:  # fmt: skip
    """A kernel as an instruction of several steps does it, or as others do."""
    if is_contraction_alone(kernel):
        model = analytic_model(kernel, target, orders, between=between)
        return FormModel(form, kernel, borders, model, find_bound(model))
    fused = fused_choices(kernel, target, control)
    if fused is not None:
        return FormModel(form, kernel, borders, fused, fused.bound)
    choices = vector_choices(kernel, target, control)
    return FormModel(form, kernel, borders, choices, choices.bound)
