"""Prefetches, and stores past the caches.

A non-temporal store takes aligned memory. An output may lie anywhere, so a kernel with such stores
has two bodies: for outputs that begin at a cache line, where vectors at multiples of their length
go past the caches, and for others, which are stored like any.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.backends.native.expr import ExprEmitter
from tilewright.backends.native.text import Function
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Block, Prefetch, Store, walk_statements

METADATA = (
    "!0 = !{i32 1}",  # what !nontemporal refers to
    "!1 = distinct !{!1, !2}",  # a loop that is not unrolled
    '!2 = !{!"llvm.loop.unroll.disable"}',
)


def nontemporal_buffers(block: Block) -> frozenset[Buffer]:
    """What is stored past the caches, if it can be."""
    stores = (s for s in walk_statements(block) if isinstance(s, Store))
    return frozenset(s.buffer for s in stores if s.nontemporal)


def begin_at_lines(f: Function, pointers: Sequence[str], line: int) -> str:
    """A bit: whether all pointers are those of cache lines."""
    numbers = [f.let(f"ptrtoint ptr {p} to i64") for p in pointers]
    bits = functools.reduce(lambda a, b: f.let(f"or i64 {a}, {b}"), numbers)
    return f.let(f"icmp eq i64 {f.let(f'and i64 {bits}, {line - 1}')}, 0")


def emit_prefetch(f: Function, e: ExprEmitter, s: Prefetch) -> None:
    """Stays where it is: LLVM would gather prefetches of unrolled loops in one place."""
    pointer = e.address(s.buffer, s.indices[0], surely=False)
    read, locality, data = "i32 0", f"i32 {4 - s.level}", "i32 1"
    f.call("void", "llvm.prefetch.p0", f"ptr {pointer}", read, locality, data)
    f.emit('call void asm sideeffect "", "~{memory}"()')
