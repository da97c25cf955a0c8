"""Building random graphs node by node: what the generators of strategies_graph.py are written with.

Each value has a quality, so that two ways to compute a graph can be compared:

    EXACT   integers, bools, and floats that hold small integers: no operator rounds them
    SMOOTH  floats of bounded size that were rounded: only continuous operators may use them
    WILD    anything (infinities, NaN, results near a pole): may only be moved
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import reject
from strategies_expr import INPUT_BOUND, SYMBOL_MAX, Draws, exact_limit

from tilewright.base.dtype import DType, bool_, f32, i8, i32, i64, u8
from tilewright.base.errors import ModelError
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Dim, Symbol
from tilewright.ir.graph import Graph, GraphNode, Value, symbols_in
from tilewright.ir.op import Op
from tilewright.ir.tensor_type import TensorType

GRAPH_DTYPES = (f32, i32, i64, bool_, u8, i8)


class Quality(enum.IntEnum):
    EXACT = 0
    SMOOTH = 1
    WILD = 2


EXACT, SMOOTH, WILD = Quality
Generator = Callable[["GraphMaker", Op], "list[Value] | None"]


class GraphMaker:
    """Adds node after node; generators use its parts."""

    def __init__(
        self,
        d: Draws,
        ops: Mapping[str, Op],
        dtypes: Sequence[DType],
        symbolic: bool,
        generators: Mapping[str, Generator],
    ) -> None:
        self.d, self.ops, self.dtypes, self.generators = d, ops, dtypes, generators
        self.symbols = (Symbol("n", 1, SYMBOL_MAX),) if symbolic else ()
        self.private: set[Value] = set()  # whose dimensions depend on data: no operands
        self.inputs: list[Value] = []
        self.constants: dict[Value, np.ndarray] = {}
        self.nodes: list[GraphNode] = []
        self.quality: dict[Value, Quality] = {}
        self.bound: dict[Value, float] = {}  # of floats that are not wild
        self.names = 0

    def graph(self, most: int) -> Graph:
        known = [op for op in self.ops.values() if op.elementwise or op.name in self.generators]
        for _ in self.d.times(most):
            self.apply(self.d.pick(known))
        if not self.nodes and not any(self.apply(op) for op in known):
            reject()
        used = {v for n in self.nodes for v in n.inputs}
        ends = tuple(v for n in self.nodes for v in n.outputs if v not in used)
        graph = Graph("random", tuple(self.inputs), ends, tuple(self.nodes), self.constants)
        if not set(symbols_in(graph)) & set(self.symbols) - set(graph.symbols()):
            return graph
        self.input(f32, self.symbols)  # the one that says how large the symbol is
        return graph.with_(inputs=tuple(self.inputs))

    def apply(self, op: Op) -> list[Value] | None:
        return self.generators.get(op.name, elementwise)(self, op)

    # ---------------------------------------------------------- values

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def dim(self, most: int = 4) -> Dim:
        if self.symbols and self.d.chance(6):
            return self.d.pick(self.symbols)
        return self.d.int(1, most)

    def shape(self, low: int = 0, high: int = 3) -> tuple[Dim, ...]:
        return tuple(self.dim() for _ in range(self.d.int(low, high)))

    def input(self, dtype: DType, shape: Sequence[Dim]) -> Value:
        """A new input, or sometimes a constant."""
        if all(isinstance(s, int) for s in shape) and self.d.chance(3):
            numbers = np.random.default_rng(self.d.int(0, 9)).integers(0, 4, tuple(shape))
            return self.constant(numbers.astype(dtype.numpy), dtype)
        value = Value(self.fresh("x"), TensorType(dtype, tuple(shape)))
        self.inputs.append(value)
        self.quality[value], self.bound[value] = EXACT, INPUT_BOUND
        return value

    def constant(self, array: np.ndarray, dtype: DType) -> Value:
        value = Value(self.fresh("w"), TensorType(dtype, array.shape))
        self.constants[value] = np.asarray(array, dtype.numpy)
        self.quality[value], self.bound[value] = EXACT, INPUT_BOUND
        return value

    def operand(
        self,
        fits: Callable[[TensorType], bool],
        dtypes: Sequence[DType],
        shape: Callable[[], Sequence[Dim]],
        quality: Quality = WILD,
    ) -> Value:
        """A value already there that fits and is good enough, or a new one."""
        known = [v for v, q in self.quality.items() if q <= quality and fits(v.type)]
        known = [v for v in known if v.dtype in dtypes and v not in self.private]
        if known and not self.d.chance(4):
            return known[-1 - self.d.int(0, len(known) - 1)]  # the latest first: chains
        return self.input(self.d.pick(dtypes), shape())

    def any(self, dtypes: Sequence[DType], low: int = 0, quality: Quality = WILD) -> Value:
        """A value of at least `low` dimensions."""
        return self.operand(lambda t: t.rank >= low, dtypes, lambda: self.shape(low), quality)

    def like(self, dtype: DType, shape: Sequence[Dim], quality: Quality = WILD) -> Value:
        """A value of this very type."""
        wanted = TensorType(dtype, tuple(shape))
        return self.operand(lambda t: t == wanted, (dtype,), lambda: shape, quality)

    def axis(self, rank: int) -> int:
        return self.d.int(0, rank - 1) - (rank if self.d.chance(4) else 0)

    # ---------------------------------------------------------- nodes

    def add(
        self, op: Op, inputs: Sequence[Value], bound: float = math.inf, **attrs: Any
    ) -> list[Value] | None:
        """Adds a node whose float results are not above `bound`; None where its types or attributes
        are refused. An infinite bound makes them wild."""
        try:
            values = op.make_attrs(**attrs)
            types = list(op.infer(values, [v.type for v in inputs]))
        except ModelError:
            return None
        if not all(_is_small(t) for t in types):
            return None
        outputs = [Value(self.fresh("y"), t) for t in types]
        name = self.d.pick(("", "layer/1", 'the "last" one'))
        self.nodes.append(GraphNode(op, values, tuple(inputs), tuple(outputs), name))
        worst = max((self.quality[v] for v in inputs), default=EXACT)
        for v in outputs:
            self.bound[v] = bound
            self.quality[v] = EXACT if not v.dtype.is_float else grade(op, worst, bound, v.dtype)
        return outputs

    def bound_of(self, values: Sequence[Value]) -> float:
        """The largest magnitude among the values; that of integers is not known."""
        return max((self.bound[v] if v.dtype.is_float else math.inf for v in values), default=0)


def _is_small(t: TensorType) -> bool:
    """Whether a type has elements, but not many, whatever the symbol's value. A window over a
    symbolic axis may have none."""
    if not symbols_in(t):
        return 0 < math.prod(t.shape) <= 256
    try:
        sizes = [math.prod(evaluate_dim(d, {"n": n}) for d in t.shape) for n in (1, SYMBOL_MAX)]
        least = [evaluate_dim(d, {"n": n}) for d in t.shape for n in range(1, SYMBOL_MAX + 1)]
    except KeyError:
        return True  # the symbol is the node's own: so many elements as it has
    return min(least) > 0 and max(sizes) <= 256


# Operators that compute with integers exactly, those that only move elements, and those that are
# continuous.
ROUNDS_NOTHING = frozenset(
    {"add", "sub", "mul", "neg", "abs", "relu", "min", "max", "clip", "identity", "where", "cast"}
    | {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "cumsum", "cumprod", "matmul"}
    | {"conv", "max_pool", "call", "relayout", "sign", "floor", "ceil", "round", "trunc", "iota"}
    | {"full", "einsum", "fold", "top_k", "top_few"}
)
MOVES = frozenset(
    {"transpose", "reshape", "slice", "concat", "pad", "expand", "tile", "gather", "identity"}
    | {"gather_elements", "gather_nd", "trilu", "relayout", "dilate", "guard"}
)
CONTINUOUS = frozenset(
    {"add", "sub", "mul", "neg", "abs", "relu", "min", "max", "clip", "leaky_relu", "sigmoid"}
    | {"tanh", "erf", "sin", "cos", "atan", "exp", "reduce_sum", "reduce_max", "reduce_min"}
    | {"reduce_mean", "softmax", "log_softmax", "matmul", "conv", "average_pool", "max_pool"}
    | {"cumsum", "einsum", "fold", "matmul_compact"}
)


def grade(op: Op, worst: Quality, bound: float, dtype: DType) -> Quality:
    """How good a float result is, given the worst operand and the bound of the result."""
    if op.name in MOVES:
        return worst
    if worst is WILD or bound == math.inf or bound > 1e4:
        return WILD
    exact = worst is EXACT and op.name in ROUNDS_NOTHING and bound <= exact_limit(dtype)
    return EXACT if exact else SMOOTH


def accepts(op: Op) -> Quality:
    """The worst operand that keeps the operator's result comparable."""
    return WILD if op.name in MOVES else SMOOTH if op.name in CONTINUOUS else EXACT


# ---------------------------------------------------------------- element by element

_BOUNDS: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("add", "sub"), lambda *b: sum(b)),
    "mul": lambda *b: math.prod(b),
    **dict.fromkeys(("sigmoid", "tanh", "erf", "sin", "cos", "sign"), lambda *b: 1.0),
    "atan": lambda *b: 2.0,
    "exp": lambda *b: math.exp(b[0]) if b[0] <= 8 else math.inf,
    **dict.fromkeys(
        [
            "neg",
            "abs",
            "relu",
            "min",
            "max",
            "clip",
            "leaky_relu",
            "identity",
            "where",
            "floor",
            "ceil",
            "round",
            "trunc",
        ],
        lambda *b: max(b),
    ),
}


@functools.cache
def takes(op: Op, dtype: DType) -> bool:
    """Whether an operator takes elements of a type."""
    try:
        op.infer(op.attrs(), [TensorType(dtype, ())] * op.arity[0])
    except ModelError:
        return False
    return True


def elementwise(m: GraphMaker, op: Op) -> list[Value] | None:
    """Operands of one type that broadcast."""
    quality = accepts(op)
    first = m.any([t for t in m.dtypes if takes(op, t)] or m.dtypes, quality=quality)
    operands = [first]
    for _ in range(op.arity[0] - 1):
        operands.append(m.like(first.dtype, broadcastable(m, first.shape), quality))
    bounds = [m.bound_of([v]) for v in operands]
    return m.add(op, operands, _BOUNDS.get(op.name, lambda *b: math.inf)(*bounds))


def broadcastable(m: GraphMaker, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape that broadcasts to `shape`: with axes of 1, or without leading ones."""
    if not m.d.chance(3):
        return tuple(shape)
    kept = tuple(1 if m.d.chance(3) else d for d in shape)
    return kept[m.d.int(0, len(kept)) :]
