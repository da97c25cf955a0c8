"""Tensor expressions: what an operator computes, as index formulas.

    program = inputs, items, outputs
    item    = Stage: buffer[indices] = value                      for all axes
            | Stage: buffer[indices] = combine(value over reduce) for all axes
            | Scan:  for step in extent: items                    in order (recurrent state)

A stage defines elements of its buffer from buffers defined before it. Outside scans a buffer is
defined by one stage, with its axes as subscripts. Within a scan a stage may write at a subscript
that depends on the step, and read what earlier steps wrote.

`Builder` is how operators write these: `b.compute(...)`, `b.reduce(...)`, `b.scan(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.base.dtype import DType, index
from tilewright.base.errors import CompileError
from tilewright.base.identifiers import identifier
from tilewright.base.node import Node, node
from tilewright.ir.expr import COMBINERS, BinaryOp, Buffer, Const, Dim, Expr, Var, as_expr, const
from tilewright.ir.loop import (
    INDENT,
    format_buffer_type,
    format_parameters,
    format_place,
    format_symbols,
    symbols,
)


@node
class Axis(Node):
    """A loop variable with its extent."""

    var: Var
    extent: Dim


@node
class Stage(Node):
    """Defines `buffer[indices]` for all values of `axes`.

    With `op`, `value` is combined over all values of `reduce`, starting from `init` (the
    operator's neutral element by default; combined too, for zero iterations it is the result).
    """

    buffer: Buffer
    axes: tuple[Axis, ...]
    indices: tuple[Expr, ...]
    value: Expr
    reduce: tuple[Axis, ...] = ()
    op: BinaryOp | None = None
    init: Expr | None = None

    def start(self, op: BinaryOp) -> Expr:
        """What the values are combined with first, by its operator."""
        return neutral(op, self.value.dtype) if self.init is None else self.init


@node
class Scan(Node):
    """Runs `items` for step = 0 … extent - 1, in order."""

    step: Axis
    items: tuple[Item, ...]


Item = Stage | Scan


@node
class TensorProgram(Node):
    name: str
    inputs: tuple[Buffer, ...]
    items: tuple[Item, ...]
    outputs: tuple[Buffer, ...]
    finite: tuple[str, ...] = ()  # inputs, by name, that hold neither infinities nor NaN

    def __str__(self) -> str:
        return format_program(self)

    __repr__ = __str__


def neutral(op: BinaryOp, dtype: DType) -> Const:
    """The value that changes nothing under `op`: 0 for add, -inf (or the least) for max, …"""
    values = {
        BinaryOp.ADD: 0,
        BinaryOp.MUL: 1,
        BinaryOp.MIN: dtype.max,
        BinaryOp.MAX: dtype.min,
        BinaryOp.AND: -1 if dtype.is_signed else dtype.max,
        BinaryOp.OR: 0,
        BinaryOp.XOR: 0,
    }
    return const(values[op], dtype)


def stages(items: Sequence[Item]) -> list[Stage]:
    """All stages in order, those of scans included."""
    out: list[Stage] = []
    for item in items:
        out.extend([item] if isinstance(item, Stage) else stages(item.items))
    return out


class Builder:
    """Collects the items of one tensor program and keeps its names unique.

    Names come from the operator (`b.compute("exp", …)`); variables are named by position.
    """

    def __init__(self, taken: set[str] | None = None) -> None:
        self._taken: set[str] = set() if taken is None else taken
        self._items: list[Item] = []

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(self._items)

    def fresh(self, name: str) -> str:
        """`name`, with a number behind it if it is taken."""
        unique, n = name, 1
        while unique in self._taken:
            unique, n = f"{name}_{n}", n + 1
        self._taken.add(unique)
        return unique

    def axes(self, extents: Sequence[Dim], names: str) -> tuple[Axis, ...]:
        """New axes for the extents; `names` gives a letter for each, or one stem for all."""
        stems = (
            list(names)
            if len(names) == len(extents)
            else [f"{names[0]}{i}" for i in range(len(extents))]
        )
        return tuple(
            Axis(Var(self.fresh(stem)), extent) for stem, extent in zip(stems, extents, strict=True)
        )

    def compute(
        self,
        name: str,
        shape: Sequence[Dim],
        value: Callable[..., Expr],
        *,
        names: str = "i",
        into: tuple[Buffer, Callable[..., Sequence[Expr | int]]] | None = None,
    ) -> Buffer:
        """One element for each index of `shape`: value(*indices). Returns the new buffer, or with
        `into` = (buffer, place) writes buffer[place(*indices)]."""
        axes = self.axes(shape, names)
        variables = [a.var for a in axes]
        expr = as_expr(value(*variables))
        return self._add(name, axes, expr, into)

    def reduce(
        self,
        name: str,
        shape: Sequence[Dim],
        op: BinaryOp,
        over: Sequence[Dim],
        value: Callable[..., Expr],
        *,
        names: str = "i",
        over_names: str = "r",
        init: Expr | None = None,
        into: tuple[Buffer, Callable[..., Sequence[Expr | int]]] | None = None,
    ) -> Buffer:
        """Combines value(*indices, *over_indices) with `op` over all of `over`."""
        if op not in COMBINERS:
            raise CompileError(f"{op.value} cannot combine a reduction: it is not commutative")
        axes, inner = self.axes(shape, names), self.axes(over, over_names)
        expr = as_expr(value(*(a.var for a in axes + inner)))
        return self._add(name, axes, expr, into, inner, op, init)

    def state(self, name: str, shape: Sequence[Dim], dtype: DType) -> Buffer:
        """A buffer that scans and `into` fill; the first extent usually counts steps."""
        return Buffer(self.fresh(name), dtype, tuple(shape))

    def scan(self, extent: Dim, body: Callable[[Expr], None], *, name: str = "t") -> None:
        """Runs the stages that body(step) makes, for each step in order."""
        outer, self._items = self._items, []
        step = Axis(Var(self.fresh(name), index), extent)
        body(step.var)
        items, self._items = tuple(self._items), outer
        self._items.append(Scan(step, items))

    def _add(
        self,
        name: str,
        axes: tuple[Axis, ...],
        value: Expr,
        into: tuple[Buffer, Callable[..., Sequence[Expr | int]]] | None,
        reduce: tuple[Axis, ...] = (),
        op: BinaryOp | None = None,
        init: Expr | None = None,
    ) -> Buffer:
        variables = tuple(a.var for a in axes)
        if into is None:
            buffer = Buffer(self.fresh(name), value.dtype, tuple(a.extent for a in axes))
            indices: tuple[Expr, ...] = variables
        else:
            buffer = into[0]
            indices = tuple(as_expr(i) for i in into[1](*variables))
        if op is not None and init is None:
            init = neutral(op, value.dtype)
        if buffer.dtype != value.dtype:
            raise CompileError(f"{buffer} cannot hold a value of {value.dtype}: {value}")
        self._items.append(Stage(buffer, axes, indices, value, reduce, op, init))
        return buffer


# ---------------------------------------------------------------- printing


def format_program(program: TensorProgram) -> str:
    """Prints Python syntax, which ir/text/tensor.py parses back."""
    inputs = ", ".join(format_parameters(program.inputs, program.finite))
    head = f"def {identifier(program.name)}({inputs}):"
    lines = [head, *format_symbols(symbols(program))]
    declared = set(program.inputs)
    for item in program.items:
        lines += [INDENT + line for line in format_item(item, declared)]
    outputs = ", ".join(identifier(b.name) for b in program.outputs)
    return "\n".join([*lines, f"{INDENT}return {outputs}".rstrip()])


def format_item(item: Item, declared: set[Buffer]) -> list[str]:
    """The item's lines; buffers that are not in `declared` yet are declared before it."""
    lines = []
    for stage in stages([item]):
        if stage.buffer not in declared:
            declared.add(stage.buffer)
            name, kind = identifier(stage.buffer.name), format_buffer_type(stage.buffer)
            lines.append(f"{name} = tensor({kind})")
    if isinstance(item, Stage):
        return [*lines, format_stage(item)]
    lines.append(format_scan(item))
    inner = [line for i in item.items for line in format_item(i, declared)]
    return lines + [INDENT + line for line in inner or ["pass"]]


def format_scan(scan: Scan) -> str:
    """The line that its items are indented below."""
    return f"for {identifier(scan.step.var.name)} in scan({scan.step.extent}):"


def format_stage(stage: Stage) -> str:
    place, value = format_place(stage.buffer, stage.indices), str(stage.value)
    if stage.op is not None:
        over = _format_axes(stage.reduce)
        value = f"reduce({identifier(stage.op.value)}, {stage.init}, {value}{over})"
    return f"define({place}, {value}{_format_axes(stage.axes)})"


def _format_axes(axes: Sequence[Axis]) -> str:
    return "".join(f", {identifier(a.var.name)}={a.extent}" for a in axes)
