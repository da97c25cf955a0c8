"""Processors: this machine's, found out when asked, and any other, described.

cpu.host(threads=2)                     this machine
cpu.cpu(features="avx2", cores=4)       another one, or a part of this one

What they do in one instruction is declared as any chip's instructions are: an operand with fewer
elements than a register holds is repeated in it. A multiply-add of f32 rounds once where its
meaning rounds twice, and one of bf16 takes numbers below 2^-126 as 0: both as docs/semantics.md
allows.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewright.base.dtype import bf16, f32, f64, i8, i16, i32, u8
from tilewright.base.errors import TargetError, did_you_mean
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Native, Target, VectorUnit

KiB, MiB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Level:
    """An instruction-set level: LLVM's name for it and the vector unit that comes with it."""

    processor: str
    features: tuple[str, ...]
    vector_bytes: int
    registers: int
    arch: str = "x86_64"


_AVX2 = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

LEVELS: dict[str, Level] = {
    "sse2": Level("x86-64", (), 16, 16),
    "sse4": Level("x86-64-v2", ("sse4.2", "ssse3", "popcnt"), 16, 16),
    "avx2": Level("x86-64-v3", _AVX2, 32, 16),
    "avx2-vnni": Level("x86-64-v3", (*_AVX2, "avxvnni"), 32, 16),
    "avx512": Level("x86-64-v4", _AVX512, 64, 32),
    "avx512-vnni": Level("x86-64-v4", (*_AVX512, "avx512vnni", "avx512bf16"), 64, 32),
    "neon": Level("generic", ("neon",), 16, 32, "aarch64"),
    "neon-dot": Level("generic", ("neon", "dotprod", "i8mm", "bf16"), 16, 32, "aarch64"),
    "rvv": Level("generic-rv64", ("m", "a", "f", "d", "v", "zvl256b"), 32, 32, "riscv64"),
}

# Processors (LLVM's names) that start two multiply-adds of 512 bits a cycle; others start one.
WIDE = {"cascadelake", "cooperlake", "diamondrapids", "emeraldrapids", "graniterapids"}
WIDE |= {"icelake-server", "sapphirerapids", "skylake-avx512", "znver5"}
LOOKUP = "llvm.x86.avx512.permvar.sf.512"  # vpermps, of 16 entries


def cpu(
    features: str,
    *,
    cores: int = 1,
    clock: float = 3e9,
    l1: int = 32 * KiB,
    l2: int = 512 * KiB,
    l3: int = 8 * MiB,
) -> Target:
    """A processor of an instruction-set level (`LEVELS`), with its cores, clock (Hz) and caches
    (bytes; l3 is shared by all cores)."""
    if features not in LEVELS:
        hint = did_you_mean(features, list(LEVELS))
        raise TargetError(f"there is no instruction-set level called {features!r}", hint=hint)
    level = LEVELS[features]
    triple = f"{level.arch}-unknown-linux-gnu"
    vector = _vector_unit(level.vector_bytes, level.registers)
    native = Native(triple, level.processor, level.features, LOOKUP if vector.table else "")
    return _processor(f"cpu-{features}", cores, clock, vector, (l1, l2, l3), native)


def host(threads: int | None = None) -> Target:
    """The machine this runs on, with all its cores or `threads` of them."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = threads if threads is not None else available or 1
    found = llvm.get_host_cpu_features()
    features = tuple(sorted(name for name, on in found.items() if on))
    triple = llvm.get_process_triple()
    size, registers = _host_vectors(features, triple)
    l1, l2, l3 = (
        _cache_bytes(level, default)
        for level, default in ((1, 32 * KiB), (2, 512 * KiB), (3, 8 * MiB))
    )
    processor = llvm.get_host_cpu_name()
    vector = _vector_unit(size, registers, processor)
    native = Native(triple, processor, features, LOOKUP if vector.table else "")
    return _processor("host", cores, _host_clock(), vector, (l1, l2, l3), native)


def _processor(
    name: str,
    cores: int,
    clock: float,
    vector: VectorUnit,
    caches: tuple[int, int, int],
    native: Native,
) -> Target:
    t = TargetBuilder(name, clock=clock, cores=cores, vector=vector, native=native)
    l1, l2, l3 = caches
    t.memory("register")
    t.memory("l1", l1, cached=True)
    wide = vector.bytes == 64 and vector.multiply_adds[0][1] > 1
    t.memory("l2", l2, cached=True, bandwidth=40 if wide else 32)  # 40: of a Zen 5
    t.memory("l3", l3, cached=True, shared_by=cores, bandwidth=16 * cores)
    t.memory("dram", shared_by=cores)
    _declare(t, native.triple.split("-")[0], native.features, vector.bytes)
    return t.build()


def _vector_unit(size: int, registers: int, processor: str = "") -> VectorUnit:
    rate = 2.0 if size < 64 or processor in WIDE else 1.0
    table = 16 if size == 64 else 0  # vpermps of AVX-512; those of AVX2 and NEON have fewer
    return VectorUnit(size, registers, ((f32, rate), (f64, rate)), table=table)


def _host_vectors(features: tuple[str, ...], triple: str) -> tuple[int, int]:
    """Bytes of a vector register, and how many there are."""
    if "avx512vl" in features:
        return 64, 32
    if "avx2" in features:
        return 32, 16
    return 16, 16 if triple.startswith("x86_64") else 32


def _cache_bytes(level: int, default: int) -> int:
    """The size of a data cache, as the kernel reports it."""
    base = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
    for entry in sorted(base.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            if kind != "Instruction" and int((entry / "level").read_text()) == level:
                text = (entry / "size").read_text().strip()
                return int(text.rstrip("KM")) * {"K": KiB, "M": MiB}.get(text[-1], 1)
        except (OSError, ValueError):
            continue
    return default


_ADDS = {"x86_64": "addq $$1, $0", "aarch64": "add $0, $0, #1"}  # one cycle, one after another
_CHAIN, _ROUNDS = 64, 20_000


@functools.cache
def _host_clock() -> float:
    """Hz that a core runs at now, timed on a chain of additions (what the kernel reports is the
    nominal clock); 3 GHz where this machine's addition is not known."""
    arch = llvm.get_process_triple().split("-")[0]
    if arch not in _ADDS:
        return 3e9
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_chain_text(arch)), machine)
    engine.finalize_object()
    chain = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("chain"))
    chain(_ROUNDS)
    best = min(_seconds(chain) for _ in range(5))
    return _CHAIN * _ROUNDS / best


def _seconds(chain: Callable[[int], int]) -> float:
    start = time.perf_counter()
    chain(_ROUNDS)
    return time.perf_counter() - start


def _chain_text(arch: str) -> str:
    """i64 chain(i64 rounds): rounds times _CHAIN additions, each waiting for the one before."""
    lines, last = [], "%x"
    for i in range(_CHAIN):
        lines.append(f'  %c{i} = call i64 asm sideeffect "{_ADDS[arch]}", "=r,0"(i64 {last})')
        last = f"%c{i}"
    body = "\n".join(lines)
    return f"""
define i64 @chain(i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %x = phi i64 [ 0, %entry ], [ {last}, %loop ]
{body}
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret i64 {last}
}}
"""


# ---------------------------------------------------------------- instructions


def _declare(t: TargetBuilder, arch: str, features: Collection[str], register: int) -> None:
    """Adds the instructions of a processor whose vector registers have `register` bytes."""
    has = set(features)
    if "fma" in has or arch != "x86_64":
        _multiply_adds(t, register)
    if arch == "x86_64":
        wide = register == 64
        if ("avx512vnni" in has and (wide or "avx512vl" in has)) or ("avxvnni" in has and not wide):
            _vpdpbusd(t, register)
        _pmaddwd(t, register)
        if "avx512bf16" in has and (wide or "avx512vl" in has):
            _vdpbf16ps(t, register)
    else:
        _widening_multiply_adds(t, register)
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

    @t.instruction(
        native=f"{words} {name}({words} c, {octets} interleave.4({octets} a), {octets} b)"
    )
    def vpdpbusd_rows(a: u8[4, n], b: i8[n, 4], c: out(i32[n])):
        for i in grid(n):
            for k in reduce(4):
                c[i] += cast(i32, a[k, i]) * cast(i32, b[i, k])


PAIR_PRODUCTS = {16: "sse2.pmadd.wd", 32: "avx2.pmadd.wd", 64: "avx512.pmaddw.d.512"}


def _pmaddwd(t: TargetBuilder, register: int) -> None:
    """Products of short integers, added up by two, and an addition: exact for bytes, which are as
    fast in this way as they can be without products of their own."""
    n = register // 4
    words, shorts = f"<{n} x i32>", f"<{2 * n} x i16>"
    product = f"{words} llvm.x86.{PAIR_PRODUCTS[register]}({shorts} a, {shorts} b)"

    # Left to itself LLVM adds up several products first, for which there are no registers.
    @t.instruction(native=f"{words} asm.v({words} add({words} c, {product}))")
    def pmaddwd(a: i16[2], b: i16[n, 2], c: out(i32[n])):
        for i in grid(n):
            for k in reduce(2):
                c[i] += cast(i32, a[k]) * cast(i32, b[i, k])


def _widening_multiply_adds(t: TargetBuilder, register: int) -> None:
    """Products of short integers as integers: `smlal` and `vwmacc`."""
    n = register // 4
    words, shorts = f"<{n} x i32>", f"<{n} x i16>"
    product = f"{words} mul({words} sext({shorts} a), {words} sext({shorts} b))"

    @t.instruction(native=f"{words} add({words} c, {product})")
    def widening_multiply_add(a: i16[()], b: i16[n], c: out(i32[n])):
        for i in grid(n):
            c[i] += cast(i32, a[()]) * cast(i32, b[i])


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

    rows = form.replace("<16 x i8> a", "<16 x i8> interleave.4(<16 x i8> a)")

    @t.instruction(native=rows.format("sdot"))
    def sdot_rows(a: i8[4, 4], b: i8[4, 4], c: out(i32[4])):
        for i in grid(4):
            for k in reduce(4):
                c[i] += cast(i32, a[k, i]) * cast(i32, b[i, k])

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

    rows = "<16 x i8> interleave.4(<16 x i8> a)"

    @t.instruction(native=f"<4 x i32> {name}(<4 x i32> c, {rows}, <16 x i8> b)")
    def usdot_rows(a: u8[4, 4], b: i8[4, 4], c: out(i32[4])):
        for i in grid(4):
            for k in reduce(4):
                c[i] += cast(i32, a[k, i]) * cast(i32, b[i, k])


def _neon_bfdot(t: TargetBuilder) -> None:
    name = "llvm.aarch64.neon.bfdot.v4f32.v8bf16"

    @t.instruction(native=f"<4 x float> {name}(<4 x float> c, <8 x bfloat> a, <8 x bfloat> b)")
    def bfdot(a: bf16[2], b: bf16[4, 2], c: out(f32[4])):
        for i in grid(4):
            for k in reduce(2):
                c[i] += cast(f32, a[k]) * cast(f32, b[i, k])
