"""Random schedules of many kernels: what is accepted changes nothing, little is refused in vain.

    python tools/fuzz_schedules.py              40,000 proposals; what `make fuzz-schedules` runs
    python tools/fuzz_schedules.py --seed 7     the same proposals again
    python tools/fuzz_schedules.py --reasons    what was refused, and in what words

Proposals are primitives with random arguments, in series, on the kernels of
schedule_kernels.py; primitives that are behind their quota come more often, and proposals go
on until none is. Every accepted program must compute what the kernel did: in order, with its
parallel and vector loops at the same time, and some as machine code. On tiny sizes an oracle
(oracle.py) decides each proposal without the compiler's analysis: what it calls illegal must
be refused, and of what it calls legal 95 % must be accepted. Refusals that no oracle can judge,
since there is no edit to look at, are counted as preconditions. Exit code 1 where any of this does
not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from schedule_trials import (  # noqa: E402  (the path above)
    Chooser,
    Finding,
    Kind,
    Outcome,
    Trial,
)
from strategies_schedule import primitives  # noqa: E402

from tilewright.targets import cpu  # noqa: E402

COUNT, QUOTA, JOBS = 40_000, 300, os.cpu_count() or 1
ENOUGH = 0.95  # of what is legal must be accepted
STEPS = 8  # proposals of a series, at most
PATIENCE = 10  # times as many proposals at most, while a primitive is behind its quota
KINDS = {Kind.TINY: 6, Kind.LARGER: 2, Kind.SYMBOLIC: 1}
SLOWLY, NATIVE = 0.05, 0.08  # of accepted programs, of series: shares that are run by slower ways


# ---------------------------------------------------------------- a worker


class Worker:
    """Series after series, until there are enough proposals and each primitive has its quota."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(options.seed * 1000 + options.worker)
        self.share = -(-options.count // options.jobs)
        self.chooser = Chooser(self.rng, -(-options.quota // options.jobs))
        self.proposed = 0
        self.target = cpu.host(threads=2)

    def run(self) -> None:
        while self.proposed < self.share or not (self.chooser.is_content or self.is_hopeless):
            self.chooser.hurries = self.proposed >= self.share
            name = self.chooser.kernel()
            (kind,) = self.rng.choices(list(KINDS), list(KINDS.values()))
            story = [f"{name}, {kind.value}"]
            try:
                trial = Trial(name, kind, self.rng.randint(0, 200))
                story = trial.story
                self.series(name, trial)
            except Finding as finding:
                say(finding=str(finding))
            except Exception:  # noqa: BLE001 - whatever a compiler can do wrong
                say(finding="\n".join([traceback.format_exc(limit=-8) + "after", *story]))

    @property
    def is_hopeless(self) -> bool:
        return self.proposed >= PATIENCE * self.share

    def series(self, name: str, trial: Trial) -> None:
        results = []
        for _ in range(self.rng.randint(1, STEPS)):
            step = None if trial.is_large else self.chooser.step(trial.schedule)
            if step is None:
                continue
            result = trial.propose(step)
            self.proposed += 1
            self.chooser.note(name, result)
            results.append([result.primitive, result.outcome.value, result.reason])
            if result.outcome is Outcome.ACCEPTED:
                trial.check(slowly=self.rng.random() < SLOWLY)
        native = self.rng.random() < NATIVE
        if native:
            Path(self.options.trying).write_text("\n".join(trial.story))
            trial.check_native(self.target)
        say(results=results, native=native, kernel=name, judged=trial.oracle is not None)


def say(**line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


# ---------------------------------------------------------------- all of them


def lines(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """From all workers, as they come. Each writes a file: a line may be longer than what a pipe
    takes at one stroke."""
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for i in range(options.jobs):
            trying = Path(folder) / str(i)
            command = [sys.executable, __file__, "--worker", str(i), "--trying", str(trying)]
            for name in ("count", "quota", "seed", "jobs"):
                command += [f"--{name}", str(getattr(options, name))]
            out = open(Path(folder) / f"{i}.out", "wb")  # noqa: SIM115 - lives with the process
            workers.append((subprocess.Popen(command, stdout=out), trying, Path(out.name)))
        streams = [(path.open(), process) for process, _, path in workers]
        rest = ["" for _ in streams]
        running = True
        while running:
            running = any(process.poll() is None for process, _, _ in workers)
            for i, (stream, _) in enumerate(streams):
                *whole, rest[i] = (rest[i] + stream.read()).split("\n")
                yield from map(json.loads, whole)
            time.sleep(0.2 if running else 0)
        for process, trying, _ in workers:
            if process.returncode:
                last = trying.read_text() if trying.exists() else "nothing was built"
                yield {"finding": f"the process ended with {process.returncode}\n{last}"}


class Tally:
    """What came of all proposals."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.accepted: Counter[str] = Counter()  # judged or not
        self.reasons: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self.kernels: set[str] = set()
        self.findings: list[str] = []
        self.native = 0
        self.proposed = 0

    def add(self, line: dict[str, Any]) -> None:
        if "finding" in line:
            self.findings.append(line["finding"])
            return
        self.kernels.add(line["kernel"])
        self.native += line["native"]
        self.proposed += len(line["results"])
        for primitive, outcome, reason in line["results"]:
            self.accepted[primitive] += outcome == Outcome.ACCEPTED.value
            if line["judged"]:
                self.counts[primitive][outcome] += 1
            if reason:
                self.reasons[outcome][primitive, reason] += 1

    def table(self) -> Table:
        table = Table(box=None, header_style="bold", pad_edge=False)
        heads = ["primitive", "accepted in all", "judged", "legal", "accepted", "of legal"]
        for head in [*heads, "illegal", "illegal accepted", "precondition"]:
            left = head == "primitive"
            table.add_column(head, justify="left" if left else "right", no_wrap=left)
        for primitive in primitives():
            n = {o: self.counts[primitive][o.value] for o in Outcome}
            legal = n[Outcome.ACCEPTED] + n[Outcome.LOST]
            wrong = sum(f"illegal rewrite was accepted: {primitive}:" in f for f in self.findings)
            cells = [self.accepted[primitive], sum(n.values()), legal, n[Outcome.ACCEPTED]]
            share = f"{self.share(primitive):.1%}"
            illegal = [n[Outcome.ILLEGAL] + wrong, wrong, n[Outcome.PRECONDITION]]
            table.add_row(primitive, *(f"{c:,}" for c in cells), share, *map(str, illegal))
        return table

    def share(self, primitive: str) -> float:
        """Of the legal proposals, those accepted."""
        n = self.counts[primitive]
        legal = n[Outcome.ACCEPTED.value] + n[Outcome.LOST.value]
        return n[Outcome.ACCEPTED.value] / legal if legal else 1.0

    def shortfalls(self, quota: int) -> Iterator[str]:
        for p in primitives():
            if self.accepted[p] < quota:
                yield f"{p} was accepted {self.accepted[p]} times, not {quota}"
            if self.share(p) < ENOUGH:
                yield f"{p}: {self.share(p):.1%} of what is legal was accepted"


def run_all(options: argparse.Namespace) -> int:
    """All proposals, with progress; the exit code."""
    console = Console(stderr=True, highlight=False, markup=False)
    width = None if sys.stdout.isatty() else 120
    out = Console(highlight=False, markup=False, soft_wrap=True, width=width)
    tally, start, told = Tally(), time.perf_counter(), 0
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("proposals", total=options.count)
        for line in lines(options):
            tally.add(line)
            progress.update(task, completed=tally.proposed)
            if tally.proposed >= told + 5000 and not console.is_terminal:
                told = tally.proposed
                console.print(f"… {told:,} of {options.count:,}", soft_wrap=True)
    for finding in tally.findings[: options.show]:
        out.print(finding, end="\n\n")
    out.print(tally.table())
    out.print(
        f"\n{tally.proposed:,} proposals on {len(tally.kernels)} kernels, "
        f"{sum(tally.accepted.values()):,} accepted and run; {tally.native:,} built as well"
    )
    if options.reasons:
        for outcome in sorted(tally.reasons):
            out.print(f"\n{outcome}:")
            for (primitive, reason), n in tally.reasons[outcome].most_common():
                out.print(f"  {n:6}  {primitive}: {reason}")
    short = list(tally.shortfalls(options.quota))
    out.print(*short, sep="\n")
    took = time.perf_counter() - start
    out.print(f"{len(tally.findings)} differences; seed {options.seed}, {took:.0f} s")
    return int(bool(tally.findings or short))


def main() -> int:
    summary = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="fuzz_schedules.py", description=summary)
    parser.add_argument("--count", type=int, default=COUNT, help="proposals, at least")
    parser.add_argument("--quota", type=int, default=QUOTA, help="acceptances of each primitive")
    parser.add_argument("--seed", type=int, help="default: new proposals each time")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes")
    parser.add_argument("--reasons", action="store_true", help="list what was refused, and why")
    parser.add_argument("--show", type=int, default=20, help="findings printed")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--trying", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(3), "little")
    if options.worker is None:
        return run_all(options)
    Worker(options).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
