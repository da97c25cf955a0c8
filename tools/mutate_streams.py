"""Damaged streams of instructions: every one that can do harm must be caught.

    python tools/mutate_streams.py                  what `make mutation` runs
    python tools/mutate_streams.py --count 50       so many mutants of each stream
    python tools/mutate_streams.py --case "tiny"    of one of them
    python tools/mutate_streams.py --show           with what was changed, and every verdict

Streams of tests/stream_cases.py are changed in one place (tests/stream_mutants.py): a wait, a
buffer's size, a base, a step, another field, the order of two instructions. A judge that shares
nothing with the checks (tests/stream_judge.py) says by brute force which changes do harm. The
checks see the changed stream, and what it should compute: bytes touched and written, waits, and a
replay in adversarial orders. Exit code 1 if something harmful passes, or a stream that was not
changed is accused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from stream_cases import CASES  # noqa: E402  (the path above)
from stream_judge import Judge  # noqa: E402
from stream_mutants import KINDS, Mutant, mutant  # noqa: E402

from tilewright.chip import ChipKernel  # noqa: E402
from tilewright.codegen.stream import Stream  # noqa: E402
from tilewright.optimize.arrange import arrange  # noqa: E402
from tilewright.sim.boxes import boxes  # noqa: E402
from tilewright.sim.check import check_waits  # noqa: E402
from tilewright.sim.faults import Fault  # noqa: E402
from tilewright.sim.memory import check_memory  # noqa: E402
from tilewright.sim.replay import replay  # noqa: E402
from tilewright.sim.waits import Waits  # noqa: E402
from tilewright.targets import cpu  # noqa: E402

COUNT, SEED, JOBS, ORDERS = 60, 0, 2, 12
HOST = cpu.host(threads=1)
JUDGE, CHECKS = (11, 12), (21, 22)  # seeds of data


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant: why it is harmful, if so, and what caught it, if anything."""

    case: str
    kind: str
    what: str
    harm: str | None
    caught: str | None
    words: str


class Subject:
    """A stream, with data for the judge and other data for the checks."""

    def __init__(self, name: str) -> None:
        self.name, self.case = name, CASES[name]
        self.chip: ChipKernel = self.case.build()
        self.known: dict = {}
        self.judged = [self._held(seed) for seed in JUDGE]
        self.checked = [self._held(seed) for seed in CHECKS]

    def _held(self, seed: int) -> tuple[Mapping, list[np.ndarray]]:
        """Inputs and outputs as they lie in the chip's memory."""
        inputs, outputs = self.case.arrays(seed)
        source, kernel = self.chip.source, self.chip.kernel
        given = {b.name: a for b, a in zip(source.params, (*inputs, *outputs), strict=True)}
        held = {b: arrange(given[b.name], self.chip._type(b.name)) for b in kernel.params}
        return {b: held[b] for b in kernel.inputs}, [held[b] for b in kernel.outputs]

    def check(self, stream: Stream, waits: Waits) -> Fault | None:
        """What the compiler's checks and the replay say."""
        found = boxes(stream)
        fault = check_memory(stream, self.chip.kernel.inputs, found)
        fault = fault or check_waits(stream, None, waits, found)
        for seed, (inputs, expected) in enumerate(self.checked):
            fault = fault or replay(
                stream, waits, HOST, inputs, self.chip.kernel.outputs, expected,
                orders=ORDERS, seed=seed, found=found,
            )  # fmt: skip
        return fault

    def outcome(self, m: Mutant, seed: int) -> Outcome:
        harm = Judge(m.stream, m.waits, self.known).verdict(self.chip, self.judged, seed)
        fault = self.check(m.stream, m.waits)
        caught = None if fault is None else fault.kind.value
        return Outcome(self.name, m.kind, m.what, harm, caught, "" if fault is None else str(fault))


def run_case(name: str, count: int, seed: int) -> tuple[int, list[Outcome]]:
    """Its number of instructions, and what became of it unchanged and of its mutants."""
    subject = Subject(name)
    chip = subject.chip
    found = [subject.outcome(Mutant("none", "", chip.stream, chip.waits), seed)]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kinds = list(KINDS)
    seen: set[tuple[str, str]] = set()
    for attempt in range(20 * count):
        m = mutant(chip, kinds[attempt % len(kinds)], rng)
        if m is None or (m.kind, m.what) in seen:
            continue
        seen.add((m.kind, m.what))
        found.append(subject.outcome(m, attempt))
        if len(found) > count:
            break
    return len(chip.stream), found


# ---------------------------------------------------------------- report


def table(outcomes: Sequence[Outcome]) -> Table:
    shown = Table(box=None)
    shown.add_column("change")
    for heading in ("mutants", "harmful", "caught", "harmless", "accused"):
        shown.add_column(heading, justify="right")
    for kind in (*KINDS, "all"):
        mine = [o for o in outcomes if o.kind != "none" and kind in (o.kind, "all")]
        harmful = [o for o in mine if o.harm]
        harmless = [o for o in mine if not o.harm]
        counts = (len(mine), len(harmful), sum(o.caught is not None for o in harmful))
        counts += (len(harmless), sum(o.caught is not None for o in harmless))
        shown.add_row(kind, *(f"{n:,}" for n in counts))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="mutants of each stream")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--case", choices=list(CASES), help="one stream only")
    parser.add_argument("--show", action="store_true", help="every verdict")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every verdict")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    names = [options.case] if options.case else list(CASES)
    outcomes: list[Outcome] = []
    lengths: dict[str, int] = {}
    start = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool, Progress(console=console) as progress:
        bar = progress.add_task("streams", total=len(names))
        work = {n: pool.submit(run_case, n, options.count, options.seed) for n in names}
        for name, future in work.items():
            lengths[name], found = future.result()
            outcomes += found
            progress.advance(bar)
    missed = [o for o in outcomes if o.harm and o.caught is None]
    accused = [o for o in outcomes if o.kind == "none" and (o.harm or o.caught)]
    console.print(table(outcomes))
    caught = Counter(o.caught for o in outcomes if o.harm and o.caught)
    console.print(
        "harmful ones were caught as: " + ", ".join(f"{k} {n}" for k, n in caught.items())
    )
    console.print(
        f"{len(names)} streams of {min(lengths.values())} to {max(lengths.values())} instructions, "
        f"{time.perf_counter() - start:.0f} s"
    )
    for o in outcomes if options.show else (*missed, *accused):
        console.print(f"{o.case}: {o.kind} {o.what}: harm {o.harm}; caught {o.words or None}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=2))
    return int(bool(missed or accused))


if __name__ == "__main__":
    sys.exit(main())
