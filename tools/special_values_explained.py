"""Where results on special values may differ from ONNX's reference evaluator, and why.

Each row names operators, types of the result, and a condition on one element; docs/semantics.md has
the same list in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Difference:
    """One element: what we found, what the reference has, the operands that broadcast to it, and
    all inputs whole."""

    op: str
    dtype: str
    found: Any
    wanted: Any
    operands: tuple[Any, ...]
    inputs: tuple[np.ndarray, ...]

    def text(self) -> str:
        shown = ", ".join(str(x) for x in self.operands)
        return f"{self.op}({shown}) = {self.found}, not {self.wanted}"


@dataclass(frozen=True)
class Explained:
    reason: str
    ops: frozenset[str]
    when: Callable[[Difference], bool]

    def applies(self, d: Difference) -> bool:
        return d.op in self.ops and bool(self.when(d))


def _ops(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXPLAINED: tuple[Explained, ...] = ()
