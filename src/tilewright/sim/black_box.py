"""Black boxes in the functional simulator: their author's function, called in the place of machine
code on views of the chip's memories."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.touched import touched
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import Env, evaluate_dim, evaluate_expr
from tilewright.ir.expr import Buffer, Dim, as_expr
from tilewright.ir.instruction import BlackBox, Instruction

_RUN = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


@dataclass(eq=False)
class BlackBoxCode:
    """run(fields, operands, lists) at `address`, as of stream.c. What the author's function raises
    is kept, for it cannot pass through machine code; later calls do nothing."""

    instruction: Instruction
    function: BlackBox
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._callback = _RUN(self._run)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def raise_error(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise CompileError(
                f"the black box of {self.instruction} failed: {type(error).__name__}: {error}"
            ) from error

    def _run(
        self, fields: ctypes.Array[ctypes.c_int64], operands: ctypes.Array[ctypes.c_void_p], _: int
    ) -> None:
        i = self.instruction
        if self.error is None:
            values = {f.name: int(fields[k]) for k, f in enumerate(i.fields)}
            steps = _steps(i, lambda step: evaluate_dim(step, values))
            places = zip(i.operands, i.shapes(values), steps, strict=True)
            try:
                arrays = {
                    o.name: _view(operands[k] or 0, o, shape, steps)
                    for k, (o, shape, steps) in enumerate(places)
                }
                self.function(values, arrays)
            except Exception as error:  # noqa: BLE001 - cannot pass compiled code; see raise_error
                self.error = error


def _steps(i: Instruction, value: Callable[[Dim], Any]) -> list[tuple[Any, ...]]:
    """Bytes that operands step along their axes; `value` gives numbers, or columns of them."""
    axes = [[i.step(o, d) for d in range(len(o.shape))] for o in i.operands]
    return [
        tuple(value(step) * o.dtype.bytes for step in steps)
        for o, steps in zip(i.operands, axes, strict=True)
    ]


def _view(start: int, o: Buffer, shape: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray:
    """The bytes of a memory as an operand's array."""
    if 0 in shape:
        return np.zeros(shape, o.dtype.numpy)
    memory = (ctypes.c_char * _span(o, shape, steps)).from_address(start)
    found: np.ndarray = np.ndarray(shape, o.dtype.numpy, memory, 0, steps)
    return found


def _span(o: Buffer, shape: Sequence[Any], steps: tuple[int, ...]) -> Any:
    """Bytes from an operand's first to behind its last; of numbers, or of columns of them."""
    return o.dtype.bytes + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))


def _column(step: Dim, env: Env) -> np.ndarray:
    return np.asarray(evaluate_expr(as_expr(step), env, {}))


def check_shapes(stream: Stream) -> None:
    """CompileError where a black box would get more of an operand than its meaning touches: it must
    not see what nothing else knows that it sees."""
    black_boxes = [k for k, s in enumerate(stream.sites) if s.instruction.black_box is not None]
    if not black_boxes:
        return
    boxes = touched(stream)
    ends = boxes.start + ((boxes.extents - 1) * boxes.steps).sum(axis=1) + 1
    for k in black_boxes:
        i, rows = stream.sites[k].instruction, stream.rows(k)
        columns = {f.name: stream.fields[rows, c] for c, f in enumerate(i.fields)}
        env: Env = {f.symbol: columns[f.name] for f in i.fields}
        axes = _steps(i, partial(_column, env=env))
        for o, (operand, shape, steps) in enumerate(
            zip(i.operands, i.shapes(columns), axes, strict=True)
        ):
            uses = [n for n, u in enumerate(boxes.uses) if (u.instruction, u.operand) == (i, o)]
            ours = np.isin(boxes.use, uses)
            reach = np.zeros(len(stream), np.int64)
            np.maximum.at(reach, boxes.row[ours], ends[ours])
            end = stream.addresses[rows, o] + _span(operand, shape, steps)
            if ((end > reach[rows]) & (reach[rows] > 0)).any():
                raise CompileError(
                    f"{i} gets more elements of {operand} than its meaning reaches",
                    hint="declare the operand with dims() that are what is touched",
                )
