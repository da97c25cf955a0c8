"""Floats that are whole numbers of a step: which values of a graph are, between which numbers, and
the same arithmetic in integers; conversions that change nothing."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from graph_cases import Maker, check_same, check_valid
from schedule_trials import Random

from tilewright.base.dtype import f32, i8, i16, i32, u8
from tilewright.ir.evaluate import evaluate_node
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.optimize.grids import Grid, grid_of_constant, grids_of, whole_numbers
from tilewright.optimize.round_trips import without_round_trips
from tilewright.optimize.use_integers import use_integers

CONV = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}


# ---------------------------------------------------------------- constants

CONSTANTS = [
    ([0.0, -0.0], Grid(0, 0, 0)), ([1.0], Grid(0, 1, 1)), ([6.0, -4.0], Grid(1, -2, 3)),
    ([0.5, 3.0], Grid(-1, 1, 6)), ([0.375, 0.0], Grid(-3, 0, 3)), ([-96.0], Grid(5, -3, -3)),
    ([2.0**24, 1.0], Grid(0, 1, 1 << 24)), ([2.0**24 + 2, 1.0], None),
    ([0.1], Grid(-27, 13421773, 13421773)),
    ([2.0**60], Grid(60, 1, 1)), ([2.0**61], None), ([2.0**-60], Grid(-60, 1, 1)),
    ([2.0**-61], None), ([math.inf], None), ([math.nan, 1.0], None), ([1e-45], None),
]  # fmt: skip


@pytest.mark.parametrize("elements, grid", CONSTANTS, ids=str)
def test_constants(elements: list[float], grid: Grid | None):
    array = np.array(elements, np.float32)
    assert grid_of_constant(array) == grid
    if grid is not None:
        whole = whole_numbers(array, grid.exponent)
        np.testing.assert_array_equal(np.ldexp(whole.astype(float), grid.exponent), array)
        assert (whole.min(), whole.max()) == (grid.low, grid.high)


@pytest.mark.parametrize("low, high, largest", [(-3, 2, 3), (-3, 4, 4), (1, 2, 2), (-5, -2, 5)])
def test_a_finer_step(low: int, high: int, largest: int):
    grid = Grid(2, low, high)
    assert grid.largest == largest
    assert (grid.at(2), grid.at(0)) == (grid, Grid(0, low * 4, high * 4))


# ---------------------------------------------------------------- values

SMALL = [
    Grid(0, -3, 4),
    Grid(0, 1, 1),
    Grid(-1, -2, 5),
    Grid(2, -1, 2),
    Grid(1, 1, 1),
    Grid(-2, -7, -3),
]
BINARY = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
          "max": max, "min": min}  # fmt: skip


def on_grid(m: Maker, grid: Grid) -> tuple[Value, Value]:
    """A value that is any of the grid's, and the integer that it is made of."""
    x = m.input(2, dtype=i8)
    wide = m.op("clip", m.op("cast", x, to=f32), low=float(grid.low), high=float(grid.high))
    return m.op("mul", wide, m.constant(np.float32(2.0**grid.exponent))), x


def values(grid: Grid) -> list[float]:
    return [math.ldexp(k, grid.exponent) for k in range(grid.low, grid.high + 1)]


@pytest.mark.parametrize("name, a, b", list(itertools.product(BINARY, SMALL, SMALL)), ids=str)
def test_two_values(name: str, a: Grid, b: Grid):
    """Between the least and the greatest of all results, in steps that all are multiples of."""
    m = Maker()
    (x, _), (y, _) = on_grid(m, a), on_grid(m, b)
    out = m.op(name, x, y)
    found = grids_of(m.graph(out))
    assert (found[x], found[y]) == (a, b)
    results = [BINARY[name](p, q) for p, q in itertools.product(values(a), values(b))]
    step = a.exponent + b.exponent if name == "mul" else min(a.exponent, b.exponent)
    assert found[out] == Grid(
        step, int(math.ldexp(min(results), -step)), int(math.ldexp(max(results), -step))
    )


LIMITS = [
    (None, None),
    (-1.0, None),
    (None, 1.5),
    (-0.5, 2.0),
    (-8.0, 8.0),
    (0.0, 0.0),
    (-math.inf, 1.0),
    (-1.0, math.inf),
    (3.0, 1.0),
    (0.3, None),
    (None, math.nan),
]


@pytest.mark.parametrize("grid, limits", list(itertools.product(SMALL, LIMITS)), ids=str)
def test_limits(grid: Grid, limits: tuple[float | None, float | None]):
    m = Maker()
    x, _ = on_grid(m, grid)
    low, high = limits
    out = m.op("clip", x, low=low, high=high)
    found = grids_of(m.graph(out)).get(out)
    finite = [v for v in limits if v is not None and not math.isinf(v)]
    if not all(math.ldexp(v, -grid.exponent).is_integer() for v in finite if v == v) or any(
        v != v for v in finite
    ):
        assert found is None
        return
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    results = [min(max(v, ends[0]), ends[1]) for v in values(grid)]
    wanted = [int(math.ldexp(v, -grid.exponent)) for v in (min(results), max(results))]
    assert found == Grid(grid.exponent, *wanted)


@pytest.mark.parametrize("grid", SMALL, ids=str)
def test_one_value(grid: Grid):
    m = Maker()
    x, _ = on_grid(m, grid)
    outs = {name: m.op(name, x) for name in ("relu", "floor", "round", "identity")}
    outs["halved"] = m.op("div", x, m.constant(np.float32(2.0)))
    outs["thirds"] = m.op("div", x, m.constant(np.float32(3.0)))
    outs["reshape"] = m.op("reshape", x, shape=(2, 1))
    outs["tanh"] = m.op("tanh", x)
    found = grids_of(m.graph(*outs.values()))
    every, step = values(grid), grid.exponent
    if grid.high >= 0:
        relu = [int(math.ldexp(max(v, 0.0), -step)) for v in every]
        assert found[outs["relu"]] == Grid(step, min(relu), max(relu))
    for name in ("floor", "round"):
        wanted = Grid(0, math.floor(min(every)), math.ceil(max(every))) if step < 0 else grid
        assert found[outs[name]] == wanted
    assert found[outs["halved"]] == Grid(step - 1, grid.low, grid.high)
    assert (found[outs["identity"]], found[outs["reshape"]]) == (grid, grid)
    assert outs["thirds"] not in found
    assert outs["tanh"] not in found


@pytest.mark.parametrize("low, high", [(0.0, None), (-0.5, None), (0.0, math.inf)])
def test_a_limit_above_all_values(low: float, high: float | None):
    m = Maker()
    x, _ = on_grid(m, Grid(-2, -7, -3))
    out = m.op("clip", x, low=low, high=high)
    limit = int(low * 4)
    assert grids_of(m.graph(out))[out] == Grid(-2, limit, limit)


CASTS = [
    (Grid(0, -3, 4), i8, Grid(0, -3, 4)),
    (Grid(2, -1, 2), i8, Grid(0, -4, 8)),
    (Grid(0, -3, 4), u8, None),
    (Grid(-1, -2, 5), i8, None),
    (Grid(6, -2, 1), i8, Grid(0, -128, 64)),
    (Grid(6, -2, 2), i8, None),
    (Grid(7, -1, 0), i8, Grid(0, -128, 0)),
    (Grid(7, 0, 1), i8, None),
    (Grid(7, 0, 1), u8, Grid(0, 0, 128)),
    (Grid(7, 0, 2), u8, None),
]


@pytest.mark.parametrize("grid, to, wanted", CASTS, ids=str)
def test_floats_as_integers(grid: Grid, to, wanted: Grid | None):
    m = Maker()
    x, _ = on_grid(m, grid)
    out = m.op("cast", x, to=to)
    assert grids_of(m.graph(out)).get(out) == wanted


@pytest.mark.parametrize(
    "dtype, grid",
    [(i8, (-128, 127)), (u8, (0, 255)), (i16, (-(1 << 15), (1 << 15) - 1)), (i32, None)],
)
def test_integers_as_floats(dtype, grid):
    m = Maker()
    out = m.op("cast", m.input(2, dtype=dtype), to=f32)
    assert grids_of(m.graph(out)).get(out) == (None if grid is None else Grid(0, *grid))


def test_integer_constants():
    m = Maker()
    out = m.op("cast", m.constant(np.array([7, -2], np.int32)), to=f32)
    empty = m.op("cast", m.constant(np.zeros(0, np.int8)), to=f32)
    found = grids_of(m.graph(out, empty))
    assert (found[out], found[empty]) == (Grid(0, -2, 7), Grid(0, -128, 127))


SUMS = [(8, 127 * 128 * 8), (1024, 127 * 128 * 1024), (1032, 127 * 128 * 1032), (1033, None)]


@pytest.mark.parametrize("terms, largest", SUMS)
def test_sums_of_products(terms: int, largest: int | None):
    """Weights that are all 127, times -128 to 127; as many as a float holds."""
    m = Maker()
    x = m.op("cast", m.input(2, terms, dtype=i8), to=f32)
    out = m.op("matmul", x, m.constant(np.full((terms, 3), 127.0)))
    wanted = None if largest is None else Grid(0, -largest, largest)
    assert grids_of(m.graph(out)).get(out) == wanted


def test_sums_with_weights_of_a_kind():
    """The largest sum of a column counts; of a filter, over all that it is summed over."""
    m = Maker()
    x = m.op("cast", m.input(1, 2, 4, 4, dtype=u8), to=f32)
    weights = np.zeros((3, 2, 2, 2), np.float32)
    weights[1] = 0.5
    weights[2, 0] = -1.0
    out = m.op("conv", x, m.constant(weights), **CONV)
    y = m.op("cast", m.input(2, 3, dtype=u8), to=f32)
    columns = np.array([[1.0, -4.0], [2.0, 0.0], [-3.0, 0.5]])
    product = m.op("matmul", y, m.constant(columns))
    found = grids_of(m.graph(out, product))
    assert found[out] == Grid(-1, -8 * 255, 8 * 255)
    assert found[product] == Grid(-1, -12 * 255, 12 * 255)


@pytest.mark.parametrize(
    "terms, largest", [(4, 4 * 128 * 128), (1024, 1 << 24), (1025, None), (Symbol("n"), None)]
)
def test_products_of_computed_values(terms, largest: int | None):
    m = Maker()
    x = m.op("cast", m.input(2, terms, dtype=i8), to=f32)
    y = m.op("cast", m.input(terms, 3, dtype=i8), to=f32)
    out = m.op("matmul", x, y)
    assert grids_of(m.graph(out)).get(out) == (
        None if largest is None else Grid(0, -largest, largest)
    )


# ---------------------------------------------------------------- random graphs


class Chains:
    """What quantised models have: integers with a scale, a contraction, a chain behind it."""

    def __init__(self, seed: int) -> None:
        self.m, self.d = Maker(), Random(random.Random(seed))

    def graph(self) -> Graph:
        m, d = self.m, self.d
        convolves = d.chance(2)
        shape = (1, 4, 5, 5) if convolves else (3, 8)
        x = self.scaled(shape)
        if convolves:
            y = m.op("conv", x, self.weights((4, 4, 2, 2)), **CONV)
        else:
            other = self.scaled((8, 8)) if d.chance(3) else self.weights((8, 8))
            y = m.op("matmul", x, other)
        channels = (4, 1, 1) if convolves else (8,)
        outputs = []
        for _ in range(d.int(1, 7)):
            if d.chance(6):
                outputs.append(y)
            y = self.step(y, channels)
        if d.chance(2):
            y = m.op(
                "cast",
                m.op("clip", m.op(d.pick(("round", "floor")), y), low=-128.0, high=127.0),
                to=i8,
            )
        return m.graph(*dict.fromkeys([*outputs, y]))

    def scaled(self, shape: tuple[int, ...]) -> Value:
        kind = self.d.pick((i8, u8, i8))
        x = self.m.op("cast", self.m.input(*shape, dtype=kind), to=f32)
        if self.d.chance(3):
            x = self.m.op("sub", x, self.m.constant(np.float32(self.d.int(0, 8))))
        return self.m.op("mul", x, self.m.constant(np.float32(2.0 ** self.d.int(-6, 1))))

    def weights(self, shape: tuple[int, ...]) -> Value:
        rng = np.random.default_rng(self.d.int(0, 99))
        return self.m.constant(
            (rng.integers(-7, 8, shape) * 2.0 ** self.d.int(-5, 0)).astype(np.float32)
        )

    def step(self, y: Value, channels: tuple[int, ...]) -> Value:
        m, d = self.m, self.d
        name = d.pick(
            ("add", "sub", "mul", "div", "max", "min", "relu", "clip", "floor", "round", "add")
        )
        if name in ("relu", "floor", "round"):
            return m.op(name, y)
        if name == "clip":
            return m.op(name, y, low=float(d.int(-9, 0)), high=float(d.int(1, 60)))
        if name in ("mul", "div"):
            factor = m.constant(np.float32(2.0 ** d.int(-3, 2)))
            return m.op(name, *((factor, y) if name == "mul" and d.chance(2) else (y, factor)))
        if d.chance(4):
            return m.op(name, y, y) if d.chance(2) else m.op(name, m.op("relu", y), y)
        shape = channels if d.chance(2) else ()
        rng = np.random.default_rng(d.int(0, 99))
        other = m.constant((rng.integers(-40, 41, shape) * 2.0 ** d.int(-4, 1)).astype(np.float32))
        return m.op(name, *((other, y) if name != "sub" and d.chance(3) else (y, other)))


def arrays(graph: Graph, seed: int) -> list[np.ndarray]:
    """Random elements, the extremes among them."""
    rng = np.random.default_rng(seed)
    found = []
    for v in graph.inputs:
        low, high = int(v.dtype.min), int(v.dtype.max)
        a = rng.integers(low, high + 1, v.shape)
        found.append(
            np.where(
                rng.random(v.shape) < 0.2, low, np.where(rng.random(v.shape) < 0.2, high, a)
            ).astype(v.dtype.numpy)
        )
    return found


@pytest.mark.parametrize("part", range(10))
def test_random_graphs(part: int):
    """All values are on the grids that are said of them, and integers give the same to the bit."""
    integers = 0
    for seed in range(20 * part, 20 * part + 20):
        graph = Chains(seed).graph()
        after = use_integers(graph)
        check_valid(after)
        integers += any(
            n.op.name in ("conv", "matmul") and n.outputs[0].dtype == i32 for n in after.nodes
        )
        grids = grids_of(graph)
        if not all(is_in_reach(grids, n) for n in graph.nodes):
            continue
        for k in range(2):
            given = arrays(graph, k)
            before = run(graph, given)
            for value, grid in grids.items():
                whole = np.ldexp(before[value].astype(float), -grid.exponent)
                assert (whole == np.rint(whole)).all(), (seed, value)
                assert grid.low <= whole.min(initial=grid.low), (seed, value)
                assert whole.max(initial=grid.high) <= grid.high, (seed, value)
            there = run(after, given)
            for a, b in zip(graph.outputs, after.outputs, strict=True):
                np.testing.assert_array_equal(before[a], there[b], err_msg=f"{seed}")
    assert integers == DONE_WITH_INTEGERS[part]


DONE_WITH_INTEGERS = [20] * 10


def is_in_reach(grids: dict[Value, Grid], n: GraphNode) -> bool:
    """Whether a node's lower limit is one that its operand may be below and above."""
    if n.op.name not in ("relu", "clip") or n.inputs[0] not in grids:
        return True
    grid = grids[n.inputs[0]]
    low = 0.0 if n.op.name == "relu" else n.attrs.low
    return low is None or low <= math.ldexp(grid.high, grid.exponent)


def run(graph: Graph, inputs: list[np.ndarray]) -> dict[Value, np.ndarray]:
    """Every value of a graph."""
    known = dict(graph.constants) | dict(zip(graph.inputs, inputs, strict=True))
    for n in graph.nodes:
        results = evaluate_node(n, [known[v] for v in n.inputs], {})
        known |= dict(zip(n.outputs, results, strict=True))
    return known


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def quantised(*steps, scale: float = 0.25, kind=i8) -> Graph:
    """A product of whole numbers times `scale`, and what is made of it."""
    m = Maker()
    x = m.op("mul", m.op("cast", m.input(2, 4, dtype=kind), to=f32), m.constant(np.float32(scale)))
    y = m.op("matmul", x, m.constant(np.arange(-4.0, 4.0).reshape(4, 2)))
    for step in steps:
        y = step(m, y)
    return m.graph(y)


def number(name: str, c: float, first: bool = False):
    def step(m: Maker, y: Value) -> Value:
        other = m.constant(np.float32(c))
        return m.op(name, *((other, y) if first else (y, other)))

    return step


def plain(name: str, **attrs):
    return lambda m, y: m.op(name, y, **attrs)


AS_INTEGERS = [
    # A rounding half up is part of the bias; limits move behind the shift.
    (
        (
            number("add", 0.5),
            plain("floor"),
            plain("clip", low=-128.0, high=127.0),
            plain("cast", to=i8),
        ),
        ["matmul", "add", "shr", "min", "max", "cast"],
    ),
    (
        (plain("round"), plain("clip", low=-128.0, high=127.0), plain("cast", to=i8)),
        ["matmul", "shr", "and", "add", "add", "shr", "min", "max", "cast"],
    ),
    (
        (number("add", 3.0), number("sub", 1.0), plain("relu")),
        ["matmul", "add", "max", "cast", "mul"],
    ),
    (
        (
            number("mul", 4.0),
            plain("floor"),
            plain("clip", low=0.0, high=255.0),
            plain("cast", to=u8),
        ),
        ["matmul", "min", "max", "cast"],
    ),
    (
        (number("max", -2.0), number("min", 5.0, first=True)),
        ["matmul", "min", "max", "cast", "mul"],
    ),
    ((number("add", 0.125),), ["matmul", "mul", "add", "cast", "mul"]),
    ((plain("tanh"),), ["matmul", "cast", "mul", "tanh"]),
    ((), ["matmul", "cast", "mul"]),
]


@pytest.mark.parametrize("steps, wanted", AS_INTEGERS, ids=lambda x: None)
def test_steps_as_integers(steps, wanted: list[str]):
    graph = quantised(*steps)
    after = use_integers(graph)
    check_same(graph, after)
    for k in range(3):
        given = arrays(graph, k)
        np.testing.assert_array_equal(
            run(graph, given)[graph.outputs[0]], run(after, given)[after.outputs[0]]
        )
    assert names(after) == wanted


@pytest.mark.parametrize("kind, factors", [(i8, [i8, i8]), (u8, [u8, u8])])
def test_types_of_factors(kind, factors):
    """The smallest that holds both; weights of -4 to 3 are no u8."""
    (product,) = (n for n in use_integers(quantised(kind=kind)).nodes if n.op.name == "matmul")
    found = [v.dtype for v in product.inputs]
    assert found == (factors if kind is i8 else [i16, i16])
    assert product.outputs[0].dtype == i32


def test_what_has_no_contraction_stays():
    m = Maker()
    x = m.op("mul", m.op("cast", m.input(4, dtype=i8), to=f32), m.constant(np.float32(0.5)))
    graph = m.graph(m.op("relu", x))
    assert names(use_integers(graph)) == ["cast", "mul", "relu"]


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    "low, high, small, goes",
    [
        (-128, 127, i8, True), (-129, 127, i8, False), (-128, 128, i8, False), (0, 255, u8, True),
        (-1, 255, u8, False), (0, 256, u8, False), (None, 127, i8, False), (0, None, i8, False),
        (5, 3, i8, True), (-500, 500, i16, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [False, True])
def test_conversions_there_and_back(low, high, small, goes: bool, first: bool):
    m = Maker()
    x = m.input(6, dtype=i32)
    y = x
    for name, limit in (("max", low), ("min", high)):
        if limit is not None:
            c = m.constant(np.int32(limit))
            y = m.op(name, *((c, y) if first else (y, c)))
    graph = m.graph(m.op("neg", m.op("cast", m.op("cast", y, to=small), to=i32)))
    after = without_round_trips(graph)
    assert names(after).count("cast") == (0 if goes else 2)
    given = [np.array([-1000, -129, -1, 0, 128, 1000], np.int32)]
    np.testing.assert_array_equal(
        run(graph, given)[graph.outputs[0]], run(after, given)[after.outputs[0]]
    )


def test_conversions_that_stay():
    """To another type, to floats, of a limit for each element, or where nothing limits."""
    for build in (
        lambda m, x: m.op("cast", m.op("cast", x, to=i8), to=i16),
        lambda m, x: m.op("cast", m.op("cast", x, to=f32), to=i32),
        lambda m, x: m.op(
            "cast",
            m.op(
                "cast",
                m.op(
                    "min",
                    m.op("max", x, m.constant(np.int32([-1, 2]))),
                    m.constant(np.int32([3, 4])),
                ),
                to=i8,
            ),
            to=i32,
        ),
        lambda m, x: m.op("cast", m.op("cast", x, to=i8), to=i32),
    ):
        m = Maker()
        graph = m.graph(build(m, m.input(2, dtype=i32)))
        assert without_round_trips(graph) is graph
