"""Primitives that make extents fit: pad (a loop) and pad_buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.dependence import meeting, possible
from tilewright.analyze.rewrite import rewrite_accesses, uses
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import DType, bool_
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Dim,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    all_of,
    as_expr,
    const,
    constant_value,
    select,
    unary,
)
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    Write,
    buffers_written,
    expressions,
    loads,
    map_exprs,
    walk_statements,
)
from tilewright.ir.scalar import apply_binary, apply_cast, apply_unary
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.ir.tensor import neutral
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.annotate import check_may_cut
from tilewright.schedule.primitives.loops import plain_loop
from tilewright.schedule.primitives.stages import blocks, nest_loops
from tilewright.schedule.trace.steps import Loop


@primitive
def pad_buffer(state: State, buffer: Buffer, axis: int, multiple: int) -> Buffer:
    """Rounds a buffer's extent along an axis up to a multiple.

        P = alloc([10, 6]); … P[i, j] …   ->   P = alloc([10, 8]); … P[i, j] …

    The added elements are not used (`pad` makes use of them). Legal for allocations that no
    instruction works on.
    """
    state.check_buffer(buffer)
    if buffer not in set(state.allocations()):
        refuse(
            f"{buffer.name} is a parameter of the kernel", state, "use cache_read or cache_write"
        )
    if _called(state, buffer):
        refuse(f"an instruction works on {buffer.name}", state, "pad before tensorize")
    if not 0 <= axis < len(buffer.shape):
        refuse(f"{buffer.name} has no axis {axis}", state)
    if multiple < 1:
        refuse(f"the multiple must be at least 1, not {multiple}", state)
    extent = state.simplifier.dim(_rounded(buffer.shape[axis], multiple))
    return _grow(state, buffer, (*buffer.shape[:axis], extent, *buffer.shape[axis + 1 :]))


@primitive
def pad(state: State, loop: Loop, multiple: int) -> None:
    """Rounds a loop's extent up to a multiple, and does away with conditions on its iterations: it
    runs for all of them, and what is added changes nothing that counts.

        P = alloc([10]); for a in 10: P[a] = f(a)
        C = 0; for i in 10: C += P[i] * P[i]
    ->  P = alloc([12]); for a in 12: P[a] = select(a < 10, f(a), 0)
        C = 0; for i in 12: C += P[i] * P[i]

    What added iterations read is padding: an allocated buffer grows, and the nest that fills it
    fills its padding with 0 (what a reduction accumulates as it is: with the operator's neutral
    element); any other read becomes select(inside, x, 0). A guarded read that gives the same as
    padding becomes a plain one. Allocated buffers that are written grow. A value that is
    accumulated becomes select(inside, x, neutral), where it is not the neutral element by its
    padding. Legal when no element that an added iteration stores is read by any other access.
    """
    target = plain_loop(state, loop)
    check_may_cut(state, target)
    if not isinstance(target.extent, int):
        refuse(f"{loop} runs {target.extent} times, which is not a constant", state)
    if multiple < 1:
        refuse(f"the multiple must be at least 1, not {multiple}", state)
    inner = [s for s in walk_statements(target.body) if isinstance(s, For)]
    for other in (*state.loops_around(target), *inner):
        if other.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
            what = f"{other.var.name} is a loop of kind {other.kind.value} already"
            refuse(what, state, "pad first")
        if isinstance(other.extent, Expr) and any(True for _ in loads(other.extent)):
            refuse(f"how often {other.var.name} runs is read from memory", state)
    if any(isinstance(s, Call) for s in walk_statements(target.body)):
        refuse(f"{loop} contains instructions", state, "pad before tensorize")
    padded, inside = _without_condition(target, multiple)
    padding = _Padding(state, state.kernel, loop, const(True, bool_) if inside is None else inside)
    if inside is not None:
        state.replace(target, padded)
        padding.guard_reads()
        padding.check_writes()
    while padding.drop_guard():
        pass
    state.simplify_all()


def _rounded(n: Dim, multiple: int) -> Dim:
    if isinstance(n, int):
        return -(-n // multiple) * multiple
    return (as_expr(n) + (multiple - 1)) // multiple * multiple


def _without_condition(target: For, multiple: int) -> tuple[For, Expr | None]:
    """The loop with all its iterations, and what says which of them there were before; None if
    they are the same. Conditions that depend on the loop or on loops right inside are left out,
    where they hold for the whole body."""
    loops, body = nest_loops(target)
    extent = _rounded(target.extent, multiple)
    parts: list[Expr] = [] if extent == target.extent else [target.var < as_expr(target.extent)]
    guard = body[0] if len(body) == 1 else None
    if isinstance(guard, If) and not guard.orelse and _constant_extents(loops):
        found = list(_conjuncts(guard.cond))
        gone = [c for c in found if target.var in variables(c) and not any(True for _ in loads(c))]
        rest = [c for c in found if c not in gone]
        body = (If(all_of(*rest), guard.body),) if rest else guard.body
        parts += gone
    for x in reversed(loops[1:]):
        body = (x.with_(body=body),)
    padded = target.with_(extent=extent, body=body)
    return padded, all_of(*parts) if parts else None


def _constant_extents(loops: list[For]) -> bool:
    return all(isinstance(x.extent, int) for x in loops)


def _conjuncts(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Binary) and e.op is BinaryOp.AND and e.dtype == bool_:
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


def _called(state: State, buffer: Buffer) -> bool:
    calls = (s for s in walk_statements(state.kernel.body) if isinstance(s, Call))
    return any(region.buffer == buffer for call in calls for region in call.regions)


def _grow(state: State, buffer: Buffer, shape: tuple[Dim, ...]) -> Buffer:
    grown = buffer.with_(shape=shape)
    state.set_body(rewrite_accesses(state.kernel.body, buffer, grown, lambda at: at))
    return grown


def _not(e: Expr) -> Expr:
    return unary(UnaryOp.NOT, e)


def _within(at: tuple[Expr, ...], shape: tuple[Dim, ...]) -> Expr:
    """Whether a place lies in a box."""
    pairs = zip(at, shape, strict=True)
    return all_of(*(c for i, n in pairs for c in (i >= 0, i < as_expr(n))))


def _happens(simplifier: Simplifier, access: Access, *conditions: Expr) -> bool:
    """Whether an access may happen while some conditions hold."""
    holds = {*access.conditions, *conditions}
    if any(_not(c) in holds for c in holds):  # also where they are not affine
        return False
    every = [simplifier(c) for c in conditions]
    if any(constant_value(c) is False for c in every):
        return False
    return possible(access, simplifier, *every)


@dataclass(frozen=True)
class _Fill:
    """A nest that does nothing but store each element of a buffer: for axes: if cond: store. Its
    subscripts are its loops, or 0."""

    nest: Stmt
    loops: tuple[For, ...]
    cond: Expr
    store: Store

    @property
    def value(self) -> Expr:
        """What the nest stores."""
        return next(s.value for s in walk_statements((self.nest,)) if isinstance(s, Store))

    def fills(self, at: tuple[Expr, ...]) -> Expr:
        """Whether it fills an element."""
        extents: dict[Expr, Dim] = {s.var: s.extent for s in self.loops}
        box = tuple(extents.get(i, 1) for i in self.store.indices)
        return all_of(_within(at, box), self.at(self.cond, at))

    def at(self, e: Expr, at: tuple[Expr, ...]) -> Expr:
        places = zip(self.store.indices, at, strict=True)
        return substitute(e, {axis: i for axis, i in places if isinstance(axis, Var)})

    def over(self, buffer: Buffer, value: Const) -> Stmt | None:
        """The nest that fills all of `buffer`: with `value`, where this one filled nothing."""
        extents = dict(zip(self.store.indices, buffer.shape, strict=True))
        if any(n != 1 for axis, n in extents.items() if not isinstance(axis, Var)):
            return None
        extents = {s.var: extents.get(s.var, 1) for s in self.loops}
        grown = [s for s in self.loops if extents[s.var] != s.extent]
        cond = all_of(*(s.var < as_expr(s.extent) for s in grown), self.cond)
        old = self.store.value
        if isinstance(old, Select) and old.b == value:  # padded before, with the same
            cond, old = all_of(cond, old.cond), old.a
        body: Block = (self.store.with_(buffer=buffer, value=select(cond, old, value)),)
        for s in reversed(self.loops):
            body = (s.with_(extent=extents[s.var], body=body),)
        return body[0]


@dataclass(frozen=True)
class _Padding:
    """The added iterations of a loop: those not `inside`."""

    state: State
    before: Kernel
    loop: Loop
    inside: Expr

    def refuse(self, what: str, hint: str | None = None) -> NoReturn:
        """Shows the program as it was."""
        self.state.kernel = self.before
        refuse(what, self.state, hint)

    @property
    def target(self) -> For:
        return self.state.for_(self.loop)

    def added(self, access: Access, *conditions: Expr) -> bool:
        """Whether an added iteration may do an access while some conditions hold."""
        return _happens(self.state.simplifier, access, _not(self.inside), *conditions)

    def accesses(self, *, writes: bool) -> list[Access]:
        """What added iterations do."""
        found = [a for a in accesses((self.target,)) if a.writes == writes]
        return [a for a in found if self.added(a)]

    # ---------------------------------------------------------- reads

    def guard_reads(self) -> None:
        """Gives every added read something to read."""
        while True:
            read = next((a for a in self.accesses(writes=False) if self._reads_nothing(a)), None)
            if read is None:
                return
            if not self._filled(read):
                self._guard(read)

    def _reads_nothing(self, read: Access) -> bool:
        """Whether an element may be outside of the buffer or of what is known to be filled."""
        if any(True for i in read.indices for _ in loads(i)):
            return True
        fill = self.fill(read.buffer)
        there = _within(read.indices, read.buffer.shape)
        return self.added(read, _not(fill.fills(read.indices) if fill else there))

    def _filled(self, read: Access) -> bool:
        """Makes the nest that fills the buffer fill what is read, too, if it can."""
        fill = self.fill(read.buffer)
        shape = self.shape(read)
        if fill is None or shape is None:
            return False
        grown = read.buffer.with_(shape=shape)
        nest = fill.over(grown, self._value(read.buffer))
        if nest is None or nest == fill.nest:  # it fills everything; no subscript is affine
            return False
        self.state.replace(fill.nest, nest)
        _grow(self.state, read.buffer, shape)
        return True

    def _value(self, buffer: Buffer) -> Const:
        """What the padding of a buffer holds."""
        for stmt in walk_statements(self.target.body):
            if isinstance(stmt, Accumulate):
                value = stmt.value
                if isinstance(value, Load) and value.buffer == buffer:
                    return neutral(stmt.op, buffer.dtype)
        return const(0, buffer.dtype)

    def shape(self, access: Access) -> tuple[Dim, ...] | None:
        """A buffer's shape, made large enough for an access; None if it cannot be."""
        buffer = access.buffer
        if buffer in self.state.kernel.params or _called(self.state, buffer):
            return None
        shape = []
        for i, n in zip(access.indices, buffer.shape, strict=True):
            low, high = self.state.simplifier.bounds(i)
            if any(True for _ in loads(i)) or low is None or low < 0:
                return None
            if not self.state.simplifier.proves(i < as_expr(n)):
                if high is None or not isinstance(n, int):
                    return None
                n = max(n, high + 1)
            shape.append(n)
        return tuple(shape)

    def fill(self, buffer: Buffer) -> _Fill | None:
        """The nest that fills an allocated buffer before the loop, if it is a simple one."""
        home = self._home(buffer)
        if home is None:
            return None
        at = next((k for k, s in enumerate(home) if _holds(s, self.target)), 0)
        writers = [k for k, s in enumerate(home) if buffer in buffers_written((s,))]
        if len(writers) != 1 or writers[0] >= at or _called(self.state, buffer):
            return None
        nest = home[writers[0]]
        loops, body = nest_loops(nest)
        cond: Expr = const(True, bool_)
        if len(body) == 1 and isinstance(body[0], If) and not body[0].orelse:
            cond, body = body[0].cond, body[0].body
        store = body[0] if len(body) == 1 else None
        if (
            not isinstance(store, Store)
            or uses(store.value, buffer)
            or not _constant_extents(loops)
        ):
            return None
        axes = [i for i in store.indices if i != const(0)]
        unused = [s for s in loops if s.var not in axes]
        if len(set(axes)) != len(axes) or not set(axes) <= {s.var for s in loops}:
            return None
        if any(s.extent != 1 for s in unused) or any(True for _ in loads(cond)):
            return None
        return _Fill(nest, tuple(loops), cond, store)

    def _home(self, buffer: Buffer) -> Block | None:
        """The block that allocates a buffer; None for one that is the kernel's or the loop's."""
        if self._private(buffer):
            return None
        every = blocks(self.state.kernel.body)
        return next((b for b in every if any(s == Alloc(buffer) for s in b)), None)

    def _private(self, buffer: Buffer) -> bool:
        inner = walk_statements(self.target.body)
        return any(isinstance(s, Alloc) and s.buffer == buffer for s in inner)

    def _guard(self, read: Access) -> None:
        """The read, wherever it stands in the loop, gives what padding holds outside."""
        before = Load(read.buffer, read.indices)
        guarded = select(self.inside, before, self._value(read.buffer))

        def read_inside(e: Expr) -> Expr:
            return rewrite(e, lambda x: guarded if x == before else x)

        self.state.replace(self.target, map_exprs(self.target, read_inside))

    def drop_guard(self) -> bool:
        """Reads, without the guard that goes by the loop, what holds the same as padding."""
        for stmt in walk_statements(self.target.body):
            if isinstance(stmt, (Store, Accumulate)):
                for x in (x for e in expressions(stmt) for x in e.walk()):
                    if isinstance(x, Select) and isinstance(x.b, Const) and self._drop(stmt, x):
                        return True
        return False

    def _drop(self, stmt: Write, guarded: Select) -> bool:
        read, value = guarded.a, guarded.b
        fill = self.fill(read.buffer) if isinstance(read, Load) else None
        if fill is None or self.loop.var not in variables(guarded.cond):
            return False
        assert isinstance(read, Load)
        assert isinstance(value, Const)
        nest = fill.over(read.buffer, value)
        padded = None if nest is None else replace(fill, nest=nest).value
        if not isinstance(padded, Select) or padded.b != value:
            return False
        here = all_of(_within(read.indices, read.buffer.shape), fill.at(padded.cond, read.indices))
        inside = _within(read.indices, read.buffer.shape)
        for a in accesses((self.target,)):
            if a.stmt is stmt and (a.buffer, a.indices) == (read.buffer, read.indices):
                bare = replace(a, conditions=tuple(c for c in a.conditions if c != guarded.cond))
                s = self.state.simplifier
                if _happens(s, bare, _not(inside)) or _happens(s, bare, _not(guarded.cond), here):
                    return False
        plain = map_exprs(stmt, lambda e: rewrite(e, lambda x: read if x == guarded else x))
        self.state.replace(stmt, plain)
        self.state.replace(fill.nest, nest)
        return True

    # ---------------------------------------------------------- writes

    def check_writes(self) -> None:
        """Makes sure that nobody sees what added iterations write."""
        for write in self.accesses(writes=True):
            shape = self.shape(write) if not self._lies_within(write) else write.buffer.shape
            if shape is None:
                hint = "use cache_write first"
                self.refuse(f"{write.buffer.name} has no place for padding: {write}", hint)
            if shape != write.buffer.shape:
                _grow(self.state, write.buffer, shape)
                self.check_writes()
                return
        for write in self.accesses(writes=True):
            self._check_unseen(write)

    def _lies_within(self, write: Access) -> bool:
        return not self.added(write, _not(_within(write.indices, write.buffer.shape)))

    def _check_unseen(self, write: Access) -> None:
        seen = None if self._private(write.buffer) else self._seen(write)
        if seen is None:
            return
        if not isinstance(write.stmt, Accumulate):
            self.refuse(f"what {self.loop} would store in added iterations counts: {seen}")
        stmt = write.stmt
        nothing = neutral(stmt.op, stmt.value.dtype)
        if self._padded(stmt.value, write) != nothing:
            guarded = stmt.with_(value=select(self.inside, stmt.value, nothing))
            self.state.replace(stmt, guarded)

    def _seen(self, write: Access) -> object | None:
        """Who else reads an element that an added iteration writes. What stores it sees nothing: it
        comes before, or its own readers are asked."""
        home = self._home(write.buffer)
        if home is None:
            return write
        every = [a for a in accesses(home) if a.buffer == write.buffer]
        readers = [a for a in every if not (a.writes and isinstance(a.stmt, Store))]
        own = set(map(id, walk_statements((self.target,))))
        added = [a for a in every if a.stmt is write.stmt and a.writes]
        for mine in (_under(a, _not(self.inside)) for a in added):
            for other in readers:
                if id(other.stmt) in own:
                    other = _under(other, self.inside)
                pair = meeting(mine, other, self.state.simplifier)
                if pair is not None:
                    return pair
        return None

    def _padded(self, e: Expr, write: Access) -> Expr:
        """What a value is in added iterations, as far as it is known."""

        def value(x: Expr) -> Expr:
            if isinstance(x, Select) and not self.added(write, x.cond):
                return x.b
            padding = self._padding(x, write) if isinstance(x, Load) else None
            return folded(x) if padding is None else padding

        return rewrite(e, value)

    def _padding(self, read: Load, write: Access) -> Const | None:
        """What fills the element that is read for a write; None if it may be no padding."""
        fill = self.fill(read.buffer)
        if fill is None:
            return None
        value = fill.store.value
        if not isinstance(value, Select) or not isinstance(value.b, Const):
            return None
        return None if self.added(write, fill.at(value.cond, read.indices)) else value.b


def _under(access: Access, condition: Expr) -> Access:
    return replace(access, conditions=(*access.conditions, condition))


def _holds(stmt: Stmt, target: Stmt) -> bool:
    return any(s is target for s in walk_statements((stmt,)))


def folded(e: Expr) -> Expr:
    """Arithmetic on constants; a product with the integer 0."""
    parts = [x for x in e.children() if isinstance(x, Expr)]
    if e.dtype.is_integer and isinstance(e, Binary) and e.op is BinaryOp.MUL:
        nothing = const(0, e.dtype)
        if nothing in parts:
            return nothing
    constants = [x for x in parts if isinstance(x, Const)]
    if not parts or len(constants) != len(parts):
        return e
    values = [x.dtype.numpy.type(x.value) for x in constants]
    if isinstance(e, Cast):
        return _constant(apply_cast(values[0], e.dtype)[()], e.dtype)
    if isinstance(e, Unary):
        return _constant(apply_unary(e.op, values[0])[()], e.dtype)
    return _constant(apply_binary(e.op, *values), e.dtype) if isinstance(e, Binary) else e


def _constant(value: Any, dtype: DType) -> Const:
    return const(float(value) if dtype.is_float else int(value), dtype)
