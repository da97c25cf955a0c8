"""How random graphs apply operators with an inner structure: contractions, windows, recurrences,
operators that run on the host, calls of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from strategies_expr import largest
from strategies_graph_maker import (
    EXACT,
    SMOOTH,
    WILD,
    Generator,
    GraphMaker,
    accepts,
)

from tilewright.base.dtype import DType, bool_, f32, i32, i64, u8
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Op
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.best import takes
from tilewright.ops.table import OPS

# ---------------------------------------------------------------- contractions and windows


def _matmul(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t != bool_], 2, SMOOTH)
    y = m.like(x.dtype, (*x.shape[:-2], x.shape[-1], m.d.int(1, 4)), SMOOTH)
    return m.add(op, (x, y), m.bound[x] * m.bound[y] * largest(x.shape[-1]))


def _window(m: GraphMaker, rank: int) -> dict[str, tuple[int, ...]]:
    limits = {"strides": (1, 2), "pads_begin": (0, 1), "pads_end": (0, 1), "dilations": (1, 2)}
    return {k: tuple(m.d.int(*ends) for _ in range(rank)) for k, ends in limits.items()}


def _image(m: GraphMaker, dtypes: Sequence[DType], rank: int) -> Value:
    return m.operand(
        lambda t: t.rank == rank + 2,
        dtypes,
        lambda: (m.dim(), m.d.int(1, 4), *(m.dim(6) for _ in range(rank))),
        SMOOTH,
    )


def _conv(m: GraphMaker, op: Op) -> list[Value] | None:
    rank = m.d.int(1, 2)
    x = _image(m, [t for t in m.dtypes if t != bool_], rank)
    channels = x.shape[1]
    if not isinstance(channels, int):
        return None
    groups = channels if m.d.chance(3) else 1
    kernel = tuple(m.d.int(1, 2) for _ in range(rank))
    w = m.like(x.dtype, (groups * m.d.int(1, 2), channels // groups, *kernel), SMOOTH)
    bound = m.bound[x] * m.bound[w] * channels // groups * math.prod(kernel)
    return m.add(op, (x, w), bound, groups=groups, **_window(m, rank))


def _pool(m: GraphMaker, op: Op) -> list[Value] | None:
    rank = m.d.int(1, 2)
    floats = [t for t in m.dtypes if t.is_float] or [f32]
    numbers = [t for t in m.dtypes if t != bool_]
    x = _image(m, numbers if op.name == "max_pool" else floats, rank)
    if m.quality[x] > accepts(op):
        return None
    kernel = tuple(m.d.int(1, 3) for _ in range(rank))
    attrs = {**_window(m, rank), "kernel": kernel, "ceil": m.d.chance(3)}
    attrs["dilations"] = (1,) * rank
    for low, size in zip(attrs["pads_begin"], kernel, strict=True):
        if low >= size:
            return None  # a window of padding alone
    if op.name == "max_pool":
        attrs["indices"] = m.quality[x] is EXACT and m.d.chance(2)
        bound = math.inf if max(*attrs["pads_begin"], *attrs["pads_end"]) else m.bound_of((x,))
        return m.add(op, (x,), bound, **attrs)
    return m.add(op, (x,), m.bound[x] if op.name == "average_pool" else math.inf, **attrs)


def _lrn(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t.is_float] or [f32], 2, EXACT)
    return m.add(op, (x,), size=m.d.int(1, 3))


def _matmul_compact(m: GraphMaker, op: Op) -> list[Value] | None:
    """Codes of 2, 4 or 8 bits, with a scale for all or for blocks."""
    bits, blocks = m.d.pick((2, 4, 8)), m.d.int(1, 3)
    block = 8 // bits * m.d.int(1, 3)
    depth = block * blocks
    x = m.like(f32, (m.d.int(1, 3), depth), SMOOTH)
    columns = m.d.int(1, 3)
    codes = m.like(u8, (depth * bits // 8, columns), EXACT)
    scales = m.like(f32, (blocks, columns), SMOOTH)
    bound = m.bound[x] * m.bound[scales] * 256 * depth
    return m.add(op, (x, codes, scales), bound, bits=bits, block=block, zero=m.d.int(0, 8))


def _einsum(m: GraphMaker, op: Op) -> list[Value] | None:
    """Two operands that share an axis, which is summed over or kept."""
    x = m.any([t for t in m.dtypes if t != bool_], 2, SMOOTH)
    if x.type.rank > 2:
        return None
    y = m.like(x.dtype, (x.shape[1], m.d.int(1, 3)), SMOOTH)
    bound = m.bound[x] * m.bound[y] * largest(x.shape[1]) * largest(x.shape[0])
    result = m.d.pick(("ik", "ki", "k", "ijk", "kji", ""))
    return m.add(op, (x, y), bound, terms=("ij", "jk"), result=result)


# ---------------------------------------------------------------- on the host


def _top_k(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.operand(
        lambda t: t.rank >= 1 and all(isinstance(d, int) for d in t.shape),
        [t for t in m.dtypes if t != bool_ and (op.name == "top_k" or takes(t))],
        lambda: [m.d.int(1, 4) for _ in range(m.d.int(1, 3))],
        EXACT,
    )
    axis = m.axis(x.type.rank)
    return m.add(op, (x,), m.bound_of((x,)), k=m.d.int(1, x.shape[axis]), axis=axis)


def _data_dependent(m: GraphMaker, op: Op) -> list[Value] | None:
    """How many elements there are is a symbol of the node's own."""
    x = m.any(m.dtypes, 1, EXACT)
    axis = {"axis": m.d.int(0, x.type.rank - 1)} if hasattr(op.attrs, "axis") else {}
    operands = [x]
    if op.name == "compress":
        operands.append(m.like(bool_, (x.shape[axis["axis"]],), EXACT))
    made = m.add(op, operands, m.bound_of((x,)), count=Symbol(m.fresh("count"), 0), **axis)
    m.private.update(made or ())
    return made


# ---------------------------------------------------------------- images


def _grid_sample(m: GraphMaker, op: Op) -> list[Value] | None:
    rank = m.d.int(1, 2)
    x = _image(m, (f32,), rank)
    places = [m.d.int(1, 3) for _ in range(rank)]
    grid = m.like(f32, (x.shape[0], *places, rank), EXACT)
    if m.quality[x] is WILD:
        return None
    padding = m.d.pick(("zeros", "border", "reflection"))
    corners = m.d.chance(2)
    return m.add(op, (x, grid), m.bound[x], padding=padding, align_corners=corners)


def _roi_align(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _image(m, (f32,), 2)
    count = m.d.int(1, 3)
    rois = m.like(f32, (count, 4), EXACT)
    batches = m.constant(np.zeros(count, np.int64), i64)
    sizes = {"height": m.d.int(1, 2), "width": m.d.int(1, 2), "samples": m.d.int(1, 2)}
    return m.add(op, (x, rois, batches), math.inf, half_pixel=m.d.chance(2), **sizes)


def _fold(m: GraphMaker, op: Op) -> list[Value] | None:
    """A window of two places laid over a line of four."""
    x = m.like(f32, (m.dim(), 2 * m.d.int(1, 2), 3), SMOOTH)
    window = {"strides": (1,), "pads_begin": (0,), "pads_end": (0,), "dilations": (1,)}
    return m.add(op, (x,), m.bound[x] * 2, shape=(4,), kernel=(2,), **window)


def _deform_columns(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _image(m, (f32,), 2)
    taps, places = 2, (m.d.int(1, 3), m.d.int(1, 3))
    offsets = m.like(f32, (x.shape[0], 2 * taps, *places), EXACT)
    window = {"strides": (1, 1), "pads_begin": (0, 0), "dilations": (1, 1)}
    return m.add(op, (x, offsets), math.inf, kernel=(1, taps), **window)


def _suppress(m: GraphMaker, op: Op) -> list[Value] | None:
    count = m.d.int(1, 4)
    boxes, scores = m.like(f32, (1, count, 4), EXACT), m.like(f32, (1, 2, count), EXACT)
    attrs = {"most": m.d.int(0, 2), "overlap": 0.5, "center": m.d.chance(2)}
    made = m.add(op, (boxes, scores), count=Symbol(m.fresh("count"), 0), **attrs)
    m.private.update(made or ())
    return made


def _det(m: GraphMaker, op: Op) -> list[Value] | None:
    n = m.d.int(1, 3)
    return m.add(op, (m.like(f32, (*m.shape(0, 1), n, n), EXACT),))


# ---------------------------------------------------------------- recurrent layers, calls


def _recurrent(gates: int, states: int, functions: tuple[str, ...]) -> Generator:
    def generate(m: GraphMaker, op: Op) -> list[Value] | None:
        steps, batch, hidden = m.dim(), m.dim(), m.d.int(1, 3)
        xw = m.like(f32, (steps, batch, gates * hidden), EXACT)
        rt = m.like(f32, (hidden, gates * hidden), EXACT)
        start = [m.like(f32, (batch, hidden), EXACT) for _ in range(states)]
        parameters = (0.0,) * len(functions)
        chosen = {"activations": functions, "alphas": parameters, "betas": parameters}
        return m.add(op, (xw, rt, *start), math.inf, reverse=m.d.chance(2), **chosen)

    return generate


def _call(m: GraphMaker, op: Op) -> list[Value] | None:
    """A group of element-wise operators on one operand, as one node."""
    x = m.any(m.dtypes, quality=EXACT)
    inner = GraphMaker(m.d, m.ops, m.dtypes, bool(m.symbols), {})
    given = Value("x", x.type)
    inner.inputs, inner.quality, inner.bound = [given], {given: EXACT}, {given: m.bound[x]}
    last, bound = given, m.bound[x]
    known = [m.ops[name] for name in ("relu", "neg", "abs", "identity", "not") if name in m.ops]
    if not known:
        return None
    for _ in m.d.times(3):
        made = inner.add(m.d.pick(known), (last,), bound)
        last = made[0] if made else last
    if last is given:
        return None
    body = Graph(m.d.pick(("group", "n", "and", "a b")), (given,), (last,), tuple(inner.nodes), {})
    return m.add(op, (x,), m.bound_of((x,)), body=body)


def _find_fault(m: GraphMaker, op: Op) -> list[Value] | None:
    """Of indices into so many elements: some are out of range."""
    places = m.any((i64, i32), quality=EXACT)
    x, i = Value("x", TensorType(f32, (m.d.int(1, 5),))), Value("i", places.type.with_(layout=None))
    y = Value("y", TensorType(f32, i.shape))
    gather = OPS["gather"]
    node = GraphNode(gather, gather.make_attrs(axis=0), (x, i), (y,))
    return m.add(op, (places,), body=Graph("look", (x, i), (y,), (node,), {}), lookup=0)


def _guard(m: GraphMaker, op: Op) -> list[Value] | None:
    """Without a fault: with one there is no result."""
    x = m.any(m.dtypes)
    fault = m.constant(np.full(3 + x.type.rank, -1), i64)
    names = {"node": "a", "operator": "b", "operand": "c"}
    return m.add(op, (x, fault), m.bound_of((x,)), kinds=("index",), **names)


LAYERS: dict[str, Generator] = {
    "lrn": _lrn,
    "matmul": _matmul,
    "conv": _conv,
    **dict.fromkeys(("max_pool", "average_pool", "lp_pool"), _pool),
    "einsum": _einsum,
    "matmul_compact": _matmul_compact,
    "grid_sample": _grid_sample,
    "roi_align": _roi_align,
    "fold": _fold,
    "deform_columns": _deform_columns,
    **dict.fromkeys(("top_k", "top_few"), _top_k),
    "suppress": _suppress,
    "det": _det,
    **dict.fromkeys(("nonzero", "unique", "compress"), _data_dependent),
    "lstm": _recurrent(4, 2, ("sigmoid", "tanh", "tanh")),
    "gru": _recurrent(3, 1, ("sigmoid", "tanh")),
    "rnn": _recurrent(1, 1, ("tanh",)),
    "call": _call,
    "find_fault": _find_fault,
    "guard": _guard,
}
