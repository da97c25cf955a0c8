"""Nodes that do nothing, or the same as a simpler one: exact rewrites, as a table of rules.

A rule looks at one node and gives the value that its result equals, or a node to take its place,
or None. Exact means to the bit: x + 0.0 stays, since it turns -0.0 into 0.0; x + -0.0 goes. A few
rules, which say so, take a function written out for the function: the same real number for every x,
of which the result keeps more bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.ir.dims import canonical
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import NoAttrs, widened
from tilewright.ops.elementwise import ClipAttrs
from tilewright.ops.function import scalar_value
from tilewright.ops.movement import AxisAttrs, ReshapeAttrs, SliceAttrs, TransposeAttrs
from tilewright.ops.table import op as op_named
from tilewright.optimize.edit import fresh_names, rebuild, resolve, with_inputs

WHOLE = 1 << 16  # elements: larger constants are not searched for neutral elements


@dataclass
class RuleView:
    """What a rule may look at: the nodes before this one, as simplified so far, and constants."""

    constants: dict[Value, np.ndarray]
    fresh: Callable[[str], str]
    producers: dict[Value, GraphNode] = field(default_factory=dict)
    added: list[GraphNode] = field(default_factory=list)  # to stand before the node looked at

    def made_by(self, value: Value, op: str) -> GraphNode | None:
        """The node that makes `value`, if its operator is `op`."""
        n = self.producers.get(value)
        return n if n is not None and n.op.name == op else None

    def number(self, value: Value) -> float | int | bool | None:
        """The one number that all elements of a constant are, if that is so."""
        array = self.constants.get(value)
        if array is None or not 0 < array.size <= WHOLE:
            return None
        flat = np.ascontiguousarray(array).reshape(-1)
        bits = flat.view(f"u{array.itemsize}")  # so that NaN is a number like others
        return scalar_value(flat, value.dtype) if bool((bits == bits[0]).all()) else None

    def add_node(self, like: GraphNode, op: str, attrs: Attrs, *inputs: Value) -> Value:
        """A new node, whose result has the type of that of `like`."""
        value = Value(self.fresh(like.outputs[0].name), like.outputs[0].type)
        self.added.append(replace(_instead(like, op, attrs, *inputs), outputs=(value,)))
        return value

    def add_constant(self, array: np.ndarray, like: Value) -> Value:
        """A new constant with the type of `like`."""
        value = Value(self.fresh(like.name), like.type)
        self.constants[value] = array
        return value


Rule = Callable[[GraphNode, RuleView], "Value | GraphNode | None"]


def simplify_nodes(graph: Graph) -> Graph:
    """Applies the rules to every node, operands before users, until none fits."""
    view = RuleView(dict(graph.constants), fresh_names(graph))
    replaced: dict[Value, Value] = {}
    kept: list[GraphNode] = []
    for original in graph.nodes:
        n = with_inputs(original, [resolve(v, replaced) for v in original.inputs])
        found = _apply(n, view)
        while isinstance(found, GraphNode):
            n = found
            found = _apply(n, view)
        if found is not None:
            replaced[n.outputs[0]] = found
            continue
        for made in (*view.added, n):
            kept.append(made)
            view.producers |= dict.fromkeys(made.outputs, made)
        view.added.clear()
    return rebuild(graph, kept, replaced=replaced, constants=view.constants)


def _apply(n: GraphNode, view: RuleView) -> Value | GraphNode | None:
    rules = RULES.get(n.op.name, ())
    for rule in (*rules, *(ELEMENTWISE if n.op.elementwise else ())):
        found = rule(n, view)
        # A rule decides about elements; that shape, type and layout are kept too is checked here.
        if isinstance(found, GraphNode) or (found is not None and found.type == n.outputs[0].type):
            return found
    return None


def _instead(n: GraphNode, op: str, attrs: Attrs, *inputs: Value) -> GraphNode:
    return replace(n, op=op_named(op), attrs=attrs, inputs=inputs)


# ---------------------------------------------------------------- movement


def no_op_movement(n: GraphNode, view: RuleView) -> Value | None:
    """Movement that moves nothing -> its operand, for operators that cannot permute elements."""
    return n.inputs[0]


def same_slice(n: GraphNode, view: RuleView) -> Value | None:
    """slice of everything, in order -> x."""
    attrs = n.attrs_of(SliceAttrs)
    whole = all(canonical(s) == 0 for s in attrs.starts) and all(s == 1 for s in attrs.steps)
    return n.inputs[0] if whole else None


def gather_of_steps(n: GraphNode, view: RuleView) -> GraphNode | None:
    """gather at places that are equally far apart, one after the other -> slice."""
    x, places = n.inputs
    array, axis = view.constants.get(places), n.attrs_of(AxisAttrs).axis % x.type.rank
    extent = x.shape[axis]
    if array is None or array.ndim != 1 or array.size == 0 or not isinstance(extent, int):
        return None
    at = array.astype(np.int64)  # whose differences do not wrap
    at = np.where(at < 0, at + extent, at)  # from the end
    steps = np.diff(at)
    step = int(steps[0]) if steps.size else 1
    if step == 0 or not (steps == step).all() or at.min() < 0 or at.max() >= extent:
        return None
    starts, by = [0] * x.type.rank, [1] * x.type.rank
    starts[axis], by[axis] = int(at[0]), step
    return _instead(n, "slice", SliceAttrs(tuple(starts), n.outputs[0].shape, tuple(by)), x)


def transpose_in_place(n: GraphNode, view: RuleView) -> Value | GraphNode | None:
    """transpose that leaves the axes longer than 1 in order -> x, or a reshape of it."""
    x, perm = n.inputs[0], n.attrs_of(TransposeAttrs).perm
    if perm == tuple(range(len(perm))):
        return x
    moved = [a for a in perm if x.shape[a] != 1]
    if moved != sorted(moved) or x.type.layout or n.outputs[0].type.layout:
        return None
    return _instead(n, "reshape", ReshapeAttrs(n.outputs[0].shape), x)


def transpose_of_transpose(n: GraphNode, view: RuleView) -> GraphNode | None:
    """transpose(transpose(x, p), q) -> transpose(x, p[q])."""
    inner = view.made_by(n.inputs[0], "transpose")
    if inner is None:
        return None
    first, second = inner.attrs_of(TransposeAttrs).perm, n.attrs_of(TransposeAttrs).perm
    perm = tuple(first[a] for a in second)
    return _instead(n, "transpose", TransposeAttrs(perm), inner.inputs[0])


def outer_decides(n: GraphNode, view: RuleView) -> GraphNode | None:
    """f(f(x)) -> f(x) with the outer attributes: reshape, relayout, expand."""
    inner = view.made_by(n.inputs[0], n.op.name)
    return None if inner is None else with_inputs(n, inner.inputs)


# ---------------------------------------------------------------- arithmetic


def inverse_of_itself(n: GraphNode, view: RuleView) -> Value | None:
    """f(f(x)) -> x: neg, not."""
    inner = view.made_by(n.inputs[0], n.op.name)
    return None if inner is None else inner.inputs[0]


def idempotent(n: GraphNode, view: RuleView) -> Value | None:
    """f(f(x)) -> f(x): abs, relu, round, floor, ceil."""
    return n.inputs[0] if view.made_by(n.inputs[0], n.op.name) else None


def same_cast(n: GraphNode, view: RuleView) -> Value | None:
    """cast to the type it has -> x."""
    return n.inputs[0]


def unbounded_clip(n: GraphNode, view: RuleView) -> Value | None:
    """clip without limits -> x."""
    attrs = n.attrs_of(ClipAttrs)
    return n.inputs[0] if attrs.low is None and attrs.high is None else None


def _neutral(value: float, *, sign: str = "", either: bool = True) -> Rule:
    """x op value -> x (with `either`, value op x too); `sign` is that of a float zero."""

    def is_neutral(number: float | int | bool | None, is_float: bool) -> bool:
        if number is None or isinstance(number, bool) or number != value:
            return False
        return not sign or not is_float or (str(float(number)).startswith("-") == (sign == "-"))

    def rule(n: GraphNode, view: RuleView) -> Value | None:
        x, y = n.inputs
        for one, other in ((x, y), (y, x)) if either else ((x, y),):
            if is_neutral(view.number(other), other.dtype.is_float):
                return one if one.type == n.outputs[0].type else None
        return None

    rule.__name__ = f"neutral_{value}"
    return rule


def square(n: GraphNode, view: RuleView) -> GraphNode | None:
    """pow(x, 2) -> x * x."""
    x, y = n.inputs
    fits = view.number(y) == 2 and x.type == n.outputs[0].type
    return _instead(n, "mul", NoAttrs(), x, x) if fits else None


def cube(n: GraphNode, view: RuleView) -> GraphNode | None:
    """pow(x, 3) -> x * x * x. The one rule that may change a last bit: no library's pow is exact
    to it either, and all take many times as long. Of short floats the square would be rounded."""
    x, y = n.inputs
    if view.number(y) != 3 or x.type != n.outputs[0].type or widened(x.dtype) != x.dtype:
        return None
    return _instead(n, "mul", NoAttrs(), view.add_node(n, "mul", NoAttrs(), x, x), x)


def _one_and(view: RuleView, total: Value) -> Value | None:
    """x, of a value that is 1 + x or x + 1 and has x's type."""
    made = view.made_by(total, "add")
    for one, x in (made.inputs, made.inputs[::-1]) if made is not None else ():
        if view.number(one) == 1 and x.type == total.type and x.dtype.is_float:
            return x
    return None


def log_of_one_and(n: GraphNode, view: RuleView) -> GraphNode | None:
    """log(1 + x) -> log1p(x): what 1 + x loses of a small x is kept. Softplus written out."""
    x = _one_and(view, n.inputs[0])
    return None if x is None else _instead(n, "log1p", NoAttrs(), x)


def exp_minus_one(n: GraphNode, view: RuleView) -> GraphNode | None:
    """exp(x) - 1 -> expm1(x): near 0 nothing cancels. ELU written out."""
    x, y = n.inputs
    power = view.made_by(x, "exp")
    if power is None or view.number(y) != 1 or x.type != n.outputs[0].type:
        return None
    return _instead(n, "expm1", NoAttrs(), power.inputs[0])


def logistic(n: GraphNode, view: RuleView) -> GraphNode | None:
    """1 / (1 + exp(-x)) -> sigmoid(x)."""
    power = _one_and(view, n.inputs[1])
    if power is None or view.number(n.inputs[0]) != 1 or power.type != n.outputs[0].type:
        return None
    made = view.made_by(power, "exp")
    negated = None if made is None else view.made_by(made.inputs[0], "neg")
    if negated is None:
        return None
    return _instead(n, "sigmoid", NoAttrs(), negated.inputs[0])


def exact_reciprocal(n: GraphNode, view: RuleView) -> GraphNode | None:
    """x / c -> x * (1 / c) for constants whose reciprocals are exact (powers of two): both are
    then one real number, rounded once."""
    x, y = n.inputs
    array = view.constants.get(y)
    if array is None or not y.dtype.is_float or array.size > WHOLE:
        return None
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        inverse = (1.0 / wide).astype(array.dtype)
        exact = (np.abs(np.frexp(wide)[0]) == 0.5) & (inverse.astype(np.float64) * wide == 1.0)
    if not bool(exact.all()):
        return None
    return _instead(n, "mul", NoAttrs(), x, view.add_constant(inverse, y))


def choose_known(n: GraphNode, view: RuleView) -> Value | None:
    """where(true, x, y) -> x; where(false, x, y) -> y."""
    condition = view.number(n.inputs[0])
    return None if condition is None else n.inputs[1 if condition else 2]


def read_through_expand(n: GraphNode, view: RuleView) -> GraphNode | None:
    """x op expand(y) -> x op y, where broadcasting gives the same shape."""
    inputs = []
    for v in n.inputs:
        inner = view.made_by(v, "expand")
        inputs.append(v if inner is None else inner.inputs[0])
    if all(a is b for a, b in zip(inputs, n.inputs, strict=True)):
        return None
    for candidate in (inputs, *_one_at_a_time(n, inputs)):
        if _types(n, candidate) == [v.type for v in n.outputs]:
            return with_inputs(n, candidate)
    return None


def _one_at_a_time(n: GraphNode, inputs: list[Value]) -> list[list[Value]]:
    """The node's own operands with just one of them exchanged: when all together lose an axis."""
    return [
        [*n.inputs[:i], v, *n.inputs[i + 1 :]] for i, v in enumerate(inputs) if v is not n.inputs[i]
    ]


def _types(n: GraphNode, inputs: list[Value]) -> list[TensorType]:
    layouts = [v.type.layout for v in n.outputs]
    try:
        types = n.op.infer(n.attrs, [v.type.with_(layout=None) for v in inputs])
    except ModelError:
        return []
    return [t.with_(layout=layout) for t, layout in zip(types, layouts, strict=True)]


RULES: dict[str, tuple[Rule, ...]] = {
    "transpose": (transpose_in_place, transpose_of_transpose),
    "reshape": (no_op_movement, outer_decides),
    "relayout": (no_op_movement, outer_decides),
    "expand": (no_op_movement, outer_decides),
    "pad": (no_op_movement,),  # equal shapes: nothing was added
    "tile": (no_op_movement,),
    "concat": (no_op_movement,),
    "slice": (same_slice,),
    "gather": (gather_of_steps,),
    "cast": (same_cast,),
    "clip": (unbounded_clip,),
    "neg": (inverse_of_itself,),
    "not": (inverse_of_itself,),
    "abs": (idempotent,),
    "relu": (idempotent,),
    "round": (idempotent,),
    "floor": (idempotent,),
    "ceil": (idempotent,),
    "add": (_neutral(0, sign="-"),),
    "sub": (_neutral(0, sign="+", either=False), exp_minus_one),
    "mul": (_neutral(1),),
    "div": (_neutral(1, either=False), exact_reciprocal, logistic),
    "log": (log_of_one_and,),
    "pow": (_neutral(1, either=False), square, cube),
    "where": (choose_known,),
}
ELEMENTWISE: tuple[Rule, ...] = (read_through_expand,)
