"""Programs for the stack machine, of kernels' tensor expressions.

code     [["axis", 0], ["axis", 2], ["load", 0, 2], ["cast", "f32"], ["apply", "mul"], …]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from stack_machine.device import APPLY, COMBINE, StackMachine
from tilewright.backends.host.cost import kernel_cost
from tilewright.backends.table import Backend, DeviceSpec, Option
from tilewright.ir import expr as e
from tilewright.ir.tensor import Scan, Stage, TensorProgram, neutral
from tilewright.optimize.move_arrays import Held
from tilewright.runtime.program import DevicePart
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Target

KIND = "stack"
SECONDS = 1e-9  # for each operation


class Unknown(Exception):
    """What the machine has no instruction for."""


def stack_options(program: TensorProgram, target: Target) -> list[Option]:
    """One, if all shapes are numbers and the machine knows all operators."""
    try:
        code = json.dumps(_program(program))
    except Unknown as obstacle:
        return [Option(obstacle=str(obstacle))]
    held = tuple(Held.row_major(b) for b in (*program.inputs, *program.outputs))
    operations = kernel_cost(program).operations
    seconds = SECONDS * (operations if isinstance(operations, int) else 1)
    return [Option(seconds=seconds, cycles=round(seconds / SECONDS), held=held, built=code)]


def stack_part(device: str, kernels: Mapping[str, str], host: Target) -> DevicePart:
    return DevicePart(device, KIND, tuple((name, code.encode()) for name, code in kernels.items()))


def _program(program: TensorProgram) -> dict:
    buffers = {b: k for k, b in enumerate(program.inputs)}
    stages = []
    for item in program.items:
        if isinstance(item, Scan):
            raise Unknown("a scan goes step by step")
        buffers.setdefault(item.buffer, len(buffers))
        stages.append(_stage(item, buffers))
    held = [[b.dtype.name, [_number(n) for n in b.shape]] for b in buffers]
    return {"buffers": held, "stages": stages, "outputs": [buffers[b] for b in program.outputs]}


def _stage(s: Stage, buffers: Mapping[e.Buffer, int]) -> dict:
    loops = (*s.axes, *s.reduce)
    if s.indices != tuple(x.var for x in s.axes) or (s.op and s.op.value not in COMBINE):
        raise Unknown(f"no stage of the machine is like that of {s.buffer.name}")
    axes = {x.var: k for k, x in enumerate(loops)}
    init = neutral(s.op, s.buffer.dtype) if s.op is not None and s.init is None else s.init
    return {
        "axes": [_number(x.extent) for x in s.axes],
        "reduce": [_number(x.extent) for x in s.reduce],
        "combine": None if s.op is None else s.op.value,
        "init": [] if init is None else list(_code(init, axes, buffers)),
        "buffer": buffers[s.buffer],
        "code": list(_code(s.value, axes, buffers)),
    }


def _code(x: e.Expr, axes: Mapping[e.Expr, int], buffers: Mapping[e.Buffer, int]) -> Iterator[list]:
    """The expression in postfix."""
    operands: Sequence[e.Expr] = [c for c in x.children() if isinstance(c, e.Expr)]
    for operand in operands:
        yield from _code(operand, axes, buffers)
    if isinstance(x, e.Var):
        yield ["axis", axes[x]]
    elif isinstance(x, e.Const):
        yield ["const", x.value, x.dtype.name]
    elif isinstance(x, e.Load):
        yield ["load", buffers[x.buffer], len(operands)]
    elif isinstance(x, e.Cast):
        yield ["cast", x.dtype.name]
    elif isinstance(x, e.Select):
        yield ["select"]
    elif isinstance(x, (e.Unary, e.Binary, e.Compare)):
        integer = x.op is e.BinaryOp.DIV and not x.dtype.is_float
        if x.op.value not in APPLY or integer:
            raise Unknown(f"there is no instruction for {x.op.value} of {x.dtype}")
        yield ["apply", x.op.value]
    else:
        raise Unknown(f"there is no instruction for {type(x).__name__}")


def _number(n: e.Dim) -> int:
    if not isinstance(n, int):
        raise Unknown(f"{n} has no number")
    return n


BACKEND = Backend("stack", stack_options, stack_part, KIND, StackMachine)


def stack_machine() -> DeviceSpec:
    """One such device."""
    return DeviceSpec(TargetBuilder("stack", clock=1 / SECONDS).build(), BACKEND)
