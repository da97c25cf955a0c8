"""Private memory while a model is compiled, and while it runs, beside other engines.

    python benchmarks/memory.py bert resnet50 --json build/memory.json

Each engine has a process of its own, whose anonymous memory is read every few milliseconds, with
that of the processes that it starts; pages that several have in common count once. What is mapped
from files, such as weights that were not copied, is not private. Libraries count, as they are
imported before.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from cpu import check_writable, parse_names
from engines import ENGINES
from machine import describe
from rich.console import Console
from rich.table import Table
from worker import Worker
from zoo import ZOO, sample_inputs

EVERY_S = 0.002
RUNS = 5


@dataclass(frozen=True)
class Memory:
    """The most private memory of one engine's process, in MB, while compiling and running."""

    model: str
    engine: str
    compiling: float
    running: float


@contextmanager
def watched(process: int) -> Iterator[list[float]]:
    """Fills a list with the private memory of a process, in MB, while the context lasts."""
    seen: list[float] = [private_mb(process)]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(EVERY_S):
            seen.append(private_mb(process))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
        seen.append(private_mb(process))


def private_mb(process: int) -> float:
    """Anonymous memory of a process and of those below it, resident."""
    return sum(map(anonymous, [process, *below(process)]))


def below(process: int) -> Iterator[int]:
    """The processes that it started, and those that they did."""
    with contextlib.suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from below(int(child))


def anonymous(process: int) -> float:
    """In MB; of a page that n processes have in common, 1/n. None of one that has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return sum(int(x.split()[1]) * 1024 / 1e6 for x in lines if x.startswith("Pss_Anon"))
    return 0.0


def measure(name: str, engine: str) -> Memory:
    """One model in one engine, on one thread."""
    model = ZOO[name]()
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder, Worker(engine) as w:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        onnx.save(model, path)
        np.savez(inputs, **sample_inputs(model))
        with watched(w.process) as compiling:
            w.load(path, inputs, 1)
        time.sleep(0.1)
        with watched(w.process) as running:
            w.run(RUNS)
    return Memory(name, engine, max(compiling), max(running))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and write the JSON file; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="*", default=["bert"], metavar="MODEL", help="of the zoo")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    check_writable(parser, options.json)
    names = parse_names(parser, "MODEL", ",".join(options.models), tuple(ZOO))
    out = Console(width=100, highlight=False)
    out.print(str(describe()))
    table = Table("model", "engine", "compiling, MB", "running, MB")
    for column in table.columns[2:]:
        column.justify = "right"
    found = []
    for name in names:
        for engine in (e for e in ENGINES if ENGINES[e].installed_version() is not None):
            found.append(measure(name, engine))
            row = found[-1]
            table.add_row(name, engine, f"{row.compiling:,.0f}", f"{row.running:,.0f}")
    out.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
