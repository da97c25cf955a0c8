"""The host program: what the host does to run one model. Straight-line, planned, printable.

    memory = Memory(name, device, kind, size)        constants, one arena per device, inputs, outputs
    slot   = Slot(name, memory, offset, type)        where a value, or a kernel's scratch, lives
    step   = Call(kernel, device, arguments, dims)   | HostCall(function, inputs, outputs)
           | Copy(source, target)

Sizes and offsets are expressions over the model's symbolic dimensions. Steps run in order; the
kernels of one step may use all workers of the pool.
"""

from __future__ import annotations

import enum
from typing import Union

from tilewright.base.node import Node, node
from tilewright.ir.expr import Dim, Symbol
from tilewright.ir.graph import TensorType


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
    """kernel(*slots, *symbols): inputs, outputs, scratch of the kernel, in its parameters' order."""

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


HostStep = Union[Call, HostCall, Copy]


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

    __repr__ = __str__


def format_host(program: HostProgram) -> str:
    """Memories, slots, then one line a step."""
    lines = [f"host {program.name}({', '.join(program.inputs)}) -> {', '.join(program.outputs)}"]
    lines += [
        f"  memory {m.name} on {m.device or 'host'}: {m.kind.value}, {m.size} bytes"
        for m in program.memories
    ]
    lines += [f"  slot {s.name} = {s.memory}[{s.offset}]  # {s.type}" for s in program.slots]
    return "\n".join([*lines, *(f"  {_format_step(s)}" for s in program.steps)])


def _format_step(step: HostStep) -> str:
    if isinstance(step, Copy):
        return f"copy {step.source} -> {step.target}"
    origin = f"  # {', '.join(step.nodes)}" if step.nodes else ""
    if isinstance(step, HostCall):
        return f"host_call {step.op}({', '.join(step.inputs)}) -> {', '.join(step.outputs)}{origin}"
    arguments = ", ".join([*step.slots, *(s.name for s in step.symbols)])
    return f"call {step.kernel}({arguments}) on {step.device}{origin}"
