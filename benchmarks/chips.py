"""Kernels on chips, in simulated cycles: the same on every machine.

    python benchmarks/chips.py                        all chips and kernels; some minutes
    python benchmarks/chips.py --chips vta --nets resnet18
    python benchmarks/chips.py --json FILE            all figures as well

Each kernel is compiled from the chip's description alone, twice: with tiles that overlap and with
one tile after another. The bound is counted without a simulator (plan/tile_model.py): the
queue of the unit at work all the time, on multiply-adds, on clearing sums where the unit cannot
begin them, and on what follows, between one smallest load and one smallest store; or every byte
moved once, between a set-up and a latency. Lanes are counted as the unit fills them, in the form of
the kernel that may be fastest. Results are compared with numpy, to the bit.

Kernels without a contraction (`--nets vectors`, on chips with an ALU) have a floor as well, counted
by hand from VTA's facts (vector_cases.py): how often its ALU has to touch a row at least. What the
matrix unit does instead can take less: more than 100 % of that.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from chip_kernels import FIRST, RESNET18, Case, gemm, resnet50
from rich.console import Console
from rich.progress import track
from rich.table import Table
from vector_cases import VectorCase, vector_cases

from tilewright.chip import build_chip
from tilewright.plan.vector_tiles import row_sizes
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

KIB = 1 << 10


def vta32() -> Target:
    """A cloud part: four times the unit, twice the bus; memories of as many elements, so that the
    edge part's fields hold their addresses."""
    return vta(block=32, inp=64 * KIB, wgt=1024 * KIB, acc=256 * KIB, bus=16)


def vta64() -> Target:
    """Sixteen times the unit, four times the bus."""
    return vta(block=64, inp=128 * KIB, wgt=4096 * KIB, acc=512 * KIB, bus=32)


CHIPS: dict[str, Callable[[], Target]] = {
    "vta": vta,
    "vta32": vta32,
    "vta64": vta64,
    "vta-alu1": lambda: vta(alu=1),
    "gemmini": gemmini,
    "conv_engine": conv_engine,
}
NETS: dict[str, Callable[[], list[Case]]] = {
    "gemm": lambda: [gemm(512), gemm(1024)],
    "first": lambda: [FIRST.case()],
    "resnet18": lambda: [c.case() for c in RESNET18],
    "resnet50": lambda: [c.case() for c in resnet50()],
    "vectors": vector_cases,
}
DEFAULT_CHIPS = "vta,vta32,vta64,gemmini,conv_engine"
DEFAULT_NETS = "gemm,resnet18,resnet50"


@dataclass(frozen=True)
class Row:
    """One kernel on one chip. Times in cycles; `busy` by queue, of the overlapped one; `predicted`
    by the analytic model; `floor` by hand, of kernels without a contraction."""

    chip: str
    kernel: str
    bound: int
    overlapped: int
    single: int
    predicted: int
    busy: dict[str, int]
    waits: int
    instructions: int
    exact: bool
    compile_s: float
    simulate_s: float
    floor: int = 0

    @property
    def share(self) -> float:
        return self.bound / self.overlapped


def measure(chip: str, case: Case) -> Row:
    """Builds and runs a kernel both ways."""
    target = CHIPS[chip]()
    arguments = case.arguments()
    start = time.perf_counter()
    overlapped = build_chip(case.kernel, target)
    built = time.perf_counter()
    single = build_chip(case.kernel, target, overlap=False)
    wanted = case.reference(*arguments[:-1])
    ran = time.perf_counter()
    first = overlapped(*arguments).copy()
    simulated = time.perf_counter() - ran
    exact = all(np.array_equal(r, wanted) for r in (first, single(*arguments)))
    return Row(
        chip,
        case.name,
        overlapped.bound.cycles,
        overlapped.timeline.cycles,
        single.timeline.cycles,
        round(overlapped.predicted or 0),
        dict(overlapped.timeline.busy),
        overlapped.waits.count,
        len(overlapped.stream),
        exact,
        built - start,
        simulated,
        round(case.floor(target)) if isinstance(case, VectorCase) else 0,
    )


def table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    left, has_floor = ("chip", "kernel"), any(r.floor for r in rows)
    right = ("floor",) * has_floor + (
        "bound",
        "cycles",
        "of bound",
        "predicted",
        "one by one",
        "of bound",
        "exact",
        "built",
    )
    for heading in (*left, *right):
        shown.add_column(heading, justify="left" if heading in left else "right")
    for r in rows:
        numbers = (f"{r.floor / r.overlapped:.1%}",) * has_floor
        numbers += (f"{r.bound:,}", f"{r.overlapped:,}", f"{r.share:.1%}")
        numbers += (f"{r.predicted / r.overlapped - 1:+.1%}", f"{r.single:,}")
        numbers += (f"{r.bound / r.single:.1%}", "✓" if r.exact else "✗", f"{r.compile_s:.1f} s")
        shown.add_row(r.chip, r.kernel, *numbers)
    return shown


def summary(chip: str, rows: list[Row]) -> str:
    """Shares of the bound, what overlapping gains, how good the model is."""
    gain = statistics.geometric_mean(r.single / r.overlapped for r in rows)
    errors = [abs(r.predicted / r.overlapped - 1) for r in rows]
    return (
        f"{chip}: least {min(r.share for r in rows):.1%} of the bound, mean "
        f"{statistics.mean(r.share for r in rows):.1%} (one by one "
        f"{statistics.mean(r.bound / r.single for r in rows):.1%}), overlapping gains {gain:.2f}x; "
        f"model off by {statistics.median(errors):.1%}, at most {max(errors):.1%}; "
        f"built in {statistics.median(r.compile_s for r in rows):.1f} s, at most "
        f"{max(r.compile_s for r in rows):.1f} s; simulated in "
        f"{sum(r.simulate_s for r in rows):.1f} s together\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--chips", default=DEFAULT_CHIPS, help=f"of {', '.join(CHIPS)}")
    parser.add_argument("--nets", default=DEFAULT_NETS, help=f"of {', '.join(NETS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    cases = [case for net in options.nets.split(",") for case in NETS[net]()]
    rows: list[Row] = []
    for chip in options.chips.split(","):
        rows_of_it = row_sizes(CHIPS[chip]())  # without any, kernels have to have products
        done = [c for c in cases if rows_of_it or not isinstance(c, VectorCase)]
        if not done:
            continue
        ours = [measure(chip, c) for c in track(done, chip, console=Console(stderr=True))]
        console.print(table(ours))
        console.print(summary(chip, ours), soft_wrap=True)
        rows += ours
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return int(not all(r.exact for r in rows))


if __name__ == "__main__":
    sys.exit(main())
