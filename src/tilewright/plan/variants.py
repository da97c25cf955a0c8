"""Schedules for numbers of rows that are known late, chosen by the kernel when it is called.

    if n >= 48: tiles of 6 rows     if n >= 4: tiles of 4 rows     else: rows one by one

A register tile of several rows needs as many: where their number is an expression of one symbol,
the kernel is scheduled once for each tile that there is, for values of the symbol for which it can
be had. Of tiles with a cost the one that takes least is chosen:

    if n >= 7 and (n + 6) // 7 * 740 <= (n + 5) // 6 * 630: tiles of 7 rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.ir.bind_symbols import replace_symbol
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    CompareOp,
    Dim,
    Expr,
    Symbol,
    as_expr,
    compare,
    const,
)
from tilewright.ir.loop import Block, If, Kernel
from tilewright.schedule.primitives.loops import copy_block
from tilewright.schedule.schedule import Schedule

MOST = 1 << 20  # where a threshold is looked for, if the symbol has no bound


@dataclass(frozen=True)
class Variant:
    """A tile of so many `rows`, for that many rows at `least`; how many vectors it has and what it
    costs, where there is a choice of several."""

    least: int
    rows: int
    vectors: int = 0
    cost: int = 0


def ranges_of(extent: Dim, thresholds: Sequence[int]) -> tuple[Symbol, list[int | None]] | None:
    """The symbol that an extent grows with, and its least values for which the extent comes to the
    thresholds, the largest first (None for one that it does not come to, or is at least, or that
    is as another one); None if there are several symbols, or no such values."""
    parts = () if isinstance(extent, int) else extent.walk()
    found = {x for x in parts if isinstance(x, Symbol)}
    if len(found) != 1:
        return None
    (symbol,) = found
    values: list[int | None] = []
    for threshold in thresholds:
        low = _least(extent, symbol, threshold)
        values.append(None if low in values else low)
    return (symbol, values) if set(values) - {None} else None


def _least(extent: Dim, symbol: Symbol, wanted: int) -> int | None:
    """The least value of a symbol for which an extent is as large as wanted, found by halving:
    extents do not fall where symbols grow."""
    low, high = symbol.lower, MOST if symbol.upper is None else symbol.upper
    if evaluate_dim(extent, {symbol.name: high}) < wanted:
        return None
    while low < high:
        middle = (low + high) // 2
        if evaluate_dim(extent, {symbol.name: middle}) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low if low > symbol.lower else None


def add_variants(
    general: Schedule,
    kernel: Kernel,
    extent: Dim,
    variants: Sequence[Variant],
    schedule: Callable[[Kernel, Variant], Schedule],
) -> None:
    """Adds to the schedule of a kernel with `extent` rows bodies for the variants, those first that
    come first, but for those that lie in memory in another way."""
    found = ranges_of(extent, [v.least for v in variants])
    if found is None:
        return
    symbol, least = found
    taken, upper = general.names(), symbol.upper
    chosen: list[tuple[int, Variant, Block]] = []
    for low, variant in zip(least, variants, strict=True):
        if low is None:
            continue
        narrow = Symbol(symbol.name, low, symbol.upper if variant.cost else upper)
        made = schedule(replace_symbol(kernel, symbol, narrow), variant)
        body = replace_symbol(made.kernel, narrow, symbol)
        if body.params == general.kernel.params and not made.fallback:
            chosen.append((low, variant, copy_block(body.body, taken)))
            upper = low - 1
    body_now = general.kernel.body
    for k, (low, variant, inside) in reversed([*enumerate(chosen)]):
        wanted: Expr = compare(CompareOp.GE, symbol, const(low, symbol.dtype))
        for other in (v for _, v, _ in chosen[k + 1 :] if variant.cost and v.cost):
            cheaper = compare(CompareOp.LE, _cost(extent, variant), _cost(extent, other))
            wanted = Binary(BinaryOp.AND, wanted, cheaper)
        body_now = (If(wanted, inside, body_now),)
    general.set_body(body_now)


def _cost(extent: Dim, variant: Variant) -> Expr:
    """What all tiles of so many rows take."""
    tiles = (as_expr(extent) + (variant.rows - 1)) // variant.rows
    return tiles * variant.cost
