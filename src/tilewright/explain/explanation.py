"""Why a kernel on a chip is not faster, in one record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.explain.times import QueueTime
from tilewright.explain.what_if import WhatIf

FULL = 0.9  # of the time: what is busy as long is the bottleneck
SHOWN = 8  # parts of the longest chain


@dataclass(frozen=True)
class Spent:
    """Cycles of the longest chain that a queue spends on one thing."""

    queue: str
    what: str
    cycles: int


@dataclass(frozen=True)
class Explanation:
    """`cycles` of a kernel on a chip, and where they go. `tile` has how many iterations of each
    loop of the contraction a tile holds.

    `bound` is what no schedule can beat, with its `parts`; `expected` what the model expects of the
    tiles that it finds best. The `bottleneck` is the queue or memory that is busy longest, for the
    `share` of the time; of a statically scheduled chip, the slot that the bound names. `queues` add
    up to the whole run each, and so does the longest `chain` of instructions that wait for each
    other. `binding` is what keeps better tiles out, if anything does; `helps` is what would save
    1 % or more, the best first. Both are empty for what no model stands behind.
    """

    kernel: str
    target: str
    cycles: int
    seconds: float
    tile: Mapping[str, int]
    bound: int | None
    parts: Mapping[str, int]
    expected: int | None
    bottleneck: str
    share: float
    queues: tuple[QueueTime, ...]
    memories: Mapping[str, int]
    chain: tuple[Spent, ...]
    binding: WhatIf | None
    helps: tuple[WhatIf, ...]
    by: str  # what stands behind binding and helps: "model", or "simulator" for given tiles
    cores: int = 1  # that share the kernel; queues are those of the one that is done last

    @property
    def of_bound(self) -> float | None:
        """The bound's share of the cycles: 1 cannot be faster."""
        return None if self.bound is None else self.bound / self.cycles

    def json(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and mappings."""
        return asdict(self) | {"of_bound": self.of_bound}

    def __str__(self) -> str:
        return "\n".join([*self._head(), *self._table(), *self._rest(), *self._what_ifs()])

    def _head(self) -> Iterator[str]:
        yield (
            f"{self.kernel} on {self.target}: {self.cycles:,} cycles ({self.seconds * 1e6:,.1f} µs)"
        )
        if self.cores > 1:
            yield f"{self.cores} cores, of which this is the one that is done last"
        if self.tile:
            yield f"a tile: {', '.join(f'{n} of {name}' for name, n in self.tile.items())}"
        if self.bound is not None:
            parts = ", ".join(f"{name} {n:,}" for name, n in self.parts.items())
            yield f"bound: {self.bound:,} cycles, {self.of_bound:.1%} of that ({parts})"
        busy = f"{self.bottleneck}, busy {self.share:.1%} of the time"
        if self.share >= FULL:
            yield f"bottleneck: {busy}"
        else:
            yield f"bottleneck: nothing is busy all the time; longest, {busy}"

    def _table(self) -> Iterator[str]:
        rows = [["queue", "works", "set-up", "fill", "drain", "waits", "waits for"]]
        for q in self.queues:
            waits = sorted(q.waits.items(), key=lambda pair: -pair[1])
            shown = ", ".join(f"{name} {self._of(n)}" for name, n in waits)
            parts = (q.work, q.setup, q.fill, q.drain, sum(q.waits.values()))
            rows.append([q.name, *map(self._of, parts), shown])
        yield from _aligned(rows)

    def _rest(self) -> Iterator[str]:
        used = ", ".join(f"{name} {self._of(n)}" for name, n in self.memories.items())
        yield f"bandwidth in use: {used or 'none'}"
        if self.chain:
            most = sorted(self.chain, key=lambda s: -s.cycles)
            shown = [f"{s.queue} {s.what} {self._of(s.cycles)}" for s in most[:SHOWN]]
            yield f"longest chain: {', '.join(shown)}" + ", …" * (len(most) > SHOWN)

    def _what_ifs(self) -> Iterator[str]:
        if self.by == "model":
            b = self.binding
            what = f"{b.change} would save {b.gain:.1%}" if b else "nothing that matters"
            yield f"what keeps better tiles out: {what}"
        whose = "the model, with the best tiles" if self.by == "model" else "the simulator"
        yield f"what would help, says {whose}{'' if self.helps else ': nothing by itself'}"
        rows = [[f"  {w.change}", f"{w.cycles:,}", f"-{w.gain:.1%}"] for w in self.helps]
        yield from _aligned(rows)

    def _of(self, cycles: int) -> str:
        return f"{cycles / max(self.cycles, 1):.1%}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column to the left, numbers to the right, the seventh as it is."""
    widths = [max(len(row[c]) for row in rows) for c in range(min(6, len(rows[0])))] if rows else []
    for name, *cells in rows:
        numbers = [cell.rjust(n) for cell, n in zip(cells, widths[1:], strict=False)]
        yield "  ".join([name.ljust(widths[0]), *numbers, *cells[5:]]).rstrip()
