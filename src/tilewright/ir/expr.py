"""Scalar expressions, shared by tensor expressions, loop programs and host programs.

    expr = Const(value, dtype) | Var(name, dtype) | Symbol(name, lower, upper)
         | Unary(op, a) | Binary(op, a, b) | Compare(op, a, b) | Select(cond, a, b)
         | Cast(dtype, a) | Bitcast(dtype, a) | Load(buffer, indices) | Opaque(name, dtype, args)

What each operator means, to the bit, is docs/semantics.md. Subscripts, extents and loop variables
are `index` (i64). Python's operators build expressions; integer constants fold as they are built.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Union

from tilewright.base.dtype import DType, bool_, f32, index
from tilewright.base.errors import CompileError
from tilewright.base.identifiers import format_number, identifier, quote
from tilewright.base.node import Interned, enter_record, known_record, node

Dim = Union[int, "Expr"]
DRAM = "dram"  # the memory that kernels' parameters live in, unless they say otherwise


class _Operator(enum.Enum):
    """An enumeration whose members are hashed as objects are: by no Python code."""

    __hash__ = object.__hash__


class UnaryOp(_Operator):
    """Operators of one operand; the result has the operand's type, but for the tests (bool)."""

    NEG = "neg"
    NOT = "not"  # bitwise on integers, logical on bool
    ABS = "abs"
    SIGN = "sign"
    SQRT = "sqrt"
    EXP = "exp"
    EXPM1 = "expm1"  # exp(x) - 1
    LOG = "log"
    LOG1P = "log1p"  # log(1 + x)
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"  # 1 - erf(x)
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-x))
    GELU = "gelu"  # x times the normal distribution's share below x
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"  # half to even
    TRUNC = "trunc"
    ISNAN = "isnan"
    ISINF = "isinf"
    POPCOUNT = "popcount"


class BinaryOp(_Operator):
    """Operators of two operands of one type, which is also the result's."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats: IEEE division; integers: towards zero
    FLOORDIV = "floordiv"
    MOD = "mod"  # the sign of the divisor (floor)
    REM = "rem"  # the sign of the dividend (truncation), C's % and fmod
    MIN = "min"  # NaN if either is NaN
    MAX = "max"
    POW = "pow"
    ATAN2 = "atan2"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"  # arithmetic on signed, logical on unsigned


class CompareOp(_Operator):
    """Comparisons of two operands of one type; the result is bool."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


TESTS = frozenset({UnaryOp.ISNAN, UnaryOp.ISINF})
COMMUTATIVE = frozenset(
    {BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX}
    | {BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR}
)
COMBINERS = COMMUTATIVE  # what a reduction may use: also associative (floats: up to rounding)


class Expr(Interned):
    """Base of all scalar expressions."""

    __slots__ = ("_lanes", "dtype")
    dtype: DType
    _variables: frozenset[Var]
    _lanes: int  # see lanes.py

    def _set_type(self, dtype: DType) -> None:  # where it follows from operands: asked once
        object.__setattr__(self, "dtype", dtype)

    def __add__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Dim | float) -> Expr:
        return binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: Dim) -> Expr:
        return binary(BinaryOp.FLOORDIV, self, other)

    def __rfloordiv__(self, other: Dim) -> Expr:
        return binary(BinaryOp.FLOORDIV, other, self)

    def __mod__(self, other: Dim) -> Expr:
        return binary(BinaryOp.MOD, self, other)

    def __rmod__(self, other: Dim) -> Expr:
        return binary(BinaryOp.MOD, other, self)

    def __and__(self, other: Expr) -> Expr:
        return binary(BinaryOp.AND, self, other)

    def __or__(self, other: Expr) -> Expr:
        return binary(BinaryOp.OR, self, other)

    def __xor__(self, other: Expr) -> Expr:
        return binary(BinaryOp.XOR, self, other)

    def __lshift__(self, other: Dim) -> Expr:
        return binary(BinaryOp.SHL, self, other)

    def __rshift__(self, other: Dim) -> Expr:
        return binary(BinaryOp.SHR, self, other)

    def __neg__(self) -> Expr:
        return unary(UnaryOp.NEG, self)

    def __invert__(self) -> Expr:
        return unary(UnaryOp.NOT, self)

    def __lt__(self, other: Dim | float) -> Expr:
        return compare(CompareOp.LT, self, other)

    def __le__(self, other: Dim | float) -> Expr:
        return compare(CompareOp.LE, self, other)

    def __gt__(self, other: Dim | float) -> Expr:
        return compare(CompareOp.GT, self, other)

    def __ge__(self, other: Dim | float) -> Expr:
        return compare(CompareOp.GE, self, other)

    def equals(self, other: Dim | float) -> Expr:
        """The comparison `self == other` (`==` itself compares expressions as records)."""
        return compare(CompareOp.EQ, self, other)

    def differs(self, other: Dim | float) -> Expr:
        """The comparison `self != other`."""
        return compare(CompareOp.NE, self, other)

    def __bool__(self) -> bool:
        if isinstance(self, Const):
            return bool(self.value)
        raise CompileError(
            f"the truth of {self} is not known while compiling",
            hint="use select(condition, a, b), or `.equals` for a comparison in the program",
        )

    def __int__(self) -> int:
        if isinstance(self, Const):
            return int(self.value)
        raise CompileError(f"{self} is not known while compiling", hint="fix the dimensions in it")

    def __str__(self) -> str:
        return format_expr(self)

    __repr__ = __str__


@node
class Const(Expr):
    """A literal. `value` is a Python int, float or bool exactly representable in `dtype`."""

    value: int | float | bool
    dtype: DType

    def __new__(cls, value: int | float | bool, dtype: DType) -> Const:
        key = (cls, repr(value), dtype)  # NaN equals itself, and -0.0 differs from 0.0
        found = known_record(key)
        return enter_record(key, cls, (value, dtype)) if found is None else found


@node
class Var(Expr):
    """A loop variable, or a scalar parameter. Names are unique within a kernel."""

    name: str
    dtype: DType = index


@node
class Symbol(Expr):
    """A symbolic dimension: an integer fixed for one call, between `lower` and `upper`."""

    name: str
    lower: int = 1
    upper: int | None = None
    dtype = index

    def __new__(cls, name: str, lower: int = 1, upper: int | None = None) -> Symbol:
        key = (cls, name, repr(lower), repr(upper))  # True is no 1
        found = known_record(key)
        return enter_record(key, cls, (name, lower, upper)) if found is None else found


@node
class Unary(Expr):
    op: UnaryOp
    a: Expr

    def __post_init__(self) -> None:
        self._set_type(bool_ if self.op in TESTS else self.a.dtype)


@node
class Binary(Expr):
    op: BinaryOp
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        self._set_type(self.a.dtype)


@node
class Compare(Expr):
    op: CompareOp
    a: Expr
    b: Expr
    dtype = bool_


@node
class Select(Expr):
    """`a` where `cond`, else `b`; only the chosen side is evaluated (a guarded read)."""

    cond: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        self._set_type(self.a.dtype)


@node
class Cast(Expr):
    """Conversion by value."""

    dtype: DType
    a: Expr


@node
class Bitcast(Expr):
    """The same bits read as another type of the same width."""

    dtype: DType
    a: Expr


@node
class Opaque(Expr):
    """A function of its operands that is known by name alone: equal names and operands are equal
    values. Only an instruction whose meaning has it computes it (Instruction.black_box)."""

    name: str
    dtype: DType
    args: tuple[Expr, ...]


@node
class Buffer(Interned):
    """An allocation: `shape` elements of `dtype` in the memory named `memory`, row-major."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    memory: str = DRAM

    def __new__(cls, name: str, dtype: DType, shape: tuple[Dim, ...], memory: str = DRAM) -> Buffer:
        key = (cls, name, dtype, shape, memory, *map(type, shape))  # 2.0 is no 2
        found = known_record(key)
        return enter_record(key, cls, (name, dtype, shape, memory)) if found is None else found

    def __getitem__(self, indices: Dim | tuple[Dim, ...]) -> Load:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != len(self.shape):
            raise CompileError(
                f"{self.name} has {len(self.shape)} dimensions and was read with {len(items)}"
            )
        return Load(self, tuple(as_expr(i) for i in items))

    def at(self, *indices: Dim) -> Load:
        """The same as `self[indices]`, for subscripts of which some are in a tuple."""
        return self[indices]

    def __str__(self) -> str:
        return f"{self.name}: {format_type(self.dtype, self.shape)}"

    __repr__ = __str__


@node
class Load(Expr):
    buffer: Buffer
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self._set_type(self.buffer.dtype)


# ---------------------------------------------------------------- building


def as_expr(value: Dim | float | bool, dtype: DType | None = None) -> Expr:
    """`value` as an expression; a Python number becomes a constant of `dtype` (by default bool,
    index or f32, by its Python type)."""
    if isinstance(value, Expr):
        return value
    if dtype is None:
        dtype = bool_ if isinstance(value, bool) else index if isinstance(value, int) else f32
    return const(value, dtype)


def const(value: int | float | bool, dtype: DType = index) -> Const:
    """A constant of `dtype`; floats are rounded to it, integers must fit."""
    if dtype.is_float:
        return Const(dtype.round(value), dtype)
    if dtype.is_integer:
        if not dtype.min <= value <= dtype.max or int(value) != value:
            raise CompileError(f"{value} does not fit {dtype} ({dtype.min} … {dtype.max})")
        return Const(int(value), dtype)
    return Const(bool(value), dtype)


def constant_value(value: Dim | float | bool) -> int | float | bool | None:
    """The number behind a constant; None for anything else."""
    if isinstance(value, Const):
        return value.value
    return None if isinstance(value, Expr) else value


def as_dim(value: Dim) -> Dim:
    """Collapses a constant index expression to an int."""
    return int(value.value) if isinstance(value, Const) else value


def unary(op: UnaryOp, a: Expr) -> Expr:
    if op is UnaryOp.NEG and isinstance(a, Const) and a.dtype == index and a.value > index.min:
        return const(-a.value, a.dtype)
    if op is UnaryOp.NOT and isinstance(a, Const) and a.dtype == bool_:
        return const(not a.value, bool_)
    return Unary(op, a)


def binary(op: BinaryOp, a: Dim | float, b: Dim | float) -> Expr:
    left, right = _pair(op.value, a, b)
    if left.dtype == index:
        folded = _fold_index(op, left, right)
        if folded is not None:
            return folded
    if left.dtype == bool_:
        folded = _fold_bool(op, left, right)
        if folded is not None:
            return folded
    return Binary(op, left, right)


def compare(op: CompareOp, a: Dim | float, b: Dim | float) -> Expr:
    left, right = _pair(op.value, a, b)
    if isinstance(left, Const) and isinstance(right, Const) and left.dtype == index:
        return const(_COMPARE[op](left.value, right.value), bool_)
    return Compare(op, left, right)


def select(cond: Expr | bool, a: Dim | float, b: Dim | float) -> Expr:
    """`a` where `cond`, else `b`; the side not chosen is not evaluated."""
    left, right = _pair("select", a, b)
    cond = as_expr(cond)
    if isinstance(cond, Const):
        return left if cond.value else right
    return left if left == right else Select(cond, left, right)


def cast(dtype: DType, a: Expr) -> Expr:
    """`a` converted to `dtype`; nothing when it has that type already."""
    return a if a.dtype == dtype else Cast(dtype, a)


def minimum(a: Dim | float, b: Dim | float) -> Expr:
    return binary(BinaryOp.MIN, a, b)


def maximum(a: Dim | float, b: Dim | float) -> Expr:
    return binary(BinaryOp.MAX, a, b)


def all_of(*conditions: Expr | bool) -> Expr:
    """The conjunction; true when there are none."""
    result: Expr = const(True, bool_)
    for condition in conditions:
        result = binary(BinaryOp.AND, result, as_expr(condition))
    return result


def ceil_div(a: Dim, b: int) -> Dim:
    """a / b rounded up, for non-negative a."""
    return as_dim((as_expr(a) + (b - 1)) // b) if isinstance(a, Expr) else -(-a // b)


def product(dims: tuple[Dim, ...]) -> Dim:
    """The product of dimensions; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return as_dim(result)


_COMPARE = {
    CompareOp.EQ: lambda a, b: a == b,
    CompareOp.NE: lambda a, b: a != b,
    CompareOp.LT: lambda a, b: a < b,
    CompareOp.LE: lambda a, b: a <= b,
    CompareOp.GT: lambda a, b: a > b,
    CompareOp.GE: lambda a, b: a >= b,
}

_FOLD: dict[BinaryOp, Callable[[float, float], float]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.FLOORDIV: lambda a, b: a // b if b else 0,
    BinaryOp.MOD: lambda a, b: a % b if b else 0,
    BinaryOp.DIV: lambda a, b: a // b + (a % b != 0 and (a < 0) != (b < 0)) if b else 0,
}


def _pair(what: str, a: Dim | float, b: Dim | float) -> tuple[Expr, Expr]:
    """Both operands as expressions of one type: a Python number takes the other's type."""
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    if a.dtype != b.dtype:
        raise CompileError(
            f"{what} of {a.dtype} and {b.dtype}: {a} and {b}", hint="cast one of them"
        )
    return a, b


def _fold_index(op: BinaryOp, a: Expr, b: Expr) -> Expr | None:
    """Index arithmetic that needs no knowledge of ranges; the rest is analyze/simplify."""
    if isinstance(a, Const) and isinstance(b, Const):
        value = _FOLD[op](a.value, b.value) if op in _FOLD else None
        return None if value is None or not index.min <= value <= index.max else const(value)
    x = a.value if isinstance(a, Const) else None
    y = b.value if isinstance(b, Const) else None
    if op is BinaryOp.ADD and (x == 0 or y == 0):
        return b if x == 0 else a
    if op is BinaryOp.SUB and y == 0:
        return a
    if (op is BinaryOp.MUL and (x == 0 or y == 0)) or (op is BinaryOp.MOD and y == 1):
        return const(0)
    if op is BinaryOp.MUL and (x == 1 or y == 1):
        return b if x == 1 else a
    if op in (BinaryOp.FLOORDIV, BinaryOp.DIV) and y == 1:
        return a
    return None


def _fold_bool(op: BinaryOp, a: Expr, b: Expr) -> Expr | None:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Const) and op in (BinaryOp.AND, BinaryOp.OR):
            return other if one.value == (op is BinaryOp.AND) else one
    return None


# ---------------------------------------------------------------- printing

_INFIX = {
    BinaryOp.OR: ("|", 2),
    BinaryOp.XOR: ("^", 3),
    BinaryOp.AND: ("&", 4),
    BinaryOp.SHL: ("<<", 5),
    BinaryOp.SHR: (">>", 5),
    BinaryOp.ADD: ("+", 6),
    BinaryOp.SUB: ("-", 6),
    BinaryOp.MUL: ("*", 7),
    BinaryOp.DIV: ("/", 7),
    BinaryOp.FLOORDIV: ("//", 7),
    BinaryOp.MOD: ("%", 7),
}
INFIX = {text: op for op, (text, _) in _INFIX.items()}


def format_expr(e: Expr, outer: int = 0) -> str:
    """The text form (Python syntax); parenthesised where it binds less than `outer`."""
    text, level = FORMAT[type(e)](e)
    return f"({text})" if level < outer else text


def format_type(dtype: DType, shape: tuple[Dim, ...]) -> str:
    """f32[4, n]; f32[()] for a scalar."""
    return f"{dtype}[{', '.join(map(str, shape)) or '()'}]"


def _format_const(e: Const) -> tuple[str, int]:
    if e.dtype == index or e.dtype == bool_:
        return str(e.value), 9 if e.value >= 0 else 8
    return f"{e.dtype}({format_number(e.value, e.dtype)})", 9


def _format_unary(e: Unary) -> tuple[str, int]:
    if e.op is UnaryOp.NEG and not (isinstance(e.a, Const) and e.dtype == index):  # -5 is a literal
        return f"-{format_expr(e.a, 8)}", 8
    if e.op is UnaryOp.NOT:
        return f"~{format_expr(e.a, 8)}", 8
    return f"{e.op.value}({format_expr(e.a)})", 9


def _format_binary(e: Binary) -> tuple[str, int]:
    if e.op not in _INFIX:
        return f"{e.op.value}({format_expr(e.a)}, {format_expr(e.b)})", 9
    sign, level = _INFIX[e.op]
    return f"{format_expr(e.a, level)} {sign} {format_expr(e.b, level + 1)}", level


def _format_compare(e: Compare) -> tuple[str, int]:
    return f"{format_expr(e.a, 2)} {e.op.value} {format_expr(e.b, 2)}", 1


def _format_load(e: Load) -> tuple[str, int]:
    return f"{identifier(e.buffer.name)}[{', '.join(map(format_expr, e.indices)) or '()'}]", 9


def _format_opaque(e: Opaque) -> tuple[str, int]:
    return f"opaque({', '.join([quote(e.name), str(e.dtype), *map(format_expr, e.args)])})", 9


FORMAT: dict[type[Expr], Callable[[Any], tuple[str, int]]] = {
    Const: _format_const,
    Var: lambda e: (identifier(e.name), 9),
    Symbol: lambda e: (identifier(e.name), 9),
    Unary: _format_unary,
    Binary: _format_binary,
    Compare: _format_compare,
    Select: lambda e: (f"select({e.cond}, {e.a}, {e.b})", 9),
    Cast: lambda e: (f"cast({e.dtype}, {e.a})", 9),
    Bitcast: lambda e: (f"bitcast({e.dtype}, {e.a})", 9),
    Load: _format_load,
    Opaque: _format_opaque,
}
