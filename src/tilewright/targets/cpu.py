"""Processors: this machine's, found out when asked, and any other, described.

cpu.host(threads=2)                     this machine
cpu.cpu(features="avx2", cores=4)       another one, or a part of this one
"""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass

import llvmlite.binding as llvm

from tilewright.base.dtype import f32, f64
from tilewright.base.errors import TargetError, did_you_mean
from tilewright.target.target import Memory, Native, Target, VectorUnit

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
    "neon": Level("generic", ("neon",), 16, 32, "aarch64"),
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
    return Target(f"cpu-{features}", cores, clock, vector, _memories(l1, l2, l3, cores), native)


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
    return Target("host", cores, _host_clock(), vector, _memories(l1, l2, l3, cores), native)


def _vector_unit(size: int, registers: int) -> VectorUnit:
    rates = ((f32, 1.0), (f64, 1.0)) if size == 64 else ((f32, 2.0), (f64, 2.0))
    return VectorUnit(size, registers, rates)


def _memories(l1: int, l2: int, l3: int, cores: int) -> tuple[Memory, ...]:
    return (
        Memory("register", None, cached=False),
        Memory("l1", l1),
        Memory("l2", l2),
        Memory("l3", l3, shared_by=cores),
        Memory("dram", None, cached=False, shared_by=cores),
    )


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


def _host_clock() -> float:
    """Hz: what the kernel says the cores run at; 3 GHz where it does not say."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return 3e9
    rates = [float(line.split(":")[1]) * 1e6 for line in lines if line.startswith("cpu MHz")]
    return max(rates, default=3e9)
