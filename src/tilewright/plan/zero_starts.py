"""Kernels whose sums begin with an array of zeros instead of with 0, for chips that can load what
sums begin with, and have nothing else to begin them:

    C[i, j] = 0             for k: C[i, j] += A[i, k] * B[k, j]
->  C[i, j] = zeros[j]      for k: C[i, j] += A[i, k] * B[k, j]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.ir.expr import BinaryOp, Buffer, Const, Expr, Load, Var, const
from tilewright.ir.loop import For, Kernel, Store, walk_statements
from tilewright.plan.unit_form import UnitForm, fresh, made
from tilewright.plan.units import units
from tilewright.target.target import Target


def zero_start_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with zeros along one axis of its sums, for each of them, and along all."""
    if _begins_sums(target):
        return
    for nest in nests(kernel.body):
        update, first = nest.update, nest.store.value
        if update is None or update.op is not BinaryOp.ADD or not isinstance(first, Const):
            continue
        axes = [x for x in nest.axes if x.extent != 1]
        for along in ([x] for x in reversed(axes)):
            yield _form(kernel, nest, first, along)
        if len(axes) > 1:
            yield _form(kernel, nest, first, axes)


def _begins_sums(target: Target) -> bool:
    """Whether an instruction writes a number where a unit has its sums, or the unit itself does."""
    every = list(units(target))
    memories = {u.result.buffer.memory for u in every}
    stores = (s for i in target.instructions for s in walk_statements(i.body))
    written = (s for s in stores if isinstance(s, Store) and isinstance(s.value, Const))
    return not every or any(s.buffer.memory in memories for s in written)


def _form(kernel: Kernel, nest: Nest, first: Const, along: Sequence[For]) -> UnitForm:
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    shape = tuple(int(x.extent) for x in along)
    start = Buffer(fresh("start", names), first.dtype, shape)
    store = nest.store.with_(value=Load(start, tuple(x.var for x in along)))
    form = kernel.with_(
        inputs=(*kernel.inputs, start), body=replace_in(kernel.body, nest.store, store)
    )

    def value(*_: Expr) -> Expr:
        return const(first.value, first.dtype)

    return UnitForm(form, {start.name: made(f"{start.name}_values", list(shape), [], value)})
