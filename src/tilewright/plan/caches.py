"""What caches hold: which of them is near, and how many lines of it are so many bytes apart."""

from __future__ import annotations

import math

from tilewright.target.target import Target

PAGE = 4096  # bytes: a first cache is looked up by addresses within a page


def near_cache(target: Target) -> int:
    """Bytes of the largest cache that brings each core half a vector in a cycle, or more."""
    caches = (m for m in target.memories if m.cached and m.size is not None)
    slowest = target.vectors.bytes / 2
    fast = (m for m in caches if (m.bandwidth or math.inf) / m.shared_by >= slowest)
    return max((m.size // m.shared_by for m in fast if m.size is not None), default=0)


def first_cache(target: Target) -> tuple[int, int]:
    """Bytes of the first cache, and of a line of it; of a page and one byte where there is none."""
    caches = ((m.size, m.line) for m in target.memories if m.cached and m.size is not None)
    return next(caches, (PAGE, 1))


def lines_apart(step: int, target: Target, size: int | None = None) -> int:
    """How many lines, so many bytes apart, the first cache holds, whose sets take one page; or one
    of `size` bytes, of which addresses within a page choose a part."""
    first, line = first_cache(target)
    return (size or first) // max(math.gcd(step, PAGE), line)
