"""Instructions that do nothing: where a stream needs time, or a wait to hand on; at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.backends.stream.stream import Site, Stream
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call


def ended(stream: Stream) -> Stream:
    """The stream with the instruction that ends it, if its chip wants one."""
    end = stream.target.end
    if end is None or (len(stream) and stream.sites[stream.site[-1]].instruction == end):
        return stream
    return _insert(stream, np.array([len(stream)]), [end])


def insert_end(stream: Stream, before: np.ndarray) -> Stream:
    """The stream with the instruction that ends it before these rows as well."""
    end = stream.target.end
    assert end is not None  # target.py: a chip that is handed parts has one
    return _insert(stream, before, [end] * len(before))


def insert_idle(stream: Stream, before: np.ndarray, queues: Sequence[int]) -> Stream:
    """The stream with instructions of these queues that do nothing before these rows."""
    names = [q.name for q in stream.target.queues]
    found = [stream.target.idle(names[q]) for q in queues]
    return _insert(stream, before, [i for i in found if i is not None])


def _insert(stream: Stream, before: np.ndarray, instructions: Sequence[Instruction]) -> Stream:
    kinds = list(dict.fromkeys(instructions))
    sites = [Site(Call(instruction, ()), (), ()) for instruction in kinds]
    number = {i: len(stream.sites) + k for k, i in enumerate(kinds)}
    return replace(
        stream,
        sites=(*stream.sites, *sites),
        site=np.insert(stream.site, before, [number[i] for i in instructions]),
        fields=np.insert(stream.fields, before, 0, axis=0),
        addresses=np.insert(stream.addresses, before, 0, axis=0),
        lists=np.insert(stream.lists, before, -1),
    )
