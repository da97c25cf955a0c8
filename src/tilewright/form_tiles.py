"""The forms of a kernel with their tiles, in the order in which they are worth building: bounds say
which forms may be fast, models which are expected to be."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tilewright.base.errors import CompileError, TargetError, TilewrightError
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.control import Control
from tilewright.plan.form_models import SAME, FormModel
from tilewright.plan.fused_rows import FusedChoices, FusedPlan
from tilewright.plan.restrict_tiles import controlled_tiles
from tilewright.plan.vector_model import VectorChoice
from tilewright.plan.vector_tiles import VectorChoices
from tilewright.sim.run_pipelines import run_pipelines

GAIN = 0.97  # of the cycles of a form: others that cannot be so fast are not looked at


class Expected(Protocol):
    """What a model was asked about, with the cycles that it expects."""

    @property
    def expected(self) -> float: ...


W = TypeVar("W")
E = TypeVar("E", bound=Expected)


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
    models: Iterable[FormModel], control: Control, refusals: list[TilewrightError],
    gain: float = GAIN,
) -> Iterator[FormTiles]:  # fmt: skip
    """Forms with their tiles, those first that are expected to be fastest. Tiles are chosen once a
    form may be that, by more than 1 - `gain`; where none can be, the reason joins `refusals`."""

    def tiled(found: FormModel) -> FormTiles | None:
        try:
            return FormTiles(found, tiles_of(found, control))
        except (CompileError, TargetError) as error:
            refusals.append(error)
            return None

    return most_promising(((m.bound.cycles, m) for m in models), tiled, gain)


def tiles_of(
    found: FormModel, control: Control
) -> Sequence[Choice] | Sequence[VectorChoice] | Sequence[FusedPlan]:
    """The tiles of a form that fit the memories, the fastest first."""
    if isinstance(found.model, (VectorChoices, FusedChoices)):
        return found.model.plans
    return controlled_tiles(found.kernel, found.model, control, run_pipelines)


def most_promising(
    bounds: Iterable[tuple[float, W]], ask: Callable[[W], E | None], gain: float = 1.0
) -> Iterator[E]:
    """What a model says of each of several, those first of which it expects least cycles. It is
    asked once a bound, the cycles that nothing beats, is below `gain` of what is expected of all
    others; where it has no answer (None), there is one less."""
    waiting = deque(sorted(bounds, key=lambda each: each[0]))
    ready: list[E] = []
    while waiting or ready:
        best = min(ready, key=lambda e: e.expected, default=None)
        if best is not None and (not waiting or gain * best.expected <= waiting[0][0]):
            ready.remove(best)
            yield best
            continue
        found = ask(waiting.popleft()[1])
        if found is not None:
            ready.append(found)
