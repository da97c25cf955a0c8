"""Where the workers of an axis must wait for each other.

Seen from one axis, a kernel is control that every worker runs (the loops and conditions around
bound loops), and **phases**: a loop bound to the axis, of which worker i runs iteration i, or any
other statement, which worker 0 runs. Two accesses to one element by different workers,
one of them a write, must have a barrier between them in the order of the program. A barrier can
stand in any **gap** before, between and behind the statements of a block of control; a `Need` is
such a pair with the gaps that are passed between its two accesses, whatever the iteration.

A barrier of an axis holds up the workers of all axes inside of it as well, so an axis takes care of
the pairs of workers that differ on it and on no axis around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.dependence import Conflict, conflict
from tilewright.analyze.integer_sets import SetWriter, sample
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Buffer, Expr, UnaryOp, Var, unary
from tilewright.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.nesting import all_misplaced

Place = tuple[int, ...]  # a block: statement in the kernel, which of its blocks, statement, …
Gap = tuple[Place, int]  # before this statement of the block; barriers are not counted


@dataclass(frozen=True)
class Need:
    """Two accesses that a barrier must keep apart: in one of these gaps, at best in its home."""

    conflict: Conflict
    gaps: frozenset[Gap]
    home: Place


def axes(kernel: Kernel) -> tuple[str, ...]:
    """The axes that loops are bound to, outer ones first. Loops bound to one axis all stand in
    loops bound to the same others."""
    around: dict[str, tuple[str, ...]] = {}
    for loop, axis, outer in _bound_loops(kernel.body, ()):
        if around.setdefault(axis, outer) != outer:
            one, other = (" in ".join(x) or "no axis" for x in (around[axis], outer))
            what = f"loops bound to {axis} stand in {one}, and loop {loop.var.name} in {other}"
            hint = "every axis has one place among the others: bind the loops around"
            raise CompileError(what, program=kernel, hint=hint)
    return tuple(sorted(around, key=lambda axis: len(around[axis])))


def _bound_loops(
    block: Block, outer: tuple[str, ...]
) -> Iterator[tuple[For, str, tuple[str, ...]]]:
    """Every bound loop, with its axis and the axes around it."""
    for s in block:
        axis = s.axis if isinstance(s, For) else None
        if isinstance(s, For) and axis is not None:
            yield s, axis, outer
        for inner in sub_blocks(s):
            yield from _bound_loops(inner, (*outer, axis) if axis is not None else outer)


def check_workers(kernel: Kernel) -> None:
    """CompileError where a loop for workers stands in a loop that has none for it, or workers of
    an axis meet within one of its loops (no barrier could help, so the iterations must be
    independent)."""
    wrong = next(all_misplaced(kernel.body), None)
    if wrong is not None:
        raise CompileError(wrong.what, program=kernel, hint=wrong.hint)
    loops = [s for s in walk_statements(kernel.body) if isinstance(s, For)]
    if all(loop.axis is None for loop in loops):
        return
    simplifier = Simplifier({s.var: s.extent for s in loops})
    for loop in loops:
        if loop.axis is not None:
            found = conflict(loop.body, loop.var, simplifier, concurrent=True)
            if found is not None:
                what = f"workers of {loop.axis} meet inside of loop {loop.var}: {found}"
                raise CompileError(what, program=kernel)


def barriers(kernel: Kernel, axis: str) -> set[Gap]:
    """The gaps where all workers of an axis wait."""
    order = axes(kernel)
    wide = order[: order.index(axis) + 1]
    found: set[Gap] = set()

    def visit(block: Block, place: Place) -> None:
        position = 0
        for s in block:
            if isinstance(s, Barrier):
                if s.axis in wide:
                    found.add((place, position))
                continue
            for branch, inner in enumerate(sub_blocks(s)):
                visit(inner, (*place, position, branch))
            position += 1

    visit(kernel.body, ())
    return found


def needs(kernel: Kernel, axis: str) -> list[Need]:
    """Every pair of places in a program that different workers of an axis reach one element from,
    where they must wait for each other."""
    return list(_Team(kernel, axis).needs())


def parts(block: Block) -> list[Stmt]:
    """The statements of a block between which gaps lie."""
    return [s for s in block if not isinstance(s, Barrier)]


# ---------------------------------------------------------------- phases


@dataclass(frozen=True)
class _Phase:
    """Accesses that lie between the same gaps, with the control around them."""

    at: tuple[Gap, ...]  # where it stands, from the outermost block in
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    accesses: tuple[Access, ...]
    control: bool  # a condition, which every worker evaluates


class _Team:
    def __init__(self, kernel: Kernel, axis: str) -> None:
        self.kernel, self.axis = kernel, axis
        order = axes(kernel)
        self.outer = order[: order.index(axis)]
        self.blocks: dict[Place, tuple[Stmt | None, list[Stmt]]] = {}  # of control
        self.private = _private(kernel, axis)
        self.phases = list(self._phases(None, kernel.body, (), (), (), ()))

    def _phases(
        self,
        owner: Stmt | None,
        block: Block,
        place: Place,
        at: tuple[Gap, ...],
        loops: tuple[For, ...],
        conditions: tuple[Expr, ...],
    ) -> Iterator[_Phase]:
        self.blocks[place] = owner, parts(block)
        for position, s in enumerate(parts(block)):
            here = (*at, (place, position))
            if not self._is_control(s):
                yield _Phase(here, loops, conditions, tuple(accesses((s,))), False)
                continue
            inside = [(loops, conditions)] * 2
            if isinstance(s, For):
                inside = [((*loops, s), conditions)]
            elif isinstance(s, If):
                reads = tuple(accesses((s.with_(body=(), orelse=()),)))
                yield _Phase(here, loops, conditions, reads, True)
                chosen = s.cond, unary(UnaryOp.NOT, s.cond)
                inside = [(loops, (*conditions, c)) for c in chosen]
            for branch, inner in enumerate(sub_blocks(s)):
                yield from self._phases(s, inner, (*place, position, branch), here, *inside[branch])

    def _is_control(self, s: Stmt) -> bool:
        """Whether every worker runs a statement, for the bound loops and barriers inside."""
        if isinstance(s, For) and s.axis == self.axis:
            return False
        inner = (x for b in sub_blocks(s) for x in walk_statements(b))
        return any(isinstance(x, (For, Barrier)) and x.axis is not None for x in inner)

    # ---------------------------------------------------------- pairs of phases

    def needs(self) -> Iterator[Need]:
        for i, a in enumerate(self.phases):
            for j, b in enumerate(self.phases):
                level = _common(a, b)
                if i < j and (level == len(a.at) or a.at[level][0] == b.at[level][0]):
                    found = self._conflict(a, b, level)
                    if found is not None:
                        home = b.at[level][0]
                        yield Need(found, frozenset(self._between(a, b, level)), home)
                yield from self._carried(a, b)

    def _carried(self, a: _Phase, b: _Phase) -> Iterator[Need]:
        """What one iteration of a loop of control does, and a later one."""
        for level, ((place, p), (other, q)) in enumerate(zip(a.at, b.at, strict=False)):
            if place != other:
                return
            loop, inside = self.blocks[place]
            if not isinstance(loop, For) or loop.axis is not None:
                continue  # another worker of an axis around: its barriers
            any_order = loop.kind is LoopKind.PARALLEL
            found = self._conflict(a, b, level, "!=" if any_order else "= 1 +")
            if found is not None:
                gaps = {(place, g) for g in range(len(inside) + 1) if g > p or g <= q}
                passed = [n for n in range(len(inside)) if n > p or n < q]
            else:
                found = None if any_order else self._conflict(a, b, level, ">= 2 +")
                if found is None:
                    continue
                gaps = {(place, g) for g in range(len(inside) + 1)}
                passed = list(range(len(inside)))
            gaps |= _behind(self, a, level + 1) | _before(b, level + 1)
            for n in passed:
                gaps |= self._sure(place, n)
            yield Need(found, frozenset(gaps), place)

    def _between(self, a: _Phase, b: _Phase, level: int) -> set[Gap]:
        """What is passed from a to b in one iteration of the loops around both."""
        if level == len(a.at):  # a is the condition of what b stands in
            return _before(b, level)
        (place, p), (_, q) = a.at[level], b.at[level]
        gaps = {(place, g) for g in range(p + 1, q + 1)}
        for n in range(p + 1, q):
            gaps |= self._sure(place, n)
        return gaps | _behind(self, a, level + 1) | _before(b, level + 1)

    def _sure(self, place: Place, position: int) -> set[Gap]:
        """The gaps inside a statement that every worker passes."""
        s = self.blocks[place][1][position]
        inner = (*place, position, 0)
        if not isinstance(s, For) or not isinstance(s.extent, int) or s.extent <= 0:
            return set()
        if s.axis is not None or inner not in self.blocks:
            return set()
        count = len(self.blocks[inner][1])
        gaps = {(inner, g) for g in range(count + 1)}
        for n in range(count):
            gaps |= self._sure(inner, n)
        return gaps

    # ---------------------------------------------------------- pairs of accesses

    def _conflict(self, a: _Phase, b: _Phase, level: int, later: str = "") -> Conflict | None:
        """Two accesses that different workers make to one element: in the same iteration of the
        loops around the block at this level, or of the last of them in one so much `later`."""
        owners = (self.blocks[place][0] for place, _ in a.at[: level + 1])
        shared = sum(isinstance(s, For) for s in owners)
        for first in a.accesses:
            for second in b.accesses:
                same = first.buffer == second.buffer and first.buffer not in self.private
                if same and (first.writes or second.writes):
                    found = self._meet(a, first, b, second, shared, later)
                    if found is not None:
                        return found
        return None

    def _meet(
        self, a: _Phase, first: Access, b: _Phase, second: Access, shared: int, later: str
    ) -> Conflict | None:
        writer = SetWriter()
        whole = [(p, x, (*p.loops, *x.loops)) for p, x in ((a, first), (b, second))]
        names = [
            {loop.var: f"{letter}{i}" for i, loop in enumerate(loops)}
            for letter, (_, _, loops) in zip("ab", whole, strict=True)
        ]
        known: list[str] = []
        for own, (phase, access, loops) in zip(names, whole, strict=True):
            for loop in loops:
                known += writer.bounds(own[loop.var], loop.extent, own)
            for c in (*phase.conditions, *access.conditions):
                text = writer.condition(c, own)
                known += [] if text is None else [f"({text})"]
        places = zip(first.indices, second.indices, strict=True)
        forms = [(writer.affine(i, names[0]), writer.affine(j, names[1])) for i, j in places]
        exact = all(None not in pair for pair in forms)
        known += [f"{i} = {j}" for i, j in forms if i is not None and j is not None]
        for n, (one, other) in enumerate(zip(a.loops[:shared], b.loops[:shared], strict=True)):
            how = later if n == shared - 1 and later else "="
            known.append(f"{names[1][other.var]} {how} {names[0][one.var]}")
        for axis in (*self.outer, self.axis):
            mine, its = (_worker(axis, p, loops, own)
                         for own, (p, _, loops) in zip(names, whole, strict=True))  # fmt: skip
            if mine is not None and its is not None:
                known.append(f"{mine} {'!=' if axis == self.axis else '='} {its}")
        known += writer.parameter_bounds({})
        parameters = f"[{', '.join(writer.parameters.values())}] -> " if writer.parameters else ""
        dims = [*names[0].values(), *names[1].values()]
        text = f"{parameters}{{ [{', '.join(dims)}] : {' and '.join(known) or '0 = 0'} }}"
        point = sample(text, dims)
        if point is None:
            return None
        here, there = ({v.name: point[n] for v, n in own.items()} for own in names)
        return Conflict(first, second, (here, there) if exact else None)


def _worker(axis: str, p: _Phase, loops: Sequence[For], own: dict[Var, str]) -> str | None:
    """The worker of an axis that makes an access; None for any."""
    for loop in loops:
        if loop.axis == axis:
            return own[loop.var]
    return None if p.control else "0"


def _common(a: _Phase, b: _Phase) -> int:
    """How many statements around, from the outermost, both stand in."""
    pairs = zip(a.at, b.at, strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(a.at), len(b.at)))


def _behind(team: _Team, a: _Phase, level: int) -> set[Gap]:
    """The gaps behind a phase, in blocks from this level in."""
    inner = ((place, p, len(team.blocks[place][1])) for place, p in a.at[level:])
    return {(place, g) for place, p, count in inner for g in range(p + 1, count + 1)}


def _before(b: _Phase, level: int) -> set[Gap]:
    return {(place, g) for place, q in b.at[level:] for g in range(q + 1)}


def _private(kernel: Kernel, axis: str) -> set[Buffer]:
    """The buffers that are allocated in loops bound to an axis only."""
    loops = [s for s in walk_statements(kernel.body) if isinstance(s, For) and s.axis == axis]
    inside = [b for loop in loops for b in _allocated(loop.body)]
    everywhere = _allocated(kernel.body)
    return {b for b in inside if inside.count(b) == everywhere.count(b)}


def _allocated(block: Block) -> list[Buffer]:
    return [s.buffer for s in walk_statements(block) if isinstance(s, Alloc)]
