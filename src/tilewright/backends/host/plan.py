"""A host program as the runtime's plan: JSON, the only thing that compiler and runtime share.

The plan leaves out what the compiled entry already does (the steps' slots) and keeps what a caller
needs: inputs, outputs, symbols, memories' sizes, host functions, and names for reports. See
docs/artifact.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewright.base.dtype import DType, dtype
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Binary, BinaryOp, Const, Dim, Expr, Symbol
from tilewright.ir.graph import GraphNode
from tilewright.ir.host_program import (
    Call,
    Copy,
    HostCall,
    HostProgram,
    HostStep,
    MemoryKind,
    Submit,
    Wait,
)
from tilewright.ir.op import Attrs, Op

Json = Any
HostFactory = Callable[[Json], Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]]

ALIGNMENT = 64  # of every memory

_OPERATORS = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.DIV: "div",
    BinaryOp.FLOORDIV: "floordiv",
    BinaryOp.MOD: "mod",
    BinaryOp.REM: "rem",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
}


@dataclass(frozen=True)
class KernelCost:
    """What a kernel does in one call: arithmetic operations, and bytes to and from memory; on a
    device also cycles, and picoseconds. `fallback` says why its schedule is a plain one."""

    operations: Dim | None = None
    bytes: Dim | None = None
    cycles: int | None = None
    picoseconds: int | None = None
    fallback: str = ""


def plan_json(
    program: HostProgram,
    *,
    functions: Sequence[GraphNode] = (),
    costs: Mapping[str, KernelCost] | None = None,
    output_names: Sequence[str] | None = None,
    obstacles: Mapping[int, Sequence[str]] | None = None,
) -> dict[str, Json]:
    """The plan. `functions` are the nodes that run on the host, by their number in the host calls;
    a kernel without `costs` is taken to read and write its slots once. The outputs' names are the
    slots' unless given: two outputs of a model may be one value. `obstacles` say why steps, by
    number, are not done elsewhere."""
    planner = _Planner(program, costs or {})
    json: dict[str, Json] = planner.plan(functions, output_names or program.outputs)
    for number, found in (obstacles or {}).items():
        json["steps"][number]["obstacles"] = list(found)
    return json


def size_json(dim: Dim) -> Json:
    """A dimension as the runtime's arithmetic: 4, "n", or [operator, a, b]."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Const):
        return int(dim.value)
    if isinstance(dim, Symbol):
        return dim.name
    if isinstance(dim, Binary) and dim.op in _OPERATORS:
        return [_OPERATORS[dim.op], size_json(dim.a), size_json(dim.b)]
    raise CompileError(f"{dim} is not arithmetic on symbols, and the host computes nothing else")


class _Planner:
    def __init__(self, program: HostProgram, costs: Mapping[str, KernelCost]) -> None:
        self.program = program
        self.costs = costs
        self.slots = {s.name: s for s in program.slots}
        self.numbers = {m.name: i for i, m in enumerate(program.memories)}

    def plan(self, functions: Sequence[GraphNode], output_names: Sequence[str]) -> Json:
        program = self.program
        named = zip(program.outputs, output_names, strict=True)
        return {
            "name": program.name,
            "symbols": [
                {"name": s.name, "lower": s.lower, "upper": s.upper} for s in program.symbols
            ],
            "inputs": [self.tensor(s) for s in program.inputs],
            "outputs": [self.tensor(s) | {"name": name} for s, name in named],
            "memories": [
                {
                    "name": m.name,
                    "device": m.device,
                    "kind": m.kind.value,
                    "size": size_json(m.size),
                }
                for m in program.memories
            ],
            "steps": [_STEP[type(s)](self, s) for s in program.steps],
            "functions": self.functions(functions),
            "device_calls": [
                self.device_call(s) for s in program.callbacks if not isinstance(s, HostCall)
            ],
        }

    def tensor(self, name: str) -> Json:
        slot = self.slots[name]
        if slot.type.layout is not None:
            raise CompileError(
                f"{name!r} is arranged as {slot.type}, and what the host sees must be row-major",
                program=self.program,
            )
        return self.arranged(name)

    def arranged(self, name: str) -> Json:
        """A slot as the row-major array that lies in memory."""
        slot = self.slots[name]
        return {
            "name": name,
            "dtype": slot.type.dtype.name,
            "shape": [size_json(d) for d in slot.type.physical_shape],
            "memory": self.numbers[slot.memory],
            "offset": size_json(slot.offset),
        }

    def device_call(self, step: Submit | Wait) -> Json:
        if isinstance(step, Wait):
            return {"device": step.device, "kernel": "", "arrays": [], "results": 0}
        arrays = [self.arranged(s) for s in (*step.inputs, *step.outputs)]
        results = len(step.outputs)
        return {
            "device": step.device, "kernel": step.kernel, "arrays": arrays, "results": results
        }  # fmt: skip

    def functions(self, nodes: Sequence[GraphNode]) -> list[Json]:
        """One for each number; two calls of one number must be alike."""
        found: dict[int, Json] = {}
        for step in self.program.steps:
            if not isinstance(step, HostCall):
                continue
            if not 0 <= step.function < len(nodes) or nodes[step.function].op.name != step.op:
                raise CompileError(
                    f"host call {step.op} has number {step.function}, which is no such function",
                    program=self.program,
                )
            record = {
                "op": step.op,
                "attrs": attrs_to_json(step.op, nodes[step.function].attrs),
                "inputs": [self.tensor(s) for s in step.inputs],
                "outputs": [self.tensor(s) for s in step.outputs],
            }
            if _types(found.setdefault(step.function, record)) != _types(record):
                raise CompileError(
                    f"host calls of number {step.function} ({step.op}) differ in types",
                    program=self.program,
                )
        missing = sorted(set(range(len(nodes))) - set(found))
        if missing:
            raise CompileError(f"no step calls host function {missing[0]}", program=self.program)
        return [found[i] for i in range(len(nodes))]

    # ---------------------------------------------------------- steps

    def call(self, step: Call) -> Json:
        cost = self.costs.get(step.kernel, KernelCost())
        moved = cost.bytes if cost.bytes is not None else self.bytes(step.slots)
        operations = None if cost.operations is None else size_json(cost.operations)
        found = _step(step, step.kernel, step.device, step.nodes, operations, size_json(moved))
        return found | {"fallback": cost.fallback}

    def host_call(self, step: HostCall) -> Json:
        moved = self.bytes((*step.inputs, *step.outputs))
        return _step(step, step.op, "", step.nodes, None, size_json(moved))

    def copy(self, step: Copy) -> Json:
        memory = self.program.memories[self.numbers[self.slots[step.target].memory]]
        moved = self.bytes((step.source, step.target))
        name = f"copy {step.source} to {step.target}"
        return _step(step, name, memory.device, (), 0, size_json(moved))

    def submit(self, step: Submit) -> Json:
        cost = self.costs.get(step.kernel, KernelCost())
        operations = None if cost.operations is None else size_json(cost.operations)
        moved = size_json(self.bytes((*step.inputs, *step.outputs)))
        known = {"cycles": cost.cycles, "picoseconds": cost.picoseconds}
        return _step(step, step.kernel, step.device, step.nodes, operations, moved) | known

    def wait(self, step: Wait) -> Json:
        return _step(step, f"wait for {step.device}", step.device, (), 0, 0)

    def bytes(self, names: Sequence[str]) -> Dim:
        total: Dim = 0
        for name in dict.fromkeys(names):
            total = total + self.slots[name].type.bytes
        return total


_STEP: dict[type[HostStep], Callable[[_Planner, Any], Json]] = {
    Call: _Planner.call,
    HostCall: _Planner.host_call,
    Copy: _Planner.copy,
    Submit: _Planner.submit,
    Wait: _Planner.wait,
}


_KINDS = {Call: "call", HostCall: "host_call", Copy: "copy", Submit: "submit", Wait: "wait"}


def _step(
    step: HostStep, name: str, device: str, nodes: Sequence[str], operations: Json, moved: Json
) -> Json:
    return {
        "kind": _KINDS[type(step)],
        "name": name,
        "device": device,
        "nodes": list(nodes),
        "operations": operations,
        "bytes": moved,
        "cycles": None,
        "picoseconds": None,
        "obstacles": [],
        "fallback": "",
    }


def _types(function: Json) -> Json:
    tensors = (function["inputs"], function["outputs"])
    return [[(t["dtype"], t["shape"]) for t in group] for group in tensors]


# ---------------------------------------------------------------- host functions


def attrs_to_json(op: str, attrs: Attrs) -> dict[str, Json]:
    return {key: _value_to_json(f"{op}: attribute {key}", v) for key, v in attrs.items()}


def _value_to_json(what: str, value: Any) -> Json:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, tuple):
        return [_value_to_json(what, v) for v in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Expr):
        raise CompileError(f"{what} is {value}: on the host it must be a number")
    raise CompileError(f"{what} is a {type(value).__name__}, which a host call cannot have")


def attrs_from_json(op: Op, value: Json) -> Attrs:
    """The operator's attribute record, checked."""
    try:
        return op.make_attrs(**{key: _value_from_json(v) for key, v in value.items()})
    except (TypeError, KeyError, AttributeError):
        known = ", ".join(op.attrs.keys())
        raise CompileError(
            f"{op.name} cannot have the attributes {value}; it has {known}"
        ) from None


def _value_from_json(value: Json) -> Any:
    if isinstance(value, list):
        return tuple(_value_from_json(v) for v in value)
    if isinstance(value, dict):
        return float(value["float"]) if "float" in value else dtype(value["dtype"])
    return value


def host_table(ops: Mapping[str, Op]) -> dict[str, HostFactory]:
    """What the runtime asks for to run host calls: the numpy meaning of every opaque operator."""
    return {name: _factory(op) for name, op in ops.items() if op.evaluate is not None}


def _factory(op: Op) -> HostFactory:
    def bind(value: Json) -> Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]:
        attrs, evaluate = attrs_from_json(op, value), op.evaluate
        assert evaluate is not None
        return lambda inputs: [np.asarray(a) for a in evaluate(attrs, inputs)]

    return bind


# ---------------------------------------------------------------- constants


class Placed(Protocol):
    """An array, and where in a constants memory its bytes go."""

    @property
    def memory(self) -> str: ...

    @property
    def offset(self) -> int: ...

    @property
    def array(self) -> np.ndarray: ...


def pack_constants(program: HostProgram, constants: Iterable[Placed]) -> list[np.ndarray]:
    """The bytes of each constants memory; zero where nothing was placed."""
    packed: dict[str, np.ndarray] = {}
    for memory in program.memories:
        if memory.kind is MemoryKind.CONSTANTS:
            if not isinstance(memory.size, int):
                raise CompileError(f"the size of {memory.name!r} is {memory.size}, not a number")
            packed[memory.name] = _aligned_bytes(memory.size)
    for placed in constants:
        data = np.ascontiguousarray(placed.array).reshape(-1).view(np.uint8)
        end = placed.offset + data.size
        if placed.memory not in packed or end > packed[placed.memory].size:
            raise CompileError(
                f"a constant of {data.size} bytes at {placed.offset} of {placed.memory!r}"
                " lies outside the constants"
            )
        packed[placed.memory][placed.offset : end] = data
    return list(packed.values())


def _aligned_bytes(size: int) -> np.ndarray:
    """Zeros at an address that vectors can be read from."""
    room = np.zeros(size + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + size]
