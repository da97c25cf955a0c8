"""Primitives on buffers: pack_layout, set_memory."""

from __future__ import annotations

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.ir.expr import Buffer, Expr
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.core.state import State, primitive, refuse


@primitive
def pack_layout(state: State, buffer: Buffer, layout: Layout) -> Buffer:
    """Arranges a buffer's elements differently in memory, wherever it is used.

        Y: f32[N, C]; … Y[i, j] …   ->   Y: f32[C/16, N, 16]; … Y[j // 16, i, j % 16] …
                                          (order (1, 0), blocks ((1, 16),))

    For a parameter this changes what the caller passes. Always legal.
    """
    state.check_buffer(buffer)
    axes = list(range(len(buffer.shape)))
    if sorted(layout.order) != axes:
        refuse(f"{layout} does not order the {len(axes)} axes of {buffer.name}", state)
    if any(axis not in axes or factor < 1 for axis, factor in layout.blocks):
        refuse(f"{layout} has blocks that the {len(axes)} axes of {buffer.name} cannot have", state)
    packed = buffer.with_(shape=layout.physical_shape(buffer.shape))
    body = rewrite_accesses(
        state.kernel.body, buffer, packed, lambda at: physical_indices(layout, at)
    )
    params = {b: packed if b == buffer else b for b in state.kernel.params}
    state.kernel = state.kernel.with_(
        inputs=tuple(params[b] for b in state.kernel.inputs),
        outputs=tuple(params[b] for b in state.kernel.outputs),
        body=body,
    )
    state.simplify_all()
    return packed


def physical_indices(layout: Layout, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Where the element at logical subscripts `at` lies in memory."""
    outer = [at[axis] // layout.factor(axis) for axis in layout.order]
    inner = []
    for position, (axis, factor) in enumerate(layout.blocks):
        below = 1
        for other, f in layout.blocks[position + 1 :]:
            below *= f if other == axis else 1
        inner.append(at[axis] // below % factor)
    return (*outer, *inner)


@primitive
def set_memory(state: State, buffer: Buffer, memory: str) -> Buffer:
    """Moves an allocation to another memory of the target. Always legal; whether it fits is
    checked when the program is lowered."""
    state.check_buffer(buffer)
    if buffer not in set(state.allocations()):
        refuse(f"{buffer.name} is a parameter of the kernel", state)
    moved = buffer.with_(memory=memory)
    state.set_body(rewrite_accesses(state.kernel.body, buffer, moved, lambda at: at))
    return moved
