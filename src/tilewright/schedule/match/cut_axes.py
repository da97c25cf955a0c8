"""Cutting the loops of a nest into the axes of an instruction: the search behind tensorize."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.base.errors import ScheduleError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expand import least_fields
from tilewright.ir.expr import Symbol, Var, as_expr, const, constant_value
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call, For, Stmt, walk_statements
from tilewright.ir.substitute import substitute
from tilewright.schedule.core.state import State
from tilewright.schedule.match.assign_axes import SURPLUS, Chosen
from tilewright.schedule.match.binding import MatchStage, Obstacles
from tilewright.schedule.match.match import Matcher
from tilewright.schedule.primitives.loops import reorder, split
from tilewright.schedule.trace.steps import Loop

ATTEMPTS = 64  # cuts of one mapping that are tried

Nest = tuple[For, ...]
Cut = tuple[int, ...]  # iterations of each axis


def cost_of(stmt: Stmt) -> int:
    """Returns what a call costs, by which ways are ranked: bytes count as cycles."""
    (call,) = (s for s in walk_statements((stmt,)) if isinstance(s, Call))
    cost, env = call.instruction.cost, least_fields(call)
    return sum(int(evaluate_expr(as_expr(x), env, {})) for x in (cost.busy, cost.bytes))


class Cutting:
    """One search: which loop is cut for which axis, and into what."""

    def __init__(
        self, state: State, target: For, instruction: Instruction, obstacles: Obstacles
    ) -> None:
        self.state, self.target = state, target
        self.instruction, self.obstacles = instruction, obstacles

    def calls(self) -> Iterator[tuple[Loop, Stmt]]:
        """Every way: the program is left cut, with the loop that the call can replace."""
        before = self.state.kernel
        for nest, mapping in self.mappings():
            yield from self._cuts(nest, mapping)
            self.state.kernel = before

    def mappings(self) -> list[tuple[Nest, Chosen]]:
        """Every way to give each axis of an instruction's first nest a loop that moves the same
        operands and is long enough, or none; those that need least reordering first."""
        found: dict[tuple[Nest, Chosen], None] = {}
        matcher = Matcher(self.instruction, self.state.simplifier)
        for b in matcher.structures((self.target,)):
            nest, *inner = b.nests
            for chosen in matcher.assigner.choices(nest, b, len(nest.axes)):
                outer = replace(b, loops=tuple((axis.var, loop) for axis, loop in chosen))
                fits = all(self._sizes(axis, loop) for axis, loop in chosen)
                if fits and next(matcher.assigner.assign(outer, inner), None) is not None:
                    found[nest.loops, chosen] = None

        def effort(one: tuple[Nest, Chosen]) -> tuple[int, int, list[bool]]:
            loops, chosen = one
            places = [loops.index(x) for _, x in chosen if x is not None]
            inversions = sum(a > b for a, b in itertools.combinations(places, 2))
            # Inner axes before outer ones: along those, elements follow each other.
            return len(chosen) - len(places), inversions, [x is not None for _, x in chosen]

        if self.obstacles.farthest <= (MatchStage.LOOPS, SURPLUS):  # otherwise that is nearer
            self.obstacles.join(matcher.obstacles)
        return sorted((c for c in found if any(x for _, x in c[1])), key=effort)

    def _sizes(self, axis: For, loop: For | None) -> list[int]:
        """How many iterations of a loop a call can take along an axis, the most first. (An axis of
        a single step has no loop.)"""
        extent = 1 if loop is None else constant_value(as_expr(loop.extent))
        if extent is None:
            return []
        if isinstance(axis.extent, int):
            return [axis.extent] if int(extent) % axis.extent == 0 else []
        if not isinstance(axis.extent, Symbol):
            return []
        limits = self.instruction.field(axis.extent.name)
        least = 1 if extent == 1 else 2
        sizes = range(min(limits.high, int(extent)), max(limits.low, least) - 1, -1)
        return [n for n in sizes if int(extent) % n == 0 and limits.admits(n)]

    def _cuts(self, nest: Nest, mapping: Chosen) -> Iterator[tuple[Loop, Stmt]]:
        """The largest calls that work. Where sizes fail for what some loops are cut into, others
        that cut these in the same way are left out."""
        before = self.state.kernel
        options = [self._sizes(axis, loop) for axis, loop in mapping]
        first = (0,) * len(options)
        waiting, seen, tried = [(0, first)], {first}, 0
        while waiting and tried < ATTEMPTS:
            _, places = heapq.heappop(waiting)
            cut = tuple(sizes[p] for sizes, p in zip(options, places, strict=True))
            smaller: Sequence[int] = range(len(cut))
            if self._within_limits(mapping, cut):
                tried += 1
                inner = self._apply(nest, mapping, cut)
                if inner is None:
                    return
                outermost = Loop(inner[0][0])
                matcher = Matcher(self.instruction, self.state.simplifier)
                found = sorted(matcher.calls((self.state.for_(outermost),)), key=cost_of)
                if found:
                    yield from ((outermost, call) for call in found)
                    return
                self.state.kernel = before
                self.obstacles.join(matcher.obstacles)
                if matcher.obstacles.farthest[0] <= MatchStage.LOOPS:
                    return
                culprits = matcher.obstacles.culprits
                smaller = [k for var, k in inner if culprits is None or var in culprits]
            for k in smaller:
                more = (*places[:k], places[k] + 1, *places[k + 1 :])
                if more[k] < len(options[k]) and more not in seen:
                    seen.add(more)
                    size = math.prod(o[p] for o, p in zip(options, more, strict=True))
                    heapq.heappush(waiting, (-size, more))

    def _within_limits(self, mapping: Chosen, cut: Cut) -> bool:
        """Whether no limit forbids these sizes, whatever the other fields are."""
        extents = [axis.extent for axis, _ in mapping]
        sizes = zip(extents, cut, strict=True)
        values = {extent: const(n) for extent, n in sizes if isinstance(extent, Symbol)}
        limits = (substitute(limit, values) for limit in self.instruction.limits)
        return all(constant_value(self.state.simplifier(x)) is not False for x in limits)

    def _apply(self, nest: Nest, mapping: Chosen, cut: Cut) -> list[tuple[Var, int]] | None:
        """Cuts the loops and puts the axes innermost: the loops that are axes now, each with the
        number of its axis. None if they cannot be, and the program as it was."""
        before = self.state.kernel
        loops = {loop.var: (k, loop) for k, (_, loop) in enumerate(mapping) if loop is not None}
        outer, inner = [], []
        try:
            for var in (x.var for x in nest):
                k, loop = loops.get(var, (-1, None))
                if loop is None:
                    outer.append(Loop(var))
                elif loop.extent == cut[k]:
                    inner.append((k, Loop(var)))
                else:
                    rest, part = split(self.state, Loop(var), cut[k])
                    outer.append(rest)
                    inner.append((k, part))
            inner.sort(key=lambda x: x[0])
            reorder(self.state, *outer, *(x for _, x in inner))
        except ScheduleError as error:
            self.state.kernel = before
            self.obstacles.add(MatchStage.LOOPS, 0, error.what)
            return None
        return [(x.var, k) for k, x in inner]
