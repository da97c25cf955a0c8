"""Transfers in the order in which they are needed.

Transfers that follow each other in a queue change places where nothing between the first and the
last of them must stay behind one, or before one. Those whose results are read first go first, so
that what reads them begins early: the rows of a tile's first product come before the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.backends.stream.boxes import Boxes, boxes, dependences, queue_numbers
from tilewright.backends.stream.stream import Stream
from tilewright.runtime import stream_functions as native


def order_transfers(stream: Stream) -> Stream:
    """The stream with each run of independent transfers sorted by the first instruction that reads
    what they bring."""
    return stream.reordered(transfer_order(stream))


def transfer_order(stream: Stream) -> np.ndarray:
    """The rows of a stream in that order."""
    found = boxes(stream)
    use, limit = _first_uses(found)
    order = np.arange(len(stream))
    for run in _runs(stream, dependences(stream, found), limit):
        order[run] = run[np.argsort(use[run], kind="stable")]
    return order


def _first_uses(found: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """For each instruction, the first later one that reads what it wrote, and the first that must
    stay behind it for any reason; their number where there is none."""
    n = len(found.stream)
    memories = [
        native.Cells(*cut.members, *(np.full(cut.count, n, np.int32) for _ in range(2)))
        for cut in found.cuts
    ]
    use, limit = np.empty(n, np.int32), np.empty(n, np.int32)
    held = native.array(native.Cells, memories)
    native.first_uses(n, found.arrays, found.first, held, native.Uses(use, limit))
    return use, limit


def _runs(stream: Stream, need: np.ndarray, limit: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of transfers that may change places, several at a time."""
    moves = np.array([_is_transfer(s.memories) for s in stream.sites], bool)[stream.site]
    queue, behind = queue_numbers(stream), need.max(axis=1, initial=-1)
    for number in np.unique(queue):
        rows = np.flatnonzero(queue == number)
        run: list[int] = []
        nearest = 0
        columns = (rows, moves[rows], behind[rows], limit[rows])
        for row, move, after, before in zip(*(c.tolist() for c in columns), strict=True):
            if run and not (move and row < nearest and after < run[0]):
                if len(run) > 1:
                    yield np.array(run)
                run = []
            if move:
                nearest = min(nearest, before) if run else before
                run.append(row)
        if len(run) > 1:
            yield np.array(run)


def _is_transfer(memories: tuple[str, ...]) -> bool:
    """Whether an instruction on operands in these memories brings one to another."""
    return len(memories) == len(set(memories)) == 2
