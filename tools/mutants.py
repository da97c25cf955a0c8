"""Mutation of the compiler: how many small changes of its code do the tests notice?

    python tools/mutants.py                    300 mutants, seed 0; what `make mutants` runs
    python tools/mutants.py --seed 2 --jobs 2  other ones, by two processes
    python tools/mutants.py --record           only record which lines each test runs, which
                                               takes two to three times as long as the tests
    python tools/mutants.py --files schedule/  mutants of these files only

Mutants are drawn from all that the packages of `SCOPE` (tools/mutants_record.py) have, each as
likely as any other: `OPERATORS` of tools/mutants_sites.py are the changes, and its head says what
is left alone. Whatever a change touches counts: a schedule that is worse, a plan that is larger, a
cost that is estimated differently are noticed by tests, or the mutant survives.

A mutant meets the tests that run its line, or, where the line runs on import, those that run
anything of its module: fast ones first, a file's not all at once, as many as take a processor
about a minute together. It is noticed when one fails, crashes, or takes ten times
as long as it should (the same test is then run without the mutant: where that fails too, the mutant
has survived). Tests that fail or are skipped without any mutation are left out, and so is
tests/test_structure.py, about the text of the code. What only a subprocess of a test runs is not
seen. Tests draw the same random examples every time (tests/conftest.py).

A record and every verdict are kept in build/mutants, so that a draw that was cut short goes on
where it was: a verdict holds while the sources and the test that noticed the mutant stay the same,
a survivor's while all tests do. Mutants that no test can notice, with the reason, are in
tools/mutants_equivalent.py: at most a tenth of a draw may be. Exit code 1 if tests notice less than
90 % of the others.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutants_equivalent import EQUIVALENT
from mutants_record import (
    COLLECTION,
    ROOT,
    digest,
    hash_of,
    read_record,
    record_of,
    stale,
    test_files,
)
from mutants_sites import Mutant, files, mutants, source_of
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

COUNT, SEED = 300, 0
SECONDS = 120.0  # of tests, when they were recorded: half as long without
WAIT = 180.0  # for them to end: the machine may have other work
ENOUGH, EQUIVALENTS = 0.9, 0.1
RESULTS = ROOT / "build" / "mutants" / "results.jsonl"
TOOLS = Path(__file__).parent
NOTICED = ("killed", "crash", "timeout", "import")

# ---- which tests a mutant meets -----------------------------------------------------------------


def record(jobs: int, console: Console) -> None:
    """Run the test files whose record is missing."""
    command = [sys.executable, "-m", "pytest", "-q", "-pmutants_record", "-pno:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    run = functools.partial(subprocess.run, cwd=ROOT, env=environment, check=False)
    if not record_of(None).exists():
        run([*command, "--collect-only", *map(str, test_files())], stdout=subprocess.DEVNULL)
    if missing := stale():
        console.print(f"recording which lines the tests of {len(missing)} files run")
        spread = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
        run([*command, *spread, *map(str, missing)])
    if still := [p for p in (None, *test_files()) if not record_of(p).exists()]:
        raise SystemExit(f"no record of {', '.join(str(p) for p in still)}")


class Tests:
    """What was recorded, asked by mutant."""

    def __init__(self, noticed: Counter[str]) -> None:
        """`noticed` counts the mutants that each test file noticed so far."""
        rows, self.noticed = read_record(), noticed
        self.collected = {f: set(n) for f, n in rows.pop(COLLECTION)["lines"].items()}
        self.seconds = {name: row["seconds"] for name, row in rows.items() if row["passed"]}
        self.left_out = sorted(name for name, row in rows.items() if not row["passed"])
        self.by_line: dict[tuple[str, int], list[str]] = {}
        self.by_file: dict[str, list[str]] = {}
        for name in sorted(self.seconds, key=lambda n: (self.seconds[n], n)):
            for file, lines in rows[name]["lines"].items():
                self.by_file.setdefault(file, []).append(name)
                for line in lines:
                    self.by_line.setdefault((file, line), []).append(name)

    def on_import(self, mutant: Mutant) -> bool:
        lines = {*range(mutant.lines[0], mutant.lines[1] + 1), mutant.statement}
        return mutant.imported or not lines.isdisjoint(self.collected.get(mutant.file, ()))

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that run the mutant's line, in the order in which they are tried."""
        first, last = mutant.lines
        found = {t for n in range(first, last + 1) for t in self.by_line.get((mutant.file, n), ())}
        found = found or set(self.by_line.get((mutant.file, mutant.statement), ()))
        if self.on_import(mutant):
            found |= set(self.by_file.get(mutant.file, ()) or self.seconds)
        return self.ordered(found)

    def ordered(self, names: Iterable[str]) -> list[str]:
        """The fastest first. The n-th of a file counts as n times as slow, so that all files get
        their turn, and one of a file that noticed m others as so many times as fast."""
        cost, seen = {}, Counter()
        for name in sorted(names, key=lambda name: (self.seconds[name], name)):
            file = name.split("::")[0]
            seen[file] += 1
            cost[name] = self.seconds[name] * seen[file] / (1 + self.noticed[file])
        return sorted(cost, key=lambda name: (cost[name], name))

    def within(self, names: list[str], seconds: float) -> list[tuple[str, float]]:
        """The first of them that took so long together."""
        chosen, total = [], 0.0
        for name in names:
            total += self.seconds[name]
            if total > seconds:
                break
            chosen.append((name, self.seconds[name]))
        return chosen


# ---- judging ------------------------------------------------------------------------------------


class Worker:
    """A process of tools/mutants_worker.py: for all mutants, or fresh for one."""

    def __init__(self, files: list[str], mutant: tuple[str, int] | None = None) -> None:
        order = json.dumps({"mutant": mutant, "files": files})
        command = [sys.executable, str(TOOLS / "mutants_worker.py"), order]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, start_new_session=True, stderr=subprocess.DEVNULL, **pipes
        )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """None if it ended; queue.Empty if it took too long."""
        line = self.answers.get(timeout=seconds)
        return json.loads(line) if line else None

    def ask(
        self, mutant: tuple[str, int] | None, tests: list[tuple[str, float]], seconds: float
    ) -> dict[str, Any] | None:
        request = {"mutant": mutant, "tests": tests, "seconds": seconds}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer(seconds + 30)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Judge:
    """Judges one mutant after the other; it has one worker for all of them."""

    def __init__(self, tests: Tests, seconds: float) -> None:
        self.tests, self.seconds = tests, seconds
        self.worker = Worker([str(p) for p in test_files()])
        ready = self.worker.answer(600)
        if not ready or ready["failed"]:
            raise SystemExit("tests cannot be collected, without any mutant")

    def judge(self, mutant: Mutant, number: int) -> dict[str, Any]:
        names, where = self.tests.of(mutant), (mutant.file, number)
        answer: dict[str, Any] = {"status": "no test", "by": None, "tried": 0, "seconds": 0.0}
        chosen = self.tests.within(names, self.seconds)
        if not chosen:
            return answer
        if not self.tests.on_import(mutant):
            answer = self.worker.ask(where, chosen, WAIT)
        if self.tests.on_import(mutant) or answer["status"] == "fresh":
            answer = self.fresh(where, names)
        if answer["by"] is not None and answer["status"] in NOTICED:
            answer = self.confirm(answer)
        return {**answer, "tests": len(names)}

    def fresh(self, where: tuple[str, int], names: list[str]) -> dict[str, Any]:
        chosen = self.tests.within(names, self.seconds / 2)
        used = sorted({name.split("::")[0] for name, _ in chosen})
        begin = time.monotonic()
        worker = Worker(used, where)
        try:
            ready = worker.answer(WAIT)
            if ready and not ready["failed"]:
                left = max(1.0, WAIT - (time.monotonic() - begin))
                return worker.ask(where, chosen, left) or {"status": "import", "by": None}
            return {"status": "import", "by": None, "tried": 0}
        except queue.Empty:
            return {"status": "import", "by": None, "tried": 0}
        finally:
            worker.stop()

    @functools.cache  # noqa: B019  (a judge lives as long as the process)
    def unmutated(self, test: str) -> dict[str, Any]:
        return self.worker.ask(None, [(test, self.tests.seconds[test])], WAIT)

    def confirm(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What noticed the mutant must be fine without it, and much faster than a time-out."""
        alone = self.unmutated(answer["by"])
        fast = answer["status"] != "timeout" or alone["seconds"] < answer["seconds"] / 4
        if alone["status"] == "survived" and fast:
            return answer
        return {**answer, "status": "unclear"}


# ---- verdicts that are kept ---------------------------------------------------------------------


def holds(verdict: dict[str, Any]) -> str:
    """A digest of what the verdict depends on."""
    if verdict["status"] in NOTICED:
        test = verdict["by"]
        return digest(ROOT / test.split("::")[0]) if test else digest(None)
    return everything()


@functools.cache
def everything() -> str:
    return hash_of(test_files(), *(digest(p) for p in test_files()))


def kept() -> dict[tuple[str, ...], dict[str, Any]]:
    if not RESULTS.exists():
        return {}
    found = [json.loads(row) for row in RESULTS.read_text().splitlines() if row.endswith("}")]
    return {tuple(v["key"]): v for v in found if v["holds"] == holds(v)}


def draw(count: int, seed: int, only: tuple[str, ...]) -> list[tuple[Mutant, int]]:
    chosen = [f for f in files() if f.startswith(only)]
    every = [(m, i) for f in chosen for i, m in enumerate(mutants(f))]
    return random.Random(seed).sample(every, min(count, len(every)))


def judge_all(
    drawn: list[tuple[Mutant, int]], jobs: int, seconds: float, console: Console
) -> list[dict[str, Any]]:
    """Verdicts in the order of the draw; each is written down as soon as it is known."""
    verdicts = kept()
    work: queue.SimpleQueue[tuple[Mutant, int]] = queue.SimpleQueue()
    left = [pair for pair in drawn if pair[0].key not in verdicts]
    for pair in left:
        work.put(pair)
    lock = threading.Lock()
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("mutants", total=len(drawn), completed=len(drawn) - len(left))
        by = (v["by"] for v in verdicts.values() if v["status"] in NOTICED and v["by"])
        tests = Tests(Counter(name.split("::")[0] for name in by)) if left else None
        if tests and tests.left_out:
            console.print(f"left out, as they do not pass without a mutant: {tests.left_out}")

        def go() -> None:
            judge = Judge(tests, seconds)
            try:
                while True:
                    mutant, number = work.get_nowait()
                    verdict = {"key": mutant.key, **judge.judge(mutant, number)}
                    verdict["holds"] = holds(verdict)
                    with lock, RESULTS.open("a") as results:
                        verdicts[mutant.key] = verdict
                        results.write(json.dumps(verdict) + "\n")
                        progress.advance(bar)
            except queue.Empty:
                pass
            finally:
                judge.worker.stop()

        threads = [threading.Thread(target=go) for _ in range(min(jobs, len(left)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not work.empty() or any(m.key not in verdicts for m, _ in left):
            raise SystemExit("a worker ended before its time; what is known was kept: try again")
    return [{**asdict(m), **verdicts[m.key]} for m, _ in drawn]


# ---- the report ---------------------------------------------------------------------------------


def outcome(verdict: dict[str, Any]) -> str:
    if verdict["status"] in NOTICED:
        return "noticed"
    return "equivalent" if tuple(verdict["key"]) in EQUIVALENT else "survived"


def table(verdicts: list[dict[str, Any]]) -> Table:
    shown = Table(box=None)
    shown.add_column("package")
    for heading in ("mutants", "noticed", "equivalent", "survived", "noticed of others"):
        shown.add_column(heading, justify="right")
    packages = sorted({v["file"].split("/")[0] for v in verdicts})
    for package in (*packages, "all"):
        mine = [v for v in verdicts if package in (v["file"].split("/")[0], "all")]
        counts = Counter(map(outcome, mine))
        others = len(mine) - counts["equivalent"]
        share = f"{counts['noticed'] / others:.1%}" if others else "-"
        numbers = (counts["noticed"], counts["equivalent"], counts["survived"])
        shown.add_row(package, str(len(mine)), *map(str, numbers), share)
    return shown


def describe(verdict: dict[str, Any]) -> str:
    """A survivor: where it is, what was changed in which line, what was tried."""
    at, function = verdict["lines"][0], verdict["function"] or "the module"
    line = source_of(verdict["file"]).splitlines()[at - 1].strip()
    tried = f"{verdict['tried']} of {verdict.get('tests', 0)} tests tried"
    head = f"src/tilewright/{verdict['file']}:{at}: in {function} ({verdict['status']}; {tried})"
    change = f"    {verdict['original']}\n    ->  {verdict['mutated']}"
    return f"{head}\n    {line}\n{change}\n    key {tuple(verdict['key'])!r}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests, for a mutant")
    parser.add_argument("--files", nargs="*", default=[""], help="beginnings of files' names")
    parser.add_argument("--record", action="store_true", help="record, and judge nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every verdict")
    options = parser.parse_args()
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    record(options.jobs, console)
    if options.record:
        return 0
    drawn = draw(options.count, options.seed, tuple(options.files))
    verdicts = judge_all(drawn, options.jobs, options.seconds, console)
    for verdict in verdicts:
        if outcome(verdict) == "survived":
            console.print(describe(verdict))
    console.print(table(verdicts))
    counts = Counter(map(outcome, verdicts))
    ways = Counter(v["status"] for v in verdicts)
    console.print("verdicts: " + ", ".join(f"{k} {n}" for k, n in ways.items()))
    if options.json is not None:
        options.json.write_text(json.dumps(verdicts, indent=1))
    others = len(verdicts) - counts["equivalent"]
    enough = counts["noticed"] >= ENOUGH * others
    return int(not enough or counts["equivalent"] > EQUIVALENTS * len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
