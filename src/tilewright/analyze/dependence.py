"""Whether a program may run in another order, exactly where its subscripts are affine.

Two accesses to one element, one of them a write, must stay in order. Accumulations with one
operator commute: only at the same time they may not happen. A change of order is described by what
it does to the times of accesses (Access.path); it is refused with the two accesses and a pair of
iterations that would be swapped.

Most pairs are settled by comparing linear forms; integer sets decide the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.integer_sets import SetWriter, sample
from tilewright.analyze.linear import Linear, add, scaled
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, Var
from tilewright.ir.loop import Alloc, Block, For, sub_blocks
from tilewright.ir.substitute import variables


@dataclass(frozen=True)
class Late:
    """A loop in a path whose iterations happen `steps` later than their number."""

    loop: For
    steps: int


@dataclass(frozen=True)
class At:
    """In a path, in the place of a loop: the iteration, an affine expression of the access's own
    loops and constants."""

    iteration: Expr


Path = tuple[int | For | Late | At, ...]
Reorder = Callable[[Path], Path | None]  # an access's time after the change; None: any time
DIMENSION = re.compile(r"[ab]\d+")  # of a set: a loop of the first access, or of the second


@dataclass(frozen=True)
class Conflict:
    """Two accesses, the first of which comes first now and would not any more; `iterations` is
    one pair of loop indices for which both touch the same element."""

    first: Access
    second: Access
    iterations: tuple[dict[str, int], dict[str, int]] | None

    @property
    def kind(self) -> str:
        if not self.second.writes:
            return "read after write"
        return "write after write" if self.first.writes else "write after read"

    def __str__(self) -> str:
        text = f"{self.kind}: {self.first}, then {self.second}"
        if self.iterations is None:
            return f"{text} (perhaps: their subscripts are not affine)"
        one, other = (_show(i) for i in self.iterations)
        return f"{text}, for example at {one} and at {other}"


def _show(values: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "no loop"


# ---------------------------------------------------------------- the questions primitives ask


def conflict(
    body: Block, var: Var, simplifier: Simplifier, *, concurrent: bool = False
) -> Conflict | None:
    """Why the iterations of the loop over `var` with this body may not run in any order; None if
    they may (or, with `concurrent`, at the same time)."""
    loop = For(var, simplifier.extents[var], body)
    if simplifier.extents[var] == 1:
        return None
    return violation((loop,), (var,), lambda path: None, simplifier, concurrent=concurrent)


def violation(
    block: Block,
    moved: Sequence[Var],
    reorder: Reorder,
    simplifier: Simplifier,
    *,
    concurrent: bool = False,
    within: bool = False,
) -> Conflict | None:
    """A pair of accesses in `block` that `reorder` would put in the wrong order. Only pairs that
    differ in one of the loops `moved` are looked at, unless the order `within` an iteration changes
    as well; buffers allocated inside of all of them are each iteration's own."""
    for found in _shared(block, moved).values():
        if not any(a.writes for a in found):
            continue
        for first in found:
            for second in found:
                if not (first.writes or second.writes) or _commute(first, second, concurrent):
                    continue
                if not within and all(_separated(first, second, v, simplifier) for v in moved):
                    continue
                differing = () if within else moved
                pair = _swapped(first, second, reorder, differing, simplifier)
                if pair is not None:
                    return pair
    return None


def meets(first: Access, second: Access, simplifier: Simplifier) -> Conflict | None:
    """Whether the second may touch an element that the first has touched before."""
    return _swapped(first, second, lambda path: None, (), simplifier)


def meeting(first: Access, second: Access, simplifier: Simplifier) -> Conflict | None:
    """A pair of iterations in which two accesses of one program touch one element, whichever comes
    first."""
    pairs = ((first, second), (second, first))
    found = (meets(*pair, simplifier) for pair in pairs)
    return next((pair for pair in found if pair is not None), None)


def possible(access: Access, simplifier: Simplifier, *conditions: Expr) -> bool:
    """Whether an access may happen while some conditions hold."""
    writer = SetWriter()
    names = {loop.var: f"a{i}" for i, loop in enumerate(access.loops)}
    constraints = _happens(
        replace(access, conditions=(*access.conditions, *conditions)), names, writer
    )
    return sample(_set(list(names.values()), constraints, writer, simplifier), []) is not None


def always(condition: Expr, simplifier: Simplifier) -> bool:
    """Whether a condition on symbols and outer loops holds for all their values."""
    if simplifier.proves(condition):
        return True
    writer = SetWriter()
    fails = writer.condition(condition, {}, negate=True)
    return fails is not None and sample(_set([], [fails], writer, simplifier), []) is None


def _shared(block: Block, moved: Sequence[Var]) -> dict[Buffer, list[Access]]:
    """Accesses by buffer, without buffers that every iteration of the moved loops has anew."""
    private = _private(block, set(moved))
    found: dict[Buffer, list[Access]] = {}
    for access in accesses(block):
        if access.buffer not in private:
            found.setdefault(access.buffer, []).append(access)
    return found


def _private(block: Block, around: set[Var]) -> set[Buffer]:
    """Buffers allocated inside all loops of `around`."""
    found: set[Buffer] = set()
    for stmt in block:
        if isinstance(stmt, Alloc) and not around:
            found.add(stmt.buffer)
        for inner in sub_blocks(stmt):
            left = around - {stmt.var} if isinstance(stmt, For) else around
            found |= _private(inner, left)
    return found


def _commute(a: Access, b: Access, concurrent: bool) -> bool:
    return not concurrent and a.op is not None and a.op is b.op


# ---------------------------------------------------------------- integer sets


def _swapped(
    first: Access, second: Access, reorder: Reorder, moved: Sequence[Var], s: Simplifier
) -> Conflict | None:
    """first now runs before second, and after the change would not."""
    writer = SetWriter()
    names = [{loop.var: f"{letter}{i}" for i, loop in enumerate(a.loops)}
             for letter, a in (("a", first), ("b", second))]  # fmt: skip
    changed = reorder(first.path), reorder(second.path)
    if _times(first.path, second.path, *names) == _times(*changed, *names):
        return None
    constraints: list[str] = []
    for access, own in zip((first, second), names, strict=True):
        constraints += _happens(access, own, writer)
    exact = True
    for i, j in zip(first.indices, second.indices, strict=True):
        left, right = writer.affine(i, names[0]), writer.affine(j, names[1])
        if left is None or right is None:
            exact = False
        else:
            constraints.append(f"{left} = {right}")
    differ = [f"{names[0][v]} != {names[1][v]}" for v in moved]
    before = _earlier(first.path, second.path, *names)
    after = _not_earlier(*changed, *names)
    if not before or not after:
        return None
    times = [f"({' or '.join(x)})" for x in (differ, before, after) if x]
    dims = [*names[0].values(), *names[1].values()]
    if _never(dims, times, constraints, writer, s):
        return None
    point = sample(_set(dims, [*constraints, *times], writer, s), dims)
    if point is None:
        return None
    one, other = ({v.name: point[n] for v, n in own.items()} for own in names)
    return Conflict(first, second, (one, other) if exact else None)


def _never(
    dims: Sequence[str], times: Sequence[str], others: Sequence[str], writer: SetWriter,
    s: Simplifier,
) -> bool:  # fmt: skip
    """Whether the loops that the times are of rule out two accesses alone, with the constraints on
    no other loops: a set of few dimensions, which often says it, and soon."""
    of_times = _dimensions(" ".join(times))
    few = [x for x in dims if x in of_times]
    if len(few) == len(dims):
        return False
    known = [x for x in others if _dimensions(x) <= of_times]
    return sample(_set(few, [*known, *times], writer, s), few) is None


def _dimensions(text: str) -> set[str]:
    """The dimensions that a constraint is on."""
    return set(DIMENSION.findall(text))


def _happens(access: Access, names: dict[Var, str], writer: SetWriter) -> list[str]:
    """The iterations in which an access happens: its loops' bounds and its conditions."""
    constraints: list[str] = []
    for loop in access.loops:
        constraints += writer.bounds(names[loop.var], loop.extent, names)
    conditions = (writer.condition(c, names) for c in access.conditions)
    return constraints + [f"({c})" for c in conditions if c is not None]


def _set(dims: list[str], constraints: list[str], writer: SetWriter, s: Simplifier) -> str:
    """The text of a set; its parameters are what the writer met."""
    constraints = [*constraints, *writer.parameter_bounds(s.extents)]
    parameters = f"[{', '.join(writer.parameters.values())}] -> " if writer.parameters else ""
    return f"{parameters}{{ [{', '.join(dims)}] : {' and '.join(constraints) or '0 = 0'} }}"


def _times(
    a: Path | None, b: Path | None, x: dict[Var, str], y: dict[Var, str]
) -> list[tuple[int | str, int | str]] | None:
    """What the order of two accesses follows from, from the outside in; None if they have none."""
    if a is None or b is None:
        return None
    found: list[tuple[int | str, int | str]] = []
    for p, q in zip(a, b, strict=False):
        if isinstance(p, int) or isinstance(q, int):
            found.append((p if isinstance(p, int) else "", q if isinstance(q, int) else ""))
        elif isinstance(p, Late) and isinstance(q, Late) and p.steps == q.steps:
            found.append((x[p.loop.var], y[q.loop.var]))  # both later: that is no difference
        else:
            found.append((_time(p, x), _time(q, y)))
    return found


def _earlier(a: Path, b: Path, x: dict[Var, str], y: dict[Var, str]) -> list[str]:
    """Disjuncts of: time a comes before time b, element by element."""
    found: list[str] = []
    equal: list[str] = []
    for p, q in zip(a, b, strict=False):
        if isinstance(p, int) and isinstance(q, int):
            if p != q:
                return [*found, _all(equal)] if p < q else found
            continue
        if isinstance(p, int) or isinstance(q, int):
            return found  # a loop beside a statement: cannot be at one position
        one, other = _time(p, x), _time(q, y)
        found.append(_all([*equal, f"{one} < {other}"]))
        equal.append(f"{one} = {other}")
    return found


def _time(p: For | Late | At, names: dict[Var, str]) -> str:
    """When an iteration happens, among the steps of its loop."""
    if isinstance(p, At):
        time = SetWriter().affine(p.iteration, names)
        assert time is not None, f"{p.iteration} is not affine"
        return time
    return f"({names[p.loop.var]} + {p.steps})" if isinstance(p, Late) else names[p.var]


def _all(parts: Sequence[str]) -> str:
    return f"({' and '.join(parts)})" if parts else "0 = 0"


def _not_earlier(a: Path | None, b: Path | None, x: dict[Var, str], y: dict[Var, str]) -> list[str]:
    """Disjuncts of: time a does not come before time b."""
    if a is None or b is None:  # in no order at all
        return ["0 = 0"]
    same = [
        f"{_time(p, x)} = {_time(q, y)}"
        for p, q in zip(a, b, strict=False)
        if not isinstance(p, int) and not isinstance(q, int)
    ]
    tie = all(p == q for p, q in zip(a, b, strict=False) if isinstance(p, int))
    return _earlier(b, a, y, x) + ([_all(same)] if tie and len(a) == len(b) else [])


# ---------------------------------------------------------------- linear forms, fast


def _separated(a: Access, b: Access, var: Var, s: Simplifier) -> bool:
    """Whether different values of `var` give different elements, whatever the loops inside and
    whatever is the same outside."""
    inner = _inside(a, var) | _inside(b, var)
    pairs = list(zip(a.indices, b.indices, strict=True))
    if any(_apart(s.linear(i), s.linear(j), var, inner, s) for i, j in pairs):
        return True
    for one, other, factor in _recombinations(a):
        forms = [s.linear(x.indices[one] * factor + x.indices[other]) for x in (a, b)]
        if _apart(forms[0], forms[1], var, inner, s):
            return True
    return False


def _inside(a: Access, var: Var) -> set[Var]:
    """The loops of the piece other than `var`: their values may differ between the two."""
    return {loop.var for loop in a.loops if loop.var != var}


def _recombinations(a: Access) -> Iterator[tuple[int, int, int]]:
    """Pairs of subscripts (x // c, y % c): together they may say what x is (a blocked axis)."""
    for other, i in enumerate(a.indices):
        for atom in i.walk():
            if isinstance(atom, Binary) and atom.op is BinaryOp.MOD and isinstance(atom.b, Const):
                for one in range(len(a.indices)):
                    if one != other:
                        yield one, other, int(atom.b.value)


def _apart(a: Linear, b: Linear, var: Var, inner: set[Var], s: Simplifier) -> bool:
    """Whether k*var + r differs for different values of `var`: |r - r'| < |k| for all inner
    iterations."""
    step = a.get(var, 0)
    if step == 0 or b.get(var, 0) != step:
        return False
    outside: Linear = {}
    low, high = 0, 0
    for form, sign in ((a, 1), (b, -1)):
        for atom, k in form.items():
            if atom == var:
                continue
            used = set() if atom is None else variables(atom)
            if var in used or (atom is not None and _reads_memory(atom)):
                return False
            if used & inner:
                least, most = s.range(scaled({atom: k}, sign))
                if least is None or most is None:
                    return False
                low, high = low + least, high + most
            else:
                outside = add(outside, {atom: k}, sign)
    if any(atom is not None for atom in outside):
        return False
    offset = outside.get(None, 0)
    return abs(step) > max(abs(low + offset), abs(high + offset))


def _reads_memory(e: Expr) -> bool:
    """What is read may differ between the two accesses, even at the same place."""
    return any(isinstance(x, Load) for x in e.walk())
