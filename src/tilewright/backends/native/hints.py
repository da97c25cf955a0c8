"""Prefetches, and stores past the caches.

A non-temporal store takes aligned memory. An output may lie anywhere, so a kernel with such stores
has two bodies: for outputs that begin at a cache line, where vectors at multiples of their length
go past the caches, and for others, which are stored like any.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tilewright.analyze.linear import Linear, linear
from tilewright.backends.native.expr import ExprEmitter
from tilewright.backends.native.text import Function
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Select
from tilewright.ir.loop import Block, Prefetch, Store, walk_statements

LEAST = 16  # bytes: the shortest vector register
METADATA = "!0 = !{i32 1}"  # what !nontemporal refers to


def nontemporal_buffers(block: Block) -> frozenset[Buffer]:
    """What is stored past the caches, if it can be."""
    stores = (s for s in walk_statements(block) if isinstance(s, Store))
    return frozenset(s.buffer for s in stores if s.nontemporal)


def begin_at_lines(f: Function, pointers: Sequence[str], line: int) -> str:
    """A bit: whether all pointers are those of cache lines."""
    numbers = [f.let(f"ptrtoint ptr {p} to i64") for p in pointers]
    bits = functools.reduce(lambda a, b: f.let(f"or i64 {a}, {b}"), numbers)
    return f.let(f"icmp eq i64 {f.let(f'and i64 {bits}, {line - 1}')}, 0")


def alignment(buffer: Buffer, at: Linear, lanes: int, line: int) -> int | None:
    """Of a vector at a position of a buffer that begins at a cache line; None if it may lie across
    the parts in which it would be stored."""
    size = lanes * buffer.dtype.bytes
    align = min(line, size & -size)
    return align if align >= LEAST and _divides(align // buffer.dtype.bytes, at) else None


def _divides(n: int, at: Linear) -> bool:
    """Whether a position is a multiple of n for certain."""
    return all(_divides_atom(n // math.gcd(n, k), atom) for atom, k in at.items())


def _divides_atom(n: int, atom: Expr | None) -> bool:
    if n == 1 or atom is None:
        return n == 1
    if isinstance(atom, Select):
        return _divides(n, linear(atom.a)) and _divides(n, linear(atom.b))
    if isinstance(atom, Binary) and atom.op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MOD):
        return _divides(n, linear(atom.a)) and _divides(n, linear(atom.b))
    return False


def emit_prefetch(f: Function, e: ExprEmitter, s: Prefetch) -> None:
    """Lanes fetch together what they read: nothing is done for one of them."""
    if e.lanes is not None:
        return
    pointer = e.address(s.buffer, e.position(s.buffer, s.indices), surely=False)
    read, locality, data = "i32 0", f"i32 {4 - s.level}", "i32 1"
    f.call("void", "llvm.prefetch.p0", f"ptr {pointer}", read, locality, data)
    f.emit('call void asm sideeffect "", "~{memory}"()')  # stays here: LLVM would gather them
    e.end_statement()
