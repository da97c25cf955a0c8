"""How long every instruction of a stream takes, by what its description says it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from tilewright.backends.stream.stream import Site, Stream, alike
from tilewright.base.errors import CompileError
from tilewright.base.node import cached_property
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Dim
from tilewright.target.target import MOST_CYCLES

TOGETHER = 1 << 62  # cycles of a stream


@dataclass(frozen=True, eq=False)
class Durations:
    """What every instruction's cost says: cycles of its phases [n], through each memory of limited
    bandwidth [n, limited memories], until its queue can use what it forwards [n]; bytes and
    picojoules [n]."""

    setup: np.ndarray
    busy: np.ndarray
    transfer: np.ndarray
    latency: np.ndarray
    forward: np.ndarray
    exposed: np.ndarray
    bytes: np.ndarray
    energy: np.ndarray

    @cached_property
    def work(self) -> np.ndarray:
        """Cycles of the queue's unit [n], where no other instruction uses the memories."""
        return np.asarray(self.setup + np.maximum(self.busy, self.transfer.max(1, initial=0)))


def durations(stream: Stream) -> Durations:
    """The instructions' costs, evaluated on their fields. The latency of the slowest memory that
    an instruction moves bytes through comes on top of its own. CompileError for a cost that is
    negative, or more than is simulated."""
    n = len(stream)
    limited = [m for m in stream.target.memories if m.bandwidth is not None]
    columns = {f.name: np.zeros(n, np.int64) for f in fields(Durations)}
    columns["transfer"] = np.zeros((n, len(limited)), np.int64)
    for site, rows in alike(stream):
        cost = site.instruction.cost
        terms = _Terms(site, stream.fields[rows])
        for name in ("setup", "busy", "latency", "energy", "forward", "exposed"):
            term = getattr(cost, name)
            columns[name][rows] = 0 if term is None else terms(name, term)
        for memory in map(stream.target.memory, dict.fromkeys(site.memories)):
            moved = terms("bytes", cost.bytes_in(memory.name))
            columns["bytes"][rows] = np.maximum(columns["bytes"][rows], moved)
            if memory in limited:
                cycles = terms.checked(f"time in {memory.name}", np.ceil(moved / memory.bandwidth))
                columns["transfer"][rows, limited.index(memory)] = cycles
            terms.extra = np.maximum(terms.extra, memory.latency * (moved > 0))
        columns["latency"][rows] += terms.extra
    found = Durations(**columns)
    _check_sum(stream, found)
    return found


def _check_sum(stream: Stream, d: Durations) -> None:
    """Whatever instructions wait for, the last is done before the sum of all that they take."""
    each = d.work.astype(float) + d.latency + d.forward + d.exposed + stream.target.issue
    fetch = stream.target.fetch
    if fetch is not None:
        memory = stream.target.memory(fetch.memory)
        moved = fetch.bytes * fetch.burst / (memory.bandwidth or math.inf)
        each += math.ceil(moved) + memory.latency
    if each.sum() > TOGETHER:
        raise CompileError(
            f"the stream's {len(stream):,} instructions take up to {each.sum():.3g} cycles",
            hint=f"{float(TOGETHER):.3g} are simulated: correct the description's costs",
        )


class _Terms:
    """The terms of a cost, for n instructions of a site with these fields [n, fields]."""

    def __init__(self, site: Site, values: np.ndarray) -> None:
        self.site, self.shape = site, (len(values),)
        self.env = {f.symbol: values[:, c] for c, f in enumerate(site.instruction.fields)}
        self.extra = np.zeros(self.shape, np.int64)  # latency, of memories

    def __call__(self, name: str, term: Dim) -> np.ndarray:
        return self.checked(name, evaluate_exactly(term, self.env))

    def checked(self, name: str, found: np.ndarray) -> np.ndarray:
        """The values as integers; CompileError for what is not simulated."""
        least, most = (found.min(), found.max()) if found.size else (0, 0)
        if least < 0 or most > MOST_CYCLES:
            raise CompileError(
                f"{name} of {self.site.instruction} is {least if least < 0 else most:,}",
                hint=f"costs from 0 to {MOST_CYCLES:,} are simulated: correct the description",
            )
        return np.broadcast_to(found.astype(np.int64), self.shape)
