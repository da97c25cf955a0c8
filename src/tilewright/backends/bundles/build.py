"""Kernels on a statically scheduled chip: the best of a few plans."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tilewright.backends.bundles.choose import BundleChoice, choose_plans
from tilewright.backends.bundles.program import BundleProgram, make_program
from tilewright.backends.bundles.schedule_contraction import schedule_bundles
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.ir.loop import Kernel
from tilewright.ir.tensor_type import Layout
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.fastest import build_fastest
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.units import AxisMapping
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

TRIES = 3  # plans that are built and timed
NEAR = 1.04  # times the cycles that are expected of the next plan: no need to build that one


@dataclass(frozen=True, eq=False)
class Built:
    """A schedule and its program; how parameters lie in memory, where that is not row by row; the
    cycles that were expected; iterations of each loop in a tile."""

    schedule: Schedule
    program: BundleProgram
    layouts: dict[str, Layout]
    predicted: float
    tile: dict[str, int]

    @property
    def cycles(self) -> int:
        return self.program.timeline.cycles


def build_bundles(kernel: Kernel, target: Target, control: Control = CHOSEN) -> Built:
    """The kernel in bundles. Without overlap transfers and work take turns; unless rings are
    forbidden, a tile brings only what the one before did not have."""
    refused: set[AxisMapping] = set()  # whatever the tiles

    def build(choice: BundleChoice) -> Built:
        try:
            return _built(kernel, target, choice, control.overlap)
        except ScheduleError:
            refused.add(choice.plan.mapping)
            raise

    choices = choose_plans(kernel, target, control)
    first = next(choices, None)
    if first is None:
        held = ", ".join(f"{m.name} {m.size}" for m in target.memories if m.size and not m.row)
        wanted = f" with {control}" if str(control) else ""
        raise TargetError(
            f"no tile of {kernel.name}{wanted} fits the memories of {target.name}",
            hint=f"they have ({held}) bytes, and a tile has whole sums",
        )
    left = (c for c in itertools.chain([first], choices) if c.plan.mapping not in refused)
    return build_fastest(left, build, tries=TRIES, near=NEAR)


def _built(kernel: Kernel, target: Target, choice: BundleChoice, overlap: bool) -> Built:
    s = Schedule(fill_kernel(kernel, choice.plan.extents))
    layouts = schedule_bundles(s, target, choice.plan, overlap=overlap)
    tile = {v.name: n for v, n in choice.plan.tile.items()}
    return Built(s, make_program(s.kernel, target), layouts, choice.cycles, tile)
