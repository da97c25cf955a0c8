"""Values that several nests compute, or one nest several times, computed once into an array.

    for i: total[i] = 0                        for i, j: e[i, j] = exp(x[i, j] - most[i])
        for j: total[i] +=                     for i: total[i] = 0
            exp(x[i, j] - most[i])         ->      for j: total[i] += e[i, j]
    for i, j: y[i, j] =                        for i, j: y[i, j] = e[i, j] / total[i]
        exp(x[i, j] - most[i]) / total[i]

For chips whose instructions leave their operands as they are: an array in a chip's own memory is
then read again for nothing, and what is brought from outside is brought once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, nests
from tilewright.ir.expr import DRAM, Buffer, Const, Expr, Load, Select, Var
from tilewright.ir.loop import Alloc, For, Kernel, Stmt, Store, loads, map_exprs
from tilewright.ir.substitute import rewrite, substitute
from tilewright.plan.unit_form import fresh


@dataclass(frozen=True)
class Value:
    """A value with loops 0, 1, … in the order in which its subscripts have them, and how often they
    run: the same for all that compute the same."""

    value: Expr
    extents: tuple[int, ...]


def share_values(kernel: Kernel, products: Collection[Buffer] = ()) -> Kernel:
    """The kernel in which every value that is computed more than once has an array; likewise one
    that is added up and made of several arrays, but for the sums `products`, which a unit makes."""
    while (found := _most_shared(kernel, products)) is not None:
        kernel = _with_array(kernel, found)
    return kernel


def _most_shared(kernel: Kernel, products: Collection[Buffer]) -> Value | None:
    """The largest of those values; None if there is none."""
    counts: Counter[Value] = Counter()
    for nest in (n for n in nests(kernel.body) if n.buffer not in products):
        for write in nest.writes:
            again = 2 if write is nest.update and _is_made(write.value) else 1
            for part in _parts(write.value):
                own = isinstance(part, Load) and part.buffer not in kernel.inputs
                value = None if own else _canonical(part, nest)
                if value is not None:
                    often = again if part is write.value else _times(part, value, nest)
                    counts[value] += often
    shared = [v for v, n in counts.items() if n > 1]
    return max(shared, key=lambda v: (sum(1 for _ in v.value.walk()), str(v.value)), default=None)


def _times(part: Expr, value: Value, nest: Nest) -> int:
    """How often an element is computed, 2 for any number: again in loops that it does not depend
    on."""
    whole = math.prod(n for x in (*nest.axes, *nest.reduce) if isinstance(n := x.extent, int))
    return 2 if not isinstance(part, Load) and math.prod(value.extents) < whole else 1


def _is_made(e: Expr) -> bool:
    """Whether a value that is added up is made of several elements."""
    return len({(x.buffer, x.indices) for x in loads(e)}) > 1


def _parts(e: Expr) -> Iterator[Expr]:
    """The parts of a value that are computed or brought, as often as they stand in it."""
    yield e
    if not isinstance(e, (Load, Select)):  # what is chosen may not be computed
        for x in e.children():
            if isinstance(x, Expr):
                yield from _parts(x)


def _canonical(part: Expr, nest: Nest) -> Value | None:
    """A part whose elements are at loops of the nest themselves; None for others, for numbers, and
    for what is an array of the kernel's own already."""
    if isinstance(part, Const) or any(isinstance(x, Select) for x in part.walk()):
        return None
    extents = {x.var: x.extent for x in (*nest.axes, *nest.reduce)}
    order: dict[Expr, Expr] = {}
    reads = list(loads(part))
    for read in sorted(reads, key=lambda x: -len(x.indices)):
        for i in read.indices:
            if not isinstance(i, Var) or not isinstance(extents.get(i), int):
                return None
            order.setdefault(i, Var(f"share_{len(order)}"))
    used = {x for x in part.walk() if isinstance(x, Var)}
    if not order or used - set(order) or any(len({*x.indices}) < len(x.indices) for x in reads):
        return None
    sizes = tuple(n for v in order if isinstance(v, Var) and isinstance(n := extents[v], int))
    return Value(substitute(part, order), sizes)


def _with_array(kernel: Kernel, shared: Value) -> Kernel:
    """The kernel with an array of a value, in front of the first nest that reads it."""
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    own = f"{next(loads(shared.value)).buffer.name}_shared"
    array = Buffer(fresh(own, names), shared.value.dtype, shared.extents, DRAM)
    axes = [Var(fresh(f"{array.name}_{d}", names)) for d in range(len(shared.extents))]
    canonical = {Var(f"share_{d}"): v for d, v in enumerate(axes)}
    made: Stmt = Store(array, tuple(axes), substitute(shared.value, canonical))
    for var, n in zip(reversed(axes), reversed(shared.extents), strict=True):
        made = For(var, n, (made,))
    body: list[Stmt] = []
    for stmt in kernel.body:
        changed = _reading(stmt, shared, array)
        if changed is not stmt and Alloc(array) not in body:
            body += [Alloc(array), made]
        body.append(changed)
    return kernel.with_(body=tuple(body))


def _reading(stmt: Stmt, shared: Value, array: Buffer) -> Stmt:
    """A statement that reads the array in the place of the value."""
    found = nests((stmt,))
    if not found:
        return stmt
    (nest,) = found

    def other(e: Expr) -> Expr:
        value = _canonical(e, nest)
        if value != shared:
            return e
        order: dict[Expr, None] = {}
        for read in sorted(loads(e), key=lambda x: -len(x.indices)):
            order |= dict.fromkeys(read.indices)
        return Load(array, tuple(order))

    return map_exprs(stmt, lambda e: rewrite(e, other))
