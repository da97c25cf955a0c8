"""Constants, as one array of bytes for each memory that holds some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.program.host_program import HostProgram, MemoryKind

ALIGNMENT = 64  # of every memory


class Placed(Protocol):
    """An array, and where in a constants memory its bytes go."""

    @property
    def memory(self) -> str: ...

    @property
    def offset(self) -> int: ...

    @property
    def array(self) -> np.ndarray: ...


def pack_constants(program: HostProgram, constants: Iterable[Placed]) -> list[np.ndarray]:
    """The bytes of each constants memory; zero where nothing was placed."""
    packed: dict[str, np.ndarray] = {}
    for memory in program.memories:
        if memory.kind is MemoryKind.CONSTANTS:
            if not isinstance(memory.size, int):
                raise CompileError(f"the size of {memory.name!r} is {memory.size}, not a number")
            packed[memory.name] = _aligned_bytes(memory.size)
    for placed in constants:
        data = np.ascontiguousarray(placed.array).reshape(-1).view(np.uint8)
        end = placed.offset + data.size
        if placed.memory not in packed or end > packed[placed.memory].size:
            raise CompileError(
                f"a constant of {data.size} bytes at {placed.offset} of {placed.memory!r}"
                " lies outside the constants"
            )
        packed[placed.memory][placed.offset : end] = data
    return list(packed.values())


def _aligned_bytes(size: int) -> np.ndarray:
    """Zeros at an address that vectors can be read from."""
    room = np.zeros(size + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + size]
