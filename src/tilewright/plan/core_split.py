"""Kernels that several cores share: each does a part of the loops over results, on arrays that have
an axis for the cores.

    X: i8[64, 32]                         X_part: i8[4, 16, 32], X_part[c, i, k] = X[16 * c + i, k]
    for i in 64:                          for c in 4:                     core c
      for j in 32:                   ->     for i in 16:
        for k: T[i, j] += X[i, k] * …         for j in 32:
                                                for k: T[i, j] += X_part[c, i, k] * …

What cores do is the same program, since they find what is theirs in the same places of their parts.
Two parts of an array have elements in common where windows overlap. A border is a part of the
arrays, for which element it is depends on the core.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Expr, Load, Var, const, select
from tilewright.ir.loop import (
    Accumulate,
    Block,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    expressions,
    loads,
    map_block,
    map_exprs,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, variables
from tilewright.plan.borders import Border, Borders, with_borders
from tilewright.plan.normal_form import normal_form
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, made, sizes_of


@dataclass(frozen=True)
class SharedLoop:
    """A loop of results that `count` cores share, by its variables in all nests that have it:
    `each` of its `extent` iterations for a core, which the last may have fewer of."""

    variables: frozenset[Var]
    extent: int
    count: int
    each: int


@dataclass(frozen=True, eq=False)
class CoreSplit:
    """A kernel that cores share. `part` is what one of them does; the kernel of `form` what all do,
    of arrays with an axis for each of the shared loops that `along` says, by the array's name."""

    loops: tuple[SharedLoop, ...]
    part: Kernel
    form: UnitForm
    along: Mapping[str, tuple[int, ...]]

    @property
    def cores(self) -> int:
        return math.prod(x.count for x in self.loops)

    @property
    def is_even(self) -> bool:
        """Whether each core has as many iterations."""
        return all(x.count * x.each == x.extent for x in self.loops)

    @property
    def work(self) -> int:
        """Iterations of the longest nest that a core does."""
        return max(
            math.prod(int(x.extent) for x in (*n.axes, *n.reduce)) for n in nests(self.part.body)
        )

    @property
    def bytes(self) -> int:
        """Of the parameters that cores read and write, all together."""
        return self.cores * sum(math.prod(sizes_of(b)) * b.dtype.bytes for b in self.part.params)

    def places(self, along: Sequence[int]) -> list[int]:
        """For each core, the number of its part of an array with axes for these loops."""
        found = []
        for at in itertools.product(*(range(x.count) for x in self.loops)):
            number = 0
            for k in along:
                number = number * self.loops[k].count + at[k]
            found.append(number)
        return found


def core_splits(kernel: Kernel, cores: int) -> Iterator[CoreSplit]:
    """The ways for so many cores to share a kernel with one result."""
    plain = normal_form(kernel)
    bordered, borders = with_borders(plain)
    if len(plain.outputs) != 1:
        return
    for counts in _shares(_result_loops(plain), cores):
        for each, around in ((plain, {}), (bordered, borders)):
            split = _split(each, counts, plain.inputs, around)
            if split is not None:
                yield split
                break


def _shares(loops: Mapping[Var, int], cores: int) -> Iterator[dict[Var, int]]:
    """How many cores may share each of some loops, so that all are at work; or as many as there
    are iterations."""
    seen = set()
    for counts in _factors(cores):
        for chosen in itertools.permutations(loops, len(counts)):
            found = {v: min(n, loops[v]) for v, n in zip(chosen, counts, strict=True)}
            found = {v: n for v, n in sorted(found.items(), key=lambda x: x[0].name) if n > 1}
            if found and tuple(found.items()) not in seen:
                seen.add(tuple(found.items()))
                yield found


def _factors(cores: int) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as a product of one or two that are greater than 1."""
    yield (cores,)
    for n in range(2, math.isqrt(cores) + 1):
        if cores % n == 0:
            yield n, cores // n


# ---------------------------------------------------------------- loops


def _result_loops(kernel: Kernel) -> dict[Var, int]:
    """The loops of the nest that computes the result, and their extents, longest first."""
    found: dict[Var, int] = {}
    for nest in nests(kernel.body):
        if nest.buffer in kernel.outputs:
            found |= {x.var: x.extent for x in nest.axes if isinstance(x.extent, int)}
    return dict(sorted(found.items(), key=lambda x: -x[1]))


def _alongside(kernel: Kernel, var: Var, extent: int) -> tuple[set[Var], set[tuple[Buffer, int]]]:
    """The variables of the loops that go along with one of a result: those of nests that compute
    what it reads, over axes of local buffers; and those axes. Nothing where that is not whole
    axes, read as they are, or a loop is one of a reduction."""
    every = nests(kernel.body)
    group, axes, left = {var}, set[tuple[Buffer, int]](), {var}
    while left:
        fresh_axes = {
            (b, d)
            for b, at in _local_accesses(kernel, every)
            for d, i in enumerate(at)
            if variables(i) & left
        } - axes
        axes |= fresh_axes
        left = set()
        for b, at in _local_accesses(kernel, every):
            for d, i in enumerate(at):
                if (b, d) in fresh_axes:
                    if not isinstance(i, Var) or b.shape[d] != extent:
                        return set(), set()
                    left |= {i} - group
        group |= left
    extents = {x.var: x.extent for n in every for x in n.axes}
    if any(extents.get(v) != extent for v in group):
        return set(), set()
    return group, axes


def _local_accesses(
    kernel: Kernel, every: Sequence[Nest]
) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """All places of buffers that are neither given nor results."""
    for nest in every:
        for write in nest.writes:
            reads = [(x.buffer, x.indices) for x in loads(write.value)]
            for b, at in ((write.buffer, write.indices), *reads):
                if b not in kernel.params:
                    yield b, at


# ---------------------------------------------------------------- one way


def _split(
    kernel: Kernel, counts: Mapping[Var, int], given: tuple[Buffer, ...], borders: Borders
) -> CoreSplit | None:
    """The kernel with these loops shared by so many cores; None where parts are not alike. `given`
    are its inputs without their borders."""
    extents = _result_loops(kernel)
    loops: list[SharedLoop] = []
    local: dict[tuple[Buffer, int], int] = {}
    for var, count in counts.items():
        group, axes = _alongside(kernel, var, extents[var])
        each = -(-extents[var] // count)
        if not group or any(group & x.variables for x in loops):
            return None
        loops.append(SharedLoop(frozenset(group), extents[var], -(-extents[var] // each), each))
        local |= dict.fromkeys(axes, each)
    return _Split(kernel, tuple(loops), local, given, borders).found()


@dataclass(frozen=True)
class _Pattern:
    """How far apart the parts of an array lie that cores have, for each shared loop: elements along
    each of its axes."""

    buffer: Buffer
    steps: tuple[tuple[int, ...], ...]

    @property
    def along(self) -> tuple[int, ...]:
        return tuple(k for k, step in enumerate(self.steps) if any(step))


@dataclass(frozen=True)
class _Split:
    kernel: Kernel
    loops: tuple[SharedLoop, ...]
    local: Mapping[tuple[Buffer, int], int]  # axes of local buffers, and how long they are
    given: tuple[Buffer, ...]  # the inputs without their borders
    borders: Borders

    def found(self) -> CoreSplit | None:
        if not self._is_alike():
            return None
        body = self._shorter(self.kernel.body)
        simplifier = Simplifier(
            {x.var: x.extent for x in walk_statements(body) if isinstance(x, For)}
        )
        patterns = self._patterns(body)
        if patterns is None:
            return None
        (output,) = self.kernel.outputs
        names = {b.name for b in (*self.kernel.params, *(b for b, _ in self.local))}
        arrays: dict[_Pattern, Buffer] = {}
        for pattern, places in patterns.items():
            shape = _extent(pattern, places, simplifier)
            if shape is None:
                return None
            taken = pattern.buffer.name in {b.name for b in arrays.values()}
            name = fresh(pattern.buffer.name, names) if taken else pattern.buffer.name
            arrays[pattern] = pattern.buffer.with_(name=name, shape=shape)
        result = next(p for p in arrays if p.buffer == output)
        if not self._is_whole(result, arrays[result]):
            return None
        return self._with_arrays(body, arrays, result)

    def _is_alike(self) -> bool:
        """Whether what cores compute depends on their numbers by places in arrays alone."""
        shared = frozenset().union(*(x.variables for x in self.loops))

        def bare(e: Expr) -> Expr:
            return const(0) if isinstance(e, Load) else e

        for stmt in walk_statements(self.kernel.body):
            if isinstance(stmt, If) and variables(stmt.cond) & shared:
                return False
            places = stmt.indices if isinstance(stmt, (Store, Accumulate)) else ()
            for e in expressions(stmt):
                if e not in places and variables(rewrite(e, bare)) & shared:
                    return False
        return True

    def _shorter(self, block: Block) -> Block:
        """A core's loops, and local buffers."""
        each = {v: x.each for x in self.loops for v in x.variables}

        def visit(stmt: Stmt) -> Stmt:
            if isinstance(stmt, For) and stmt.var in each:
                stmt = stmt.with_(extent=each[stmt.var])
            return map_inner_blocks(stmt, lambda inner: map_block(inner, visit))

        block = map_block(block, visit)
        for old in dict.fromkeys(b for b, _ in self.local):
            shape = tuple(self.local.get((old, d), n) for d, n in enumerate(old.shape))
            block = rewrite_accesses(block, old, old.with_(shape=shape), lambda at: at)
        return block

    def _patterns(self, body: Block) -> dict[_Pattern, list[tuple[Expr, ...]]] | None:
        """The places of each parameter by how they differ from core to core; None where that is
        not by as many elements for each."""
        found: dict[_Pattern, list[tuple[Expr, ...]]] = {}
        for stmt in walk_statements(body):
            reads = [(x.buffer, x.indices) for e in expressions(stmt) for x in loads(e)]
            if isinstance(stmt, (Store, Accumulate)):
                reads.append((stmt.buffer, stmt.indices))
            for buffer, at in reads:
                if buffer in self.kernel.params:
                    pattern = self._pattern(buffer, at)
                    if pattern is None:
                        return None
                    found.setdefault(pattern, []).append(at)
        return found

    def _pattern(self, buffer: Buffer, at: tuple[Expr, ...]) -> _Pattern | None:
        steps = [[_moved(i, x) for i in at] for x in self.loops]
        if any(n is None or n < 0 for step in steps for n in step):
            return None
        return _Pattern(buffer, tuple(tuple(n or 0 for n in step) for step in steps))

    def _is_whole(self, pattern: _Pattern, part: Buffer) -> bool:
        """Whether parts of the result lie one behind the other."""
        every = zip(*pattern.steps, sizes_of(part), strict=True)
        along = [[n for n in steps if n] == [size] for *steps, size in every if any(steps)]
        return all(along) and len(along) == len(self.loops)

    def _with_arrays(
        self, body: Block, arrays: Mapping[_Pattern, Buffer], result: _Pattern
    ) -> CoreSplit:
        def place(e: Expr) -> Expr:
            if not isinstance(e, Load) or e.buffer not in self.kernel.inputs:
                return e
            pattern = self._pattern(e.buffer, e.indices)
            assert pattern is not None
            return Load(arrays[pattern], e.indices)

        body = map_block(body, lambda s: map_exprs(s, lambda e: rewrite(e, place)))
        body = rewrite_accesses(body, result.buffer, arrays[result], lambda at: at)
        inputs = tuple(b for p, b in arrays.items() if p is not result)
        part = self.kernel.with_(inputs=inputs, outputs=(arrays[result],), body=body)
        along = {b.name: p.along for p, b in arrays.items()}
        whole = {
            b.name: b.with_(shape=(*(self.loops[k].count for k in p.along), *b.shape))
            for p, b in arrays.items()
        }
        form = UnitForm(
            part.with_(
                inputs=tuple(whole[b.name] for b in inputs), outputs=(whole[result.buffer.name],)
            ),
            {
                b.name: self._made(p, b)
                for p, b in arrays.items()
                if p is not result and (p.along or p.buffer != b or b.name in self.borders)
            },
            {result.buffer.name: self._result(result, whole[result.buffer.name])},
        )
        return CoreSplit(self.loops, part, form, along)

    def _made(self, pattern: _Pattern, part: Buffer) -> MadeArray:
        """An array with the parts of an input; 0, or its border's number, where that has none."""
        if not pattern.along and pattern.buffer.name not in self.borders:
            return MadeArray((pattern.buffer.name,))  # which is read in another way as well
        border = self.borders.get(pattern.buffer.name, Border((0,) * len(part.shape)))
        before, along = border.before, pattern.along
        source = next(b for b in self.given if b.name == pattern.buffer.name)
        counts = [self.loops[k].count for k in along]
        most = [sum((n - 1) * pattern.steps[k][d] for k, n in zip(along, counts, strict=True))
                for d in range(len(part.shape))]  # fmt: skip

        def value(*at: Expr) -> Expr:
            cores, places = at[: len(along)], list(at[len(along) :])
            inside: list[Expr] = []
            for d, n in enumerate(sizes_of(source)):
                moves = (c * pattern.steps[k][d] for c, k in zip(cores, along, strict=True))
                place = sum(moves, places[d]) - before[d]
                if before[d]:
                    inside.append(place >= 0)
                if most[d] + sizes_of(part)[d] - before[d] > n:
                    inside.append(place < n)
                places[d] = place
            found: Expr = Load(source, tuple(places))
            fill = const(border.fill, source.dtype)
            for condition in reversed(inside):
                found = select(condition, found, fill)
            return found

        return made(part.name, (*counts, *sizes_of(part)), [source], value)

    def _result(self, pattern: _Pattern, whole: Buffer) -> MadeArray:
        """The result, of all parts."""
        along = pattern.along
        of_axis = {d: k for k in along for d, n in enumerate(pattern.steps[k]) if n}

        def value(*at: Expr) -> Expr:
            cores = {k: at[d] // pattern.steps[k][d] for d, k in of_axis.items()}
            places = [
                i % pattern.steps[of_axis[d]][d] if d in of_axis else i for d, i in enumerate(at)
            ]
            return Load(whole, (*(cores[k] for k in along), *places))

        return made(whole.name, sizes_of(pattern.buffer), [whole], value)


def _moved(subscript: Expr, loop: SharedLoop) -> int | None:
    """How much further a subscript is for the next core; None where that is not a number."""
    each = 0
    for atom, step in linear(subscript).items():
        if atom is None:
            continue
        if atom in loop.variables:
            each += step * loop.each
        elif variables(atom) & loop.variables:
            return None
    return each


def _extent(
    pattern: _Pattern, places: Sequence[tuple[Expr, ...]], s: Simplifier
) -> tuple[int, ...] | None:
    """The shape of a core's part of an array: what it reads, along the axes that cores share."""
    found = list(sizes_of(pattern.buffer))
    for d in range(len(found)):
        if not any(step[d] for step in pattern.steps):
            continue
        bounds = [s.bounds(at[d]) for at in places]
        if any(low is None or low < 0 or high is None for low, high in bounds):
            return None
        found[d] = max(high for _, high in bounds if high is not None) + 1
    return tuple(found)
