"""Which tiles of a contraction to give a chip, and the order of the loops over them: every legal
size, by an analytic model of the pipeline's time (tile_model.py)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.ir.expr import Var
from tilewright.plan.step_times import Run, StepTimes
from tilewright.plan.tile_model import TileModel, Tiles, cartesian, tile_sizes
from tilewright.plan.unit_plan import Plan

# Prefetch distances, and how many buffers the result has with each. Of those that the model finds
# equal the first is taken: it forgives most.
PACES = ((4, 4), (4, 2), (4, 1), (2, 3), (2, 2), (2, 1), (1, 2), (1, 1))
CLEAR_DISTANCES = (0, 1, 16)  # steps between the clearing of a tile's sums and its first step
MOST = 32  # tiles of each order and pace that are candidates
GOOD = 128  # tiles of a plan of which others with the same order are looked at as well
BEST = 16  # of all candidates, that are found by running their pipelines step by step
BATCH = 64  # pipelines that are run together
# Of sizes that are looked at; if there are more, every other size of a loop is left out.
COMBINATIONS = 1 << 18


@dataclass(frozen=True)
class Choice:
    """A plan, and the cycles that the model expects of it."""

    plan: Plan
    cycles: float


def choose_tiles(
    model: TileModel,
    run: Run | None,
    *,
    overlap: bool = True,
    rings: bool = False,
    sizes: Mapping[Var, Sequence[int]] | None = None,
) -> list[Choice]:
    """Tiles that fit the memories, in every order and pace that matters, the fastest first; of
    these sizes, if some are given. `run` times their pipelines; without it, cycles are estimates.
    With `rings` whole operators may keep what consecutive tiles share."""
    every = cartesian(_fewer(sizes or tile_sizes(model)))
    count = next(iter(every.values())).size
    tiles = Tiles(every)
    plans: list[Plan] = []
    times: list[StepTimes] = []
    left = np.arange(count)  # without those that plans with the same order found slow
    before: tuple[Var, ...] | None = None
    for plan in _plans(model, overlap, rings and model.unit.whole):
        left = left if plan.order == before else np.arange(count)
        before = plan.order
        some = tiles.only(left)
        fits = left[np.broadcast_to(_fits(model, some.sizes, plan), len(left))]
        if not len(fits):
            continue
        steps = model.step_times(tiles.only(fits), plan)
        ranked = np.argsort(steps.estimate(), kind="stable")
        best = ranked[:MOST]
        left = np.setdiff1d(left, fits[ranked[GOOD:]], assume_unique=True)
        steps = steps.only(best)
        sizes_of_best = ({v: int(n[k]) for v, n in every.items()} for k in fits[best])
        axes, chunks = [*model.rows], steps.store_chunks.tolist()
        each = zip(sizes_of_best, chunks, steps.axis.tolist(), steps.parts.tolist(), strict=True)
        for tile, n, k, parts in each:
            axis = axes[k] if n > 1 else None
            cut = replace(plan, tile=tile, store_chunks=n, chunked_axis=axis, interleave=parts)
            plans.append(cut)
        times.append(steps)
    if not plans:
        return []
    joined = StepTimes.joined(times)
    cycles = joined.estimate() if run is None else _best(joined, run)
    chosen: dict[object, Choice] = {}
    for plan, expected in zip(plans, cycles.tolist(), strict=True):
        if expected == math.inf:
            continue
        same = (*plan.tile.values(), round(expected))  # another pace makes no difference
        chosen.setdefault(same, Choice(plan, expected))
    return sorted(chosen.values(), key=lambda c: c.cycles)


def _best(times: StepTimes, run: Run) -> np.ndarray:
    """Cycles of pipelines; infinitely many of those that are not run, because the BEST are faster
    than they can be."""
    least = times.lower_bound()
    cycles = np.full(len(least), math.inf)
    order = np.argsort(least, kind="stable")
    for k in range(0, len(order), BATCH):
        batch = order[k : k + BATCH]
        if k >= BEST and np.partition(cycles, BEST - 1)[BEST - 1] <= least[batch[0]]:
            break
        cycles[batch] = times.only(batch).expected(run)
    return cycles


def _fewer(sizes: Mapping[Var, Sequence[int]]) -> dict[Var, Sequence[int]]:
    """Sizes with as many combinations as are looked at: the largest always."""
    left = dict(sizes)
    while math.prod(map(len, left.values())) > COMBINATIONS:
        most = max(left, key=lambda v: len(left[v]))
        left[most] = left[most][::-1][::2][::-1]
    return left


def _plans(model: TileModel, overlap: bool, rings: bool) -> Iterator[Plan]:
    """All that matter, but for the sizes of tiles."""
    with_addend, whole_unit = model.accumulator_work.starts_with_addend, model.unit.whole
    any_ = Plan(model.nest, model.mapping, {}, starts_with_addend=with_addend)
    kept = (True, False) if rings else (False,)
    paces: Iterable[tuple[int, int]] = PACES if overlap else ((0, 1),)
    if overlap and (with_addend or whole_unit):  # a copy begins a tile, or the operator does
        paces = dict.fromkeys((distance, 2) for distance, _ in PACES)
    early = (
        _early(model) if overlap and model.epilogue_loads and not whole_unit else [(False, False)]
    )
    clears = any(not x.follows for x in model.accumulator_work.steps) and not with_addend
    ahead = CLEAR_DISTANCES if overlap and clears else (0,)
    outer = (2, 1) if overlap and not whole_unit else (2,)
    every = itertools.product(_orders(model), paces, ahead, early, kept, outer)
    for order, (distance, buffers), cleared, (preloaded, late), ring, places in every:
        if places == 1 and distance > 1:  # the step for which a factor comes waits for it anyway
            continue
        yield replace(
            any_, order=order, prefetch_distance=distance, result_buffers=buffers,
            preloaded=preloaded, late=late, rings=ring, clear_distance=cleared,
            outer_places=places,
        )  # fmt: skip


def _fits(model: TileModel, tile: Mapping[Var, np.ndarray], plan: Plan) -> np.ndarray:
    """Which tiles fit; where the epilogue's operands come late, or a factor has one place, those
    that did not otherwise."""
    fits = model.fits(tile, plan)
    if plan.late:
        fits = fits & ~model.fits(tile, replace(plan, late=False))
    if plan.outer_places == 1:
        fits = fits & ~model.fits(tile, replace(plan, outer_places=2))
    return fits


def _early(model: TileModel) -> list[tuple[bool, bool]]:
    """When the epilogue's operands come, as (preloaded, late): late only where the unit's own
    queue loads them, which gains nothing by an earlier turn."""
    moves = [x.move for x in model.epilogue_loads]
    own = any(m is not None and m.queue == model.unit.instruction.queue for m in moves)
    return [(True, False), (False, False), *([(False, True)] if own else [])]


def _orders(model: TileModel) -> Iterator[tuple[Var, ...]]:
    """The loops over tiles, those over slices of the reduction innermost: loops on which the same
    operands depend stay together."""
    groups: dict[tuple[bool, ...], list[Var]] = {}
    for loop in (x for x in model.nest.axes if x.extent != 1):
        key = tuple(p.varies_with(loop.var) for p in model.loads[:2])
        groups.setdefault(key, []).append(loop.var)
    sums = [x.var for x in model.nest.reduce]
    for order in itertools.permutations(groups.values()):
        yield (*(v for group in order for v in group), *sums)
