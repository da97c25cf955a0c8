"""The timed simulator on random chips: equal to a slow clock, and never faster than the bound.

    python tools/fuzz_clocks.py                     what `make fuzz-clocks` runs
    python tools/fuzz_clocks.py --streams 1000 --builds 100 --seed 7

Streams of random instructions run on random chips (random_chips.py: memories, banks, queues,
waits, fetch, results that stall, are forwarded or exposed), beside a clock in plain Python that
shares no code with the simulator (slow_clock.py): every instruction begins, leaves and is
done in the same cycle. Products are built for random chips with matrix units
(random_units.py): results are right to the bit, and cycles are no fewer than the bound. Exit
code 1 where one of that does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from clock_trials import Built, Tally, build_random, run_chip  # noqa: E402  (the path above)

STREAMS, BUILDS, SEED, JOBS = 20_000, 3_000, 0, 2
EACH = 25  # streams on a chip
AT_ONCE = 8  # builds that a worker is given together


def streams_of(seed: int) -> Tally | str:
    try:
        return run_chip(seed, EACH)
    except AssertionError as error:
        return f"chip {seed}: {error}"


def build_of(seed: int) -> Built | str:
    try:
        return build_random(seed)
    except AssertionError as error:
        return f"build {seed}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--streams", type=int, default=STREAMS, help="in all")
    parser.add_argument("--builds", type=int, default=BUILDS, help="products that are built")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=True)
    first = options.seed * 1_000_000
    chips = range(first, first + -(-options.streams // EACH))
    builds = range(first, first + options.builds)
    with ProcessPoolExecutor(options.jobs) as pool:
        ran = list(track(pool.map(streams_of, chips), "streams", total=len(chips), console=console))
        built = list(
            track(
                pool.map(build_of, builds, chunksize=AT_ONCE),
                "builds",
                total=len(builds),
                console=console,
            )
        )
    faults = [x for x in (*ran, *built) if isinstance(x, str)]
    tallies = [x for x in ran if isinstance(x, Tally)]
    timed = [x for x in built if isinstance(x, Built) and x.cycles is not None]
    refused = [x.refusal for x in built if isinstance(x, Built) and x.cycles is None]
    found = {
        "chips": len(tallies),
        "streams": sum(t.streams for t in tallies),
        "streams_with_stalls": sum(t.stalled for t in tallies),
        "streams_refused": sum(t.refused for t in tallies),
        "builds": len(timed),
        "builds_refused": len(refused),
        "faults": faults,
    }
    if options.json:
        print(json.dumps(found))
    else:
        for text in faults:
            print(text)
        print(
            f"{found['streams']:,} streams on {found['chips']:,} chips equal to the slow clock "
            f"({found['streams_with_stalls']:,} stand still for results of their queue, "
            f"{found['streams_refused']:,} refused for want of events); "
            f"{found['builds']:,} products no faster than their bound "
            f"({found['builds_refused']:,} refused); {len(faults)} faults"
        )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
