"""Where the elements of arrays lie in memory that were made before, and kernels that read them
there."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Kernel
from tilewright.plan.stacked_inputs import as_in_part, parts_of, stacks_of
from tilewright.plan.unit_form import Stack, UnitForm, sizes_of

Places = Mapping[str, np.ndarray]  # by a name: where in memory each element lies


def order_of(places: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of an array of this shape from outside inwards, of which the elements lie at these
    places, or anywhere (-1); None where they are not at equal distances along each."""
    steps = _steps(places, shape)
    return None if steps is None else tuple(sorted(range(len(shape)), key=lambda d: -steps[d]))


def _steps(places: np.ndarray, shape: tuple[int, ...]) -> list[int] | None:
    """Distances along each axis, where those are equal."""
    if places.size != math.prod(shape):
        return None
    held = places.reshape(shape)
    along = [np.moveaxis(held, d, 0)[:2].reshape(min(n, 2), -1)[:, 0] for d, n in enumerate(shape)]
    steps = [int(ends[-1] - ends[0]) for ends in along]
    at = np.tensordot(steps, np.indices(shape), 1)
    same = (held - held.flat[0] == at) | (held < 0)
    return steps if all(ends.min() >= 0 for ends in along) and same.all() else None


def orders_of(form: UnitForm, places: Places) -> dict[str, tuple[int, ...]]:
    """The order in which a form's inputs have their axes in memory, where they lie there."""
    stacks = stacks_of(form)
    found = {}
    for b in form.kernel.inputs:
        stack = stacks.get(b.name)
        order = order_as_made(form, b, stack, places)
        if order is not None:
            found[b.name] = order if stack is None else stack.whole_order(order)
    return found


def order_as_made(
    form: UnitForm, b: Buffer, stack: Stack | None, places: Places
) -> tuple[int, ...] | None:
    """The order of an input's axes, of all parts if it has some, where its elements lie."""
    if stack is None:
        array = form.made.get(b.name)
        if b.name not in places or not (array is None or array.keeps_elements):
            return None
        return order_of(as_in_part(places[b.name], array), sizes_of(b))
    shape = stack.part(sizes_of(b), stack.run)
    parts = parts_of(form.made[b.name], stack)
    known = {n for n in stack.names if n in places}
    orders = {order_of(as_in_part(places[n], parts.get(n)), shape) for n in known}
    return next(iter(orders)) if len(orders) == 1 else None


def with_room(kernel: Kernel, places: Places) -> Kernel:
    """The kernel of inputs that are larger than what it reads of them, where their elements lie so:
    those of eight channels may have been made where there is room for sixteen."""
    for name, held in places.items():
        buffer = next((b for b in kernel.inputs if b.name == name), None)
        shape = None if buffer is None else _room(held, sizes_of(buffer))
        if buffer is None or shape is None or shape == buffer.shape:
            continue
        new = buffer.with_(shape=shape)
        kernel = kernel.with_(
            inputs=tuple(new if b == buffer else b for b in kernel.inputs),
            body=rewrite_accesses(kernel.body, buffer, new, lambda at: at),
        )
    return kernel


def _room(places: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of an array of which the elements at these places are the first along each axis;
    None where there is none."""
    steps, order = _steps(places, shape), order_of(places, shape)
    if steps is None or order is None:
        return None
    found = list(shape)
    inner = 1
    for d, outside in zip(order[::-1], (*order[-2::-1], None), strict=True):
        if shape[d] > 1 and steps[d] != inner:
            return None
        if outside is not None and shape[outside] > 1:
            found[d], left = divmod(steps[outside], inner)
            if left or found[d] < shape[d]:
                return None
        inner *= found[d]
    return tuple(found)
