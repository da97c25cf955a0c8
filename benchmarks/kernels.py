"""Measure the hand-scheduled kernels of examples/kernels on one core of this machine.

    python benchmarks/kernels.py --json build/kernels.json
    python benchmarks/kernels.py --only gemm,softmax --rounds 50

Each kernel's results are compared with numpy's, and its time with its bars: a share of the measured
peak (peak.py), or of the speed of a rival that does the same work and is measured in turn with it:
numpy's BLAS on one thread for products of matrices, our own copy loop for what memory limits (of
the same arrays, with the same kind of stores). What a call has to pack or to pad, it does within
the time.

Times are seconds of the processor, on the thread that runs the kernel: waiting for one's turn while
other programs run does not count (their use of caches and memory still shows). The fastest of all
rounds counts: others only ever add to a time. The medians are printed too, and every time is in the
JSON file.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from machine import Machine, busy_cores, describe
from peak import METHOD, measure_peak
from rich import box
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "kernels"))

import conv3x3
import copy_array
import gemm
import gemm_int8
import layer_norm
import softmax
import transpose
from common import Case

from tilewright.targets import cpu

MISSED, WRONG = 1, 2  # exit status: a bar was missed; a result was wrong
TURN_S = 0.02
PEAK_S = 0.3
WIDTH = 132  # of the table

Call = Callable[[], object]
Rival = Callable[[Case], Call]


def blas(case: Case) -> Call:
    """numpy's product of the first two arrays."""
    a, b, c = case.arrays
    out = np.empty_like(c)
    return lambda: np.matmul(a, b, out=out)


def copy(case: Case, *, nontemporal: bool = False) -> Call:
    """Our loop that copies the first array to the last, which has as many elements."""
    source, result = case.arrays[0].reshape(case.arrays[-1].shape), case.arrays[-1]
    m, n = result.shape
    kernel = copy_array.copy_array.bind(M=m, N=n)
    built = copy_array.schedule(kernel, case.target, nontemporal=nontemporal).build(case.target)
    return lambda: built(source, result)


def copy_nontemporal(case: Case) -> Call:
    """The same with stores past the caches."""
    return copy(case, nontemporal=True)


@dataclass(frozen=True)
class Entry:
    """A kernel on one size, and its bars."""

    kernel: str
    size: str
    make: Callable[..., Case]
    sizes: tuple[int, ...]
    rival: Rival | None = None
    least_ratio: float | None = None
    """Of the rival's time by ours."""
    least_share: float | None = None
    """Of the peak."""
    per_fma: float = 1.0
    """Operations that the kernel's instruction does for each that a multiply-add of f32 does."""


def bytes_case(n: int) -> Case:
    """gemm_int8, as a case like the others."""
    target = cpu.host(threads=1)
    a, b = gemm_int8.inputs(n, n, n)
    s = gemm_int8.schedule(gemm_int8.gemm.bind(M=n, N=n, K=n), target)
    arrays = (a, b, np.empty((n, n), np.int32))
    return Case(s, target, arrays, lambda: a.astype(np.int32) @ b.astype(np.int32), 2.0 * n**3)


ENTRIES = (
    Entry("gemm", "512", gemm.case, (512, 512, 512), blas, 0.97),
    Entry("gemm", "1024", gemm.case, (1024, 1024, 1024), blas, 0.97, 0.90),
    Entry("gemm", "2048", gemm.case, (2048, 2048, 2048), blas, 0.97, 0.90),
    Entry("conv3x3", "64 ch 56x56", conv3x3.case, (64, 56), least_share=0.85),
    Entry("conv3x3", "128 ch 28x28", conv3x3.case, (128, 28), least_share=0.85),
    Entry("conv3x3", "256 ch 14x14", conv3x3.case, (256, 14), least_share=0.85),
    Entry("conv3x3", "512 ch 7x7", conv3x3.case, (512, 7), least_share=0.75),
    Entry("softmax", "16384x1024", softmax.case, (16384, 1024), copy, 0.80),
    Entry("layer_norm", "16384x1024", layer_norm.case, (16384, 1024), copy, 0.80),
    Entry("transpose", "4096x4096", transpose.case, (4096, 4096), copy_nontemporal, 0.80),
    Entry("transpose", "4112x4112", transpose.case, (4112, 4112), copy_nontemporal, 0.80),
    Entry("gemm_int8", "1024", bytes_case, (1024,), least_share=0.80, per_fma=4.0),
)


@dataclass
class Result:
    """What was measured for one entry. Times are seconds."""

    kernel: str
    size: str
    flops: float
    bytes: float
    rival: str | None
    least_ratio: float | None
    least_share: float | None
    per_fma: float = 1.0
    ours_s: list[float] = field(default_factory=list)
    rival_s: list[float] = field(default_factory=list)
    share: float | None = None
    wrong: str | None = None
    busy: float | None = None

    @property
    def ratio(self) -> float | None:
        return min(self.rival_s) / min(self.ours_s) if self.rival_s else None

    @property
    def ratio_of_medians(self) -> float | None:
        return median(self.rival_s) / median(self.ours_s) if self.rival_s else None

    @property
    def passed(self) -> bool:
        pairs = ((self.ratio, self.least_ratio), (self.share, self.least_share))
        return self.wrong is None and all(
            bar is None or (found is not None and found >= bar) for found, bar in pairs
        )


def measure(entry: Entry, rounds: int) -> Result:
    """Checks one kernel, and times it in turn with its rival."""
    case = entry.make(*entry.sizes)
    name = entry.rival.__name__ if entry.rival else None
    bars = (name, entry.least_ratio, entry.least_share, entry.per_fma)
    result = Result(entry.kernel, entry.size, case.flops, case.bytes, *bars)
    try:
        case.check()
    except AssertionError as error:
        result.wrong = str(error).strip()
    result.busy = busy_cores()
    calls = [(case.run, result.ours_s)]
    if entry.rival is not None:
        calls.append((entry.rival(case), result.rival_s))
    for call, _ in calls:
        call()
    for _ in range(rounds):
        for call, times in calls:
            done, end = len(times), time.perf_counter() + TURN_S
            while len(times) < done + 2 or time.perf_counter() < end:
                start = time.thread_time()
                call()
                times.append(time.thread_time() - start)
    return result


def measure_all(entries: Sequence[Entry], rounds: int) -> tuple[list[Result], float]:
    """All results, with their shares of the best peak seen before, between and after them."""
    results: list[Result] = []
    with threadpool_limits(1):
        peak = measure_peak(PEAK_S)
        for entry in entries:
            results.append(measure(entry, rounds))
            peak = max(peak, measure_peak(PEAK_S))
    for result in results:
        if result.flops:
            result.share = result.flops / min(result.ours_s) / 1e9 / (peak * result.per_fma)
    return results, peak


# ---- what is shown -------------------------------------------------------------------------------

HEADINGS = (
    *("kernel", "size", "ms", "median", "rate", "of peak"),
    *("rival", "ms", "ratio", "of medians", "bar", ""),
)


def make_table(results: Sequence[Result], peak: float) -> Table:
    table = Table(box=box.SIMPLE, title=f"one core; its peak: {peak:.1f} GFLOP/s")
    for place, heading in enumerate(HEADINGS):
        side = "left" if place in (0, 6, 11) else "right"
        table.add_column(heading, justify=side, no_wrap=True)
    for r in results:
        rate = f"{r.flops / min(r.ours_s) / 1e9:.1f} Gop/s"
        if not r.flops:
            rate = f"{r.bytes / min(r.ours_s) / 1e9:.1f} GB/s"
        bars = [f"{r.least_ratio:.2f}x" if r.least_ratio is not None else ""]
        bars += [f"{r.least_share:.0%}" if r.least_share is not None else ""]
        verdict = "WRONG" if r.wrong else "pass" if r.passed else "miss"
        if not any(bars) and not r.wrong:
            verdict = "no bar"
        table.add_row(
            *(r.kernel, r.size, _ms(min(r.ours_s)), _ms(median(r.ours_s)), rate),
            f"{r.share:.1%}" if r.share is not None else "",
            *(r.rival or "", _ms(min(r.rival_s)) if r.rival_s else ""),
            *(f"{x:.3f}" if x is not None else "" for x in (r.ratio, r.ratio_of_medians)),
            *(" ".join(b for b in bars if b), verdict),
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def to_json(machine: Machine, peak: float, results: Sequence[Result]) -> str:
    cases = [
        {
            **asdict(r),
            "ratio": r.ratio,
            "ratio_of_medians": r.ratio_of_medians,
            "passed": r.passed,
        }
        for r in results
    ]
    known = {"machine": asdict(machine), "peak_gflops": peak, "peak_method": METHOD}
    return json.dumps({**known, "kernels": cases}, indent=1) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints a table and writes the JSON file; returns the exit status."""
    parser = argparse.ArgumentParser(prog="kernels.py", description=__doc__.split("\n", 1)[0])
    names = tuple(dict.fromkeys(entry.kernel for entry in ENTRIES))
    parser.add_argument("--only", default=",".join(names), metavar="A,B", help="default: all")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="default 20")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    wanted = options.only.split(",")
    for name in wanted:
        if name not in names:
            parser.error(f"--only: no {name!r}; there are {', '.join(names)}")
    if options.rounds < 1:
        parser.error(f"--rounds: must be at least 1, got {options.rounds}")
    out, machine = Console(soft_wrap=True, width=WIDTH), describe()
    out.print(str(machine), highlight=False)
    results, peak = measure_all([e for e in ENTRIES if e.kernel in wanted], options.rounds)
    out.print(make_table(results, peak))
    for r in results:
        if r.wrong:
            out.print(f"{r.kernel} {r.size}: wrong result: {r.wrong}", style="red", markup=False)
    if options.json is not None:
        options.json.write_text(to_json(machine, peak, results))
    if any(r.wrong for r in results):
        return WRONG
    return 0 if all(r.passed for r in results) else MISSED


if __name__ == "__main__":
    sys.exit(main())
