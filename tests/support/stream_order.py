"""What instructions of a stream touch, byte by byte, and whether another order keeps what must not
pass each other."""

import numpy as np

from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.stream import Stream


def touched_bytes(stream: Stream) -> list[tuple[set, set]]:
    """What each instruction reads and writes, byte by byte."""
    b = boxes(stream)
    found: list[tuple[set, set]] = [(set(), set()) for _ in range(len(stream))]
    for k in range(len(b)):
        t = b.touched
        places = {(int(t.memory[k]), int(n)) for n in b.bytes_of(k)}
        reads, writes = found[t.row[k]]
        if t.reads[k]:
            reads |= places
        if t.writes[k]:
            writes |= places
    return found


def passed(stream: Stream, order: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of instructions of which the second must stay behind the first, and comes before it in
    an order."""
    place = np.argsort(order)
    touched = touched_bytes(stream)
    return [
        (i, j)
        for j, (reads, writes) in enumerate(touched)
        for i, (read, written) in enumerate(touched[:j])
        if (written & (reads | writes) or read & writes) and place[i] > place[j]
    ]
