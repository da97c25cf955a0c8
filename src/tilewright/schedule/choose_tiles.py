"""Which tiles of a contraction to give a chip, and the order of the loops over them: every legal
size, by an analytic model of the pipeline's time (tile_model.py)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass, replace

import numpy as np

from tilewright.ir.expr import Var
from tilewright.schedule.pieces import Sizes
from tilewright.schedule.pipelines import StepTimes
from tilewright.schedule.plan import Plan
from tilewright.schedule.tile_model import Model, combined, tile_sizes

# Steps that operands may be brought before they are used, and tiles of the result that may be there
# at the same time. Of those that the model finds equal the first is taken: it forgives most.
PACES = ((4, 4), (4, 2), (4, 1), (2, 3), (2, 2), (2, 1), (1, 2), (1, 1))
NEAR = 1.15  # pipelines that are estimated at so many times the best are run step by step:
MOST = 32  # of each order and pace
# Of sizes that are looked at; if there are more, every other size of a loop is left out.
COMBINATIONS = 1 << 18


@dataclass(frozen=True)
class Choice:
    """A plan, and the cycles that the model expects of it."""

    plan: Plan
    cycles: float


def choose_tiles(
    model: Model,
    *,
    overlap: bool = True,
    rings: bool = False,
    sizes: Names[Var, Sequence[int]] | None = None,
) -> list[Choice]:
    """All tiles that fit the memories, in every order and pace that matters, the fastest first; of
    these sizes, if some are given. With `rings` whole operators may keep what consecutive tiles
    share."""
    tile = combined(_fewer(sizes or tile_sizes(model)))
    count = next(iter(tile.values())).size
    found: list[tuple[Plan, Sizes, StepTimes, np.ndarray]] = []
    for plan in _plans(model, overlap, rings and model.unit.whole):
        fits = np.broadcast_to(model.fits(tile, plan), count)
        if fits.any():
            kept = {v: n[fits] for v, n in tile.items()}
            times = model.step_times(kept, plan)
            found.append((plan, kept, times, times.estimate() if overlap else times.serial()))
    if not found:
        return []
    least = min(cycles.min() for *_, cycles in found)
    plans: list[Plan] = []
    several: list[StepTimes] = []
    estimates: list[np.ndarray] = []
    for plan, kept, times, cycles in found:
        best = np.argsort(cycles, kind="stable")[:MOST]
        best = best[(cycles[best] <= NEAR * least) | (best == best[0])]
        for k in best:
            sizes = {v: int(n[k]) for v, n in kept.items()}
            plans.append(replace(plan, tile=sizes, portions=int(times.portions[k])))
        several.append(times.only(best))
        estimates.append(cycles[best])
    cycles_of = StepTimes.joined(several).run() if overlap else np.concatenate(estimates)
    chosen: dict[object, Choice] = {}
    for plan, cycles in zip(plans, cycles_of, strict=True):
        same = (*plan.tile.values(), round(cycles))  # another pace makes no difference
        chosen.setdefault(same, Choice(plan, float(cycles)))
    return sorted(chosen.values(), key=lambda c: c.cycles)


def _fewer(sizes: Names[Var, Sequence[int]]) -> dict[Var, Sequence[int]]:
    """Sizes with as many combinations as are looked at: the largest always."""
    left = dict(sizes)
    while math.prod(map(len, left.values())) > COMBINATIONS:
        most = max(left, key=lambda v: len(left[v]))
        left[most] = left[most][::-1][::2][::-1]
    return left


def _plans(model: Model, overlap: bool, rings: bool) -> Iterator[Plan]:
    """All that matter, but for the sizes of tiles."""
    seeded, whole_unit = model.besides.seeded, model.unit.whole
    any_ = Plan(model.nest, model.mapping, {}, ahead=0, places=1, seeded=seeded)
    kept = (True, False) if rings else (False,)
    paces: Iterable[tuple[int, int]] = PACES if overlap else ((0, 1),)
    if overlap and (seeded or whole_unit):  # a tile is begun by a move, or in the operator
        paces = dict.fromkeys((ahead, 2) for ahead, _ in PACES)
    once = (True, False) if overlap and model.behind and not whole_unit else (False,)
    for order, (ahead, places), o, r in itertools.product(_orders(model), paces, once, kept):
        yield replace(any_, order=order, ahead=ahead, places=places, once=o, rings=r)


def _orders(model: Model) -> Iterator[tuple[Var, ...]]:
    """The loops over tiles, those over parts of sums innermost: loops that move the same pieces
    stay together."""
    groups: dict[tuple[bool, ...], list[Var]] = {}
    for loop in (x for x in model.nest.axes if x.extent != 1):
        key = tuple(p.moved_by(loop.var) for p in model.loads[:2])
        groups.setdefault(key, []).append(loop.var)
    sums = [x.var for x in model.nest.reduce]
    for order in itertools.permutations(groups.values()):
        yield (*(v for group in order for v in group), *sums)
