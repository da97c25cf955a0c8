"""Kernels that call one instruction."""

from __future__ import annotations

from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Call, For, Kernel, Store, buffers_written

STEPS = 3


def calls(instruction: Instruction) -> Kernel:
    """Three calls in a row into one result, which is 0 before: operands lie one behind another."""
    (written,) = buffers_written(instruction.body)
    step = Var("step")
    inputs, regions = [], []
    for operand in instruction.operands:
        shape = operand.shape if operand == written else (STEPS, *operand.shape)
        buffer = Buffer(operand.name, operand.dtype, shape)
        at = tuple(axis(k) for k in range(len(operand.shape)))
        regions.append(Region(buffer, at if operand == written else (step, *at)))
        if operand == written:
            result = buffer
        else:
            inputs.append(buffer)
    start = zero(result)
    body = (start, For(step, STEPS, (Call(instruction, tuple(regions)),)))
    return Kernel(instruction.name, tuple(inputs), (result,), body)


def zero(buffer: Buffer) -> Store | For:
    i = Var("i")
    (n,) = buffer.shape
    return For(i, n, (Store(buffer, (i,), const(0, buffer.dtype)),))
