"""Which tiles of a contraction to give a chip, and the order of the loops over them: every legal
size, by an analytic model of the pipeline's time (tile_model.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass

import numpy as np

from tilewright.ir.expr import Var
from tilewright.schedule.pieces import Sizes
from tilewright.schedule.pipelines import Phases
from tilewright.schedule.plan import Plan
from tilewright.schedule.tile_model import Model, Way, combined, tile_sizes

# Steps that operands may be brought before they are used, and tiles of the result that may be there
# at the same time. Of those that the model finds equal the first is taken: it forgives most.
PACES = ((4, 4), (4, 2), (4, 1), (2, 3), (2, 2), (2, 1), (1, 2), (1, 1))
NEAR = 1.15  # pipelines that are estimated at so many times the best are run step by step:
MOST = 32  # of each way,
STEPS = 512  # of so many steps


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
    """All tiles that fit the memories, in every way that matters, the fastest first; of these
    sizes, if some are given. With `rings` whole operators may keep what consecutive tiles share."""
    tile = combined(sizes or tile_sizes(model))
    count = next(iter(tile.values())).size
    found: list[tuple[Way, Sizes, Phases, np.ndarray]] = []
    for way in _ways(model, overlap, rings and model.unit.whole):
        fits = np.broadcast_to(model.fits(tile, way), count)
        if fits.any():
            kept = {v: n[fits] for v, n in tile.items()}
            phases = model.phases(kept, way)
            found.append((way, kept, phases, phases.estimate() if overlap else phases.serial()))
    if not found:
        return []
    least = min(cycles.min() for *_, cycles in found)
    plans: list[Plan] = []
    several: list[Phases] = []
    estimates: list[np.ndarray] = []
    for way, kept, phases, cycles in found:
        best = np.argsort(cycles, kind="stable")[:MOST]
        best = best[(cycles[best] <= NEAR * least) | (best == best[0])]
        best = best[phases.steps[best] <= max(STEPS, phases.steps[best].min())]
        for k in best:
            sizes = {v: int(n[k]) for v, n in kept.items()}
            plans.append(_plan(model, way, sizes, int(phases.parts[k])))
        several.append(phases.only(best))
        estimates.append(cycles[best])
    times = Phases.joined(several).run() if overlap else np.concatenate(estimates)
    chosen: dict[object, Choice] = {}
    for plan, cycles in zip(plans, times, strict=True):
        same = (*plan.tile.values(), round(cycles))  # another way makes no difference
        chosen.setdefault(same, Choice(plan, float(cycles)))
    return sorted(chosen.values(), key=lambda c: c.cycles)


def _ways(model: Model, overlap: bool, rings: bool) -> Iterator[Way]:
    """All that matter."""
    kept = (True, False) if rings else (False,)
    if not overlap:
        yield from (Way(o, rings=r) for o, r in itertools.product(_orders(model), kept))
        return
    begun = model.besides.seeded or model.unit.whole  # by a move, or in the operator
    paces = dict.fromkeys((ahead, 2) for ahead, _ in PACES) if begun else PACES
    whole = (True, False) if model.behind and not model.unit.whole else (False,)
    for order, pace, all_, ring in itertools.product(_orders(model), paces, whole, kept):
        yield Way(order, *pace, all_, ring)


def _plan(model: Model, way: Way, tile: Names[Var, int], parts: int) -> Plan:
    return Plan(
        model.nest, model.mapping, tile, way.order, way.ahead, way.places, parts, way.whole,
        model.besides.seeded, way.rings,
    )  # fmt: skip


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
