"""In which memories outside of a chip's own a kernel's inputs lie, where there are several."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.ir.loop import Kernel
from tilewright.target.target import Target

MOST = 64  # ways that are looked at


def placed_inputs(kernel: Kernel, target: Target) -> Iterator[Kernel]:
    """The kernel as it is, then with its inputs in other memories that have no end: those first
    that move fewer."""
    yield kernel
    outside = [m.name for m in target.memories if m.size is None]
    each = [[b.memory, *(m for m in outside if m != b.memory)] for b in kernel.inputs]
    ways = itertools.islice(itertools.product(*each), 1, MOST)
    where = [b.memory for b in kernel.inputs]
    moved = sorted(ways, key=lambda way: sum(a != b for a, b in zip(way, where, strict=True)))
    for way in moved:
        yield _placed(kernel, way)


def _placed(kernel: Kernel, memories: tuple[str, ...]) -> Kernel:
    inputs = [b.with_(memory=m) for b, m in zip(kernel.inputs, memories, strict=True)]
    body = kernel.body
    for old, new in zip(kernel.inputs, inputs, strict=True):
        body = rewrite_accesses(body, old, new, lambda at: at) if old != new else body
    return kernel.with_(inputs=tuple(inputs), body=body)
