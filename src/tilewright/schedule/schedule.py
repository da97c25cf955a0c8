"""`Schedule`: a kernel, the primitives as methods, and the trace of what was applied."""

from __future__ import annotations

from tilewright.schedule import caching, loops, memory, pipeline, stages, tensorize
from tilewright.schedule.state import State


class Schedule(State):
    """Rewrites a kernel step by step; `kernel` is always a complete program.

    s = Schedule(kernel)
    outer, inner = s.split(s.loop("i"), 14)
    s.vectorize(inner)
    print(s.kernel, *s.trace, sep="\\n")
    """

    split = loops.split
    fuse = loops.fuse
    reorder = loops.reorder
    unroll = loops.unroll
    vectorize = loops.vectorize
    parallel = loops.parallel

    inline = stages.inline
    compute_at = stages.compute_at
    cache_write = stages.cache_write
    split_init = stages.split_init
    cache_read = caching.cache_read
    rfactor = caching.rfactor
    peel = caching.peel

    fold_init = pipeline.fold_init
    buffer_ring = pipeline.buffer_ring
    pipeline = pipeline.pipeline

    tensorize = tensorize.tensorize

    pack_layout = memory.pack_layout
    set_memory = memory.set_memory

    def show(self) -> str:
        """The current program's text."""
        return str(self.kernel)
