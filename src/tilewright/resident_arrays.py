"""Arrays that stay in a chip's own memory, from the piece that makes them until the last that reads
them there: as registers are given to values in the order of a program (linear scan: Poletto and
Sarkar, 1999).

    conv 1 -> made0_local      conv 2: made0_local -> made1_local      spill: made1_local -> made1
                               add: made1, … -> made2

Whole operators take and leave their operands wherever they lie; what reads an array outside finds
a copy there, which is spilled behind the piece that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.backends.stream.addresses import bytes_of
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.expr import Buffer, Load, Var
from tilewright.ir.loop import For, Kernel, Stmt, Store
from tilewright.plan.map_values import map_values
from tilewright.plan.split_kernel import Split
from tilewright.plan.unit_form import fresh
from tilewright.plan.units import units
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.target.vary import with_memory


@dataclass(frozen=True)
class Resident:
    """An array in a chip's memory; what it is called outside; and the pieces, by their numbers,
    that can read it there, and that makes it."""

    buffer: Buffer
    name: str
    readers: tuple[int, ...]
    maker: int

    @property
    def bytes(self) -> int:
        return bytes_of(self.buffer)

    def after(self, number: int) -> tuple[int, ...]:
        return tuple(r for r in self.readers if r > number)


@dataclass(frozen=True)
class Variant:
    """A piece with `inside` in the chip's memory, of which others leave it so much, but for those
    `evicted`: what reads these later does so outside. `saved` are bytes of arrays that need not be
    moved, though smaller tiles may bring weights again."""

    piece: Kernel
    target: Target
    inside: tuple[Resident, ...]
    evicted: tuple[Resident, ...]
    saved: int
    plain: bool = False  # the piece as it is, with all of the memory


class Residents:
    """Which of the arrays that pass between pieces stay inside. `readable` says whether the chip
    does a piece, that has some parameter there."""

    def __init__(self, split: Split, target: Target, readable: Callable[[Kernel], bool]) -> None:
        self.split, self.target, self.readable = split, target, readable
        self.alive: dict[str, Resident] = {}  # by the name outside
        self.inside_alone: dict[str, Resident] = {}  # of which there is no copy outside
        self.taken = {b.name for p in split.pieces for b in p.params}
        self.joined = {name for join in split.joins for name in join.names}
        self.memory = next(_homes(target), None)
        self.room = 0 if self.memory is None else target.memory(self.memory).size or 0

    def variants(self, number: int) -> list[Variant]:
        """A piece with its parameters inside or outside: those first that save most bytes. The last
        are those that need most room."""
        piece = self.split.pieces[number]
        read = [self.alive[b.name] for b in piece.inputs if b.name in self.alive]
        read = [r for r in read if number in r.readers]
        made = self._resident(number)
        found: dict[tuple[Resident, ...], None] = {}
        for own in (read, []):
            for result in ([made] if made is not None else [], []):
                found.setdefault((*own, *result))
        every = [v for inside in found for v in self._with_evictions(number, inside)]
        return sorted(every, key=lambda v: -v.saved)  # a stable sort

    def plain(self, number: int) -> Variant:
        """A piece as it is, with all of the memory."""
        return Variant(self.split.pieces[number], self.target, (), (), 0, plain=True)

    def take(self, number: int, variant: Variant) -> list[Resident]:
        """Goes on with a variant; returns what has to be spilled for it."""
        own = {r.name for r in variant.inside}
        read = {b.name for b in variant.piece.inputs} - {r.buffer.name for r in variant.inside}
        spilled = [r for r in self.inside_alone.values() if r.name in read]
        for r in spilled:
            del self.inside_alone[r.name]
        for r in variant.evicted:
            del self.alive[r.name]
        self.alive = {name: r for name, r in self.alive.items() if r.after(number)}
        (result,) = self.split.pieces[number].outputs
        if result.name in own:
            made = next(r for r in variant.inside if r.name == result.name)
            self.alive[result.name] = self.inside_alone[result.name] = made
        return spilled

    def copied(self) -> Residents:
        """The same, to go on another way."""
        other = copy(self)
        other.alive, other.inside_alone = dict(self.alive), dict(self.inside_alone)
        other.taken = set(self.taken)
        return other

    # ---------------------------------------------------------- one piece

    def _resident(self, number: int) -> Resident | None:
        """What a piece makes, as it could stay inside; None if no other could read it there."""
        piece = self.split.pieces[number]
        (result,) = piece.outputs
        if self.memory is None or result.name in self.joined or bytes_of(result) >= self.room:
            return None
        name = fresh(f"{result.name}_local", self.taken)
        buffer = result.with_(name=name, memory=self.memory)
        readers = tuple(
            k
            for k, reader in enumerate(self.split.pieces)
            if result in reader.inputs and self.readable(_with(reader, result, buffer))
        )
        return Resident(buffer, result.name, readers, number) if readers else None

    def _with_evictions(self, number: int, inside: tuple[Resident, ...]) -> Iterator[Variant]:
        """A piece with these inside, and as few others evicted as possible, then more: those first
        that are read last."""
        others = [r for r in self.alive.values() if r not in inside and r.after(number)]
        others.sort(key=lambda r: -r.after(number)[0])
        saved = sum(self._saved(number, r) for r in inside)
        piece = self.split.pieces[number]
        for r in inside:
            held = next(b for b in piece.params if b.name == r.name)
            piece = _with(piece, held, r.buffer)
        for count in range(len(others) + 1):
            evicted, kept = tuple(others[:count]), others[count:]
            plain = not inside and not kept
            if plain or sum(r.bytes for r in (*inside, *kept)) < self.room:
                lost = sum(self._lost(number, r) for r in evicted)
                yield Variant(piece, self._left(kept), inside, evicted, saved - lost, plain)

    def _left(self, others: Sequence[Resident]) -> Target:
        """The chip with the memory that others leave."""
        if not others or self.memory is None:
            return self.target
        left = self.room - sum(r.bytes for r in others)
        return with_memory(self.target, self.memory, size=left)

    def _saved(self, number: int, r: Resident) -> int:
        """Bytes that need not be moved where an array is read, or made, inside."""
        if number in r.readers:
            return r.bytes
        return r.bytes * (len(r.readers) + (len(r.readers) == self._count(r)))

    def _lost(self, number: int, r: Resident) -> int:
        """Bytes to move where an array is evicted before a piece."""
        return r.bytes * (len(r.after(number)) + (r.name in self.inside_alone))

    def _count(self, r: Resident) -> int:
        return sum(b.name == r.name for p in self.split.pieces for b in p.inputs)


def build_spill(made: Buffer, name: str, memory: str, target: Target) -> ChipKernel:
    """What copies an array, as it lies in the chip's memory, to one outside. ScheduleError if no
    instruction does."""
    outside = made.with_(name=name, memory=memory)
    loops = [Var(f"s{d}") for d in range(len(made.shape))]
    body: Stmt = Store(outside, tuple(loops), Load(made, tuple(loops)))
    for var, n in zip(reversed(loops), reversed(made.shape), strict=True):
        body = For(var, n, (body,))
    s = Schedule(Kernel(f"spill_{name}", (made,), (outside,), (body,)))
    map_values(s, target, s.loop(loops[0].name))
    return stream_kernel(s, target)


def _homes(target: Target) -> Iterator[str]:
    """Memories of a chip in which whole operators find an operand, and leave their results."""
    for unit in units(target):
        memory = unit.result.buffer.memory
        read = {unit.left.buffer.memory, unit.right.buffer.memory}
        if unit.whole and memory in read and target.memory(memory).size is not None:
            yield memory


def _with(kernel: Kernel, old: Buffer, new: Buffer) -> Kernel:
    """A kernel with another parameter in the place of one."""
    params = {b: new if b == old else b for b in kernel.params}
    return kernel.with_(
        inputs=tuple(params[b] for b in kernel.inputs),
        outputs=tuple(params[b] for b in kernel.outputs),
        body=rewrite_accesses(kernel.body, old, new, lambda at: at),
    )
