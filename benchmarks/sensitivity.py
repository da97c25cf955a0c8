"""How near to their bounds kernels on chips stay when one assumption about the chip is off by two.

    python benchmarks/sensitivity.py               what `make bench-sensitivity` runs
    python benchmarks/sensitivity.py --json FILE   all figures as well

The times that descriptions assume (DRAM latency, setting up a move, the smallest burst, bandwidth,
cycles of the ALU for a row) are each made twice as bad; every kernel is then compiled anew, for the
changed chip, and its bound is counted anew. A figure is the bound's share of the simulated cycles.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from chip_kernels import RESNET18, Case, gemm
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tilewright.chip import build_chip
from tilewright.plan.units import units
from tilewright.target.target import Target
from tilewright.target.vary import twice, with_bursts, with_costs, with_memory
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

BURST = 64  # bytes, in the descriptions
CONVOLUTIONS = ("C2", "C6", "C11")
CHIPS: dict[str, Callable[[], Target]] = {
    "vta": vta,
    "gemmini": gemmini,
    "conv_engine": conv_engine,
}


def slower_latency(target: Target) -> Target:
    return with_memory(target, "dram", latency=2 * target.memory("dram").latency)


def half_bandwidth(target: Target) -> Target:
    return with_memory(target, "dram", bandwidth=(target.memory("dram").bandwidth or 0) / 2)


def slower_set_up(target: Target) -> Target:
    return with_costs(target, "setup", twice)


def larger_burst(target: Target) -> Target:
    return with_bursts(target, BURST, 2 * BURST)


def slower_rest(target: Target) -> Target:
    """What follows the sums on the unit's queue."""
    unit = next(units(target)).instruction
    rest = [i.name for i in target.instructions if i.queue == unit.queue and i != unit]
    return with_costs(target, "busy", twice, rest)


CHANGES: dict[str, Callable[[Target], Target]] = {
    "as described": lambda target: target,
    "latency ×2": slower_latency,
    "set-up ×2": slower_set_up,
    "burst ×2": larger_burst,
    "bandwidth ÷2": half_bandwidth,
    "ALU ×2": slower_rest,
}


@dataclass(frozen=True)
class Row:
    """A kernel on a chip with a change; None where it changes nothing."""

    chip: str
    kernel: str
    change: str
    bound: int | None
    cycles: int | None

    def __str__(self) -> str:
        return f"{self.bound / self.cycles:.1%}" if self.bound and self.cycles else "–"


def measure(chip: str, case: Case, change: str) -> Row:
    described = CHIPS[chip]()
    target = CHANGES[change](described)
    if change != next(iter(CHANGES)) and target == described:
        return Row(chip, case.name, change, None, None)
    built = build_chip(case.kernel, target)
    return Row(chip, case.name, change, built.bound.cycles, built.cycles)


def table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    for heading in ("chip", "kernel", *CHANGES):
        shown.add_column(heading, justify="left" if heading in ("chip", "kernel") else "right")
    for chip, kernel in dict.fromkeys((r.chip, r.kernel) for r in rows):
        found = [str(r) for r in rows if (r.chip, r.kernel) == (chip, kernel)]
        shown.add_row(chip, kernel, *found)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--chips", default=",".join(CHIPS), help=f"of {', '.join(CHIPS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    cases = [gemm(512), *(c.case() for c in RESNET18 if c.name in CONVOLUTIONS)]
    wanted = [
        (chip, case, change)
        for chip in options.chips.split(",")
        for case in cases
        for change in CHANGES
    ]
    rows = [measure(*x) for x in track(wanted, "building", console=Console(stderr=True))]
    Console(highlight=False, width=None if sys.stdout.isatty() else 130).print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
