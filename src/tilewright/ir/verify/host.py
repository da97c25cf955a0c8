"""What must be true of every host program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.base.errors import CompileError, did_you_mean
from tilewright.ir.expr import Symbol
from tilewright.ir.host_program import (
    Call,
    Copy,
    HostCall,
    HostProgram,
    HostStep,
    Memory,
    MemoryKind,
    Slot,
    Submit,
    Wait,
    format_host_line,
)
from tilewright.ir.identifiers import identifier
from tilewright.ir.verify.expr import ExprChecker

_FIXED = frozenset({MemoryKind.CONSTANTS, MemoryKind.INPUT})  # what steps may not write


def verify_host(program: HostProgram) -> None:
    """CompileError, with the line, where the host program breaks a rule."""
    _HostChecker(program).host()


class _HostChecker(ExprChecker):
    def __init__(self, program: HostProgram) -> None:
        super().__init__()
        self.program = program
        self.line: Memory | Slot | HostStep | None = None
        self.memories: dict[str, Memory] = {}
        self.slots: dict[str, Slot] = {}

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        line = "..." if self.line is None else format_host_line(self.line)
        name = identifier(self.program.name)
        inputs = ", ".join(map(identifier, self.program.inputs))
        return CompileError(what, program=f"def {name}({inputs}):\n    {line}", hint=hint)

    def take(self, name: str, kind: str) -> None:
        """Symbols, memories and slots are told apart by where they stand."""

    def host(self) -> None:
        p = self.program
        for symbol in p.symbols:
            self.require(symbol.name not in self.symbols, f"symbol {symbol.name} stands twice")
            self.expr(symbol)
        for memory in p.memories:
            self.line = memory
            self.require(memory.name not in self.memories, f"memory {memory.name} stands twice")
            self.size(memory.size, "the size")
            self.memories[memory.name] = memory
        for slot in p.slots:
            self.line = slot
            self.slot(slot)
        self.line = None
        for name in (*p.inputs, *p.outputs):
            self.known(name)
        for step in p.steps:
            self.line = step
            check = _STEPS.get(type(step))
            if check is None:
                raise self.fail(f"{type(step).__name__} is not a step")
            check(self, step)

    def size(self, dim: Any, what: str) -> None:
        """A number of bytes, in which only the program's symbols vary."""
        before = set(self.symbols)
        self.dim(dim, what, constant=True)
        new = [name for name in self.symbols if name not in before]
        self.require(not new, f"{what} is {dim}, and {', '.join(new)} is no symbol of the program")

    def slot(self, slot: Slot) -> None:
        self.require(slot.name not in self.slots, f"slot {slot.name} stands twice")
        if slot.memory not in self.memories:
            hint = did_you_mean(slot.memory, list(self.memories))
            raise self.fail(f"there is no memory called {slot.memory!r}", hint)
        self.size(slot.offset, "the offset")
        for d in slot.type.shape:
            self.size(d, "a dimension")
        self.fits(slot, self.memories[slot.memory])
        self.slots[slot.name] = slot

    def fits(self, slot: Slot, memory: Memory) -> None:
        """Whether the slot ends inside its memory, where all sizes are constant."""
        offset, bytes_, size = slot.offset, slot.type.bytes, memory.size
        if isinstance(offset, int) and isinstance(bytes_, int) and isinstance(size, int):
            self.require(
                offset + bytes_ <= size,
                f"slot {slot.name} ends at {offset + bytes_}, beyond the {size} bytes of"
                f" {memory.name}",
            )

    def known(self, name: str) -> Slot:
        if name not in self.slots:
            hint = did_you_mean(name, list(self.slots))
            raise self.fail(f"there is no slot called {name!r}", hint)
        return self.slots[name]

    def writable(self, names: Iterable[str]) -> None:
        for name in names:
            memory = self.memories[self.known(name).memory]
            self.require(memory.kind not in _FIXED, f"{name} is written, in {memory.kind.value}")

    def declared(self, symbols: Sequence[Symbol]) -> None:
        for s in symbols:
            self.require(s in self.program.symbols, f"{s.name} is no symbol of the program")
        self.require(len(set(symbols)) == len(symbols), "a symbol is passed twice")


def _check_call(c: _HostChecker, s: Call) -> None:
    for name in s.slots:
        c.known(name)
    c.declared(s.symbols)


def _check_host_call(c: _HostChecker, s: HostCall) -> None:
    c.require(s.function >= 0, f"function number {s.function} is negative")
    for name in s.inputs:
        c.known(name)
    c.writable(s.outputs)


def _check_copy(c: _HostChecker, s: Copy) -> None:
    source = c.known(s.source)
    c.writable([s.target])
    target = c.known(s.target)
    c.require(
        source.type == target.type,
        f"{s.source} is {source.type}, but {s.target} is {target.type}",
        "a copy moves a whole slot",
    )


def _check_submit(c: _HostChecker, s: Submit) -> None:
    for name in s.inputs:
        c.known(name)
    c.writable(s.outputs)
    for name in (*s.inputs, *s.outputs):
        device = c.memories[c.known(name).memory].device
        c.require(
            device == s.device,
            f"{name} lies in memory of {device or 'the host'}, and {s.kernel} runs on {s.device}",
        )


def _check_wait(c: _HostChecker, s: Wait) -> None:
    """Nothing has to be true."""


_STEPS: dict[type, Callable[[_HostChecker, Any], None]] = {
    Call: _check_call,
    HostCall: _check_host_call,
    Copy: _check_copy,
    Submit: _check_submit,
    Wait: _check_wait,
}
