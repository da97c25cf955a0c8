"""How much faster several cores are than one, in simulated cycles: the same on every machine.

    python benchmarks/cores.py                    a product of 1024³ and ResNet-50's 3x3 layers
    python benchmarks/cores.py --cores 2 --chips gemmini
    python benchmarks/cores.py --json FILE        all figures as well

Each chip is measured as it is and as so many cores with one DRAM, twice: with the bandwidth of all
of them together (one core of that chip has it for itself), and with that of one. What no schedule
beats knows the cores: what they compute together, and all bytes moved once. Results are compared
with numpy, to the bit.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from chip_kernels import Case, gemm
from matrix_cases import conv
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tilewright.chip import build_chip
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

CHIPS: dict[str, tuple[Callable[..., Target], int]] = {  # with the bytes a cycle of one core
    "vta": (vta, 8),
    "gemmini": (gemmini, 16),
    "conv_engine": (conv_engine, 16),
}
CASES: tuple[Callable[[], Case], ...] = (
    lambda: gemm(1024),
    lambda: conv("3×3, 64, 56²", 56, 64, 64, 3, before=1),
    lambda: conv("3×3/2, 128, 56²", 56, 128, 128, 3, 2, before=1),
    lambda: conv("3×3, 128, 28²", 28, 128, 128, 3, before=1),
    lambda: conv("3×3/2, 256, 28²", 28, 256, 256, 3, 2, before=1),
    lambda: conv("3×3, 256, 14²", 14, 256, 256, 3, before=1),
    lambda: conv("3×3/2, 512, 14²", 14, 512, 512, 3, 2, before=1),
    lambda: conv("3×3, 512, 7²", 7, 512, 512, 3, before=1),
)


@dataclass(frozen=True)
class Row:
    """A kernel on a chip: cycles of one core and of all, and those that nothing beats."""

    kernel: str
    chip: str
    bus: int
    cores: int
    alone: int
    together: int
    bound: int
    exact: bool
    seconds: float

    @property
    def speedup(self) -> float:
        return self.alone / self.together


def measure(case: Case, chip: str, bus: int, cores: int) -> Row:
    """Builds a kernel for one core, and for all, and compares their results with numpy's."""
    make, _ = CHIPS[chip]
    alone = build_chip(case.kernel, make(bus=bus))
    start = time.perf_counter()
    together = build_chip(case.kernel, make(bus=bus, cores=cores))
    seconds = time.perf_counter() - start
    arguments = case.arguments()
    expected = case.reference(*arguments[:-1])
    exact = all(np.array_equal(built(*arguments), expected) for built in (alone, together))
    assert together.bound is not None  # of one contraction
    return Row(
        case.name, chip, bus, cores, alone.cycles, together.cycles, together.bound.cycles, exact,
        seconds,
    )  # fmt: skip


def table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    for column in ("kernel", "chip", "B/cycle", "one core", "all", "faster", "of the bound"):
        shown.add_column(column, justify="left" if column in ("kernel", "chip") else "right")
    for r in rows:
        ok = "" if r.exact else " ✗"
        shown.add_row(
            r.kernel, r.chip, str(r.bus), f"{r.alone:,}", f"{r.together:,}", f"{r.speedup:.2f}{ok}",
            f"{r.bound / r.together:.1%}",
        )  # fmt: skip
    return shown


def summary(rows: list[Row]) -> Iterator[str]:
    """How much faster, for each chip and bandwidth."""
    for key in dict.fromkeys((r.chip, r.bus) for r in rows):
        every = [r for r in rows if (r.chip, r.bus) == key]
        faster = [r.speedup for r in every]
        shares = [r.bound / r.together for r in every]
        seconds = [r.seconds for r in every]
        yield (
            f"{key[0]}, {key[1]} B/cycle: {every[0].cores} cores are {statistics.mean(faster):.2f}"
            f" times as fast, at least {min(faster):.2f}; {statistics.mean(shares):.1%} of the"
            f" bound, at least {min(shares):.1%}; built in {statistics.median(seconds):.1f} s, at"
            f" most {max(seconds):.1f} s"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--chips", default=",".join(CHIPS), help=f"of {', '.join(CHIPS)}")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    work = [
        (make(), chip, CHIPS[chip][1] * times)
        for chip in options.chips.split(",")
        for times in (options.cores, 1)
        for make in CASES
    ]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    rows = [
        measure(case, chip, bus, options.cores)
        for case, chip, bus in track(work, "cores", console=Console(stderr=True))
    ]
    console.print(table(rows))
    console.print("", *summary(rows), sep="\n", soft_wrap=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return int(not all(r.exact for r in rows))


if __name__ == "__main__":
    sys.exit(main())
