"""What the runtime knows of a compiled model: plain data that can be written as JSON.

The compiled code itself is opaque: one function that is given the memories' addresses and the
values of the symbols. The plan says how to make these from a caller's arrays, and what the steps
inside are called.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import DTYPES, DType
from tilewright.base.errors import ArtifactError
from tilewright.runtime.fields import Fields, as_text
from tilewright.runtime.size import (
    Size,
    format_shape,
    size_from_json,
    size_to_json,
    symbols_of,
)


class MemoryKind(enum.Enum):
    """In the order in which a call lists its memories."""

    CONSTANTS = "constants"  # read-only, shared by all calls
    ARENA = "arena"  # scratch of one call
    INPUT = "input"  # the caller's array
    OUTPUT = "output"  # the array given back


class StepKind(enum.Enum):
    CALL = "call"  # a kernel
    HOST_CALL = "host_call"  # a function that the caller supplies
    COPY = "copy"  # from one memory to another
    SUBMIT = "submit"  # a kernel, to a device's queue
    WAIT = "wait"  # for all that a device was given


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """A symbolic dimension and its bounds."""

    name: str
    lower: int = 1
    upper: int | None = None


@dataclass(frozen=True, slots=True)
class MemorySpec:
    name: str
    device: str
    kind: MemoryKind
    size: Size  # bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row-major array that lies `offset` bytes into memory number `memory`."""

    name: str
    dtype: DType
    shape: tuple[Size, ...]
    memory: int
    offset: Size = 0

    @property
    def type(self) -> str:
        """ "f32[n, 3]"."""
        return f"{self.dtype}{format_shape(self.shape)}"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step; `operations` and `bytes` (moved to and from memory) are None where not known. Of a
    kernel that a device runs, `cycles` and `picoseconds` are what it takes there; of one that the
    host runs though there are devices, `obstacles` say why, a line for each. `fallback` is not
    empty where the rules for schedules refused a kernel, and says what they refused."""

    kind: StepKind
    name: str
    device: str
    nodes: tuple[str, ...]  # of the model
    operations: Size | None = None
    bytes: Size | None = None
    cycles: int | None = None
    picoseconds: int | None = None
    obstacles: tuple[str, ...] = ()
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A function that the caller supplies, by operator and attributes; and what it works on."""

    op: str
    attrs: Any  # JSON
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """What a device is told: to run a kernel (`kernel`) on arrays of its memory, of which the last
    `results` are written, or to finish (no kernel)."""

    device: str
    kernel: str = ""
    arrays: tuple[Tensor, ...] = ()
    results: int = 0


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What the code was compiled for, and how fast that is (None: not known)."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]  # instruction sets that the code uses
    operations_per_second: int | None = None
    bytes_per_second: int | None = None

    @property
    def architecture(self) -> str:
        return self.triple.split("-")[0]

    def __str__(self) -> str:
        """ "host (x86_64 znver4)"."""
        return f"{self.name} ({f'{self.architecture} {self.cpu}'.rstrip()})"


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    symbols: tuple[SymbolSpec, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    memories: tuple[MemorySpec, ...]
    steps: tuple[StepSpec, ...]
    functions: tuple[HostFunction, ...] = ()
    device_calls: tuple[DeviceCall, ...] = ()  # numbered after the functions

    def of_kind(self, kind: MemoryKind) -> tuple[MemorySpec, ...]:
        return tuple(m for m in self.memories if m.kind is kind)


# ---------------------------------------------------------------- checking


def check_plan(plan: Plan) -> Plan:
    """The plan itself; ArtifactError where it does not hold together."""
    problem = next(_problems(plan), None)
    if problem is not None:
        raise ArtifactError(f"the plan of {plan.name!r} does not hold together: {problem}")
    return plan


def _problems(plan: Plan) -> Iterator[str]:
    kinds = [m.kind for m in plan.memories]
    if kinds != sorted(kinds, key=list(MemoryKind).index):
        yield "its memories are not in the order constants, arenas, inputs, outputs"
    yield from _input_problems(plan)
    yield from _symbol_problems(plan)
    for tensor in (*plan.inputs, *plan.outputs, *_called_with(plan)):
        if not 0 <= tensor.memory < len(plan.memories):
            yield f"{tensor.name!r} lies in memory {tensor.memory} of {len(plan.memories)}"
    given = {t.memory for t in plan.outputs}
    for i, memory in enumerate(plan.memories):
        if memory.kind is MemoryKind.OUTPUT and i not in given:
            yield f"no output lies in {memory.name!r}"
    for tensor in plan.outputs:
        if plan.memories[tensor.memory].kind is MemoryKind.OUTPUT and tensor.offset != 0:
            yield f"output {tensor.name!r} does not begin where its memory begins"


def _called_with(plan: Plan) -> list[Tensor]:
    """The arrays that functions and devices are given."""
    found = [t for f in plan.functions for t in (*f.inputs, *f.outputs)]
    return found + [t for c in plan.device_calls for t in c.arrays]


def _input_problems(plan: Plan) -> Iterator[str]:
    names = [t.name for t in plan.inputs]
    yield from (f"two inputs are called {n!r}" for n in sorted(set(names)) if names.count(n) > 1)
    places = [i for i, m in enumerate(plan.memories) if m.kind is MemoryKind.INPUT]
    if places != [t.memory for t in plan.inputs] or any(t.offset != 0 for t in plan.inputs):
        yield "its inputs do not each begin a memory, in order"


def _symbol_problems(plan: Plan) -> Iterator[str]:
    known = {s.name for s in plan.symbols}
    tensors = [*plan.inputs, *plan.outputs]
    tensors += _called_with(plan)
    sizes = [*(m.size for m in plan.memories), *(d for t in tensors for d in (*t.shape, t.offset))]
    sizes += [s for step in plan.steps for s in (step.operations, step.bytes) if s is not None]
    used = {name for size in sizes for name in symbols_of(size)}
    yield from (f"{name!r} is not one of its symbols" for name in sorted(used - known))
    solved = {dim for t in plan.inputs for dim in t.shape if isinstance(dim, str)}
    for name in sorted(known - solved):
        yield f"no dimension of an input is the symbol {name!r}, so its value cannot be found"


# ---------------------------------------------------------------- JSON


def plan_to_json(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "symbols": [{"name": s.name, "lower": s.lower, "upper": s.upper} for s in plan.symbols],
        "inputs": [_tensor_to_json(t) for t in plan.inputs],
        "outputs": [_tensor_to_json(t) for t in plan.outputs],
        "memories": [
            {"name": m.name, "device": m.device, "kind": m.kind.value, "size": size_to_json(m.size)}
            for m in plan.memories
        ],
        "steps": [_step_to_json(s) for s in plan.steps],
        "functions": [
            {
                "op": f.op,
                "attrs": f.attrs,
                "inputs": [_tensor_to_json(t) for t in f.inputs],
                "outputs": [_tensor_to_json(t) for t in f.outputs],
            }
            for f in plan.functions
        ],
        "device_calls": [
            {
                "device": c.device,
                "kernel": c.kernel,
                "arrays": [_tensor_to_json(t) for t in c.arrays],
                "results": c.results,
            }
            for c in plan.device_calls
        ],
    }


def plan_from_json(value: Any, where: str) -> Plan:
    """The plan that `value` stands for, checked; ArtifactError if it is none."""
    f = Fields(value, where)
    return check_plan(
        Plan(
            f.text("name"),
            f.items("symbols", _symbol_from_json),
            f.items("inputs", _tensor_from_json),
            f.items("outputs", _tensor_from_json),
            f.items("memories", _memory_from_json),
            f.items("steps", _step_from_json),
            f.items("functions", _function_from_json),
            f.optional_items("device_calls", _device_call_from_json),
        )
    )


def target_to_json(target: TargetFacts) -> dict[str, Any]:
    return {
        "name": target.name,
        "triple": target.triple,
        "cpu": target.cpu,
        "features": list(target.features),
        "operations_per_second": target.operations_per_second,
        "bytes_per_second": target.bytes_per_second,
    }


def target_from_json(value: Any, where: str) -> TargetFacts:
    f = Fields(value, where)
    return TargetFacts(
        f.text("name"),
        f.text("triple"),
        f.text("cpu"),
        f.texts("features"),
        f.optional_number("operations_per_second"),
        f.optional_number("bytes_per_second"),
    )


def _tensor_to_json(t: Tensor) -> dict[str, Any]:
    return {
        "name": t.name,
        "dtype": t.dtype.name,
        "shape": [size_to_json(d) for d in t.shape],
        "memory": t.memory,
        "offset": size_to_json(t.offset),
    }


def _tensor_from_json(value: Any, where: str) -> Tensor:
    f = Fields(value, where)
    name = f.text("dtype")
    if name not in DTYPES:
        raise ArtifactError(f"{f.place('dtype')} is {name!r}, which is no scalar type")
    shape = f.items("shape", size_from_json)
    offset = size_from_json(f.raw("offset"), f.place("offset"))
    return Tensor(f.text("name"), DTYPES[name], shape, f.number("memory"), offset)


def _symbol_from_json(value: Any, where: str) -> SymbolSpec:
    f = Fields(value, where)
    return SymbolSpec(f.text("name"), f.number("lower"), f.optional_number("upper"))


def _memory_from_json(value: Any, where: str) -> MemorySpec:
    f = Fields(value, where)
    size = size_from_json(f.raw("size"), f.place("size"))
    return MemorySpec(f.text("name"), f.text("device"), _choice(f, "kind", MemoryKind), size)


def _step_to_json(s: StepSpec) -> dict[str, Any]:
    return {
        "kind": s.kind.value,
        "name": s.name,
        "device": s.device,
        "nodes": list(s.nodes),
        "operations": None if s.operations is None else size_to_json(s.operations),
        "bytes": None if s.bytes is None else size_to_json(s.bytes),
        "cycles": s.cycles,
        "picoseconds": s.picoseconds,
        "obstacles": list(s.obstacles),
        "fallback": s.fallback,
    }


def _step_from_json(value: Any, where: str) -> StepSpec:
    f = Fields(value, where)
    operations, moved = (
        None if f.raw(n) is None else size_from_json(f.raw(n), f.place(n))
        for n in ("operations", "bytes")
    )
    kind = _choice(f, "kind", StepKind)
    return StepSpec(
        kind,
        f.text("name"),
        f.text("device"),
        f.texts("nodes"),
        operations,
        moved,
        f.optional_number("cycles"),
        f.optional_number("picoseconds"),
        f.optional_items("obstacles", as_text),
        f.optional_text("fallback"),
    )


def _function_from_json(value: Any, where: str) -> HostFunction:
    f = Fields(value, where)
    inputs, outputs = (f.items(n, _tensor_from_json) for n in ("inputs", "outputs"))
    return HostFunction(f.text("op"), f.raw("attrs"), inputs, outputs)


def _device_call_from_json(value: Any, where: str) -> DeviceCall:
    f = Fields(value, where)
    arrays, results = f.items("arrays", _tensor_from_json), f.number("results")
    if not 0 <= results <= len(arrays):
        raise ArtifactError(f"{f.place('results')} is {results}, of {len(arrays)} arrays")
    return DeviceCall(f.text("device"), f.text("kernel"), arrays, results)


def _choice(f: Fields, name: str, kind: Any) -> Any:
    """The member of the enumeration `kind` that the field names."""
    value = f.text(name)
    known = [member.value for member in kind]
    if value not in known:
        raise ArtifactError(f"{f.place(name)} is {value!r} and not one of {', '.join(known)}")
    return kind(value)
