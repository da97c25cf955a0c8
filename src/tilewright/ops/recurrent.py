"""Recurrent layers of one direction, as scans over time (ONNX LSTM, GRU and RNN, opset 7 on).

The input's share of the gates comes in ready, xw[t, b, gates * hidden] with the biases in it: it is
one big matrix product outside the scan. The recurrent weight is read as rt[hidden, gates * hidden],
so that a step's product runs along contiguous memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtype import i32, index
from tilewright.ir.dims import canonical, tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    UnaryOp,
    as_expr,
    cast,
    const,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops import activation
from tilewright.ops.common import require, require_same_dtype, widened


def _one(x: Expr) -> Expr:
    return const(1, x.dtype)


def _number(value: float, x: Expr) -> Expr:
    return const(value, x.dtype)


# name to function of (x, alpha, beta)
ACTIVATIONS: dict[str, Callable[[Expr, float, float], Expr]] = {
    "sigmoid": lambda x, a, b: activation.sigmoid(x),
    "tanh": lambda x, a, b: unary(UnaryOp.TANH, x),
    "relu": lambda x, a, b: maximum(x, _number(0, x)),
    "affine": lambda x, a, b: x * _number(a, x) + _number(b, x),
    "leakyrelu": lambda x, a, b: select(x < 0, x * _number(a, x), x),
    "thresholdedrelu": lambda x, a, b: select(x > a, x, _number(0, x)),
    "scaledtanh": lambda x, a, b: unary(UnaryOp.TANH, x * _number(b, x)) * _number(a, x),
    "hardsigmoid": lambda x, a, b: minimum(
        maximum(x * _number(a, x) + _number(b, x), _number(0, x)), _one(x)
    ),
    "elu": lambda x, a, b: activation.elu(x, a),
    "softsign": lambda x, a, b: x / (_one(x) + unary(UnaryOp.ABS, x)),
    "softplus": lambda x, a, b: activation.softplus(x),
}


@dataclass(frozen=True, slots=True)
class RecurrentAttrs(Attrs):
    activations: tuple[str, ...] = attr(doc="the gates' functions: f, g, h of the operator")
    alphas: tuple[float, ...] = attr(doc="the first parameter of each function")
    betas: tuple[float, ...] = attr(doc="the second parameter of each function")
    reverse: bool = attr(False, doc="run from the last step to the first")
    lengths: bool = attr(False, doc="the last operand gives the number of steps of each sequence")
    clip: float | None = attr(None, doc="gates are limited to -clip … clip before their function")


@dataclass(frozen=True, slots=True)
class LstmAttrs(RecurrentAttrs):
    peepholes: bool = attr(False, doc="an operand p[3 * hidden] (i, o, f) connects cell and gates")
    input_forget: bool = attr(False, doc="the forget gate is 1 - the input gate")


@dataclass(frozen=True, slots=True)
class GruAttrs(RecurrentAttrs):
    reset_after: bool = attr(
        False,
        doc="the reset gate acts on the product, plus its bias, an operand [hidden]",
    )


def _infer(name: str, gates: int, states: int) -> Callable[..., list[TensorType]]:
    """xw [t, b, gates * hidden], rt [hidden, gates * hidden], h0 (and c0) [b, hidden], more."""

    def infer(attrs: RecurrentAttrs, types: Sequence[TensorType]) -> list[TensorType]:
        lengths = types[-1:] if attrs.lengths else []
        operands = types[: len(types) - len(lengths)]
        dtype = require_same_dtype(name, operands)
        xw, rt = operands[:2]
        require(dtype.is_float, f"{name}: takes floats, not {dtype}")
        require(xw.rank == 3 and rt.rank == 2, f"{name}: xw is {xw} and rt is {rt}")
        steps, batch, width = xw.shape
        hidden = rt.shape[0]
        require(
            canonical(as_expr(hidden) * gates) == canonical(width) == canonical(rt.shape[1]),
            f"{name}: xw is {xw} and rt is {rt}: there must be {gates} gates",
        )
        require(canonical(steps) != 0, f"{name}: there is no step")
        state = tensor_type(dtype, (batch, hidden))
        extra = [tensor_type(dtype, s) for s in _extra(attrs, hidden)]
        wanted = [state] * states + extra + [tensor_type(i32, (batch,))] * len(lengths)
        require(list(types[2:]) == wanted, f"{name}: operands {list(types[2:])}, not {wanted}")
        return [tensor_type(dtype, (steps, batch, hidden)), *[state] * states]

    return infer


def _extra(attrs: RecurrentAttrs, hidden: Dim) -> list[tuple[Dim, ...]]:
    """The shapes of operands that some attributes bring."""
    if isinstance(attrs, LstmAttrs) and attrs.peepholes:
        return [(canonical(as_expr(hidden) * 3),)]
    return [(hidden,)] if isinstance(attrs, GruAttrs) and attrs.reset_after else []


class _Steps:
    """What all three share: buffers, the order of steps, sequences that end early."""

    def __init__(self, b: Builder, attrs: RecurrentAttrs, inputs: Sequence[Buffer]) -> None:
        self.b, self.attrs = b, attrs
        self.xw, self.rt, self.h0 = inputs[:3]
        self.lengths = inputs[-1] if attrs.lengths else None
        self.steps, self.batch = self.xw.shape[:2]
        self.hidden, self.dtype = self.rt.shape[0], self.xw.dtype
        self.wide = widened(self.dtype)
        self.state = (self.batch, self.hidden)
        self.y = b.state("y", (self.steps, *self.state), self.dtype)
        self.h = b.state("h", self.state, self.dtype)

    def time(self, t: Expr, i: Expr) -> Expr:
        """The place in time of step `t` of sequence `i`."""
        if not self.attrs.reverse:
            return t
        if self.lengths is None:
            return as_expr(self.steps) - 1 - t
        length = self.length(i)
        return select(t < length, length - 1 - t, t)

    def length(self, i: Expr) -> Expr:
        assert self.lengths is not None
        return minimum(maximum(cast(index, self.lengths[i]), 0), as_expr(self.steps))

    def before(self, t: Expr, name: str, start: Buffer, state: Buffer) -> Buffer:
        """The state that the step starts from, copied so that it can be overwritten."""
        return self.b.compute(
            name,
            self.state,
            lambda i, j: select(t.equals(0), start[i, j], state[i, j]),
            names="bj",
        )

    def product(self, name: str, h: Buffer, first: Dim, width: Dim) -> Buffer:
        """h[b, k] times rt[k, first … first + width]."""
        return self.b.reduce(
            name,
            (self.batch, width),
            BinaryOp.ADD,
            [self.hidden],
            lambda i, g, k: cast(self.wide, h[i, k]) * cast(self.wide, self.rt[k, g + first]),
            names="bg",
            over_names="k",
        )

    def gate(self, which: int, x: Expr) -> Expr:
        """The gate's function; clipped first."""
        attrs = self.attrs
        if attrs.clip is not None:
            x = minimum(maximum(x, const(-attrs.clip, x.dtype)), const(attrs.clip, x.dtype))
        return ACTIVATIONS[attrs.activations[which]](x, attrs.alphas[which], attrs.betas[which])

    def input(self, t: Expr, i: Expr, g: Expr) -> Expr:
        return cast(self.wide, self.xw[self.time(t, i), i, g])

    def column(self, gate: int, j: Expr) -> Expr:
        return j + canonical(as_expr(self.hidden) * gate)

    def set(
        self, name: str, t: Expr, state: Buffer, old: Buffer, value: Callable[..., Expr]
    ) -> None:
        """state[b, j] = value(b, j); sequences that have ended keep what they had."""

        def kept(i: Expr, j: Expr) -> Expr:
            new = cast(self.dtype, value(i, j))
            return new if self.lengths is None else select(t < self.length(i), new, old[i, j])

        self.b.compute(name, self.state, kept, names="bj", into=(state, lambda i, j: (i, j)))

    def store(self, t: Expr) -> None:
        """y at this step is h; zero after a sequence's end."""

        def value(i: Expr, j: Expr) -> Expr:
            new = self.h[i, j]
            if self.lengths is None:
                return new
            return select(t < self.length(i), new, const(0, self.dtype))

        place = lambda i, j: (self.time(t, i), i, j)  # noqa: E731
        self.b.compute("store", self.state, value, names="bj", into=(self.y, place))


def _compute_lstm(b: Builder, attrs: LstmAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """Gates i, o, f, c; functions: of gates, of what enters the cell, of the cell."""
    s = _Steps(b, attrs, inputs)
    c0, peep = inputs[3], inputs[4] if attrs.peepholes else None
    c = b.state("c", s.state, s.dtype)

    def body(t: Expr) -> None:
        h_old, c_old = s.before(t, "h_old", s.h0, s.h), s.before(t, "c_old", c0, c)
        product = s.product("gates", h_old, 0, s.rt.shape[1])

        def gate(which: int, i: Expr, j: Expr, cell: Buffer | None = None) -> Expr:
            column = s.column(which, j)
            total = product[i, column] + s.input(t, i, column)
            if cell is not None and peep is not None:
                total = total + cast(s.wide, peep[column]) * cast(s.wide, cell[i, j])
            return total

        def cell(i: Expr, j: Expr) -> Expr:
            entering = s.gate(0, gate(0, i, j, c_old))
            if attrs.input_forget:
                kept = _one(entering) - entering
            else:
                kept = s.gate(0, gate(2, i, j, c_old))
            return kept * cast(s.wide, c_old[i, j]) + entering * s.gate(1, gate(3, i, j))

        s.set("cell", t, c, c_old, cell)
        plain = ACTIVATIONS[attrs.activations[2]]

        def hidden(i: Expr, j: Expr) -> Expr:
            out = plain(cast(s.wide, c[i, j]), attrs.alphas[2], attrs.betas[2])
            return s.gate(0, gate(1, i, j, c)) * out

        s.set("hidden", t, s.h, h_old, hidden)
        s.store(t)

    b.scan(s.steps, body)
    return [s.y, s.h, c]


def _compute_gru(b: Builder, attrs: GruAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """Gates z, r, h: f is the function of z and r, g that of the candidate."""
    s = _Steps(b, attrs, inputs)
    bias = inputs[3] if attrs.reset_after else None

    def body(t: Expr) -> None:
        h_old = s.before(t, "h_old", s.h0, s.h)
        two = canonical(as_expr(s.hidden) * 2)
        product = s.product("gates", h_old, 0, s.rt.shape[1] if bias is not None else two)

        def gate(which: int, i: Expr, j: Expr) -> Expr:
            column = s.column(which, j)
            return s.gate(0, product[i, column] + s.input(t, i, column))

        if bias is not None:

            def candidate(i: Expr, j: Expr) -> Expr:
                column = s.column(2, j)
                inner = gate(1, i, j) * (product[i, column] + cast(s.wide, bias[j]))
                return s.gate(1, s.input(t, i, column) + inner)

        else:
            reset = b.compute(
                "reset",
                s.state,
                lambda i, j: cast(s.dtype, gate(1, i, j) * cast(s.wide, h_old[i, j])),
                names="bj",
            )
            inner = s.product("candidate", reset, two, s.hidden)

            def candidate(i: Expr, j: Expr) -> Expr:
                return s.gate(1, s.input(t, i, s.column(2, j)) + inner[i, j])

        def hidden(i: Expr, j: Expr) -> Expr:
            update = gate(0, i, j)
            kept = update * cast(s.wide, h_old[i, j])
            return (_one(update) - update) * candidate(i, j) + kept

        s.set("hidden", t, s.h, h_old, hidden)
        s.store(t)

    b.scan(s.steps, body)
    return [s.y, s.h]


def _compute_rnn(b: Builder, attrs: RecurrentAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    s = _Steps(b, attrs, inputs)

    def body(t: Expr) -> None:
        h_old = s.before(t, "h_old", s.h0, s.h)
        product = s.product("gate", h_old, 0, s.hidden)
        value = lambda i, j: s.gate(0, product[i, j] + s.input(t, i, j))  # noqa: E731
        s.set("hidden", t, s.h, h_old, value)
        s.store(t)

    b.scan(s.steps, body)
    return [s.y, s.h]


OPS: tuple[Op, ...] = (
    Op(
        "lstm",
        LstmAttrs,
        _infer("lstm", 4, 2),
        Category.COMPLEX,
        "long short-term memory: xw, rt, h0, c0 to y[t, b, hidden], last h and last c",
        (4, 6),
        "floats",
        _compute_lstm,
    ),
    Op(
        "gru",
        GruAttrs,
        _infer("gru", 3, 1),
        Category.COMPLEX,
        "gated recurrent unit: xw, rt, h0 to y[t, b, hidden] and last h",
        (3, 5),
        "floats",
        _compute_gru,
    ),
    Op(
        "rnn",
        RecurrentAttrs,
        _infer("rnn", 1, 1),
        Category.COMPLEX,
        "plain recurrence: xw, rt, h0 to y[t, b, hidden] and last h",
        (3, 4),
        "floats",
        _compute_rnn,
    ),
)
