"""Random small graphs over the operator table.

`GENERATORS` says for each operator how to apply it: a function draws operands and attributes and
adds a node, or gives up (None). Operators that work element by element need none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_expr import SYMBOL_MAX, Draws, largest
from strategies_graph_maker import (
    EXACT,
    GRAPH_DTYPES,
    SMOOTH,
    Generator,
    GraphMaker,
    accepts,
    broadcastable,
)

from tilewright.base.dtype import DType, bool_, f32, i8, i64, u8
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, Layout, Value
from tilewright.ir.op import Op


@st.composite
def graphs(
    draw: Callable[..., Any],
    ops: Mapping[str, Op],
    *,
    dtypes: Sequence[DType] = GRAPH_DTYPES,
    symbolic: bool = True,
    nodes: int = 5,
    generators: Mapping[str, Generator] | None = None,
) -> Graph:
    """A graph of up to `nodes` operators out of `ops` (and their constants). `symbolic` lets
    dimensions be symbols; `generators` extends or replaces how operators are applied."""
    known = GENERATORS | dict(generators or {})
    return GraphMaker(Draws(draw), ops, dtypes, symbolic, known).graph(nodes)


# ---------------------------------------------------------------- element by element


def _where(m: GraphMaker, op: Op) -> list[Value] | None:
    a = m.any(m.dtypes)
    b = m.like(a.dtype, broadcastable(m, a.shape))
    cond = m.like(bool_, broadcastable(m, a.shape))
    return m.add(op, (cond, a, b), m.bound_of((a, b)))


def _cast(m: GraphMaker, op: Op) -> list[Value] | None:
    x, to = m.any(m.dtypes, quality=EXACT), m.d.pick(m.dtypes)
    small = x.dtype in (bool_, u8, i8)  # others may hold what a float rounds
    return m.add(op, (x,), 256 if small else m.bound_of((x,)), to=to)


def _clip(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t != bool_], quality=SMOOTH)
    low, high = m.d.pick((None, -1, 0)), m.d.pick((None, 2, 6))
    if low is not None and x.dtype.min > low:
        low = None
    return m.add(op, (x,), max(m.bound_of((x,)), 6), low=low, high=high)


def _leaky_relu(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t.is_float] or [f32], quality=SMOOTH)
    return m.add(op, (x,), m.bound_of((x,)), alpha=m.d.pick((0.01, 0.5, 0.1)))


def _bitcast(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t.is_integer], quality=EXACT)
    same = [t for t in m.dtypes if t.is_integer and t.bits == x.dtype.bits]
    return m.add(op, (x,), to=m.d.pick(same))


# ---------------------------------------------------------------- reductions


def _axes(m: GraphMaker, rank: int) -> tuple[int, ...]:
    return tuple(a for a in range(rank) if m.d.chance(2)) or (rank - 1,)


def _reduce(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes, 1, accepts(op))
    axes = _axes(m, x.type.rank)
    count = math.prod(largest(x.shape[a]) for a in axes)
    bound = m.bound_of((x,))
    grown = {"reduce_sum": bound * count, "reduce_prod": max(bound, 1) ** count}
    wild = op.name in ("reduce_logsumexp", "reduce_l2")
    total = math.inf if wild else grown.get(op.name, bound)
    return m.add(op, (x,), total, axes=axes, keepdims=m.d.chance(2))


def _arg_extreme(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t != bool_], 1, EXACT)
    attrs = {"keepdims": m.d.chance(2), "last": m.d.chance(2)}
    return m.add(op, (x,), axis=m.axis(x.type.rank), **attrs)


def _cumulative(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t != bool_], 1, accepts(op))
    axis = m.axis(x.type.rank)
    count, bound = largest(x.shape[axis]), max(m.bound_of((x,)), 1)
    bound = bound * count if op.name == "cumsum" else bound**count
    return m.add(op, (x,), bound, axis=axis, exclusive=m.d.chance(2), reverse=m.d.chance(2))


def _along_axis(bound: float) -> Generator:
    """A float operator with one axis, or several."""

    def generate(m: GraphMaker, op: Op) -> list[Value] | None:
        floats = [t for t in m.dtypes if t.is_float] or [f32]
        x = m.any(floats, 1, accepts(op))
        if hasattr(op.attrs, "axes"):
            return m.add(op, (x,), bound, axes=_axes(m, x.type.rank))
        return m.add(op, (x,), bound, axis=m.axis(x.type.rank))

    return generate


def _norm(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any([t for t in m.dtypes if t.is_float] or [f32], 1, EXACT)
    axis = m.d.int(0, x.type.rank - 1)
    scale = m.like(x.dtype, x.shape[axis:], EXACT)
    return m.add(op, (x, scale), axis=axis)


# ---------------------------------------------------------------- movement


def _transpose(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes)
    perm = list(range(x.type.rank))
    for last in range(len(perm) - 1, 0, -1):
        other = last - m.d.int(0, last)
        perm[last], perm[other] = perm[other], perm[last]
    return m.add(op, (x,), m.bound_of((x,)), perm=tuple(perm))


def _reshape(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes, 1)
    shape = list(x.shape)
    at = m.d.int(0, len(shape) - 1)
    if m.d.chance(2):
        shape.insert(at, 1)
    elif at and isinstance(shape[at], int) and isinstance(shape[at - 1], int):
        shape[at - 1 : at + 1] = [shape[at - 1] * shape[at]]
    elif shape[at] == 4:
        shape[at : at + 1] = [2, 2]
    return m.add(op, (x,), m.bound_of((x,)), shape=tuple(shape))


def _slice(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes)
    starts, sizes, steps = [], [], []
    for n in x.shape:
        whole = not isinstance(n, int) or not m.d.chance(2)
        first = 0 if whole else m.d.int(0, n - 1)
        step = 1 if whole else m.d.pick((1, 2, -1))
        room = (first if step < 0 else n - 1 - first) // abs(step) + 1 if not whole else n
        starts, steps = [*starts, first], [*steps, step]
        sizes.append(room if whole else m.d.int(1, room))
    chosen = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    return m.add(op, (x,), m.bound_of((x,)), **chosen)


def _concat(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes, 1)
    axis = m.d.int(0, x.type.rank - 1)
    parts = [x]
    for _ in range(m.d.int(0, 2)):
        parts.append(m.like(x.dtype, (*x.shape[:axis], m.d.int(1, 3), *x.shape[axis + 1 :])))
    return m.add(op, parts, m.bound_of(parts), axis=axis)


def _pad(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes)
    before, after = (tuple(m.d.int(0, 2) for _ in x.shape) for _ in "ba")
    mode = m.d.pick(("constant", "edge", "reflect", "wrap"))
    value: Any = m.d.chance(2) if x.dtype == bool_ else m.d.int(0, 2)
    chosen = {"before": before, "after": after, "mode": mode, "value": value}
    return m.add(op, (x,), max(m.bound_of((x,)), 2), **chosen)


def _expand(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes)
    shape = (*m.shape(0, 1), *(m.dim() if d == 1 else d for d in x.shape))
    return m.add(op, (x,), m.bound_of((x,)), shape=shape)


def _tile(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes)
    return m.add(op, (x,), m.bound_of((x,)), repeats=tuple(m.d.int(1, 2) for _ in x.shape))


def _dilate(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes)
    return m.add(op, (x,), m.bound_of((x,)), strides=tuple(m.d.int(1, 2) for _ in x.shape))


def _trilu(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes, 2)
    return m.add(op, (x,), m.bound_of((x,)), upper=m.d.chance(2), diagonal=m.d.int(-2, 2))


def _relayout(m: GraphMaker, op: Op) -> list[Value] | None:
    x = m.any(m.dtypes, 1)
    rank = x.type.rank
    blocks = ((m.d.int(0, rank - 1), m.d.int(2, 4)),) if m.d.chance(2) else ()
    order = tuple(range(rank)) if m.d.chance(2) else tuple(reversed(range(rank)))
    layout = m.d.pick((Layout(order, blocks), None))
    return m.add(op, (x,), m.bound_of((x,)), layout=layout)


# ---------------------------------------------------------------- gather and scatter


def _indices(m: GraphMaker, shape: Sequence[int], limits: Sequence[int]) -> Value:
    """A constant of indices below `limits` (by last subscript), also counted from the end."""
    rng = np.random.default_rng(m.d.int(0, 9))
    array = np.empty(tuple(shape), np.int64)
    for k, limit in enumerate(limits):
        part = rng.integers(-limit, limit, array[..., k].shape if len(limits) > 1 else shape)
        array[(..., k) if len(limits) > 1 else ...] = part
    return m.constant(array, i64)


def _fixed(m: GraphMaker, low: int = 1) -> Value:
    """A value whose dimensions are all numbers."""
    return m.operand(
        lambda t: t.rank >= low and all(isinstance(d, int) for d in t.shape),
        m.dtypes,
        lambda: [m.d.int(1, 4) for _ in range(m.d.int(low, 3))],
    )


def _gather(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _fixed(m)
    axis = m.axis(x.type.rank)
    places = _indices(m, [m.d.int(1, 3) for _ in range(m.d.int(0, 2))], [x.shape[axis]])
    return m.add(op, (x, places), m.bound_of((x,)), axis=axis)


def _gather_elements(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _fixed(m)
    axis = m.axis(x.type.rank)
    places = _indices(m, x.shape, [x.shape[axis]])
    return m.add(op, (x, places), m.bound_of((x,)), axis=axis)


def _gather_nd(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _fixed(m)
    depth = m.d.int(1, x.type.rank)
    places = _nd_indices(m, x, depth)
    return m.add(op, (x, places), m.bound_of((x,)))


def _nd_indices(m: GraphMaker, x: Value, depth: int) -> Value:
    count = m.d.int(1, 3)
    if depth == 1:
        return _indices(m, (count, 1), [x.shape[0]])
    return _indices(m, (count, depth), x.shape[:depth])


def _scatter_elements(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _fixed(m)
    axis = m.axis(x.type.rank)
    places = _indices(m, x.shape, [x.shape[axis]])
    updates = m.like(x.dtype, x.shape)
    reduction = _reduction(m, x.dtype)
    return m.add(op, (x, places, updates), math.inf, axis=axis, reduction=reduction)


def _scatter_nd(m: GraphMaker, op: Op) -> list[Value] | None:
    x = _fixed(m)
    depth = m.d.int(1, x.type.rank)
    places = _nd_indices(m, x, depth)
    updates = m.like(x.dtype, (places.shape[0], *x.shape[depth:]))
    return m.add(op, (x, places, updates), math.inf, reduction=_reduction(m, x.dtype))


def _reduction(m: GraphMaker, dtype: DType) -> str:
    return "none" if dtype == bool_ else m.d.pick(("none", "add", "mul", "min", "max"))


# ---------------------------------------------------------------- made of nothing


def _iota(m: GraphMaker, op: Op) -> list[Value] | None:
    dtype = m.d.pick([t for t in m.dtypes if t != bool_])
    return m.add(op, (), SYMBOL_MAX, length=m.dim(), dtype=dtype)


def _full(m: GraphMaker, op: Op) -> list[Value] | None:
    dtype = m.d.pick(m.dtypes)
    value: Any = m.d.chance(2) if dtype == bool_ else m.d.int(0, 3)
    return m.add(op, (), 3, shape=m.shape(), dtype=dtype, value=value)


def _dims(m: GraphMaker, op: Op) -> list[Value] | None:
    return m.add(op, (), values=tuple(m.dim() for _ in range(m.d.int(1, 3))))


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
        [t for t in m.dtypes if t != bool_],
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
    for _ in m.d.times(3 if known else 0):
        made = inner.add(m.d.pick(known), (last,), bound) if known else None
        last = made[0] if made else last
    if last is given:
        return None
    body = Graph(m.d.pick(("group", "n", "and", "a b")), (given,), (last,), tuple(inner.nodes), {})
    return m.add(op, (x,), m.bound_of((x,)), body=body)


GENERATORS: dict[str, Generator] = {
    "where": _where,
    "cast": _cast,
    "bitcast": _bitcast,
    "clip": _clip,
    "leaky_relu": _leaky_relu,
    "expand": _expand,
    "relayout": _relayout,
    **dict.fromkeys(
        [
            "reduce_sum",
            "reduce_prod",
            "reduce_max",
            "reduce_min",
            "reduce_mean",
            "reduce_logsumexp",
        ],
        _reduce,
    ),
    **dict.fromkeys(("argmax", "argmin"), _arg_extreme),
    **dict.fromkeys(("cumsum", "cumprod"), _cumulative),
    "softmax": _along_axis(1.0),
    **dict.fromkeys(("log_softmax", "standardize"), _along_axis(math.inf)),
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    "lrn": _lrn,
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "tile": _tile,
    "dilate": _dilate,
    "trilu": _trilu,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "iota": _iota,
    "full": _full,
    "dims": _dims,
    "matmul": _matmul,
    "conv": _conv,
    **dict.fromkeys(("max_pool", "average_pool", "lp_pool"), _pool),
    "einsum": _einsum,
    "top_k": _top_k,
    **dict.fromkeys(("nonzero", "unique", "compress"), _data_dependent),
    "lstm": _recurrent(4, 2, ("sigmoid", "tanh", "tanh")),
    "gru": _recurrent(3, 1, ("sigmoid", "tanh")),
    "rnn": _recurrent(1, 1, ("tanh",)),
    "call": _call,
}
