"""What importers of single operators work with: emitting our operators, reading known contents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx

from tilewright.base.dtype import DType
from tilewright.base.errors import ContentsError, ModelError
from tilewright.frontends.builder import GraphBuilder
from tilewright.frontends.contents import as_dims
from tilewright.frontends.onnx.node import OnnxNode, Scope
from tilewright.frontends.onnx.tensor import Files, to_array
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, Expr, Symbol, as_expr, product
from tilewright.ir.graph import Value
from tilewright.ops.common import widened

Result = Value | Sequence[Value | None]
Importer = Callable[["NodeContext", OnnxNode], Result]
FIX_DIMS = "fix symbolic dimensions with dims= (--dim NAME=NUMBER)"
FOLD = ", or fold constants when exporting the model"

RunGraph = Callable[[onnx.GraphProto, Scope, Sequence[Value]], list[Value]]


class NodeContext:
    """The graph under construction, and the node that is being imported.

    `run_graph(graph, scope, inputs)` inlines a nested graph. With `half_up`, quantisation rounds
    halves up instead of to even, as chips do that shift.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        files: Files,
        run_graph: RunGraph,
        *,
        half_up: bool = False,
    ) -> None:
        self.builder = builder
        self.files = files
        self.run_graph = run_graph
        self.half_up = half_up
        self.node_name = ""
        self._counted: dict[object, tuple[Value, ...]] = {}

    # ------------------------------------------------------------ emitting

    def emit(self, op: str, inputs: Sequence[Value], **attrs: object) -> Value:
        """A node with one output."""
        (output,) = self.builder.emit(op, inputs, attrs, self.node_name)
        return output

    def emit_all(self, op: str, inputs: Sequence[Value], **attrs: object) -> tuple[Value, ...]:
        """A node with several outputs."""
        return self.builder.emit(op, inputs, attrs, self.node_name)

    def constant(self, array: object, dtype: DType | None = None) -> Value:
        return self.builder.constant(np.asarray(array, None if dtype is None else dtype.numpy))

    def scalar(self, value: float, like: Value) -> Value:
        """A number of `like`'s element type."""
        return self.constant(np.asarray(value).astype(like.dtype.numpy))

    def emit_counted(self, op: str, inputs: Sequence[Value], **attrs: object) -> tuple[Value, ...]:
        """A node whose outputs have as many elements as the contents of `inputs` say: a new symbol,
        `count`. Of the same inputs it is the same node, so that what two masks of one condition
        leave has one size."""
        key = (op, tuple(inputs), tuple(sorted(attrs.items())))
        if key not in self._counted:
            self._counted[key] = self.emit_all(op, inputs, count=self.new_symbol(), **attrs)
        return self._counted[key]

    def cast(self, x: Value, to: DType) -> Value:
        return x if x.dtype == to else self.emit("cast", [x], to=to)

    def rounded(self, x: Value) -> Value:
        """The nearest whole numbers, in the model's mode of rounding."""
        if not self.half_up:
            return self.emit("round", [x])
        return self.emit("floor", [self.emit("add", [x, self.scalar(0.5, x)])])

    def widened(self, x: Value) -> Value:
        """Short floats as f32, in which several steps are computed before the result is rounded."""
        return self.cast(x, widened(x.dtype))

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """`x` under another shape; a constant is reshaped at once."""
        shape = tuple(canonical(d) for d in shape)
        if shape == x.shape:
            return x
        array = self.known_constant(x)
        if array is not None and number_of(shape) == array.size:
            return self.constant(array.reshape(shape))
        return self.emit("reshape", [x], shape=shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` with its axes in another order; a constant is transposed at once."""
        if list(perm) == list(range(len(perm))):
            return x
        array = self.known_constant(x)
        if array is not None:
            return self.constant(np.ascontiguousarray(array.transpose(perm)))
        return self.emit("transpose", [x], perm=tuple(perm))

    def slice(self, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
        """Elements along one axis."""
        if not 0 <= axis < x.type.rank:
            raise ModelError(f"an operand is {x.type}, which has no axis {axis}")
        starts: list[Dim] = [0] * x.type.rank
        sizes, steps = list(x.shape), [1] * x.type.rank
        starts[axis], sizes[axis], steps[axis] = start, canonical(size), step
        array = self.known_constant(x)
        if array is not None and isinstance(start, int) and isinstance(size, int) and step > 0:
            cut = [slice(None)] * x.type.rank
            cut[axis] = slice(start, start + size * step, step)
            return self.constant(np.ascontiguousarray(array[tuple(cut)]))
        return self.emit("slice", [x], starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))

    def expand(self, x: Value, shape: Sequence[Dim]) -> Value:
        shape = tuple(canonical(d) for d in shape)
        return x if shape == x.shape else self.emit("expand", [x], shape=shape)

    def full(self, shape: Sequence[Dim], value: float, dtype: DType) -> Value:
        return self.emit("full", [], shape=tuple(shape), value=value, dtype=dtype)

    def dims(self, values: Sequence[Dim]) -> Value:
        """Dimensions as an i64 vector: a constant if they are numbers."""
        values = [canonical(v) for v in values]
        if all(isinstance(v, int) for v in values):
            return self.constant(np.array(values, np.int64))
        return self.emit("dims", [], values=tuple(values))

    def chain(self, op: str, values: Sequence[Value]) -> Value:
        """values[0] op values[1] op …"""
        result = values[0]
        for value in values[1:]:
            result = self.emit(op, [result, value])
        return result

    def new_symbol(self) -> Symbol:
        """A dimension that depends on data."""
        return Symbol(self.builder.names.fresh(f"{self.node_name}_count"), 0)

    # ------------------------------------------------------------ known contents

    def known_constant(self, value: Value) -> np.ndarray | None:
        """The elements of what is a constant already."""
        return self.builder.contents(value) if self.builder.is_constant(value) else None

    def known(self, value: Value) -> np.ndarray | None:
        """The elements, if they are numbers known while importing."""
        array = self.builder.contents(value)
        return None if array is None or array.dtype == object else array

    def need(self, value: Value, what: str) -> np.ndarray:
        """The elements, which must be numbers known while importing."""
        array = self.builder.contents(value)
        if array is None:
            raise self._unknown_contents(value, what)
        if array.dtype == object:
            raise _unknown_dims(array.flat, what)
        return array

    def need_dims(self, value: Value, what: str) -> list[Dim]:
        """The elements of an integer tensor, which may be symbolic dimensions."""
        array = self.builder.contents(value)
        if array is None:
            raise self._unknown_contents(value, what)
        if not value.dtype.is_integer:
            raise ModelError(f"{what} must be integers, not {value.dtype}")
        return as_dims(array)

    def need_ints(self, value: Value, what: str) -> list[int]:
        """The elements of an integer tensor, which must be numbers."""
        dims = self.need_dims(value, what)
        if any(isinstance(d, Expr) for d in dims):
            raise _unknown_dims(dims, what)
        return [int(d) for d in dims]

    def need_number(self, value: Value, what: str) -> float | int | bool:
        """The one element of a tensor."""
        array = self.need(value, what)
        if array.size != 1:
            raise ModelError(f"{what} has {array.size} elements, where one is needed")
        number = array.reshape(())
        if value.dtype.is_float:
            return float(number)
        return int(number) if value.dtype.is_integer else bool(number)

    def need_dim(self, value: Value, what: str) -> Dim:
        """The one element of an integer tensor, which may be a symbolic dimension."""
        dims = self.need_dims(value, what)
        if len(dims) != 1:
            raise ModelError(f"{what} has {len(dims)} elements, where one is needed")
        return dims[0]

    def need_int(self, value: Value, what: str) -> int:
        """The one element of an integer tensor, which must be a number."""
        dim = self.need_dim(value, what)
        if isinstance(dim, Expr):
            raise _unknown_dims([dim], what)
        return dim

    def _unknown_contents(self, value: Value, what: str) -> ContentsError:
        inputs, symbols = self.builder.sources(value)
        hint = FIX_DIMS + FOLD
        if inputs:
            names = ", ".join(map(repr, inputs))
            option = " ".join(f"--value {name}=FILE.npy" for name in inputs)
            hint = f"fix what {names} holds with values= ({option}){FOLD}"
        return ContentsError(
            f"{what} is computed from the model's inputs, but must be known while importing",
            inputs=inputs,
            symbols=symbols,
            hint=hint,
        )

    def ints(self, node: OnnxNode, name: str, position: int, since: int) -> tuple[int, ...] | None:
        """Integers that are an attribute before opset `since` and an input from then on."""
        if node.opset < since:
            return node.ints(name) if node.has(name) else None
        value = node.optional(position)
        return None if value is None else tuple(self.need_ints(value, name))

    def array(self, tensor: onnx.TensorProto, what: str) -> np.ndarray:
        return to_array(tensor, self.files, what)


def rounds_once(compose: Callable[[NodeContext, OnnxNode, Value], Value]) -> Importer:
    """The importer of an operator that `compose(ctx, node, x)` makes of several. Each of them
    rounds to its operands' type, so short floats are f32 in between, and the result is rounded to
    the type of the node's first input."""

    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        x = node.input(0)
        return ctx.cast(compose(ctx, node, ctx.widened(x)), x.dtype)

    return importer


def _unknown_dims(dims: Iterable[object], what: str) -> ContentsError:
    symbols = {
        s.name for d in dims if isinstance(d, Expr) for s in d.walk() if isinstance(s, Symbol)
    }
    return ContentsError(
        f"{what} depends on a symbolic dimension, but must be known while importing",
        symbols=tuple(sorted(symbols)),
        hint=FIX_DIMS + FOLD,
    )


def number_of(shape: Sequence[Dim]) -> Dim:
    """How many elements a shape has."""
    return canonical(as_expr(product(tuple(shape))))


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis."""
    if not -rank <= axis < rank:
        raise ModelError(f"{what} {axis} of a tensor with {rank} dimensions")
    return axis + rank if axis < 0 else axis


def cut_of(axis: int, rank: int) -> int:
    """Where a shape is cut in two: before an axis, or behind the last."""
    if not -rank <= axis <= rank:
        raise ModelError(f"axis {axis} of a tensor with {rank} dimensions")
    return axis + rank if axis < 0 else axis


def one_of(node: OnnxNode, name: str, default: str, known: Sequence[str]) -> str:
    """A string attribute that must be one of a few."""
    value = node.string(name, default)
    if value not in known:
        raise ModelError(
            f"the attribute {name} is {value!r}", hint="it must be one of " + ", ".join(known)
        )
    return value
