"""Contractions of quantised models, and what follows them, in whole numbers.

    x = cast(q) * 0.5; y = conv(x, w) + b       s = conv(q, w', wide=True)           i8 · i8 -> i32
    r = cast(clip(floor(y * 4 + 0.5)))    ->    r = cast(max(min((s + b') >> 3, 127), -128))

Floats that lie on a grid (grids.py) are exact, and so are the whole numbers in their place: the
result is the same to the bit. Additions before a shift are joined into one, so that a rounding half
up is part of the bias; limits move behind shifts, for both are monotone. Where floats are wanted
after all, the whole numbers are scaled. What has no contraction before or behind it stays, but for
means and scales of few numbers that are rounded to integers (fixed_point.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.dtype import DType, f32, i8, i16, i32, u8
from tilewright.ir.dims import tensor_type
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ops.common import NoAttrs
from tilewright.ops.contract import ConvAttrs, MatmulAttrs
from tilewright.ops.elementwise import CastAttrs
from tilewright.ops.pool import AveragePoolAttrs
from tilewright.optimize.edit import fresh_names, new_node, rebuild, remove_dead
from tilewright.optimize.fixed_point import FixedPoint, fixed_points
from tilewright.optimize.grids import MOVES, grids_of, limits_of, whole_numbers

CONTRACTIONS = ("conv", "matmul")
SMALL = (i8, u8, i16, i32)  # types of factors, the best first
LARGEST = (1 << 31) - 1


@dataclass(frozen=True)
class Whole:
    """max(min((base + add) >> shift, high), low), in i32; a limit of None does nothing. `add`
    broadcasts to the base, which may be the sum of two that is not made yet."""

    base: Value | Sum
    add: np.ndarray
    shift: int = 0
    low: int | None = None
    high: int | None = None

    @property
    def is_plain(self) -> bool:
        return not (self.add.any() or self.shift or self.limited)

    @property
    def limited(self) -> bool:
        return self.low is not None or self.high is not None


@dataclass(frozen=True)
class Sum:
    """fine + (coarse << up). `made` is what the fine one, a value of small integers, is made of, if
    the sum alone reads it."""

    fine: Whole
    coarse: Whole
    up: int
    made: Whole | None = None


NOTHING = np.zeros((), np.int64)


def use_integers(graph: Graph) -> Graph:
    """The graph with contractions of floats that lie on grids done with integers."""
    rewriter = _Rewriter(graph)
    return remove_dead(rewriter.run())


def _with_wide_sums(n: GraphNode) -> Attrs:
    if n.op.name == "conv":
        return replace(n.attrs_of(ConvAttrs), wide=True)
    return replace(n.attrs_of(MatmulAttrs), wide=True)


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.grids = grids_of(graph)
        self.producers, self.consumers = graph.producers(), graph.consumers()
        self.constants, self.fresh = dict(graph.constants), fresh_names(graph)
        self.nodes: list[GraphNode] = []
        self.known: dict[Value, Whole] = {}
        self.made: dict[tuple[Value, int, DType], Value] = {}
        self.origin: GraphNode | None = None  # of the nodes that are added
        self.points = fixed_points(graph, self.grids)
        self.near = self._near_contractions()
        self.results: dict[Value, Whole] = {}  # integers that are made of floats on a grid
        self.position = {n: k for k, n in enumerate(graph.nodes)}

    def run(self) -> Graph:
        replaced: dict[Value, Value] = {}
        for n in self.graph.nodes:
            self.nodes.append(n)
            (out, *others) = n.outputs or (None,)
            if out in self.points:
                self.origin = n
                replaced[out] = self._in_fixed_point(self.points[out], out.dtype)
                continue
            if out is None or others or out not in self.near:
                continue
            self.origin = n
            if self._is_result(n):
                self.results[out] = self._whole(n.inputs[0])
                replaced[out] = self._as_type(self.results[out], out.dtype)
            elif self._leaves(out):
                replaced[out] = self._scaled(out)
        return rebuild(self.graph, self.nodes, replaced=replaced, constants=self.constants)

    # ---------------------------------------------------------- where

    def _near_contractions(self) -> set[Value]:
        """Values on a grid with a contraction on a grid among what they are made of, or integers
        in fixed point."""
        near: set[Value] = {*self.points}
        for n in self.graph.nodes:
            if n.outputs and n.outputs[0] in self.grids:
                contracts = n.op.name in CONTRACTIONS
                on_grid = self._on_grid(n) and any(v in near for v in n.inputs)
                if contracts or on_grid or self._requantises(n):
                    near.add(n.outputs[0])
        return near

    def _requantises(self, n: GraphNode) -> bool:
        """Whether a node makes bytes of bytes, by scales and limits that are constants alone."""
        if not self._is_result(n) or n.outputs[0].dtype.bits > 8:
            return False
        while True:
            computed = [v for v in n.inputs if v not in self.constants]
            if len(computed) != 1:
                return False
            (x,) = computed
            if x.dtype.is_integer:
                return n.op.name == "cast" and x.dtype.bits <= 8
            if x not in self.producers:
                return False
            n = self.producers[x]

    def _on_grid(self, n: GraphNode) -> bool:
        return n.outputs[0].dtype == f32 or self._is_result(n)

    def _is_result(self, n: GraphNode) -> bool:
        """Whether a node makes integers of floats on a grid."""
        return n.op.name == "cast" and n.inputs[0].dtype == f32 and n.outputs[0] in self.grids

    def _leaves(self, value: Value) -> bool:
        """Whether something reads a float that is no grid's any more."""
        if value.dtype != f32:
            return False
        users = self.consumers.get(value, ())
        return value in self.graph.outputs or any(u.outputs[0] not in self.near for u in users)

    # ---------------------------------------------------------- whole numbers of a value

    def _whole(self, value: Value) -> Whole:
        """The whole numbers of a float on a grid, in units of its grid's step."""
        if value not in self.known:
            outer, self.origin = self.origin, self.producers.get(value, self.origin)
            self.known[value] = self._find(value)
            self.origin = outer
        return self.known[value]

    def _find(self, value: Value) -> Whole:
        if value in self.constants:
            return Whole(self._constant(value, self.grids[value].exponent, i32), NOTHING)
        n = self.producers[value]
        if n.op.name == "cast":
            return Whole(n.inputs[0], NOTHING)
        if n.op.name in CONTRACTIONS:
            return self._contraction(n)
        if n.op.name in MOVES:
            moved = self._emit(n.op.name, n.attrs, self._plain(self._whole(n.inputs[0])))
            return Whole(moved, NOTHING)
        return _FIND[n.op.name](self, n)

    def _contraction(self, n: GraphNode) -> Whole:
        kind = next(t for t in SMALL if all(self._holds(t, v) for v in n.inputs))
        factors = [self._factor(v, kind) for v in n.inputs]
        return Whole(self._emit(n.op.name, _with_wide_sums(n), *factors), NOTHING)

    def _holds(self, kind: DType, value: Value) -> bool:
        grid = self.grids[value]
        return kind.min <= grid.low and grid.high <= kind.max

    def _factor(self, value: Value, kind: DType) -> Value:
        if value in self.constants:
            return self._constant(value, self.grids[value].exponent, kind)
        return self._as_type(self._whole(value), kind)

    def _constant(self, value: Value, exponent: int, kind: DType) -> Value:
        key = (value, exponent, kind)
        if key not in self.made:
            array = whole_numbers(self.constants[value], exponent).astype(kind.numpy)
            self.made[key] = self._new_constant(value.name, array, kind)
        return self.made[key]

    def _new_constant(self, name: str, array: np.ndarray, kind: DType) -> Value:
        made = Value(self.fresh(f"{name}_whole"), tensor_type(kind, array.shape))
        self.constants[made] = array
        return made

    # ---------------------------------------------------------- steps of arithmetic

    def _added(self, n: GraphNode) -> Whole:
        """x + c joins what is added before; of two computed values a sum is made."""
        exponent = self.grids[n.outputs[0]].exponent
        sign = -1 if n.op.name == "sub" else 1
        a, b = n.inputs
        if a in self.constants and sign > 0:
            a, b = b, a
        if b not in self.constants and sign > 0:
            return Whole(self._sum_of(a, b), NOTHING)
        if b not in self.constants:
            left, right = (self._plain(self._finer(v, exponent), wide=True) for v in (a, b))
            return Whole(self._emit(n.op.name, NoAttrs(), left, right), NOTHING)
        return self._plus(self._finer(a, exponent), sign * self._numbers(b, exponent))

    def _sum_of(self, a: Value, b: Value) -> Sum:
        """The sum of two computed values. If the fine one is rounded to small integers for it
        alone, and is the later, with which the sum is computed, the sum may change these."""
        wholes = {v: self._whole(v) for v in (a, b)}
        made = {v: x for v in (a, b) if (x := self._result(v, wholes[v])) is not None}
        last = max(made, key=lambda v: self.position[self.producers[v]], default=None)
        fine, coarse = sorted((a, b), key=lambda v: (self.grids[v].exponent, v is not last))
        up = self.grids[coarse].exponent - self.grids[fine].exponent
        return Sum(wholes[fine], wholes[coarse], up, made[fine] if fine is last else None)

    def _result(self, value: Value, whole: Whole) -> Whole | None:
        """The whole numbers of which integers are made that this value alone is computed from."""
        if isinstance(whole.base, Sum) or not whole.is_plain or whole.base not in self.results:
            return None
        while value is not whole.base:
            n = self.producers.get(value)
            if n is None or len(self.consumers.get(value, ())) != 1 or value in self.graph.outputs:
                return None
            value = next(v for v in n.inputs if v not in self.constants)
        alone = len(self.consumers[value]) == 1 and value not in self.graph.outputs
        return self.results[value] if alone else None

    def _numbers(self, constant: Value, exponent: int) -> np.ndarray:
        return whole_numbers(self.constants[constant], exponent)

    def _plus(self, x: Whole, more: np.ndarray) -> Whole:
        if not more.any():
            return x
        if not x.limited:
            return self._checked(replace(x, add=x.add + (more << x.shift)))
        number = int(more.reshape(-1)[0])
        if more.size != 1 or abs(number) << x.shift > LARGEST >> 2:
            return Whole(self._plain(x, wide=True), more)
        low, high = _sum(x.low, number), _sum(x.high, number)
        return self._checked(replace(x, add=x.add + (number << x.shift), low=low, high=high))

    def _checked(self, x: Whole) -> Whole:
        assert int(np.abs(x.add).max(initial=0)) <= LARGEST, "a bias beyond i32"
        return x

    def _finer(self, value: Value, exponent: int) -> Whole:
        """The whole numbers of a value for a step of 2**exponent."""
        up = self.grids[value].exponent - exponent
        x = self._whole(value)
        if up == 0:
            return x
        return Whole(self._times(self._plain(x, wide=True), 1 << up), NOTHING)

    def _times(self, x: Value, factor: int) -> Value:
        return self._emit("mul", NoAttrs(), x, self._number(factor))

    def _number(self, number: int) -> Value:
        return self._new_constant("number", np.asarray(number, np.int32), i32)

    def _product(self, n: GraphNode) -> Whole:
        """A factor that is a power of two changes the step alone."""
        a, b = n.inputs
        if n.op.name == "mul" and a in self.constants:
            a, b = b, a
        grid = self.grids[b]
        if grid.low == grid.high == 1:
            return self._whole(a)
        left, right = (self._plain(self._whole(v), wide=True) for v in (a, b))
        return Whole(self._emit("mul", NoAttrs(), left, right), NOTHING)

    def _limits(self, n: GraphNode) -> Whole:
        """max(x, c) and min(x, c): limits move outwards."""
        exponent = self.grids[n.outputs[0]].exponent
        if n.op.name in ("relu", "clip"):
            low, high = limits_of(n)
            (x,) = n.inputs
        else:
            x, c = n.inputs if n.inputs[1] in self.constants else n.inputs[::-1]
            array = self.constants.get(c)
            if array is None or array.size != 1:
                exact = (self._plain(self._finer(v, exponent), wide=True) for v in n.inputs)
                return Whole(self._emit(n.op.name, NoAttrs(), *exact), NOTHING)
            number = float(array.reshape(()))
            low, high = (number, None) if n.op.name == "max" else (None, number)
        whole = self._finer(x, exponent)
        held = whole.base.dtype if isinstance(whole.base, Value) and whole.is_plain else i32
        for limit, is_low in ((low, True), (high, False)):
            if limit is None or not np.isfinite(limit):
                continue
            number = int(np.ldexp(limit, -exponent))
            if held.min < number if is_low else held.max > number:
                whole = _limit(whole, number, is_low)
        return whole

    def _floor(self, n: GraphNode) -> Whole:
        before = self._before_rounding(n.inputs[0])
        if before is not None:
            return self._finer(before, self.grids[n.outputs[0]].exponent)
        down = -self.grids[n.inputs[0]].exponent
        x = self._whole(n.inputs[0])
        return _shifted(x, down) if down > 0 else x

    def _before_rounding(self, value: Value) -> Value | None:
        """x, of x + c that is rounded down to x again, where x is whole and c is less than one: of
        a value that is quantised with the step that it has, or with a finer one."""
        n = self.producers.get(value)
        if n is None or n.op.name != "add":
            return None
        for x, c in (n.inputs, n.inputs[::-1]):
            array = self.constants.get(c)
            if array is None or x.shape != value.shape or self.grids[x].exponent < 0:
                continue
            if array.min(initial=0) >= 0 and array.max(initial=0) < 1:
                return x
        return None

    def _round(self, n: GraphNode) -> Whole:
        """Halves to even: (x + half - 1 + (x >> shift & 1)) >> shift."""
        down = -self.grids[n.inputs[0]].exponent
        x = self._whole(n.inputs[0])
        if down <= 0:
            return x
        plain = self._plain(x, wide=True)
        half = self._number((1 << down - 1) - 1)
        floor = self._emit("shr", NoAttrs(), plain, self._number(down))
        odd = self._emit("and", NoAttrs(), floor, self._number(1))
        sum_ = self._emit("add", NoAttrs(), self._emit("add", NoAttrs(), plain, half), odd)
        return Whole(sum_, NOTHING, down)

    # ---------------------------------------------------------- scales that are no powers of two

    def _in_fixed_point(self, point: FixedPoint, kind: DType) -> Value:
        x = self._whole(point.source)
        total = self._plain(x, wide=True) if point.mean is None else self._sum(x, point.mean)
        if point.gate is not None:
            gate = Whole(total, np.asarray(point.gate.offset), 0, point.gate.low, point.gate.high)
            total = self._emit("mul", NoAttrs(), total, self._plain(gate, wide=True))
        scaled = self._times(total, point.factor) if point.factor != 1 else total
        moved = self._as_type(
            Whole(scaled, np.asarray(point.add), point.shift, point.low, point.high), kind
        )
        for n in point.moves:
            moved = self._emit(n.op.name, n.attrs, moved)
        return moved

    def _sum(self, x: Whole, mean: GraphNode) -> Value:
        """The sum of which a node takes the mean; that of windows is a convolution with ones."""
        if mean.op.name == "reduce_mean":
            return self._emit("reduce_sum", mean.attrs, self._plain(x, wide=True))
        attrs, channels = mean.attrs_of(AveragePoolAttrs), int(mean.inputs[0].shape[1])
        grid = self.grids[mean.inputs[0]]
        kind = next(t for t in SMALL if t.min <= grid.low and grid.high <= t.max)
        ones = self._new_constant("ones", np.ones((channels, 1, *attrs.kernel), kind.numpy), kind)
        sums = ConvAttrs(
            attrs.strides, attrs.pads_begin, attrs.pads_end, attrs.dilations, channels, wide=True
        )
        return self._emit("conv", sums, self._as_type(x, kind), ones)

    # ---------------------------------------------------------- values of whole numbers

    def _plain(self, x: Whole, *, wide: bool = False) -> Value:
        """The value itself; with `wide`, as i32."""
        if isinstance(x.base, Sum):
            return self._plain_sum(x, x.base)
        if x.is_plain:
            return self._cast(x.base, i32) if wide else x.base
        out = self._cast(x.base, i32)
        if x.add.any():
            out = self._emit("add", NoAttrs(), out, self._bias(x, out))
        if x.shift:
            out = self._emit("shr", NoAttrs(), out, self._number(x.shift))
        for name, limit in (("min", x.high), ("max", x.low)):
            if limit is not None:
                out = self._emit(name, NoAttrs(), out, self._number(limit))
        return out

    def _plain_sum(self, x: Whole, total: Sum) -> Value:
        """The value of a sum. A number that is added joins the fine one; where the sum is shifted,
        that one is shifted instead as far as the coarse one would be the other way:
        f + (c << 3) >> 5 is (f >> 3) + c >> 2. What lies there as small integers stays these: it
        may be what another kernel makes."""
        down, left, kind = min(total.up, x.shift), NOTHING, None
        source = total.fine if total.made is None else total.made
        fine = _shifted(self._plus(source, x.add), down)
        if total.fine.is_plain:
            kind = total.fine.base.dtype if isinstance(total.fine.base, Value) else None
            if total.made is None or kind is None or not _fits(fine, kind):
                down, fine, left, kind = 0, total.fine, x.add, None
        value = self._plain(fine, wide=True)
        if kind is not None:
            value = self._cast(self._cast(value, kind), i32)
        coarse = self._plain(total.coarse, wide=True)
        if total.up > down:
            coarse = self._times(coarse, 1 << (total.up - down))
        made = self._emit("add", NoAttrs(), value, coarse)
        return self._plain(replace(x, base=made, add=left, shift=x.shift - down), wide=True)

    def _bias(self, x: Whole, to: Value) -> Value:
        """What is added, as a constant; behind a contraction a number for each channel."""
        add = x.add
        n = next((m for m in reversed(self.nodes) if to in m.outputs), None)
        if add.size == 1 and n is not None and n.op.name in CONTRACTIONS:
            axis = 1 if n.op.name == "conv" else -1
            channels = to.shape[axis]
            if isinstance(channels, int):
                behind = (1,) * (to.type.rank - 2) if axis == 1 else ()
                add = np.broadcast_to(add.reshape(()), (channels, *behind))
        return self._new_constant("bias", np.ascontiguousarray(add, np.int32), i32)

    def _as_type(self, x: Whole, kind: DType) -> Value:
        return self._cast(self._plain(x), kind)

    def _scaled(self, value: Value) -> Value:
        """The float of a grid, from its whole numbers."""
        step = self._new_constant(
            "step", np.ldexp(np.ones((), np.float32), self.grids[value].exponent), f32
        )
        whole = self._cast(self._plain(self._whole(value)), f32)
        return self._emit("mul", NoAttrs(), whole, step)

    def _cast(self, x: Value, to: DType) -> Value:
        return x if x.dtype == to else self._emit("cast", CastAttrs(to), x)

    def _emit(self, name: str, attrs: Attrs, *inputs: Value) -> Value:
        assert self.origin is not None
        made = new_node(self.origin, name, attrs, inputs, self.fresh)
        self.nodes.append(made)
        return made.outputs[0]


def _sum(limit: int | None, number: int) -> int | None:
    return None if limit is None else limit + number


def _fits(x: Whole, kind: DType) -> bool:
    """Whether integers of a type hold what limits leave."""
    return x.low is not None and x.high is not None and kind.min <= x.low and x.high <= kind.max


def _shifted(x: Whole, by: int) -> Whole:
    low, high = (None if limit is None else limit >> by for limit in (x.low, x.high))
    return replace(x, shift=min(x.shift + by, 31), low=low, high=high)  # 31 leaves the sign


def _limit(x: Whole, limit: int, is_low: bool) -> Whole:
    """max(x, limit) or min(x, limit)."""
    if is_low:
        low = limit if x.low is None else max(x.low, limit)
        return replace(x, low=low, high=None if x.high is None else max(x.high, limit))
    high = limit if x.high is None else min(x.high, limit)
    return replace(x, high=high, low=None if x.low is None else min(x.low, limit))


_FIND: dict[str, Callable[[_Rewriter, GraphNode], Whole]] = {
    "add": _Rewriter._added,
    "sub": _Rewriter._added,
    "mul": _Rewriter._product,
    "div": _Rewriter._product,
    "max": _Rewriter._limits,
    "min": _Rewriter._limits,
    "relu": _Rewriter._limits,
    "clip": _Rewriter._limits,
    "floor": _Rewriter._floor,
    "round": _Rewriter._round,
}
