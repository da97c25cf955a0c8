"""The host program: what the host does to run one model. Straight-line, planned, printable.

    memory = Memory(name, device, kind, size)       constants, one arena per device, inputs, outputs
    slot   = Slot(name, memory, offset, type)       where a value, or a kernel's scratch, lives
    step   = Call(kernel, device, slots, symbols)   | HostCall(function, inputs, outputs)
           | Copy(source, target) | Submit(kernel, device, inputs, outputs) | Wait(device)

A kernel of a processor is called; one of a device with a memory of its own is submitted to the
device's queue, with slots of that memory, and done when the host has waited. Sizes and offsets are
expressions over the model's symbolic dimensions. Steps run in order; the kernels of one step may
use all workers of the pool.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from tilewright.base.node import Node, node
from tilewright.ir.expr import Dim, Symbol
from tilewright.ir.identifiers import identifier, quote
from tilewright.ir.loop import INDENT, format_symbols
from tilewright.ir.tensor_type import TensorType


class MemoryKind(enum.Enum):
    CONSTANTS = "constants"  # read-only, filled before the first call, shared by all calls
    ARENA = "arena"  # scratch of one call
    INPUT = "input"  # the caller's array
    OUTPUT = "output"  # the array given back to the caller


@node
class Memory(Node):
    name: str
    device: str
    kind: MemoryKind
    size: Dim  # bytes


@node
class Slot(Node):
    name: str
    memory: str
    offset: Dim  # bytes from the memory's start
    type: TensorType


@node
class Call(Node):
    """kernel(*slots, *symbols): its inputs, outputs and scratch, in its parameters' order."""

    kernel: str
    device: str
    slots: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    nodes: tuple[str, ...]  # the model's nodes that this step computes


@node
class HostCall(Node):
    """Function number `function` of the caller's table reads and writes slots in host memory."""

    function: int
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


@node
class Copy(Node):
    """Moves a whole slot, from one device's memory to another's."""

    source: str
    target: str


@node
class Submit(Node):
    """Hands a kernel to a device, which runs what it is given in order; all slots lie in memory
    that the device reads and writes."""

    kernel: str
    device: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


@node
class Wait(Node):
    """Until a device has done all that it was given."""

    device: str


HostStep = Call | HostCall | Copy | Submit | Wait


@node
class HostProgram(Node):
    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[str, ...]  # slots, in the model's order
    outputs: tuple[str, ...]
    memories: tuple[Memory, ...]
    slots: tuple[Slot, ...]
    steps: tuple[HostStep, ...]

    def __str__(self) -> str:
        return format_host(self)

    @property
    def callbacks(self) -> tuple[HostCall | Submit | Wait, ...]:
        """The steps that compiled code does not do itself, by the number that it calls them by:
        the functions of the caller's table, then what devices are told."""
        functions = {s.function: s for s in self.steps if isinstance(s, HostCall)}
        told = (s for s in self.steps if isinstance(s, (Submit, Wait)))
        return (*(functions[k] for k in sorted(functions)), *told)

    __repr__ = __str__


def format_host(program: HostProgram) -> str:
    """Python syntax, which text.py parses back: memories, slots, then one line a step."""
    head = f"def {identifier(program.name)}({_names(program.inputs)}):"
    parts = (*program.memories, *program.slots, *program.steps)
    lines = [*map(format_host_line, parts), f"return {_names(program.outputs)}".rstrip()]
    symbols = format_symbols(program.symbols)
    return "\n".join([head, *symbols, *(INDENT + line for line in lines)])


def format_host_line(part: Memory | Slot | HostStep) -> str:
    return _FORMAT[type(part)](part)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(identifier, names))


def _format_memory(m: Memory) -> str:
    return f"{identifier(m.name)} = memory({quote(m.kind.value)}, {quote(m.device)}, {m.size})"


def _format_slot(s: Slot) -> str:
    return f"{identifier(s.name)}: {s.type} = {identifier(s.memory)}[{s.offset}]"


def _format_call(c: Call) -> str:
    arguments = [*map(identifier, c.slots), *(f"{identifier(s.name)}={s}" for s in c.symbols)]
    call = f"{identifier(c.kernel)}({', '.join(arguments)})"
    return f"call({call}, {quote(c.device)}{_format_nodes(c.nodes)})"


def _format_host_call(c: HostCall) -> str:
    call = f"{identifier(c.op)}({_names(c.inputs)})"
    target = f"{_names(c.outputs)} = " if c.outputs else ""
    return f"{target}host_call({call}, {c.function}{_format_nodes(c.nodes)})"


def _format_submit(s: Submit) -> str:
    target = f"{_names(s.outputs)} = " if s.outputs else ""
    call = f"{identifier(s.kernel)}({_names(s.inputs)})"
    return f"{target}submit({call}, {quote(s.device)}{_format_nodes(s.nodes)})"


def _format_nodes(nodes: Sequence[str]) -> str:
    return f", nodes=[{', '.join(map(quote, nodes))}]" if nodes else ""


_FORMAT: dict[type, Callable[..., str]] = {
    Memory: _format_memory,
    Slot: _format_slot,
    Call: _format_call,
    HostCall: _format_host_call,
    Copy: lambda c: f"{identifier(c.target)} = copy({identifier(c.source)})",
    Submit: _format_submit,
    Wait: lambda w: f"wait({quote(w.device)})",
}
