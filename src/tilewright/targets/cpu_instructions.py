"""What processors do in one instruction, declared as any chip's instructions are: an operand with
fewer elements than a register holds is repeated in it.

A multiply-add of f32 rounds once where its meaning rounds twice, and one of bf16 takes numbers
below 2^-126 as 0: both as docs/semantics.md allows.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.base.dtype import bf16, f32, f64, i8, i32, u8
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import TargetBuilder


def declare(t: TargetBuilder, arch: str, features: Collection[str], register: int) -> None:
    """Adds the instructions of a processor whose vector registers have `register` bytes."""
    has = set(features)
    if "fma" in has or arch != "x86_64":
        _multiply_adds(t, register)
    if arch == "x86_64":
        wide = register == 64
        if "avx512vnni" in has and (wide or "avx512vl" in has):
            _vpdpbusd(t, register)
        if "avx512bf16" in has and (wide or "avx512vl" in has):
            _vdpbf16ps(t, register)
    if arch == "aarch64":
        if "dotprod" in has:
            _neon_dot(t)
        if "i8mm" in has:
            _neon_mixed_dot(t)
        if "bf16" in has:
            _neon_bfdot(t)


def _multiply_adds(t: TargetBuilder, register: int) -> None:
    n, m = register // 4, register // 8
    single, double = f"<{n} x float>", f"<{m} x double>"

    @t.instruction(native=f"{single} llvm.fma.v{n}f32({single} a, {single} b, {single} c)")
    def fma_f32(a: f32[()], b: f32[n], c: out(f32[n])):
        for i in grid(n):
            c[i] += a[()] * b[i]

    @t.instruction(native=f"{double} llvm.fma.v{m}f64({double} a, {double} b, {double} c)")
    def fma_f64(a: f64[()], b: f64[m], c: out(f64[m])):
        for i in grid(m):
            c[i] += a[()] * b[i]


def _vpdpbusd(t: TargetBuilder, register: int) -> None:
    n = register // 4
    words, octets = f"<{n} x i32>", f"<{4 * n} x i8>"
    name = f"llvm.x86.avx512.vpdpbusd.{8 * register}"

    @t.instruction(native=f"{words} {name}({words} c, {octets} a, {octets} b)")
    def vpdpbusd(a: u8[4], b: i8[n, 4], c: out(i32[n])):
        for i in grid(n):
            for k in reduce(4):
                c[i] += cast(i32, a[k]) * cast(i32, b[i, k])


def _vdpbf16ps(t: TargetBuilder, register: int) -> None:
    n = register // 4
    single, halves = f"<{n} x float>", f"<{2 * n} x bfloat>"
    name = f"llvm.x86.avx512bf16.dpbf16ps.{8 * register}"

    @t.instruction(native=f"{single} {name}({single} c, {halves} a, {halves} b)")
    def vdpbf16ps(a: bf16[2], b: bf16[n, 2], c: out(f32[n])):
        for i in grid(n):
            for k in reduce(2):
                c[i] += cast(f32, a[k]) * cast(f32, b[i, k])


def _neon_dot(t: TargetBuilder) -> None:
    form = "<4 x i32> llvm.aarch64.neon.{}.v4i32.v16i8(<4 x i32> c, <16 x i8> a, <16 x i8> b)"

    @t.instruction(native=form.format("sdot"))
    def sdot(a: i8[4], b: i8[4, 4], c: out(i32[4])):
        for i in grid(4):
            for k in reduce(4):
                c[i] += cast(i32, a[k]) * cast(i32, b[i, k])

    @t.instruction(native=form.format("udot"))
    def udot(a: u8[4], b: u8[4, 4], c: out(i32[4])):
        for i in grid(4):
            for k in reduce(4):
                c[i] += cast(i32, a[k]) * cast(i32, b[i, k])


def _neon_mixed_dot(t: TargetBuilder) -> None:
    name = "llvm.aarch64.neon.usdot.v4i32.v16i8"

    @t.instruction(native=f"<4 x i32> {name}(<4 x i32> c, <16 x i8> a, <16 x i8> b)")
    def usdot(a: u8[4], b: i8[4, 4], c: out(i32[4])):
        for i in grid(4):
            for k in reduce(4):
                c[i] += cast(i32, a[k]) * cast(i32, b[i, k])


def _neon_bfdot(t: TargetBuilder) -> None:
    name = "llvm.aarch64.neon.bfdot.v4f32.v8bf16"

    @t.instruction(native=f"<4 x float> {name}(<4 x float> c, <8 x bfloat> a, <8 x bfloat> b)")
    def bfdot(a: bf16[2], b: bf16[4, 2], c: out(f32[4])):
        for i in grid(4):
            for k in reduce(2):
                c[i] += cast(f32, a[k]) * cast(f32, b[i, k])
