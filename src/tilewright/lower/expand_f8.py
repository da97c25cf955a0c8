"""8-bit floats as arithmetic on their bits: machines have no instructions for them.

    value -> f32:  shift the bits to f32's place, multiply by the ratio of the biases (exact)
    f32 -> value:  round to nearest even on the bits; subnormals by adding a power of two

Every other operator on them is done in f32 and rounded once (docs/semantics.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtype import DType, f32, i32, u8
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Expr,
    Load,
    Unary,
    UnaryOp,
    const,
    select,
)
from tilewright.ir.loop import (
    Accumulate,
    For,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    map_block,
    map_exprs,
    map_inner_blocks,
)


@dataclass(frozen=True)
class Format:
    """Exponent bias, mantissa bits, and the codes (without sign) of infinity and NaN. In `fnuz`
    types the only NaN is the code of minus zero."""

    bias: int
    mantissa: int
    infinity: int | None
    nan: int

    @property
    def fnuz(self) -> bool:
        return self.nan == 0x80

    @property
    def greatest(self) -> int:
        """The code of the greatest finite value."""
        if self.infinity is not None:
            return self.infinity - 1
        return 0x7F if self.fnuz else self.nan - 1


FORMATS = {
    "f8e4m3fn": Format(7, 3, None, 0x7F),
    "f8e4m3fnuz": Format(8, 3, None, 0x80),
    "f8e5m2": Format(15, 2, 0x7C, 0x7E),
    "f8e5m2fnuz": Format(16, 2, None, 0x80),
}


def expand_f8(kernel: Kernel) -> Kernel:
    """Rewrites every operator that takes or gives an 8-bit float."""
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        if not isinstance(e, Expr):
            return e
        if e not in memo:
            memo[e] = _expand(e.map(visit))
        return memo[e]

    body = map_block(kernel.body, _stores)
    body = map_block(body, lambda s: map_exprs(s, visit))
    return kernel if body is kernel.body else kernel.with_(body=body)


def _stores(stmt: Stmt) -> Stmt:
    """Accumulations of 8-bit floats as stores; the lanes of a vector loop around one take turns."""
    if isinstance(stmt, Accumulate) and stmt.buffer.dtype.name in FORMATS:
        old = Load(stmt.buffer, stmt.indices)
        return Store(stmt.buffer, stmt.indices, Binary(stmt.op, old, stmt.value))
    new = map_inner_blocks(stmt, lambda b: map_block(b, _stores))
    if new is not stmt and isinstance(new, For) and new.kind is LoopKind.VECTORIZE:
        return new.with_(kind=LoopKind.SERIAL)
    return new


def _expand(e: Expr) -> Expr:
    if isinstance(e, Cast) and (e.dtype.name in FORMATS or e.a.dtype.name in FORMATS):
        return _convert(e.a, e.dtype)
    if isinstance(e, (Unary, Binary, Compare)) and e.a.dtype.name in FORMATS:
        wide = e.map(lambda x: decode(x) if isinstance(x, Expr) else x)
        return encode(wide, e.dtype) if e.dtype.name in FORMATS else wide
    return e


def _convert(a: Expr, to: DType) -> Expr:
    if a.dtype.name in FORMATS:
        a = decode(a)
    if to.name in FORMATS:
        return encode(a if a.dtype == f32 else Cast(f32, a), to)
    return a if a.dtype == to else Cast(to, a)


def decode(x: Expr) -> Expr:
    """An 8-bit float as f32, exactly."""
    form = FORMATS[x.dtype.name]
    code = Cast(i32, Bitcast(u8, x))
    magnitude = code & const(0x7F, i32)
    shifted = Bitcast(f32, magnitude << const(23 - form.mantissa, i32))
    value = shifted * const(2.0 ** (127 - form.bias), f32)
    nan = const(float("nan"), f32)
    if form.fnuz:
        special = select(code.equals(const(0x80, i32)), nan, value)
    elif form.infinity is None:
        special = select(magnitude.equals(const(form.nan, i32)), nan, value)
    else:
        infinity = const(form.infinity, i32)
        beyond = select(magnitude > infinity, nan, const(float("inf"), f32))
        special = select(magnitude >= infinity, beyond, value)
    return select(code >= const(0x80, i32), Unary(UnaryOp.NEG, special), special)


def encode(x: Expr, to: DType) -> Expr:
    """f32 rounded to the nearest 8-bit float, ties to even; too large gives infinity, or NaN in
    types without."""
    form = FORMATS[to.name]
    bits = Bitcast(i32, x)
    magnitude = bits & const(0x7FFFFFFF, i32)
    code = select(
        magnitude < const((128 - form.bias) << 23, i32),
        _round_subnormal(magnitude, form),
        _round_normal(magnitude, form),
    )
    overflow = form.infinity if form.infinity is not None else form.nan
    code = select(code > const(form.greatest, i32), const(overflow, i32), code)
    is_nan = magnitude > const(0x7F800000, i32)
    code = select(is_nan, const(form.nan, i32), code)
    negative = bits < const(0, i32)
    signed = code | select(negative, const(0x80, i32), const(0, i32))
    if form.fnuz:  # there is no minus zero
        signed = select(code.equals(const(0, i32)), const(0, i32), signed)
    return Bitcast(to, Cast(u8, signed))


def _round_normal(magnitude: Expr, form: Format) -> Expr:
    drop = 23 - form.mantissa
    odd = (magnitude >> const(drop, i32)) & const(1, i32)
    rounded = (magnitude + odd + const((1 << (drop - 1)) - 1, i32)) >> const(drop, i32)
    return rounded - const((127 - form.bias) << form.mantissa, i32)


def _round_subnormal(magnitude: Expr, form: Format) -> Expr:
    """Adding 2**23 times the unit leaves the number of units in the low bits, rounded."""
    unit = 2.0 ** (1 - form.bias - form.mantissa + 23)
    shifted = Bitcast(f32, magnitude) + const(unit, f32)
    return Bitcast(i32, shifted) - Bitcast(i32, const(unit, f32))
