"""Kernels that chips do one after the other, as one stream: what passes between them stays in the
memory outside, where each finds it as it wants it.

Whether it does is not argued but compared, element by element: where a piece's result puts each
element of an array, and where the next piece looks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.base.errors import ScheduleError
from tilewright.chip_kernel import ChipKernel, proven_stream
from tilewright.ir.expr import Buffer, Expr, Var, const
from tilewright.ir.loop import Alloc, Block, For, Kernel
from tilewright.ir.tensor_type import Layout
from tilewright.plan.borders import Border
from tilewright.plan.bound import ContractionBound
from tilewright.plan.split_kernel import Split
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh
from tilewright.schedule.primitives.loops import copy_block


def join_pieces(
    kernel: Kernel, split: Split, built: Sequence[ChipKernel], parameters: Sequence[str]
) -> ChipKernel:
    """The pieces of a kernel as one stream. ScheduleError where one does not find what another
    made as it wants it."""
    return _Joined(kernel, split, built).kernel_of(parameters)


class _Joined:
    def __init__(self, kernel: Kernel, split: Split, built: Sequence[ChipKernel]) -> None:
        self.source, self.split, self.built = kernel, split, built
        self.target = built[0].target
        self.names = {b.name for p in split.pieces for b in p.params}
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
        body: list[Block] = []
        taken: set[str] = set()
        for piece in self.built:
            block = self._with_inputs(piece)
            (result,) = piece.kernel.outputs
            if piece is not self.built[-1]:
                new = self._passing(piece, result)
                block = _squeezed(block, result, new)
                body.append((Alloc(new),))
            block = copy_block(block, taken)
            body.append((For(Var(fresh("piece", taken)), 1, block),))
        last = self.built[-1]
        scheduled = self.source.with_(
            inputs=tuple(self.inputs),
            outputs=last.kernel.outputs,
            scratch=(),
            body=tuple(stmt for block in body for stmt in block),
        )
        made = proven_stream(scheduled, self.target, self.constants)
        form = UnitForm(
            self.source.with_(
                inputs=tuple(self.form_inputs), outputs=last.form.kernel.outputs, body=()
            ),
            self.arrays,
            last.form.results,
        )
        results = last.kernel.outputs
        filled = self.source.with_(inputs=tuple(self.filled), outputs=last.filled.outputs, body=())
        layouts = {b.name: last.layouts[b.name] for b in results if b.name in last.layouts}
        return ChipKernel(
            self.source, form, filled, scheduled, self.target, *made, tuple(parameters),
            self.layouts | layouts, self.borders, sum(p.predicted or 0.0 for p in self.built),
            _bound(self.built),
        )  # fmt: skip

    # ---------------------------------------------------------- inputs

    def _with_inputs(self, piece: ChipKernel) -> Block:
        """A piece's body, with the kernel's own inputs by names of their own, and with what pieces
        before it made."""
        block = piece.kernel.body
        for held in piece.kernel.inputs:
            if held.name in self.passed:
                self._check(piece, held)
                block = _squeezed(block, held, self.passed[held.name])
            else:
                new = self._input(piece, held)
                block = rewrite_accesses(block, held, new, lambda at: at) if new != held else block
        return block

    def _input(self, piece: ChipKernel, held: Buffer) -> Buffer:
        """An input of a piece as one of the stream's."""
        used = {b.name for b in self.inputs} | {b.name for b in self.source.outputs}
        name = fresh(held.name, used) if held.name in used else held.name
        new = held.with_(name=name)
        self.inputs.append(new)
        (form,) = (b for b in piece.form.kernel.inputs if b.name == held.name)
        self.form_inputs.append(form.with_(name=name))
        (filled,) = (b for b in piece.filled.inputs if b.name == held.name)
        self.filled.append(filled.with_(name=name))
        self.arrays[name] = piece.form.made.get(held.name, MadeArray((held.name,)))
        if held.name in piece.layouts:
            self.layouts[name] = piece.layouts[held.name]
        if held.name in piece.borders:
            self.borders[name] = piece.borders[held.name]
        return new

    # ---------------------------------------------------------- what passes

    def _passing(self, piece: ChipKernel, result: Buffer) -> Buffer:
        """What a piece makes for others, as it lies in the memory outside."""
        shape = tuple(n for n in _sizes(result) if n != 1) or (1,)
        new = self.passed[result.name] = result.with_(shape=shape)
        memory = np.arange(1, math.prod(shape) + 1).reshape(_sizes(result))
        self.places[result.name] = _traced(memory, result, lambda a: piece.read(result, a)) - 1
        border = self.split.borders.get(result.name)
        if border is not None:
            self.constants[new] = np.full(shape, border.fill, new.dtype.numpy)
        return new

    def _check(self, piece: ChipKernel, held: Buffer) -> None:
        """Refuses a piece that looks elsewhere for what another made."""
        new, places = self.passed[held.name], self.places[held.name]
        numbers = np.arange(1, places.size + 1).reshape(places.shape)
        found = _traced(numbers, held, lambda a: piece.arranged(held, {held.name: a})).reshape(-1)
        sizes = tuple(n for n in _sizes(held) if n != 1) or (1,)
        if sizes != new.shape or not np.array_equal(found[places.reshape(-1)], numbers.reshape(-1)):
            raise ScheduleError(
                f"{held.name} is made as {new}, and {piece.source.name} takes it as {held}, in"
                " another order",
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


def _sizes(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(n) for n in buffer.shape)


def _bound(built: Sequence[ChipKernel]) -> ContractionBound | None:
    """Cycles that pieces take at least: each on its own, but for what passes between them, which
    need not be brought from outside."""
    found = [p.bound for p in built if isinstance(p.bound, ContractionBound)]
    if len(found) < len(built):
        return None
    first, last = found[0], found[-1]
    work = sum(b.work for b in found)
    return ContractionBound(work, 0.0, first.fill, last.drain, 0.0, first.control)
