"""Reading scalar expressions, dimensions and types back from their text form."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilewright.base.dtype import DTYPES, DType, bool_, index
from tilewright.base.errors import CompileError
from tilewright.base.identifiers import name_of
from tilewright.ir.expr import (
    DRAM,
    INFIX,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Dim,
    Expr,
    Load,
    Opaque,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_dim,
    const,
)
from tilewright.ir.lanes import Across, Branch, Lane, Lookup, Masked, Shuffle
from tilewright.ir.text.source import Source, number


class ExprReader(Source):
    """Reads expressions; `scalars` and `buffers` say what identifiers stand for where it is."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.scalars: dict[str, Expr] = {}
        self.buffers: dict[str, Buffer] = {}

    def expr(self, node: ast.AST) -> Expr:
        read = _EXPR.get(type(node))
        if read is None:
            expected = _INSTEAD.get(type(node), "an expression")
            raise self.error(node, "this is not an expression of the text form", expected)
        return read(self, node)

    def dim(self, node: ast.AST) -> Dim:
        """A dimension, extent or size."""
        e = self.expr(node)
        if e.dtype != index:
            raise self.error(node, f"a dimension is of type {e.dtype}", f"type {index}")
        return as_dim(e)

    # ---------------------------------------------------------- declarations

    def scalar(self, at: ast.AST, text: str) -> Var:
        """A new variable called by this identifier."""
        if text in self.scalars:
            raise self.error(at, f"{name_of(text)!r} is defined already", "another name")
        made = self.scalars[text] = Var(name_of(text))
        return made

    def buffer(self, at: ast.AST, text: str, kind: ast.AST) -> Buffer:
        """A new buffer called by this identifier, of the type that `kind` gives."""
        if text in self.buffers:
            raise self.error(at, f"{name_of(text)!r} is defined already", "another name")
        return self.buffers.setdefault(text, Buffer(name_of(text), *self.buffer_type(kind)))

    def role(self, param: ast.arg, *roles: str) -> tuple[str, ast.expr]:
        """Which of some roles a parameter has ("in": none of them), and its type."""
        kind, form = param.annotation, " or ".join(["name: type", *(f"{r}(type)" for r in roles)])
        if kind is None:
            raise self.error(param, "a parameter has no type", form)
        if not isinstance(kind, ast.Call):
            return "in", kind
        text, call = self.call(kind, form)
        if text not in roles:
            raise self.error(param, "this is not a parameter", form)
        self.no_keywords(call, form)
        return text, self.arguments(call, form, 1, 1)[0]

    def symbols(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Reads the lines `n = symbol(lower, upper)` that `body` starts with; gives the others."""
        for position, stmt in enumerate(body):
            if not _is_symbol(stmt):
                return body[position:]
            assert isinstance(stmt, ast.Assign)
            assert isinstance(stmt.value, ast.Call)
            text = self.identifier(stmt.targets[0], "a symbol")
            form = "symbol(lower) or symbol(lower, upper)"
            self.no_keywords(stmt.value, form)
            bounds = [self.integer(a, "a bound") for a in self.arguments(stmt.value, form, 1, 2)]
            if text in self.scalars:
                raise self.error(stmt, f"{name_of(text)!r} is defined already", "another name")
            self.scalars[text] = Symbol(name_of(text), *bounds)
        return []

    # ---------------------------------------------------------- types

    def dtype(self, node: ast.AST) -> DType:
        if not isinstance(node, ast.Name) or node.id not in DTYPES:
            name = node.id if isinstance(node, ast.Name) else "…"
            raise self.unknown(node, "scalar type", name, list(DTYPES))
        return DTYPES[node.id]

    def shaped(self, node: ast.AST) -> tuple[DType, tuple[Dim, ...]]:
        """f32[4, n]"""
        if not isinstance(node, ast.Subscript):
            raise self.error(node, "this is not a type", "a type such as f32[4, n]")
        return self.dtype(node.value), tuple(self.dim(d) for d in _subscripts(node))

    def buffer_type(self, node: ast.AST) -> tuple[DType, tuple[Dim, ...], str]:
        """f32[4, n], or f32[4, n] @ "sram" """
        memory = DRAM
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            memory, node = self.string(node.right, "a memory's name"), node.left
        return (*self.shaped(node), memory)

    # ---------------------------------------------------------- parts of statements

    def place(self, node: ast.AST) -> tuple[Buffer, tuple[Expr, ...]]:
        """x[i, j], what a statement writes"""
        if not isinstance(node, ast.Subscript):
            raise self.error(node, "this is not an element of a buffer", "an element such as x[i]")
        load = _read_load(self, node)
        return load.buffer, load.indices

    def operator(self, node: ast.AST) -> BinaryOp:
        """The name of an operator of two operands."""
        name = self.name(node, "an operator")
        if name not in _BINARY_OPS:
            raise self.unknown(node, "operator", name, list(_BINARY_OPS))
        return _BINARY_OPS[name]


def _is_symbol(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Name)
        and stmt.value.func.id == "symbol"
    )


def _subscripts(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


# ---------------------------------------------------------------- expressions


def _read_constant(r: ExprReader, node: ast.Constant) -> Expr:
    if type(node.value) is bool:
        return const(node.value, bool_)
    return _constant(r, node, node.value, index) if type(node.value) is int else _odd(r, node)


def _odd(r: ExprReader, node: ast.Constant) -> Expr:
    if isinstance(node.value, float):
        raise r.error(node, "a number has no type", f"its type in front, such as f32({node.value})")
    raise r.error(node, "this is not an expression of the text form", "an expression")


def _constant(r: ExprReader, node: ast.AST, value: float, dtype: DType) -> Expr:
    try:
        return const(value, dtype)
    except CompileError as error:
        raise r.error(node, error.what) from None


def _read_name(r: ExprReader, node: ast.Name) -> Expr:
    if node.id not in r.scalars:
        if node.id in r.buffers:
            raise r.error(node, f"{node.id!r} is a buffer", f"an element such as {node.id}[i]")
        raise r.unknown(node, "variable", name_of(node.id), list(r.scalars))
    return r.scalars[node.id]


def _read_unary(r: ExprReader, node: ast.UnaryOp) -> Expr:
    if isinstance(node.op, ast.USub):
        value = number(node)
        if type(value) is int:
            return _constant(r, node, value, index)
        return Unary(UnaryOp.NEG, r.expr(node.operand))
    if isinstance(node.op, ast.Invert):
        return Unary(UnaryOp.NOT, r.expr(node.operand))
    raise r.error(node, "this operator is not in the text form", "- or ~ (also for `not`)")


def _read_binary(r: ExprReader, node: ast.BinOp) -> Expr:
    op = _AST_BINARY.get(type(node.op))
    if op is None:
        raise r.error(node, "this operator is not in the text form", f"one of {' '.join(INFIX)}")
    return Binary(op, *_pair(r, node, node.left, node.right))


def _read_compare(r: ExprReader, node: ast.Compare) -> Expr:
    op = _AST_COMPARE.get(type(node.ops[0]))
    if op is None or len(node.ops) > 1:
        known = " ".join(o.value for o in CompareOp)
        raise r.error(node, "this comparison is not in the text form", f"a {known.split()[2]} b, …")
    return Compare(op, *_pair(r, node, node.left, node.comparators[0]))


def _pair(r: ExprReader, at: ast.AST, left: ast.AST, right: ast.AST) -> tuple[Expr, Expr]:
    """Two operands of one type."""
    a, b = r.expr(left), r.expr(right)
    if a.dtype != b.dtype:
        raise r.error(at, f"the operands are {a.dtype} and {b.dtype}", "operands of one type")
    return a, b


def _read_load(r: ExprReader, node: ast.Subscript) -> Load:
    text = r.identifier(node.value, "a buffer")
    buffer = r.buffers.get(text)
    if buffer is None:
        raise r.unknown(node, "buffer", name_of(text), list(r.buffers))
    indices = tuple(r.expr(i) for i in _subscripts(node))
    if len(indices) != len(buffer.shape):
        what = f"{len(indices)} subscripts for a buffer of {len(buffer.shape)} dimensions"
        raise r.error(node, what, f"an element of {buffer}")
    return Load(buffer, indices)


# ---------------------------------------------------------------- functions


def _read_call(r: ExprReader, node: ast.Call) -> Expr:
    text, _ = r.call(node, "a function of the text form")
    if text in DTYPES:
        return _read_typed(r, node, DTYPES[text])
    if text == "opaque":
        return _read_opaque(r, node)
    if text not in _FUNCTIONS:
        raise r.unknown(node, "function", text, list(_FUNCTIONS))
    form, read = _FUNCTIONS[text]
    r.no_keywords(node, form)
    count = form.count(",") + 1
    return read(r, node, *r.arguments(node, form, count, count))


def _read_typed(r: ExprReader, node: ast.Call, dtype: DType) -> Expr:
    form = f"{dtype}(number)"
    r.no_keywords(node, form)
    value = number(*r.arguments(node, form, 1, 1))
    if value is None:
        raise r.error(node.args[0], "this is not a number", f"{form}, or cast({dtype}, …)")
    return _constant(r, node, value, dtype)


def _read_select(r: ExprReader, node: ast.Call, *args: ast.expr) -> Expr:
    return Select(r.expr(args[0]), *_pair(r, node, args[1], args[2]))


def _read_cast(r: ExprReader, node: ast.Call, dtype: ast.expr, a: ast.expr) -> Expr:
    return Cast(r.dtype(dtype), r.expr(a))


def _read_bitcast(r: ExprReader, node: ast.Call, dtype: ast.expr, a: ast.expr) -> Expr:
    return Bitcast(r.dtype(dtype), r.expr(a))


def _read_opaque(r: ExprReader, node: ast.Call) -> Expr:
    form = 'opaque("name", type, a, …)'
    r.no_keywords(node, form)
    name, dtype, *args = r.arguments(node, form, 2, max(2, len(node.args)))
    return Opaque(r.string(name, "a name"), r.dtype(dtype), tuple(map(r.expr, args)))


def _read_masked(r: ExprReader, node: ast.Call, mask: ast.expr, load: ast.expr) -> Expr:
    read = r.expr(load)
    if not isinstance(read, Load):
        raise r.error(load, "this is not an element of a buffer", "an element such as x[i]")
    return Masked(r.expr(mask), read)


def _read_shuffle(r: ExprReader, node: ast.Call, operands: ast.expr, places: ast.expr) -> Expr:
    form = "shuffle([a, b], [0, 1, 2])"
    if not (isinstance(operands, ast.List) and isinstance(places, ast.List) and operands.elts):
        raise r.error(node, "this is not a shuffle", form)
    values = tuple(map(r.expr, operands.elts))
    return Shuffle(values, tuple(r.integer(p, "a lane") for p in places.elts))


def _read_lookup(
    r: ExprReader, node: ast.Call, kind: ast.expr, entries: ast.expr, at: ast.expr
) -> Expr:
    dtype, values = r.dtype(kind), []
    for entry in entries.elts if isinstance(entries, ast.List) else [entries]:
        value = number(entry)
        if value is None:
            raise r.error(entry, "this is no entry of a table", "lookup(f32, [1.0, 2.0], place)")
        values.append(float(dtype.round(value)))
    return Lookup(tuple(values), dtype, r.expr(at))


def _unary_function(op: UnaryOp) -> tuple[str, Callable[..., Expr]]:
    return f"{op.value}(a)", lambda r, node, a: Unary(op, r.expr(a))


def _binary_function(op: BinaryOp) -> tuple[str, Callable[..., Expr]]:
    return f"{op.value}(a, b)", lambda r, node, a, b: Binary(op, *_pair(r, node, a, b))


_BINARY_OPS = {op.value: op for op in BinaryOp}
_FUNCTIONS: dict[str, tuple[str, Callable[..., Expr]]] = {
    **{op.value: _unary_function(op) for op in UnaryOp if op is not UnaryOp.NOT},
    **{op.value: _binary_function(op) for op in BinaryOp if op not in INFIX.values()},
    "select": ("select(condition, a, b)", _read_select),
    "cast": ("cast(type, a)", _read_cast),
    "bitcast": ("bitcast(type, a)", _read_bitcast),
    "lane": ("lane(count)", lambda r, node, count: Lane(r.integer(count, "a number of lanes"))),
    "masked": ("masked(mask, element)", _read_masked),
    "branch": (
        "branch(condition, a, b)",
        lambda r, node, cond, *sides: Branch(r.expr(cond), *_pair(r, node, *sides)),
    ),
    "across": ("across(operator, a)", lambda r, node, op, a: Across(r.operator(op), r.expr(a))),
    "shuffle": ("shuffle([a], [lanes])", _read_shuffle),
    "lookup": ("lookup(type, [entries], place)", _read_lookup),
}

_AST_BINARY = {
    ast.Add: BinaryOp.ADD,
    ast.Sub: BinaryOp.SUB,
    ast.Mult: BinaryOp.MUL,
    ast.Div: BinaryOp.DIV,
    ast.FloorDiv: BinaryOp.FLOORDIV,
    ast.Mod: BinaryOp.MOD,
    ast.BitAnd: BinaryOp.AND,
    ast.BitOr: BinaryOp.OR,
    ast.BitXor: BinaryOp.XOR,
    ast.LShift: BinaryOp.SHL,
    ast.RShift: BinaryOp.SHR,
}
_AST_COMPARE = {
    ast.Eq: CompareOp.EQ,
    ast.NotEq: CompareOp.NE,
    ast.Lt: CompareOp.LT,
    ast.LtE: CompareOp.LE,
    ast.Gt: CompareOp.GT,
    ast.GtE: CompareOp.GE,
}
_EXPR: dict[type, Callable[[ExprReader, Any], Expr]] = {
    ast.Constant: _read_constant,
    ast.Name: _read_name,
    ast.UnaryOp: _read_unary,
    ast.BinOp: _read_binary,
    ast.Compare: _read_compare,
    ast.Call: _read_call,
    ast.Subscript: _read_load,
}
_INSTEAD = {
    ast.BoolOp: "& for `and`, | for `or`",
    ast.IfExp: "select(condition, a, b)",
}
