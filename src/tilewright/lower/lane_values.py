"""Expressions of a vector loop's body, in the loop's lanes.

What depends on the loop's variable gets a value in each lane, the rest stays as it is. The position
of a read is a linear form, whose coefficient of the variable says whether lanes read consecutive
elements (1), the same one (0), or gather. Selects are lazy in loops, and get the form here that
does no more than it may: both sides in all lanes, masked reads, or a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.analyze.linear import Linear, add
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import bool_, index, u8, u64
from tilewright.base.node import cached_property
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    cast,
    const,
)
from tilewright.ir.lanes import Branch, Lane, Masked, Shuffle, both, lanes_of, some_lane, spread
from tilewright.ir.substitute import substitute, variables
from tilewright.lower.positions import Positions, flat

NEAR = 4  # elements, up to which lanes may be apart that are read as whole vectors, of any type
SPAN = 32  # bytes, for the same
SHORTEST = 4  # lanes of which one run is read or written by an instruction of its own
RUNS = 8  # of consecutive elements, which lanes read as vectors and interleave
DEAR = 40  # operations, from which on a side of a select is skipped where no lane wants it


class LaneValues:
    """Rewrites expressions: scalar ones, or where `lane` is set those of its loop's body."""

    def __init__(self, simplifier: Simplifier) -> None:
        self.simplifier = simplifier
        self.positions = Positions(simplifier)
        self.lane: Var | None = None
        self.count = 1
        self.columns: dict[Load, Expr] = {}  # reads of the loop that squares give (squares.py)
        self._scopes: list[_Scope] = []  # from the statement's to narrower masks
        self._memo: dict[tuple[Expr, Expr | None], Expr] = {}  # of the statement
        self._pure: dict[Expr, Expr] = {}  # of the loop: what reads no memory
        self._reads: dict[Expr, bool] = {}
        self._dear: dict[tuple[Select, Expr], bool] = {}
        self._inside: dict[int, Simplifier] = {}  # of the loop: for a run of so many of its lanes

    def enter(self, lane: Var | None, count: int) -> None:
        """From here on expressions belong to the body of this vector loop, or of none."""
        self.lane, self.count = lane, count
        self.columns, self._memo, self._pure, self._inside = {}, {}, {}, {}

    def begin(self, mask: Expr | None, *whole: Expr) -> None:
        """From here on expressions are these of a statement, which runs where a mask holds."""
        self._memo = {}
        self._scopes = [_Scope(whole, mask)]

    def __call__(self, e: Expr, mask: Expr | None) -> Expr:
        """The expression in the lanes in which a mask holds; in others it has any value."""
        if isinstance(e, Const):
            return e
        rewrite = self._index if e.dtype == index else self._data
        if not self._reads_memory(e):
            found = self._pure.get(e)
            if found is None:
                found = self._pure[e] = rewrite(e, None)
            return found
        if mask is not self._scopes[0].mask:  # what a wider mask gets in any case is used again
            mask = next((s.mask for s in self._scopes if e in s.certain), mask)
        found = self._memo.get((e, mask))
        if found is None:
            found = self._memo[e, mask] = rewrite(e, mask)
        return found

    def _reads_memory(self, e: Expr) -> bool:
        found = self._reads.get(e)
        if found is None:
            parts = (self._reads_memory(c) for c in e.children() if isinstance(c, Expr))
            found = self._reads[e] = isinstance(e, Load) or any(parts)
        return found

    def _data(self, e: Expr, mask: Expr | None) -> Expr:
        return _REWRITE.get(type(e), LaneValues._operands)(self, e, mask)

    def _operands(self, e: Expr, mask: Expr | None) -> Expr:
        return e.map(lambda x: x if isinstance(x, Buffer) else self(x, mask))

    # ---------------------------------------------------------- indices

    def _index(self, e: Expr, mask: Expr | None) -> Expr:
        e = self.simplifier(e)
        if isinstance(e, Var) and e == self.lane:
            return Lane(self.count)
        if isinstance(e, (Var, Symbol, Const)):
            return e
        if isinstance(e, Binary) and e.op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL):
            return self.positions.sum(self.simplifier.linear(e), lambda x: self(x, mask))
        return self._data(e, mask)

    def binary(self, e: Binary, mask: Expr | None) -> Expr:
        """Division of what is known not to be negative, by what is known to be positive, is
        unsigned: one instruction."""
        if e.dtype != index or e.op not in (BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.DIV):
            return self._operands(e, mask)
        low, below = self.simplifier.bounds(e.a)[0], self.simplifier.bounds(e.b)[0]
        if low is None or low < 0 or below is None or below < 1:
            return self._operands(e, mask)
        a, b = self(e.a, mask), self(e.b, mask)
        by = const(int(b.value), u64) if isinstance(b, Const) else Cast(u64, b)
        op = BinaryOp.REM if e.op is BinaryOp.MOD else BinaryOp.DIV
        return Cast(index, Binary(op, Cast(u64, a), by))

    # ---------------------------------------------------------- selects

    def select(self, e: Select, mask: Expr | None) -> Expr:
        cond = self(e.cond, mask)
        dear_a, dear_b = self._is_dear(e, e.a, e.b), self._is_dear(e, e.b, e.a)
        if lanes_of(cond) == 1:
            lazy = dear_a or dear_b or not (self._is_safe(e.a) and self._is_safe(e.b))
            return (Branch if lazy else Select)(cond, self(e.a, mask), self(e.b, mask))
        a = self._under(cond, e.a, mask, dear=dear_a)
        b = self._under(Unary(UnaryOp.NOT, cond), e.b, mask, dear=dear_b)
        return Select(cond, a, b)

    def _under(self, cond: Expr, e: Expr, mask: Expr | None, *, dear: bool) -> Expr:
        """What is wanted where cond holds; something dear only if that is in any lane."""
        if not self._is_safe(e):
            mask = both(mask, cond)
        self._scopes.append(_Scope((e,), mask))
        value = self(e, mask)
        self._scopes.pop()
        return Branch(some_lane(cond), value, zero(value)) if dear else value

    def _is_dear(self, e: Select, side: Expr, other: Expr) -> bool:
        """Whether a side of a select takes so many operations, beside those that the condition and
        the other side take as well, that it pays to ask first whether it is wanted."""
        if isinstance(side, (Const, Load)) or side in e.cond.children():
            return False
        key = (e, side)
        if key not in self._dear:
            shared = {*other.walk(), *e.cond.walk()}
            own = {x for x in side.walk() if x not in shared and not isinstance(x, (Const, Load))}
            self._dear[key] = len(own) >= DEAR
        return self._dear[key]

    def _is_safe(self, e: Expr) -> bool:
        """Whether an expression may be evaluated though its value is not wanted: every read in it
        is certainly inside its buffer."""
        return all(self.in_bounds(x) for x in e.walk() if isinstance(x, Load))

    def in_bounds(self, load: Load) -> bool:
        """Whether an element is there whatever the variables are."""
        return self.simplifier.in_bounds(load.buffer, load.indices)

    # ---------------------------------------------------------- memory

    def load(self, e: Load, mask: Expr | None) -> Expr:
        """A read: one element, consecutive ones, or a gather."""
        if e in self.columns:
            return self.columns[e]
        step, rest = self.split(self.positions.of(e.buffer, e.indices))
        if mask is None and step not in (None, 0, 1) and abs(step) <= _nearby(e.buffer):
            return self.strided(e.buffer, rest, step)
        if mask is None and step is None:
            runs = self.runs(e.buffer, e.indices)
            if runs is not None:
                return self.joined(e.buffer, *runs)
            offsets = self.offsets(self.positions.of(e.buffer, e.indices))
            windows = None if offsets is None else windows_of(offsets)
            if windows is not None and offsets is not None:
                return self.interleaved(e.buffer, rest, offsets, windows)
        read = Load(flat(e.buffer), (self.place(e.buffer, e.indices, mask),))
        if mask is None:
            return read
        if lanes_of(read) > 1:
            return Masked(mask, read)
        return read if self.in_bounds(e) else Branch(some_lane(mask), read, zero(read))

    def strided(self, buffer: Buffer, first: Linear, step: int) -> Expr:
        """Elements a few apart: all from the first to the last of them are read as vectors, of
        which the last begins early enough to end there, and shuffled."""
        n, lowest = self.count, min(0, (self.count - 1) * step)
        offsets = [i * step - lowest for i in range(n)]
        starts = [min(k, max(offsets) + 1 - n) for k in range(0, max(offsets) + 1, n)]
        vectors = []
        for start in starts:
            at = self.address(add(first, {None: lowest + start}), None)
            read: Expr = Load(flat(buffer), (Binary(BinaryOp.ADD, at, Lane(n)),))
            vectors.append(Cast(u8, read) if buffer.dtype == bool_ else read)  # bits are dear
        if len(vectors) == 1:  # reversed
            return cast(buffer.dtype, Shuffle((vectors[0],), tuple(offsets)))
        found, places = vectors[0], [o if o < n else 0 for o in offsets]
        for start, vector in zip(starts[1:], vectors[1:], strict=True):
            there = [n + o - start if 0 <= o - start < n else None for o in offsets]
            taken = (p if t is None else t for p, t in zip(places, there, strict=True))
            found, places = Shuffle((found, vector), tuple(taken)), list(range(n))
        return cast(buffer.dtype, found)

    def offsets(self, at: Linear) -> list[int] | None:
        """What each lane adds to a position, where that depends on nothing else."""
        lane = self.lane
        assert lane is not None
        own = {atom: k for atom, k in at.items() if atom is not None and lane in variables(atom)}
        if any(variables(atom) != {lane} or not _is_arithmetic(atom) for atom in own):
            return None
        found = []
        for i in range(self.count):
            terms = [(self.simplifier(substitute(a, {lane: const(i)})), k) for a, k in own.items()]
            if not all(isinstance(x, Const) for x, _ in terms):
                return None
            found.append(sum(k * int(x.value) for x, k in terms if isinstance(x, Const)))
        return found

    def interleaved(
        self, buffer: Buffer, rest: Linear, offsets: list[int], windows: list[range]
    ) -> Expr:
        """Elements of a few runs of consecutive ones: a vector of each, and shuffles."""
        others = {a: k for a, k in rest.items() if a is None or self.lane not in variables(a)}
        count = len(windows[0])
        vectors: list[Expr] = []
        for window in windows:
            at = self.address(add(others, {None: window.start}), None)
            read: Expr = Load(flat(buffer), (Binary(BinaryOp.ADD, at, Lane(count)),))
            vectors.append(Cast(u8, read) if buffer.dtype == bool_ else read)
        places = [
            next(k * count + w.index(o) for k, w in enumerate(windows) if o in w) for o in offsets
        ]
        while len(vectors) > 2:
            vectors.append(vectors[-1])
            pairs = zip(vectors[::2], vectors[1::2], strict=False)
            vectors = [Shuffle(p, tuple(range(2 * count))) for p in pairs]
            count *= 2
        return cast(buffer.dtype, Shuffle(tuple(vectors), tuple(places)))

    def runs(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, list[Linear]] | None:
        """How many lanes at a time have consecutive elements, whatever other loops do, and where
        those begin: a half of the lanes, a quarter …; None if fewer than four do."""
        size = self.count
        while size % 2 == 0 and size // 2 >= SHORTEST:
            size //= 2
            begin = [self.run(buffer, indices, k, size) for k in range(0, self.count, size)]
            found = [at for at in begin if at is not None]
            if len(found) == len(begin):
                return size, found
        return None

    def run(
        self, buffer: Buffer, indices: tuple[Expr, ...], first: int, size: int
    ) -> Linear | None:
        """Where so many lanes begin, from a first one on, if their elements are consecutive."""
        lane = self.lane
        assert lane is not None
        within = Var(f"{lane.name}.run")
        inner = self._inside.setdefault(size, self.simplifier.with_loops({within: size}))
        there = tuple(substitute(i, {lane: within + first}) for i in indices)
        at = inner.position(there, buffer.shape)
        return at if at.pop(within, 0) == 1 and within not in _variables(at) else None

    def joined(self, buffer: Buffer, size: int, begin: list[Linear]) -> Expr:
        """Runs that begin at some positions, one behind the other."""
        parts: list[Expr] = []
        for at in begin:
            read: Expr = Load(flat(buffer), (Binary(BinaryOp.ADD, self.address(at), Lane(size)),))
            parts.append(Cast(u8, read) if buffer.dtype == bool_ else read)  # bits are dear
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [Shuffle(p, tuple(range(2 * lanes_of(p[0])))) for p in pairs]
        return cast(buffer.dtype, parts[0])

    def place(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None) -> Expr:
        """The position of an element in the flat buffer, in each lane."""
        at = self.positions.of(buffer, indices)
        step, rest = self.split(at)
        if step == 1 and self.lane is not None:
            first = self.address(rest, mask)
            lane = Lane(self.count)
            return Binary(BinaryOp.ADD, first, lane) if rest else lane
        return self.address(at, mask)

    def address(self, at: Linear, mask: Expr | None = None) -> Expr:
        """A position as a sum."""
        return self.positions.address(at, lambda x: self(x, mask))

    def split(self, at: Linear) -> tuple[int | None, Linear]:
        """(k, rest) with at = k * lane + rest; k is None where it depends on the lane otherwise."""
        if self.lane is None:
            return 0, at
        rest = {atom: k for atom, k in at.items() if atom != self.lane}
        if any(atom is not None and self.lane in variables(atom) for atom in rest):
            return None, rest
        return at.get(self.lane, 0), rest


def windows_of(offsets: Sequence[int]) -> list[range] | None:
    """The runs of consecutive elements that are read, if they are few and equally long."""
    found: list[range] = []
    for k in sorted(set(offsets)):
        if found and found[-1].stop == k:
            found[-1] = range(found[-1].start, k + 1)
        else:
            found.append(range(k, k + 1))
    lengths = {len(w) for w in found}
    return found if len(found) <= RUNS and len(lengths) == 1 and min(lengths) > 1 else None


def _variables(at: Linear) -> set[Var]:
    """Those of a position."""
    return set().union(*(variables(atom) for atom in at if atom is not None))


def _nearby(buffer: Buffer) -> int:
    """Elements, up to which lanes may be apart that are read as whole vectors, and not gathered."""
    return max(NEAR, min(RUNS, SPAN // buffer.dtype.bytes))


def _is_arithmetic(e: Expr) -> bool:
    return all(isinstance(x, (Binary, Const, Var)) for x in e.walk())


@dataclass(frozen=True)
class _Scope:
    """Expressions that are evaluated in the lanes in which a mask holds."""

    whole: tuple[Expr, ...]
    mask: Expr | None

    @cached_property
    def certain(self) -> frozenset[Expr]:
        """Their parts that are, too."""
        return frozenset(certain(*self.whole))


def certain(*whole: Expr) -> tuple[Expr, ...]:
    """The parts of expressions that are evaluated whatever the data: of selects the conditions, and
    what both sides have."""
    return tuple(_certain(whole, {}))


def _certain(whole: Sequence[Expr], of_both: dict[Select, list[Expr]]) -> dict[Expr, None]:
    seen: dict[Expr, None] = {}
    pending = list(whole[::-1])
    while pending:
        e = pending.pop()
        if e in seen:
            continue
        seen[e] = None
        parts: Sequence[object] = e.children()
        if isinstance(e, Select):
            if e not in of_both:
                a, b = _certain((e.a,), of_both), _certain((e.b,), of_both)
                of_both[e] = [x for x in a if x in b]
            parts = (e.cond, *of_both[e])
        pending += [c for c in parts[::-1] if isinstance(c, Expr)]
    return seen


def zero(like: Expr) -> Expr:
    """Nothing, in as many lanes."""
    dtype = like.dtype
    none = const(0.0 if dtype.is_float else 0 if dtype.is_integer else False, dtype)
    return spread(none, lanes_of(like))


_REWRITE: dict[type[Expr], Callable[[LaneValues, Any, Expr | None], Expr]] = {
    Binary: LaneValues.binary,
    Select: LaneValues.select,
    Load: LaneValues.load,
}
