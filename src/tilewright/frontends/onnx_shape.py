"""ONNX's operators on shapes: constants, reshapes, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base.dtype import f32, i64
from tilewright.base.errors import ModelError
from tilewright.frontends.contents import Unknown, decide
from tilewright.frontends.onnx_context import NodeContext, Result, axis_of, number_of, one_of
from tilewright.frontends.onnx_node import Node
from tilewright.frontends.onnx_tensor import sparse_to_array
from tilewright.frontends.onnx_types import element_type
from tilewright.ir.dims import canonical, divide_exactly, limits
from tilewright.ir.expr import CompareOp, Dim, Symbol, as_expr, maximum, minimum
from tilewright.ir.graph import Value

Importer = Callable[[NodeContext, Node], Result]


def constant(ctx: NodeContext, node: Node) -> Value:
    """Constant (1, 11: sparse_value, 12: value_int and kin)."""
    given = [name for name in node.attributes if name.startswith(("value", "sparse_value"))]
    if len(given) != 1:
        raise ModelError(f"it has {len(given)} values, where one is needed")
    name = given[0]
    if name == "value":
        return ctx.constant(ctx.array(node.tensor(name), "its value"))
    if name == "sparse_value":
        sparse = node.attributes[name].sparse_tensor
        return ctx.constant(sparse_to_array(sparse, ctx.folder, "its value"))
    if name not in _CONSTANTS:
        raise ModelError("strings are not supported")
    return ctx.constant(_CONSTANTS[name](node, name))


_CONSTANTS: dict[str, Callable[[Node, str], np.ndarray]] = {
    "value_int": lambda node, name: np.array(node.int(name), np.int64),
    "value_ints": lambda node, name: np.array(node.ints(name), np.int64),
    "value_float": lambda node, name: np.array(node.float(name), np.float32),
    "value_floats": lambda node, name: np.array(node.floats(name), np.float32),
}


def constant_of_shape(ctx: NodeContext, node: Node) -> Value:
    """ConstantOfShape (9)."""
    shape = ctx.need_dims(node.input(0), "the shape")
    if not node.has("value"):
        return ctx.full(shape, 0.0, f32)
    array = ctx.array(node.tensor("value"), "its value")
    if array.size != 1:
        raise ModelError(f"its value has {array.size} elements, where one is needed")
    value = ctx.constant(array)
    number = array.reshape(())
    plain = bool(number) if array.dtype.kind == "b" else float(number)
    if value.dtype.is_integer:
        plain = int(number)
    return ctx.full(shape, plain, value.dtype)


def shape(ctx: NodeContext, node: Node) -> Value:
    """Shape (1, 15: start and end)."""
    dims = node.input(0).shape
    start = node.int("start", 0) if node.opset >= 15 else 0
    end = node.int("end", len(dims)) if node.opset >= 15 else len(dims)
    return ctx.dims(dims[slice(start, end)])


def size(ctx: NodeContext, node: Node) -> Value:
    return ctx.reshape(ctx.dims([number_of(node.input(0).shape)]), [])


# ---------------------------------------------------------------- reshapes


def reshape(ctx: NodeContext, node: Node) -> Value:
    """Reshape (5, 14: allowzero): 0 copies a dimension, -1 is what is left."""
    x = node.input(0)
    wanted = ctx.need_dims(node.input(1), "the shape")
    if node.input(1).type.rank != 1:
        raise ModelError(f"the shape has {node.input(1).type.rank} dimensions, not one")
    copies = not node.flag("allowzero")
    dims: list[Dim] = []
    for axis, dim in enumerate(wanted):
        if dim == 0 and copies:
            if axis >= x.type.rank:
                raise ModelError(f"the shape {wanted} copies dimension {axis}, which is not there")
            dim = x.shape[axis]
        dims.append(dim)
    unknown = [axis for axis, dim in enumerate(dims) if dim == -1]
    if len(unknown) > 1:
        raise ModelError(f"the shape {wanted} has two dimensions of -1")
    if unknown:
        rest = number_of([d for d in dims if d != -1])
        dims[unknown[0]] = _quotient(number_of(x.shape), rest, wanted)
    return ctx.reshape(x, dims)


def _quotient(total: Dim, rest: Dim, wanted: Sequence[Dim]) -> Dim:
    if rest == 0:
        raise ModelError(f"the dimension of -1 in {wanted} could be anything")
    exact = divide_exactly(total, rest)
    if exact is not None:
        return exact
    if isinstance(total, int) and isinstance(rest, int):
        raise ModelError(f"{total} elements do not divide into the shape {wanted}")
    return canonical(as_expr(total) // rest)


def flatten(ctx: NodeContext, node: Node) -> Value:
    """Flatten (1, 11: negative axes)."""
    x = node.input(0)
    axis = node.int("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise ModelError(f"axis {axis} of a tensor with {x.type.rank} dimensions")
    axis += x.type.rank if axis < 0 else 0
    return ctx.reshape(x, [number_of(x.shape[:axis]), number_of(x.shape[axis:])])


def squeeze(ctx: NodeContext, node: Node) -> Value:
    """Squeeze (1: attribute, 13: input)."""
    x = node.input(0)
    axes = ctx.ints(node, "axes", 1, 13)
    if axes is None:
        axes = tuple(a for a, d in enumerate(x.shape) if d == 1)
    axes = tuple(axis_of(a, x.type.rank) for a in axes)
    for axis in axes:
        if x.shape[axis] != 1:
            raise ModelError(f"axis {axis} has extent {x.shape[axis]}, not 1")
    return ctx.reshape(x, [d for a, d in enumerate(x.shape) if a not in axes])


def unsqueeze(ctx: NodeContext, node: Node) -> Value:
    """Unsqueeze (1: attribute, 13: input)."""
    x = node.input(0)
    axes = ctx.ints(node, "axes", 1, 13)
    if axes is None:
        raise ModelError("axes are missing")
    rank = x.type.rank + len(axes)
    places = {axis_of(a, rank) for a in axes}
    if len(places) != len(axes):
        raise ModelError(f"axes {list(axes)} name one axis twice")
    rest = iter(x.shape)
    return ctx.reshape(x, [1 if a in places else next(rest) for a in range(rank)])


def transpose(ctx: NodeContext, node: Node) -> Value:
    x = node.input(0)
    perm = node.ints("perm", tuple(reversed(range(x.type.rank))))
    return ctx.emit("transpose", [x], perm=perm)


def depth_to_space(ctx: NodeContext, node: Node) -> Value:
    """DepthToSpace (1, 11: mode)."""
    x, block = node.input(0), node.int("blocksize")
    if x.type.rank != 4 or block < 1:
        raise ModelError(f"the input is {x.type} and the block size {block}")
    n, c, h, w = x.shape
    depth = canonical(as_expr(c) // (block * block))
    mode = one_of(node, "mode", "DCR", ("DCR", "CRD"))
    if mode == "DCR":
        x, perm = ctx.reshape(x, [n, block, block, depth, h, w]), (0, 3, 4, 1, 5, 2)
    else:
        x, perm = ctx.reshape(x, [n, depth, block, block, h, w]), (0, 1, 4, 2, 5, 3)
    x = ctx.transpose(x, perm)
    return ctx.reshape(x, [n, depth, as_expr(h) * block, as_expr(w) * block])


def space_to_depth(ctx: NodeContext, node: Node) -> Value:
    """SpaceToDepth (1, 28: mode)."""
    x, block = node.input(0), node.int("blocksize")
    if x.type.rank != 4 or block < 1:
        raise ModelError(f"the input is {x.type} and the block size {block}")
    n, c, h, w = x.shape
    rows, columns = canonical(as_expr(h) // block), canonical(as_expr(w) // block)
    x = ctx.reshape(x, [n, c, rows, block, columns, block])
    crd = one_of(node, "mode", "DCR", ("DCR", "CRD")) == "CRD"
    x = ctx.transpose(x, (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4))
    return ctx.reshape(x, [n, as_expr(c) * (block * block), rows, columns])


# ---------------------------------------------------------------- slices


def slice_(ctx: NodeContext, node: Node) -> Value:
    """Slice (1: attributes, 10: inputs, with steps)."""
    x = node.input(0)
    if node.opset < 10:
        starts, ends = list(node.ints("starts")), list(node.ints("ends"))
        axes, steps = node.ints("axes", tuple(range(len(starts)))), [1] * len(starts)
    else:
        starts = ctx.need_dims(node.input(1), "starts")
        ends = ctx.need_dims(node.input(2), "ends")
        given, stride = node.optional(3), node.optional(4)
        axes = range(len(starts)) if given is None else ctx.need_ints(given, "axes")
        steps = [1] * len(starts) if stride is None else ctx.need_ints(stride, "steps")
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps"
        )
    rank = x.type.rank
    places = [axis_of(a, rank) for a in axes]
    if len(set(places)) != len(places):
        raise ModelError(f"axes {list(axes)} name one axis twice")
    begin, sizes, strides = [0] * rank, list(x.shape), [1] * rank
    for axis, start, end, step in zip(places, starts, ends, steps, strict=True):
        if step == 0:
            raise ModelError("a step of 0")
        begin[axis], sizes[axis] = _slice_range(ctx, x.shape[axis], start, end, step)
        strides[axis] = step
    return ctx.emit("slice", [x], starts=tuple(begin), sizes=tuple(sizes), steps=tuple(strides))


def _slice_range(ctx: NodeContext, extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """The first element and how many there are, by numpy's rules for start:end:step."""
    if step > 0:
        first = _clamp(ctx, _from_end(start, extent), 0, extent)
        last = _clamp(ctx, _from_end(end, extent), 0, extent)
        count = canonical((as_expr(last) - first + (step - 1)) // step)
    else:
        before_last = canonical(as_expr(extent) - 1)
        first = _clamp(ctx, _from_end(start, extent), 0, before_last)
        last = _clamp(ctx, _from_end(end, extent), -1, before_last)
        count = canonical((as_expr(first) - last + (-step - 1)) // -step)
    low = limits(count)[0]
    return first, count if low is not None and low >= 0 else _at_least(count, 0)


def _from_end(place: Dim, extent: Dim) -> Dim:
    """A negative place counts from the end."""
    try:
        negative = decide(CompareOp.LT, place, 0)
    except Unknown:
        raise ModelError(
            f"whether the end {place} is negative depends on a symbolic dimension",
            hint="fix symbolic dimensions with dims=",
        ) from None
    return canonical(as_expr(extent) + place) if negative else place


def _clamp(ctx: NodeContext, place: Dim, low: Dim, high: Dim) -> Dim:
    """`place` between low and high. A symbolic place in a tensor of fixed size, as in
    table[:N], is taken to be inside: the symbol gets an upper bound."""
    if isinstance(place, Symbol) and isinstance(high, int) and low == 0:
        if place.lower > high:
            return high
        ctx.builder.assume_at_most(place, high)
        return place
    if isinstance(place, int) and place >= (1 << 31) - 1:
        return high
    return _at_most(_at_least(place, low), high)


def _at_most(a: Dim, b: Dim) -> Dim:
    low, high = limits(canonical(as_expr(a) - b))
    if high is not None and high <= 0:
        return a
    return b if low is not None and low >= 0 else minimum(as_expr(a), b)


def _at_least(a: Dim, b: Dim) -> Dim:
    low, high = limits(canonical(as_expr(a) - b))
    if low is not None and low >= 0:
        return a
    return b if high is not None and high <= 0 else maximum(as_expr(a), b)


def split(ctx: NodeContext, node: Node) -> Sequence[Value]:
    """Split (2: attribute, 13: input, 18: num_outputs)."""
    x = node.input(0)
    axis = axis_of(node.int("axis", 0), x.type.rank)
    sizes = _split_sizes(ctx, node, x.shape[axis])
    if len(sizes) != len(node.outputs):
        raise ModelError(f"it splits into {len(sizes)} parts, but has {len(node.outputs)} outputs")
    total = canonical(sum((as_expr(s) for s in sizes), as_expr(0)))
    if total != canonical(x.shape[axis]):
        raise ModelError(f"parts of {sizes} make {total}, but axis {axis} has {x.shape[axis]}")
    parts, start = [], as_expr(0)
    for part in sizes:
        parts.append(ctx.slice(x, axis, canonical(start), part))
        start = start + part
    return parts


def _split_sizes(ctx: NodeContext, node: Node, extent: Dim) -> list[Dim]:
    given = node.optional(1) if node.opset >= 13 else None
    if given is not None:
        return ctx.need_dims(given, "split")
    if node.has("split"):
        return list(node.ints("split"))
    count = node.int("num_outputs", len(node.outputs))
    if count < 1:
        raise ModelError(f"it splits into {count} parts")
    if not isinstance(extent, int):
        exact = divide_exactly(extent, count)
        if exact is None:
            raise ModelError(
                f"whether {count} divides {extent} depends on a symbolic dimension",
                hint="fix symbolic dimensions with dims=",
            )
        return [exact] * count
    if extent % count and node.opset < 18:
        raise ModelError(f"an axis of {extent} does not split into {count} equal parts")
    each = -(-extent // count)
    return [max(0, min(each, extent - i * each)) for i in range(count)]


# ---------------------------------------------------------------- concatenation, padding


def concat(ctx: NodeContext, node: Node) -> Value:
    values = [node.input(i) for i in range(len(node.inputs))]
    return ctx.emit("concat", values, axis=node.int("axis", 1))


def pad(ctx: NodeContext, node: Node) -> Value:
    """Pad (2: attributes, 11: inputs, 18: axes, 19: wrap). Negative pads cut off."""
    x = node.input(0)
    mode = one_of(node, "mode", "constant", ("constant", "reflect", "edge", "wrap"))
    if node.opset < 11:
        pads, fill, axes = list(node.ints("pads")), None, None
        value: float | int | bool | None = node.float("value", 0.0)
    else:
        pads, value = ctx.need_dims(node.input(1), "pads"), 0
        fill, axes = node.optional(2), node.optional(3)
    rank = x.type.rank
    places = (
        range(rank) if axes is None else [axis_of(a, rank) for a in ctx.need_ints(axes, "axes")]
    )
    if len(pads) != 2 * len(places):
        raise ModelError(f"{len(pads)} pads for {len(places)} axes, where two each are needed")
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for position, axis in enumerate(places):
        before[axis], after[axis] = pads[position], pads[position + len(places)]
    x = _crop(ctx, x, before, after)
    before, after = ([_at_least(p, 0) for p in side] for side in (before, after))
    operands = [x]
    if fill is not None and mode == "constant":
        known = ctx.known(fill)
        if known is None:
            operands.append(ctx.reshape(fill, []))
        elif known.size != 1:
            raise ModelError(f"the constant added has {known.size} elements")
        else:
            value = (
                known.reshape(()).astype(np.float64 if x.dtype.is_float else x.dtype.numpy).item()
            )
    return ctx.emit(
        "pad", operands, before=tuple(before), after=tuple(after), mode=mode, value=value
    )


def _crop(ctx: NodeContext, x: Value, before: Sequence[Dim], after: Sequence[Dim]) -> Value:
    for axis, (p, q) in enumerate(zip(before, after, strict=True)):
        front, back = (-d if isinstance(d, int) and d < 0 else 0 for d in (p, q))
        if front or back:
            x = ctx.slice(x, axis, front, canonical(as_expr(x.shape[axis]) - (front + back)))
    return x


def expand(ctx: NodeContext, node: Node) -> Value:
    """Expand (8): broadcasting goes both ways."""
    x = node.input(0)
    wanted = ctx.need_dims(node.input(1), "the shape")
    rank = max(x.type.rank, len(wanted))
    own = [1] * (rank - x.type.rank) + list(x.shape)
    target = [1] * (rank - len(wanted)) + wanted
    dims = [b if a == 1 else a for a, b in zip(own, target, strict=True)]
    for a, b in zip(own, target, strict=True):
        if a != 1 and b != 1 and canonical(as_expr(a) - b) != 0:
            raise ModelError(f"{x.type} does not broadcast to {wanted}")
    return ctx.expand(x, dims)


def tile(ctx: NodeContext, node: Node) -> Value:
    """Tile (6)."""
    x = node.input(0)
    return ctx.emit("tile", [x], repeats=tuple(ctx.need_dims(node.input(1), "repeats")))


def range_(ctx: NodeContext, node: Node) -> Value:
    """Range (11): start, start + delta, … before limit; the length must be known."""
    start, limit, delta = (node.input(i) for i in range(3))
    length, dtype = _range_length(ctx, start, limit, delta), start.dtype
    known = [ctx.known(v) for v in (start, delta)]
    result = ctx.emit("iota", [], length=length, dtype=dtype)
    if known[1] is None or known[1].reshape(()) != 1:
        result = ctx.emit("mul", [result, ctx.reshape(delta, [])])
    if known[0] is None or known[0].reshape(()) != 0:
        result = ctx.emit("add", [result, ctx.reshape(start, [])])
    return result


def _range_length(ctx: NodeContext, start: Value, limit: Value, delta: Value) -> Dim:
    if not start.dtype.is_integer:
        low, high, step = (
            float(ctx.need(v, name).reshape(()))
            for v, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
        )
        if step == 0 or not np.isfinite([low, high, step]).all():
            raise ModelError(f"a range from {low} to {high} by {step}")
        return max(0, int(np.ceil((high - low) / step)))
    (low,), (high,) = ctx.need_dims(start, "start"), ctx.need_dims(limit, "limit")
    (step,) = ctx.need_ints(delta, "delta")
    if step == 0:
        raise ModelError("a range with delta 0")
    difference = as_expr(high) - low if step > 0 else as_expr(low) - high
    return _at_least(canonical((difference + (abs(step) - 1)) // abs(step)), 0)


def trilu(ctx: NodeContext, node: Node) -> Value:
    """Trilu (14)."""
    x, k = node.input(0), node.optional(1)
    upper = node.flag("upper", True)
    known = None if k is None else ctx.known(k)
    if k is None or known is not None:
        diagonal = 0 if known is None else int(known.reshape(()))
        return ctx.emit("trilu", [x], upper=upper, diagonal=diagonal)
    return ctx.emit("trilu", [x, ctx.reshape(k, [])], upper=upper)


def eye_like(ctx: NodeContext, node: Node) -> Value:
    """EyeLike (9): ones on a diagonal."""
    x = node.input(0)
    if x.type.rank != 2:
        raise ModelError(f"the input is {x.type}, not a matrix")
    dtype = element_type(node.int("dtype")) if node.has("dtype") else x.dtype
    rows = ctx.reshape(ctx.emit("iota", [], length=x.shape[0], dtype=i64), [x.shape[0], 1])
    columns = ctx.emit("iota", [], length=x.shape[1], dtype=i64)
    shifted = ctx.emit("add", [rows, ctx.constant(np.array(node.int("k", 0), np.int64))])
    return ctx.cast(ctx.emit("equal", [shifted, columns]), dtype)


IMPORTERS: dict[str, Importer] = {
    "Concat": concat,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "Pad": pad,
    "Range": range_,
    "Reshape": reshape,
    "Shape": shape,
    "Size": size,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
