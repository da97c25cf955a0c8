"""Processors: this machine's, found out when asked, and any other, described.

cpu.host(threads=2)                     this machine
cpu.cpu(features="avx2", cores=4)       another one, or a part of this one
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewright.base.dtype import f32, f64
from tilewright.base.errors import TargetError, did_you_mean
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Native, Target, VectorUnit
from tilewright.targets.cpu_instructions import declare

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
    "avx512": Level("x86-64-v4", _AVX512, 64, 32),
    "avx512-vnni": Level("x86-64-v4", (*_AVX512, "avx512vnni", "avx512bf16"), 64, 32),
    "neon": Level("generic", ("neon",), 16, 32, "aarch64"),
    "neon-dot": Level("generic", ("neon", "dotprod", "i8mm", "bf16"), 16, 32, "aarch64"),
    "rvv": Level("generic-rv64", ("m", "a", "f", "d", "v", "zvl256b"), 32, 32, "riscv64"),
}


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
    native = Native(triple, level.processor, level.features)
    vector = _vector_unit(level.vector_bytes, level.registers)
    return _processor(f"cpu-{features}", cores, clock, vector, (l1, l2, l3), native)


def host(threads: int | None = None) -> Target:
    """The machine this runs on, with all its cores or `threads` of them."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = threads if threads is not None else available or 1
    found = llvm.get_host_cpu_features()
    features = tuple(sorted(name for name, on in found.items() if on))
    triple = llvm.get_process_triple()
    native = Native(triple, llvm.get_host_cpu_name(), features)
    size, registers = _host_vectors(features, triple)
    l1, l2, l3 = (
        _cache_bytes(level, default)
        for level, default in ((1, 32 * KiB), (2, 512 * KiB), (3, 8 * MiB))
    )
    vector = _vector_unit(size, registers)
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
    t.memory("l2", l2, cached=True)
    t.memory("l3", l3, cached=True, shared_by=cores)
    t.memory("dram", shared_by=cores)
    declare(t, native.triple.split("-")[0], native.features, vector.bytes)
    return t.build()


def _vector_unit(size: int, registers: int) -> VectorUnit:
    rates = ((f32, 1.0), (f64, 1.0)) if size == 64 else ((f32, 2.0), (f64, 2.0))
    return VectorUnit(size, registers, rates)


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
