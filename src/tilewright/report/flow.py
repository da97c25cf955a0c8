"""How values pass between a call's steps, and how many bytes of each memory are in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostStep,
    KernelCall,
    MemoryKind,
    Submit,
)
from tilewright.program.size import evaluate_size
from tilewright.runtime.device_run import DeviceRun
from tilewright.runtime.program import Program, StepFacts

INPUT, OUTPUT = "in:", "out:"  # before the names of the model's own: where an edge begins or ends


@dataclass(frozen=True)
class Edge:
    """A value that one step makes and another reads: steps by number, the model's inputs and
    outputs by name."""

    source: str
    target: str
    value: str
    bytes: int


@dataclass(frozen=True)
class MemoryTrack:
    """The bytes of a memory that are in use in each step; its `size` (None: not bounded)."""

    device: str
    name: str
    size: int | None
    values: tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """Where a slot lies."""

    memory: str
    begin: int
    end: int

    def overlaps(self, other: _Place) -> bool:
        return self.memory == other.memory and self.begin < other.end and other.begin < self.end


@dataclass
class _Flow:
    """What each step reads of what another wrote: by the bytes, since a value may be read through
    slots of other names than that through which it was written."""

    program: Program
    symbols: Mapping[str, int]
    places: dict[str, _Place] = field(default_factory=dict)
    written: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # by memory: step, slot

    def __post_init__(self) -> None:
        for slot in self.program.host.slots:
            begin, size = (evaluate_size(x, self.symbols) for x in (slot.offset, slot.bytes))
            self.places[slot.name] = _Place(slot.memory, begin, begin + size)

    def writer(self, name: str) -> int | None:
        """The last step that wrote any of a slot's bytes."""
        place = self.places[name]
        for step, slot in reversed(self.written.get(place.memory, [])):
            if slot == name or self.places[slot].overlaps(place):
                return step
        return None

    def write(self, step: int, name: str) -> None:
        self.written.setdefault(self.places[name].memory, []).append((step, name))


def reads_and_writes(
    step: HostStep, facts: StepFacts
) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """The slots that a step reads, those that it writes, and those that it works in. Of a kernel of
    which nothing is known, the last is taken for its result."""
    match step:
        case HostCall() | Submit():
            return step.inputs, step.outputs, ()
        case Copy():
            return (step.source,), (step.target,), ()
        case KernelCall():
            numbers = facts.written or (len(step.slots) - 1,)
            first, last = min(numbers), max(numbers)
            return step.slots[:first], step.slots[first : last + 1], step.slots[last + 1 :]
    return (), (), ()


def find_edges(program: Program, symbols: Mapping[str, int]) -> Iterator[Edge]:
    """Yields an edge for each value that passes between two steps, or comes from outside or goes
    there; constants have none."""
    flow, host = _Flow(program, symbols), program.host
    kinds = {m.name: m.kind for m in host.memories}
    owners = {s.memory: s.name for s in host.arguments}
    for number, (step, facts) in enumerate(zip(host.steps, program.steps, strict=True)):
        reads, writes, _ = reads_and_writes(step, facts)
        for name in dict.fromkeys(reads):
            place = flow.places[name]
            size = place.end - place.begin
            maker = flow.writer(name)
            if maker is not None:
                yield Edge(str(maker), str(number), name, size)
            elif kinds[place.memory] is MemoryKind.INPUT:
                yield Edge(INPUT + owners[place.memory], str(number), name, size)
        for name in writes:
            flow.write(number, name)
    for slot, result in zip(host.outputs, host.results, strict=True):
        maker, place = flow.writer(slot), flow.places[slot]
        if maker is not None:
            yield Edge(str(maker), OUTPUT + result.name, slot, place.end - place.begin)


# ---------------------------------------------------------------- memory


def memory_tracks(
    program: Program,
    symbols: Mapping[str, int],
    runs: Mapping[tuple[str, str], DeviceRun],
    main: str,
) -> Iterator[MemoryTrack]:
    """Yields the arenas, of the host (called `main`) and of devices, and the memories that devices
    have of their own while they run a kernel."""
    host, alive = program.host, _alive(program, symbols)
    for memory in host.of_kind(MemoryKind.ARENA):
        values = tuple(_covered(places.get(memory.name, [])) for places in alive)
        size = evaluate_size(memory.size, symbols)
        yield MemoryTrack(memory.device or main, "arena", size, values)
    for device in dict.fromkeys(d for d, _ in runs):
        facts = next(r.facts for (d, _), r in runs.items() if d == device)
        for k, memory_use in enumerate(facts.memories):
            if memory_use.bytes is None:
                continue
            used = [
                runs[device, s.kernel].facts.memories[k].used
                if isinstance(s, Submit) and (device, s.kernel) in runs and s.device == device
                else 0
                for s in host.steps
            ]
            yield MemoryTrack(device, memory_use.name, memory_use.bytes, tuple(used))


def _alive(program: Program, symbols: Mapping[str, int]) -> list[dict[str, list[tuple[int, int]]]]:
    """For each step, by memory, the bytes from where to where that hold what a step made and is
    still needed, or that it works in."""
    flow, host = _Flow(program, symbols), program.host
    last: dict[tuple[int, str], int] = {}  # what a step wrote, to the last step that reads it
    found: list[dict[str, list[tuple[int, int]]]] = [{} for _ in host.steps]

    def use(name: str, first: int, end: int) -> None:
        place = flow.places[name]
        for k in range(first, end + 1):
            found[k].setdefault(place.memory, []).append((place.begin, place.end))

    for number, (step, facts) in enumerate(zip(host.steps, program.steps, strict=True)):
        reads, writes, scratch = reads_and_writes(step, facts)
        for name in reads:
            maker = flow.writer(name)
            if maker is not None:
                last[maker, name] = number
        for name in writes:
            flow.write(number, name)
            last.setdefault((number, name), number)
        for name in scratch:
            use(name, number, number)
    for (maker, name), end in last.items():
        use(name, maker, end)
    return found


def _covered(ranges: Sequence[tuple[int, int]]) -> int:
    """How many bytes lie in any of the ranges."""
    total, reached = 0, 0
    for begin, end in sorted(ranges):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
