"""The slowest calls of a small network, beside the other engines: with the machine to itself, and
with a neighbour that keeps one CPU busy.

    python benchmarks/tail.py                          two threads, five rounds of 10,000 calls
    python benchmarks/tail.py --threads 1 --rounds 10 --json tail.json

A thread that waits for another one waits for the scheduler, too, where something else runs on that
one's CPU: milliseconds for a call of microseconds. Each engine runs in a process of its own; they
take turns, so that what else happens on the machine meets all of them. Calls of all rounds count.

Where the calling thread itself has no CPU, no engine can help. "own" leaves that time out, as Linux
counts it: what is left is work, and waiting for other threads of the engine.
"""

import argparse
import itertools
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import onnx
from engines import ENGINES
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table
from worker import Worker

SIZES = (128, 256, 256, 10)
ROWS = 8
PERCENTILES = (50.0, 99.0, 99.9, 100.0)
AFTER = 0.3  # seconds that a neighbour gets to begin


def small_network() -> onnx.ModelProto:
    """Three dense layers with seeded random weights: 0.8 million multiply-adds."""
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i, (k, n) in enumerate(itertools.pairwise(SIZES)):
        scale = np.float32(np.sqrt(2 / k))
        weights.append(
            numpy_helper.from_array(random.standard_normal((k, n), np.float32) * scale, f"w{i}")
        )
        weights.append(numpy_helper.from_array(np.zeros(n, np.float32), f"b{i}"))
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], [f"p{i}"]))
        last = i == len(SIZES) - 2
        kind, value = ("Softmax", "y") if last else ("Relu", f"r{i}")
        nodes.append(helper.make_node(kind, [f"p{i}"], [value]))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, SIZES[0]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (ROWS, SIZES[-1]))],
        weights,
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def _spin() -> None:
    while True:
        pass


@contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    """Another process that never rests."""
    if not wanted:
        yield
        return
    process = multiprocessing.get_context("fork").Process(target=_spin, daemon=True)
    process.start()
    process.join(AFTER)
    try:
        yield
    finally:
        process.kill()
        process.join()


def measure(
    engines: Sequence[str], threads: int, rounds: int, calls: int, busy: bool
) -> dict[str, list[float]]:
    """Microseconds of every call by engine, and the same without those in which the calling thread
    was ready and had no CPU, as "ENGINE, own"."""
    found: dict[str, list[float]] = {n: [] for e in engines for n in (e, f"{e}, own")}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, inputs = Path(folder) / "small.onnx", Path(folder) / "inputs.npz"
        onnx.save(small_network(), model)
        x = np.random.default_rng(1).standard_normal((ROWS, SIZES[0]), np.float32)
        np.savez(inputs, x=x)
        workers = {name: stack.enter_context(Worker(name)) for name in engines}
        for worker in workers.values():
            worker.load(model, inputs, threads)
            worker.run(calls // 10)
        with neighbour(busy):
            for _ in range(rounds):
                for name, worker in workers.items():
                    turn = worker.run(calls, ready=True)
                    found[name] += [1e6 * t for t in turn.times_s]
                    pairs = zip(turn.times_s, turn.ready_s, strict=True)
                    found[f"{name}, own"] += [1e6 * max(0.0, t - r) for t, r in pairs]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    engines = [name for name, kind in ENGINES.items() if kind.installed_version() is not None]
    columns = [f"p{p:g}" if p < 100 else "slowest" for p in PERCENTILES]
    table = Table("neighbour", "engine", *columns, box=None, title="microseconds of a call")
    rows = []
    for busy in (False, True):
        times = measure(engines, options.threads, options.rounds, options.calls, busy)
        for name in times:
            values = [float(np.percentile(times[name], p)) for p in PERCENTILES]
            rows.append(
                {"neighbour": busy, "engine": name} | dict(zip(columns, values, strict=True))
            )
            cells = [f"{v:,.1f}" for v in values]
            table.add_row("busy" if busy else "none", name, *cells)
    Console(width=100).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
