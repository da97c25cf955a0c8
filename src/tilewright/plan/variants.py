"""Schedules for ranges of a size that is known late, chosen by the kernel when it is called.

    if n >= 48: tiles of 6 rows     if n >= 4: tiles of 4 rows     else: rows one by one

A register tile of several rows needs as many: where their number is an expression of one symbol,
the kernel is scheduled once for each range of the symbol in which tiles are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.bind_symbols import replace_symbol
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import CompareOp, Dim, Symbol, compare, const
from tilewright.ir.loop import Block, If, Kernel
from tilewright.schedule.primitives.loops import copy_block
from tilewright.schedule.schedule import Schedule

MOST = 1 << 20  # where a threshold is looked for, if the symbol has no bound


def ranges_of(extent: Dim, thresholds: Sequence[int]) -> tuple[Symbol, list[int]] | None:
    """The symbol that an extent grows with, and its least values for which the extent comes to the
    thresholds, the largest first; None if there are several symbols, or no such values."""
    parts = () if isinstance(extent, int) else extent.walk()
    found = {x for x in parts if isinstance(x, Symbol)}
    if len(found) != 1:
        return None
    (symbol,) = found
    least = dict.fromkeys(_least(extent, symbol, t) for t in thresholds)
    values = [n for n in least if n is not None]
    return (symbol, values) if values else None


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
    symbol: Symbol,
    least: Sequence[int],
    schedule: Callable[[Kernel], Schedule],
) -> None:
    """Adds to the schedule of a kernel bodies for values of the symbol from each of `least` on, the
    largest first, but for those that lie in memory in another way."""
    taken = general.names()
    body, upper = general.kernel.body, symbol.upper
    chosen: list[tuple[int, Block]] = []
    for low in least:
        narrow = Symbol(symbol.name, low, upper)
        found = schedule(replace_symbol(kernel, symbol, narrow))
        made = replace_symbol(found.kernel, narrow, symbol)
        if made.params == general.kernel.params and not found.fallback:
            chosen.append((low, copy_block(made.body, taken)))
            upper = low - 1
    for low, inside in reversed(chosen):
        body = (If(compare(CompareOp.GE, symbol, const(low, symbol.dtype)), inside, body),)
    general.set_body(body)
