"""Every operator, by name. Registries are literals: importing changes nothing."""

from __future__ import annotations

from tilewright.base.errors import ModelError, did_you_mean
from tilewright.ir.op import Op
from tilewright.ops import (
    activation,
    best,
    check,
    columns,
    compact,
    contract,
    elementwise,
    extend,
    fill,
    function,
    image,
    index,
    movement,
    normalize,
    pool,
    recurrent,
    reduce,
)
from tilewright.ops import opaque as host

OPS: dict[str, Op] = {
    op.name: op
    for op in (
        *elementwise.OPS,
        *activation.OPS,
        *reduce.OPS,
        *movement.OPS,
        *extend.OPS,
        *index.OPS,
        *fill.OPS,
        *contract.OPS,
        *compact.OPS,
        *normalize.OPS,
        *pool.OPS,
        *recurrent.OPS,
        *image.OPS,
        *columns.OPS,
        *best.OPS,
        *host.OPS,
        *check.OPS,
        *function.OPS,
    )
}


def op(name: str) -> Op:
    """The operator called `name`."""
    if name not in OPS:
        raise ModelError(
            f"there is no operator called {name!r}", hint=did_you_mean(name, sorted(OPS))
        )
    return OPS[name]
