"""Adversarial replay: a stream run on data in many orders that its waits allow.

First one instruction after another, in program order: what is wrong then has nothing to do with
waits. Then with queues as far ahead of each other, and as far behind, as the waits let them, and at
random. Beside the data runs a shadow memory that knows who wrote every byte: data are stale where
an instruction reads another one's than in program order, even if they happen to be equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tilewright.backends.stream.boxes import (
    INPUT,
    UNWRITTEN,
    Boxes,
    ShadowMemory,
    boxes,
    dependences,
    queue_numbers,
    writers,
)
from tilewright.backends.stream.check_waits import interleave
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.faults import Fault, FaultKind, lines, name_of, use_line
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits
from tilewright.ir.expr import Buffer
from tilewright.ir.samples import first_difference
from tilewright.runtime import stream_functions as native
from tilewright.runtime.simulator import FILL
from tilewright.sim.data import DataEngine, get_outputs, put_inputs
from tilewright.target.target import Target

OTHER_FILL = 0x3C
FEW_QUEUES = 4  # so many that all their orders are tried


def replay(
    stream: Stream,
    waits: Waits,
    host: Target,
    inputs: Mapping[Buffer, np.ndarray],
    outputs: Sequence[Buffer],
    expected: Sequence[np.ndarray] | None = None,
    *,
    orders: int = 32,
    seed: int = 0,
    read: Callable[[Buffer, np.ndarray], np.ndarray] = lambda buffer, data: data,
    found: Boxes | None = None,
) -> Fault | None:
    """Runs the stream one instruction after another, and in up to `orders` other orders that its
    waits allow. The first fault; None if outputs were always as expected (to the bit), and in every
    order all instructions read the same instructions' data. `read` gives an output as the host
    sees it, of how it lies in the chip's memory."""
    play = _Replay(stream, waits, host, inputs, outputs, read, found or boxes(stream))
    return play.run(expected, orders, seed)


class _Replay:
    def __init__(
        self,
        stream: Stream,
        waits: Waits,
        host: Target,
        inputs: Mapping[Buffer, np.ndarray],
        outputs: Sequence[Buffer],
        read: Callable[[Buffer, np.ndarray], np.ndarray],
        found: Boxes,
    ) -> None:
        self.stream, self.waits, self.host = stream, waits, host
        self.inputs, self.outputs, self.read = inputs, outputs, read
        self.boxes = found
        self.shadow = ShadowMemory(found, inputs)
        self.in_order = np.arange(len(stream))

    def run(self, expected: Sequence[np.ndarray] | None, orders: int, seed: int) -> Fault | None:
        fault = check_memory(self.stream, self.inputs, self.boxes)
        fault = fault or check_distances(self.stream, self.boxes)
        if fault is not None:
            return fault
        self.engine = DataEngine(self.stream, self.host)
        results = self._results(None, FILL)
        fault = self._one_after_another(results, expected)
        if fault is not None:
            return fault
        digests, left = self._shadow_run(self.in_order)
        need = dependences(self.stream, self.boxes) if self.stream.target.interlock else None
        for name, priority in self._priorities(orders, seed):
            run = interleave(self.stream, self.waits, priority, need)
            if len(run.order) < len(self.stream):
                return run.deadlock()
            fault = self._compare(run.order, digests, left)
            if fault is None:
                again = self._results(run.order, FILL)
                fault = self._differs(
                    again, results, FaultKind.STALE, "instructions in another order"
                )
            if fault is not None:
                return Fault(fault.kind, fault.rows, lines(str(fault), f"in the order: {name}"))
        return None

    def _one_after_another(
        self, results: Sequence[np.ndarray], expected: Sequence[np.ndarray] | None
    ) -> Fault | None:
        if expected is not None:
            what = "instructions one after another"
            fault = self._differs(results, expected, FaultKind.RESULT, what)
            if fault is not None:
                return fault
        other = self._results(None, OTHER_FILL)
        return self._differs(other, results, FaultKind.UNWRITTEN, "memory that nothing has written")

    def _results(self, order: np.ndarray | None, fill: int) -> list[np.ndarray]:
        memories = put_inputs(self.stream, self.inputs, fill)
        for core in range(self.stream.cores):
            self.engine.run(memories, order, core)
        results = get_outputs(self.stream, memories, self.outputs)
        return [self.read(b, data) for b, data in zip(self.outputs, results, strict=True)]

    def _differs(
        self, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], kind: FaultKind, cause: str
    ) -> Fault | None:
        """A fault if outputs are not what they should be."""
        for buffer, a, b in zip(self.outputs, found, wanted, strict=True):
            place = first_difference(a, b)
            if place is not None:
                where = f"{buffer.name}[{', '.join(map(str, place))}]"
                text = f"{cause}: {where} is {a[place]}, and should be {b[place]}"
                return Fault(kind, (), text)
        return None

    # ---------------------------------------------------------- orders

    def _priorities(self, orders: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
        """What decides between instructions that could be next."""
        rng = np.random.default_rng(seed)
        return itertools.islice(self._all_priorities(rng), orders)

    def _all_priorities(self, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
        n, queue = len(self.stream), queue_numbers(self.stream)
        names = [q.name for q in self.stream.target.queues]
        used = sorted(set(queue.tolist()))
        ranks: Iterator[tuple[int, ...]] = itertools.permutations(used)
        if len(used) > FEW_QUEUES:
            ranks = (tuple(used[k:] + used[:k]) for k in range(len(used)))
        for first_to_last in ranks:
            rank = np.zeros(len(names), np.int64)
            rank[list(first_to_last)] = np.arange(len(used), 0, -1)
            shown = ", then ".join(names[q] for q in first_to_last)
            yield f"{shown}, each as far as it can go", rank[queue]
        yield "what stands last in the program first", np.arange(n)
        while True:
            late = rng.random(n) < rng.choice([0.02, 0.2, 1.0])
            yield "at random", np.where(late, -rng.integers(1, 1 << 40, n), -self.in_order)

    # ---------------------------------------------------------- whose data

    def _shadow_run(self, order: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Whose data every box reads, and whose lie in the outputs at the end."""
        digests = np.zeros(len(self.boxes), np.uint64)
        memories = self.shadow.fresh()
        self._native_run(memories, order, None, digests)
        return digests, self._left(memories)

    def _native_run(
        self,
        memories: object,
        order: np.ndarray,
        expected: np.ndarray | None,
        digests: np.ndarray,
    ) -> int:
        b = self.boxes
        exact = np.ascontiguousarray(b.touched.exact, np.uint8)
        return native.shadow_run(
            b.arrays, memories, len(order), order, b.first, exact, 0, expected, digests,
            np.zeros(1, np.int64),
        )  # fmt: skip

    def _left(self, memories: object) -> list[np.ndarray]:
        names = [m.name for m in self.stream.target.memories]
        found = []
        for buffer in self.outputs:
            place = self.stream.places[buffer]
            k = names.index(place.memory)
            cells = self.boxes.cuts[k].within(place.offset, place.end(buffer))
            found.append(writers(memories, k)[cells])
        return found

    def _compare(
        self, order: np.ndarray, digests: np.ndarray, left: Sequence[np.ndarray]
    ) -> Fault | None:
        """The first box of this order that reads other instructions' data than in program order."""
        memories = self.shadow.fresh()
        k = self._native_run(memories, order, digests, np.zeros(len(self.boxes), np.uint64))
        if k >= 0:
            return self._stale(order, k)
        for buffer, mine, theirs in zip(self.outputs, self._left(memories), left, strict=True):
            wrong = np.flatnonzero(mine != theirs)
            if len(wrong):
                return self._stale_output(buffer, int(mine[wrong[0]]), int(theirs[wrong[0]]))
        return None

    def _stale(self, order: np.ndarray, k: int) -> Fault:
        bytes_read, mine = self._writers(order, k)
        _, theirs = self._writers(self.in_order, k)
        at = np.flatnonzero(mine != theirs)[0]
        t, stream = self.boxes.touched, self.stream
        row, found, wanted = int(t.row[k]), int(mine[at]), int(theirs[at])
        memory = stream.target.memories[t.memory[k]].name
        text = lines(
            f"{name_of(stream, row)}, reads byte {bytes_read[at]} of {memory} as "
            f"{self._who(found)} left it, and in program order as {self._who(wanted)} did",
            use_line(self.boxes, k, writes=False),
        )
        return Fault(FaultKind.STALE, (row, *(w for w in (found, wanted) if w >= 0)), text)

    def _stale_output(self, buffer: Buffer, found: int, wanted: int) -> Fault:
        text = f"{buffer.name} is at the end as {self._who(found)} left it, and in program order as"
        rows = tuple(w for w in (found, wanted) if w >= 0)
        return Fault(FaultKind.STALE, rows, f"{text} {self._who(wanted)} did")

    def _who(self, writer: int) -> str:
        if writer == INPUT:
            return "the host"
        return "nobody" if writer == UNWRITTEN else f"{name_of(self.stream, writer)},"

    def _writers(self, order: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The bytes at which the cells begin that box k reads, and who wrote them."""
        b, t = self.boxes, self.boxes.touched
        most = b.cuts[t.memory[k]].cells_of(b.runs_of(k), int(t.extents[k, -1]))
        found, where = np.full(most, INPUT, np.int32), np.zeros(most, np.int64)
        memories = self.shadow.fresh()
        native.writers(b.arrays, memories, np.ascontiguousarray(order), b.first, k, found, where)
        return where, found
