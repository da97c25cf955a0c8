"""Which floats of a graph are whole numbers times a power of two, and how large these can be.

    x = cast(q: i8) * 0.25        grid of step 2**-2, whole numbers from -128 to 127
    conv(x, w)                    the step of x times that of w, sums of so many products

A float of a grid whose whole numbers fit its significand is exact, whatever the order in which it
is computed; the same arithmetic on the whole numbers gives the same result to the bit. Quantised
models with scales that are powers of two are such graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType, f32
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.elementwise import ClipAttrs

SIGNIFICAND = 24  # bits of f32: whole numbers of so many are exact
LONGEST_SHIFT = 30  # of i32 by a number whose half is added
EXPONENTS = range(-60, 61)  # of steps: products of two are normal floats
MOVES = frozenset({"reshape", "transpose", "slice", "max_pool", "identity", "expand"})


@dataclass(frozen=True)
class Grid:
    """Whole numbers from `low` to `high`, times 2**exponent."""

    exponent: int
    low: int
    high: int

    @property
    def largest(self) -> int:
        return max(abs(self.low), abs(self.high))

    def at(self, exponent: int) -> Grid:
        """The same values as whole numbers of a finer step."""
        factor = 1 << (self.exponent - exponent)
        return Grid(exponent, self.low * factor, self.high * factor)


def grid_of_constant(array: np.ndarray) -> Grid | None:
    """The coarsest grid that has all elements of an f32 array; None where an exact one is too fine
    or an element is not finite."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat[flat != 0].view(np.uint32)
    if bits.size == 0:
        return Grid(0, 0, 0)
    exponents = (bits >> 23 & 0xFF).astype(np.int64)
    if exponents.min() == 0 or exponents.max() == 0xFF:  # denormal, or not finite
        return None
    significands = (bits & 0x7FFFFF | 0x800000).astype(np.int64)
    zeros = np.log2(significands & -significands).astype(np.int64)
    exponent = int((exponents - 150 + zeros).min())
    low, high = (math.ldexp(float(x), -exponent) for x in (flat.min(), flat.max()))
    return _fitting(Grid(exponent, int(low), int(high)))


def whole_numbers(array: np.ndarray, exponent: int) -> np.ndarray:
    """The whole numbers that, times 2**exponent, are the elements."""
    return np.ldexp(array.astype(np.float64), -exponent).astype(np.int64)


def grids_of(graph: Graph) -> dict[Value, Grid]:
    """The grid of every f32 value that has one, and the range of every integer that is less than
    its type's."""
    finder = _Finder(graph.constants)
    for n in graph.nodes:
        found = finder.node(n)
        if found is not None:
            finder.found[n.outputs[0]] = found
    return finder.found


def _fitting(grid: Grid) -> Grid | None:
    fits = grid.largest <= 1 << SIGNIFICAND and grid.exponent in EXPONENTS
    return grid if fits else None


class _Finder:
    def __init__(self, constants: Mapping[Value, np.ndarray]) -> None:
        self.constants = constants
        self.found: dict[Value, Grid] = {}
        self.searched: set[Value] = set()

    def grid(self, value: Value) -> Grid | None:
        """A value's grid; a constant's is found when it is asked for."""
        if value in self.constants and value not in self.searched:
            self.searched.add(value)
            grid = self._constant(value)
            if grid is not None:
                self.found[value] = grid
        return self.found.get(value)

    def _constant(self, value: Value) -> Grid | None:
        array = self.constants[value]
        if value.dtype == f32:
            return grid_of_constant(array)
        if value.dtype.is_integer and array.size:
            return Grid(0, int(array.min()), int(array.max()))
        return None

    def node(self, n: GraphNode) -> Grid | None:
        if len(n.outputs) != 1:
            return None
        if n.op.name == "cast":
            return self._cast(n.inputs[0], n.outputs[0].dtype)
        if n.op.name in ("conv", "matmul") and n.outputs[0].dtype == f32:
            return self._contraction(n)
        rule = _RULES.get(n.op.name)
        if rule is None or n.outputs[0].dtype != f32:
            return None
        grids = [g for v in n.inputs if (g := self.grid(v)) is not None]
        if len(grids) != len(n.inputs):
            return None
        found = rule(n, grids)
        return None if found is None else _fitting(found)

    def _cast(self, x: Value, to: DType) -> Grid | None:
        """Integers as floats, or whole floats as integers that hold them."""
        if to == f32 and x.dtype.is_integer:
            return _fitting(self.grid(x) or _range_of(x.dtype))
        grid = self.grid(x)
        if grid is None or x.dtype != f32 or not to.is_integer or grid.exponent < 0:
            return None
        whole = grid.at(0)
        return whole if to.min <= whole.low and whole.high <= to.max else None

    def _contraction(self, n: GraphNode) -> Grid | None:
        x, w = (self.grid(v) for v in n.inputs)
        if x is None or w is None:
            return None
        exponent = x.exponent + w.exponent
        weights = self.constants.get(n.inputs[1])
        if weights is not None:
            axes = tuple(range(1, weights.ndim)) if n.op.name == "conv" else (-2,)
            sums = np.abs(whole_numbers(weights, w.exponent)).sum(axis=axes)
            most = int(sums.max(initial=0)) * x.largest
        else:
            most = _terms(n) * x.largest * w.largest
        return _fitting(Grid(exponent, -most, most))


def _range_of(dtype: DType) -> Grid:
    return Grid(0, int(dtype.min), int(dtype.max))


def _terms(n: GraphNode) -> int:
    """How many products an element of a contraction sums up; more than fit if that is not known."""
    dims = n.inputs[1].shape[1:] if n.op.name == "conv" else n.inputs[0].shape[-1:]
    sizes = [d for d in dims if isinstance(d, int)]
    return math.prod(sizes) if len(sizes) == len(dims) else 1 << SIGNIFICAND


# ---------------------------------------------------------------- rules


def _common(grids: Sequence[Grid]) -> list[Grid]:
    exponent = min(g.exponent for g in grids)
    return [g.at(exponent) for g in grids]


def _add(n: GraphNode, grids: Sequence[Grid]) -> Grid:
    a, b = _common(grids)
    return Grid(a.exponent, a.low + b.low, a.high + b.high)


def _sub(n: GraphNode, grids: Sequence[Grid]) -> Grid:
    a, b = _common(grids)
    return Grid(a.exponent, a.low - b.high, a.high - b.low)


def _mul(n: GraphNode, grids: Sequence[Grid]) -> Grid:
    a, b = grids
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Grid(a.exponent + b.exponent, min(ends), max(ends))


def _div(n: GraphNode, grids: Sequence[Grid]) -> Grid | None:
    """By a power of two."""
    a, b = grids
    return Grid(a.exponent - b.exponent, a.low, a.high) if b.low == b.high == 1 else None


def limits_of(n: GraphNode) -> tuple[float | None, float | None]:
    """Between what a node limits its operand."""
    if isinstance(n.attrs, ClipAttrs):
        return n.attrs.low, n.attrs.high
    return 0.0, None


def _limited(grid: Grid, low: float | None, high: float | None) -> Grid | None:
    """Between limits that are on the grid, or that it does not reach."""
    for limit in (low, high):
        if limit is not None and math.isfinite(limit):
            if not math.ldexp(limit, -grid.exponent).is_integer():
                return None
        elif limit is not None and math.isnan(limit):
            return None
    if low == math.inf or high == -math.inf:  # which all values become
        return None
    least, most = (
        None if x is None or math.isinf(x) else int(math.ldexp(x, -grid.exponent))
        for x in (low, high)
    )

    def limited(value: int) -> int:
        value = value if least is None else max(value, least)
        return value if most is None else min(value, most)

    return Grid(grid.exponent, limited(grid.low), limited(grid.high))


def _max(n: GraphNode, grids: Sequence[Grid]) -> Grid:
    a, b = _common(grids)
    return Grid(a.exponent, max(a.low, b.low), max(a.high, b.high))


def _min(n: GraphNode, grids: Sequence[Grid]) -> Grid:
    a, b = _common(grids)
    return Grid(a.exponent, min(a.low, b.low), min(a.high, b.high))


def _rounded(n: GraphNode, grids: Sequence[Grid]) -> Grid | None:
    (a,) = grids
    if a.exponent >= 0:
        return a
    shift = -a.exponent
    if shift > LONGEST_SHIFT:
        return None
    return Grid(0, a.low >> shift, -(-a.high >> shift))


def _moved(n: GraphNode, grids: Sequence[Grid]) -> Grid:
    return grids[0]


_RULES: dict[str, Callable[[GraphNode, Sequence[Grid]], Grid | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "max": _max,
    "min": _min,
    "relu": lambda n, g: _limited(g[0], *limits_of(n)),
    "clip": lambda n, g: _limited(g[0], *limits_of(n)),
    "floor": _rounded,
    "round": _rounded,
    **dict.fromkeys(MOVES, _moved),
}
