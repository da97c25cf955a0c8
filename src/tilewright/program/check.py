"""What must be true of every host program: one that was planned, and one that a file holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.base.errors import did_you_mean
from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostProgram,
    HostStep,
    KernelCall,
    MemoryKind,
    MemorySpec,
    Slot,
    Submit,
    SymbolSpec,
    Wait,
    slots_of,
)
from tilewright.program.size import LIMIT, OPERATORS, Arithmetic, Size, format_size, symbols_of

Line = SymbolSpec | MemorySpec | Slot | HostStep

_FIXED = frozenset({MemoryKind.CONSTANTS, MemoryKind.INPUT})  # what steps may not write


class BrokenRule(Exception):
    """What is wrong, in which line of the program (None: in none alone), and what may help."""

    def __init__(self, what: str, line: Line | None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what, self.line, self.hint = what, line, hint


def check_program(program: HostProgram) -> None:
    """BrokenRule for the first rule that the program breaks."""
    _Checker(program).check()


class _Checker:
    def __init__(self, program: HostProgram) -> None:
        self.program = program
        self.line: Line | None = None
        self.symbols: set[str] = set()
        self.memories: dict[str, MemorySpec] = {}
        self.slots: dict[str, Slot] = {}

    def require(self, holds: bool, what: str, hint: str | None = None) -> None:
        if not holds:
            raise BrokenRule(what, self.line, hint)

    def check(self) -> None:
        for symbol in self.program.symbols:
            self.line = symbol
            self.symbol(symbol)
        for memory in self.program.memories:
            self.line = memory
            self.memory(memory)
        for slot in self.program.slots:
            self.line = slot
            self.slot(slot)
        self.line = None
        self.inputs()
        self.outputs()
        self.solved()
        for step in self.program.steps:
            self.line = step
            self.require(type(step) in _STEPS, f"{type(step).__name__} is not a step")
            _STEPS[type(step)](self, step)

    # ---------------------------------------------------------- declarations

    def symbol(self, symbol: SymbolSpec) -> None:
        self.require(symbol.name not in self.symbols, f"symbol {symbol.name} stands twice")
        low, high = symbol.lower, symbol.upper
        self.require(low >= 0, f"{symbol.name} may be {low}, and no size is below 0")
        self.require(high is None or low <= high, f"no number is from {low} to {high}")
        self.symbols.add(symbol.name)

    def memory(self, memory: MemorySpec) -> None:
        self.require(memory.name not in self.memories, f"memory {memory.name} stands twice")
        before = next(reversed(self.memories.values()), memory)
        order = list(MemoryKind)
        self.require(
            order.index(before.kind) <= order.index(memory.kind),
            f"memory {memory.name} ({memory.kind.value}) comes behind {before.name}"
            f" ({before.kind.value})",
            "the order is constants, arenas, inputs, outputs",
        )
        self.size(memory.size, "the size")
        self.memories[memory.name] = memory

    def slot(self, slot: Slot) -> None:
        self.require(slot.name not in self.slots, f"slot {slot.name} stands twice")
        self.require(
            slot.memory in self.memories,
            f"there is no memory called {slot.memory!r}",
            did_you_mean(slot.memory, list(self.memories)),
        )
        self.size(slot.offset, "the offset")
        for extent in slot.shape:
            self.size(extent, "a dimension")
        self.fits(slot, self.memories[slot.memory])
        self.slots[slot.name] = slot

    def size(self, size: Size, what: str) -> None:
        """A number, in which only the program's symbols vary."""
        self.require(not isinstance(size, int) or size >= 0, f"{what} is {size}")
        self.numbers(size, what)
        strange = [name for name in dict.fromkeys(symbols_of(size)) if name not in self.symbols]
        self.require(
            not strange,
            f"{what} is {format_size(size)}, and {', '.join(strange)} is no symbol of the program",
        )

    def numbers(self, size: Size, what: str) -> None:
        if isinstance(size, int):
            self.require(abs(size) <= LIMIT, f"{what} is {size}, which does not fit in 64 bits")
        elif isinstance(size, Arithmetic):
            self.require(size.op in OPERATORS, f"{what} has the operator {size.op!r}")
            self.numbers(size.a, what)
            self.numbers(size.b, what)

    def fits(self, slot: Slot, memory: MemorySpec) -> None:
        """Whether the slot ends inside its memory, where all sizes are constant."""
        offset, taken, size = slot.offset, slot.bytes, memory.size
        if isinstance(offset, int) and isinstance(taken, int) and isinstance(size, int):
            self.require(
                offset + taken <= size,
                f"slot {slot.name} ends at {offset + taken}, beyond the {size} bytes of"
                f" {memory.name}",
            )

    # ---------------------------------------------------------- what a caller gives and gets

    def inputs(self) -> None:
        names = self.program.inputs
        twice = sorted(n for n in set(names) if names.count(n) > 1)
        self.require(not twice, f"two inputs are called {', '.join(twice)}")
        places = [self.known(name) for name in names]
        memories = [m.name for m in self.program.of_kind(MemoryKind.INPUT)]
        self.require(
            [s.memory for s in places] == memories and all(s.offset == 0 for s in places),
            "its inputs do not each begin a memory, in order",
        )

    def outputs(self) -> None:
        program = self.program
        places = [self.known(name) for name in program.outputs]
        names = program.output_names
        self.require(
            len(names) in (0, len(places)), f"{len(names)} names are given to {len(places)} outputs"
        )
        for place in places:
            own = self.memories[place.memory].kind is MemoryKind.OUTPUT
            self.require(
                not own or place.offset == 0,
                f"output {place.name} does not begin where its memory begins",
            )
        for memory in program.of_kind(MemoryKind.OUTPUT):
            written = any(place.memory == memory.name for place in places)
            self.require(written, f"no output lies in {memory.name}")

    def solved(self) -> None:
        """A call finds each symbol's value as a dimension of an input."""
        found = {d for name in self.program.inputs for d in self.slots[name].shape}
        for symbol in self.program.symbols:
            self.require(
                symbol.name in found,
                f"no dimension of an input is the symbol {symbol.name}, so its value cannot be"
                " found",
            )

    # ---------------------------------------------------------- steps

    def known(self, name: str) -> Slot:
        hint = None if name in self.slots else did_you_mean(name, list(self.slots))
        self.require(name in self.slots, f"there is no slot called {name!r}", hint)
        return self.slots[name]

    def writable(self, names: Iterable[str]) -> None:
        for name in names:
            memory = self.memories[self.known(name).memory]
            self.require(memory.kind not in _FIXED, f"{name} is written, in {memory.kind.value}")

    def declared(self, names: Sequence[str]) -> None:
        for name in names:
            self.require(name in self.symbols, f"{name} is no symbol of the program")
        self.require(len(set(names)) == len(names), "a symbol is passed twice")


def _check_call(c: _Checker, s: KernelCall) -> None:
    for name in s.slots:
        c.known(name)
    c.declared(s.symbols)


def _check_host_call(c: _Checker, s: HostCall) -> None:
    for name in s.inputs:
        c.known(name)
    c.writable(s.outputs)
    try:
        attrs = json.loads(s.attrs)
    except ValueError:
        attrs = None
    c.require(isinstance(attrs, dict), f"the attributes {s.attrs!r} are no JSON object")


def _check_copy(c: _Checker, s: Copy) -> None:
    source = c.known(s.source)
    c.writable([s.target])
    target = c.known(s.target)
    c.require(
        source.type == target.type,
        f"{s.source} is {source.type}, but {s.target} is {target.type}",
        "a copy moves a whole slot",
    )


def _check_submit(c: _Checker, s: Submit) -> None:
    for name in s.inputs:
        c.known(name)
    c.writable(s.outputs)
    for name in slots_of(s):
        device = c.memories[c.known(name).memory].device
        c.require(
            device == s.device,
            f"{name} lies in memory of {device or 'the host'}, and {s.kernel} runs on {s.device}",
        )


def _check_wait(c: _Checker, s: Wait) -> None:
    """Nothing has to be true."""


_STEPS: dict[type, Callable[[_Checker, Any], None]] = {
    KernelCall: _check_call,
    HostCall: _check_host_call,
    Copy: _check_copy,
    Submit: _check_submit,
    Wait: _check_wait,
}
