"""What a model would take on more cores than this machine has, simulated from what the pieces of
its parallel loops take on one.

    python benchmarks/many_cores.py                              ResNet-50 and BERT
    python benchmarks/many_cores.py --models resnet18 --cores 4,16 --json FILE

A model is compiled for so many cores, and run on one: each piece of each parallel loop is timed.
The pieces are then handed out to the cores in order, as the runtime does: each core takes the next
one once it is done. A region takes as long as its last core, and FORK_JOIN; what a step does
outside of regions one core does. A step takes at least as long as all its operands, weights
included, take from a memory of BANDWIDTH that the cores share, though much would come from caches.
What is not in it: pieces are as fast as they are alone on this machine, whose caches all are one
core's.

The share is that of the ideal speed-up: of the time of the model that is compiled for one core,
divided by the number of cores. What is lost to each cause is in cores' time, of all of it.
"""

import argparse
import ctypes
import heapq
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from cpu import parse_counts, parse_names
from machine import describe
from rich.console import Console
from rich.table import Table
from zoo import ZOO, sample_inputs

import tilewright
from tilewright.runtime import _native, loader
from tilewright.runtime.module import Module
from tilewright.runtime.profile import Profile
from tilewright.targets import cpu

BANDWIDTH = 60e9  # bytes a second, of all cores
FORK_JOIN = 2e-6  # seconds for each parallel region
ROOM = 1 << 20  # pieces of a call
REPEAT = 10  # calls; of each piece and each step the median counts


@dataclass(frozen=True)
class Step:
    """What a step of a model takes on one core, in seconds: outside of parallel regions, and each
    piece of each of those; and the bytes of its operands."""

    name: str
    serial: float
    regions: tuple[np.ndarray, ...]
    bytes: int

    @property
    def work(self) -> float:
        return self.serial + sum(float(x.sum()) for x in self.regions)


@dataclass(frozen=True)
class Outcome:
    """A model on so many cores: seconds, the share of the ideal speed-up, and the shares of the
    cores' time that are lost to each cause: work that the plan for one core does not have, what one
    core does alone, regions whose last core is late, forks and joins, and the memory."""

    model: str
    cores: int
    seconds: float
    share: float
    more_work: float
    serial: float
    imbalance: float
    fork_join: float
    memory: float


def main() -> int:
    """Simulate, print a table and write the JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", default="resnet50,bert", help=f"of {', '.join(ZOO)}")
    parser.add_argument("--cores", default="8,32,64", help="how many, as in 8,32")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    options = parser.parse_args()
    models = parse_names(parser, "--models", options.models, tuple(ZOO))
    counts = parse_counts(parser, options.cores, "--cores")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    console.print(str(describe()))
    found: list[Outcome] = []
    for name in models:
        alone = sum(step.work for step in steps_of(name, 1))
        for cores in counts:
            with console.status(f"{name} on {cores} cores"):
                found.append(outcome(name, steps_of(name, cores), cores, alone))
    console.print(table(found))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(x) for x in found], indent=1))
    return 0


def outcome(model: str, steps: Sequence[Step], cores: int, alone: float) -> Outcome:
    """A model on so many cores; `alone` is what one takes, with a plan for one."""
    total = serial = busy = forks = memory = 0.0
    for step in steps:
        regions = [x for x in step.regions if len(x) > 1]
        single = step.serial + sum(float(x.sum()) for x in step.regions if len(x) == 1)
        together = sum(last_done(x, cores) for x in regions)
        took = single + together + FORK_JOIN * len(regions)
        moved = max(0.0, step.bytes / BANDWIDTH - took)
        total += took + moved
        serial += single * (cores - 1) / cores
        busy += together - sum(float(x.sum()) for x in regions) / cores
        forks += FORK_JOIN * len(regions)
        memory += moved
    more = sum(step.work for step in steps) - alone
    lost = (more / cores, serial, busy, forks, memory)
    return Outcome(model, cores, total, alone / cores / total, *(x / total for x in lost))


def last_done(pieces: np.ndarray, cores: int) -> float:
    """When the last of some pieces is done, which cores take in order, each once it is free."""
    free = [0.0] * cores
    for piece in pieces.tolist():
        heapq.heappush(free, heapq.heappop(free) + piece)
    return max(free)


# ---------------------------------------------------------------- what pieces take


def steps_of(model: str, cores: int) -> list[Step]:
    """The steps of a model that is compiled for so many cores, as one core runs them."""
    graph = ZOO[model]()
    options = tilewright.Options(cache=False)
    compiled = tilewright.compile(graph, target=cpu.host(threads=cores), options=options)
    assert isinstance(compiled, Module)
    inputs = sample_inputs(graph)
    with recording() as record:
        module = Module(compiled.program, threads=1)
        place = np.zeros((ROOM, 3), np.int64)
        calls = []
        for _ in range(1 + REPEAT):
            record.record_into(place.ctypes.data_as(ctypes.c_void_p), ROOM)
            profile = module.profile(*inputs.values(), repeat=1)
            calls.append((profile, place[: record.recorded()].copy()))
        module.close()
    return _steps([p for p, _ in calls[1:]], [n for _, n in calls[1:]])


def _steps(profiles: Sequence[Profile], notes: Sequence[np.ndarray]) -> list[Step]:
    """The medians of several calls. `notes` has those of a call to warm up before them as well."""
    stamps = np.stack([p.stamps[0] for p in profiles if p.stamps is not None])
    each = [n[n[:, 1] >= s[0]] for n, s in zip(notes, stamps, strict=True)]
    pieces = np.stack([n[:, 2] - n[:, 1] for n in each]) / 1e9  # [calls, pieces]
    spent = np.diff(stamps, axis=1) / 1e9
    medians, regions = np.median(pieces, axis=0), each[0][:, 0]
    owners = np.searchsorted(stamps[0], each[0][:, 1], side="right") - 1
    found = []
    for k, step in enumerate(profiles[0].steps):
        own = np.flatnonzero(owners == k)
        rest = np.median(spent[:, k] - pieces[:, own].sum(1))  # of one call each
        parts = tuple(medians[own[regions[own] == r]] for r in np.unique(regions[own]))
        found.append(Step(step.name, max(0.0, float(rest)), parts, step.bytes or 0))
    return found


@contextmanager
def recording() -> Iterator[ctypes.CDLL]:
    """Models that are loaded here run their regions by record_pieces.c."""
    source = Path(__file__).with_name("record_pieces.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "record_pieces.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        record = ctypes.CDLL(str(library))
    record.record_into.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    record.recorded.restype = ctypes.c_int64
    address = ctypes.cast(record.record_parallel, ctypes.c_void_p).value
    own = {**_native.addresses(), "tw_parallel": address}
    before = loader._native
    loader._native = SimpleNamespace(addresses=lambda: own)  # type: ignore[assignment]
    try:
        yield record
    finally:
        loader._native = before


def table(found: Sequence[Outcome]) -> Table:
    """A row for each model and number of cores."""
    made = Table("model", *(
        ("cores", "ms", "of ideal", "more work", "serial", "imbalance", "fork, join", "memory")
    ))  # fmt: skip
    for x in found:
        lost = (x.more_work, x.serial, x.imbalance, x.fork_join, x.memory)
        cells = (f"{1e3 * x.seconds:.2f}", f"{x.share:.0%}", *(f"{y:.1%}" for y in lost))
        made.add_row(x.model, str(x.cores), *cells)
    return made


if __name__ == "__main__":
    sys.exit(main())
