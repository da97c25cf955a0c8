"""What must come after what: the dependence graph of operations, within an iteration and between
iterations of a loop.

An operation reads when it is issued; its results are there `latency` cycles later, and until then
what it writes belongs to it alone. So a read, or another write, of the same bytes comes `latency`
cycles after a write at least, and a write no earlier than the reads before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.linear import Linear, add
from tilewright.backends.bundles.operations import Operand, Operation
from tilewright.ir.expr import Buffer, Var
from tilewright.ir.substitute import variables

FAR = 64  # iterations: what lies further apart is taken to be this far, which is safe


@dataclass(frozen=True)
class Edge:
    """time(to) >= time(of) + delay, where `to` is `distance` iterations later."""

    of: int
    to: int
    delay: int
    distance: int


def dependences(
    operations: Sequence[Operation], private: set[Buffer], loop: Var | None = None, count: int = 1
) -> list[Edge]:
    """The edges between operations, by their places in the sequence. `private` buffers are new in
    each iteration of the loop; without a loop only order within the sequence counts."""
    found: dict[tuple[int, int, int], int] = {}

    def put(edge: Edge) -> None:
        key = edge.of, edge.to, edge.distance
        found[key] = max(found.get(key, 0), edge.delay)

    for edge in _register_edges(operations, private, loop is not None and count > 1):
        put(edge)
    for edge in _memory_edges(operations, loop, count):
        put(edge)
    return [Edge(of, to, delay, far) for (of, to, far), delay in found.items()]


# ---------------------------------------------------------------- registers


@dataclass
class _Cell:
    """A register as the sequence goes on: who wrote it last, who read that."""

    writer: tuple[int, int] | None  # (operation, iteration)
    readers: list[tuple[int, int]]


def _register_edges(
    operations: Sequence[Operation], private: set[Buffer], again: bool
) -> Iterator[Edge]:
    """Two iterations are followed: what a third needs, it has from the second."""
    cells: dict[tuple[Buffer, int], _Cell] = {}
    for iteration in range(2 if again else 1):
        for i, operation in enumerate(operations):
            now = i, iteration
            held = [
                ((o.buffer, c), o)
                for o in operation.operands
                if o.row and not (iteration and o.buffer in private)
                for c in o.cells
            ]
            for key, operand in held:  # all reads of an operation come before its writes
                cell = cells.setdefault(key, _Cell(None, []))
                if cell.writer is not None and cell.writer != now:
                    yield _edge(cell.writer, now, operations[cell.writer[0]].latency)
                if operand.writes:
                    for reader in cell.readers:
                        if reader != now:
                            yield _edge(reader, now, 0)
            for key, operand in held:
                if operand.writes:
                    cells[key] = _Cell(now, [])
            for key, operand in held:
                if operand.reads and cells[key].writer != now:
                    cells[key].readers.append(now)


def _edge(of: tuple[int, int], to: tuple[int, int], delay: int) -> Edge:
    return Edge(of[0], to[0], delay, to[1] - of[1])


# ---------------------------------------------------------------- memory


def _memory_edges(operations: Sequence[Operation], loop: Var | None, count: int) -> Iterator[Edge]:
    touched: dict[Buffer, list[tuple[int, Operand]]] = {}
    for i, operation in enumerate(operations):
        for operand in operation.operands:
            if not operand.row:
                touched.setdefault(operand.buffer, []).append((i, operand))
    for users in touched.values():
        if not any(o.writes for _, o in users):
            continue
        for i, a in users:
            for j, b in users:
                if not (a.writes or b.writes):
                    continue
                first = 0 if i < j else 1
                far = _meeting(a, b, loop, first, count)
                if far is not None:
                    delay = operations[i].latency if a.writes else 0
                    yield Edge(i, j, delay, far)


def _meeting(a: Operand, b: Operand, loop: Var | None, first: int, count: int) -> int | None:
    """The least number of iterations, from `first` on, after which b may touch what a did."""
    if first >= count:
        return None
    apart = add(b.start, a.start, -1)
    if loop is None:
        return 0 if _meets(apart, a, b) else None
    step, other = _step(a.start, loop), _step(b.start, loop)
    if step is None or other is None or step != other:
        return first
    for far in range(first, min(count, FAR + 1)):
        if _meets(add(apart, {None: step} if step else {}, far), a, b):
            return far
    return FAR if count > FAR else None


def _step(form: Linear, loop: Var) -> int | None:
    """How far a place moves from one iteration to the next; None if that is not one number."""
    for atom in form:
        if atom is not None and atom != loop and loop in variables(atom):
            return None
    return form.get(loop, 0)


def _meets(apart: Linear, a: Operand, b: Operand) -> bool:
    """Whether b, `apart` bytes behind a, may touch what a does."""
    if any(atom is not None for atom in apart):
        return True
    return -b.span < apart.get(None, 0) < a.span
