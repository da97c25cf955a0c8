"""Instructions to try: fields at their limits and in between, operands anywhere in their memories,
lists of micro-operations that lead anywhere. All are legal, and small enough to be interpreted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.encode import listed_operands
from tilewright.backends.stream.rows import Rows, operand_extents, operand_steps
from tilewright.check.problem import extent_fields, operands_written
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Field
from tilewright.ir.samples import count_statements
from tilewright.target.encoding import Carries
from tilewright.target.iterations import list_extent
from tilewright.target.target import Target

UNBOUNDED = 1 << 20  # bytes that are used of a memory without a size
WORK = 6_000  # statements that an instruction may run
ENTRIES = 12  # of a list, in cases
DRAWS = 50  # of values that keep an instruction's limits
TRIES = 4  # ways to place a case, before it is made smaller


@dataclass(frozen=True, eq=False)
class Case:
    """One instruction: its position in the target, its fields, where its operands are (bytes), and
    where the entries of its list lead [count, operands with a list]."""

    kind: int
    fields: tuple[int, ...]
    addresses: tuple[int, ...]
    entries: np.ndarray | None = None

    def text(self, target: Target) -> str:
        """ "mvin(src=dram[0x0], dst=spad[0x40], rows=3)"."""
        instruction = target.instructions[self.kind]
        places = zip(instruction.operands, self.addresses, strict=True)
        values = zip(instruction.fields, self.fields, strict=True)
        parts = [f"{o.name}={o.memory}[0x{at:x}]" for o, at in places]
        parts += [f"{f.name}={v}" for f, v in values]
        return f"{instruction.name}({', '.join(parts)})"


@dataclass(frozen=True, eq=False)
class Spot:
    """Where an operand's elements are from its address on: steps and extents along its axes, the
    bytes that they span, and how often a list repeats that, one behind the other."""

    operand: Buffer
    steps: tuple[int, ...]
    extents: tuple[int, ...]
    span: int
    repeats: int


def rows_of(target: Target, cases: Sequence[Case]) -> Rows:
    """The cases as rows of a stream."""
    rows = Rows.empty(target, np.array([c.kind for c in cases], np.int64))
    for row, case in enumerate(cases):
        rows.fields[row, : len(case.fields)] = case.fields
        rows.addresses[row, : len(case.addresses)] = case.addresses
        if case.entries is not None:
            rows.entries[row] = case.entries
    return rows


def memory_sizes(target: Target) -> dict[str, int]:
    """Bytes of every memory that are used here. One without a size is used as far as every
    instruction can address it, and only half of that: lists of micro-operations come behind."""
    reach = {m.name: 2 * UNBOUNDED for m in target.memories}
    for i in target.instructions:
        encoding = target.encoding(i)
        if encoding is None:
            continue
        for o in i.operands:
            part = encoding.find(Carries.ADDRESS, o.name)
            if part is not None and o.memory in reach:
                reach[o.memory] = min(reach[o.memory], part.high)
    return {m.name: m.size or reach[m.name] // 2 for m in target.memories}


def cases(target: Target, kind: int, count: int, rng: np.random.Generator) -> list[Case]:
    """Up to `count` cases of an instruction: everything at its least, each field at its greatest,
    and any values. A case that would be too large for its memories or the interpreter is made
    smaller; none where not even the smallest fits."""
    maker = CaseMaker(target, kind, rng)
    found = [maker.fitted(values) for values in maker.starts(count)]
    return [c for c in found if c is not None]


class CaseMaker:
    """Makes cases of one instruction."""

    def __init__(self, target: Target, kind: int, rng: np.random.Generator) -> None:
        self.target, self.kind, self.rng = target, kind, rng
        self.instruction = target.instructions[kind]
        self.sizes = memory_sizes(target)
        self.carriers = {name for _, _, name in self.instruction.strides}
        self.written = operands_written(self.instruction)

    def starts(self, count: int) -> Iterator[dict[str, int]]:
        """Values of the fields to begin with."""
        fields = self.instruction.fields
        low = {f.name: least(f) for f in fields}
        ends = [low | {f.name: greatest(f)} for f in fields if f.name not in self.carriers]
        chosen = self.rng.permutation(len(ends))[: count // 2]
        yield low
        yield from (ends[k] for k in chosen)
        for _ in range(count - len(chosen) - 1):
            drawn = ({f.name: self._any(f) for f in fields} for _ in range(DRAWS))
            yield next((v for v in drawn if self._keeps_limits(v)), low)

    def _any(self, f: Field) -> int:
        """A value of a field, small ones more often than great ones."""
        steps = (greatest(f) - least(f)) // f.multiple
        most = steps >> int(self.rng.integers(0, max(1, steps.bit_length())))
        return least(f) + int(self.rng.integers(0, most, endpoint=True)) * f.multiple

    def fitted(self, values: dict[str, int]) -> Case | None:
        """A case with these values, or smaller ones."""
        while True:
            for _ in range(TRIES if self._is_small(values) else 0):
                case = self._placed(dict(values))
                if case is not None:
                    return case
            smaller = self._halved(values)
            if smaller == values:
                return None
            values = smaller

    def _halved(self, values: dict[str, int]) -> dict[str, int]:
        return {
            f.name: least(f) + (values[f.name] - least(f)) // 2 // f.multiple * f.multiple
            for f in self.instruction.fields
        }

    def _is_small(self, values: dict[str, int]) -> bool:
        has_few = self.instruction.micro_ops is None or self._entries(values) <= ENTRIES
        is_small = has_few and count_statements(self.instruction.body, values) <= WORK
        return is_small and self._keeps_limits(values)

    def _keeps_limits(self, values: Mapping[str, int]) -> bool:
        return all(evaluate_dim(limit, values) for limit in self.instruction.limits)

    # ---------------------------------------------------------- places

    def small(self) -> dict[str, int]:
        """Values of the fields with which the instruction does little, but something."""
        extents = extent_fields(self.instruction)
        return {
            f.name: least(f) + f.multiple * (f in extents and least(f) < 1)
            for f in self.instruction.fields
        }

    def _placed(self, values: dict[str, int]) -> Case | None:
        """Strides and addresses for a case; None if it does not fit."""
        spots = self.spots(values)
        if spots is None:
            return None
        addresses = self.addresses(spots, {})
        return None if addresses is None else self.case(values, spots, addresses)

    def case(
        self, values: Mapping[str, int], spots: Sequence[Spot], addresses: tuple[int, ...]
    ) -> Case:
        """The case with operands at these places; lists lead through theirs in any order."""
        instruction = self.instruction
        fields = tuple(values[f.name] for f in instruction.fields)
        listed = listed_operands(instruction)
        if not listed:
            return Case(self.kind, fields, addresses)
        columns = []
        for spot, at in zip(spots, addresses, strict=True):
            if spot.operand.name in listed:
                order = self.rng.permutation(spot.repeats)
                columns.append(at + order * spot.span)
        return Case(self.kind, fields, addresses, np.stack(columns, axis=1))

    def spots(self, values: dict[str, int]) -> list[Spot] | None:
        """How operands lie; chooses the fields that carry strides for that, and puts them into
        `values`. None if they do not fit."""
        rows = Rows.empty(self.target, np.array([self.kind]))
        fields = [values[f.name] if f.name not in self.carriers else least(f)
                  for f in self.instruction.fields]  # fmt: skip
        rows.fields[0, : len(fields)] = fields
        (extents,) = operand_extents(self.target, rows)
        chosen: set[str] = set()
        spots = []
        for o, shape in zip(self.instruction.operands, extents, strict=True):
            spot = self._spread(o, shape, values, chosen)
            if spot is None:
                return None
            spots.append(spot)
        return spots

    def _spread(
        self, o: Buffer, extents: tuple[int, ...], values: dict[str, int], chosen: set[str]
    ) -> Spot | None:
        """Strides for an operand, each past what lies inside; more than that as it comes. What is
        only read may also stay where it is along an axis, or overlap itself."""
        size = self.sizes[o.memory]
        steps = list(operand_steps(self.instruction, o, values))
        carriers = {d: self.instruction.carrier(o, d) for d in range(len(o.shape))}
        inner = [d for d, f in carriers.items() if f is None]
        carried = {d: f for d, f in carriers.items() if f is not None}
        span = o.dtype.bytes + sum((extents[d] - 1) * steps[d] for d in inner)
        for d in self.rng.permutation(list(carried)):
            f = carried[d]
            if f.name not in chosen:
                wanted = -(-span // o.dtype.bytes)
                room = (size - span) // (max(1, extents[d] - 1) * o.dtype.bytes)
                values[f.name] = self._stride(f, wanted, room, o not in self.written)
                chosen.add(f.name)
            steps[d] = values[f.name] * o.dtype.bytes
            span += (extents[d] - 1) * abs(steps[d])
        repeats = self._entries(values) if self.instruction.listed(o) is not None else 1
        unit = self.unit(o)
        spot = Spot(o, tuple(steps), extents, -(-span // unit) * unit, repeats)
        inside = spot.span * repeats <= size and all(s >= 0 for s in steps)
        return spot if inside and (o not in self.written or _apart(spot)) else None

    def _stride(self, f: Field, wanted: int, room: int, free: bool) -> int:
        """A value of a field that carries a stride of `wanted` elements at least, and `room` at
        most if that can be."""
        low = -(-max(f.low, wanted) // f.multiple) * f.multiple
        high = max(low, min(f.high, room) // f.multiple * f.multiple)
        kinds = [low, low, low + f.multiple, int(self.rng.integers(low, high, endpoint=True)), high]
        if free:
            kinds += [least(f), least(f) + f.multiple]
        value = int(self.rng.choice(kinds)) // f.multiple * f.multiple
        return min(max(value, least(f)), greatest(f))

    def _entries(self, values: dict[str, int]) -> int:
        extent = list_extent(self.instruction)
        return 1 if extent is None else evaluate_dim(extent, values)

    def unit(self, o: Buffer) -> int:
        """What an operand's address is a multiple of."""
        unit = self.target.memory(o.memory).unit
        for encoding in (
            self.target.encoding(self.instruction), self.target.entry(self.instruction)
        ):  # fmt: skip
            part = encoding.find(Carries.ADDRESS, o.name) if encoding is not None else None
            unit = math.lcm(unit, part.unit if part is not None else 1)
        return math.lcm(unit, o.dtype.bytes)

    def addresses(
        self, spots: Sequence[Spot], used: dict[str, int], first: int | None = None
    ) -> tuple[int, ...] | None:
        """A place for every operand, in any order, behind the bytes that are `used` of memories;
        operand `first` at the beginning. None if there is no room."""
        addresses = [0] * len(spots)
        loose = bool(self.rng.integers(0, 2))
        for c in self.rng.permutation(len(spots)):
            if c == first:
                continue
            spot, memory = spots[c], spots[c].operand.memory
            unit, size = self.unit(spot.operand), self.sizes[memory]
            at = -(-used.get(memory, 0) // unit) * unit
            room = min(size - spot.span * spot.repeats, self._highest(spot.operand)) - at
            if room < 0:
                return None
            if loose:
                at += int(self.rng.integers(0, room // unit // len(spots), endpoint=True)) * unit
            addresses[c] = at
            used[memory] = at + spot.span * spot.repeats
        return tuple(addresses)

    def _highest(self, o: Buffer) -> int:
        """The greatest address that an operand can be given; 0 if its encoding has no bits."""
        encoding = self.target.encoding(self.instruction)
        if encoding is None or self.instruction.listed(o) is not None:
            return self.sizes[o.memory]
        part = encoding.find(Carries.ADDRESS, o.name)
        return 0 if part is None else part.high


def _apart(spot: Spot) -> bool:
    """Whether all elements of an operand are different bytes of memory."""
    at = np.zeros((), np.int64)
    for extent, step in zip(spot.extents, spot.steps, strict=True):
        at = at[..., None] + np.arange(extent) * step
    return len(np.unique(at)) == at.size


def least(f: Field) -> int:
    """The least value that a field admits."""
    return -(-f.low // f.multiple) * f.multiple


def greatest(f: Field) -> int:
    return f.high // f.multiple * f.multiple
