"""Streams in parts, where the host hands over at most so many instructions at a time.

    load …; gemm …; store …; finish;    load …; gemm …; finish

A part ends with the instruction that ends a program, once all before it is done; then the host
hands over the next one. Memories and registers keep what they hold from part to part.
"""

from __future__ import annotations

import numpy as np

from tilewright.backends.stream.idle import insert_end
from tilewright.backends.stream.stream import Stream


def in_parts(stream: Stream, most: int) -> Stream:
    """A stream that ends with the instruction that ends one, with one more behind every `most` - 1
    others before that."""
    return insert_end(stream, np.arange(most - 1, len(stream) - 1, most - 1))


def part_starts(stream: Stream) -> np.ndarray:
    """The rows at which parts begin, but the first."""
    if stream.target.most_submitted is None or not len(stream):
        return np.zeros(0, np.int64)
    return part_ends(stream)[:-1] + 1


def part_ends(stream: Stream) -> np.ndarray:
    """The rows of the instructions that end parts: the last of the stream, if it ends with one."""
    end = stream.target.end
    ends = np.array([s.instruction == end for s in stream.sites], bool)
    if end is None or not len(stream) or not ends[stream.site[-1]]:
        return np.zeros(0, np.int64)
    if stream.target.most_submitted is None:
        return np.array([len(stream) - 1])
    return np.flatnonzero(ends[stream.site])


def part_lengths(stream: Stream) -> np.ndarray:
    """How many instructions each part has."""
    return np.diff([0, *part_starts(stream), len(stream)])
