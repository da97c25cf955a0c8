"""ONNX's control flow, where it can be decided while importing: a branch that is known is inlined,
a loop whose number of steps is known and small is unrolled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import FIX_DIMS, Importer, NodeContext, axis_of
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.graph import Value

MOST_STEPS = 256  # of a loop that is unrolled


def if_(ctx: NodeContext, node: OnnxNode) -> list[Value]:
    """If (1, 11, 13, 16)."""
    condition = ctx.need_number(node.input(0), "the condition")
    branch = node.graph("then_branch" if condition else "else_branch")
    return ctx.run_graph(branch, node.scope, [])


def loop(ctx: NodeContext, node: OnnxNode) -> list[Value]:
    """Loop (1, 11, 13, 16), unrolled: the trip count, or a condition that is known each time."""
    body = node.graph("body")
    trips, condition = node.optional(0), node.optional(1)
    most = MOST_STEPS + 1 if trips is None else ctx.need_int(trips, "the trip count")
    carried = [node.input(i) for i in range(2, len(node.inputs))]
    going = True if condition is None else _truth(ctx, condition)
    collected: list[list[Value]] = []
    step = 0
    while going and step < most:
        if step >= MOST_STEPS:
            raise ModelError(
                f"a loop of more than {MOST_STEPS} steps is not unrolled",
                hint="loops that run at run time are not supported",
            )
        number = ctx.constant(np.array(step, np.int64))
        inputs = [number, ctx.constant(np.array(True)), *carried]
        results = ctx.run_graph(body, node.scope, inputs)
        if len(results) != 1 + max(len(node.outputs), len(carried)):
            raise ModelError(
                f"the body gives {len(results)} values for {len(node.outputs)} outputs"
            )
        going = _truth(ctx, results[0])
        carried, scanned = results[1 : 1 + len(carried)], results[1 + len(carried) :]
        collected.append(scanned)
        step += 1
    return [*carried, *_stacked(ctx, node, collected, len(node.outputs) - len(carried))]


def _truth(ctx: NodeContext, condition: Value) -> bool:
    return bool(ctx.need(condition, "the loop's condition").reshape(-1).all())


def _stacked(
    ctx: NodeContext, node: OnnxNode, collected: Sequence[Sequence[Value]], count: int
) -> list[Value]:
    """What each step gave, one behind the other on a new first axis."""
    if count and not collected:
        raise ModelError("a loop of no steps has outputs of unknown shape")
    return [stack(ctx, [step[i] for step in collected], 0) for i in range(count)]


def stack(ctx: NodeContext, values: Sequence[Value], axis: int) -> Value:
    """Values of one shape on a new axis."""
    shape = list(values[0].shape)
    shape.insert(axis, 1)
    rows = [ctx.reshape(v, shape) for v in values]
    return rows[0] if len(rows) == 1 else ctx.emit("concat", rows, axis=axis)


def scan(ctx: NodeContext, node: OnnxNode) -> list[Value]:
    """Scan (8: with a batch axis, 9), unrolled."""
    body, scanned = node.graph("body"), node.int("num_scan_inputs")
    inputs = list(node.inputs[1:] if node.opset < 9 else node.inputs)
    values = [v for v in inputs if v is not None]
    if not 1 <= scanned <= len(values) == len(inputs):
        raise ModelError(f"num_scan_inputs is {scanned}, with {len(values)} inputs")
    if node.opset < 9:
        return _scan_batches(ctx, node, values, scanned)
    states, sequences = values[: len(values) - scanned], values[len(values) - scanned :]
    count = len(node.outputs) - len(states)
    axes = node.ints("scan_input_axes", (0,) * scanned)
    backwards = node.ints("scan_input_directions", (0,) * scanned)
    out_axes = node.ints("scan_output_axes", (0,) * count)
    out_backwards = node.ints("scan_output_directions", (0,) * count)
    if not (
        len(axes) == len(backwards) == scanned and len(out_axes) == len(out_backwards) == count
    ):
        raise ModelError("the axes or directions do not fit the number of inputs and outputs")
    along = [axis_of(a, v.type.rank) for a, v in zip(axes, sequences, strict=True)]
    steps = _steps(sequences, along)
    collected = []
    for step in range(steps):
        at = [steps - 1 - step if back else step for back in backwards]
        parts = [_part(ctx, v, a, i) for v, a, i in zip(sequences, along, at, strict=True)]
        results = ctx.run_graph(body, node.scope, [*states, *parts])
        if len(results) != len(states) + count:
            raise ModelError(f"the body gives {len(results)} values, not {len(states) + count}")
        states = results[: len(states)]
        collected.append(results[len(states) :])
    outputs = []
    for i, (axis, back) in enumerate(zip(out_axes, out_backwards, strict=True)):
        rows = [step[i] for step in collected]
        rank = rows[0].type.rank + 1
        outputs.append(stack(ctx, rows[::-1] if back else rows, axis_of(axis, rank)))
    return [*states, *outputs]


def _scan_batches(
    ctx: NodeContext, node: OnnxNode, values: Sequence[Value], scanned: int
) -> list[Value]:
    """Scan-8: all inputs have a batch axis in front, and each batch runs by itself."""
    if node.optional(0) is not None:
        raise ModelError("sequence_lens is not supported", hint="export with opset 9 or later")
    if any(node.ints("directions", (0,) * scanned)):
        raise ModelError("directions are not supported", hint="export with opset 9 or later")
    if not all(v.shape[:1] == values[0].shape[:1] != () for v in values):
        raise ModelError("the inputs differ in their number of batches")
    batches = values[0].shape[0]
    if not isinstance(batches, int):
        raise ModelError("the number of batches is symbolic", hint=FIX_DIMS)
    body, results = node.graph("body"), []
    for batch in range(batches):
        own = [_part(ctx, v, 0, batch) for v in values]
        states, sequences = own[: len(own) - scanned], own[len(own) - scanned :]
        steps, collected = _steps(sequences, [0] * scanned), []
        for step in range(steps):
            parts = [_part(ctx, v, 0, step) for v in sequences]
            given = ctx.run_graph(body, node.scope, [*states, *parts])
            if len(given) != len(node.outputs):
                raise ModelError(f"the body gives {len(given)} values, not {len(node.outputs)}")
            states, rest = given[: len(states)], given[len(states) :]
            collected.append(rest)
        rows = [stack(ctx, list(column), 0) for column in zip(*collected, strict=True)]
        results.append([*states, *rows])
    return [stack(ctx, list(column), 0) for column in zip(*results, strict=True)]


def _steps(sequences: Sequence[Value], axes: Sequence[int]) -> int:
    if not all(axis < v.type.rank for v, axis in zip(sequences, axes, strict=True)):
        raise ModelError("a scalar has no steps")
    found = {v.shape[a] for v, a in zip(sequences, axes, strict=True)}
    steps = found.pop()
    if found:
        raise ModelError("the sequences differ in length")
    if not isinstance(steps, int):
        raise ModelError("the number of steps is symbolic", hint=FIX_DIMS)
    if not 1 <= steps <= MOST_STEPS:
        raise ModelError(
            f"a scan of {steps} steps is not unrolled", hint=f"at most {MOST_STEPS} steps are"
        )
    return steps


def _part(ctx: NodeContext, v: Value, axis: int, step: int) -> Value:
    shape = [d for a, d in enumerate(v.shape) if a != axis]
    return ctx.reshape(ctx.slice(v, axis, step, 1), shape)


def optional_has_element(ctx: NodeContext, node: OnnxNode) -> Value:
    """OptionalHasElement (15, 18: tensors, or nothing at all)."""
    return ctx.constant(np.array(node.optional(0) is not None))


def optional_get_element(ctx: NodeContext, node: OnnxNode) -> Value:
    """OptionalGetElement (15, 18: of a tensor, the tensor)."""
    return node.input(0)


IMPORTERS: dict[str, Importer] = {
    "If": if_,
    "Loop": loop,
    "OptionalGetElement": optional_get_element,
    "OptionalHasElement": optional_has_element,
    "Scan": scan,
}
