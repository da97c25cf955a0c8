"""The primitive that moves what uses a buffer to where it is computed: reverse_compute_at."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.dependence import At, Path, always, violation
from tilewright.analyze.linear import Linear, add
from tilewright.analyze.rewrite import replace_in, rewrite_accesses, substitute_block, uses
from tilewright.ir.expr import Buffer, Dim, Expr, Var, all_of, as_dim, as_expr, const
from tilewright.ir.loop import Alloc, Block, For, LoopKind, Stmt, map_block, map_inner_blocks
from tilewright.ir.loop import walk_statements as walk
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.stages import Definition, definition, guarded_inside, nest_loops
from tilewright.schedule.trace.steps import Loop


@dataclass(frozen=True)
class _Box:
    """What one iteration computes of a buffer along an axis: `size` elements from `low` on. The
    loops around tile the axis: (loop, elements that one iteration is), outermost first."""

    low: Expr
    size: Dim
    loops: tuple[tuple[For, int], ...]


@dataclass(frozen=True)
class _Moved:
    """A loop of the consumer that goes along with an axis: it uses elements up to var + ahead."""

    loop: For
    box: _Box
    ahead: int

    @property
    def value(self) -> Expr:
        """What the loop's variable becomes."""
        return self.box.low + self.loop.var - self.ahead

    def times(self) -> dict[Var, Expr]:
        """The iterations of the producer's loops in which an iteration is done."""
        at = as_expr(self.loop.var) + self.ahead
        (outer, most), *inner = self.box.loops
        return {outer.var: at // most, **{s.var: at // k % s.extent for s, k in inner}}


@primitive
def reverse_compute_at(state: State, buffer: Buffer, loop: Loop) -> Buffer:
    """Uses a buffer piece by piece, right where a loop computes it.

        for i: P[i] = f(i)            for i:
        for j: Q[j] = g(P[j])    ->       P' = alloc([1]); P'[0] = f(i)
                                          Q[i] = g(P'[0])

    An iteration of the nest that uses the buffer is done behind the last iteration of the loop that
    computes an element for it. The buffer becomes that iteration's piece if nothing else is used.
    Legal when one statement behind the definition uses the buffer, and the loops around the
    definition down to this one tile the buffer's axes, each of which that statement goes through
    with a loop of its own; and when no two accesses to one element, one of them a write, change
    their order.
    """
    where = definition(state, buffer)
    around = _loops_down(state, where, loop)
    users = [s for s in where.after if uses(s, buffer)]
    if len(users) != 1:
        what = f"{len(users)} statements behind its definition, not by one"
        refuse(f"{buffer.name} is used by {what}", state)
    boxes = _boxes(state, where, buffer, around)
    moved = [_moved(state, users[0], buffer, d, x) for d, x in enumerate(boxes) if x.loops]
    if len({m.loop.var for m in moved}) != len(moved):
        first = nest_loops(users[0])[0][0]
        refuse(f"a loop of {first.var.name} goes along two axes of {buffer.name}", state)
    _check_order(state, where, users[0], around, moved)
    target = around[-1]
    piece = _piece(state, users[0], moved)
    changed = replace_in((where.nest,), target, target.with_(body=(*target.body, *piece)))
    position = _index(where.block, users[0])
    between = where.after[: position - where.position - 1]
    new = (
        *where.block[: where.position],
        *(s for s in between if isinstance(s, Alloc)),
        *changed,
        *(s for s in between if not isinstance(s, Alloc)),
        *where.block[position + 1 :],
    )
    state.set_body(_with_block(state.kernel.body, where.block, new))
    state.simplify_all()
    return _shrink(state, buffer, loop, boxes)


def _index(block: Block, stmt: Stmt) -> int:
    return next(k for k, s in enumerate(block) if s is stmt)


def _with_block(block: Block, old: Block, new: Block) -> Block:
    if block is old:
        return new
    return map_block(block, lambda s: map_inner_blocks(s, lambda b: _with_block(b, old, new)))


def _loops_down(state: State, where: Definition, loop: Loop) -> list[For]:
    """The loops from the definition down to `loop`."""
    target = state.for_(loop)
    if not any(s is target for s in walk((where.nest,))):
        refuse(f"{loop} does not stand in the definition: {_first_line(where.nest)}", state)
    outside = state.loops_around(target)
    for s in outside:
        if s.kind is LoopKind.VECTORIZE:
            refuse(f"{loop} stands in a vector loop", state)
    found: list[For] = []
    at: Stmt = where.nest
    while True:
        if not isinstance(at, For):
            refuse(f"{loop} stands under a condition", state)
        if at.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
            refuse(f"{at.var.name} is a loop of kind {at.kind.value} already", state)
        found.append(at)
        if at is target:
            return found
        at = next(s for s in at.body if any(x is target for x in walk((s,))))


def _first_line(stmt: Stmt) -> str:
    return str(stmt).split("\n", 1)[0]


# ---------------------------------------------------------------- what is computed, what is used


def _boxes(state: State, where: Definition, buffer: Buffer, around: list[For]) -> list[_Box]:
    """What an iteration of all loops `around` computes, axis by axis."""
    writes = [a for a in accesses((where.nest,)) if a.writes and a.buffer == buffer]
    if any(a.indices != writes[0].indices for a in writes):
        refuse(f"{buffer.name} is computed in several ways: {writes[0]}, {writes[-1]}", state)
    own = {s.var for s in walk((where.nest,)) if isinstance(s, For)}
    boxes = []
    for i, n in zip(writes[0].indices, buffer.shape, strict=True):
        box = _box(state, i, n, around, own)
        if box is None:
            refuse(f"the loops do not tile {buffer.name}: {writes[0]}", state)
        boxes.append(box)
    tiling = {s.var for box in boxes for s, _ in box.loops}
    for s in around:
        if s.var not in tiling and s.extent != 1:
            refuse(f"{buffer.name} is not complete after an iteration of {s.var.name}", state)
    return boxes


def _box(state: State, i: Expr, n: Dim, around: list[For], own: set[Var]) -> _Box | None:
    """The elements that a subscript goes through; None if the loops are no tiles of them."""
    vars_ = {s.var for s in around}
    outer: Linear = {}
    inner: Linear = {}
    for atom, k in state.simplifier.linear(i).items():
        if atom in vars_:
            outer = add(outer, {atom: k})
        elif atom is not None and not (isinstance(atom, Var) and atom in own):
            return None
        else:
            inner = add(inner, {atom: k})
    if not outer:
        return _Box(const(0), n, ())
    low, high = state.simplifier.range(inner)
    if low != 0 or high is None:
        return None
    loops = sorted(((s, outer[s.var]) for s in around if s.var in outer), key=lambda x: -x[1])
    size = high + 1
    for s, k in reversed(loops):
        if k != size or (s is not loops[0][0] and not isinstance(s.extent, int)):
            return None
        size = k * s.extent if isinstance(s.extent, int) else 0
    base: Expr = const(0)
    for s, k in loops:
        base = base + s.var * k
    return _Box(base, high + 1, tuple(loops))


def _moved(state: State, user: Stmt, buffer: Buffer, axis: int, box: _Box) -> _Moved:
    """The loop of a nest that goes through an axis of a buffer."""
    loops = nest_loops(user)[0]
    used = [a for a in accesses((user,)) if a.buffer == buffer]
    for s in loops:
        found = (_ahead(state, a, axis, s, user) for a in used)
        aheads = [ahead for ahead in found if ahead is not None]
        if len(aheads) != len(used):
            continue
        ahead = max(0, *aheads)
        (outer, most), *_ = box.loops
        covered = as_expr(s.extent) + ahead <= as_expr(outer.extent) * most
        if not always(covered, state.simplifier):
            refuse(f"{s.var.name} goes further than what is computed of {buffer.name}", state)
        return _Moved(s, box, ahead)
    places = ", ".join(dict.fromkeys(map(str, used)))
    return refuse(f"no loop goes along axis {axis} of {buffer.name}, one by one: {places}", state)


def _ahead(state: State, access: Access, axis: int, loop: For, user: Stmt) -> int | None:
    """How far an access is in front of a loop, at most; None if it does not go along with it."""
    form = state.simplifier.linear(access.indices[axis])
    rest = {atom: k for atom, k in form.items() if atom != loop.var}
    own = {s.var for s in walk((user,)) if isinstance(s, For)}
    if form.get(loop.var) != 1:
        return None
    if any(atom is not None and not (isinstance(atom, Var) and atom in own) for atom in rest):
        return None
    return state.simplifier.range(rest)[1]


def _check_order(
    state: State, where: Definition, user: Stmt, around: list[For], moved: list[_Moved]
) -> None:
    """The user's iterations happen within the definition's."""
    end = _index(where.block, user)
    block = tuple(s for s in where.block[where.position : end + 1] if not isinstance(s, Alloc))
    times = {var: time for m in moved for var, time in m.times().items()}
    prefix: list[int | At] = [0]
    for s, inner in zip(around, [*around[1:], None], strict=True):
        prefix.append(At(times.get(s.var, const(0))))
        found = (k for k, x in enumerate(s.body) if inner is not None and _holds(x, inner))
        prefix.append(next(found, len(s.body)))

    def earlier(path: Path) -> Path:
        return (*prefix, *path[1:]) if path[0] == len(block) - 1 else path

    pair = violation(block, (), earlier, state.simplifier, within=True)
    if pair is not None:
        refuse(f"the order matters: {pair}", state)


def _holds(stmt: Stmt, target: Stmt) -> bool:
    return any(s is target for s in walk((stmt,)))


# ---------------------------------------------------------------- the edit


def _piece(state: State, user: Stmt, moved: list[_Moved]) -> Block:
    """The part of a nest that belongs to one iteration of the loops around the definition."""
    values: dict[Expr, Expr] = {m.loop.var: m.value for m in moved}
    sizes = {m.loop.var: m.box.size for m in moved}
    known = state.simplifier.with_loops(sizes)
    bounds = [c for m in moved for c in (m.value >= 0, m.value < as_expr(m.loop.extent))]
    guards = [c for c in bounds if not known.proves(c)]

    def shorter(stmt: Stmt) -> Stmt:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, shorter))
        if isinstance(stmt, For) and stmt.var in sizes:
            return stmt.with_(extent=as_dim(as_expr(sizes[stmt.var])))
        return stmt

    piece = map_block(substitute_block((user,), values), shorter)
    return guarded_inside(piece, set(sizes), known(all_of(*guards))) if guards else piece


def _shrink(state: State, buffer: Buffer, loop: Loop, boxes: list[_Box]) -> Buffer:
    """The buffer, with the elements of one iteration alone if no other is used anywhere."""
    target = state.for_(loop)
    lows = tuple(box.low for box in boxes)
    piece = buffer.with_(shape=tuple(box.size for box in boxes))

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i - low for i, low in zip(at, lows, strict=True))

    every = [a for a in accesses(state.kernel.body) if a.buffer == buffer]
    mine = [a for a in accesses((target,)) if a.buffer == buffer]
    within = all(state.simplifier.in_bounds(piece, place(a.indices)) for a in mine)
    if buffer in (piece, *state.kernel.params) or len(mine) != len(every) or not within:
        return buffer
    body = rewrite_accesses(target.body, buffer, piece, place)
    state.replace(target, target.with_(body=(Alloc(piece), *body)))

    def visit(stmt: Stmt) -> Stmt | None:
        if stmt == Alloc(buffer):
            return None
        return map_inner_blocks(stmt, lambda b: map_block(b, visit))

    state.set_body(map_block(state.kernel.body, visit))
    state.simplify_all()
    return piece
