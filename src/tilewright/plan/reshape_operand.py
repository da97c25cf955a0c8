"""Kernels that read an array in another shape, of the same elements in the same order.

    for n, k:                                      for n, c, h, w:
        Y[n] += X[k] * W[n, k]       X: [c, h, w]      Y[n] += X[c, h, w] * W[n, c, h, w]

A flattened picture lies on a chip as the kernel before left it, in blocks of channels perhaps,
along which no loop over all of its elements goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Expr, Load, Var, const
from tilewright.ir.loop import Accumulate, For, Kernel, Stmt, Store, map_block, map_exprs
from tilewright.ir.substitute import rewrite
from tilewright.plan.diagonal import follow
from tilewright.plan.unit_form import fresh, sizes_of


def with_operand_shape(kernel: Kernel, name: str, shape: tuple[int, ...]) -> Kernel:
    """The kernel that reads its input `name` in this shape; other inputs that its loops go along
    have more axes, too, and the same elements, unless all that is more are axes of one element.
    ScheduleError where loops cannot be cut like that."""
    (buffer,) = (b for b in kernel.inputs if b.name == name)
    try:
        return _with_all_parts(kernel, buffer, shape)
    except ScheduleError:
        if tuple(n for n in shape if n != 1) != sizes_of(buffer):
            raise
        return _with_unit_axes(kernel, buffer, shape)


def _with_all_parts(kernel: Kernel, buffer: Buffer, shape: tuple[int, ...]) -> Kernel:
    """The kernel with its loops cut as the shape cuts the input's axes."""
    parts = _parts(sizes_of(buffer), shape)
    if parts is None:
        raise _refusal(kernel, buffer, shape)
    for d in reversed(range(len(parts))):
        if len(parts[d]) > 1:
            (buffer,) = (b for b in kernel.inputs if b.name == buffer.name)
            kernel = _with_parts(kernel, buffer, d, parts[d], shape)
    return kernel


def _with_unit_axes(kernel: Kernel, buffer: Buffer, shape: tuple[int, ...]) -> Kernel:
    """The kernel with an input that has axes of one element beside its own, read at 0."""
    wider = buffer.with_(shape=shape)

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        own = iter(at)
        return tuple(const(0) if n == 1 else next(own) for n in shape)

    inputs = tuple(wider if b == buffer else b for b in kernel.inputs)
    body = rewrite_accesses(kernel.body, buffer, wider, place)
    return kernel.with_(inputs=inputs, body=body)


def _refusal(kernel: Kernel, buffer: Buffer, shape: tuple[int, ...]) -> ScheduleError:
    return ScheduleError(
        f"{buffer.name} is made as {list(shape)}, and {kernel.name} reads it as"
        f" {list(sizes_of(buffer))}, in loops that cannot be cut alike",
        program=kernel,
        hint="make two kernels of it: the host can rearrange what passes between them",
    )


def _parts(sizes: Sequence[int], shape: Sequence[int]) -> list[tuple[int, ...]] | None:
    """For each axis, the axes of the other shape that it is made of; None if an axis is not."""
    left, found = list(shape), []
    for size in sizes:
        part: list[int] = []
        while math.prod(part) < size and left:
            part.append(left.pop(0))
        if math.prod(part) != size:
            return None
        found.append(tuple(part))
    return None if left else found


def _with_parts(
    kernel: Kernel, buffer: Buffer, axis: int, part: tuple[int, ...], shape: tuple[int, ...]
) -> Kernel:
    """The kernel with an axis of an input, and all that goes along it, as several."""
    reads = [x for x in kernel.walk() if isinstance(x, Load) and x.buffer == buffer]
    var = reads[0].indices[axis] if reads else None
    along = follow(kernel, var, summed=True) if isinstance(var, Var) else None
    if along is None or buffer not in along.places or set(along.places) - set(kernel.inputs):
        raise _refusal(kernel, buffer, shape)
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    new = {
        v: [Var(fresh(f"{v.name}_{k}", names)) for k in range(len(part))]
        for v in sorted(along.loops, key=str)
    }
    wider = {
        b: b.with_(shape=(*b.shape[:d], *part, *b.shape[d + 1 :])) for b, d in along.places.items()
    }

    def read(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer not in wider:
            return e
        d = along.places[e.buffer]
        cut = e.indices[d]
        assert isinstance(cut, Var)
        return Load(wider[e.buffer], (*e.indices[:d], *new[cut], *e.indices[d + 1 :]))

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            body = map_block(stmt.body, visit)
            if stmt.var not in new:
                return stmt.with_(body=body)
            for v, n in reversed(list(zip(new[stmt.var], part, strict=True))):
                body = (For(v, n, body),)
            return body[0]
        if isinstance(stmt, (Store, Accumulate)):
            return map_exprs(stmt, lambda e: rewrite(e, read))
        return stmt

    body = map_block(kernel.body, visit)
    return kernel.with_(inputs=tuple(wider.get(b, b) for b in kernel.inputs), body=body)
