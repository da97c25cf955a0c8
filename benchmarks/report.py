"""What was measured, and how it is shown: records, a JSON form and a table."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from machine import Machine
from peak import METHOD
from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from worker import Loaded

OURS = "tilewright"
BUSY = 0.1
"""Share of a core: more than this, used by others meanwhile, may have disturbed a measurement."""


HEADINGS = (
    *("model", "thr", "bound", "engine", "median", "minimum", "ratio"),
    *("ready\ns", "peak\nMiB", "error"),
)


@dataclass(frozen=True)
class Measurement:
    """One engine on one case."""

    engine: str
    version: str
    failure: str | None
    """Why there is no result, or why it must not be trusted."""
    error: float | None
    """Largest difference from the reference's outputs, by their largest value."""
    rounds_ms: tuple[tuple[float, ...], ...]
    """Every timed run, by round."""
    idle_cpu: float
    """Share of a core used while the others were measured."""
    loaded: Loaded | None

    @property
    def times_ms(self) -> list[float]:
        """Every timed run."""
        return [time for times in self.rounds_ms for time in times]

    @property
    def valid(self) -> bool:
        """Whether it ran and gave the right result."""
        return self.failure is None and bool(self.rounds_ms)


@dataclass(frozen=True)
class Case:
    """One model with one number of threads."""

    model: str
    threads: int
    macs: int
    bound_ms: float
    """The arithmetic alone, at the machine's measured peak."""
    busy_cores: float | None
    """What else ran on the machine just before, in cores; None where it cannot be known."""
    measurements: tuple[Measurement, ...]
    best_peer: str | None
    ratio: float | None
    """Ours by the best peer's: median over the rounds of the ratio of the rounds' medians."""
    ratio_of_minima: float | None


@dataclass(frozen=True)
class Report:
    """Everything one run of the benchmark found."""

    machine: Machine
    peak_gflops: float
    notes: tuple[str, ...]
    cases: tuple[Case, ...]

    def to_json(self) -> str:
        """All times included, so that other statistics can be had later."""
        cases = [_case_dict(case) for case in self.cases]
        peak = {"gflops_per_core": self.peak_gflops, "method": METHOD}
        document = {
            "machine": asdict(self.machine),
            "peak": peak,
            "notes": self.notes,
            "cases": cases,
        }
        return json.dumps(document, indent=1) + "\n"


def summarize(
    model: str,
    threads: int,
    macs: int,
    bound_ms: float,
    busy_cores: float | None,
    measurements: tuple[Measurement, ...],
) -> Case:
    """Find the best peer, by its median, and compare ours with it."""
    peers = [one for one in measurements if one.engine != OURS and one.valid]
    ours = next((one for one in measurements if one.engine == OURS and one.valid), None)
    best = min(peers, key=lambda one: median(one.times_ms), default=None)
    ratio = ratio_of_minima = None
    if ours is not None and best is not None:
        ratio = median(
            median(mine) / median(theirs)
            for mine, theirs in zip(ours.rounds_ms, best.rounds_ms, strict=True)
        )
        ratio_of_minima = min(ours.times_ms) / min(best.times_ms)
    return Case(
        model=model,
        threads=threads,
        macs=macs,
        bound_ms=bound_ms,
        busy_cores=busy_cores,
        measurements=measurements,
        best_peer=best.engine if best is not None else None,
        ratio=ratio,
        ratio_of_minima=ratio_of_minima,
    )


def make_table(cases: Sequence[Case], peak_gflops: float) -> Table:
    """One row per engine, grouped by case."""
    table = Table(
        title="float32, in ms, measured in turn",
        caption=(
            f"bound: arithmetic of direct algorithms at {peak_gflops:.0f} GFLOP/s per core; "
            "ratio: ours by the best peer's; ready: compilation and first run"
        ),
        box=box.SIMPLE,
        padding=0,
        pad_edge=False,
    )
    for heading in HEADINGS:
        justify: JustifyMethod = "left" if heading in ("model", "engine") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    for case in cases:
        lead = (case.model, str(case.threads), f"{case.bound_ms:.2f}" if case.macs else "")
        for one in case.measurements:
            table.add_row(*lead, one.engine, *_cells(one, case))
            lead = ("", "", "")
        table.add_section()
    return table


def problems(cases: Sequence[Case]) -> list[str]:
    """One line for each failure, and for whatever else used the processor meanwhile."""
    lines = []
    for case in cases:
        if case.busy_cores is not None and case.busy_cores > BUSY:
            where = f"{case.model}, threads={case.threads}"
            lines.append(f"{where}: other programs used {case.busy_cores:.1f} cores: expect noise")
        for one in case.measurements:
            where = f"{one.engine} on {case.model}, threads={case.threads}"
            if one.failure is not None:
                lines.append(f"{where}: {one.failure}")
            elif one.idle_cpu > BUSY:
                lines.append(f"{where}: used {one.idle_cpu:.0%} of a core while it was to sleep")
    return lines


def _cells(one: Measurement, case: Case) -> list[str]:
    """Times, ratio, readiness, memory and error of one row; a dash where there is none."""
    times = ["-", "-"]
    if one.times_ms:
        times = [f"{median(one.times_ms):.2f}", f"{min(one.times_ms):.2f}"]
    ratio = ""
    if one.engine == OURS:
        ratio = "-" if case.ratio is None else f"[bold]{case.ratio:.2f}[/]"
    elif one.engine == case.best_peer:
        ratio = "best"
    ready = ["-", "-"]
    if one.loaded is not None:
        seconds = one.loaded.compile_s + one.loaded.first_run_s
        ready = [f"{seconds:.2f}", f"{one.loaded.peak_mib:.0f}"]
    error = "-" if one.error is None else f"{one.error:.0e}"
    return [*times, ratio, *ready, "[red]failed[/]" if one.failure else error]


def _case_dict(case: Case) -> dict[str, object]:
    engines = [
        {**asdict(one), "median_ms": median(one.times_ms), "min_ms": min(one.times_ms)}
        if one.times_ms
        else asdict(one)
        for one in case.measurements
    ]
    return {**asdict(case), "measurements": engines}
