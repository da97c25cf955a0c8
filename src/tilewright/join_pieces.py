"""Kernels that chips do one after the other, as one stream: what passes between them stays in the
memory outside, where each finds it as it wants it (passed_arrays.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.backends.bundles.program import BundleProgram, make_program
from tilewright.backends.bundles.resource_bound import program_bound
from tilewright.backends.stream.addresses import bytes_of
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits
from tilewright.build_pieces import BuiltPiece
from tilewright.chip_kernel import ChipKernel, PieceTime, proven_stream
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    Kernel,
    buffers_written,
    walk_statements,
)
from tilewright.ir.tensor_type import Layout
from tilewright.passed_arrays import PassedArrays
from tilewright.plan.borders import Border
from tilewright.plan.bound import ContractionBound
from tilewright.plan.split_kernel import Split
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, sizes_of
from tilewright.plan.units import units
from tilewright.schedule.primitives.loops import copy_block
from tilewright.sim.timeline import Timeline
from tilewright.target.target import Target


def join_pieces(
    kernel: Kernel,
    split: Split,
    target: Target,
    built: Sequence[BuiltPiece],
    parameters: Sequence[str],
) -> ChipKernel:
    """The pieces of a kernel as one stream."""
    return _Joined(kernel, split, target, built).kernel_of(parameters)


class _Joined:
    def __init__(
        self, kernel: Kernel, split: Split, target: Target, built: Sequence[BuiltPiece]
    ) -> None:
        self.source, self.split, self.target, self.built = kernel, split, target, built
        self.taken = {name for piece in built for name in piece.names.values()}
        self.inputs: list[Buffer] = []  # of the stream
        self.form_inputs: list[Buffer] = []  # the same as the forms have them
        self.filled: list[Buffer] = []
        self.arrays: dict[str, MadeArray] = {}
        self.layouts: dict[str, Layout] = {}
        self.borders: dict[str, Border] = {}
        self.passed = PassedArrays(split.borders, _room(built), split.joins)

    def kernel_of(self, parameters: Sequence[str]) -> ChipKernel:
        """The kernel that is called with arrays in this order."""
        body: list[Block] = []
        results: list[Buffer] = []  # what each piece's result lies in
        taken = set(self.taken)
        joined = self.split.joined
        passing = self.built if joined is not None else self.built[:-1]
        for piece in passing:
            self._pass(piece)
        for piece in self.built:
            block = self._with_inputs(piece)
            (result,) = piece.chip.kernel.outputs
            new = result
            if piece in passing:
                name = piece.names[result.name]
                new = self.passed.row(name)
                block = self._in_a_row(block, self._named(piece, result), name)
                if new not in results and (joined is None or new.name != joined.result.name):
                    body.append((Alloc(new),))
            results.append(new)
            taken |= {b.name for b in self.inputs}
            block = copy_block(block, taken)
            # What is allocated in different loops may lie in one place; a core would branch.
            together = (For(Var(fresh("piece", taken)), 1, block),)
            body.append(block if self.target.bundles is not None else together)
        last, (output,) = self.built[-1].chip, self.source.outputs
        (result,) = last.kernel.outputs
        held = result.with_(name=output.name) if joined is None else self.passed.row(output.name)
        scheduled = self.source.with_(
            inputs=tuple(self.inputs),
            outputs=(held,),
            scratch=(),
            body=tuple(stmt for block in body for stmt in block),
        )
        results[-1] = held
        program, (stream, waits, timeline) = self._proven(scheduled)
        (of_form,), (filled,) = last.form.kernel.outputs, last.filled.outputs
        made, layout = last.form.results.get(result.name), last.layouts.get(result.name)
        if joined is not None:
            kind = self.passed.type_of(joined)
            of_form, filled = joined.result, joined.result.with_(shape=kind.shape)
            made, layout = None, kind.layout
        form = UnitForm(
            self._like(self.form_inputs, of_form.with_(name=output.name)),
            self.arrays,
            {} if made is None else {output.name: made},
        )
        layouts = {} if layout is None else {output.name: layout}
        return ChipKernel(
            self.source, form, self._like(self.filled, filled.with_(name=output.name)), scheduled,
            self.target, stream, waits, timeline, tuple(parameters), self.layouts | layouts,
            self.borders, sum(p.chip.predicted or 0.0 for p in self.built),
            self._bound(scheduled) if program is None else program_bound(program), program,
            pieces=tuple(_times(timeline, results, self.built)),
        )  # fmt: skip

    def _bound(self, scheduled: Kernel) -> ContractionBound | None:
        """Cycles that the contractions of pieces take at least in the one queue that does them all,
        with what other pieces compute there, and the first piece brings by it; where several queues
        do them, pieces may go along with each other, and the longest counts. Or those in which
        memories move what the stream is given and gives: what passes between pieces need not be."""
        chips = [p.chip for p in self.built if not p.spills]
        found = [c.bound for c in chips if isinstance(c.bound, ContractionBound)]
        if len(found) < len(chips):
            return None
        first, last = found[0], found[-1]
        queues = {u.instruction.queue for u in units(chips[0].target)}
        works = [b.work for b in found if not b.queues]  # those that contract
        if len(queues) > 1:
            work = max(works, default=0.0)
        else:
            beside = (b.queues.get(q, (0.0, 0.0))[b is first] for b in found for q in queues)
            work = sum(works) + sum(beside)
        moves = _moves(scheduled, self.target)
        fill = min(b.fill for b in found)  # kernels may go along with each other
        return ContractionBound(work, moves, fill, last.drain, 0.0, first.control)

    def _proven(
        self, scheduled: Kernel
    ) -> tuple[BundleProgram | None, tuple[Stream, Waits, Timeline]]:
        """The stream of all pieces; on a statically scheduled chip, their program as well."""
        constants = self.passed.constants
        if self.target.bundles is None:
            return None, proven_stream(scheduled, self.target, constants, merges=True)
        program = make_program(scheduled, self.target, constants)
        return program, (program.stream, program.tokens, program.timeline)

    def _pass(self, piece: BuiltPiece) -> None:
        """Finds where what a piece makes for others lies."""
        (result,) = piece.chip.kernel.outputs
        name = piece.names[result.name]
        if not piece.spills:
            self.passed.add(piece.chip, name)
        else:
            (inside,) = piece.chip.kernel.inputs
            self.passed.copy(piece.names[inside.name], name, result.memory)

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
            if name in self.passed.buffers:
                block = self._in_a_row(block, held, name)
            else:
                block = rewrite_accesses(block, held, self._input(piece, held), lambda at: at)
        return block

    def _in_a_row(self, block: Block, old: Buffer, name: str) -> Block:
        """A block that uses the row in which an array that passes lies, instead of a buffer of its
        elements."""

        def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return (self.passed.place(name, at, old.shape),)

        return rewrite_accesses(block, old, self.passed.row(name), place)

    def _named(self, piece: BuiltPiece, buffer: Buffer) -> Buffer:
        return buffer.with_(name=piece.names[buffer.name])

    def _input(self, piece: BuiltPiece, held: Buffer) -> Buffer:
        """An input of a piece as one of the stream's."""
        chip = piece.chip
        used = {b.name for b in self.inputs} | {b.name for b in self.source.outputs}
        passed = {*self.split.passed, *self.passed.buffers}
        name = fresh(piece.names.get(held.name, held.name), used | passed)
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


def _moves(scheduled: Kernel, target: Target) -> float:
    """Cycles in which the busiest memory moves a kernel's arguments once."""
    moved: dict[str, int] = {}
    for b in scheduled.params:
        moved[b.memory] = moved.get(b.memory, 0) + bytes_of(b)
    rates = {name: target.memory(name).bandwidth for name in moved}
    return max((n / rate for m, n in moved.items() if (rate := rates[m]) is not None), default=0.0)


def _room(built: Sequence[BuiltPiece]) -> dict[str, int]:
    """Elements that each array has for those that read it."""
    room: dict[str, int] = {}
    for piece in built:
        for held in piece.chip.kernel.inputs:
            name = piece.names.get(held.name, "")
            room[name] = max(room.get(name, 0), math.prod(sizes_of(held)))
    return room


def _times(
    timeline: Timeline, results: Sequence[Buffer], built: Sequence[BuiltPiece]
) -> Iterator[PieceTime]:
    """Yields the time of each piece: when the last of what it makes is there, what is spilled
    behind it left out, by when those before it were done. What ends the stream is the last's."""
    makers: dict[Buffer, list[int]] = {}  # of the calls that write it, in order
    for buffer, piece in zip(results, built, strict=True):
        if not piece.spills:
            (result,) = piece.chip.kernel.outputs
            count = sum(1 for _ in _writes(piece.chip.kernel, result))
            makers.setdefault(buffer, []).extend([piece.number] * count)
    parts = [p.chip.bound for p in built if not p.spills]
    ends = [0] * len(parts)
    seen: dict[Buffer, int] = {}
    for k, site in enumerate(timeline.stream.sites):
        written = buffers_written(site.instruction.body)
        operands = zip(site.instruction.operands, site.call.regions, strict=True)
        for buffer in (r.buffer for b, r in operands if b in written and r.buffer in makers):
            number = makers[buffer][min(seen.get(buffer, 0), len(makers[buffer]) - 1)]
            seen[buffer] = seen.get(buffer, 0) + 1
            end = int(timeline.end[timeline.stream.rows(k)].max(initial=0))
            ends[number] = max(ends[number], end)
    ends[-1] = timeline.cycles
    done = 0
    for bound, end in zip(parts, ends, strict=True):
        yield PieceTime(max(end - done, 0), None if bound is None else bound.cycles)
        done = max(done, end)


def _writes(kernel: Kernel, result: Buffer) -> Iterator[Call]:
    """Yields the calls that write a buffer, once for each operand that does."""
    for call in (s for s in walk_statements(kernel.body) if isinstance(s, Call)):
        written = buffers_written(call.instruction.body)
        operands = zip(call.instruction.operands, call.regions, strict=True)
        yield from (call for b, r in operands if b in written and r.buffer == result)
