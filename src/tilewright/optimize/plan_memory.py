"""The host program of a fused graph: its steps, and where every value lies in memory.

Values that live at the same time lie apart; those that do not may share a place. A view (a reshape
that moves nothing) lies where its operand lies. Model inputs and outputs are memories of their own,
which kernels in the same memory space read and write directly; constants are one memory for each
space, equal ones stored once. A value that is needed in another space is copied there once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.backends.host.functions import attrs_to_json
from tilewright.base.errors import CompileError
from tilewright.ir.dims import canonical, size_of
from tilewright.ir.expr import Buffer, Dim, Expr, Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Category
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.arrange import arrange
from tilewright.optimize.assign_devices import HOST
from tilewright.optimize.compare_sizes import round_up
from tilewright.optimize.edit import is_view, roots
from tilewright.optimize.merge_common import digest
from tilewright.optimize.move_arrays import Held
from tilewright.optimize.pack_slots import ALIGNMENT, Lifetime, pack_slots
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
)


@dataclass(frozen=True)
class KernelUse:
    """What a node's kernel is called, and what it is given beside the node's operands and
    results: working memory, and the values of symbols. A kernel that is submitted to a device has
    in `held` how the device holds each operand and each result."""

    name: str
    scratch: tuple[Buffer, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    held: tuple[Held, ...] = ()


@dataclass(frozen=True, eq=False)
class PlacedConstant:
    """Bytes of a constants memory: those of `constant`, in a type's layout if one is given."""

    memory: str
    offset: int
    constant: np.ndarray
    type: TensorType | None

    @property
    def array(self) -> np.ndarray:
        """Row-major as it lies there. It is made anew each time: weights are large."""
        return self.constant if self.type is None else arrange(self.constant, self.type)


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """A host program, what to fill its constants memories with, and for each step the node that it
    runs (None: a step between nodes).

    `arena` is what the arenas come to, and `least_arena` what is alive at once, below which no
    plan can be: both at typical values of the symbols.
    """

    program: HostProgram
    constants: tuple[PlacedConstant, ...]
    nodes: tuple[GraphNode | None, ...]
    arena: int
    least_arena: int


def plan_memory(
    graph: Graph,
    kernels: Mapping[GraphNode, KernelUse],
    spaces: Mapping[str, str] | None = None,
    host: str = HOST,
) -> MemoryPlan:
    """The host program that runs `graph`; `kernels` names the kernel of each node that is neither
    opaque nor a view. `spaces` says for each device in which memory space its kernels work;
    without a word about it, that is the host's (""). `host` is the device that arranges what others
    are given."""
    _check_symbols(graph)
    planner = _Planner(graph, kernels, spaces or {}, host)
    for n in graph.nodes:
        if not is_view(n):
            planner.run(n)
    planner.finish()
    return planner.plan()


def _check_symbols(graph: Graph) -> None:
    known = set(graph.symbols())
    for n in graph.nodes:
        for v in n.outputs:
            dims = [d for d in v.shape if isinstance(d, Expr)]
            missing = [
                s for d in dims for s in d.walk() if isinstance(s, Symbol) and s not in known
            ]
            if missing:
                where = ", ".join(t for t in (n.name and f"node {n.name!r}", graph.source) if t)
                shown = f"operator {n.op.name}" + (f" ({where})" if where else "")
                raise CompileError(
                    f"{shown}: the size of {v} is known only after it has run: {missing[0]} is no "
                    "dimension of an input",
                    hint="run that part of the model outside, or make what it reads constant",
                )


@dataclass(eq=False)
class _Storage:
    """Memory for one value and its views, in one space."""

    kind: MemoryKind
    space: str
    type: TensorType
    first: int  # steps in which it is in use
    last: int
    memory: str = ""
    offset: Dim = 0


@dataclass(frozen=True)
class _Given:
    """A value in a device's memory: its slot, where that lies, and how it is arranged."""

    slot: str
    storage: _Storage
    held: Held


@dataclass(eq=False)
class _Slots:
    """The program's slots, as they are asked for."""

    made: dict[tuple[Value | None, _Storage], str] = field(default_factory=dict)
    rows: list[tuple[str, _Storage, TensorType]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def of(self, value: Value, storage: _Storage) -> str:
        """The slot through which `value` is seen in a storage."""
        if (value, storage) not in self.made:
            name = _in_space(value.name, storage.space)
            self.made[value, storage] = self.add(name, storage, value.type)
        return self.made[value, storage]

    def add(self, name: str, storage: _Storage, type_: TensorType) -> str:
        name = _unique(name, self.taken)
        self.rows.append((name, storage, type_))
        return name


def _unique(name: str, taken: set[str]) -> str:
    unique, count = name, 1
    while unique in taken:
        unique, count = f"{name}_{count}", count + 1
    taken.add(unique)
    return unique


class _Planner:
    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[GraphNode, KernelUse],
        spaces: Mapping[str, str],
        host: str,
    ) -> None:
        self.graph, self.kernels, self.spaces, self.host = graph, kernels, spaces, host
        self.root = roots(graph.nodes)
        self.steps: list[HostStep] = []
        self.nodes: list[GraphNode | None] = []
        self.slots = _Slots()
        self.storages: list[_Storage] = []
        self.found: dict[tuple[Value, str], _Storage] = {}  # of a root, by space
        self.given: dict[tuple[tuple[Value, ...], str, Held], _Given] = {}  # what devices hold
        self.made: dict[Value, _Given] = {}  # roots that a device made
        self.arrays: dict[_Storage, np.ndarray] = {}  # constants as devices hold them
        self.busy: set[str] = set()  # devices that may not be done
        self.home: dict[Value, str] = {}  # the space in which a root was made
        self.inputs = [self._input(v) for v in graph.inputs]
        self.output_storages: list[_Storage] = []
        self.direct: dict[Value, _Storage] = {}  # roots that are made where an output lies
        made = {v for n in graph.nodes if not is_view(n) for v in n.outputs}
        for v in graph.outputs:
            storage = self._storage(MemoryKind.OUTPUT, HOST, v.type)
            self.output_storages.append(storage)
            if self._root(v) in made:
                self.direct.setdefault(self._root(v), storage)

    # ---------------------------------------------------------- storages

    def _root(self, value: Value) -> Value:
        return self.root.get(value, value)

    def _storage(self, kind: MemoryKind, space: str, type_: TensorType) -> _Storage:
        storage = _Storage(kind, space, type_, len(self.steps), len(self.steps))
        self.storages.append(storage)
        return storage

    def _input(self, value: Value) -> str:
        storage = self._storage(MemoryKind.INPUT, HOST, value.type)
        self.found[value, HOST], self.home[value] = storage, HOST
        return self.slots.of(value, storage)

    def _define(self, value: Value, space: str) -> str:
        """The slot for a value that the next step makes in `space`."""
        storage = self.direct.get(value) if space == HOST else None
        if storage is None:
            storage = self._storage(MemoryKind.ARENA, space, value.type)
        self.found[value, space], self.home[value] = storage, space
        return self.slots.of(value, storage)

    def _use(self, value: Value, space: str) -> str:
        """The slot of a value in a space, copied there if need be; in use in the next step."""
        root = self._root(value)
        if (root, space) not in self.found:
            if space == HOST and root in self.made:
                storage = self._bring(root)
            elif root in self.graph.constants:
                storage = self._storage(MemoryKind.CONSTANTS, space, root.type)
            else:
                source = self._use(root, self.home[root])
                direct = self.direct.get(root) if space == HOST else None
                storage = direct or self._storage(MemoryKind.ARENA, space, root.type)
                self._copy(source, self.slots.of(root, storage), storage)
            self.found[root, space] = storage
        storage = self.found[root, space]
        storage.last = len(self.steps)
        return self.slots.of(value, storage)

    def _copy(self, source: str, target: str, storage: _Storage) -> None:
        storage.last = len(self.steps)
        self._step(Copy(source, target))

    # ---------------------------------------------------------- steps

    def run(self, n: GraphNode) -> None:
        """The steps of one node: copies of what it reads from elsewhere, and its own."""
        opaque = n.op.category is Category.OPAQUE
        if not opaque and n not in self.kernels:
            raise CompileError(f"no kernel was given for {n.name or n.op.name}", program=n)
        if not opaque and self.kernels[n].held:
            self._submit(n, self.kernels[n])
            return
        space = HOST if opaque else self.spaces.get(n.device, HOST)
        for v in n.inputs:  # copies first: their steps come before the node's
            self._use(v, space)
        inputs = tuple(self._use(v, space) for v in n.inputs)
        outputs = tuple(self._define(v, space) for v in n.outputs)
        names = _origins(n)
        if opaque:
            attrs = json.dumps(attrs_to_json(n.op.name, n.attrs), separators=(",", ":"))
            step: HostStep = HostCall(n.op.name, attrs, inputs, outputs, names)
        else:
            use = self.kernels[n]
            scratch = tuple(self._scratch(use, b, space) for b in use.scratch)
            slots = (*inputs, *outputs, *scratch)
            passed = tuple(s.name for s in use.symbols)
            step = KernelCall(use.name, n.device, slots, passed, names)
        self._step(step, n)
        for v in n.outputs:  # early, so that the place on the device is soon free again
            if v in self.direct and space != HOST:
                self._use(v, HOST)

    # ---------------------------------------------------------- devices that are given arrays

    def _submit(self, n: GraphNode, use: KernelUse) -> None:
        """The steps of a node that a device runs: operands as it holds them are there first."""
        space = self.spaces[n.device]
        count = len(use.held) - len(n.outputs)
        numbers = [(k,) if h.operands is None else h.operands for k, h in enumerate(use.held)]
        operands = [
            (tuple(n.inputs[k] for k in of), held)
            for of, held in zip(numbers[:count], use.held, strict=False)
        ]
        for values, held in operands:
            self._give(values, held, space)
        inputs = tuple(self._give(values, held, space) for values, held in operands)
        outputs = []
        for v, held in zip(n.outputs, use.held[count:], strict=True):
            storage = self._storage(MemoryKind.ARENA, space, held.type)
            slot = self.slots.add(_in_space(v.name, space), storage, held.type)
            self.made[v], self.home[v] = _Given(slot, storage, held), HOST
            outputs.append(slot)
        self._step(Submit(use.name, n.device, inputs, tuple(outputs), _origins(n)), n)
        self.busy.add(n.device)
        for v in n.outputs:
            if v in self.direct:
                self._use(v, HOST)

    def _give(self, values: tuple[Value, ...], held: Held, space: str) -> str:
        """The slot of what a device holds of values, given to the device if need be; in use in the
        next step."""
        key = (values, space, held.arrangement)
        if key not in self.given:
            there = self._there(values[0], held, space) if len(values) == 1 else None
            self.given[key] = there or self._sent(values, held, space)
        self.given[key].storage.last = len(self.steps)
        return self.given[key].slot

    def _there(self, value: Value, held: Held, space: str) -> _Given | None:
        """What the device itself made, if it lies there as it is wanted, with nothing around it."""
        made = self.made.get(value)
        same = made is not None and made.storage.space == space and made.held.type == held.type
        plain = held.made is None and (made is None or made.held.made is None)
        whole = held.inner == held.type.shape == (made.held.inner if made else ())
        return made if same and plain and whole else None

    def _sent(self, values: tuple[Value, ...], held: Held, space: str) -> _Given:
        """What is made of constants is arranged now; the host arranges others, and copies them."""
        found = [self._root(v) for v in values]
        name = _in_space(values[0].name if values else "constant", space)
        if all(r in self.graph.constants for r in found):
            storage = self._storage(MemoryKind.CONSTANTS, space, held.type)
            self.arrays[storage] = held.arranged([self.graph.constants[r] for r in found])
            return _Given(self.slots.add(name, storage, held.type), storage, held)
        for v in values:  # copies first: their steps come before the one that reads all
            self._use(v, HOST)
        sources = [self._use(v, HOST) for v in values]
        if held.is_same:
            source = self.slots.add(values[0].name, self.found[found[0], HOST], held.type)
        else:
            staging = self._storage(MemoryKind.ARENA, HOST, held.type)
            arranged = self.slots.add(values[0].name, staging, held.type)
            self._step(KernelCall(held.kernel, self.host, (*sources, arranged)))
            source, staging.last = arranged, len(self.steps)
        self._finish(space)
        storage = self._storage(MemoryKind.ARENA, space, held.type)
        given = _Given(self.slots.add(name, storage, held.type), storage, held)
        self._copy(source, given.slot, storage)
        return given

    def _bring(self, root: Value) -> _Storage:
        """Where the host has what a device made."""
        given = self.made[root]
        self._finish(given.storage.space)
        given.storage.last = len(self.steps)
        storage = self.direct.get(root) or self._storage(MemoryKind.ARENA, HOST, root.type)
        if given.held.is_same:
            plain = self.slots.add(root.name, storage, given.held.type)
            self._copy(given.slot, plain, storage)
            return storage
        staging = self._storage(MemoryKind.ARENA, HOST, given.held.type)
        arranged = self.slots.add(root.name, staging, given.held.type)
        self._copy(given.slot, arranged, staging)
        staging.last = storage.last = len(self.steps)
        slots = (arranged, self.slots.of(root, storage))
        self._step(KernelCall(given.held.kernel, self.host, slots))
        return storage

    def _finish(self, space: str) -> None:
        """A device that may be busy is waited for before its memory is touched."""
        for device in sorted(d for d in self.busy if self.spaces[d] == space):
            self._step(Wait(device))
            self.busy.remove(device)

    def _step(self, step: HostStep, node: GraphNode | None = None) -> None:
        self.steps.append(step)
        self.nodes.append(node)

    def _scratch(self, use: KernelUse, buffer: Buffer, space: str) -> str:
        type_ = TensorType(buffer.dtype, buffer.shape)
        storage = self._storage(MemoryKind.ARENA, space, type_)
        return self.slots.add(f"{use.name}_{buffer.name}", storage, type_)

    def finish(self) -> None:
        """Copies for outputs that are inputs, constants, or given back twice."""
        self.outputs: list[str] = []
        for v, storage in zip(self.graph.outputs, self.output_storages, strict=True):
            if self.direct.get(self._root(v)) is not storage:
                self._copy(self._use(v, HOST), self.slots.of(v, storage), storage)
            self.outputs.append(self.slots.of(v, storage))
        for space in sorted({self.spaces[d] for d in self.busy}):
            self._finish(space)

    # ---------------------------------------------------------- the program

    def plan(self) -> MemoryPlan:
        constants, memories = self._place_constants()
        arenas, typical, least = self._place_arenas()
        memories += arenas + self._own_memories(MemoryKind.INPUT, self.graph.inputs)
        memories += self._own_memories(MemoryKind.OUTPUT, self.graph.outputs)
        symbols = (SymbolSpec(s.name, s.lower, s.upper) for s in self.graph.symbols())
        slots = (_slot(name, storage, type_) for name, storage, type_ in self.slots.rows)
        program = HostProgram(
            self.graph.name,
            tuple(symbols),
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(memories),
            tuple(slots),
            tuple(self.steps),
        )
        return MemoryPlan(program, tuple(constants), tuple(self.nodes), typical, least)

    def _of_kind(self, kind: MemoryKind) -> dict[str, list[_Storage]]:
        """The storages of a kind by space, the host's first."""
        found: dict[str, list[_Storage]] = {}
        for storage in self.storages:
            if storage.kind is kind:
                found.setdefault(storage.space, []).append(storage)
        return dict(sorted(found.items()))

    def _place_constants(self) -> tuple[list[PlacedConstant], list[MemorySpec]]:
        arrays: dict[_Storage, tuple[np.ndarray, TensorType | None]] = {
            storage: (self.graph.constants[root], root.type)
            for (root, _), storage in self.found.items()
            if storage.kind is MemoryKind.CONSTANTS
        }
        arrays |= {storage: (array, None) for storage, array in self.arrays.items()}
        placed: list[PlacedConstant] = []
        memories: list[MemorySpec] = []
        for space, storages in self._of_kind(MemoryKind.CONSTANTS).items():
            memory, size = _in_space("constants", space), 0
            offsets: dict[tuple[bytes, object], int] = {}
            for storage in storages:
                array, type_ = arrays[storage]
                is_packed = type_ is not None and type_.layout is not None
                key = digest(array), storage.type if is_packed else None
                if key not in offsets:
                    offsets[key] = size
                    placed.append(PlacedConstant(memory, size, array, type_))
                    taken = canonical(storage.type.bytes)
                    assert isinstance(taken, int)
                    size += round_up(max(taken, 1), ALIGNMENT)  # an offset of its own
                storage.memory, storage.offset = memory, offsets[key]
            memories.append(MemorySpec(memory, space, MemoryKind.CONSTANTS, size))
        return placed, memories

    def _place_arenas(self) -> tuple[list[MemorySpec], int, int]:
        memories: list[MemorySpec] = []
        typical = least = 0
        for space, storages in self._of_kind(MemoryKind.ARENA).items():
            memory = _in_space("arena", space)
            packing = pack_slots([Lifetime(s.type.bytes, s.first, s.last) for s in storages])
            for storage, offset in zip(storages, packing.offsets, strict=True):
                storage.memory, storage.offset = memory, offset
            memories.append(MemorySpec(memory, space, MemoryKind.ARENA, size_of(packing.size)))
            typical, least = typical + packing.typical, least + packing.least
        return memories, typical, least

    def _own_memories(self, kind: MemoryKind, values: tuple[Value, ...]) -> list[MemorySpec]:
        """One memory for each storage of this kind; they are in the order of `values`."""
        storages = self._of_kind(kind).get(HOST, [])
        taken = {s.memory for s in self.storages}
        for storage, value in zip(storages, values, strict=True):
            storage.memory = _unique(value.name, taken)
        return [
            MemorySpec(s.memory, HOST, kind, size_of(canonical(s.type.bytes))) for s in storages
        ]


def _slot(name: str, storage: _Storage, type_: TensorType) -> Slot:
    shape = tuple(map(size_of, type_.physical_shape))
    return Slot(name, storage.memory, size_of(storage.offset), type_.dtype, shape)


def _in_space(name: str, space: str) -> str:
    return f"{name}_{space}" if space else name


def _origins(n: GraphNode) -> tuple[str, ...]:
    origins = getattr(n.attrs, "origins", None)
    return origins or ((n.name,) if n.name else ())
