"""The host program as one LLVM function, `i32 tw_entry(ptr call)`.

It finds every slot (a memory's address and an offset), calls the kernels in order, and keeps no
state. What a call is given is the record `tw_call` of runtime/native/tilewright_runtime.h. Kernels
are outside functions, in objects of their own: `void kernel(ptr pool, ptr slot …, i64 symbol …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostProgram,
    KernelCall,
    Submit,
    Wait,
    slots_of,
)
from tilewright.program.size import Arithmetic, Size

ENTRY = "tw_entry"

_FIELDS = ("memories", "dims", "pool", "host_call", "host", "times")  # of tw_call, all pointers
_HEAD = f"""\
%tw_call = type {{ {", ".join(["ptr"] * len(_FIELDS))} }}

declare i64 @tw_now()

define internal void @stamp(ptr %times, i64 %step) noinline nounwind {{
  %off = icmp eq ptr %times, null
  br i1 %off, label %done, label %on
on:
  %now = call i64 @tw_now()
  %place = getelementptr i64, ptr %times, i64 %step
  store i64 %now, ptr %place
  br label %done
done:
  ret void
}}
"""
_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem"}
_INTRINSIC = {"min": "llvm.smin.i64", "max": "llvm.smax.i64"}


@dataclass(frozen=True)
class KernelSignature:
    """How a kernel is called: its symbol in the object code, its buffers and its dimensions."""

    symbol: str
    buffers: int
    dims: int


def emit_host(
    program: HostProgram, kernels: Mapping[str, KernelSignature], *, triple: str = ""
) -> str:
    """The LLVM module of a host program that breaks no rule, as text. Steps that stamp no time cost
    one test."""
    writer = _Writer(program, kernels)
    for number, step in enumerate(program.steps):
        writer.emit(f"call void @stamp(ptr %times, i64 {number})")
        _STEP[type(step)](writer, number, step)
    writer.emit(f"call void @stamp(ptr %times, i64 {len(program.steps)})")
    writer.emit("ret i32 0")
    target = [f'target triple = "{triple}"', ""] if triple else []
    return "\n".join(
        [
            f"; {' '.join(program.name.split())}",
            *target,
            _HEAD,
            f"define i32 @{ENTRY}(ptr %call) nounwind {{",
            *writer.entry,
            *writer.lines,
            "}",
            "",
            *writer.declared.values(),
            "",
        ]
    )


class _Writer:
    """The lines of the function. Its blocks follow one another, so a value, once computed, can be
    used by all later steps: `known` has the register of each."""

    def __init__(self, program: HostProgram, kernels: Mapping[str, KernelSignature]) -> None:
        self.program = program
        self.kernels = kernels
        self.slots = program.slots_by_name
        self.memories = {m.name: i for i, m in enumerate(program.memories)}
        self.callbacks = {id(s): k for k, s in enumerate(program.callbacks)}
        self.places = {s.name: i for i, s in enumerate(program.symbols)}
        self.declared: dict[str, str] = {}
        self.entry: list[str] = []  # what belongs at the function's start: allocations
        self.lines: list[str] = []
        self.known: dict[object, str] = {}
        for i, name in enumerate(_FIELDS):
            place = self.let(f"getelementptr %tw_call, ptr %call, i32 0, i32 {i}")
            self.emit(f"%{name} = load ptr, ptr {place}")

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def let(self, text: str) -> str:
        """Emits `%new = text` and returns %new."""
        name = f"%v{len(self.lines)}"
        self.emit(f"{name} = {text}")
        return name

    def declare(self, name: str, line: str) -> None:
        self.declared.setdefault(name, line)

    # ---------------------------------------------------------- places

    def base(self, name: str) -> str:
        """The address of a memory."""
        number = self.memories[name]
        key = ("memory", number)
        if key not in self.known:
            place = self.let(f"getelementptr ptr, ptr %memories, i64 {number}")
            self.known[key] = self.let(f"load ptr, ptr {place}")
        return self.known[key]

    def address(self, name: str) -> str:
        """The address of a slot."""
        slot = self.slots[name]
        key = ("slot", slot.memory, slot.offset)
        if key not in self.known:
            base, offset = self.base(slot.memory), self.number(slot.offset)
            self.known[key] = (
                base if offset == "0" else self.let(f"getelementptr i8, ptr {base}, i64 {offset}")
            )
        return self.known[key]

    # ---------------------------------------------------------- numbers

    def number(self, size: Size) -> str:
        """A size as an i64."""
        if isinstance(size, int):
            return str(size)
        if size not in self.known:
            self.known[size] = self.compute(size)
        return self.known[size]

    def compute(self, size: str | Arithmetic) -> str:
        if isinstance(size, str):
            place = self.let(f"getelementptr i64, ptr %dims, i64 {self.places[size]}")
            return self.let(f"load i64, ptr {place}")
        a, b = self.number(size.a), self.number(size.b)
        if size.op in _PLAIN:
            return self.let(f"{_PLAIN[size.op]} i64 {a}, {b}")
        if size.op in _INTRINSIC:
            name = _INTRINSIC[size.op]
            self.declare(name, f"declare i64 @{name}(i64, i64)")
            return self.let(f"call i64 @{name}(i64 {a}, i64 {b})")
        return self.floor_division(a, b, quotient=size.op == "floordiv")

    def floor_division(self, a: str, b: str, *, quotient: bool) -> str:
        """LLVM divides towards zero: where the signs of remainder and divisor differ, the floor is
        one less, and the remainder one divisor more."""
        rest = self.let(f"srem i64 {a}, {b}")
        signs = self.let(f"xor i64 {rest}, {b}")
        differ = self.let(f"icmp slt i64 {signs}, 0")
        uneven = self.let(f"icmp ne i64 {rest}, 0")
        off = self.let(f"and i1 {differ}, {uneven}")
        if quotient:
            whole = self.let(f"sdiv i64 {a}, {b}")
            less = self.let(f"sext i1 {off} to i64")
            return self.let(f"add i64 {whole}, {less}")
        more = self.let(f"select i1 {off}, i64 {b}, i64 0")
        return self.let(f"add i64 {rest}, {more}")


# ---------------------------------------------------------------- steps


def _emit_call(w: _Writer, number: int, step: KernelCall) -> None:
    kernel = w.kernels.get(step.kernel)
    if kernel is None:
        raise CompileError(f"there is no kernel {step.kernel!r}", program=w.program)
    if (kernel.buffers, kernel.dims) != (len(step.slots), len(step.symbols)):
        raise CompileError(
            f"kernel {step.kernel!r} takes {kernel.buffers} buffers and {kernel.dims} dimensions,"
            f" and is called with {len(step.slots)} and {len(step.symbols)}",
            program=w.program,
        )
    types = ["ptr", *["ptr"] * kernel.buffers, *["i64"] * kernel.dims]
    arguments = ["ptr %pool", *(f"ptr {w.address(s)}" for s in step.slots)]
    arguments += [f"i64 {w.number(s)}" for s in step.symbols]
    w.declare(kernel.symbol, f'declare void @"{kernel.symbol}"({", ".join(types)})')
    w.emit(f'call void @"{kernel.symbol}"({", ".join(arguments)})')


def _emit_copy(w: _Writer, number: int, step: Copy) -> None:
    name = "llvm.memcpy.p0.p0.i64"
    w.declare(name, f"declare void @{name}(ptr, ptr, i64, i1)")
    w.emit(
        f"call void @{name}(ptr {w.address(step.target)}, ptr {w.address(step.source)},"
        f" i64 {w.number(w.slots[step.source].bytes)}, i1 false)"
    )


def _emit_callback(w: _Writer, number: int, step: HostCall | Submit | Wait) -> None:
    """The step's buffers in an array on the stack; an answer that is not 0 ends the call."""
    names, function = slots_of(step), w.callbacks[id(step)]
    w.entry.append(f"  %buffers{number} = alloca [{max(1, len(names))} x ptr]")
    for i, name in enumerate(names):
        place = w.let(f"getelementptr ptr, ptr %buffers{number}, i64 {i}")
        w.emit(f"store ptr {w.address(name)}, ptr {place}")
    status = w.let(
        f"call i32 %host_call(ptr %host, i32 {function}, ptr %buffers{number}, ptr %dims)"
    )
    failed = w.let(f"icmp ne i32 {status}, 0")
    w.emit(f"br i1 {failed}, label %failed{number}, label %after{number}")
    w.lines.append(f"failed{number}:")
    w.emit(f"ret i32 {number + 1}")
    w.lines.append(f"after{number}:")


_STEP: dict[type, Callable[[_Writer, int, Any], None]] = {
    KernelCall: _emit_call,
    Copy: _emit_copy,
    HostCall: _emit_callback,
    Submit: _emit_callback,
    Wait: _emit_callback,
}
