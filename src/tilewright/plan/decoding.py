"""Operands that are decoded where they are multiplied: codes of few bits, scales of blocks.

acc += x[k] * (cast(codes[k // 2] >> k % 2 * 4 & 15) * scale[k // 32] - zero[k // 32])
"""

from __future__ import annotations

from itertools import pairwise

from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Var
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

UNROLLED_CODES = 4  # a byte has at most so many


def decoded_parts(update: Expr, var: Var, extent: int) -> list[int]:
    """For how many iterations of a loop one read has all that is decoded (the codes in a byte), the
    largest first; none if each has its own."""
    cut = (BinaryOp.FLOORDIV, BinaryOp.MOD)
    places = (x for x in update.walk() if isinstance(x, Binary) and x.op in cut)
    found = {int(x.b.value) for x in places if x.a == var and isinstance(x.b, Const)}
    parts = sorted((n for n in found if n < extent), reverse=True)
    return parts if all(a % b == 0 for a, b in pairwise([extent, *parts])) else []


def split_parts(s: Schedule, loop: Loop, parts: list[int], reduce: list[Loop]) -> list[Loop]:
    """The loops of the reduction with one of them in these parts; codes that share a read are
    unrolled."""
    loops, inner = [], loop
    for part in parts:
        outer, inner = s.split(inner, part)
        loops.append(outer)
    if parts[-1] <= UNROLLED_CODES:
        s.unroll(inner)
    at = reduce.index(loop)
    return [*reduce[:at], *loops, *reduce[at + 1 :], inner]
