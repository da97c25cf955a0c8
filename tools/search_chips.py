"""Random chips against a search by brute force: whether `build` finds a program for a kernel where
a search among short sequences of the chip's instructions finds one, and whether it is right.

    python tools/search_chips.py --count 200 --seed 0 --json found.json

Each seed is a description of a chip, with ten kernels. A kernel's result is compared with the
interpreter's: to the bit in whole numbers, to one part in 100,000 in floats, whose products the
simulator may leave unrounded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from drawn_chips import draw_facts, target_of
from drawn_kernels import Case, cases, draw_inputs, draw_sizes
from sequence_search import Search

from tilewright import TilewrightError, build
from tilewright.target.target import Target

CLOSE = 1e-5  # floats
CHECKS = 4  # inputs that a program which is found has to be right for, beside the first


@dataclass(frozen=True)
class Found:
    """What became of a kernel on a chip: whether the search found a program, or, with `ended`
    false, gave up; whether `build` did; why not; whether its result is wrong, or it crashed."""

    seed: int
    kernel: str
    found: bool
    ended: bool
    built: bool
    reason: str = ""
    wrong: bool = False
    program: str = ""  # that the search found for the last part of the result
    seconds: float = 0.0


def chip_of(seed: int) -> tuple[Target, list[Case], np.random.Generator]:
    """The chip with this number, its kernels, and numbers for their inputs."""
    rng = np.random.default_rng(seed)
    facts = draw_facts(rng)
    sizes = draw_sizes(facts, rng)
    with tempfile.TemporaryDirectory() as folder:
        return target_of(facts, Path(folder)), cases(facts, sizes), rng


def try_chip(seed: int) -> list[Found]:
    """All kernels of a chip."""
    target, kernels, rng = chip_of(seed)
    return [try_kernel(seed, target, case, rng) for case in kernels]


def try_kernel(seed: int, target: Target, case: Case, rng: np.random.Generator) -> Found:
    start = time.perf_counter()
    inputs, *others = (draw_inputs(case.kernel, rng) for _ in range(1 + CHECKS))
    search = Search(target, case, inputs, others)
    found = search.found()
    built, wrong, reason = False, False, ""
    result = np.zeros_like(search.wanted)
    try:
        build(case.kernel, target)(*inputs, result)
        built, wrong = True, not same(result, search.wanted)
    except TilewrightError as error:
        reason = str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001 - whatever it is, the next kernel is tried
        built, wrong, reason = True, True, f"{type(error).__name__}: {error}"
    program = search.programs[-1] if found else ""
    return Found(
        seed, case.name, found, search.ended, built, reason, wrong, program,
        round(time.perf_counter() - start, 2),
    )  # fmt: skip


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind == "f":
        return bool(np.allclose(a, b, CLOSE, CLOSE))
    return np.array_equal(a, b)


def try_all(seeds: range, workers: int) -> Iterator[Found]:
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for every in pool.imap_unordered(try_chip, seeds):
            yield from every


def summary(every: list[Found]) -> list[str]:
    """Lines about all that was tried."""
    both = sum(x.found and x.built for x in every)
    found = sum(x.found for x in every)
    share = f" ({both / found:.1%})" if found else ""
    wrong = sum(x.wrong for x in every)
    reasons = Counter(x.kernel for x in every if x.found and not x.built)
    chips, built = len({x.seed for x in every}), sum(x.built for x in every)
    gave_up = sum(not x.ended and not x.found for x in every)
    first = f"{len(every)} kernels on {chips} chips: {built} built, {wrong} of them wrong"
    second = f"the search found {found} programs, and gave up on {gave_up} kernels"
    third = f"build did {both} of those that it found{share}"
    return [first, second, third, *(f"  not built: {n} of {x}" for x, n in reasons.most_common())]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=200, help="chips (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first chip")
    parser.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--json", type=Path, help="a file for all that was found")
    args = parser.parse_args()
    every: list[Found] = []
    seeds = range(args.seed, args.seed + args.count)
    for k, one in enumerate(try_all(seeds, args.workers)):
        every.append(one)
        if one.wrong or (one.found and not one.built):
            what = f"wrong {one.reason}" if one.wrong else f"not built: {one.reason}"
            print(f"seed {one.seed}, {one.kernel}: {what}\n  {one.program}", flush=True)
        if k % 100 == 99:
            print(f"{k + 1} kernels", file=sys.stderr, flush=True)
    print("\n".join(summary(every)))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(x) for x in every], indent=1))
    return int(any(x.wrong or (x.found and not x.built) for x in every))


if __name__ == "__main__":
    sys.exit(main())
