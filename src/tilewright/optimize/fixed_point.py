"""Scales that are no powers of two, in whole numbers: a product by a constant, and a shift.

    m = reduce_mean(cast(q) * 0.5, axes=(2, 3))         s = reduce_sum(cast(q, i32), axes=(2, 3))
    r = cast(clip(floor(m * 4 + 0.5), -128, 127))   ->  r = cast(clip(s * 10700 + 131072 >> 18))

A chain of element-wise steps from whole numbers of a known range to integers is a function of one
number. Its value is computed for every number of that range, as the graph would, and the product
and the shift are taken where they give all of them. So is x times a gate, which is x again between
limits, as hard swish has it:

    h = x * clip(x * (1/6) + 0.5, 0, 1)                 t = q * max(min(q + 48, 96), 0)
    r = cast(clip(floor(h * 16 + 0.5), -128, 127))  ->  r = cast(clip(t * 171 + 8336 >> 14))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tilewright.base.dtype import f32
from tilewright.ir.evaluate import evaluate_program, op_program
from tilewright.ir.expr import Buffer
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.pool import AveragePoolAttrs
from tilewright.ops.reduce import ReduceAttrs
from tilewright.optimize.grids import MOVES, Grid

NUMBERS = 1 << 17  # that are tried one by one
SHIFTS = range(31)
LARGEST = (1 << 31) - 1  # of what is computed
CARRIED = MOVES - {"max_pool"}  # which commute with every function of an element
SCALES = frozenset({"mul", "div"})
Known = Callable[[Value], "np.ndarray | None"]  # the array of a constant
STEPS = frozenset({"add", "sub", "mul", "div", "min", "max", "clip", "relu", "floor", "round"})


@dataclass(frozen=True)
class Gate:
    """max(min(x + offset, high), low), by which a number x is multiplied."""

    offset: int
    low: int
    high: int

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers times their gates."""
        product: np.ndarray = numbers * np.clip(numbers + self.offset, self.low, self.high)
        return product


@dataclass(frozen=True)
class FixedPoint:
    """max(min((x * factor + add) >> shift, high), low), where x is the whole number of `source`;
    or that times a `gate`; or the sum of those that `mean`, a node, takes the mean of. `moves` are
    the nodes on the way that move elements alone, the first first."""

    source: Value
    mean: GraphNode | None
    gate: Gate | None
    moves: tuple[GraphNode, ...]
    factor: int
    add: int
    shift: int
    low: int
    high: int


def fixed_points(graph: Graph, grids: Mapping[Value, Grid]) -> dict[Value, FixedPoint]:
    """The integers of a graph that are made in fixed point of whole numbers: those that are no grid
    all the way."""
    producers = graph.producers()
    found = {}
    for n in graph.nodes:
        (out, *_) = n.outputs or (None,)
        if n.op.name != "cast" or out is None or n.inputs[0].dtype != f32 or out in grids:
            continue
        point = _fixed_point(n, graph, producers, grids)
        if point is not None:
            found[out] = point
    return found


def _fixed_point(
    n: GraphNode,
    graph: Graph,
    producers: Mapping[Value, GraphNode],
    grids: Mapping[Value, Grid],
) -> FixedPoint | None:
    """What a cast to integers gives, if it is a function of one whole number."""
    chain: list[GraphNode] = [n]
    value, mean, count, product = n.inputs[0], None, 1, None
    while not _is_whole(value, grids):
        step = producers.get(value)
        if step is None or mean is not None:
            return None
        terms = _terms_of_mean(step)
        if terms is not None:
            mean, count = step, terms
        elif step.op.name in CARRIED or _scalar(step, graph) is not None:
            chain.insert(0, step)
        else:
            product = _product(step, graph, producers, grids)
            if product is None:
                return None
            value = product.source
            break
        value = next(v for v in step.inputs if v not in graph.constants)
    grid = grids[value]
    low, high = grid.low, grid.high
    if mean is not None and mean.op.name == "average_pool":
        low, high = min(low, 0), max(high, 0)  # what lies around the picture counts
    if (high - low) * count >= NUMBERS or grid.largest * count >= 1 << 24:
        return None
    known = graph.constants.get
    numbers = np.arange(low * count, high * count + 1)
    slope, gate = Fraction(2) ** grid.exponent / count, None
    values = numbers.astype(np.float32) * np.float32(Fraction(2) ** grid.exponent)
    if count > 1:
        values = values / np.float32(count)
    if product is not None:
        gate = _gate(product, graph, numbers, values, slope)
        if gate is None:
            return None
        values = computed(product.plain, known, values) * computed(product.gated, known, values)
        slope *= slope * _slope_of([*product.plain, *product.gated], graph)
        numbers = gate.times(numbers)
    values = computed(chain, known, values)
    if not np.abs(values.astype(np.float64)).max() < LARGEST:  # or no numbers
        return None
    made = values.astype(np.int64)
    fitted = _fitted(numbers, made, slope * _slope_of(chain, graph))
    if fitted is None:
        return None
    moves = tuple(s for s in chain if s.op.name in CARRIED)
    return FixedPoint(value, mean, gate, moves, *fitted, int(made.min()), int(made.max()))


def _is_whole(value: Value, grids: Mapping[Value, Grid]) -> bool:
    """Whether a value is whole numbers of a grid, of which it may have several."""
    return value in grids and grids[value].low < grids[value].high


@dataclass(frozen=True)
class _Product:
    """A product of two functions of the same whole number: steps that multiply it by constants,
    and others."""

    source: Value
    plain: list[GraphNode]
    gated: list[GraphNode]


def _product(
    n: GraphNode, graph: Graph, producers: Mapping[Value, GraphNode], grids: Mapping[Value, Grid]
) -> _Product | None:
    if n.op.name != "mul" or any(v in graph.constants or v.dtype != f32 for v in n.inputs):
        return None
    found = [_chain(v, graph, producers, grids) for v in n.inputs]
    for one, other in (found, found[::-1]):
        if one is None or other is None or one[0] is not other[0]:
            continue
        if n.outputs[0].shape == one[0].shape and all(s.op.name in SCALES for s in one[1]):
            return _Product(one[0], one[1], other[1])
    return None


def _chain(
    value: Value,
    graph: Graph,
    producers: Mapping[Value, GraphNode],
    grids: Mapping[Value, Grid],
) -> tuple[Value, list[GraphNode]] | None:
    """The whole numbers that a value is computed from by arithmetic with constants, and its steps,
    the first first."""
    steps: list[GraphNode] = []
    while not _is_whole(value, grids):
        step = producers.get(value)
        if step is None or _scalar(step, graph) is None:
            return None
        steps.insert(0, step)
        value = next(v for v in step.inputs if v not in graph.constants)
    return value, steps


def _gate(
    product: _Product, graph: Graph, numbers: np.ndarray, values: np.ndarray, slope: Fraction
) -> Gate | None:
    """The limits between which a factor grows with the number, in units of its slope."""
    slope *= _slope_of(product.gated, graph)
    gates = computed(product.gated, graph.constants.get, values).astype(np.float64)
    between = (gates > gates.min()) & (gates < gates.max())
    if slope <= 0 or not between.any() or not np.isfinite(gates).all():
        return None
    offset = np.median(gates[between] / float(slope) - numbers[between])
    ends = [float(offset), gates.min() / float(slope), gates.max() / float(slope)]
    if max(map(abs, ends)) >= NUMBERS:
        return None
    return Gate(*map(round, ends))


def _terms_of_mean(n: GraphNode) -> int | None:
    """How many elements a node takes the mean of, if these are as many everywhere."""
    (shape,) = (v.shape for v in n.inputs[:1])
    if n.op.name == "reduce_mean":
        axes = n.attrs_of(ReduceAttrs).axes
        sizes = [s for a in axes if isinstance(s := shape[a], int)]
        return math.prod(sizes) if axes and len(sizes) == len(axes) else None
    if n.op.name == "average_pool":
        attrs = n.attrs_of(AveragePoolAttrs)
        padded = any((*attrs.pads_begin, *attrs.pads_end)) and not attrs.include_pad
        known = isinstance(shape[1], int)  # channels, which become groups
        return math.prod(attrs.kernel) if known and not (padded or attrs.ceil) else None
    return None


def _scalar(n: GraphNode, graph: Graph) -> float | None:
    """The constant of a step of element-wise arithmetic: 0 where it takes none."""
    if n.op.name not in STEPS or len(n.outputs) != 1 or n.outputs[0].dtype != f32:
        return None
    constants = [graph.constants[v] for v in n.inputs if v in graph.constants]
    computed = [v for v in n.inputs if v not in graph.constants]
    if len(computed) != 1 or computed[0].shape != n.outputs[0].shape:
        return None
    if any(c.size != 1 for c in constants):
        return None
    if n.op.name in ("div", "sub") and n.inputs[0] in graph.constants:
        return None
    return float(constants[0].reshape(())) if constants else 0.0


def _slope(n: GraphNode, graph: Graph) -> Fraction:
    """By how much a step multiplies."""
    if n.op.name not in ("mul", "div"):
        return Fraction(1)
    number = _scalar(n, graph)
    if not number or not math.isfinite(number):
        return Fraction(0)
    return Fraction(number) if n.op.name == "mul" else 1 / Fraction(number)


def _slope_of(chain: Iterable[GraphNode], graph: Graph) -> Fraction:
    """By how much steps multiply."""
    return math.prod((_slope(s, graph) for s in chain), start=Fraction(1))


def computed(chain: Sequence[GraphNode], known: Known, values: np.ndarray) -> np.ndarray:
    """What the chain gives for each value, computed as the graph does."""
    for n in chain:
        if n.op.name in CARRIED:
            continue
        given: list[Buffer] = []
        arrays = []
        for v in n.inputs:
            array = known(v)
            arrays.append(values if array is None else array.reshape(()))
            given.append(Buffer(f"x{len(given)}", v.dtype, arrays[-1].shape))
        (values,) = evaluate_program(op_program(n.op, n.attrs, given), arrays)
    return values


def _fitted(numbers: np.ndarray, made: np.ndarray, slope: Fraction) -> tuple[int, int, int] | None:
    """A factor, a number to add and a shift that give what is made within its limits; the least."""
    if made.min() == made.max():
        return None
    most = int(np.abs(numbers).max())
    for shift in SHIFTS:
        for factor in _nearest(slope * (1 << shift)):
            if most * abs(factor) > LARGEST:
                continue
            add = _addend(numbers, made, factor, shift)
            if add is not None and most * abs(factor) + abs(add) <= LARGEST:
                return factor, add, shift
    return None


def _nearest(number: Fraction) -> Iterator[int]:
    """The whole numbers beside one."""
    down = math.floor(number)
    yield from (n for n in (down, down + 1) if n)


def _addend(numbers: np.ndarray, made: np.ndarray, factor: int, shift: int) -> int | None:
    """What is to be added so that each number, times the factor, gives after the shift what is
    made; at the limits, that or more. The least, None if there is none."""
    least = (made << shift) - numbers * factor
    most = ((made + 1) << shift) - 1 - numbers * factor
    low = least[made > made.min()].max(initial=-LARGEST)
    high = most[made < made.max()].min(initial=LARGEST)
    return int(low) if low <= high else None
