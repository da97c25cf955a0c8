"""Compare tilewright with other engines on single operators, and on whole networks.

    python benchmarks/operators.py                      all cases: some minutes
    python benchmarks/operators.py conv softmax         those whose names have one of these words
    python benchmarks/operators.py --chains             pairs and triples that networks have
    python benchmarks/operators.py --drawn 100 --seed 3         operators of random sizes
    python benchmarks/operators.py --networks --threads 1,2     the breadth networks instead
    python benchmarks/operators.py --quantized resnet           networks in int8 (QDQ), u8 and i8
    python benchmarks/operators.py --zoo bert --precision bf16  the zoo, products of bf16
    python benchmarks/operators.py --quantized resnet --level avx2      as on a lesser machine

Each engine has one process, which loads one model after another; they take turns on each model, so
that drift hits all alike. A ratio is the best peer's median by ours: above 1 we are faster.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median

import drawn_operators
import numpy as np
import onnx
import operator_chains
from breadth_networks import BREADTH
from cpu import PEERS, check_writable, parse_counts, parse_names
from engines import ENGINES, set_conditions
from interleave import REFERENCE, compare
from machine import describe
from operator_cases import CASES
from report import OURS
from rich.console import Console
from rich.progress import track
from rich.table import Table
from worker import Worker, WorkerError
from zoo import ZOO, sample_inputs

SLOW, SMALL_US = 1.5, 50.0
"""A finding: so many times slower than the best peer, if it takes longer than this."""
QUANTIZED_RMS = 0.1
"""Largest difference of quantised networks: root mean square, by the result's deviation. Where a
rounding falls on the other side, what follows differs by a step, in every engine."""
ROUNDS, MOST_RUNS = 5, 500  # turns of an engine, and its runs in one

Problem = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], str | None]
Models = dict[str, Callable[[], onnx.ModelProto]]


@dataclass(frozen=True)
class Result:
    """One model with one number of threads. Times in microseconds: the median of each engine's
    runs; None for an engine that failed, which `problem` tells."""

    name: str
    threads: int
    times: dict[str, float | None]
    compile_s: float
    problem: str | None

    @property
    def ours(self) -> float | None:
        """Our median."""
        return self.times.get(OURS)

    @property
    def peer(self) -> tuple[str, float] | None:
        """The fastest other engine, and its median."""
        others = [(n, t) for n, t in self.times.items() if n != OURS and t is not None]
        return min(others, key=lambda x: x[1], default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's median by ours."""
        if self.ours is None or self.peer is None:
            return None
        return self.peer[1] / self.ours

    @property
    def is_finding(self) -> bool:
        """Whether it is too slow to leave it at that."""
        if self.ours is None:
            return True
        return self.ours > SMALL_US and self.ratio is not None and self.ratio < 1 / SLOW


def measure(
    models: Models,
    engines: Sequence[str],
    threads: int,
    turn_s: float,
    problem: Problem = lambda found, wanted: compare(found, wanted)[1],
) -> list[Result]:
    """Every model on every engine; `problem` says what is wrong with our results."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        workers = {name: stack.enter_context(Worker(name)) for name in engines}
        names = track(models, "measuring", console=Console(stderr=True))
        found = []
        for name in names:
            found.append(
                _measure(name, models[name](), workers, threads, turn_s, Path(folder), problem)
            )
        return found


def _measure(
    name: str,
    model: onnx.ModelProto,
    workers: dict[str, Worker],
    threads: int,
    turn_s: float,
    folder: Path,
    problem: Problem,
) -> Result:
    """One model: loaded by all, compared, and run in turns."""
    path, inputs = folder / "model.onnx", folder / "inputs.npz"
    onnx.save(model, path)
    np.savez(inputs, **sample_inputs(model))
    problems, outputs, compile_s = [], {}, math.nan
    ready: dict[str, Worker] = {}
    for engine, worker in workers.items():
        try:
            loaded = worker.load(path, inputs, threads)
            outputs[engine] = worker.outputs(folder / "outputs.npz")
            ready[engine] = worker
            compile_s = loaded.compile_s if engine == OURS else compile_s
        except WorkerError as error:
            problems.append(f"{engine}: {error}")
    times = take_turns(ready, turn_s)
    peers = [name for name in (REFERENCE, *workers) if name != OURS and name in outputs]
    if OURS in outputs and peers:
        wrong = problem(outputs[OURS], outputs[peers[0]])
        problems += [wrong.replace(REFERENCE, peers[0])] if wrong else []  # held: it is left out
    medians = {e: median(times[e]) * 1e6 if e in times else None for e in workers}
    return Result(name, threads, medians, compile_s, "; ".join(problems) or None)


def take_turns(
    workers: dict[str, Worker], turn_s: float, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Seconds of every run of each worker: so many rounds, in which each runs for `turn_s`."""
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            each = median(worker.run(2).times_s)
            times[name] += worker.run(min(MOST_RUNS, max(3, math.ceil(turn_s / each)))).times_s
    return times


def quantized_problem(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str | None:
    """Whether results of a quantised network differ by more than a few roundings."""
    for a, b in zip(found, wanted, strict=True):
        deviation = float(np.std(b.astype(np.float64))) or 1.0
        rms = float(np.sqrt(np.mean((a.astype(np.float64) - b) ** 2))) / deviation
        if a.shape != b.shape or not rms <= QUANTIZED_RMS:
            return f"wrong result: differs from {REFERENCE}'s by {rms:.1e} of its deviation"
    return None


# ---- what is shown -------------------------------------------------------------------------------


def show(results: Sequence[Result], out: Console) -> None:
    """A table, the slowest beside its peers first, and what it comes to."""
    engines = list(results[0].times)
    table = Table("", "threads", *engines, "best peer", "ratio", "compile s")
    for column in table.columns[1:]:
        column.justify = "right"
    for r in sorted(results, key=lambda r: r.ratio or 0.0):
        peer, ratio = r.peer, r.ratio
        times = [f"{t:,.1f}" if (t := r.times[e]) is not None else "-" for e in engines]
        table.add_row(
            r.name, str(r.threads), *times, peer[0] if peer else "-",
            f"{ratio:.2f}" if ratio else "-", f"{r.compile_s:.2f}",
            style="red" if r.is_finding else None,
        )  # fmt: skip
    out.print(table)
    for r in results:
        if r.problem:
            out.print(f"{r.name}: {r.problem}", highlight=False, soft_wrap=True)
    for threads in sorted({r.threads for r in results}):
        ratios = [x for r in results if r.threads == threads and (x := r.ratio) is not None]
        findings = sum(r.is_finding for r in results if r.threads == threads)
        if ratios:
            out.print(
                f"threads {threads}: {len(ratios)} models, geometric mean"
                f" {geometric_mean(ratios):.2f}, least {min(ratios):.2f}; {findings} of more than"
                f" {SMALL_US:.0f} µs are more than {SLOW} times slower than the best peer"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and write the JSON file; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="operators.py", description=(__doc__ or "").split("\n", 1)[0]
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="WORD", help="only models whose names have one of these")
    add("--networks", action="store_true", help="the breadth networks, not single operators")
    add("--chains", action="store_true", help="the breadth networks' most frequent chains")
    add("--drawn", type=int, metavar="N", help="so many operators of random sizes")
    add("--seed", type=int, metavar="S", help="which of them (default 0)")
    add("--zoo", action="store_true", help="the zoo's networks")
    add("--quantized", action="store_true", help="the zoo and the breadth networks in int8")
    add("--level", metavar="NAME", help="hold engines to an instruction-set level (avx2)")
    add("--precision", choices=("f32", "bf16"), help="of products of floats (default f32)")
    add("--threads", default="1", metavar="N,M", help="numbers of threads (default 1)")
    add("--peers", default=",".join(PEERS), metavar="A,B", help="default: all there are")
    add("--turn", type=float, default=0.03, metavar="S", help="seconds of a turn (default 0.03)")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    every: Models = dict(BREADTH) if options.networks else ZOO if options.zoo else CASES
    if options.chains:
        every = operator_chains.models()
    if options.drawn is not None:
        if options.drawn < 1:
            parser.error(f"--drawn: must be at least 1, not {options.drawn}")
        every = drawn_operators.models(options.drawn, options.seed or 0)
    elif options.seed is not None:
        parser.error("--seed: says which operators are drawn, and needs --drawn")
    if options.quantized:
        from quantized_models import models as quantized_models  # needs onnxruntime

        every = quantized_models()
    words = options.words
    models = {n: m for n, m in every.items() if not words or any(w in n for w in words)}
    if not models:
        parser.error(f"no model has any of {', '.join(words)} in its name")
    wanted = (OURS, *parse_names(parser, "--peers", options.peers, PEERS))
    engines = [name for name in wanted if ENGINES[name].installed_version() is not None]
    if options.level or options.precision:
        engines = [name for name in engines if ENGINES[name].can_be_held]
        set_conditions(options.level, options.precision)
    counts = parse_counts(parser, options.threads)
    check_writable(parser, options.json)
    out = Console(width=140, highlight=False)
    out.print(str(describe()))
    is_short = options.quantized or options.precision == "bf16"
    check = (quantized_problem,) if is_short else ()
    results = [r for n in counts for r in measure(models, engines, n, options.turn, *check)]
    show(results, out)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1))
    return int(any(r.problem for r in results))


if __name__ == "__main__":
    sys.exit(main())
