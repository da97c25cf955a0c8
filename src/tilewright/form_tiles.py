"""The forms of a kernel with their tiles, in the order in which they are worth building: bounds say
which forms may be fast, models which are expected to be."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tilewright.backends.bundles.choose import choose_plans
from tilewright.base.errors import CompileError, TargetError, TilewrightError
from tilewright.ir.loop import Kernel
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.control import Control
from tilewright.plan.form_models import SAME, FormModel, FormQueue, Wanted
from tilewright.plan.fused_rows import FusedChoices, FusedPlan
from tilewright.plan.restrict_tiles import controlled_tiles
from tilewright.plan.vector_model import VectorChoice
from tilewright.plan.vector_tiles import VectorChoices
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.target.target import Target

GAIN = 0.97  # of the cycles of a form: others that cannot be so fast are not looked at


class Expected(Protocol):
    """What a model was asked about, with the cycles that it expects."""

    @property
    def expected(self) -> float: ...


W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)
E = TypeVar("E", bound=Expected)


class Waiting(Protocol[W_co]):
    """What may be asked about, in the order of bounds."""

    @property
    def floor(self) -> float:
        """Cycles that nothing of what is left beats; infinitely many if nothing is."""

    def take(self) -> W_co | None:
        """The one that may take least; None where that is seen to be none."""


class InOrder(Generic[W]):
    """Several of which the bounds are known."""

    def __init__(self, bounds: Iterable[tuple[float, W]]) -> None:
        self.left = deque(sorted(bounds, key=lambda each: each[0]))

    @property
    def floor(self) -> float:
        return self.left[0][0] if self.left else math.inf

    def take(self) -> W:
        return self.left.popleft()[1]


@dataclass(frozen=True)
class FormTiles:
    """A form of a kernel with the tiles that fit, the fastest first."""

    found: FormModel
    tiles: Sequence[Choice] | Sequence[VectorChoice] | Sequence[FusedPlan]

    @property
    def expected(self) -> float:
        """Cycles, infinitely many where no tile fits; arrays as they are come first."""
        made = bool(self.found.form.made)
        return min((t.cycles for t in self.tiles), default=math.inf) * (1 + SAME * made)


def with_tiles(
    models: FormQueue,
    control: Control,
    refusals: list[TilewrightError],
    gain: float = GAIN,
    below: Callable[[], float] = lambda: math.inf,
) -> Iterator[FormTiles]:
    """Forms with their tiles, those first that are expected to be fastest. Forms are modelled, and
    their tiles chosen, once they may be that, by more than 1 - `gain`, and as long as they may take
    less than so many cycles (`below`); where none can be, the reason joins `refusals`."""

    def tiled(found: FormModel) -> FormTiles | None:
        try:
            tiles = models.memo.of(("tiles", found.key), lambda: tiles_of(found, control))
            return FormTiles(found, tiles)
        except (CompileError, TargetError) as error:
            refusals.append(error)
            models.refuse(found.form)
            return None

    return most_promising(models, tiled, gain, below)


def tiles_of(
    found: FormModel, control: Control
) -> Sequence[Choice] | Sequence[VectorChoice] | Sequence[FusedPlan]:
    """The tiles of a form that fit the memories, the fastest first."""
    if isinstance(found.model, (VectorChoices, FusedChoices)):
        return found.model.plans
    return controlled_tiles(found.kernel, found.model, control, run_pipelines)


def most_promising(
    waiting: Waiting[W],
    ask: Callable[[W], E | None],
    gain: float = 1.0,
    below: Callable[[], float] = lambda: math.inf,
) -> Iterator[E]:
    """What a model says of each of several, those first of which it expects least cycles. It is
    asked once a bound, the cycles that nothing beats, is below `gain` of what is expected of all
    others, and `below` what it says then; where it has no answer (None), there is one less."""
    ready: list[E] = []
    while ready or waiting.floor < below():
        best = min(ready, key=lambda e: e.expected, default=None)
        if best is not None and gain * best.expected <= waiting.floor:
            ready.remove(best)
            yield best
            continue
        taken = waiting.take()
        found = ask(taken) if taken is not None else None
        if found is not None:
            ready.append(found)


def expected_cycles(kernel: Kernel, control: Control, target: Target) -> float | None:
    """What the models expect of the best tiles of all forms on a chip; None if no tile fits."""
    if target.bundles is not None:
        return next((c.cycles for c in choose_plans(kernel, target, control)), None)
    found = with_tiles(FormQueue(kernel, target, Wanted(control)), control, [], gain=1.0)
    best = next(found, None)
    return None if best is None else min((t.cycles for t in best.tiles), default=None)
