"""Tensor expressions to loop programs: one loop nest for each stage, in order.

for i in …:
    for j in …:
        C[i, j] = init
        for k in …:
            C[i, j] += value
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Accumulate, Alloc, Block, For, Kernel, Store
from tilewright.ir.tensor import Axis, Item, Scan, Stage, TensorProgram, stages


def create_loops(program: TensorProgram) -> Kernel:
    """The kernel that computes a tensor program: every stage a loop nest, intermediates in DRAM."""
    outputs = set(program.outputs)
    inputs = set(program.inputs)
    made = dict.fromkeys(s.buffer for s in stages(program.items))
    locals_ = [b for b in made if b not in outputs and b not in inputs]
    body = (*(Alloc(b) for b in locals_), *_block(program.items))
    return Kernel(program.name, program.inputs, program.outputs, body, finite=program.finite)


def _block(items: Sequence[Item]) -> Block:
    return tuple(
        stmt for i in items for stmt in (_scan(i) if isinstance(i, Scan) else stage_loops(i))
    )


def _scan(scan: Scan) -> Block:
    return (For(scan.step.var, scan.step.extent, _block(scan.items)),)


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
