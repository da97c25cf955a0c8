"""What this machine can do at best, measured: arithmetic, reading from each of its memories, and
what a step costs that does nothing. `explain` holds the steps of a model against these.

The loops are written in LLVM IR, so that nothing but the processor limits them.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import onnx
from onnx import helper

from tilewright.backends.native.call import Term, emit_term, parse_term
from tilewright.backends.native.text import Function
from tilewright.compiler import compile
from tilewright.runtime.program import StepInstruction
from tilewright.runtime.system import available_memory
from tilewright.targets import cpu

SHAPES = ((4, 12), (8, 12), (8, 24), (16, 12), (16, 24))  # lanes, independent chains
BLOCK = 512  # bytes that a turn of the reading loop takes
SECONDS = 0.004  # of one timing
TRIALS = 8
CHAINS = (8, 12, 24)  # sums at once, of an instruction that is measured
ARCHITECTURE = llvm.get_process_triple().split("-")[0]
REGISTER = {"x86_64": "=v", "aarch64": "=w"}.get(ARCHITECTURE, "=vr")  # a vector register, written
BEYOND = 4  # times the last cache: what is read from main memory, if there is room for it


@dataclass(frozen=True)
class MemoryLevel:
    """A memory: what fits into it, on all threads together, and how fast they read it."""

    name: str
    bytes: int | None  # None: everything
    bytes_per_second: float


@dataclass(frozen=True)
class Limits:
    """Of `threads` threads. Levels go from the nearest, and smallest, to main memory."""

    threads: int
    operations_per_second: float  # of multiply-adds in float32
    levels: tuple[MemoryLevel, ...]
    step_nanoseconds: float
    rates: tuple[tuple[str, float], ...] = ()  # operations a second of instructions, by name

    def level(self, size: int) -> MemoryLevel:
        """The nearest memory that holds so many bytes."""
        return next(one for one in self.levels if one.bytes is None or size <= one.bytes)

    def rate(self, instruction: StepInstruction | None) -> float:
        """Operations a second of what multiplies and adds."""
        name = None if instruction is None else instruction.name
        return dict(self.rates).get(name or "", self.operations_per_second)


def measure_limits(threads: int, instructions: Iterable[StepInstruction] = ()) -> Limits:
    """Half a second to two, once in a process. Each figure is the best of several: a limit, not an
    average."""
    return _measured(threads, tuple(dict.fromkeys(instructions)))


@functools.cache
def _measured(threads: int, instructions: tuple[StepInstruction, ...]) -> Limits:
    peak = max(_multiply_adds(lanes, chains) for lanes, chains in SHAPES)
    rates = tuple((i.name, 2 * _rate_of(i) * threads) for i in instructions)
    return Limits(threads, 2 * peak * threads, tuple(_levels(threads)), _empty_step(), rates)


# ---------------------------------------------------------------- arithmetic


def _multiply_adds(lanes: int, chains: int) -> float:
    """Multiply-adds a second of one thread, in float32."""
    with _Machine(_chains_text(lanes, chains), ctypes.c_int64) as loop:
        return lanes * chains * _best_rate(loop)


def _rate_of(instruction: StepInstruction) -> float:
    """Multiply-adds a second of one thread, by an instruction."""
    term = parse_term(instruction.native)
    at_once = max(_lanes(x.kind) for x in term.operands())
    best = 0.0
    for chains in CHAINS:
        with _Machine(_instruction_text(term, chains), ctypes.c_int64) as loop:
            best = max(best, at_once * chains * _best_rate(loop))
    return best


def _lanes(kind: str) -> int:
    """Elements of an LLVM type."""
    return int(kind[1:].partition(" ")[0]) if kind.startswith("<") else 1


def _instruction_text(term: Term, chains: int) -> str:
    """void @loop(i64 turns): in each turn, every chain does the instruction once on its sum. What
    it multiplies goes through an empty assembly text, so that no product is computed but once."""
    kind, f = term.kind, Function("loop", ())
    (total, *_) = (x for x in term.operands() if x.kind == kind)
    factors = dict.fromkeys(x for x in term.operands() if x != total)
    now = {x: f"%f{k}" for k, x in enumerate(factors)}

    def value(x: Term, chain: int) -> str:
        if x.arguments is None:
            return f"%a{chain}" if x == total else now[x]
        return emit_term(f, x, [f"{a.kind} {value(a, chain)}" for a in x.arguments])

    ends = []
    for chain in range(chains):
        for x in factors:
            now[x] = f.let(f'call {x.kind} asm sideeffect "", "{REGISTER},0"({x.kind} {now[x]})')
        ends.append(value(term, chain))
    phis = [
        f"  %a{c} = phi {kind} [zeroinitializer, %entry], [{e}, %body]" for c, e in enumerate(ends)
    ]
    phis += [
        f"  %f{k} = phi {x.kind} [zeroinitializer, %entry], [{now[x]}, %body]"
        for k, x in enumerate(factors)
    ]
    kept = [f'  call void asm sideeffect "", "{REGISTER[1:]}"({kind} {e})' for e in ends]
    head = [*f.declared.values(), "define void @loop(i64 %turns) {"]
    return _loop_text("\n".join(head), phis, f.lines, [*kept, "  ret void"])


def _best_rate(loop: Callable[[int], object]) -> float:
    """Turns a second of `loop(turns)`."""
    turns, spent = 1000, 0.0
    while spent < SECONDS:
        turns *= 2
        spent = _seconds(loop, turns)
    return turns / min(_seconds(loop, turns) for _ in range(TRIALS))


def _seconds(function: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _chains_text(lanes: int, chains: int) -> str:
    """float @loop(i64 turns): in each turn, every chain multiplies and adds once."""
    vector, fma = f"<{lanes} x float>", f"@llvm.fma.v{lanes}f32"
    half = f"<{', '.join(['float 0.5'] * lanes)}>"
    phis = [
        f"  %a{i} = phi {vector} [zeroinitializer, %entry], [%b{i}, %body]" for i in range(chains)
    ]
    steps = [
        f"  %b{i} = call {vector} {fma}({vector} %a{i}, {vector} {half}, {vector} {half})"
        for i in range(chains)
    ]
    sums = [f"  %s{i + 1} = fadd {vector} %s{i}, %b{i}" for i in range(chains)]
    return _loop_text(
        f"declare {vector} {fma}({vector}, {vector}, {vector})\ndefine float @loop(i64 %turns) {{",
        phis,
        steps,
        [
            f"  %s0 = fadd {vector} zeroinitializer, zeroinitializer",
            *sums,
            f"  %result = extractelement {vector} %s{chains}, i64 0",
            "  ret float %result",
        ],
    )


# ---------------------------------------------------------------- memory


def _levels(threads: int) -> list[MemoryLevel]:
    """Each cache by reading half of it again and again, main memory by reading much more."""
    with _Machine(_read_text(), ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64) as read:
        last = 32 << 20
        found: list[MemoryLevel] = []
        for cache in cpu.host(threads).memories:
            if cache.cached and cache.size is not None:
                last = cache.size
                total = last * (threads if cache.shared_by == 1 else 1)
                rate = _read_rate(read, total // 2 // threads, threads)
                found.append(MemoryLevel(cache.name, total, rate))
        beyond = min(BEYOND * last, (available_memory() or BEYOND * last) // 4)
        found.append(MemoryLevel("dram", None, _read_rate(read, beyond // threads, threads)))
    fastest = 0.0
    for i in reversed(range(len(found))):  # what is nearer is no slower, whatever disturbed us
        fastest = max(fastest, found[i].bytes_per_second)
        found[i] = MemoryLevel(found[i].name, found[i].bytes, fastest)
    return found


def _read_rate(read: Callable[..., object], size: int, threads: int) -> float:
    """Bytes a second of all threads, each reading `size` bytes of its own."""
    size = max(1, size // BLOCK) * BLOCK
    memory = [np.ones(size + 64, np.uint8) for _ in range(threads)]
    starts = [m.ctypes.data + -m.ctypes.data % 64 for m in memory]
    once = max(1e-9, min(_seconds(read, starts[0], size // BLOCK, 1) for _ in range(3)))
    rounds = max(1, int(SECONDS / once))
    barrier = threading.Barrier(threads)

    def work(start: int) -> float:
        best = float("inf")
        for _ in range(TRIALS):
            barrier.wait()
            best = min(best, _seconds(read, start, size // BLOCK, rounds))
        return size * rounds / best

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, starts))


def _read_text() -> str:
    """i64 @loop(ptr data, i64 blocks, i64 rounds): reads blocks of BLOCK bytes, round by round."""
    vector, count = "<8 x i64>", BLOCK // 64
    phis = [
        f"  %a{k} = phi {vector} [zeroinitializer, %entry], [%b{k}, %body]" for k in range(count)
    ]
    steps = [f"  %start = mul i64 %place, {BLOCK}"]
    for k in range(count):
        steps += [
            f"  %o{k} = add i64 %start, {64 * k}",
            f"  %p{k} = getelementptr i8, ptr %data, i64 %o{k}",
            f"  %v{k} = load {vector}, ptr %p{k}, align 64",
            f"  %b{k} = add {vector} %a{k}, %v{k}",
        ]
    steps += [
        "  %after = add i64 %place, 1",
        "  %wraps = icmp eq i64 %after, %blocks",
        "  %following = select i1 %wraps, i64 0, i64 %after",
    ]
    phis.append("  %place = phi i64 [0, %entry], [%following, %body]")
    sums = [f"  %s{k + 1} = add {vector} %s{k}, %b{k}" for k in range(count)]
    return _loop_text(
        "define i64 @loop(ptr %data, i64 %blocks, i64 %rounds) {",
        phis,
        steps,
        [
            f"  %s0 = add {vector} zeroinitializer, zeroinitializer",
            *sums,
            f"  %result = extractelement {vector} %s{count}, i64 0",
            "  ret i64 %result",
        ],
        turns="mul i64 %blocks, %rounds",
    )


# ---------------------------------------------------------------- an empty step


def _empty_step() -> float:
    """Nanoseconds of a step that computes one element: a call, and reading the clock."""
    node = helper.make_node("Neg", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in ("x", "y")]
    graph = helper.make_graph([node], "empty", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with compile(model, target=cpu.host(threads=1)) as module:
        profile = module.profile(np.ones(1, np.float32), repeat=2000)
    return float(min(s.fastest for s in profile.steps))


# ---------------------------------------------------------------- loops as machine code


def _loop_text(
    head: str, phis: list[str], steps: list[str], end: list[str], turns: str = "add i64 %turns, 0"
) -> str:
    return "\n".join(
        [
            head,
            "entry:",
            f"  %count = {turns}",
            "  br label %body",
            "body:",
            "  %i = phi i64 [0, %entry], [%next, %body]",
            *phis,
            *steps,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %body, label %exit",
            "exit:",
            *end,
            "}",
        ]
    )


class _Machine:
    """A function called `loop`, as machine code for this processor while the context lasts."""

    def __init__(self, text: str, *arguments: Any) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self._engine.finalize_object()
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(
            self._engine.get_function_address("loop")
        )

    def __enter__(self) -> Callable[..., Any]:
        return self._function

    def __exit__(self, *_: object) -> None:
        self._engine.close()
