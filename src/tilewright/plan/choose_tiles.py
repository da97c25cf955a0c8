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
from tilewright.plan.unit_plan import Pace, Plan

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
    tiles = Tiles(cartesian(_fewer(sizes or tile_sizes(model))))
    paces = _paces(model, overlap)
    found: list[_Candidates] = []
    for number, order in enumerate(_orders(model)):
        kinds = _kinds(model, order, overlap, rings and model.unit.whole)
        found += _of_order(model, tiles, number, kinds, paces)
    if not found:
        return []
    first = np.lexsort(np.concatenate([x.ranks for x in found], axis=-1)[::-1])
    steps = StepTimes.joined([x.steps for x in found]).only(first)
    cycles = steps.estimate() if run is None else _best(steps, run)
    each = [(x, k) for x in found for k in range(len(x.at))]
    chosen: dict[object, Choice] = {}
    for k, expected in zip(first.tolist(), cycles.tolist(), strict=True):
        if expected == math.inf:
            continue
        candidates, number = each[k]
        same = (int(candidates.at[number]), round(expected))  # another pace makes no difference
        if same not in chosen:
            chosen[same] = Choice(candidates.plan_of(model, tiles, number), expected)
    return sorted(chosen.values(), key=lambda c: c.cycles)


@dataclass(frozen=True)
class _Candidates:
    """Tiles that may be fastest of one plan, which has neither sizes nor a pace: their numbers and
    paces, what their steps take, and when it is their turn, by several keys [keys, tiles]."""

    plan: Plan
    at: np.ndarray
    pace: Pace
    steps: StepTimes
    ranks: np.ndarray

    def plan_of(self, model: TileModel, tiles: Tiles, k: int) -> Plan:
        """The plan of one of them."""
        chunks = int(self.steps.store_chunks[k])
        return replace(
            self.plan,
            tile={v: int(n[self.at[k]]) for v, n in tiles.sizes.items()},
            prefetch_distance=int(self.pace.prefetch_distance[k]),
            result_buffers=int(self.pace.result_buffers[k]),
            clear_distance=int(self.pace.clear_distance[k]),
            store_chunks=chunks,
            chunked_axis=[*model.rows][int(self.steps.axis[k])] if chunks > 1 else None,
            interleave=int(self.steps.parts[k]),
        )


def _of_order(
    model: TileModel, tiles: Tiles, order: int, kinds: Sequence[Plan], paces: np.ndarray
) -> Iterator[_Candidates]:
    """The candidates of one order of loops. What is slow with one plan is not looked at with the
    next: therefore the first pace comes alone, and all others of a kind of plans together."""
    left = np.arange(next(iter(tiles.sizes.values())).size)
    every = np.arange(len(paces))
    batches = [(0, every[:1]), (0, every[1:]), *((k, every) for k in range(1, len(kinds)))]
    for kind, numbers in batches:
        plan = kinds[kind]
        if plan.outer_places == 1:  # the step for which a factor comes waits for it anyway
            numbers = numbers[paces[numbers, 0] <= 1]
        at, number = np.tile(left, len(numbers)), np.repeat(numbers, len(left))
        pace = Pace(*paces[number].T)
        fits = np.broadcast_to(_fits(model, tiles.only(at).sizes, plan, pace), at.shape)
        if not fits.any():
            continue
        at, number, pace = at[fits], number[fits], pace.only(fits)
        steps = model.step_times(tiles.only(at), plan, pace)
        ranked = np.lexsort((steps.estimate(), number))
        place = np.arange(len(ranked)) - np.searchsorted(number[ranked], number[ranked])
        left = np.setdiff1d(left, at[ranked[place >= GOOD]])
        best, place = ranked[place < MOST], place[place < MOST]
        ranks = np.stack(np.broadcast_arrays(order, number[best], kind, place))
        yield _Candidates(plan, at[best], pace.only(best), steps.only(best), ranks)


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


def _paces(model: TileModel, overlap: bool) -> np.ndarray:
    """The paces that matter, those first that forgive most: prefetch distance, buffers of the
    result and the distance of clearing [paces, 3]."""
    with_addend = model.accumulator_work.starts_with_addend
    paces: Iterable[tuple[int, int]] = PACES if overlap else ((0, 1),)
    if overlap and (with_addend or model.unit.whole):
        # A copy begins a tile, or the operator does.
        paces = dict.fromkeys((distance, 2) for distance, _ in PACES)
    clears = any(not x.follows for x in model.accumulator_work.steps) and not with_addend
    ahead = CLEAR_DISTANCES if overlap and clears else (0,)
    return np.array([(*pace, cleared) for pace in paces for cleared in ahead])


def _kinds(model: TileModel, order: tuple[Var, ...], overlap: bool, rings: bool) -> list[Plan]:
    """All plans with an order that matter, but for the sizes of tiles and the pace."""
    with_addend = model.accumulator_work.starts_with_addend
    any_ = Plan(model.nest, model.mapping, {}, order, starts_with_addend=with_addend)
    several = overlap and not model.unit.whole
    early = _early(model) if several and model.epilogue_loads else [(False, False)]
    kept, outer = (True, False) if rings else (False,), (2, 1) if several else (2,)
    return [
        replace(any_, preloaded=preloaded, late=late, rings=ring, outer_places=places)
        for (preloaded, late), ring, places in itertools.product(early, kept, outer)
    ]


def _fits(model: TileModel, tile: Mapping[Var, np.ndarray], plan: Plan, pace: Pace) -> np.ndarray:
    """Which tiles fit; where the epilogue's operands come late, or a factor has one place, those
    that did not otherwise."""
    fits = model.fits(tile, plan, pace)
    if plan.late:
        fits = fits & ~model.fits(tile, replace(plan, late=False), pace)
    if plan.outer_places == 1:
        fits = fits & ~model.fits(tile, replace(plan, outer_places=2), pace)
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
