"""A kernel as a device itself would be given it, to the bit: what `--stage stream` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType


@dataclass(frozen=True, eq=False)
class PlacedArray:
    """An array that lies row-major in a memory of the device, its first byte at `address`. Without
    `contents` it is given with each call, or made by one."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    memory: str
    address: int
    contents: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Binary:
    """A kernel's instructions, and what they find in memory. `parameters` are its arrays, operands
    first; `tables` are micro-operations, and `filled` is what passes between its pieces, as it is
    before the first instruction: these have contents. `sizes` are the bytes that are used of each
    memory in which any of them lie.

    `code` makes the instructions as the device fetches them, or raises a TargetError where their
    bits are not known; `listing` shows them, a line each. Of several `cores` each has as many, and
    those of one stand behind those of the one before."""

    target: str
    parts: tuple[int, ...]  # instructions that are handed over at a time
    parameters: tuple[PlacedArray, ...]
    tables: tuple[PlacedArray, ...]
    filled: tuple[PlacedArray, ...]
    sizes: Mapping[str, int]
    code: Callable[[], bytes]
    listing: Callable[[], Iterator[str]]
    cores: int = 1
