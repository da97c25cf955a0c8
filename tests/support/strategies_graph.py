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
from strategies_graph_layers import LAYERS
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
from tilewright.ir.graph import Graph, Value
from tilewright.ir.op import Op
from tilewright.ir.tensor_type import Layout


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
    **LAYERS,
}
