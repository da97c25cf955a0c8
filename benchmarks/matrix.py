"""What chips do of the kernels that networks need, in simulated cycles: the same on every machine.

    python benchmarks/matrix.py                     all kernels on all chips; some minutes
    python benchmarks/matrix.py --chips vta,gemmini --kernels depthwise
    python benchmarks/matrix.py --json FILE         all figures as well

A cell has the shares of two bounds, or says that the kernel is refused; reasons stand below the
table. The first bound is the planner's own, that of the form of the kernel that may be fastest:
multiply-adds with all lanes of the unit that the form's loops fill, or all bytes moved once. The
second is counted by matrix_bounds.py, which knows no forms but all ways to lay loops on units, and
shares no code with the planner. A planner that overlooks a form has too high a bound of its own,
which flatters it: ↑ marks cells where it is above the second one by more than what fills the unit.
(↓ marks cells that are faster than the second: it is wrong then.)

Results are compared with numpy: to the bit, or, where there are floats, within what the case says.
What the host makes of operands (windows side by side, diagonals, borders) are bytes that the chip
moves, and the host's time is not in the cycles. The tiny chip is left out: it stores sums of 32
bits, and these kernels narrow theirs (benchmarks/chips.py has its products).
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from chip_kernels import Case
from matrix_bounds import independent_bound
from matrix_cases import MATRIX
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from attention_chips import softmax_engine, vector_core
from unit_chips import dram_engine, several_cubes, weight_fifo

from tilewright.base.errors import CompileError, TargetError
from tilewright.chip import build_chip
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

CHIPS: dict[str, Callable[[], Target]] = {
    "vta": vta,
    "gemmini": gemmini,
    "conv_engine": conv_engine,
    "dsp": dsp,
    "weight_fifo": weight_fifo,
    "dram_engine": dram_engine,
    "several_cubes": several_cubes,
    "vector_core": vector_core,
    "softmax_engine": softmax_engine,
}


ROUNDING, FILL = 1.03, 512  # of the second bound, and cycles, that the planner's may be above it


@dataclass(frozen=True)
class Cell:
    """A kernel on a chip: cycles, those of the planner's bound, and those of the independent one
    (0: it has none); how its inputs are made that the chip is given in another form; or why it is
    refused."""

    kernel: str
    chip: str
    cycles: int = 0
    bound: int = 0
    least: int = 0
    made: tuple[str, ...] = ()
    exact: bool = True
    compile_s: float = 0.0
    reason: str = ""

    @property
    def share(self) -> float:
        return self.bound / self.cycles

    @property
    def fair_share(self) -> float:
        return self.least / self.cycles

    @property
    def mark(self) -> str:
        """What the two bounds say of each other."""
        if self.least > self.cycles:
            return "↓"
        return "↑" if self.bound > ROUNDING * self.least + FILL else ""


def measure(case: Case, chip: str) -> Cell:
    """Builds a kernel for a chip, and compares its result with numpy's."""
    start = time.perf_counter()
    try:
        built = build_chip(case.kernel, CHIPS[chip]())
    except (CompileError, TargetError) as error:
        return Cell(case.name, chip, compile_s=time.perf_counter() - start, reason=error.what)
    seconds = time.perf_counter() - start
    arguments = case.arguments()
    exact = case.agrees(built(*arguments), case.reference(*arguments[:-1]))
    least = math.ceil(independent_bound(case.kernel, CHIPS[chip]()) or 0)
    made = tuple(a.program.name for a in built.form.made.values() if a.program is not None)
    bound = built.bound.cycles if built.bound is not None else 0
    return Cell(case.name, chip, built.cycles, bound, least, made, exact, seconds)


def table(cells: Sequence[Cell], chips: Sequence[str]) -> Table:
    shown = Table(box=None)
    shown.add_column("kernel")
    for chip in chips:
        shown.add_column(chip, justify="right")
    for name in dict.fromkeys(c.kernel for c in cells):
        row = {c.chip: c for c in cells if c.kernel == name}
        shown.add_row(name, *(_text(row[chip]) for chip in chips))
    return shown


def _text(cell: Cell) -> str:
    if cell.reason:
        return "—"
    if not cell.exact:
        return "✗"
    return f"{cell.share:.1%} {cell.fair_share:6.1%}{cell.mark or ' '}"


def summary(cells: Sequence[Cell], chips: Sequence[str]) -> Iterator[str]:
    """Shares and times of each chip; every reason, with the kernels that are refused for it."""
    for chip in chips:
        done = [c for c in cells if c.chip == chip and not c.reason]
        if not done:
            continue
        times = [c.compile_s for c in done]
        both = [[c.share for c in done], [c.fair_share for c in done if c.least]]
        means, least = zip(*((statistics.mean(x), min(x)) for x in both if x), strict=True)
        yield (
            f"{chip}: {len(done)} kernels, mean {' and '.join(f'{x:.1%}' for x in means)} of the"
            f" bounds, least {' and '.join(f'{x:.1%}' for x in least)}; built in"
            f" {statistics.median(times):.1f} s, at most {max(times):.1f} s"
        )
    for cell in (c for c in cells if c.reason):
        yield f"{cell.chip}, {cell.kernel}: {cell.reason.splitlines()[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--chips", default=",".join(CHIPS), help=f"of {', '.join(CHIPS)}")
    parser.add_argument("--kernels", default="", help="those that have this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    chips = options.chips.split(",")
    cases = [c for c in (make() for make in MATRIX) if options.kernels in c.name]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    work = [(case, chip) for case in cases for chip in chips]
    cells = [measure(*each) for each in track(work, "matrix", console=Console(stderr=True))]
    console.print(table(cells, chips))
    console.print("", *summary(cells, chips), sep="\n", soft_wrap=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(c) for c in cells], indent=2))
    return int(not all(c.exact for c in cells))


if __name__ == "__main__":
    sys.exit(main())
