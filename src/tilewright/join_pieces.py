"""Kernels that chips do one after the other, as one stream: what passes between them stays in the
memory outside, where each finds it as it wants it.

Whether it does is not argued but compared, element by element: where a piece's result puts each
element of an array, and where the next piece looks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.base.errors import ScheduleError
from tilewright.chip_kernel import ChipKernel, PieceTime, proven_stream
from tilewright.ir.expr import Buffer, Expr, Var, const
from tilewright.ir.loop import Alloc, Block, Call, For, Kernel, walk_statements
from tilewright.ir.tensor_type import Layout
from tilewright.plan.borders import Border
from tilewright.plan.bound import ContractionBound
from tilewright.plan.same_kernels import with_plain_names
from tilewright.plan.split_kernel import Split
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, sizes_of
from tilewright.plan.units import has_contraction, units
from tilewright.schedule.primitives.loops import copy_block
from tilewright.sim.timeline import Timeline


@dataclass(frozen=True)
class BuiltPiece:
    """A piece as a chip does it, and what its parameters are called in the whole kernel."""

    chip: ChipKernel
    names: Mapping[str, str]


def build_pieces(
    split: Split, build: Callable[[Kernel, Collection[str]], ChipKernel]
) -> list[BuiltPiece]:
    """Every piece as a chip does it, given the names of the parameters that are to be as they are;
    of those that differ in names alone, one is built."""
    made: dict[tuple[Kernel, frozenset[str]], ChipKernel] = {}
    found = []
    for piece in split.pieces:
        plain, names = with_plain_names(piece)
        kept = frozenset(p for p, name in names.items() if name in split.passed)
        if (plain, kept) not in made:
            made[plain, kept] = build(plain, kept)
        found.append(BuiltPiece(made[plain, kept], names))
    return found


def join_pieces(
    kernel: Kernel, split: Split, built: Sequence[BuiltPiece], parameters: Sequence[str]
) -> ChipKernel:
    """The pieces of a kernel as one stream. ScheduleError where one does not find what another
    made as it wants it."""
    return _Joined(kernel, split, built).kernel_of(parameters)


class _Joined:
    def __init__(self, kernel: Kernel, split: Split, built: Sequence[BuiltPiece]) -> None:
        self.source, self.split, self.built = kernel, split, built
        self.target = built[0].chip.target
        self.inputs: list[Buffer] = []  # of the stream
        self.form_inputs: list[Buffer] = []  # the same as the forms have them
        self.filled: list[Buffer] = []
        self.arrays: dict[str, MadeArray] = {}
        self.layouts: dict[str, Layout] = {}
        self.borders: dict[str, Border] = {}
        self.passed: dict[str, Buffer] = {}  # what passes between pieces, as it lies in memory
        self.places: dict[str, np.ndarray] = {}  # of its elements: numbers in memory
        self.constants: dict[Buffer, np.ndarray] = {}

    def kernel_of(self, parameters: Sequence[str]) -> ChipKernel:
        """The kernel that is called with arrays in this order."""
        body: list[Block] = []
        blocks: list[Block] = []  # of the pieces
        taken = {b.name for p in self.split.pieces for b in p.params}
        for k, piece in enumerate(self.built):
            block = self._with_inputs(piece)
            (result,) = piece.chip.kernel.outputs
            if k < len(self.built) - 1:
                new = self._passing(piece, result)
                block = _squeezed(block, self._named(piece, result), new)
                body.append((Alloc(new),))
            taken |= {b.name for b in self.inputs}
            block = copy_block(block, taken)
            blocks.append(block)
            body.append((For(Var(fresh("piece", taken)), 1, block),))
        last, (output,) = self.built[-1].chip, self.source.outputs
        (result,) = last.kernel.outputs
        scheduled = self.source.with_(
            inputs=tuple(self.inputs),
            outputs=(result.with_(name=output.name),),
            scratch=(),
            body=tuple(stmt for block in body for stmt in block),
        )
        stream, waits, timeline = proven_stream(scheduled, self.target, self.constants)
        (of_form,), (filled,) = last.form.kernel.outputs, last.filled.outputs
        made = last.form.results.get(result.name)
        form = UnitForm(
            self._like(self.form_inputs, of_form.with_(name=output.name)),
            self.arrays,
            {} if made is None else {output.name: made},
        )
        layouts = {output.name: last.layouts[result.name]} if result.name in last.layouts else {}
        return ChipKernel(
            self.source, form, self._like(self.filled, filled.with_(name=output.name)), scheduled,
            self.target, stream, waits, timeline, tuple(parameters), self.layouts | layouts,
            self.borders, sum(p.chip.predicted or 0.0 for p in self.built), _bound(self.built),
            pieces=tuple(_times(timeline, blocks, self.built)),
        )  # fmt: skip

    def _like(self, inputs: Sequence[Buffer], output: Buffer) -> Kernel:
        return self.source.with_(inputs=tuple(inputs), outputs=(output,), body=())

    # ---------------------------------------------------------- inputs

    def _with_inputs(self, piece: BuiltPiece) -> Block:
        """A piece's body, with the kernel's own inputs by names of their own, and with what pieces
        before it made."""
        (result,) = piece.chip.kernel.outputs
        block = rewrite_accesses(
            piece.chip.kernel.body, result, self._named(piece, result), lambda at: at
        )
        for held in piece.chip.kernel.inputs:
            name = piece.names.get(held.name)
            if name in self.passed:
                self._check(piece, held, name)
                block = _squeezed(block, held, self.passed[name])
            else:
                block = rewrite_accesses(block, held, self._input(piece, held), lambda at: at)
        return block

    def _named(self, piece: BuiltPiece, buffer: Buffer) -> Buffer:
        return buffer.with_(name=piece.names[buffer.name])

    def _input(self, piece: BuiltPiece, held: Buffer) -> Buffer:
        """An input of a piece as one of the stream's."""
        chip = piece.chip
        used = {b.name for b in self.inputs} | {b.name for b in self.source.outputs}
        name = fresh(piece.names.get(held.name, held.name), used | set(self.split.passed))
        self.inputs.append(held.with_(name=name))
        (form,) = (b for b in chip.form.kernel.inputs if b.name == held.name)
        self.form_inputs.append(form.with_(name=name))
        (filled,) = (b for b in chip.filled.inputs if b.name == held.name)
        self.filled.append(filled.with_(name=name))
        made = chip.form.made.get(held.name, MadeArray((held.name,)))
        self.arrays[name] = made.renamed(piece.names)
        if held.name in chip.layouts:
            self.layouts[name] = chip.layouts[held.name]
        if held.name in chip.borders:
            self.borders[name] = chip.borders[held.name]
        return self.inputs[-1]

    # ---------------------------------------------------------- what passes

    def _passing(self, piece: BuiltPiece, result: Buffer) -> Buffer:
        """What a piece makes for others, as it lies in the memory outside."""
        name = piece.names[result.name]
        shape = tuple(n for n in sizes_of(result) if n != 1) or (1,)
        new = self.passed[name] = result.with_(name=name, shape=shape)
        memory = np.arange(1, math.prod(shape) + 1).reshape(sizes_of(result))
        self.places[name] = _traced(memory, result, lambda a: piece.chip.read(result, a)) - 1
        border = self.split.borders.get(name)
        if border is not None:
            self.constants[new] = np.full(shape, border.fill, new.dtype.numpy)
        return new

    def _check(self, piece: BuiltPiece, held: Buffer, name: str) -> None:
        """Refuses a piece that looks elsewhere for what another made."""
        new, places = self.passed[name], self.places[name]
        numbers = np.arange(1, places.size + 1).reshape(places.shape)
        found = _traced(numbers, held, lambda a: piece.chip.arranged(held, {held.name: a})).reshape(
            -1
        )
        sizes = tuple(n for n in sizes_of(held) if n != 1) or (1,)
        if sizes != new.shape or not np.array_equal(found[places.reshape(-1)], numbers.reshape(-1)):
            raise ScheduleError(
                f"{name} is made as {new}, and is taken as {held}, in another order",
                program=self.source,
                hint="make two kernels of it: the host can rearrange what passes between them",
            )


def _traced(
    numbers: np.ndarray, held: Buffer, move: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Numbers from 1 on as they are after what only moves elements of a buffer's type, and puts 0
    beside them."""
    step = min(100, int(held.dtype.max))
    found: np.ndarray = np.zeros((), np.int64)
    for digit in range(math.ceil(math.log(numbers.size + 1, step)) or 1):
        part = move((numbers // step**digit % step).astype(held.dtype.numpy))
        found = found + part.astype(np.int64) * step**digit
    return found


def _squeezed(block: Block, old: Buffer, new: Buffer) -> Block:
    """A block that uses a buffer without its axes of one element."""
    kept = [d for d, n in enumerate(old.shape) if n != 1]

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(at[d] for d in kept) or (const(0),)

    return rewrite_accesses(block, old, new, place)


def _times(
    timeline: Timeline, blocks: Sequence[Block], built: Sequence[BuiltPiece]
) -> Iterator[PieceTime]:
    """Yields the time of each piece: that of its last instruction, by when those before it were
    done. What ends the stream is the last piece's."""
    number = {
        id(s): k for k, block in enumerate(blocks) for s in walk_statements(block)
        if isinstance(s, Call)
    }  # fmt: skip
    ends = [0] * len(blocks)
    for k, site in enumerate(timeline.stream.sites):
        piece = number.get(id(site.call))
        if piece is not None:
            end = int(timeline.end[timeline.stream.rows(k)].max(initial=0))
            ends[piece] = max(ends[piece], end)
    ends[-1] = timeline.cycles
    done = 0
    for part, end in zip(built, ends, strict=True):
        bound = part.chip.bound
        yield PieceTime(max(end - done, 0), None if bound is None else bound.cycles)
        done = max(done, end)


def _bound(built: Sequence[BuiltPiece]) -> ContractionBound | None:
    """Cycles that the contractions of pieces take at least, in the one queue that does them all;
    where several queues do, pieces may go along with each other, and the longest counts. What
    passes between pieces need not be brought from outside."""
    chips = [p.chip for p in built if has_contraction(p.chip.source)]
    bounds = [c.bound for c in (built[0].chip, *chips, built[-1].chip)]
    found = [b for b in bounds if isinstance(b, ContractionBound)]
    if len(found) < len(bounds):
        return None
    first, *contractions, last = found
    queues = {u.instruction.queue for u in units(built[0].chip.target)}
    works = [b.work for b in contractions] or [0.0]
    work = sum(works) if len(queues) == 1 else max(works)
    return ContractionBound(work, 0.0, first.fill, last.drain, 0.0, first.control)
