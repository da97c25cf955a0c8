"""What a processor offers for a kernel."""

from __future__ import annotations

from tilewright.backends.host.cost import kernel_cost
from tilewright.backends.table import Backend, Option
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.loop import symbols
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.plan.compose_stages import compose_stages
from tilewright.plan.create_loops import create_loops
from tilewright.plan.preferred_layouts import preferred_layouts
from tilewright.target.target import Target

TYPICAL = 64  # of a dimension without a number


def native_options(program: TensorProgram, target: Target) -> list[Option]:
    """One: all kernels run. Its time is that of the operations at the processor's peak, or of the
    bytes at its memory's bandwidth, whichever is longer."""
    kernel = create_loops(compose_stages(program))
    preference = preferred_layouts(kernel, target, {})
    wanted = {}
    if preference is not None:
        wanted = dict((preference.data, preference.weight, preference.result))
    types = {
        b: TensorType(b.dtype, b.shape, wanted.get(b.name))
        for b in (*program.inputs, *program.outputs)
    }
    cost = kernel_cost(program)
    known = {s.name: TYPICAL for s in symbols(kernel)}
    operations, moved = (
        0 if d is None else evaluate_dim(d, known) for d in (cost.operations, cost.bytes)
    )
    outer = target.memories[-1].bandwidth if target.memories else None
    transfer = moved / (outer * target.clock) if outer else 0.0
    return [
        Option(
            operands=tuple(types[b] for b in program.inputs),
            results=tuple(types[b] for b in program.outputs),
            seconds=max(operations / (2 * target.peak(program.outputs[0].dtype) or 1), transfer),
            bytes=moved,
        )
    ]


NATIVE = Backend("native", native_options)
