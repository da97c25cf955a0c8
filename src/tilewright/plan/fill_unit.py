"""Kernels whose loops do not fill a unit: the same kernel with longer loops and larger buffers.

    A: i8[100, 100], B: i8[100, 100]          A: i8[100, 112], B: i8[112, 112]
    for i in 100: for j in 100:          ->   for i in 100: for j in 112:
        for k in 100:                             for k in 112:
            C[i, j] += A[i, k] * B[k, j]              C[i, j] += A[i, k] * B[k, j]

What is added of an input holds 0, and what is added of an output is dropped: an added iteration of
a reduction adds a product with 0; of another loop, it computes what nobody sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.dependence import possible
from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import BinaryOp, Buffer, Const, Dim, Expr, Var
from tilewright.ir.loop import (
    Accumulate,
    Block,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    Write,
    loads,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import variables

HINT = "let it run a multiple of what the chip's unit takes"


def fill_kernel(kernel: Kernel, extents: Mapping[Var, int]) -> Kernel:
    """The kernel with loops of these extents instead of shorter ones, and with those that run over
    the same axes of its buffers as long. ScheduleError where that would change what it computes."""
    return _Filling(kernel).filled(extents)


@dataclass(frozen=True)
class _Filling:
    kernel: Kernel

    def filled(self, extents: Mapping[Var, int]) -> Kernel:
        longer = self._longer(extents)
        if not longer:
            return self.kernel
        every = nests(self.kernel.body)
        padded = [(n, [x for x in _loops(n) if x.var in longer]) for n in every]
        for nest, loops in padded:
            for loop in loops:
                self._check(nest, loop)
        shapes: dict[Buffer, tuple[Dim, ...]] = {}
        for writes in (True, False):
            for nest, loops in padded:
                if loops:
                    self._grow(nest, longer, shapes, writes)
        body = _with_extents(self.kernel.body, longer)
        for buffer, shape in shapes.items():
            body = rewrite_accesses(body, buffer, buffer.with_(shape=shape), lambda at: at)
        inputs, outputs, scratch = (
            tuple(b.with_(shape=shapes.get(b, b.shape)) for b in buffers)
            for buffers in (self.kernel.inputs, self.kernel.outputs, self.kernel.scratch)
        )
        return self.kernel.with_(inputs=inputs, outputs=outputs, scratch=scratch, body=body)

    # ---------------------------------------------------------- which loops

    def _longer(self, extents: Mapping[Var, int]) -> dict[Var, int]:
        """The loops that become longer: what one nest stores in a buffer, another reads."""
        now = {x.var: x.extent for n in nests(self.kernel.body) for x in _loops(n)}
        found: dict[Var, int] = {}
        fresh = {v: n for v, n in extents.items() if n != now.get(v)}
        while fresh:
            found |= fresh
            fresh = {v: n for v, n in self._alongside(found) if found.get(v, 0) < n}
        return found

    def _alongside(self, found: Mapping[Var, int]) -> Iterator[tuple[Var, int]]:
        """Loops over the axes of local buffers that filled ones run over, and their extents."""
        every = nests(self.kernel.body)
        along = {
            (n.buffer, d): found[i]
            for n in every
            for d, i in enumerate(n.store.indices)
            if isinstance(i, Var) and i in found and n.buffer not in self.kernel.params
        }
        for nest in every:
            axes = {x.var: x.extent for x in nest.axes}
            for a in accesses((nest.stmt,)):
                for d, (i, size) in enumerate(zip(a.indices, a.buffer.shape, strict=True)):
                    if (a.buffer, d) in along and isinstance(i, Var) and axes.get(i) == size:
                        yield i, along[a.buffer, d]

    # ---------------------------------------------------------- whether that is right

    def _check(self, nest: Nest, loop: For) -> None:
        """Refuses a loop whose added iterations would change what counts."""
        if any(isinstance(x, If) for x in walk_statements((nest.stmt,))):
            _refuse(nest, loop, "what it does depends on a condition")
        if any(True for a in accesses((nest.stmt,)) for i in a.indices for _ in loads(i)):
            _refuse(nest, loop, "it reads subscripts from memory")
        for write in (x for x in walk_statements((loop,)) if isinstance(x, (Store, Accumulate))):
            if loop.var not in _variables(write.indices):
                if not self._adds_nothing(nest, write, loop):
                    _refuse(nest, loop, "it does not add products of inputs' elements to 0")
            elif not _over_axes(write.buffer, write.indices, loop):
                _refuse(nest, loop, f"it does not run over an axis of {write.buffer.name}")

    def _adds_nothing(self, nest: Nest, write: Write, loop: For) -> bool:
        """Whether added iterations add products with what is added of an input: of integers, 0
        times whatever is there; of others, which may be infinite, 0 times 0 to a sum that began
        with 0, and so is not -0."""
        sums = isinstance(write, Accumulate) and write.op is BinaryOp.ADD
        pair = guarded_factors(write.value) if sums else None
        moved = [x for x in pair or () if loop.var in _variables(x.indices)]
        inputs = self.kernel.inputs
        added = [x.buffer in inputs and _over_axes(x.buffer, x.indices, loop) for x in moved]
        if write.value.dtype.is_integer:
            return any(added)
        first = nest.store.value
        return added == [True, True] and isinstance(first, Const) and str(first.value) == "0.0"

    # ---------------------------------------------------------- buffers

    def _grow(
        self,
        nest: Nest,
        longer: Mapping[Var, int],
        shapes: dict[Buffer, tuple[Dim, ...]],
        writes: bool,
    ) -> None:
        """Makes room for what a nest writes, or for what it reads. What is added of a local buffer
        is only what nests store in it."""
        (stmt,) = _with_extents((nest.stmt,), longer)
        extents = {x.var: x.extent for x in walk_statements((stmt,)) if isinstance(x, For)}
        s = Simplifier(extents)
        for a in accesses((stmt,)):
            if a.writes != writes:
                continue
            shape = []
            for i, n in zip(a.indices, shapes.get(a.buffer, a.buffer.shape), strict=True):
                low, high = s.bounds(i)
                if (low is None or low < 0) and possible(a, s, i < 0):
                    raise _outside(nest, a)
                if isinstance(n, int) and (high is None or high >= n) and possible(a, s, i >= n):
                    if high is None or not (writes or a.buffer in self.kernel.params):
                        raise _outside(nest, a)
                    n = high + 1
                shape.append(n)
            if tuple(shape) != a.buffer.shape:
                shapes[a.buffer] = tuple(shape)


def _refuse(nest: Nest, loop: For, why: str) -> NoReturn:
    raise ScheduleError(
        f"{loop.var.name} runs {loop.extent} times, and cannot run more often: {why}",
        program=nest.stmt,
        hint=HINT,
    )


def _outside(nest: Nest, access: Access) -> ScheduleError:
    return ScheduleError(
        f"added iterations would do the {access}, outside of {access.buffer}",
        program=nest.stmt,
        hint=HINT,
    )


def _loops(nest: Nest) -> list[For]:
    return [x for x in walk_statements((nest.stmt,)) if isinstance(x, For)]


def _variables(indices: Sequence[Expr]) -> set[Var]:
    return set().union(*map(variables, indices))


def _over_axes(buffer: Buffer, indices: Sequence[Expr], loop: For) -> bool:
    """Whether a loop moves subscripts only as such, and each over the whole of an axis."""
    pairs = [(i, n) for i, n in zip(indices, buffer.shape, strict=True) if loop.var in variables(i)]
    return all(i == loop.var and n == loop.extent for i, n in pairs)


def _with_extents(block: Block, extents: Mapping[Var, int]) -> Block:
    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.var in extents:
            stmt = stmt.with_(extent=extents[stmt.var])
        return map_inner_blocks(stmt, lambda inner: map_block(inner, visit))

    return map_block(block, visit)
