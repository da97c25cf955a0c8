"""Contractions whose arrays are read and written with steps, of arrays in which each loop is an
axis: a transposed convolution is as many convolutions as its stride has phases.

    for y, a:                                        for y, a:
      for r:                                   ->      for r:
        Y[2 * y + a] += X[y - r] * W[a % 2 + 2 * r]      P[y, a] += X[y + r - 1] * V[a, r]

Y is P with its phases one after the other; V[a, r] is W[a % 2 + 2 * (1 - r)]: a loop that goes
backwards through the other factor is turned round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilewright.analyze.accesses import accesses
from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import replace_in, rewrite_accesses, simplify_block
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var, cast
from tilewright.ir.loop import For, Kernel, loads, walk_statements
from tilewright.ir.substitute import substitute, variables
from tilewright.plan.unit_form import MadeArray, UnitForm, converted, made, reads_alone


def phase_forms(kernel: Kernel) -> Iterator[UnitForm]:
    """The kernel with an axis for each loop of its results and of its contraction's weights, where
    that is not so already."""
    results: dict[str, MadeArray] = {}
    inputs: dict[str, MadeArray] = {}
    new = kernel
    for nest in nests(kernel.body):
        if nest.buffer in kernel.outputs:
            new = _with_axes(new, nest, results)
        elif nest.update is not None and nest.update.op is BinaryOp.ADD:
            new = _gathered(new, nest.buffer, inputs)
    if results or inputs:
        yield UnitForm(new, inputs, results)


# ---------------------------------------------------------------- results


def _with_axes(kernel: Kernel, nest: Nest, results: dict[str, MadeArray]) -> Kernel:
    """The kernel with an axis of a result for each loop that writes it."""
    buffer, at = nest.buffer, nest.store.indices
    if sum(a.buffer == buffer for a in accesses(kernel.body)) != 1:
        return kernel  # what is a result is read, too
    extents = {x.var: x.extent for x in nest.axes if isinstance(x.extent, int)}
    digits = [_digits(i, n, extents) for i, n in zip(at, buffer.shape, strict=True)]
    if len(nest.writes) > 1 or None in digits or all(len(d or ()) == 1 for d in digits):
        return kernel
    found = [[(v, extents[v]) for v in d or ()] for d in digits]
    shape = tuple(n for d in found for _, n in d)
    new = buffer.with_(shape=shape)

    def place(_: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(v for d in found for v, _ in d)

    def value(*index: Expr) -> Expr:
        parts: list[Expr] = []
        for i, d in zip(index, found, strict=True):
            rest = [n for _, n in d]
            parts += [i // math.prod(rest[k + 1 :]) % n if k else i // math.prod(rest[1:])
                      for k, n in enumerate(rest)]  # fmt: skip
        return Load(new, tuple(parts))

    whole = tuple(int(n) for n in buffer.shape)
    results[buffer.name] = made(f"{buffer.name}_of_phases", whole, [new], value)
    outputs = tuple(new if b == buffer else b for b in kernel.outputs)
    body = rewrite_accesses(kernel.body, buffer, new, place)
    return kernel.with_(outputs=outputs, body=body)


def _digits(i: Expr, size: object, extents: Mapping[Var, int]) -> list[Var] | None:
    """The loops of a subscript that are the digits of its value, the most significant first; None
    for other subscripts."""
    parts = {v: k for v, k in linear(i).items() if k}
    if not all(isinstance(v, Var) and v in extents for v in parts):
        return None
    order = sorted((v for v in parts if isinstance(v, Var)), key=lambda v: -parts[v])
    step = 1
    for v in reversed(order):
        if parts[v] != step:
            return None
        step *= extents[v]
    return order if step == size else None


# ---------------------------------------------------------------- factors


def _gathered(kernel: Kernel, sums: Buffer, inputs: dict[str, MadeArray]) -> Kernel:
    """The kernel whose contraction reads its weights by loops alone, and goes forwards through its
    data."""
    nest = next(n for n in nests(kernel.body) if n.buffer == sums)
    update = nest.update
    if update is None or not isinstance(update.value, Binary):
        return kernel
    factors = (update.value.a, update.value.b)
    weights = [e for e in factors if _is_weight(kernel, e, nest)]
    if update.value.op is not BinaryOp.MUL or len(weights) != 1:
        return kernel
    (weight,) = weights
    (read,) = loads(weight)
    if not reads_alone(kernel, update, read.buffer):
        return kernel
    (data,) = (e for e in factors if e is not weight)
    if any(x.buffer == read.buffer for x in loads(data)):
        return kernel
    turned = _backwards(data, nest)
    over = [x for x in (*nest.axes, *nest.reduce) if x.var in variables(weight)]
    element = substitute(converted(weight), turned)
    shape = tuple(int(x.extent) for x in over if isinstance(x.extent, int))
    new = read.buffer.with_(shape=shape)

    def value(*at: Expr) -> Expr:
        return substitute(element, dict(zip((x.var for x in over), at, strict=True)))

    inputs[read.buffer.name] = made(f"{read.buffer.name}_by_loops", shape, [read.buffer], value)
    place = cast(weight.dtype, Load(new, tuple(x.var for x in over)))
    product = substitute(data, turned) * place
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    simplifier = Simplifier({x.var: x.extent for x in loops}, keep_units=True)
    body = simplify_block(replace_in(kernel.body, update, update.with_(value=product)), simplifier)
    kept = tuple(new if b == read.buffer else b for b in kernel.inputs)
    return kernel.with_(inputs=kept, body=body)


def _is_weight(kernel: Kernel, factor: Expr, nest: Nest) -> bool:
    """Whether a factor is an element of an input whose subscripts are not all loops, and have no
    two loops of the result together."""
    element = converted(factor)
    if not isinstance(element, Load) or element.buffer not in kernel.inputs:
        return False
    axes = {x.var for x in nest.axes}
    plain = all(isinstance(i, Var) for i in element.indices)
    windows = any(len(variables(i) & axes) > 1 for i in element.indices)
    return not plain and not windows and len([*loads(factor)]) == 1


def _backwards(data: Expr, nest: Nest) -> dict[Expr, Expr]:
    """Loops of the sum that go backwards through the data, turned round."""
    steps: dict[Expr, Expr] = {}
    for read in loads(data):
        for i in read.indices:
            for x in nest.reduce:
                if linear(i).get(x.var, 0) < 0 and isinstance(x.extent, int):
                    steps[x.var] = x.extent - 1 - x.var
    return steps
