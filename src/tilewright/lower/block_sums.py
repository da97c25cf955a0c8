"""Long sums in blocks, so that their error does not grow with their length.

    for k in range(n):                  for b in range(n // 512):
        acc[i] += f(k)          ->          part[i] = 0
                                            for k in range(512): part[i] += f(b * 512 + k)
                                            acc[i] += part[i]

and the same once more for the n % 512 that are left. A term then goes through 512 roundings, and
one for each block, instead of n. Allowed because an accumulation may be reordered; done where the
sums fit into a few vector registers, for the parts need as many again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, as_expr
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    map_block,
    map_exprs,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.ir.tensor import neutral

BLOCK = 512  # additions in a row
MOST = 64  # elements that are summed side by side


@dataclass(frozen=True)
class Sum:
    """The accumulation at the end of a perfect nest. `places` are the loops that its element
    depends on; the others, `steps`, add to it. `frame` is the places among the conditions that say
    which elements there are, outermost first."""

    update: Accumulate
    places: tuple[For, ...]
    steps: tuple[For, ...]
    frame: tuple[For | If, ...]


@dataclass(frozen=True)
class _Known:
    """How long the kernel's loops are, and the names that it uses."""

    simplifier: Simplifier
    taken: set[str]


def block_sums(kernel: Kernel) -> Kernel:
    """Sums of floats with more than BLOCK terms in a row, in blocks."""
    taken = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    loops = [s for s in walk_statements(kernel.body) if isinstance(s, For)]
    known = _Known(Simplifier({s.var: s.extent for s in loops}), taken)
    body = map_block(kernel.body, lambda s: _visit(s, known))
    return kernel if body is kernel.body else kernel.with_(body=body)


def _visit(stmt: Stmt, known: _Known) -> Stmt | Block:
    if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
        found = _sum_of(stmt, known.simplifier)
        if found is not None and _is_long(found, known) and _iterations(found, known) > 0:
            return _in_blocks(stmt, found, known)
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZE:
        return stmt  # all lanes would add to one `part`
    return map_inner_blocks(stmt, lambda b: map_block(b, lambda s: _visit(s, known)))


def _sum_of(stmt: For, s: Simplifier) -> Sum | None:
    """The sum that a loop is, if it is nothing else."""
    nest: list[For | If] = []
    at: Stmt = stmt
    while isinstance(at, (For, If)):
        if len(at.body) != 1 or (isinstance(at, If) and at.orelse):
            return None
        nest.append(at)
        at = at.body[0]
    if not isinstance(at, Accumulate) or at.op is not BinaryOp.ADD or not at.value.dtype.is_float:
        return None
    used = frozenset().union(*(variables(i) for i in at.indices))
    if any(isinstance(x, Load) for i in at.indices for x in i.walk()) or stmt.var in used:
        return None
    loops = [x for x in nest if isinstance(x, For)]
    places = tuple(loop for loop in loops if loop.var in used)
    steps = tuple(loop for loop in loops if loop.var not in used)
    frame = _frame(nest, at, {loop.var for loop in steps}, s)
    return None if frame is None else Sum(at, places, steps, frame)


def _frame(
    nest: Sequence[For | If], update: Accumulate, steps: set[Var], s: Simplifier
) -> tuple[For | If, ...] | None:
    """What says which elements there are: the places, and the conditions that no step decides. A
    condition that both decide (the tail of a sum along vectors) is left out, which is right only
    where the elements exist without it; None if they may not."""
    conditions = [(x, variables(x.cond)) for x in nest if isinstance(x, If)]
    both = any(used & steps and used - steps for _, used in conditions)
    if both and not s.in_bounds(update.buffer, update.indices):
        return None
    decided = {id(x) for x, used in conditions if used & steps}
    return tuple(x for x in nest if id(x) not in decided and getattr(x, "var", None) not in steps)


def _is_long(s: Sum, known: _Known) -> bool:
    """Whether more than BLOCK terms are added one by one, to few elements at a time, by loops that
    run in order."""
    beside = 1
    for loop in s.places:
        if not isinstance(loop.extent, int):
            return False
        beside *= loop.extent
    serial = all(loop.kind in (LoopKind.SERIAL, LoopKind.UNROLL) for loop in s.steps)
    return serial and beside <= MOST and _most(s.steps, known) > BLOCK


def _most(loops: Sequence[For], known: _Known) -> float:
    """How often the body of a nest runs at most, as far as that is known."""
    total: float = 1
    for loop in loops:
        most = known.simplifier.bounds(as_expr(loop.extent))[1]
        total *= math.inf if most is None else most
    return total


def _in_blocks(stmt: For, s: Sum, known: _Known) -> Block:
    """The blocks, and what is left over, which is a block too."""
    count = _iterations(s, known)
    extent = as_expr(stmt.extent)
    block, step = (_fresh_var(stmt.var, suffix, known) for suffix in ("block", "step"))
    part = _part(s, known)
    update = s.update.with_(buffer=part, indices=tuple(loop.var for loop in s.places))
    body = map_block(stmt.body, lambda x: _replaced(x, s.update, update))
    inner = stmt.with_(var=step, extent=count, body=_at(body, stmt.var, block * count + step))
    blocks = stmt.with_(
        var=block, extent=known.simplifier.dim(extent // count), body=_summed(inner, s, part, known)
    )
    rest = known.simplifier.dim(extent % count)
    if isinstance(rest, int) and rest == 0:
        return (Alloc(part), blocks)
    start = extent - extent % count
    last = stmt.with_(extent=rest, body=_at(body, stmt.var, start + stmt.var))
    return (Alloc(part), blocks, *_summed(_renamed(last, known), s, part, known))


def _iterations(s: Sum, known: _Known) -> int:
    """How many iterations of the outermost loop have at most BLOCK terms; 0 if one has more."""
    return int(BLOCK // _most(s.steps[1:], known))


def _summed(loop: Stmt, s: Sum, part: Buffer, known: _Known) -> Block:
    """part = 0; the loop, which adds to it; then it is added to the sum."""
    index = tuple(place.var for place in s.places)
    clear = Store(part, index, neutral(BinaryOp.ADD, part.dtype))
    total = s.update.with_(value=Load(part, index))
    return (
        _around(s.places, clear, "clear", known),  # of all lanes: `part` has them
        loop,
        _around(s.frame, total, "total", known),
    )


def _part(s: Sum, known: _Known) -> Buffer:
    shape = tuple(loop.extent for loop in s.places)
    return Buffer(
        _fresh(f"{s.update.buffer.name}_part", known), s.update.value.dtype, shape, "register"
    )


def _around(frame: Sequence[For | If], stmt: Stmt, suffix: str, known: _Known) -> Stmt:
    """A statement in copies of loops and conditions."""
    for outer in reversed(frame):
        if isinstance(outer, For):
            var = _fresh_var(outer.var, suffix, known)
            stmt = outer.with_(var=var, body=_at((stmt,), outer.var, var))
        else:
            stmt = outer.with_(body=(stmt,))
    return stmt


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if stmt is old:
        return new
    return map_inner_blocks(stmt, lambda b: map_block(b, lambda s: _replaced(s, old, new)))


def _at(body: Block, var: Var, value: Expr) -> Block:
    """The statements with an expression for a variable."""
    return tuple(map_exprs(s, lambda e: substitute(e, {var: value})) for s in body)


def _renamed(stmt: Stmt, known: _Known) -> Stmt:
    """A copy of a nest, with loop variables of its own."""
    if isinstance(stmt, For):
        var = _fresh_var(stmt.var, "last", known)
        stmt = stmt.with_(var=var, body=_at(stmt.body, stmt.var, var))
    return map_inner_blocks(stmt, lambda b: map_block(b, lambda s: _renamed(s, known)))


def _fresh_var(var: Var, suffix: str, known: _Known) -> Var:
    return Var(_fresh(f"{var.name}_{suffix}", known))


def _fresh(name: str, known: _Known) -> str:
    unique, n = name, 1
    while unique in known.taken:
        unique, n = f"{name}_{n}", n + 1
    known.taken.add(unique)
    return unique
