"""The words of the kernel language, as names that a kernel's file can import.

Python never runs a kernel's body: `@kernel` reads its source (docs/kernels.md). So these stand
for something there, and are errors anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from tilewright.base.dtype import BufferType, DType
from tilewright.base.errors import CompileError
from tilewright.ir.expr import BinaryOp, UnaryOp


class Word:
    """A word of the language; `form` shows it in use."""

    def __init__(self, name: str, form: str) -> None:
        self.name, self.form = name, form

    def __call__(self, *args: object, **kwargs: object) -> Any:
        self._refuse()

    def __iter__(self) -> Any:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise CompileError(
            f"{self.name} was called by Python",
            hint=f"{self.form} has a meaning in a function under @kernel, which is never run",
        )

    def __repr__(self) -> str:
        return f"<kernel language: {self.form}>"


# ---------------------------------------------------------------- loops and buffers

grid = Word("grid", "for i, j in grid(n, m)")
reduce = Word("reduce", "for k in reduce(n)")
parallel = Word("parallel", "for i in parallel(n)")
vectorize = Word("vectorize", "for i in vectorize(16)")
unroll = Word("unroll", "for i in unroll(4)")
local = Word("local", "t = local(f32[16, 16])")


@dataclass(frozen=True)
class Output:
    """The type of a parameter that is written."""

    type: BufferType | DType


def out(kind: BufferType | DType) -> Output:
    """C: out(f32[M, N]) says that a kernel writes its parameter C."""
    return Output(kind)


# ---------------------------------------------------------------- functions

select = Word("select", "select(condition, a, b)")
cast = Word("cast", "cast(f32, a)")
bitcast = Word("bitcast", "bitcast(i32, a)")
opaque = Word("opaque", 'opaque("sharpen", i8, a, b)')
sign = Word("sign", "sign(a)")
sqrt = Word("sqrt", "sqrt(a)")
exp = Word("exp", "exp(a)")
log = Word("log", "log(a)")
sin = Word("sin", "sin(a)")
cos = Word("cos", "cos(a)")
tan = Word("tan", "tan(a)")
asin = Word("asin", "asin(a)")
acos = Word("acos", "acos(a)")
atan = Word("atan", "atan(a)")
sinh = Word("sinh", "sinh(a)")
cosh = Word("cosh", "cosh(a)")
tanh = Word("tanh", "tanh(a)")
asinh = Word("asinh", "asinh(a)")
acosh = Word("acosh", "acosh(a)")
atanh = Word("atanh", "atanh(a)")
erf = Word("erf", "erf(a)")
erfc = Word("erfc", "erfc(a)")
expm1 = Word("expm1", "expm1(a)")
log1p = Word("log1p", "log1p(a)")
sigmoid = Word("sigmoid", "sigmoid(a)")
gelu = Word("gelu", "gelu(a)")
floor = Word("floor", "floor(a)")
ceil = Word("ceil", "ceil(a)")
trunc = Word("trunc", "trunc(a)")
isnan = Word("isnan", "isnan(a)")
isinf = Word("isinf", "isinf(a)")
popcount = Word("popcount", "popcount(a)")
atan2 = Word("atan2", "atan2(a, b)")
rem = Word("rem", "rem(a, b)")
div = Word("div", "div(a, b)")

# What a call's function may be, by its name; Python's own abs, min, max, pow and round included.
UNARY = {op.value: op for op in UnaryOp if op not in (UnaryOp.NEG, UnaryOp.NOT)}
BINARY = {
    op.value: op
    for op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.POW, BinaryOp.ATAN2, BinaryOp.REM, BinaryOp.DIV)
}
FUNCTIONS = (*UNARY, *BINARY, "select", "cast", "bitcast", "opaque")
LOOPS = ("range", "grid", "reduce", "parallel", "vectorize", "unroll")
PYTHON = {"abs": abs, "min": min, "max": max, "pow": pow, "round": round, "range": range}
