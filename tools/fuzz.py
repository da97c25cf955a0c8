"""Random models compiled, beside the definition: after every pass, every stage, and as a whole.

    python tools/fuzz.py                     2,000 graphs of each kind; what `make fuzz` runs
    python tools/fuzz.py --kinds networks    one kind
    python tools/fuzz.py --seed 7            the same graphs again

Three kinds of graphs: `operators` draws from the whole table of operators, all types and
attributes, symbolic sizes; `networks` draws chains and branches of convolutions, poolings and sums,
with more and fewer channels than vectors have lanes; `quantised` those of bytes and weights of few
bits, with products of bf16 or without. Each is compiled for the host with one thread or two, for
AVX2, or for two devices with memories of their own. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from compiled_graphs import check_compiled  # noqa: E402  (the path above)
from hypothesis import HealthCheck, Phase, given, reject, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from strategies import arrays, symbol_values  # noqa: E402
from strategies_graph import GENERATORS  # noqa: E402
from strategies_graph_maker import GRAPH_DTYPES, WILD, Draws, GraphMaker  # noqa: E402
from strategies_networks import networks  # noqa: E402
from strategies_quantised import quantised_networks  # noqa: E402

from tilewright.base.dtype import bf16  # noqa: E402
from tilewright.ir.graph import Graph, Value, symbols_in  # noqa: E402
from tilewright.ops.table import OPS  # noqa: E402
from tilewright.options import Options  # noqa: E402
from tilewright.plan.units import units  # noqa: E402
from tilewright.target.target import Target  # noqa: E402
from tilewright.targets import cpu  # noqa: E402

COUNT, JOBS = 2000, os.cpu_count() or 1
NODES = 8  # operators in a graph, at most

TARGETS: dict[str, Target] = {
    "host-1": cpu.host(threads=1),
    "host-2": cpu.host(threads=2),
    "avx2": cpu.cpu("avx2"),
}
MODELS = {name: op for name, op in OPS.items() if name not in ("call", "relayout")}  # of passes
SHORT = [n for n, t in TARGETS.items() if any(u.left.buffer.dtype == bf16 for u in units(t))]
TWO = "two devices"
PLACES = (*TARGETS, TWO)


# ---------------------------------------------------------------- one graph


@st.composite
def operators(draw: Any) -> tuple[Graph, frozenset[Value]]:
    """A graph over the whole table, and its outputs whose values hang on rounding."""
    maker = GraphMaker(Draws(draw), MODELS, GRAPH_DTYPES, True, GENERATORS)
    graph = maker.graph(NODES)
    if set(symbols_in(graph)) - set(graph.symbols()):
        reject()  # sizes that depend on data: refused
    return graph, frozenset(v for v in graph.outputs if maker.quality[v] is WILD)


QUANTISED = "quantised"
KINDS = {
    "operators": operators(),
    "networks": networks().map(lambda g: (g, frozenset())),
    QUANTISED: quantised_networks().map(lambda g: (g, frozenset())),
}


def check(
    kind: str, graph: Graph, unknown: frozenset[Value], place: str, data: st.DataObject
) -> tuple[int, int]:
    # Quantised networks are exact in bf16: they can be multiplied so where there are units.
    exact = kind == QUANTISED and place in SHORT
    precision = data.draw(st.sampled_from(("f32", "bf16"))) if exact else "f32"
    values = data.draw(symbol_values(graph.symbols()))
    inputs = data.draw(arrays(graph.inputs, values))
    if place != TWO:
        counts = check_compiled(
            graph,
            inputs,
            values,
            TARGETS[place],
            Options(verify=True, precision=precision),
            unknown,
        )
    else:
        devices = {"a": TARGETS["host-2"], "b": TARGETS["avx2"]}
        turns = {n: "ab"[i % 2] for i, n in enumerate(graph.nodes)}
        options = Options(
            verify=True, assign=lambda n: turns.get(n, "a"), separate=frozenset({"b"})
        )
        counts = check_compiled(graph, inputs, values, devices, options, unknown)
    return counts.passes, counts.stages


# ---------------------------------------------------------------- a worker


def work(options: argparse.Namespace, kind: str, share: int, number: int) -> None:
    """Lines of JSON: one for each graph compared, one for what differs. What is being tried lies in
    a file, for the case that the process ends."""
    trying = Path(options.trying)
    trying.touch()

    @settings(
        max_examples=share,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @seed(options.seed * 1000 + number)
    @given(KINDS[kind], st.sampled_from(PLACES), st.data())
    def run(drawn: tuple[Graph, frozenset[Value]], place: str, data: st.DataObject) -> None:
        trying.write_text(f"{place}\n{drawn[0]}")
        passes, stages = check(kind, *drawn, place, data)
        say(kind=kind, passes=passes, stages=stages)

    try:
        run()
    except Exception:  # noqa: BLE001 - whatever a compiler can do wrong
        say(kind=kind, finding=f"{traceback.format_exc(limit=-8)}\n{trying.read_text()}")


def say(**line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


# ---------------------------------------------------------------- all of them


def lines(options: argparse.Namespace, kind: str) -> Iterator[dict[str, Any]]:
    """From all workers, as they come. They share a pipe: a line is written at one stroke."""
    ours, theirs = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for i in range(options.jobs):
            trying = Path(folder) / str(i)
            command = [sys.executable, __file__, "--worker", str(i), "--kinds", kind]
            command += ["--count", str(options.count), "--seed", str(options.seed)]
            command += ["--jobs", str(options.jobs), "--trying", str(trying)]
            workers.append((subprocess.Popen(command, stdout=theirs), trying))
        os.close(theirs)
        with open(ours) as stream:
            for line in stream:
                yield json.loads(line)
        for worker, trying in workers:
            if worker.wait():
                words = f"the process ended with {worker.returncode}\n{trying.read_text()}"
                yield {"kind": kind, "finding": words}


def run_all(options: argparse.Namespace) -> int:
    """All graphs, with progress; the exit code."""
    console = Console(stderr=True, highlight=False, markup=False)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    findings, start = 0, time.perf_counter()
    for kind in options.kinds.split(","):
        graphs = passes = stages = 0
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(kind, total=options.count)
            for line in lines(options, kind):
                if "finding" in line:
                    findings += 1
                    out.print(f"{kind}: {line['finding']}")
                    continue
                graphs, passes = graphs + 1, passes + line["passes"]
                stages += line["stages"]
                progress.advance(task)
                if graphs % 200 == 0 and not console.is_terminal:
                    console.print(f"… {graphs} of {options.count} {kind}")
        out.print(
            f"{kind}: {graphs:,} graphs compiled and compared, after {passes:,} passes and at"
            f" {stages:,} stages of kernels as well"
        )
    out.print(f"{findings} differences; seed {options.seed}, {time.perf_counter() - start:.0f} s")
    return int(findings > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="graphs of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, help="default: new graphs each time")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--trying", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.kinds.split(",")) - set(KINDS)
    if unknown:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(3), "little")
    if options.worker is None:
        return run_all(options)
    share = len(range(options.worker, options.count, options.jobs))
    work(options, options.kinds, share, options.worker)
    return 0


if __name__ == "__main__":
    sys.exit(main())
