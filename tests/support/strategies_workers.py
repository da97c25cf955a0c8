"""Random kernels whose workers share buffers: loops bound to axes, one behind the other, in loops
and under conditions; and which of their accesses no barrier keeps apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from executor import Executor, Touch
from hypothesis import strategies as st

from tilewright.analyze.dependence import conflict
from tilewright.analyze.simplify import Simplifier
from tilewright.analyze.workers import axes
from tilewright.base.dtype import i64
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, as_expr, const
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Bound,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    buffers_written,
    sub_blocks,
    walk_statements,
)
from tilewright.lower.run_in_order import run_in_order

SIZE = 6  # elements of every axis of every buffer
THREADS = (2, 3, 3)


@st.composite
def worker_kernels(
    draw: Callable[..., Any], *, simple: bool = False, data: bool = True, blocks: bool = True
) -> Kernel:
    """Phases of a team of threads, in loops, conditions (`data`: on values in memory, too) and
    loops over teams (`blocks`); with `simple` one row of phases, perhaps in one loop."""
    return _Maker(draw, data, blocks and not simple).kernel(simple)


class _Maker:
    def __init__(self, draw: Callable[..., Any], data: bool, blocks: bool) -> None:
        self.draw, self.data, self.blocks = draw, data, blocks
        self.names = 0
        count = self.int(1, 3)
        self.buffers = [Buffer(f"y{n}", i64, (SIZE,) * (1 + blocks)) for n in range(count)]
        self.input = Buffer("x", i64, (SIZE,) * (1 + blocks))
        self.extents: dict[Var, int] = {}

    def int(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.int(0, len(choices) - 1)]

    def var(self, stem: str, extent: int) -> Var:
        self.names += 1
        var = Var(f"{stem}{self.names}")
        self.extents[var] = extent
        return var

    def kernel(self, simple: bool) -> Kernel:
        if simple:
            count = self.int(2, 5)
            if self.int(0, 1):
                k = self.var("k", self.int(1, 4))
                row = tuple(self.phase((k,), None) for _ in range(count))
                body: Block = (For(k, self.extents[k], row),)
            else:
                body = tuple(self.phase((), None) for _ in range(count))
        else:
            body = self.block((), None, 3)
        written = buffers_written(body)
        outputs = tuple(b for b in self.buffers if b in written)
        inputs = tuple(b for b in self.buffers if b not in written)
        return Kernel("team", (self.input, *inputs), outputs, body)

    # ---------------------------------------------------------- statements

    def block(self, loops: tuple[Var, ...], team: Var | None, depth: int) -> Block:
        outside = self.blocks and team is None  # of the loops over teams
        forms: list[Callable[..., Stmt]] = [self.alone] if outside else [self.phase] * 4
        forms.append(self.alone)
        out: list[Stmt] = []
        for _ in range(self.int(1, 3)):
            more = [self.loop, self.loop, self.condition] if depth else []
            if outside and depth:
                more += [self.teams] * 3
            form = self.pick(forms + more)
            out.append(form(loops, team) if form in forms else form(loops, team, depth - 1))
        return tuple(out)

    def loop(self, loops: tuple[Var, ...], team: Var | None, depth: int) -> Stmt:
        k = self.var("k", self.int(1, 3))
        body = self.block((*loops, k), team, depth)
        if self.int(0, 2) == 0:
            body = self.local(body)
        return For(k, self.extents[k], body)

    def local(self, body: Block) -> Block:
        """Some of what a buffer is for, in one allocated here."""
        old = self.pick(self.buffers)
        self.names += 1
        new = old.with_(name=f"t{self.names}", memory="shared")
        at = [self.var("z", SIZE) for _ in new.shape]
        fill: Stmt = Store(new, tuple(at), Load(self.input, tuple(at)))
        for var in reversed(at):
            fill = For(var, SIZE, (fill,))

        def renamed(node: Any) -> Any:
            return new if node == old else node.map(renamed)

        return (Alloc(new), fill, *(renamed(s) for s in body))

    def condition(self, loops: tuple[Var, ...], team: Var | None, depth: int) -> Stmt:
        if self.data and self.int(0, 2) == 0:
            cond = self.read(loops, team) < as_expr(self.int(-3, 3))
        else:
            cond = self.index(loops) < as_expr(self.int(0, 3))
        orelse = self.block(loops, team, depth) if self.int(0, 1) else ()
        return If(cond, self.block(loops, team, depth), orelse)

    def teams(self, loops: tuple[Var, ...], team: Var | None, depth: int) -> Stmt:
        """A loop over teams, if they are independent; else one worker does everything."""
        b = self.var("b", 2)
        body = self.block(loops, b, depth)
        if conflict(body, b, Simplifier(self.extents), concurrent=True) is not None:
            return run_in_order(Kernel("", (), (), (For(b, 2, body),))).body[0]
        return For(b, 2, body, Bound("block"))

    def alone(self, loops: tuple[Var, ...], team: Var | None) -> Stmt:
        return self.write(loops, team, None)

    def phase(self, loops: tuple[Var, ...], team: Var | None) -> Stmt:
        t = self.var("i", self.pick(THREADS))
        body = tuple(self.write(loops, team, t) for _ in range(self.int(1, 2)))
        if conflict(body, t, Simplifier(self.extents), concurrent=True) is not None:
            target = self.pick(self.buffers)
            value = Load(self.input, self.place(self.index((*loops, t)), team))
            body = (Store(target, self.place(as_expr(t), team), value),)
        return For(t, self.extents[t], body, Bound("thread"))

    def write(self, loops: tuple[Var, ...], team: Var | None, t: Var | None) -> Stmt:
        target = self.pick(self.buffers)
        where = self.index(loops) if t is None else self.spread(t, loops)
        place = self.place(where, team)
        around = loops if t is None else (*loops, t)
        value = self.read(around, team) * self.int(2, 5) + self.read(around, team)
        if self.int(0, 4) == 0:
            return Accumulate(target, place, BinaryOp.ADD, value)
        return Store(target, place, value + const(self.int(0, 9), i64))

    # ---------------------------------------------------------- places

    def spread(self, t: Var, loops: tuple[Var, ...]) -> Expr:
        """A place of each worker's own."""
        n = self.extents[t]
        k = self.pick(loops) if loops else as_expr(0)
        forms = [t + 0, n - 1 - as_expr(t), t + 1, (t + k) % n, t * 2, as_expr(t) + n]
        return self.pick(forms if n < 4 else forms[:4])

    def index(self, variables: tuple[Var, ...]) -> Expr:
        if not variables or self.int(0, 3) == 0:
            return as_expr(self.int(0, 2))
        v = as_expr(self.pick(variables))
        return self.pick([v, v, v + 1, 3 - v, (v + 1) % 2, (v + 1) % 3])

    def place(self, where: Expr, team: Var | None) -> tuple[Expr, ...]:
        if not self.blocks:
            return (where,)
        first = as_expr(self.int(0, 1)) if team is None else as_expr(team)
        if team is not None and self.int(0, 5) == 0:
            first = 1 - as_expr(team)
        return (first, where)

    def read(self, variables: tuple[Var, ...], team: Var | None) -> Expr:
        buffer = self.pick([*self.buffers, *self.buffers, self.input])
        return Load(buffer, self.place(self.index(variables), team))


# ---------------------------------------------------------------- what happens


def inputs_of(kernel: Kernel) -> list[np.ndarray]:
    shapes = [tuple(b.shape) for b in kernel.inputs]
    return [np.arange(np.prod(s), dtype=np.int64).reshape(s) * 7 % 11 - 5 for s in shapes]


def races(kernel: Kernel) -> Iterator[tuple[Touch, Touch]]:
    """Pairs of accesses to one element by different workers, one of them a write, that happen
    with no barrier between them when the kernel runs in order. (What conditions read is taken for
    worker 0's alone.)"""
    order = axes(kernel)
    log = Executor(concurrent=False, log=True)
    log.run(kernel, inputs_of(kernel), {})
    owners = _owners(kernel.body, ())
    seen: dict[object, list[tuple[int, Touch]]] = {}
    for time, touch in enumerate(log.touched):
        whose = [i for axis, i in zip(order, _worker(touch, order), strict=True)
                 if axis in owners.get(touch.buffer, ())]  # fmt: skip
        earlier = seen.setdefault((touch.buffer, touch.place, *whose), [])
        for before, other in earlier:
            if touch.how == "read" == other.how:
                continue
            one, two = (_worker(x, order) for x in (other, touch))
            differ = next(
                (n for n, (a, b) in enumerate(zip(one, two, strict=True)) if a != b), None
            )
            wide = order[: differ + 1] if differ is not None else ()
            if wide and not any(before < at <= time and axis in wide for at, axis in log.waits):
                yield other, touch
        earlier.append((time, touch))


def _owners(block: Block, around: tuple[str, ...]) -> dict[Buffer, tuple[str, ...]]:
    """The axes whose workers each have a buffer of their own."""
    found: dict[Buffer, tuple[str, ...]] = {}
    for s in block:
        if isinstance(s, Alloc):
            found[s.buffer] = around
        inside = (*around, s.axis) if isinstance(s, For) and s.axis is not None else around
        for inner in sub_blocks(s):
            found |= _owners(inner, inside)
    return found


def _worker(touch: Touch, order: Sequence[str]) -> list[int]:
    at = {loop.axis: i for loop, _, i in touch.within}
    return [at.get(axis, 0) for axis in order]


def without(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel less one of its barriers, for each of them."""
    count = sum(isinstance(s, Barrier) for s in walk_statements(kernel.body))
    for n in range(count):
        numbers = iter(range(count))

        def drop(block: Block, numbers: Iterator[int] = numbers, n: int = n) -> Block:
            kept = [s for s in block if not isinstance(s, Barrier) or next(numbers) != n]
            return tuple(_inside(s, drop) for s in kept)

        yield kernel.with_(body=drop(kernel.body))


def _inside(s: Stmt, function: Callable[[Block], Block]) -> Stmt:
    if isinstance(s, For):
        return s.with_(body=function(s.body))
    return s.with_(body=function(s.body), orelse=function(s.orelse)) if isinstance(s, If) else s
