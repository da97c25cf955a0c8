"""What it costs to compute a value where it is read, instead of once: how often an operator reads
each element of an operand, and whether an operator is cheap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilewright.ir.evaluate import evaluate_dim, op_program
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Symbol,
    Unary,
    UnaryOp,
    as_expr,
)
from tilewright.ir.graph import GraphNode
from tilewright.ir.tensor import Item, Scan, Stage, TensorProgram

TYPICAL = 64  # what a symbolic dimension is taken to be, where its bounds allow
# Operators whose operands stand side by side in the result: an element is read at most once,
# although every operand is mentioned for every element of the result.
GUARDED = frozenset({"concat", "pad"})
# Operators that take tens of instructions. A division takes some cycles of a vector unit, which
# is less than storing the result and reading it again.
DEAR = frozenset(
    {UnaryOp.EXP, UnaryOp.LOG, UnaryOp.SIN, UnaryOp.COS, UnaryOp.TAN, UnaryOp.ERF}
    | {UnaryOp.ASIN, UnaryOp.ACOS, UnaryOp.ATAN, UnaryOp.SINH, UnaryOp.COSH, UnaryOp.TANH}
    | {UnaryOp.ASINH, UnaryOp.ACOSH, UnaryOp.ATANH, UnaryOp.EXPM1, UnaryOp.LOG1P}
    | {UnaryOp.SIGMOID, UnaryOp.ERFC, UnaryOp.GELU}
    | {BinaryOp.POW, BinaryOp.MOD, BinaryOp.REM, BinaryOp.ATAN2}
)


def typical(dim: Dim) -> int:
    """The dimension's value, or for a symbolic one a guess."""
    if not isinstance(dim, Expr):
        return dim
    symbols = {s.name: s for s in dim.walk() if isinstance(s, Symbol)}
    guesses = {
        name: max(s.lower, TYPICAL if s.upper is None else min(TYPICAL, s.upper))
        for name, s in symbols.items()
    }
    return evaluate_dim(dim, guesses)


def elements(shape: Sequence[Dim]) -> int:
    return math.prod(typical(d) for d in shape)


class Costs:
    """Facts about nodes, worked out once for each node."""

    def __init__(self) -> None:
        self._programs: dict[GraphNode, TensorProgram] = {}
        self._cheap: dict[GraphNode, bool] = {}
        self._mentions: dict[tuple[GraphNode, int], int] = {}

    def program(self, n: GraphNode) -> TensorProgram:
        """The node's tensor expression, with operand i called x{i}."""
        if n not in self._programs:
            buffers = [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]
            self._programs[n] = op_program(n.op, n.attrs, buffers)
        return self._programs[n]

    def is_cheap(self, n: GraphNode) -> bool:
        """Whether an element of the result takes a few instructions."""
        if n not in self._cheap:
            self._cheap[n] = not any(
                isinstance(e, Unary | Binary) and e.op in DEAR and e.dtype.is_float
                for s in _stages(self.program(n).items)
                for e in s.value.walk()
            )
        return self._cheap[n]

    def mentions(self, n: GraphNode, position: int) -> int:
        """In how many places the operator's expression reads this operand."""
        key = n, position
        if key not in self._mentions:
            stages = _stages(self.program(n).items)
            self._mentions[key] = sum(_loads(s, f"x{position}") for s in stages)
        return self._mentions[key]

    def reads(self, n: GraphNode, position: int) -> float:
        """How often each element of this operand is read, on average, when whatever the operator
        does to it before reducing it is done at each use."""
        size = elements(n.inputs[position].shape)
        if size == 0:
            return 0
        if n.op.elementwise:
            return elements(n.outputs[0].shape) / size
        program = self.program(n)
        total: dict[str, float] = {}
        for stage in reversed(_stages(program.items)):
            points: float = elements([a.extent for a in (*stage.axes, *stage.reduce)])
            if stage.op is None and stage.buffer not in program.outputs:
                points = max(points, total.get(stage.buffer.name, 0))
            for e in stage.value.walk():
                if isinstance(e, Load):
                    total[e.buffer.name] = total.get(e.buffer.name, 0) + points
        found = total.get(f"x{position}", 0) / size
        return min(found, 1) if n.op.name in GUARDED else found


def _stages(items: Sequence[Item]) -> list[Stage]:
    return list(_walk(items))


def _walk(items: Sequence[Item]) -> Iterator[Stage]:
    for item in items:
        if isinstance(item, Scan):
            for inner in _walk(item.items):  # one more axis
                yield inner.with_(axes=(item.step, *inner.axes))
        else:
            yield item


def _loads(stage: Stage, name: str) -> int:
    return sum(isinstance(e, Load) and e.buffer.name == name for e in as_expr(stage.value).walk())
