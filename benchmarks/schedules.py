"""What schedules cost: applying one with all checks, replaying its trace, deciding factors anew.

    python benchmarks/schedules.py

The schedule is the one of tests/support/convolution.py: 15 primitives on a 3x3 convolution. Other
factors are decided 1,000 times, checked and costed without building a program
(schedule/trace/space.py). Milliseconds, medians.
"""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from convolution import CONV, convolution

from tilewright.ir.text.loop import parse_kernel
from tilewright.schedule.schedule import Schedule

ROUNDS, DECISIONS = 15, 1000
FACTORS = {
    "1.factor": (2, 4, 8),
    "2.factor": (2, 4, 7, 14),
    "3.factor": (2, 4, 7, 14),
    "8.factor": (2, 4, 8),
}


def milliseconds(function: Callable[[], object], rounds: int) -> float:
    """The median of some calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def main() -> int:
    kernel = parse_kernel(CONV.strip())
    applied = milliseconds(lambda: convolution(Schedule(kernel)), ROUNDS)
    s = convolution(Schedule(kernel))
    replayed = milliseconds(lambda: s.trace.replay(kernel), ROUNDS)
    space = s.trace.space(kernel)
    start = time.perf_counter()
    space.prove()
    proven = (time.perf_counter() - start) * 1e3
    rng = random.Random(0)

    def decide() -> object:
        c = space.candidate({name: rng.choice(of) for name, of in FACTORS.items()})
        return c.extents, c.footprints, c.trips, c.memory

    decided = milliseconds(decide, DECISIONS)
    print(f"{len(s.trace)} primitives on a convolution, checked: {applied:.1f} ms")
    print(f"their trace replayed, checked again: {replayed:.1f} ms")
    print(f"one proof for all factors that divide: {proven:.1f} ms")
    print(f"other factors, {DECISIONS:,} times: {decided:.3f} ms each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
