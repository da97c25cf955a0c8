"""Whether a stream with its waits is right, by brute force: nothing is used of the compiler's
analysis of what instructions touch, of its waits, or of its check.

What an instruction touches is found by running its meaning in Python. Which instructions are
ordered is the transitive closure of all pairs that a queue, a token, an event or a barrier orders.
Then the stream is run on data with extreme times, where instructions take effect as they begin or
as they end. It is harmful if it stops, leaves tokens behind, touches memory that is not there, has
two instructions in conflict that nothing orders, or gives another result than it should.
"""

from __future__ import annotations

import functools
import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from fast_interpret import Numbers, Program, Watch

from tilewright.backends.stream.stream import Site, Stream
from tilewright.backends.stream.waits import Waits
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Kernel
from tilewright.sim.data import DataEngine
from tilewright.targets import cpu

Cells = np.ndarray  # bytes, numbered over all memories: sorted, each once
MEMORY = 1 << 40  # numbers of one memory
HOST = cpu.host(threads=1)


class Recorder(dict):
    """An operand's elements: all zero. Notes which are read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set = set()
        self.wrote: set = set()

    def __getitem__(self, place: object) -> np.integer:
        self.read.add(place)
        return np.int64(0)

    def __setitem__(self, place: object, value: object) -> None:
        self.wrote.add(place)


@functools.lru_cache(maxsize=4096)
def elements(
    instruction: Instruction, fields: tuple[int, ...]
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """The subscripts that an instruction reads and writes of each operand, [n, axes]."""
    values = {f.name: v for f, v in zip(instruction.fields, fields, strict=True)}
    kernel = Kernel(instruction.name, instruction.operands, (), instruction.body)
    program = _Meaning(kernel, values, Numbers())
    found = [Recorder() for _ in instruction.operands]
    with np.errstate(all="ignore"):
        program.function(found, Watch())
    return tuple(
        (_places(r.read, len(b.shape)), _places(r.wrote, len(b.shape)))
        for r, b in zip(found, instruction.operands, strict=True)
    )


class _Meaning(Program):
    """Operands are as large as their subscripts reach."""

    def check(self, buffer: object) -> None:
        pass


def _places(found: set, axes: int) -> np.ndarray:
    rows = [p if isinstance(p, tuple) else (p,) for p in found]
    return np.array(rows, np.int64).reshape(-1, axes)


def effects(stream: Stream, row: int) -> tuple[Cells, Cells]:
    """The bytes that an instruction reads and writes."""
    site = stream.sites[stream.site[row]]
    instruction = site.instruction
    names = [m.name for m in stream.target.memories]
    fields = tuple(int(v) for v in stream.fields[row, : len(instruction.fields)])
    found: tuple[list, list] = ([], [])
    for o, places in enumerate(elements(instruction, fields)):
        operand = instruction.operands[o]
        base = names.index(site.memories[o]) * MEMORY + int(stream.addresses[row, o])
        for subscripts, into in zip(places, found, strict=True):
            at = _offsets(subscripts, _steps(instruction, operand, fields), site, o)
            into.append((base + at[:, None] + np.arange(operand.dtype.bytes)).reshape(-1))
    if site.entries:
        kind = instruction.micro_ops
        begin = names.index(kind.memory) * MEMORY + int(stream.lists[row]) * kind.bytes
        found[0].append(begin + np.arange(site.entries * kind.bytes))
    nothing = np.zeros(0, np.int64)
    reads, writes = (np.unique(np.concatenate([nothing, *parts])) for parts in found)
    return reads, writes


def _steps(instruction: Instruction, operand: Buffer, fields: tuple[int, ...]) -> list[int]:
    """Elements of memory along each axis: what a field carries, or those of the axes inside."""
    values = {f.name: v for f, v in zip(instruction.fields, fields, strict=True)}
    steps = []
    for d in range(len(operand.shape)):
        carried = [f for name, axis, f in instruction.strides if (name, axis) == (operand.name, d)]
        inner = [evaluate_dim(n, values) for n in operand.shape[d + 1 :]]
        steps.append(values[carried[0]] if carried else int(np.prod(inner)))
    return steps


def _offsets(subscripts: np.ndarray, steps: Sequence[int], site: Site, o: int) -> np.ndarray:
    """Bytes from an operand's first element."""
    operand = site.instruction.operands[o]
    listed = site.instruction.listed(operand)
    steps = [0 if d == listed else step for d, step in enumerate(steps)]
    at = subscripts @ np.array(steps, np.int64).reshape(-1) * operand.dtype.bytes
    if listed is not None and len(subscripts):
        at = at + site.offsets[o][subscripts[:, listed]]
    return at


class _InMemory(dict):
    """An operand's elements, in a memory."""

    def __init__(self, memory: np.ndarray, first: int, stream: Stream, row: int, o: int) -> None:
        super().__init__()
        self.site = stream.sites[stream.site[row]]
        instruction = self.site.instruction
        self.o, self.memory, self.first = o, memory, first
        self.dtype = instruction.operands[o].dtype
        fields = tuple(int(v) for v in stream.fields[row, : len(instruction.fields)])
        self.steps = _steps(instruction, instruction.operands[o], fields)

    def place(self, subscripts: object) -> slice:
        at = _offsets(_places({subscripts}, len(self.steps)), self.steps, self.site, self.o)
        return slice(self.first + int(at[0]), self.first + int(at[0]) + self.dtype.bytes)

    def __getitem__(self, subscripts: object) -> object:
        return self.memory[self.place(subscripts)].view(self.dtype.numpy)[0]

    def __setitem__(self, subscripts: object, value: object) -> None:
        self.memory[self.place(subscripts)].view(self.dtype.numpy)[0] = value


def interpret(stream: Stream, memories: Mapping[str, np.ndarray]) -> None:
    """Runs a stream on memories, element by element."""
    for row in range(len(stream)):
        site = stream.sites[stream.site[row]]
        instruction = site.instruction
        kernel = Kernel(instruction.name, instruction.operands, (), instruction.body)
        values = zip(
            (f.name for f in instruction.fields), stream.fields[row].tolist(), strict=False
        )
        places = enumerate(zip(site.memories, stream.addresses[row].tolist(), strict=False))
        operands = [_InMemory(memories[m], at, stream, row, o) for o, (m, at) in places]
        with np.errstate(all="ignore"):
            _Meaning(kernel, dict(values), Numbers()).function(operands, Watch())


def with_registers(stream: Stream) -> Stream:
    """The stream as the chip runs it: fields that are in registers have what was set last."""
    fields = stream.fields.copy()
    held: dict[tuple[str, str], int] = {}
    for row in range(len(stream)):
        instruction = stream.sites[stream.site[row]].instruction
        for c, f in enumerate(instruction.fields):
            if f.register is not None:
                fields[row, c] = held.get(f.register, f.low)
        if instruction.sets_state:
            held |= {(instruction.name, f.name): fields[row, c]
                     for c, f in enumerate(instruction.fields)}  # fmt: skip
    return replace(stream, fields=fields)


class Judge:
    """One stream with its waits; `verdict` says why it is harmful, or is None."""

    def __init__(self, stream: Stream, waits: Waits, known: dict | None = None) -> None:
        stream = with_registers(stream)
        self.stream, self.waits, self.n = stream, waits, len(stream)
        self.known = {} if known is None else known
        names = [q.name for q in stream.target.queues]
        self.queue = [names.index(stream.sites[s].instruction.queue) for s in stream.site]
        self.depth = [q.depth for q in stream.target.queues]
        self.takes = [self._channels(i, waits.pops, waits.awaits, False) for i in range(self.n)]
        self.gives = [self._channels(i, waits.pushes, waits.sets, True) for i in range(self.n)]

    def _channels(self, i: int, tokens: np.ndarray, events: np.ndarray, out: bool) -> list:
        me = self.queue[i]
        bits = [p for p in range(len(self.depth)) if int(tokens[i]) >> p & 1]
        found: list = [(me, p) if out else (p, me) for p in bits]
        return found + [e for e in range(64) if int(events[i]) >> e & 1]

    @functools.cached_property
    def effects(self) -> list[tuple[Cells, Cells]]:
        return [self._effect(i) for i in range(self.n)]

    def _effect(self, i: int) -> tuple[Cells, Cells]:
        s = self.stream
        site = s.sites[s.site[i]]
        lists = tuple(None if x is None else x.tobytes() for x in site.offsets)
        key = (site.instruction, site.memories, lists, s.fields[i].tobytes(),
               s.addresses[i].tobytes(), int(s.lists[i]))  # fmt: skip
        if key not in self.known:
            self.known[key] = effects(s, i)
        return self.known[key]

    def verdict(
        self, chip: ChipKernel, data: Sequence[tuple[Mapping, Sequence[np.ndarray]]], seed: int
    ) -> str | None:
        outside = self.outside()
        if outside is not None:
            return f"instruction {outside} touches memory that is not there"
        orders = list(self.orders(seed))
        if any(order is None for order in orders):
            return "it stops for good"
        if self.left_over():
            return "a token is left over"
        pair = self.race()
        if pair is not None:
            return f"nothing orders {pair[0]} and {pair[1]}"
        distinct = {tuple(order): None for order in orders if order is not None}
        for inputs, expected in data:
            for order in distinct:
                if not self.right(chip, inputs, expected, np.array(order)):
                    return "results are wrong"
        return None

    # ---------------------------------------------------------- memory

    def sizes(self) -> dict[str, int]:
        s = self.stream
        return {m.name: max(m.size or 0, s.sizes.get(m.name, 0)) for m in s.target.memories}

    def outside(self) -> int | None:
        sizes = list(self.sizes().values())
        for i, cells in enumerate(self.effects):
            memory, byte = np.divmod(np.concatenate(cells), MEMORY)
            for k, size in enumerate(sizes):
                if np.any((memory == k) & (byte >= size)) or np.any(memory < 0):
                    return i
        return None

    def right(
        self, chip: ChipKernel, inputs: Mapping, expected: Sequence[np.ndarray], order: np.ndarray
    ) -> bool:
        """Whether the outputs are as expected when instructions take effect in this order."""
        s = self.stream
        memories = {name: np.full(size, 0x5B, np.uint8) for name, size in self.sizes().items()}
        for buffer, array in {**s.constants, **inputs}.items():
            place = s.places[buffer]
            flat = np.ascontiguousarray(array, buffer.dtype.numpy).reshape(-1).view(np.uint8)
            memories[place.memory][place.offset : place.offset + flat.size] = flat
        DataEngine(s, HOST).run(memories, order)
        for buffer, wanted in zip(chip.kernel.outputs, expected, strict=True):
            place = s.places[buffer]
            size = int(np.prod(buffer.shape)) * buffer.dtype.bytes
            flat = memories[place.memory][place.offset : place.offset + size]
            if not np.array_equal(flat.view(buffer.dtype.numpy).reshape(buffer.shape), wanted):
                return False
        return True

    # ---------------------------------------------------------- orders

    def left_over(self) -> bool:
        count: dict = defaultdict(int)
        for i in range(self.n):
            for c in self.gives[i]:
                count[c] += 1
            for c in self.takes[i]:
                count[c] -= 1
        return any(count.values())

    @functools.cached_property
    def conflicts(self) -> np.ndarray:
        """[n, n]: both touch a byte, and one of them writes it."""
        everything = [np.concatenate(cells) for cells in self.effects]
        cells, at = np.unique(np.concatenate(everything), return_inverse=True)
        touched, written = (np.zeros((self.n, len(cells)), bool) for _ in range(2))
        touched[np.repeat(np.arange(self.n), [len(e) for e in everything]), at] = True
        for i, (_, writes) in enumerate(self.effects):
            written[i, np.searchsorted(cells, writes)] = True
        both = np.concatenate([touched, written])
        differs = np.any(both[:, 1:] != both[:, :-1], axis=0)  # bytes with the same users are one
        kept = np.flatnonzero(np.concatenate([[True], differs]))
        touched, written = touched[:, kept], written[:, kept]
        found = np.stack([np.any(touched[:, w], axis=1) for w in written])
        return found | found.T

    def before(self) -> np.ndarray:
        """[n, n]: done before the other begins, whatever the times."""
        found = np.zeros((self.n, self.n), bool)
        for i in range(self.n):
            found[i, [j for j in range(i + 1, self.n) if self.queue[j] == self.queue[i]]] = True
        if self.stream.target.interlock:
            found |= np.triu(self.conflicts, 1)
        given: dict = defaultdict(deque)
        for i in range(self.n):
            for c in self.gives[i]:
                given[c].append(i)
        for i in range(self.n):
            for c in self.takes[i]:
                found[given[c].popleft(), i] = True
        for b in np.flatnonzero(self.waits.barriers):
            found[:b, b:] = True
        for k in range(self.n):
            found |= found[:, k, None] & found[k]
        return found

    def race(self) -> tuple[int, int] | None:
        before = self.before()
        pairs = np.argwhere(np.triu(self.conflicts & ~before & ~before.T, 1))
        return tuple(pairs[0].tolist()) if len(pairs) else None

    def orders(self, seed: int) -> Iterator[list[int] | None]:
        """Orders in which instructions take effect, with extreme times; None if it stops."""
        rng = np.random.default_rng(seed)
        queues = range(len(self.depth))
        for fast in queues:
            times = np.array([1 if self.queue[i] == fast else 1000 for i in range(self.n)])
            yield from self.run(times)
            yield from self.run(1001 - times)
        for _ in range(4):
            yield from self.run(rng.choice([1, 10_000], self.n))

    def run(self, times: np.ndarray) -> Iterator[list[int] | None]:
        """Both orders, of beginning and of being done, with these times of instructions."""
        waiting: list[deque[int]] = [deque() for _ in self.depth]
        tokens: dict = defaultdict(int)
        busy: set[int] = set()
        running: list[tuple[int, int]] = []
        begun: list[int] = []
        done: list[int] = []
        fetched = now = 0
        needs = np.triu(self.conflicts, 1) if self.stream.target.interlock else None
        while len(done) < self.n:
            moved = True
            while moved:
                moved = False
                while (
                    fetched < self.n
                    and len(waiting[self.queue[fetched]]) < self.depth[self.queue[fetched]]
                ):
                    if self.waits.barriers[fetched] and len(done) < fetched:
                        break
                    waiting[self.queue[fetched]].append(fetched)
                    fetched += 1
                    moved = True
                for q, line in enumerate(waiting):
                    if not line or q in busy or not self._ready(line[0], tokens, needs, done):
                        continue
                    i = line.popleft()
                    for c in self.takes[i]:
                        tokens[c] -= 1
                    busy.add(q)
                    begun.append(i)
                    heapq.heappush(running, (now + int(times[i]), i))
                    moved = True
            if not running:
                yield None
                return
            now, i = heapq.heappop(running)
            busy.remove(self.queue[i])
            done.append(i)
            for c in self.gives[i]:
                tokens[c] += 1
        yield begun
        yield done

    def _ready(self, i: int, tokens: dict, needs: np.ndarray | None, done: list[int]) -> bool:
        if needs is not None:
            return set(np.flatnonzero(needs[:, i]).tolist()) <= set(done)
        return all(tokens[c] > 0 for c in self.takes[i])
