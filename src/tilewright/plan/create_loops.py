"""Tensor expressions to loop programs: one loop nest for each stage, in order.

for i in …:
    for j in …:
        C[i, j] = init
        for k in …:
            C[i, j] += value
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analyze.rewrite import uses
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Accumulate, Alloc, Block, For, Kernel, Store
from tilewright.ir.substitute import mentioned
from tilewright.ir.tensor import Axis, Item, Scan, Stage, TensorProgram, stages


def create_loops(program: TensorProgram) -> Kernel:
    """The kernel that computes a tensor program: every stage a loop nest, intermediates in DRAM.
    What a step of a scan makes for itself alone is allocated in it."""
    made = dict.fromkeys(s.buffer for s in stages(program.items))
    locals_ = [b for b in made if b not in (*program.outputs, *program.inputs)]
    body = _block(program.items, locals_)
    return Kernel(program.name, program.inputs, program.outputs, body, finite=program.finite)


def _block(items: Sequence[Item], buffers: Sequence[Buffer]) -> Block:
    """What items do, with allocations of these buffers, each where it is used."""
    inner: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        users = [k for k, x in enumerate(items) if uses(x, buffer)]
        item = items[users[0]]
        if len(users) == 1 and isinstance(item, Scan) and _is_made_anew(item.items, buffer):
            inner.setdefault(users[0], []).append(buffer)
    own = [b for b in buffers if not any(b in found for found in inner.values())]
    return (*map(Alloc, own), *(
        stmt
        for k, x in enumerate(items)
        for stmt in (_scan(x, inner.get(k, [])) if isinstance(x, Scan) else stage_loops(x))
    ))  # fmt: skip


def _scan(scan: Scan, buffers: Sequence[Buffer]) -> Block:
    return (For(scan.step.var, scan.step.extent, _block(scan.items, buffers)),)


def _is_made_anew(items: Sequence[Item], buffer: Buffer) -> bool:
    """Whether a step of a scan makes all of a buffer before it reads any of it."""
    first, *others = (x for x in items if uses(x, buffer))
    if isinstance(first, Scan):  # which may have no steps
        return not others and _is_made_anew(first.items, buffer)
    extents = tuple(axis.extent for axis in first.axes)
    whole = first.indices == tuple(axis.var for axis in first.axes) and extents == buffer.shape
    read = (x for x in (first.value, first.init) if x is not None)
    return first.buffer == buffer and whole and not any(buffer in mentioned(x) for x in read)


def stage_loops(stage: Stage) -> Block:
    """The loop nest of a stage."""
    if stage.op is None:
        return _loops(stage.axes, (Store(stage.buffer, stage.indices, stage.value),))
    assert stage.init is not None
    update = Accumulate(stage.buffer, stage.indices, stage.op, stage.value)
    inner = (Store(stage.buffer, stage.indices, stage.init), *_loops(stage.reduce, (update,)))
    return _loops(stage.axes, inner)


def _loops(axes: Sequence[Axis], body: Block) -> Block:
    """A perfect nest around `body`."""
    for axis in reversed(axes):
        body = (For(axis.var, axis.extent, body),)
    return body


def allocated(kernel: Kernel) -> tuple[Buffer, ...]:
    """The buffers a kernel allocates at its top level."""
    return tuple(s.buffer for s in kernel.body if isinstance(s, Alloc))
