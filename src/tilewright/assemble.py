"""Kernels and the program that calls them, as one compiled model: code, constants, and a part for
each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.backends.devices import Devices
from tilewright.backends.host.constants import pack_constants
from tilewright.backends.host.cost import kernel_cost
from tilewright.backends.host.llvm import KernelSignature, emit_host
from tilewright.backends.native import passes as backends
from tilewright.backends.table import Option
from tilewright.base.dtype import f32
from tilewright.base.version import VERSION
from tilewright.ir.dims import size_of
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import GraphNode
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Kernel
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.verify.host import verify_host
from tilewright.ops.function import CallAttrs
from tilewright.optimize.edit import roots
from tilewright.optimize.merge_subgraphs import members
from tilewright.optimize.plan_memory import MemoryPlan
from tilewright.program.host_program import (
    Copy,
    HostProgram,
    HostStep,
    KernelCall,
    Slot,
    Submit,
    Wait,
    slots_of,
    total_bytes,
)
from tilewright.runtime.program import (
    DevicePart,
    Program,
    StepFacts,
    StepInstruction,
    StepPiece,
    TargetFacts,
)
from tilewright.target.target import Target


@dataclass(frozen=True)
class CompiledKernel:
    """One distinct kernel that the host program calls: its tensor expression, and what is left of
    it once it is object code, in which it is called `symbol`."""

    name: str
    target: Target
    program: TensorProgram
    symbol: str
    signature: Kernel  # without a body
    symbols: tuple[Symbol, ...]
    object: bytes
    never_empty: frozenset[str]  # symbols that must not be 0
    fallback: str = ""  # why its schedule is a plain one
    instruction: Instruction | None = None  # what multiplies and adds in it


@dataclass(frozen=True)
class SubmittedKernel:
    """One distinct kernel that a device is given: what the option holds that was taken."""

    name: str
    device: str
    program: TensorProgram
    option: Option

    @property
    def given(self) -> int:
        """How many arrays the device is given."""
        return len(self.option.held) - len(self.program.outputs)


AnyKernel = CompiledKernel | SubmittedKernel


def assemble(
    plan: MemoryPlan,
    kernels: Mapping[str, AnyKernel],
    devices: Devices,
    outputs: Sequence[str],
    obstacles: Mapping[int, Sequence[str]],
) -> Program:
    """The compiled model; `outputs` are the model's names for them, `obstacles` say why steps are
    not done elsewhere."""
    target = devices.host_target
    called = {k: c for k, c in kernels.items() if isinstance(c, CompiledKernel)}
    never_empty = frozenset().union(*(k.never_empty for k in called.values()))
    symbols = (
        s.with_(lower=max(1, s.lower)) if s.name in never_empty else s for s in plan.program.symbols
    )
    names = () if plan.program.outputs == tuple(outputs) else tuple(outputs)
    host = plan.program.with_(symbols=tuple(symbols), output_names=names)
    verify_host(host)
    slots, known = host.slots_by_name, {name: _facts_of(k) for name, k in kernels.items()}
    steps = tuple(
        replace(
            _facts(slots, step, known),
            obstacles=tuple(obstacles.get(number, ())),
            pieces=tuple(_pieces(plan.nodes[number], kernels[step.kernel]))
            if isinstance(step, Submit)
            else (),
        )
        for number, step in enumerate(host.steps)
    )
    return Program(
        host,
        steps,
        target_facts(target),
        tuple(_objects(host, called, target)),
        tuple(pack_constants(host, plan.constants)),
        VERSION,
        parts=tuple(_parts(kernels, devices)),
    )


def target_facts(target: Target) -> TargetFacts:
    """What the runtime knows of a processor."""
    return TargetFacts(
        target.name,
        target.llvm.triple,
        target.llvm.processor,
        target.llvm.features,
        operations_per_second=int(2 * target.peak(f32)) or None,
    )


def _objects(
    program: HostProgram, kernels: Mapping[str, CompiledKernel], target: Target
) -> Iterator[tuple[str, bytes]]:
    """Object files: the kernels', and the one that calls them."""
    signatures = {
        name: KernelSignature(k.symbol, len(k.signature.params), len(k.symbols))
        for name, k in kernels.items()
    }
    yield from ((name, k.object) for name, k in kernels.items())
    host = emit_host(program, signatures, triple=target.llvm.triple)
    yield "host", backends.to_object(host, target)


def _parts(kernels: Mapping[str, AnyKernel], devices: Devices) -> Iterator[DevicePart]:
    """What devices are given before the first call."""
    for name in devices.others:
        spec = devices.specs[name]
        built = {
            k.name: k.option.built
            for k in kernels.values()
            if isinstance(k, SubmittedKernel) and k.device == name
        }
        if spec.backend.part is not None:
            yield spec.backend.part(name, built, devices.host_target)


def _facts(slots: Mapping[str, Slot], step: HostStep, known: Mapping[str, StepFacts]) -> StepFacts:
    """What is known of a step. Arrays that go to a device and come back are moved once."""
    if isinstance(step, Wait):
        return StepFacts(0, 0)
    if isinstance(step, KernelCall):
        return known[step.kernel]
    moved = total_bytes(slots[name] for name in slots_of(step))
    if isinstance(step, Submit):
        return replace(known[step.kernel], bytes=moved)
    return StepFacts(0 if isinstance(step, Copy) else None, moved)


def _facts_of(kernel: AnyKernel) -> StepFacts:
    cost = kernel_cost(kernel.program)
    facts = StepFacts(size_of(cost.operations), size_of(cost.bytes))
    if isinstance(kernel, CompiledKernel):
        used = kernel.instruction
        instruction = None if used is None else StepInstruction(used.name, used.native)
        signature = kernel.signature
        first, count = len(signature.inputs), len(signature.outputs)
        return replace(
            facts,
            fallback=kernel.fallback,
            instruction=instruction,
            written=tuple(range(first, first + count)),
        )
    option = kernel.option
    picoseconds = round(option.seconds * 1e12)
    return replace(facts, cycles=option.cycles, picoseconds=picoseconds, bound=option.bound)


def _pieces(n: GraphNode | None, kernel: AnyKernel) -> Iterator[StepPiece]:
    """Yields what is known of the kernels that a device runs as one, with the nodes of each."""
    if n is None or isinstance(kernel, CompiledKernel) or not kernel.option.parts:
        return
    calls = members(n)
    maker = {v: k for k, call in enumerate(calls) for v in call.outputs}
    whole = roots(n.attrs_of(CallAttrs).body.nodes)  # what is read as a view was made as these
    for call, part in zip(calls, kernel.option.parts, strict=True):
        cost, nodes = kernel_cost(part.program), call.attrs_of(CallAttrs).origins
        read = (whole.get(v, v) for v in call.inputs)
        after = tuple(dict.fromkeys(maker[v] for v in read if v in maker))
        amounts = size_of(cost.operations), size_of(cost.bytes)
        yield StepPiece(
            part.program.name, nodes, amounts[0], part.cycles, part.bound, amounts[1], after
        )
