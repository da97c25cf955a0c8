"""Kernels and the program that calls them, as one compiled model: code, constants, and a part for
each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.backends.devices import Devices
from tilewright.backends.host.cost import kernel_cost
from tilewright.backends.host.llvm import KernelSignature, emit_host
from tilewright.backends.host.plan import KernelCost, pack_constants, plan_json
from tilewright.backends.native import passes as backends
from tilewright.backends.table import Option, Unit
from tilewright.base.dtype import f32
from tilewright.base.version import VERSION
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor import TensorProgram
from tilewright.optimize.plan_memory import MemoryPlan
from tilewright.runtime.plan import TargetFacts, plan_from_json
from tilewright.runtime.program import Part, Program
from tilewright.target.target import Target


@dataclass(frozen=True)
class CompiledKernel:
    """One distinct kernel that the host program calls: everything between its tensor expression and
    its object code."""

    name: str
    target: Target
    program: TensorProgram
    lowered: Kernel
    llvm: str
    object: bytes
    never_empty: frozenset[str]  # symbols that must not be 0
    fallback: str = ""  # why its schedule is a plain one


@dataclass(frozen=True)
class SubmittedKernel:
    """One distinct kernel that a device is given: what the option holds that was taken."""

    name: str
    unit: Unit
    program: TensorProgram
    option: Option


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
    json = plan_json(
        plan.program,
        functions=plan.host_nodes,
        costs={name: _cost(k) for name, k in kernels.items()},
        output_names=outputs,
        obstacles=obstacles,
    )
    for symbol in json["symbols"]:
        if any(symbol["name"] in k.never_empty for k in called.values()):
            symbol["lower"] = max(1, symbol["lower"])
    return Program(
        plan_from_json(json, "the plan"),
        target_facts(target),
        tuple(_objects(plan, called, target)),
        tuple(pack_constants(plan.program, plan.constants)),
        VERSION,
        parts=tuple(_parts(kernels, devices)),
    )


def target_facts(target: Target) -> TargetFacts:
    """What the runtime knows of a processor."""
    return TargetFacts(
        target.name,
        target.native.triple,
        target.native.processor,
        target.native.features,
        operations_per_second=int(2 * target.peak(f32)) or None,
    )


def _objects(
    plan: MemoryPlan, kernels: Mapping[str, CompiledKernel], target: Target
) -> Iterator[tuple[str, bytes]]:
    """Object files: the kernels', and the one that calls them."""
    signatures = {
        name: KernelSignature(name, len(k.lowered.params), len(symbols(k.lowered)))
        for name, k in kernels.items()
    }
    yield from ((name, k.object) for name, k in kernels.items())
    host = emit_host(plan.program, signatures, triple=target.native.triple)
    yield "host", backends.to_object(host, target)


def _parts(kernels: Mapping[str, AnyKernel], devices: Devices) -> Iterator[Part]:
    """What devices are given before the first call."""
    for name in devices.others:
        unit = devices.units[name]
        theirs = {
            k.name: k.option.built
            for k in kernels.values()
            if isinstance(k, SubmittedKernel) and k.unit is unit
        }
        if unit.backend.part is not None:
            yield unit.backend.part(name, theirs, devices.host_target)


def _cost(kernel: AnyKernel) -> KernelCost:
    cost = kernel_cost(kernel.program)
    if isinstance(kernel, CompiledKernel):
        return replace(cost, fallback=kernel.fallback)
    option = kernel.option
    return replace(cost, cycles=option.cycles, picoseconds=round(option.seconds * 1e12))
