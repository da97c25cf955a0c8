"""Whether bundles issue every operation of their piece of the program once, and keep the order of
accesses to memory: all iterations of all loops, as arrays.

Each piece of memory is looked at on its own. What comes behind a write in the program is issued
when that has arrived, and a write not before anything that it comes behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.bundles.code import Code, Issue, Repeat, cycles
from tilewright.backends.bundles.operations import Body, Operand, Operation, OperationLoop
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.substitute import variables

LATE = 1 << 40  # later than any cycle


def check_instances(body: Body, code: Code) -> str | None:
    """What is wrong with how often operations are issued, and with the order of accesses to memory;
    None if nothing is."""
    program = _Program(body)
    columns: dict[int, list[_Issued]] = {n: [] for n in program.places}
    for issued in _issued(code, (), 0):
        columns[issued.issue.operation.number].append(issued)
    found: dict[int, _Column] = {}
    for number, parts in columns.items():
        fault, column = program.column(number, parts)
        if fault is not None:
            return fault
        found[number] = column
    return _check_order(program, found)


# ---------------------------------------------------------------- the program


@dataclass(frozen=True, eq=False)
class _Place:
    """Where an operation stands: its position in the first iteration of all loops, and the loops,
    each with how many operations are done in one iteration of it."""

    operation: Operation
    first: int
    loops: tuple[tuple[Var, int, int], ...]  # variable, iterations, operations in one

    @property
    def count(self) -> int:
        return math.prod(n for _, n, _ in self.loops)


@dataclass(frozen=True, eq=False)
class _Column:
    """All instances of an operation: the variables of its loops, its rank in the program, and when
    it is issued [n]."""

    env: Mapping[Var, np.ndarray]
    rank: np.ndarray
    at: np.ndarray


class _Program:
    def __init__(self, body: Body) -> None:
        self.places: dict[int, _Place] = {}
        self._read(body, (), 0)

    def _read(self, body: Body, loops: tuple[tuple[Var, int, int], ...], first: int) -> None:
        for item in body.items:
            if isinstance(item, OperationLoop):
                each = _size(item.body)
                self._read(item.body, (*loops, (item.var, item.count, each)), first)
                first += item.count * each
            else:
                self.places[item.number] = _Place(item, first, loops)
                first += 1

    def column(self, number: int, parts: Sequence[_Issued]) -> tuple[str | None, _Column]:
        """The instances of an operation, and what is wrong with how often they are issued."""
        place = self.places[number]
        env = {
            v: np.concatenate([np.zeros(0, np.int64), *(p.env[v].reshape(-1) for p in parts)])
            for v, _, _ in place.loops
        }
        at = np.concatenate([np.zeros(0, np.int64), *(p.at.reshape(-1) for p in parts)])
        rank = place.first + sum((env[v] * each for v, _, each in place.loops), 0 * at)
        inside = np.ones(len(at), bool)
        for v, n, _ in place.loops:
            inside &= (env[v] >= 0) & (env[v] < n)
        column = _Column(env, rank, at)
        if not inside.all():
            k = int(np.flatnonzero(~inside)[0])
            what = "and the program has no such iteration"
            return f"{self.name(number, env, k)} is issued, {what}", column
        times = np.unique(rank, return_counts=True)[1]
        if len(times) < place.count:
            return f"{place.operation} is issued {len(times)} of {place.count} times", column
        if times.max(initial=1) > 1:
            k = int(np.flatnonzero(rank == np.sort(rank)[np.argmax(times > 1)])[0])
            return f"{self.name(number, env, k)} is issued twice", column
        return None, column

    def name(self, number: int, env: Mapping[Var, np.ndarray], k: int) -> str:
        where = ", ".join(f"{v.name}={env[v][k]}" for v in sorted(env, key=lambda v: v.name))
        return f"{self.places[number].operation}" + (f" at {where}" if where else "")


def _size(body: Body) -> int:
    """Operations that a body does."""
    return sum(x.count * _size(x.body) if isinstance(x, OperationLoop) else 1 for x in body.items)


# ---------------------------------------------------------------- the bundles


@dataclass(frozen=True, eq=False)
class _Issued:
    """One operation of a bundle, every time that it is issued; an axis for each loop around it."""

    issue: Issue
    env: Mapping[Var, np.ndarray]
    at: np.ndarray


def _issued(code: Code, around: tuple[tuple[Var, int, int], ...], now: int) -> Iterator[_Issued]:
    """Every operation of the code; `around` has the loops: variable, count, cycles of one round."""
    for item in code:
        if isinstance(item, Repeat):
            each = cycles(item.code)
            yield from _issued(item.code, (*around, (item.var, item.count, each)), now)
            now += item.count * each
            continue
        for x in item:
            if isinstance(x, Issue):
                yield _instances(x, around, now)
        now += 1


def _instances(x: Issue, around: tuple[tuple[Var, int, int], ...], now: int) -> _Issued:
    shape = tuple(n for _, n, _ in around)
    turns: Mapping[Expr, np.ndarray] = {
        v: np.arange(n).reshape([-1 if d == k else 1 for d in range(len(shape))])
        for k, (v, n, _) in enumerate(around)
    }
    at = now + sum((turns[v] * each for v, _, each in around), np.zeros(shape, np.int64))
    env = {v: np.broadcast_to(turns[v], shape) for v, _, _ in around}
    for v, e in x.values.items():
        env[v] = np.broadcast_to(evaluate_expr(e, turns, {}), shape)
    return _Issued(x, env, np.broadcast_to(at, shape))


# ---------------------------------------------------------------- the order of accesses


@dataclass(frozen=True, eq=False)
class _Accesses:
    """Accesses to pieces of one buffer: which piece, the operation's number and instance, its rank
    in the program, when it is issued, when what it writes is there, whether it writes [n]."""

    piece: np.ndarray
    number: np.ndarray
    instance: np.ndarray
    rank: np.ndarray
    at: np.ndarray
    landing: np.ndarray
    writes: np.ndarray


def _check_order(program: _Program, columns: Mapping[int, _Column]) -> str | None:
    users: dict[Buffer, list[tuple[int, Operand]]] = {}
    for number, place in program.places.items():
        for operand in place.operation.operands:
            if not operand.row:
                users.setdefault(operand.buffer, []).append((number, operand))
    for buffer, mine in users.items():
        if any(o.writes for _, o in mine):
            found = _accesses(program, columns, mine)
            pair = _out_of_order(found)
            if pair is not None:
                early, late = (
                    program.name(
                        int(found.number[k]),
                        columns[int(found.number[k])].env,
                        int(found.instance[k]),
                    )
                    for k in pair
                )
                return f"{late} does not wait for {early}, and both touch {buffer.name}"
    return None


def _accesses(
    program: _Program, columns: Mapping[int, _Column], users: Sequence[tuple[int, Operand]]
) -> _Accesses:
    """All accesses to a buffer, piece by piece: its largest pieces that every operation touches
    wholly or not at all; or all of it, where loops outside move the accesses apart."""
    moves = {_outside(program.places[n], o) for n, o in users}
    granule = math.gcd(*(math.gcd(o.span, *o.start.values()) for _, o in users))
    parts: list[tuple[np.ndarray, ...]] = []
    for number, o in users:
        column, n = columns[number], len(columns[number].at)
        first, size = np.zeros(n, np.int64), 1
        if len(moves) == 1:
            first, size = _address(o, column.env) // granule, o.span // granule
            first = np.broadcast_to(first, (n,))
        landing = column.at + program.places[number].operation.latency
        for writes in (False, True):
            if not (o.writes if writes else o.reads):
                continue
            piece = (first[:, None] + np.arange(size)).reshape(-1)
            rows = (np.full(n, number), np.arange(n), column.rank, column.at, landing,
                    np.full(n, writes))  # fmt: skip
            parts.append((piece, *(np.repeat(r, size) for r in rows)))
    return _Accesses(*(np.concatenate(c) for c in zip(*parts, strict=True)))


def _outside(place: _Place, operand: Operand) -> frozenset[tuple[Expr, int]]:
    """How an access moves with loops around the piece of the program."""
    own = {v for v, _, _ in place.loops}
    atoms = ((a, k) for a, k in operand.start.items() if a is not None)
    return frozenset((a, k) for a, k in atoms if not variables(a) <= own)


def _address(operand: Operand, env: Mapping[Var, np.ndarray]) -> np.ndarray:
    """The first byte of an operand in its buffer; what stands outside of the piece counts as 0."""
    total = np.array(operand.start.get(None, 0))
    for atom, k in operand.start.items():
        if atom is not None:
            zeros = {v: np.int64(0) for v in variables(atom)}
            total = total + k * evaluate_expr(atom, {**zeros, **env}, {})
    return total


def _out_of_order(a: _Accesses) -> tuple[int, int] | None:
    """Two accesses to one piece, one of them a write, that are issued too close, or the wrong way
    round: the one that comes first in the program, and the other."""
    order = np.lexsort((a.writes, a.rank, a.piece))  # an operation reads before it writes
    piece, at = a.piece[order], a.at[order]
    writes, landing = a.writes[order], a.landing[order]
    group = np.cumsum(np.append(0, piece[1:] != piece[:-1])) * LATE
    done = np.maximum.accumulate(group + np.where(writes, landing, 0)) - group
    done = np.append(0, done[:-1])
    issued = np.append(0, (np.maximum.accumulate(group + at) - group)[:-1])
    begins = np.append(True, group[1:] != group[:-1])
    early = ~begins & ((at < done) | (writes & (at < issued)))
    if not early.any():
        return None
    k = int(np.flatnonzero(early)[0])
    before = [j for j in range(k - 1, -1, -1) if piece[j] == piece[k]]
    first = next(
        (j for j in before if writes[j] and landing[j] > at[k]),
        next((j for j in before if at[j] > at[k]), before[0]),
    )
    return int(order[first]), int(order[k])
