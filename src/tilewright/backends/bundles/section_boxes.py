"""What sections touch of memory: boxes of bytes, from the places of their operations.

A box steps with the loops inside of a section. Where a place wraps, as in a ring buffer, there is a
box for each value that it can have. Boxes may be larger than what is touched, never smaller.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.analyze.linear import Linear, add, constant, linear, scaled, to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.bundles.operations import Body, Operand, OperationLoop
from tilewright.backends.bundles.sections import Section
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.touched import OperandUse, Touched, Use, in_order, parts_of
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Binary, Buffer, Const, Expr, Var, binary, const
from tilewright.ir.substitute import variables

MOST = 256  # values of a wrapping place that are told apart; beyond, it is the whole buffer


@dataclass(frozen=True)
class _Box:
    """Bytes of a buffer: from `start` on, which depends on the loops around the section, `length`
    side by side, repeated along `axes` (count, step). All of them are touched where it is exact."""

    buffer: Buffer
    start: Expr
    length: int
    axes: tuple[tuple[int, int], ...]
    writes: bool
    exact: bool


def program_touched(stream: Stream, sections: Sequence[Section]) -> Touched:
    """What every instruction of a stream touches, transfers and sections."""
    by_name = {s.instruction.name: s for s in sections}
    parts = []
    for k, site in enumerate(stream.sites):
        section = by_name.get(site.instruction.name)
        if section is not None:
            parts += [_part(stream, k, box) for box in _boxes(section.body)]
        else:
            parts += parts_of(stream, [k])
    return in_order(parts)


def _part(stream: Stream, k: int, box: _Box) -> OperandUse:
    """A box for every instruction of a site."""
    rows, site = stream.rows(k), stream.sites[k]
    n, place = len(rows), stream.places[box.buffer]
    fields = enumerate(site.instruction.fields)
    env = {Var(f.symbol.name): stream.fields[rows, c] for c, f in fields}
    start = place.offset + np.broadcast_to(evaluate_expr(box.start, env, {}), (n,))
    axes = np.array([*box.axes, (box.length, 1)], np.int64)
    memory = [m.name for m in stream.target.memories].index(place.memory)
    operand = [r.buffer for r in site.call.regions].index(box.buffer)
    extents, steps = (np.tile(axes[:, c], (n, 1)) for c in (0, 1))
    flags = (np.full(n, x) for x in (not box.writes, box.writes, box.exact))
    return OperandUse(
        Use(site.instruction, operand, None, None), rows, memory, start, extents, steps, *flags
    )


@dataclass(frozen=True)
class _Group:
    """Places of a buffer that move alike: `form` is how, without constants."""

    buffer: Buffer
    form: frozenset[tuple[Expr, int]]
    span: int
    loops: tuple[tuple[Var, int], ...]
    reads: bool
    writes: bool


def _boxes(body: Body) -> list[_Box]:
    groups: dict[_Group, set[int]] = {}
    for operand, loops in _operands(body, ()):
        form = frozenset((a, k) for a, k in operand.start.items() if a is not None)
        counts = tuple((loop.var, loop.count) for loop in loops)
        group = _Group(operand.buffer, form, operand.span, counts, operand.reads, operand.writes)
        groups.setdefault(group, set()).add(operand.start.get(None, 0))
    written = {g.buffer for g in groups if g.writes}
    found: dict[_Box, None] = {}
    for group, constants in groups.items():
        for box in _boxes_of(group, np.array(sorted(constants))):
            if group.reads:  # perhaps only what the section itself has written
                exact = box.exact and group.buffer not in written
                found[replace(box, writes=False, exact=exact)] = None
            if group.writes:
                found[box] = None
    return list(found)


def _operands(
    body: Body, loops: tuple[OperationLoop, ...]
) -> Iterator[tuple[Operand, tuple[OperationLoop, ...]]]:
    """The operands in memory, with the loops around them."""
    for item in body.items:
        if isinstance(item, OperationLoop):
            yield from _operands(item.body, (*loops, item))
        else:
            yield from ((o, loops) for o in item.operands if not o.row)


def _boxes_of(group: _Group, constants: np.ndarray) -> Iterator[_Box]:
    counts = dict(group.loops)
    outer: Linear = {}
    inner: Linear = {}
    options: list[list[Linear]] = []  # of places that wrap: what they can be
    for atom, k in group.form:
        used = variables(atom)
        if not used & set(counts):
            outer[atom] = k
        elif used <= set(counts):
            inner[atom] = k
        else:
            values = _wrapped(atom, counts)
            if values is None:
                yield _whole(group.buffer)
                return
            options.append([scaled(linear(v), k) for v in values])
    simplifier = Simplifier()
    exact = len(options) < 2  # of several, not every combination need happen
    for low, length, axes in _offsets(group.span, inner, counts, constants):
        for chosen in itertools.product(*options):
            start = add(outer, constant(low))
            for term in chosen:
                start = add(start, term)
            yield _Box(group.buffer, simplifier(to_expr(start)), length, axes, True, exact)


def _whole(buffer: Buffer) -> _Box:
    count = math.prod(n for n in buffer.shape if isinstance(n, int))
    return _Box(buffer, const(0), count * buffer.dtype.bytes, (), True, False)


def _wrapped(atom: Expr | None, counts: Mapping[Var, int]) -> list[Expr] | None:
    """All that (i + o) % n or (i + o) // n can be, for what is inside of a section (i) and outside
    (o); None for anything else."""
    if not isinstance(atom, Binary) or not isinstance(atom.b, Const):
        return None
    form = linear(atom.a)
    inside: Linear = {a: k for a, k in form.items() if a is not None and variables(a) & set(counts)}
    if any(variables(a) - set(counts) for a in inside if a is not None):
        return None
    outside = {a: k for a, k in form.items() if a not in inside}
    values = np.unique(_values(inside, counts))
    if len(values) > MOST:
        return None
    return [binary(atom.op, to_expr(add(outside, constant(int(v)))), atom.b) for v in values]


def _values(form: Linear, counts: Mapping[Var, int]) -> np.ndarray:
    """What a form is, for all iterations of the loops that it uses."""
    used = sorted(variables(to_expr(form)), key=lambda v: v.name)
    shape = [counts[v] for v in used]
    env: dict[Expr, np.ndarray] = {
        v: np.arange(n).reshape([-1 if d == k else 1 for d in range(len(used))])
        for k, (v, n) in enumerate(zip(used, shape, strict=True))
    }
    return np.broadcast_to(evaluate_expr(to_expr(form), env, {}), shape)


def _offsets(
    span: int, inner: Linear, counts: Mapping[Var, int], constants: np.ndarray
) -> Iterator[tuple[int, int, tuple[tuple[int, int], ...]]]:
    """Boxes of what the loops of a section add to places: beginning, bytes side by side, and axes.
    Loops that stand in more than linear terms are written out."""
    bent = {a: k for a, k in inner.items() if not isinstance(a, Var)}
    mixed = set().union(*(variables(a) for a in bent if a is not None))
    bent |= {a: k for a, k in inner.items() if a in mixed}
    loops = {a: k for a, k in inner.items() if isinstance(a, Var) and a not in mixed}
    even = [(k, counts[a]) for a, k in loops.items() if a in counts]
    low, length, axes = _spread(span, even)
    moves = np.unique(_values(bent, counts)) if bent else np.zeros(1, np.int64)
    starts = np.unique(moves[:, None] + constants) + low
    if axes:  # one box for each beginning
        yield from ((int(at), length, axes) for at in starts)
        return
    cuts = np.flatnonzero(np.diff(starts) > length) + 1
    runs = [(int(run[0]), int(run[-1] - run[0]) + length) for run in np.split(starts, cuts)]
    step = runs[1][0] - runs[0][0] if len(runs) > 1 else 0
    if all(run == (runs[0][0] + i * step, runs[0][1]) for i, run in enumerate(runs)):
        yield runs[0][0], runs[0][1], ((len(runs), step),) if step else ()
    else:
        yield from ((at, size, ()) for at, size in runs)


def _spread(
    span: int, steps: list[tuple[int, int]]
) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """Where a place begins, how many bytes lie side by side, and the axes along which these are
    repeated, for steps (bytes, count) of loops."""
    low = sum(step * (count - 1) for step, count in steps if step < 0)
    axes: list[tuple[int, int]] = []
    for step, count in sorted((abs(step), count) for step, count in steps if step and count > 1):
        if not axes and step <= span:
            span += step * (count - 1)
        else:
            axes.append((count, step))
    return low, span, tuple(reversed(axes))
