"""Damaged streams of instructions: every one that can do harm must be caught.

    python tools/mutate_streams.py                  what `make mutation` runs
    python tools/mutate_streams.py --count 50       so many mutants of each stream
    python tools/mutate_streams.py --case "tiny"    of one of them
    python tools/mutate_streams.py --show           with what was changed, and every verdict

Streams of support/stream_cases.py are changed in one place (support/stream_mutants.py): a wait, a
buffer's size, a base, a step, another field, the order of two instructions. A judge that shares
nothing with the checks (support/stream_judge.py) says by brute force which changes do harm. The
checks see the changed stream, and what it should compute: bytes touched and written, waits, and a
replay in adversarial orders. Exit code 1 if something harmful passes, or a stream that was not
changed is accused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from stream_cases import CASES
from stream_mutants import KINDS
from stream_trials import Outcome, run_case

COUNT, SEED, JOBS = 60, 0, 2


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
