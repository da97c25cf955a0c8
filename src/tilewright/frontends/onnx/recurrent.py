"""ONNX's recurrent layers: LSTM, GRU and RNN (7, 14: layout, 22), each direction a scan of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import i32
from tilewright.base.errors import ModelError, did_you_mean
from tilewright.frontends.onnx.context import Importer, NodeContext, one_of
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value
from tilewright.ops.recurrent import ACTIVATIONS

# The parameters that an activation has when the node gives none.
DEFAULTS: dict[str, tuple[float, float]] = {
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
    "affine": (1.0, 0.0),
}
PARAMETERS = {"affine": 2, "leakyrelu": 1, "thresholdedrelu": 1, "scaledtanh": 2}
PARAMETERS |= {"hardsigmoid": 2, "elu": 1}


@dataclass(frozen=True)
class Layer:
    """What the three kinds of layers share: the operands of one node, time first."""

    x: Value  # [steps, batch, features]
    w: Value  # [directions, gates * hidden, features]
    r: Value  # [directions, gates * hidden, hidden]
    bias: Value | None  # [directions, 2 * gates * hidden]
    lengths: Value | None  # [batch]
    gates: int
    hidden: Dim
    directions: tuple[bool, ...]  # for each whether it runs backwards

    @property
    def batch(self) -> Dim:
        return self.x.shape[1]


def _layer(ctx: NodeContext, node: OnnxNode, gates: int) -> Layer:
    x, w, r = (node.input(i) for i in range(3))
    if not (x.type.rank == w.type.rank == r.type.rank == 3):
        raise ModelError(f"X is {x.type}, W {w.type} and R {r.type}: they need 3 dimensions each")
    kind = one_of(node, "direction", "forward", ("forward", "reverse", "bidirectional"))
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[kind]
    if w.shape[0] != len(directions):
        raise ModelError(f"W is {w.type}, for {len(directions)} direction(s)")
    hidden = r.shape[2]
    if node.has("hidden_size") and node.int("hidden_size") != hidden:
        raise ModelError(f"hidden_size is {node.int('hidden_size')}, but R is {r.type}")
    if node.flag("layout"):
        x = ctx.transpose(x, (1, 0, 2))
    lengths = node.optional(4)
    known = None if lengths is None else ctx.known(lengths)
    if known is not None and np.all(known == x.shape[0]):
        lengths = None  # every sequence is as long as the tensor
    return Layer(x, w, r, node.optional(3), lengths, gates, hidden, directions)


def _row(ctx: NodeContext, v: Value, direction: int) -> Value:
    """One direction's part of a weight, without that axis."""
    return ctx.reshape(ctx.slice(v, 0, direction, 1), v.shape[1:])


def _state(ctx: NodeContext, node: OnnxNode, layer: Layer, position: int, direction: int) -> Value:
    """An initial state [batch, hidden]: zero when it is not given."""
    given, shape = node.optional(position), [layer.batch, layer.hidden]
    if given is None:
        return ctx.full(shape, 0.0, layer.x.dtype)
    if node.flag("layout"):
        given = ctx.transpose(given, (1, 0, 2))
    return _row(ctx, given, direction)


def _biases(ctx: NodeContext, layer: Layer, direction: int) -> tuple[Value, Value] | None:
    """The biases of the input's and of the state's product."""
    if layer.bias is None:
        return None
    both, width = _row(ctx, layer.bias, direction), canonical(as_expr(layer.hidden) * layer.gates)
    return ctx.slice(both, 0, 0, width), ctx.slice(both, 0, width, width)


def _projection(ctx: NodeContext, layer: Layer, direction: int, bias: Value | None) -> Value:
    """x times W transposed, plus the bias: one product for all steps."""
    steps, batch, features = layer.x.shape
    w = ctx.transpose(_row(ctx, layer.w, direction), (1, 0))
    flat = ctx.reshape(layer.x, [as_expr(steps) * batch, features])
    out = ctx.emit("matmul", [flat, w])
    out = out if bias is None else ctx.emit("add", [out, bias])
    return ctx.reshape(out, [steps, batch, w.shape[1]])


def _sum(ctx: NodeContext, a: Value, b: Value) -> Value:
    """a + b, at once when both are constants."""
    known = [ctx.known_constant(v) for v in (a, b)]
    if known[0] is not None and known[1] is not None:
        return ctx.constant((known[0] + known[1]).astype(a.dtype.numpy))
    return ctx.emit("add", [a, b])


@dataclass(frozen=True)
class Functions:
    """The activations of one direction, and the attributes all layers share."""

    names: tuple[str, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]


def _functions(
    node: OnnxNode, default: Sequence[str], direction: int, directions: int
) -> Functions:
    count = len(default)
    names = [n.lower() for n in node.strings("activations", tuple(default) * directions)]
    if len(names) != count * directions:
        raise ModelError(f"{len(names)} activations, where {count * directions} are needed")
    for name in names:
        if name not in ACTIVATIONS:
            raise ModelError(
                f"there is no activation {name!r}", hint=did_you_mean(name, list(ACTIVATIONS))
            )
    alphas, betas = (
        list(node.floats("activation_alpha", ())),
        list(node.floats("activation_beta", ())),
    )
    found = []
    for name in names:  # parameters are given for those functions that have them, in order
        alpha, beta = DEFAULTS.get(name, (0.0, 0.0))
        if PARAMETERS.get(name, 0) >= 1 and alphas:
            alpha = alphas.pop(0)
        if PARAMETERS.get(name, 0) >= 2 and betas:
            beta = betas.pop(0)
        found.append((name, alpha, beta))
    own = found[direction * count : (direction + 1) * count]
    return Functions(*(tuple(column) for column in zip(*own, strict=True)))


def _outputs(
    ctx: NodeContext, node: OnnxNode, layer: Layer, results: Sequence[Sequence[Value]]
) -> list[Value]:
    """Y [steps, directions, batch, hidden] and the last states [directions, batch, hidden] from
    each direction's; with layout the batch is first."""
    batch_first = node.flag("layout")
    steps, batch = layer.x.shape[:2]
    ys = [ctx.reshape(r[0], [steps, 1, batch, layer.hidden]) for r in results]
    y = ys[0] if len(ys) == 1 else ctx.emit("concat", ys, axis=1)
    outputs = [ctx.transpose(y, (2, 0, 1, 3)) if batch_first else y]
    for position in range(1, len(results[0])):
        states = [ctx.reshape(r[position], [1, batch, layer.hidden]) for r in results]
        state = states[0] if len(states) == 1 else ctx.emit("concat", states, axis=0)
        outputs.append(ctx.transpose(state, (1, 0, 2)) if batch_first else state)
    return outputs


def _common(node: OnnxNode, functions: Functions, layer: Layer, reverse: bool) -> dict[str, object]:
    return {
        "activations": functions.names,
        "alphas": functions.alphas,
        "betas": functions.betas,
        "reverse": reverse,
        "lengths": layer.lengths is not None,
        "clip": node.float("clip") if node.has("clip") and node.float("clip") > 0 else None,
    }


def _lengths(ctx: NodeContext, layer: Layer) -> list[Value]:
    return [] if layer.lengths is None else [ctx.cast(layer.lengths, i32)]


def lstm(ctx: NodeContext, node: OnnxNode) -> list[Value]:
    layer, results = _layer(ctx, node, 4), []
    peepholes = node.optional(7)
    for direction, reverse in enumerate(layer.directions):
        biases = _biases(ctx, layer, direction)
        inputs = [
            _projection(ctx, layer, direction, _sum(ctx, *biases) if biases else None),
            ctx.transpose(_row(ctx, layer.r, direction), (1, 0)),
            _state(ctx, node, layer, 5, direction),
            _state(ctx, node, layer, 6, direction),
            *([] if peepholes is None else [_row(ctx, peepholes, direction)]),
            *_lengths(ctx, layer),
        ]
        functions = _functions(node, ("Sigmoid", "Tanh", "Tanh"), direction, len(layer.directions))
        attrs = _common(node, functions, layer, reverse)
        results.append(
            ctx.emit_all(
                "lstm",
                inputs,
                **attrs,
                peepholes=peepholes is not None,
                input_forget=node.flag("input_forget"),
            )
        )
    return _outputs(ctx, node, layer, results)


def gru(ctx: NodeContext, node: OnnxNode) -> list[Value]:
    layer, results = _layer(ctx, node, 3), []
    reset_after = node.flag("linear_before_reset")
    for direction, reverse in enumerate(layer.directions):
        bias, own = _gru_biases(ctx, layer, direction, reset_after)
        inputs = [
            _projection(ctx, layer, direction, bias),
            ctx.transpose(_row(ctx, layer.r, direction), (1, 0)),
            _state(ctx, node, layer, 5, direction),
            *([own] if own is not None else []),
            *_lengths(ctx, layer),
        ]
        functions = _functions(node, ("Sigmoid", "Tanh"), direction, len(layer.directions))
        attrs = _common(node, functions, layer, reverse)
        results.append(ctx.emit_all("gru", inputs, **attrs, reset_after=reset_after))
    return _outputs(ctx, node, layer, results)


def _gru_biases(
    ctx: NodeContext, layer: Layer, direction: int, reset_after: bool
) -> tuple[Value | None, Value | None]:
    """The bias that goes with the input's product, and the candidate's own recurrent bias, which
    the reset gate scales when it acts after the product."""
    biases = _biases(ctx, layer, direction)
    if biases is None:
        return None, ctx.full([layer.hidden], 0.0, layer.x.dtype) if reset_after else None
    outer, inner = biases
    if not reset_after:
        return _sum(ctx, outer, inner), None
    two = canonical(as_expr(layer.hidden) * 2)
    gates = _sum(ctx, ctx.slice(outer, 0, 0, two), ctx.slice(inner, 0, 0, two))
    rest = ctx.slice(outer, 0, two, layer.hidden)
    known, other = ctx.known_constant(gates), ctx.known_constant(rest)
    if known is not None and other is not None:
        bias = ctx.constant(np.concatenate([known, other]))
    else:
        bias = ctx.emit("concat", [gates, rest], axis=0)
    return bias, ctx.slice(inner, 0, two, layer.hidden)


def rnn(ctx: NodeContext, node: OnnxNode) -> list[Value]:
    layer, results = _layer(ctx, node, 1), []
    for direction, reverse in enumerate(layer.directions):
        biases = _biases(ctx, layer, direction)
        inputs = [
            _projection(ctx, layer, direction, _sum(ctx, *biases) if biases else None),
            ctx.transpose(_row(ctx, layer.r, direction), (1, 0)),
            _state(ctx, node, layer, 5, direction),
            *_lengths(ctx, layer),
        ]
        functions = _functions(node, ("Tanh",), direction, len(layer.directions))
        results.append(ctx.emit_all("rnn", inputs, **_common(node, functions, layer, reverse)))
    return _outputs(ctx, node, layer, results)


IMPORTERS: dict[str, Importer] = {
    "GRU": gru,
    "LSTM": lstm,
    "RNN": rnn,
}
