"""How fast one core multiplies and adds: the float32 peak, measured rather than looked up.

A loop of independent fused multiply-adds, all in registers, is written in LLVM IR and compiled for
this processor. Nothing that computes with float32 on one core can be faster.
"""

import ctypes
import time

from llvmlite import binding as llvm

METHOD = "a loop of independent float32 FMAs in registers, one thread"
LANES = (4, 8, 16)
CHAINS = (12, 24)
"""Enough to fill the pipelines; 12 fit into the 16 registers of AVX2, some chips need more."""

Loop = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)


def measure_peak(seconds: float = 1.0) -> float:
    """GFLOP/s of one core: the best of several vector widths, each given a share of `seconds`."""
    shapes = [(lanes, chains) for lanes in LANES for chains in CHAINS]
    return max(_measure(lanes, chains, seconds / len(shapes)) for lanes, chains in shapes)


def _measure(lanes: int, chains: int, seconds: float, steps: int = 100_000) -> float:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_loop(lanes, chains))
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        loop = Loop(engine.get_function_address("loop"))
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            loop(steps)
            best = min(best, time.perf_counter() - started)
    return 2 * lanes * chains * steps / best / 1e9


def _loop(lanes: int, chains: int) -> str:
    """A function of the number of steps; each step does one FMA in each chain."""
    vector, zero = f"<{lanes} x float>", "zeroinitializer"
    fma = f"@llvm.fma.v{lanes}f32"
    half = f"<{', '.join(['float 0.5'] * lanes)}>"
    starts = [f"<{', '.join([f'float {chain}.0'] * lanes)}>" for chain in range(chains)]
    phis = [
        f"  %a{i} = phi {vector} [{start}, %entry], [%b{i}, %body]"
        for i, start in enumerate(starts)
    ]
    steps = [
        f"  %b{i} = call {vector} {fma}({vector} %a{i}, {vector} {half}, {vector} {half})"
        for i in range(chains)
    ]
    sums = [f"  %s0 = fadd {vector} {zero}, %b0"] + [
        f"  %s{i} = fadd {vector} %s{i - 1}, %b{i}" for i in range(1, chains)
    ]
    return "\n".join(
        [
            f"declare {vector} {fma}({vector}, {vector}, {vector})",
            "define float @loop(i64 %steps) {",
            "entry:",
            "  br label %body",
            "body:",
            "  %i = phi i64 [0, %entry], [%next, %body]",
            *phis,
            *steps,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %steps",
            "  br i1 %more, label %body, label %exit",
            "exit:",
            *sums,
            f"  %result = extractelement {vector} %s{chains - 1}, i64 0",
            "  ret float %result",
            "}",
        ]
    )
