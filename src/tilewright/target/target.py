"""The description of a chip: facts only, frozen. Nothing here names a chip, and no pass compares
a target's name: it asks for the fact it needs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.base.dtype import DType
from tilewright.base.errors import TargetError, did_you_mean
from tilewright.base.node import cached_property
from tilewright.ir.instruction import Instruction
from tilewright.target.encoding import Carries, Encoding

ANYWHERE = ""  # the memory of an operand that names none


@dataclass(frozen=True)
class Memory:
    """A place for data, nearest first in `Target.memories`.

    `size` in bytes, None for "as much as the machine has", where arrays of a kernel lie as a
    whole: `capacity` says how much that is, where it may not be enough. A cached memory holds what
    was used last; in a managed one the compiler decides what is where.
    """

    name: str
    size: int | None
    cached: bool = True
    shared_by: int = 1  # cores that share one of these
    bandwidth: float | None = None  # bytes a cycle, of all users together; None: no limit
    latency: int = 0  # cycles
    banks: int = 1  # equal consecutive parts, each for one queue's instruction at a time
    unit: int = 1  # bytes that an address counts, in encodings
    row: int = 0  # bytes of a register, where the memory is a register file; else 0
    line: int = 64  # bytes that it gives at a time: fewer that lie apart are moved no faster
    capacity: int | None = None  # bytes that one submit may take of a memory without a size


@dataclass(frozen=True)
class Queue:
    """An engine that runs its instructions in order, and holds up to `depth` of them in advance."""

    name: str
    depth: int


@dataclass(frozen=True)
class Fetch:
    """How instructions come to the chip: `bytes` each, in bursts of `burst` instructions, through a
    memory whose bandwidth they share with data; there is room for `ahead` of them until they enter
    their queues."""

    memory: str
    bytes: int
    burst: int
    ahead: int


@dataclass(frozen=True)
class Bundles:
    """What a statically scheduled chip issues together, one bundle a cycle.

    `slots` has how many operations of each kind a bundle takes; the instruction's `queue` is the
    kind of slot it is for. An operation reads its operands when it is issued; its results are there
    `latency` cycles later, and nothing waits for them: the compiler does. The `control` slot starts
    transfers, waits for them, and begins loops. Up to `loops` nested loops then cost nothing;
    further ones end with a branch, which takes effect after `branch` cycles.
    """

    slots: tuple[tuple[str, int], ...]
    control: str
    loops: int
    branch: int

    def count(self, slot: str) -> int:
        return dict(self.slots)[slot]


@dataclass(frozen=True)
class VectorUnit:
    """Vector registers and what the unit does with them.

    `multiply_adds` gives, for each element type, how many multiply-adds of one vector start per
    cycle; `latency` is how long one takes, in cycles. `table` is the number of f32 of which one
    instruction looks one up for each lane (0: there is no such instruction).
    """

    bytes: int
    registers: int
    multiply_adds: tuple[tuple[DType, float], ...]
    latency: int = 4
    table: int = 0

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one register."""
        return max(1, self.bytes // dtype.bytes)


@dataclass(frozen=True)
class Native:
    """How machine code for the target is made: LLVM's triple, processor and features, and what it
    calls the instruction that looks f32 up in a table (VectorUnit.table)."""

    triple: str
    processor: str
    features: tuple[str, ...]
    lookup: str = ""


@dataclass(frozen=True)
class Target:
    """A chip. `clock` in Hz; `cores` may work on one kernel at the same time. Each of them has the
    queues, instructions and waits that are described, and the memories that are not shared.

    A processor has a vector unit and LLVM's description of it (`native`). Any chip may have
    instructions, run by queues, which enter them `issue` cycles apart.

    What makes queues wait for each other: with an `interlock` the chip does that itself; `tokens`
    names the pairs of queues that have tokens for each other, of which `token_depth` may lie
    untaken for each queue of a pair (None: any number); with any of `events` numbered events one
    queue waits for an instruction of another; `barriers` make all queues wait for all.

    A statically scheduled one has `bundles`, whose slots run the instructions that no queue does.

    `origins` says which line of the description ("chip.py:12") each part stands in, by what it is
    called ("memory spad").
    """

    name: str
    cores: int
    clock: float
    vector: VectorUnit | None = None
    memories: tuple[Memory, ...] = ()
    native: Native | None = None
    queues: tuple[Queue, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    instructions: tuple[Instruction, ...] = ()
    interlock: bool = False
    events: int = 0
    barriers: bool = False
    issue: int = 1  # cycles
    encodings: tuple[tuple[str, Encoding], ...] = ()  # of instructions, by name
    entries: tuple[tuple[str, Encoding], ...] = ()  # of micro-operations, by their memory
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    bundles: Bundles | None = None
    fetch: Fetch | None = None  # None: instructions are there, and take no bandwidth
    ends_with: str | None = None  # the instruction that is last in every stream, by name
    token_depth: int | None = None
    most_submitted: int | None = None  # instructions that are handed over at a time; None: all

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise TargetError(f"{self.name}: cores must be at least 1, not {self.cores}")
        size = 1 if self.vector is None else self.vector.bytes
        if size < 1 or size & (size - 1):
            raise TargetError(f"{self.name}: vectors of {size} bytes: not a power of 2")
        for problem, hint in _problems(self):
            raise TargetError(f"{self.name}: {problem}", hint=hint)

    def memory(self, name: str) -> Memory:
        """The memory called `name`."""
        for memory in self.memories:
            if memory.name == name:
                return memory
        known = ", ".join(m.name for m in self.memories)
        raise TargetError(f"{self.name} has no memory called {name!r}", hint=f"it has {known}")

    def instruction(self, name: str) -> Instruction:
        """The instruction called `name`."""
        for instruction in self.instructions:
            if instruction.name == name:
                return instruction
        known = ", ".join(i.name for i in self.instructions) or "none"
        raise TargetError(f"{self.name} has no instruction called {name!r}", hint=f"it has {known}")

    @property
    def end(self) -> Instruction | None:
        """The instruction that stands last in every stream, once all others are done."""
        return None if self.ends_with is None else self.instruction(self.ends_with)

    def idle(self, queue: str) -> Instruction | None:
        """The instruction of a queue that does nothing, if it has one."""
        found = (i for i in self.instructions if i.queue == queue and i.name != self.ends_with)
        return next((i for i in found if i.is_idle), None)

    def waits_for(self, queue: str) -> frozenset[str]:
        """The queues that a queue can wait for: itself, those that tokens link it to, and those
        that an instruction that does nothing, of such a queue, hands the wait on from."""
        names = [q.name for q in self.queues]
        if self.events or self.barriers or self.interlock:
            return frozenset(names)
        near = {q: {q, *(x for pair in self.tokens if q in pair for x in pair)} for q in names}
        relays = [q for q in near[queue] if self.idle(q) is not None]
        return frozenset(near[queue].union(*(near[q] for q in relays)))

    def encoding(self, instruction: Instruction) -> Encoding | None:
        """The instruction's bits, if the description says them."""
        found = dict(self.encodings).get(instruction.name)
        return None if found is None else found.in_units(instruction, self._units)

    def entry(self, instruction: Instruction) -> Encoding | None:
        """The bits of an entry of the instruction's list of micro-operations."""
        kind = instruction.micro_ops
        found = None if kind is None else dict(self.entries).get(kind.memory)
        return None if found is None else found.in_units(instruction, self._units)

    @property
    def llvm(self) -> Native:
        """How LLVM makes machine code for a processor; TargetError for a chip that runs none."""
        if self.native is None:
            raise TargetError(f"{self.name} runs streams of instructions, and no machine code")
        return self.native

    @property
    def vectors(self) -> VectorUnit:
        """The vector unit of a processor; TargetError for a chip that has none."""
        if self.vector is None:
            raise TargetError(f"{self.name} has no vector unit")
        return self.vector

    @property
    def _units(self) -> dict[str, int]:
        return {m.name: m.unit for m in self.memories}

    def alignment(self, memory: str) -> int:
        """The bytes that addresses in a memory must be multiples of, to be encoded."""
        return self._alignments[self.memory(memory).name]

    @cached_property
    def _alignments(self) -> dict[str, int]:
        """Of each memory."""
        units = {m.name: [m.unit] for m in self.memories}
        for instruction in self.instructions:
            encodings = self.encoding(instruction), self.entry(instruction)
            for encoding in (e for e in encodings if e is not None):
                for operand in instruction.operands:
                    part = encoding.find(Carries.ADDRESS, operand.name)
                    if part is not None and operand.memory in units:
                        units[operand.memory].append(part.unit)
        return {name: math.lcm(*found) for name, found in units.items()}

    @property
    def tasks(self) -> int:
        """The pieces in which the iterations of a parallel loop are handed out."""
        return TASKS_PER_CORE * self.cores

    def peak(self, dtype: DType) -> float:
        """Multiply-adds a second of all cores, at best."""
        if self.vector is None:
            return 0.0
        rates = dict(self.vector.multiply_adds)
        return self.cores * self.clock * rates.get(dtype, 0.0) * self.vector.lanes(dtype)


# Pieces of a parallel loop for each core: enough to even out, few enough to hand out.
TASKS_PER_CORE = 8

# What the simulators count to.
MOST_QUEUES, MOST_EVENTS, MOST_BANKS, MOST_OPERANDS, MOST_CORES = 16, 64, 64, 32, 64
MOST_CYCLES = 1 << 53  # of a memory's latency; cycles, bytes or picojoules of an instruction
MOST_TOKENS = (1 << 31) - 1
LEAST_BANDWIDTH = 2.0**-20  # bytes a cycle


def _is_whole(value: object, low: float, high: float = math.inf) -> bool:
    """Whether a fact is a whole number between two; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return False
    return low <= int(value) <= high


def _problems(t: Target) -> Iterator[tuple[str, str | None]]:
    """What is wrong with queues, their waits and memories; what to do about it."""
    yield from _queue_problems(t)
    for i in t.instructions:
        yield from _instruction_problems(t, i)
    if t.interlock and (t.tokens or t.events or t.barriers):
        hint = "leave out tokens, events and barriers: the chip does not need them"
        yield "an interlock, and other ways to wait as well", hint
    if not 0 <= t.events <= MOST_EVENTS:
        yield f"{t.events} events, and 0 to {MOST_EVENTS} are simulated", None
    if t.issue < 0:
        yield f"an instruction is issued in {t.issue} cycles", "issue(0) or more"
    if t.fetch is not None:
        yield from _fetch_problems(t, t.fetch)
    if t.most_submitted is not None:
        if not _is_whole(t.most_submitted, 2, MOST_TOKENS):
            what = f"{t.most_submitted!r} instructions are handed over at a time"
            yield what, "a whole number from 2 on: t.submits(512)"
        elif t.ends_with is None:
            hint = "say which it is: t.end(…)"
            yield "what is handed over in parts has no instruction that ends one", hint
    if t.ends_with is not None:
        yield from _end_problems(t, t.ends_with)
    yield from _memory_problems(t)
    if t.queues and t.cores > 1:
        yield from _core_problems(t)
    if t.bundles is not None:
        yield from _bundle_problems(t, t.bundles)


def _queues(t: Target) -> str:
    names = [q.name for q in t.queues]
    return f"queues are {', '.join(names)}" if names else "there are no queues"


def _queue_problems(t: Target) -> Iterator[tuple[str, str | None]]:
    names = [q.name for q in t.queues]
    for name in names:
        if names.count(name) > 1:
            yield f"two queues are called {name}", "give each a name of its own"
    if len(names) > MOST_QUEUES:
        yield f"{len(names)} queues, and at most {MOST_QUEUES} are simulated", None
    for q in t.queues:
        if q.depth < 1:
            yield f"queue {q.name} holds {q.depth} instructions", "depth=1 or more"
    if t.token_depth is not None and not _is_whole(t.token_depth, 1, MOST_TOKENS):
        what = f"{t.token_depth!r} tokens may wait to be taken"
        yield what, f"a whole number from 1 to {MOST_TOKENS}, or None for any number"
    for a, b in t.tokens:
        for name in (a, b):
            if name not in names:
                yield f"tokens of {name!r}, which is no queue", _queues(t)
        if a == b:
            yield f"queue {a} has tokens for itself", "a queue runs in order: leave the pair out"


def _instruction_problems(t: Target, i: Instruction) -> Iterator[tuple[str, str | None]]:
    slots = [name for name, _ in t.bundles.slots] if t.bundles is not None else []
    if i.queue and i.queue not in (*(q.name for q in t.queues), *slots):
        what = "which is no queue" + " and no slot" * bool(slots)
        hint = _queues(t) + f"; slots are {', '.join(slots)}" * bool(slots)
        yield f"instruction {i.name} runs on {i.queue!r}, {what}", hint
    yield from _moved_problems(t, i)
    if len(i.operands) > MOST_OPERANDS:
        many = f"instruction {i.name} has {len(i.operands)} operands"
        yield f"{many}, and at most {MOST_OPERANDS} are simulated", None


def _moved_problems(t: Target, i: Instruction) -> Iterator[tuple[str, str | None]]:
    """Bytes go through memories of operands; one that names no memory may lie in any."""
    used = list(dict.fromkeys(o.memory for o in i.operands))
    names = [m.name for m in t.memories]
    for name, _ in i.cost.through:
        moves = f"instruction {i.name} moves bytes of {name!r}"
        if name not in used and ANYWHERE not in used:
            hint = f"its operands are in {', '.join(used) or 'none'}"
            yield f"{moves}, where no operand lies", hint
        elif name not in names:
            yield f"{moves}, which is no memory", did_you_mean(name, names)


def _fetch_problems(t: Target, f: Fetch) -> Iterator[tuple[str, str | None]]:
    names = [m.name for m in t.memories]
    if f.memory not in names:
        yield (
            f"instructions are fetched from {f.memory!r}, which is no memory",
            did_you_mean(f.memory, names),
        )
    counts = (f.bytes, f.burst, f.ahead)
    whole = all(_is_whole(n, 1, MOST_CYCLES) for n in counts)
    if not whole or f.burst > f.ahead:
        what = f"{f.bytes!r} bytes, {f.burst!r} at a time, with room for {f.ahead!r}"
        least = "at least 1 byte each" if whole else "whole numbers from 1 on"
        hint = f"{least}, and room for a burst: fetch(…, bytes=16, burst=8, ahead=64)"
        yield f"instructions are fetched with {what}", hint


def _end_problems(t: Target, name: str) -> Iterator[tuple[str, str | None]]:
    names = [i.name for i in t.instructions]
    if name not in names:
        what = f"programs end with {name!r}, which is no instruction"
        yield what, did_you_mean(name, names)
        return
    end = t.instruction(name)
    if end.operands or not end.is_idle:
        what = f"programs end with {name}, which has " + (
            "operands" if end.operands else "fields" if end.fields else "a meaning"
        )
        yield what, "what ends a program does nothing: def finish(): cost(busy=1)"
    if end.queue not in {q.name for q in t.queues}:
        yield f"programs end with {name}, which runs on no queue", _queues(t)
        return
    used = {i.queue for i in t.instructions}
    far = [q.name for q in t.queues if q.name in used - t.waits_for(end.queue)]
    if far:
        what = f"programs end with {name} of {end.queue}, which nothing links to {', '.join(far)}"
        hint = f"it waits for all queues: describe tokens of {end.queue} and each, or events, or "
        yield what, hint + "barriers; or end with an instruction of a queue that has them"


def _memory_problems(t: Target) -> Iterator[tuple[str, str | None]]:
    for m in t.memories:
        if not _is_whole(m.latency, 0, MOST_CYCLES):
            yield (
                f"memory {m.name} has a latency of {m.latency!r} cycles",
                f"a whole number from 0 to {MOST_CYCLES:,}",
            )
        if m.bandwidth is not None and not _is_bandwidth(m.bandwidth):
            yield (
                f"memory {m.name} has a bandwidth of {m.bandwidth!r} bytes a cycle",
                f"a number from 1/{1 / LEAST_BANDWIDTH:,.0f} on; leave it out for no limit",
            )
        if m.capacity is not None and not (
            m.size is None and _is_whole(m.capacity, 1, MOST_CYCLES)
        ):
            sized = "and a size" if m.size is not None else "which is no whole number from 1 on"
            what = f"memory {m.name} has a capacity of {m.capacity!r} bytes, {sized}"
            yield what, "a capacity is what there is of a memory that nothing is tiled for"
        if m.banks < 1 or (m.banks > 1 and (m.size is None or m.size % m.banks)):
            yield (
                f"memory {m.name} has {m.banks} banks of {m.size} bytes together",
                ("banks are equal parts of a memory of known size"),
            )
    banks = sum(m.banks for m in t.memories if m.banks > 1)
    if banks > MOST_BANKS:
        yield f"{banks} banks, and at most {MOST_BANKS} are simulated", None


def _core_problems(t: Target) -> Iterator[tuple[str, str | None]]:
    """Of a chip of several cores, each with the queues."""
    if t.cores > MOST_CORES:
        yield f"{t.cores} cores with queues, and at most {MOST_CORES} are simulated", None
    if t.bundles is not None:
        yield f"bundles, and {t.cores} cores", "describe one core: bundles run on one"
    for m in t.memories:
        if m.shared_by not in (1, t.cores):
            what = f"memory {m.name} is shared by {m.shared_by} of {t.cores} cores"
            yield what, f"shared_by={t.cores}, or 1: each core has one of its own"
        elif m.size is None and m.shared_by == 1:
            what = f"memory {m.name} has no size, and each core one of its own"
            yield what, "arrays lie there for all cores: leave shared_by out"
        if m.shared_by > 1 and m.banks > 1:
            what = f"memory {m.name} has {m.banks} banks, and is shared by {m.shared_by} cores"
            yield what, "banks are simulated within a core: leave them out"


def _is_bandwidth(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return not value < LEAST_BANDWIDTH and value < math.inf


def _bundle_problems(t: Target, b: Bundles) -> Iterator[tuple[str, str | None]]:
    counts = dict(b.slots)
    known = f"slots are {', '.join(counts)}"
    for name, count in b.slots:
        if count < 1:
            yield f"a bundle has {count} slots called {name}", f"{name}=1 or more"
        if name in {q.name for q in t.queues}:
            yield f"{name} is a queue and a slot", "give each a name of its own"
    if b.control not in counts:
        yield f"the control slot is {b.control!r}, which is no slot", known
    if b.loops < 0 or b.branch < 0:
        yield f"{b.loops} hardware loops, and {b.branch} cycles behind a branch", "0 or more"
    if t.fetch is not None:
        hint = "leave out t.fetch(…): a bundle is issued in every cycle, wherever it comes from"
        yield f"bundles, and instructions that are fetched from {t.fetch.memory}", hint
    if t.ends_with is not None:
        hint = "leave out t.end(…): a program of bundles ends with its last bundle"
        yield f"bundles, and programs that end with {t.ends_with}", hint
    if not any(m.row for m in t.memories):
        yield "bundles, and no registers", 't.register_file("v", 32, bytes=64) declares some'
