"""Kernels in the form of contractions: a nest of loops for each buffer, sums that begin with 0, and
what follows them in one expression. What they compute is the same, to the bit.

    for i, j:                                  for i, j:
        acc = b[j]                                 acc[i, j] = 0
        for k: acc += A[i, k] * B[k, j]    ->      for k: acc[i, j] += A[i, k] * B[k, j]
        C[i, j] = max(acc, 0)                  for i, j: C[i, j] = max(acc[i, j] + b[j], 0)

What an iteration has for itself becomes an array (scalar expansion), and loops are distributed over
what they do (Allen and Kennedy, Optimizing Compilers for Modern Architectures, 2001, chapter 5);
what is written anew becomes another buffer; what sums of integers begin with is added to them; an
intermediate that is read once is computed where it is read; a number that is converted is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations

from tilewright.analyze.accesses import accesses
from tilewright.analyze.nests import Nest, nest_of, nests
from tilewright.analyze.rewrite import rewrite_accesses, uses
from tilewright.ir.expr import DRAM, BinaryOp, Buffer, Const, Expr, Load, Var, const
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    buffers_written,
    loads,
    map_block,
    map_exprs,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.schedule.core.state import attempt
from tilewright.schedule.match.neutral import as_number
from tilewright.schedule.primitives.loops import copy_block
from tilewright.schedule.schedule import Schedule


def normal_form(kernel: Kernel) -> Kernel:
    """The kernel in that form, as far as it can be; itself if it is."""
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    body = map_block(kernel.body, lambda s: map_exprs(s, lambda e: rewrite(e, as_number)))
    kernel = kernel if body is kernel.body else kernel.with_(body=body)
    body = map_block(kernel.body, _distributed)
    loops = [x.var for x in walk_statements(body) if isinstance(x, For)]
    body = body if len(loops) == len(set(loops)) else _with_own_names(body, set(), names)
    body = _written_once(kernel, body, names)
    body = _from_zero(kernel, body, names)
    return _inlined(kernel if body is kernel.body else kernel.with_(body=body))


def _fresh(buffer: Buffer, names: set[str]) -> Buffer:
    """A local buffer like one."""
    name, n = f"{buffer.name}_sum", 1
    while name in names:
        name, n = f"{buffer.name}_sum_{n}", n + 1
    names.add(name)
    return buffer.with_(name=name, memory=DRAM)


# ---------------------------------------------------------------- loops


def _distributed(stmt: Stmt) -> Stmt | Block:
    """A loop, of the same variable, for each buffer that a loop computes, where iterations do not
    depend on each other."""
    if not isinstance(stmt, For):
        return stmt
    body = map_block(stmt.body, _distributed)
    loop = stmt if body is stmt.body else stmt.with_(body=body)
    rest = tuple(s for s in body if not isinstance(s, Alloc))
    if not isinstance(loop.extent, int) or any(isinstance(s, If) for s in rest):
        return loop
    expanded = []
    for buffer in (s.buffer for s in body if isinstance(s, Alloc)):
        array = buffer.with_(shape=(loop.extent, *buffer.shape))
        rest = rewrite_accesses(rest, buffer, array, lambda at: (loop.var, *at))
        expanded.append(Alloc(array))
    groups = _groups(rest)
    pairs = combinations(groups, 2)
    if len(groups) < 2 or not all(_apart(loop.var, a, b) for a, b in pairs):
        return loop
    return (*expanded, *(loop.with_(body=group) for group in groups))


def _with_own_names(block: Block, seen: set[Var], names: set[str]) -> Block:
    """The block, with a variable of its own for each loop."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, For) and stmt.var in seen:
            out += copy_block((stmt,), names)
        elif isinstance(stmt, For):
            seen.add(stmt.var)
            out.append(stmt.with_(body=_with_own_names(stmt.body, seen, names)))
        else:
            out.append(stmt)
    return tuple(out)


def _groups(block: Block) -> list[Block]:
    """The statements that write the same, together; in an order that does what the block does."""
    groups: list[Block] = []
    for stmt in block:
        written = buffers_written((stmt,))
        for k in reversed(range(len(groups))):
            if buffers_written(groups[k]) == written:
                groups[k] = (*groups[k], stmt)
                break
            if _shared(groups[k], (stmt,)):
                groups.append((stmt,))
                break
        else:
            groups.append((stmt,))
    return groups


def _shared(a: Block, b: Block) -> set[Buffer]:
    """The buffers that both touch, and one of them writes."""
    touched = ({x.buffer for x in accesses(block)} for block in (a, b))
    return set.intersection(*touched) & (buffers_written(a) | buffers_written(b))


def _apart(var: Var, a: Block, b: Block) -> bool:
    """Whether an iteration of a loop over both touches only what is its own of what they share."""
    for buffer in _shared(a, b):
        places = [x.indices for x in accesses((*a, *b)) if x.buffer == buffer]
        if not any(all(at[d] == var for at in places) for d in range(len(buffer.shape))):
            return False
    return True


# ---------------------------------------------------------------- buffers


def _written_once(kernel: Kernel, body: Block, names: set[str]) -> Block:
    """What a nest computes of a buffer in place, it computes of another one."""
    for k, stmt in enumerate(body):
        nest = nest_of(stmt)
        before = buffers_written(body[:k])
        if nest is None or nest.buffer not in before or nest.buffer in kernel.inputs:
            continue
        if _is_anew(nest):
            old = _fresh(nest.buffer, names)
            earlier = rewrite_accesses(body[:k], nest.buffer, old, lambda at: at)
            place = Alloc(nest.buffer if Alloc(old) in earlier else old)
            new = map_exprs(stmt, partial(_redirected, old=nest.buffer, new=old))
            return _written_once(kernel, (place, *earlier, new, *body[k + 1 :]), names)
    return body


def _is_anew(nest: Nest) -> bool:
    """Whether a nest writes all of a buffer, each element once, of that element at most."""
    store, extents = nest.store, {x.var: x.extent for x in nest.axes}
    if len(nest.writes) > 1 or not isinstance(store, Store) or nest.reduce:
        return False
    if any(isinstance(s, If) for s in walk_statements((nest.stmt,))):
        return False
    covered = [extents.get(i) if isinstance(i, Var) else None for i in store.indices]
    if covered != list(store.buffer.shape) or len({*store.indices}) < len(store.indices):
        return False
    reads = [x for x in loads(store.value) if x.buffer == store.buffer]
    return all(x.indices == store.indices for x in reads)


def _redirected(e: Expr, old: Buffer, new: Buffer) -> Expr:
    def other(x: Expr) -> Expr:
        return Load(new, x.indices) if isinstance(x, Load) and x.buffer == old else x

    return rewrite(e, other)


# ---------------------------------------------------------------- sums


def _from_zero(kernel: Kernel, body: Block, names: set[str]) -> Block:
    """Sums of integers begin with 0; who reads them adds what they began with."""
    for k, stmt in enumerate(body):
        nest = nest_of(stmt)
        if nest is None or not _begins_with_more(nest, body):
            continue
        at, first = nest.store.indices, nest.store.value
        zero = map_block((stmt,), partial(_with_zero, store=nest.store))
        if nest.buffer in kernel.outputs:
            sums = _fresh(nest.buffer, names)
            zero = rewrite_accesses(zero, nest.buffer, sums, lambda indices: indices)
            last: Stmt = Store(nest.buffer, at, Load(sums, at) + first)
            for loop in reversed(nest.axes):
                last = loop.with_(body=(last,))
            after = (*copy_block((last,), names), *body[k + 1 :])
            return _from_zero(kernel, (Alloc(sums), *body[:k], *zero, *after), names)
        after = _adding(body[k + 1 :], nest.buffer, at, first)
        return _from_zero(kernel, (*body[:k], *zero, *after), names)
    return body


def _begins_with_more(nest: Nest, body: Block) -> bool:
    """Whether a nest's sums of integers begin with something but 0, which can be had later."""
    store, update = nest.store, nest.update
    if update is None or update.op is not BinaryOp.ADD or len(nest.writes) != 2:
        return False
    if not isinstance(store, Store) or not nest.buffer.dtype.is_integer:
        return False
    if isinstance(store.value, Const) and store.value.value == 0:
        return False
    written = [s for s in body if nest.buffer in buffers_written((s,))]
    read = {x.buffer for x in loads(store.value)}
    at = store.indices
    return (
        len(written) == 1
        and all(isinstance(i, Var) for i in at)
        and len({*at}) == len(at)
        and variables(store.value) <= {*at}
        and read.isdisjoint(buffers_written(body))
        and not any(isinstance(s, If) for s in walk_statements((nest.stmt,)))
    )


def _with_zero(stmt: Stmt, store: Stmt) -> Stmt:
    if stmt == store and isinstance(stmt, Store):
        return stmt.with_(value=const(0, stmt.buffer.dtype))
    if isinstance(stmt, For):
        return stmt.with_(body=map_block(stmt.body, lambda s: _with_zero(s, store)))
    return stmt


def _adding(block: Block, sums: Buffer, at: Sequence[Expr], first: Expr) -> Block:
    """The block, reading the sums with what they began with."""

    def more(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != sums:
            return e
        return e + substitute(first, dict(zip(at, e.indices, strict=True)))

    return map_block(block, lambda stmt: map_exprs(stmt, lambda e: rewrite(e, more)))


# ---------------------------------------------------------------- intermediates


def _inlined(kernel: Kernel) -> Kernel:
    """Without the intermediates that one expression reads once, but for sums and what they add."""
    s = Schedule(kernel)
    for buffer in s.allocations():
        found = [n for n in nests(s.kernel.body) if uses(n.stmt, buffer)]
        reads = [x for n in found for w in n.writes for x in loads(w.value) if x.buffer == buffer]
        if len(reads) == 1 and all(n.update is None for n in found):
            attempt(s.inline, buffer)
    return s.kernel if s.trace else kernel
