"""Contractions that go through an input by steps of several elements, of an array in which each
loop is an axis: for units whose operands have neighbours only.

    total[x] += X[2 * x + s] * W[s]    ->    total[x] += S[x, s] * W[s]

S[x, s] is X[2 * x + s]. Elements that no window reads are not in it, and those of several windows
several times.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var, cast
from tilewright.ir.loop import Accumulate, Kernel, loads
from tilewright.ir.substitute import substitute, variables
from tilewright.plan.unit_form import UnitForm, converted, fresh, made, reads_alone


def stepped_forms(kernel: Kernel) -> Iterator[UnitForm]:
    """The kernel with such an array for the input of a contraction that is stepped through."""
    for nest in nests(kernel.body):
        update = nest.update
        if update is None or update.op is not BinaryOp.ADD or not isinstance(update.value, Binary):
            continue
        if update.value.op is BinaryOp.MUL:
            for factor in (update.value.a, update.value.b):
                form = _by_loops(kernel, nest, update, factor)
                if form is not None:
                    yield form


def _by_loops(kernel: Kernel, nest: Nest, update: Accumulate, factor: Expr) -> UnitForm | None:
    """The kernel with an axis for each loop of a factor, if it is an input that is stepped
    through."""
    reads = list(loads(factor))
    axes = {x.var for x in nest.axes}
    if len(reads) != 1 or reads[0].buffer not in kernel.inputs:
        return None
    (read,) = reads
    steps = [abs(k) for i in read.indices for v, k in linear(i).items() if v in axes]
    if max(steps, default=1) == 1 or not reads_alone(kernel, update, read.buffer):
        return None
    over = [x for x in (*nest.axes, *nest.reduce) if x.var in variables(factor)]
    shape = tuple(x.extent for x in over if isinstance(x.extent, int))
    if len(shape) < len(over):
        return None
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    new = read.buffer.with_(name=fresh(f"{read.buffer.name}_by_steps", names), shape=shape)
    element = converted(factor)

    def value(*at: Expr) -> Expr:
        return substitute(element, dict(zip((x.var for x in over), at, strict=True)))

    if element.dtype != read.buffer.dtype:  # computed in a wider type, which the unit may not take
        return None
    array = made(f"{read.buffer.name}_by_steps", shape, [read.buffer], value)
    place = cast(factor.dtype, Load(new, tuple(x.var for x in over)))
    product = substitute(update.value, {factor: place})
    body = replace_in(kernel.body, update, update.with_(value=product))
    inputs = tuple(new if b == read.buffer else b for b in kernel.inputs)
    return UnitForm(kernel.with_(inputs=inputs, body=body), {new.name: array})
