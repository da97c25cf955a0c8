"""The host program: what the host does to run one model. Straight-line, planned, printable.

    memory = MemorySpec(name, device, kind, size)   constants, one arena per device, inputs, outputs
    slot   = Slot(name, memory, offset, dtype, shape)    where a value, or a kernel's scratch, lives
    step   = KernelCall(kernel, device, slots, symbols) | HostCall(op, attrs, inputs, outputs)
           | Copy(source, target) | Submit(kernel, device, inputs, outputs) | Wait(device)

A kernel of a processor is called; one of a device with a memory of its own is submitted to the
device's queue, with slots of that memory, and done when the host has waited. Sizes and offsets are
arithmetic over the model's symbolic dimensions. Steps run in order; the kernels of one step may
use all workers of the pool.

This is all that compiler and runtime share: memory is planned into it, code is made from it, a file
holds it, and a call is run by it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

from tilewright.base.dtype import DType
from tilewright.base.identifiers import identifier, quote
from tilewright.base.node import Node, node
from tilewright.program.size import Size, format_shape, format_size, plus, times

INDENT = "    "


class MemoryKind(enum.Enum):
    """The purposes of a memory, in printing order."""

    CONSTANTS = "constants"  # read-only, filled before the first call, shared by all calls
    ARENA = "arena"  # intermediate values and scratch of one call
    INPUT = "input"  # the caller's array
    OUTPUT = "output"  # the array given back to the caller


@node
class SymbolSpec(Node):
    """A symbolic dimension and its bounds."""

    name: str
    lower: int = 1
    upper: int | None = None


@node
class MemorySpec(Node):
    """A block of bytes of one device, in which slots lie."""

    name: str
    device: str
    kind: MemoryKind
    size: Size  # bytes


@node
class Slot(Node):
    """A row-major array that lies `offset` bytes into a memory."""

    name: str
    memory: str
    offset: Size
    dtype: DType
    shape: tuple[Size, ...]

    @property
    def type(self) -> str:
        """ "f32[n, 3]"."""
        return f"{self.dtype}{format_shape(self.shape)}"

    @property
    def bytes(self) -> Size:
        size: Size = self.dtype.bytes
        for extent in self.shape:
            size = times(extent, size)
        return size

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    __repr__ = __str__


@node
class KernelCall(Node):
    """kernel(*slots, *symbols): its inputs, outputs and scratch, in its parameters' order."""

    kernel: str
    device: str
    slots: tuple[str, ...]  # scratch is last
    symbols: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # the model's nodes that this step computes


@node
class HostCall(Node):
    """A function that the caller's table has for an operator; `attrs` is a JSON object, as text."""

    op: str
    attrs: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@node
class Copy(Node):
    """Copies a whole slot to another device's memory."""

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
    nodes: tuple[str, ...] = ()


@node
class Wait(Node):
    """Blocks the host until the device has finished all submitted kernels."""

    device: str


HostStep = KernelCall | HostCall | Copy | Submit | Wait
STEPS = {KernelCall: "call", HostCall: "host_call", Copy: "copy", Submit: "submit", Wait: "wait"}


@node
class HostProgram(Node):
    """What the host does to run one model: steps in order, on slots in memories."""

    name: str
    symbols: tuple[SymbolSpec, ...]
    inputs: tuple[str, ...]  # slots, in the model's order
    outputs: tuple[str, ...]
    memories: tuple[MemorySpec, ...]
    slots: tuple[Slot, ...]
    steps: tuple[HostStep, ...]
    output_names: tuple[str, ...] = ()  # the model's, where they are not the slots'

    def __str__(self) -> str:
        return format_host(self)

    __repr__ = __str__

    @property
    def slots_by_name(self) -> dict[str, Slot]:
        return {s.name: s for s in self.slots}

    @property
    def arguments(self) -> tuple[Slot, ...]:
        """Returns the input slots, in the model's order."""
        slots = self.slots_by_name
        return tuple(slots[name] for name in self.inputs)

    @property
    def results(self) -> tuple[Slot, ...]:
        """Returns the output slots by the model's names: two may be one value."""
        slots = self.slots_by_name
        names = self.output_names or self.outputs
        return tuple(
            slots[slot].with_(name=name) for slot, name in zip(self.outputs, names, strict=True)
        )

    @property
    def callbacks(self) -> tuple[HostCall | Submit | Wait, ...]:
        """Lists the steps done by callbacks into Python; the index is the callback number."""
        return tuple(s for s in self.steps if isinstance(s, (HostCall, Submit, Wait)))

    def of_kind(self, kind: MemoryKind) -> tuple[MemorySpec, ...]:
        return tuple(m for m in self.memories if m.kind is kind)

    def device_of(self, step: HostStep) -> str:
        """The device that does a step; empty for a function of the caller's."""
        if isinstance(step, HostCall):
            return ""
        if not isinstance(step, Copy):
            return step.device
        memory = self.slots_by_name[step.target].memory
        return next(m.device for m in self.memories if m.name == memory)


def slots_of(step: HostStep) -> tuple[str, ...]:
    """All slots that a step reads, writes or works in."""
    match step:
        case KernelCall():
            return step.slots
        case HostCall() | Submit():
            return (*step.inputs, *step.outputs)
        case Copy():
            return (step.source, step.target)
    return ()


def name_of_step(step: HostStep) -> str:
    """Returns the step's name in reports."""
    match step:
        case KernelCall() | Submit():
            return step.kernel
        case HostCall():
            return step.op
        case Copy():
            return f"copy {step.source} to {step.target}"
    return f"wait for {step.device}"


def nodes_of(step: HostStep) -> tuple[str, ...]:
    """The model's nodes that a step computes."""
    return () if isinstance(step, (Copy, Wait)) else step.nodes


def total_bytes(slots: Iterable[Slot]) -> Size:
    """Returns the total bytes of the distinct slots."""
    total: Size = 0
    for slot in dict.fromkeys(slots):
        total = plus(total, slot.bytes)
    return total


def format_host(program: HostProgram) -> str:
    """Prints Python syntax, which ir/text/host.py parses back: memories, slots, one line a step."""
    head = f"def {identifier(program.name)}({_names(program.inputs)}):"
    parts = (*program.symbols, *program.memories, *program.slots, *program.steps)
    named = zip(program.outputs, program.output_names or program.outputs, strict=True)
    outputs = ", ".join(
        identifier(slot) if slot == name else f"named({identifier(slot)}, {quote(name)})"
        for slot, name in named
    )
    lines = [*map(format_host_line, parts), f"return {outputs}".rstrip()]
    return "\n".join([head, *(INDENT + line for line in lines)])


def format_host_line(part: SymbolSpec | MemorySpec | Slot | HostStep) -> str:
    return _FORMAT[type(part)](part)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(identifier, names))


def _format_memory(m: MemorySpec) -> str:
    what = f"{quote(m.kind.value)}, {quote(m.device)}, {format_size(m.size)}"
    return f"{identifier(m.name)} = memory({what})"


def _format_slot(s: Slot) -> str:
    type_ = s.type if s.shape else f"{s.dtype}[()]"
    return f"{identifier(s.name)}: {type_} = {identifier(s.memory)}[{format_size(s.offset)}]"


def _format_symbol(s: SymbolSpec) -> str:
    upper = "" if s.upper is None else f", {s.upper}"
    return f"{identifier(s.name)} = symbol({s.lower}{upper})"


def _format_call(c: KernelCall) -> str:
    symbols = (f"{name}={name}" for name in map(identifier, c.symbols))
    call = f"{identifier(c.kernel)}({', '.join([*map(identifier, c.slots), *symbols])})"
    return f"call({call}, {quote(c.device)}{_format_nodes(c.nodes)})"


def _format_host_call(c: HostCall) -> str:
    call = f"{identifier(c.op)}({_names(c.inputs)})"
    target = f"{_names(c.outputs)} = " if c.outputs else ""
    attrs = "" if c.attrs == "{}" else f", attrs={quote(c.attrs)}"
    return f"{target}host_call({call}{attrs}{_format_nodes(c.nodes)})"


def _format_submit(s: Submit) -> str:
    target = f"{_names(s.outputs)} = " if s.outputs else ""
    call = f"{identifier(s.kernel)}({_names(s.inputs)})"
    return f"{target}submit({call}, {quote(s.device)}{_format_nodes(s.nodes)})"


def _format_nodes(nodes: Sequence[str]) -> str:
    return f", nodes=[{', '.join(map(quote, nodes))}]" if nodes else ""


_FORMAT: dict[type, Callable[..., str]] = {
    SymbolSpec: _format_symbol,
    MemorySpec: _format_memory,
    Slot: _format_slot,
    KernelCall: _format_call,
    HostCall: _format_host_call,
    Copy: lambda c: f"{identifier(c.target)} = copy({identifier(c.source)})",
    Submit: _format_submit,
    Wait: lambda w: f"wait({quote(w.device)})",
}
