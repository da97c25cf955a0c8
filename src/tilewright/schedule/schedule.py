"""`Schedule`: a kernel, the primitives as methods, and the trace of what was applied."""

from __future__ import annotations

import difflib

from tilewright.schedule.core.state import State
from tilewright.schedule.match import tensorize
from tilewright.schedule.primitives import (
    annotate,
    caching,
    hints,
    hoist,
    loops,
    memory,
    padding,
    pipeline,
    reverse,
    ring,
    sink,
    skip,
    stages,
    values,
    vthread,
    workers,
)
from tilewright.schedule.trace import cost
from tilewright.target.target import Target


class Schedule(State):
    """Rewrites a kernel step by step; `kernel` is always a complete program.

    s = Schedule(kernel)
    outer, inner = s.split(s.loop("i"), 14)
    s.vectorize(inner)
    print(s.kernel, s.trace, sep="\\n")
    """

    split = loops.split
    fuse = loops.fuse
    reorder = loops.reorder
    unroll = loops.unroll
    vectorize = loops.vectorize
    parallel = loops.parallel
    bind = workers.bind

    inline = stages.inline
    compute_at = stages.compute_at
    reverse_compute_at = reverse.reverse_compute_at
    cache_write = stages.cache_write
    split_init = stages.split_init
    cache_read = caching.cache_read
    rfactor = caching.rfactor
    split_value = values.split_value
    reuse = values.reuse
    init_with = values.init_with
    skip_zeros = skip.skip_zeros
    peel = caching.peel

    fold_init = pipeline.fold_init
    multi_buffer = pipeline.multi_buffer
    pipeline = pipeline.pipeline
    sink = sink.sink
    hoist = hoist.hoist
    ring_buffer = ring.ring_buffer
    vthread = vthread.vthread

    tensorize = tensorize.tensorize

    pack_layout = memory.pack_layout
    set_memory = memory.set_memory
    prefetch = hints.prefetch
    store_nontemporal = hints.store_nontemporal
    pad = padding.pad
    pad_buffer = padding.pad_buffer

    keep_whole = annotate.keep_whole
    annotate = annotate.annotate

    def show(self) -> str:
        """The current program's text; annotations are comments."""
        return self.notes.show(self.kernel)

    def diff(self, steps: int | None = None) -> str:
        """What the schedule changed in the program's text, or its last steps did: a unified diff,
        empty where nothing changed."""
        before, name = self.original, "original"
        if steps is not None:
            earlier = self.trace[: max(0, len(self.trace) - steps)]
            before = earlier.replay(self.original).kernel
            name = f"after {len(earlier)} steps"
        old, new = (str(k).splitlines() for k in (before, self.kernel))
        after = f"after {len(self.trace)} steps"
        return "\n".join(difflib.unified_diff(old, new, name, after, lineterm=""))

    def cost(self, target: Target) -> cost.Roofline:
        """Operations, bytes and the least time of each nest on a target."""
        return cost.kernel_cost(self.kernel, target)
