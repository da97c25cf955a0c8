"""Kernels on a statically scheduled chip: the best of a few plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.backends.bundles.choose import BundleChoice, choose_plans
from tilewright.backends.bundles.fill_bundles import OutOfRegisters
from tilewright.backends.bundles.program import BundleProgram, make_program
from tilewright.backends.bundles.schedule_contraction import Orders, schedule_bundles
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.ir.loop import Kernel
from tilewright.ir.tensor_type import Layout
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.fastest import build_fastest
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.stacked_inputs import Stacks, layouts_of_sources, stacks_in, with_sources
from tilewright.plan.units import AxisMapping
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

TRIES = 3  # plans that are built and timed
NEAR = 1.04  # times the cycles that are expected of the next plan: no need to build that one


@dataclass(frozen=True, eq=False)
class Built:
    """A kernel, as it is to be and as scheduled, and its program; how parameters lie in memory,
    where that is not row by row; the cycles that were expected; iterations of each loop in a
    tile."""

    kernel: Kernel
    scheduled: Kernel
    program: BundleProgram
    layouts: dict[str, Layout]
    predicted: float
    tile: dict[str, int]

    @property
    def cycles(self) -> int:
        return self.program.timeline.cycles


def best_plans(
    kernel: Kernel, target: Target, control: Control, lying: Orders
) -> list[BundleChoice]:
    """Plans for a kernel, those first that are to be tried first; TargetError if none fits. Inputs
    named in `lying` have their axes in that order in memory."""
    choices = list(choose_plans(kernel, target, control, lying))
    if not choices:
        held = ", ".join(f"{m.name} {m.size}" for m in target.memories if m.size and not m.row)
        wanted = f" with {control}" if str(control) else ""
        raise TargetError(
            f"no tile of {kernel.name}{wanted} fits the memories of {target.name}",
            hint=f"they have ({held}) bytes, and a tile has whole sums",
        )
    return choices


def build_bundles(
    kernel: Kernel,
    target: Target,
    choices: Sequence[BundleChoice],
    control: Control = CHOSEN,
    stacks: Stacks = MappingProxyType({}),
) -> Built:
    """The kernel in bundles, by one of its plans. Without overlap transfers and work take turns;
    unless rings are forbidden, a tile brings only what the one before did not have. Of `stacks` it
    has the arrays that these are made of."""
    refused: set[AxisMapping] = set()  # whatever the tiles

    def build(choice: BundleChoice) -> Built:
        few: OutOfRegisters | None = None
        for each in (choice, *choice.others):
            if each.plan.mapping in refused:
                continue
            try:
                return built(each)
            except OutOfRegisters as error:  # blocks of one tile need more or less of them
                few = few or error
            except ScheduleError:
                refused.add(each.plan.mapping)
                raise
        assert few is not None  # the choice itself is not refused
        raise few

    def built(choice: BundleChoice) -> Built:
        s = Schedule(fill_kernel(kernel, choice.plan.extents))
        layouts = schedule_bundles(s, target, choice.plan, overlap=control.overlap, stacks=stacks)
        scheduled = with_sources(s.kernel, stacks_in(stacks, layouts))
        program = make_program(scheduled, target)
        tile = {v.name: n for v, n in choice.plan.tile.items()}
        held = layouts_of_sources(layouts, stacks)
        original = with_sources(s.original, stacks)
        return Built(original, scheduled, program, held, choice.cycles, tile)

    left = (c for c in choices if c.plan.mapping not in refused)
    return build_fastest(left, build, tries=TRIES, near=NEAR)
