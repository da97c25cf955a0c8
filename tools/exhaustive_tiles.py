"""The chosen tiles beside the best there are: every tile that divides, in every order, with one to
three buffers for its operands, is built and simulated.

    python tools/exhaustive_tiles.py                  ten convolutions; half an hour
    python tools/exhaustive_tiles.py --shapes 3 --jobs 4

The shapes are those of ResNet-18 at half the size and a quarter of the channels. Prints
for each how far the chosen one is from the best, and how far the model's prediction is from the
simulator, over all that were built.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from chip_kernels import RESNET18, Case, Conv
from rich.console import Console
from rich.table import Table

from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.chip import build_chip, build_choice
from tilewright.plan import choose_tiles
from tilewright.plan import step_times as pipelines
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.control import Control
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.target.target import Target
from tilewright.targets.vta import vta


def shapes() -> list[Conv]:
    """ResNet-18's convolutions with half as many pixels along a side, and a quarter of the
    channels."""
    return [
        replace(c, size=max(7, c.size // 2), channels=c.channels // 4, filters=c.filters // 4)
        for c in RESNET18
    ]


def chip() -> Target:
    """VTA with memories as small as the shapes."""
    return vta(inp=4 << 10, wgt=32 << 10, acc=16 << 10)


@dataclass(frozen=True)
class Found:
    """Of one shape: what was built; cycles of the best, and of the chosen."""

    name: str
    built: int
    best: int
    chosen: int
    errors: tuple[float, ...]  # of predictions


@contextmanager
def everything() -> Iterator[None]:
    """All tiles, from end to end, with one to three buffers for operands."""
    usual = choose_tiles.MOST, choose_tiles.BEST, pipelines.STEPS, choose_tiles.PACES
    choose_tiles.MOST = choose_tiles.BEST = pipelines.STEPS = 1 << 30
    choose_tiles.PACES = ((1, 2), (2, 3))
    yield
    choose_tiles.MOST, choose_tiles.BEST, pipelines.STEPS, choose_tiles.PACES = usual


def search(case: Case) -> Found:
    """Builds everything: with one to three buffers for each operand tile."""
    target = chip()
    chosen = build_chip(case.kernel, target).cycles
    model = analytic_model(case.kernel, target)
    cycles, errors = [], []
    for overlap in (True, False):
        with everything():
            choices = choose_tiles.choose_tiles(model, run_pipelines, overlap=overlap)
        for choice in choices:
            try:
                built = build_choice(case.kernel, target, choice, Control(overlap=overlap))
            except (ScheduleError, TargetError, CompileError):
                continue
            cycles.append(built.cycles)
            if overlap:
                errors.append(choice.cycles / built.cycles - 1)
    return Found(case.name, len(cycles), min(cycles), chosen, tuple(errors))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shapes", type=int, default=10, help="of ten")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    table = Table(box=None)
    for heading in ("shape", "built", "best", "chosen", "behind", "model off by", "at most"):
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    worst = 0.0
    with ProcessPoolExecutor(options.jobs) as pool:
        for f in pool.map(search, [c.case() for c in shapes()[: options.shapes]]):
            behind = f.chosen / f.best - 1
            worst = max(worst, behind)
            off = [abs(e) for e in f.errors]
            table.add_row(
                f.name, f"{f.built:,}", f"{f.best:,}", f"{f.chosen:,}", f"{behind:.1%}",
                f"{statistics.median(off):.1%}", f"{max(off):.1%}",
            )  # fmt: skip
            print(f"{f.name}: {f.built} built, {behind:.1%} behind the best", file=sys.stderr)
    Console(highlight=False, width=110).print(table)
    return int(worst > 0.03)


if __name__ == "__main__":
    sys.exit(main())
