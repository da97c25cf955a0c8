"""Kernels of several contractions as kernels of one each, one after the other: what passes between
them lies in the memory outside.

    M = f(sum of X * V)          piece 1: X, V -> M
    Y = g(sum of M * W)    ->    piece 2: M, W -> Y

A reduction after a contraction begins a piece, too. Where a unit cannot guard its reads of M, M has
a border, and the piece before writes inside of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import DRAM, BinaryOp, Buffer, Expr, Load, Var
from tilewright.ir.loop import Alloc, For, Kernel, Stmt, Store, walk_statements
from tilewright.plan.borders import Border, choose_borders, with_borders
from tilewright.plan.unit_form import fresh, sizes_of
from tilewright.target.target import Target


@dataclass(frozen=True)
class Join:
    """An array of which others, by their names, are the parts, side by side along an axis, of so
    many places each."""

    result: Buffer
    parts: tuple[str, ...]
    axis: int
    sizes: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The array's and those of its parts."""
        return (self.result.name, *self.parts)


@dataclass(frozen=True)
class Split:
    """Kernels in their order; of each array that passes between them, by name, its border; the
    names of those that have to lie row by row; and arrays that others of them make up."""

    pieces: tuple[Kernel, ...]
    borders: Mapping[str, Border] = field(default_factory=dict)
    in_order: frozenset[str] = frozenset()
    joins: tuple[Join, ...] = ()

    @property
    def passed(self) -> dict[str, Buffer]:
        """The arrays that pass between pieces, with their borders."""
        parts = {name for join in self.joins for name in join.parts}
        made = [b for p in self.pieces for b in p.outputs]
        last = () if made[-1].name in parts else made[-1:]
        return {b.name: b for b in (*made, *(j.result for j in self.joins)) if b not in last}

    @property
    def joined(self) -> Join | None:
        """What others make up, if that is the result of all."""
        read = {b.name for p in self.pieces for b in p.inputs}
        read |= {name for join in self.joins for name in join.parts}
        return next((j for j in self.joins if j.result.name not in read), None)


def split_kernel(kernel: Kernel, target: Target) -> Split:
    """A kernel in normal form in pieces. ScheduleError where a piece would have several results, or
    what passes between pieces would have several borders."""
    if len(kernel.outputs) != 1:
        raise ScheduleError(
            f"{kernel.name} has {len(kernel.outputs)} results, and what a chip does in pieces has"
            " one",
            program=kernel,
            hint="make a kernel for each",
        )
    groups = _groups(nests(kernel.body))
    if sum(map(len, groups)) < sum(not isinstance(s, Alloc) for s in kernel.body):
        raise ScheduleError(
            f"{kernel.name} has several contractions, and loops that compute more than one array",
            program=kernel,
            hint="give each array a nest of loops of its own",
        )
    return with_passed_borders([_piece(kernel, groups, k) for k in range(len(groups))], target)


# ---------------------------------------------------------------- which nests


def check_written_once(kernel: Kernel) -> None:
    """Refuses arrays of a kernel in normal form of which several nests make a part each: what a
    chip does at once makes all of an array."""
    seen: set[Buffer] = set()
    for nest in nests(kernel.body):
        if nest.buffer in seen:
            raise ScheduleError(
                f"{nest.buffer.name} is computed in several parts, and a chip's tiles need one nest"
                " of loops for each array",
                program=kernel,
                hint="make a kernel of each part",
            )
        seen.add(nest.buffer)


def has_pieces(kernel: Kernel) -> bool:
    """Whether a kernel has several contractions, or reductions behind one."""
    groups = _groups(nests(kernel.body))
    products = sum(map(is_contraction, nests(kernel.body)))
    return products > 1 or (products == 1 and not is_contraction(groups[-1][0]))


def _groups(every: Sequence[Nest]) -> list[list[Nest]]:
    """Nests that become one piece: a contraction and what makes an array of its sums, or others."""
    groups: list[list[Nest]] = []
    for nest in every:
        last = groups[-1] if groups else []
        if not last or not _belongs(nest, last):
            groups.append([nest])
        else:
            last.append(nest)
    return groups


def _belongs(nest: Nest, group: Sequence[Nest]) -> bool:
    """Whether a nest is done with those before it."""
    if is_contraction(nest):
        return False
    if not is_contraction(group[0]):
        return True
    reads = {x.buffer for w in nest.writes for x in w.walk() if isinstance(x, Load)}
    return len(group) == 1 and nest.update is None and group[0].buffer in reads


def is_contraction(nest: Nest) -> bool:
    """Whether a nest adds up products of elements of two arrays."""
    update = nest.update
    pair = guarded_factors(update.value) if update is not None else None
    return update is not None and update.op is BinaryOp.ADD and pair is not None


def _piece(kernel: Kernel, groups: Sequence[Sequence[Nest]], k: int) -> Kernel:
    """The kernel of a group, of whose arrays others may need one."""
    own = groups[k]
    written = {n.buffer for n in own}
    later = {b for group in groups[k + 1 :] for n in group for b in _read(n)}
    results = [b for b in dict.fromkeys(n.buffer for n in own) if b in later or b in kernel.outputs]
    if len(results) != 1:
        names = " and ".join(b.name for b in results)
        raise ScheduleError(
            f"{names} are computed together, and what a chip does of {kernel.name} at once has one"
            " result",
            program=kernel,
            hint="make kernels of its contractions",
        )
    (result,) = results
    read = dict.fromkeys(b for n in own for b in _read(n) if b not in written)
    order = [b for b in kernel.inputs if b in read] + [b for b in read if b not in kernel.inputs]
    local = [Alloc(b) for b in written if b != result and b not in kernel.params]
    outside = {b: b.with_(memory=DRAM) for b in (*order, result)}
    body = (*local, *(n.stmt for n in own))
    for old, new in outside.items():
        body = rewrite_accesses(body, old, new, lambda at: at) if new != old else body
    return kernel.with_(
        name=f"{kernel.name}_{k + 1}",
        inputs=tuple(outside[b] for b in order),
        outputs=(outside[result],),
        scratch=(),
        body=body,
    )


def _read(nest: Nest) -> Iterator[Buffer]:
    for stmt in walk_statements((nest.stmt,)):
        yield from (x.buffer for x in stmt.walk() if isinstance(x, Load))


# ---------------------------------------------------------------- borders


def with_passed_borders(
    kernels: Sequence[Kernel], target: Target, joins: Sequence[Join] = (), *, room: bool = False
) -> Split:
    """The pieces with borders around what passes between them, where readers need any; with `room`
    for the other parts behind what becomes part of an array. ScheduleError where readers need
    different numbers there."""
    pieces = list(kernels)
    passed = Split(tuple(pieces), joins=tuple(joins)).passed
    wanted: dict[str, list[tuple[int, Border, Buffer]]] = {}
    for k, piece in enumerate(pieces):
        needs = set(choose_borders(piece, target)[1]) & set(passed)
        wider, borders = with_borders(piece, needs) if needs else (piece, {})
        pieces[k] = wider
        for name, border in borders.items():
            (buffer,) = (b for b in wider.inputs if b.name == name)
            wanted.setdefault(name, []).append((k, border, buffer))
    found: dict[str, Border] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, readers in wanted.items():
        fills = list(dict.fromkeys(border.fill for _, border, _ in readers))
        if len(fills) > 1:
            raise ScheduleError(
                f"{name} is read with {fills[0]} around it, and with {fills[1]}, and has one"
                " border",
                program=kernels[-1],
                hint="make kernels of what reads it: the host can put other borders around it",
            )
        _check_axes(name, passed, pieces)
        found[name] = _one_border([border for _, border, _ in readers])
        shapes[name] = _around(passed[name], readers, found[name])
    _share_borders(pieces, passed, found, shapes)
    for join in (*joins, *joins[::-1]):  # what a part needs, the whole has, and the other parts
        _join_borders(join, passed, found, shapes)
    for join in joins[::-1] if room else ():  # what the whole has room for, its parts have
        for name in join.parts:
            shape = list(shapes.get(name, sizes_of(passed[name])))
            shape[join.axis] = shapes.get(join.result.name, sizes_of(join.result))[join.axis]
            found.setdefault(name, Border((0,) * len(shape)))
            shapes[name] = tuple(shape)
    for name, border in found.items():
        _check_axes(name, passed, pieces)
        before = {k: border.before for k, border, _ in wanted.get(name, ())}
        for k, piece in enumerate(pieces):
            pieces[k] = _inside(piece, name, shapes[name], border, before.get(k))
    wide = [replace(j, result=_wider(j.result, shapes)) for j in joins]
    return Split(tuple(pieces), found, joins=tuple(wide))


def _check_axes(name: str, passed: Mapping[str, Buffer], pieces: Sequence[Kernel]) -> None:
    """ScheduleError if an array that is to have a border, or room, is read by other axes."""
    held = [passed[name], *(b for p in pieces for b in p.params if b.name == name)]
    if len({len(b.shape) for b in held}) > 1:
        raise ScheduleError(
            f"{name} is read with a border, and in another shape, which has none",
            program=pieces[-1],
            hint="make two kernels of it: the host can rearrange what passes between them",
        )


def _wider(b: Buffer, shapes: Mapping[str, tuple[int, ...]]) -> Buffer:
    return b.with_(shape=shapes.get(b.name, b.shape))


def _join_borders(
    join: Join,
    passed: Mapping[str, Buffer],
    found: dict[str, Border],
    shapes: dict[str, tuple[int, ...]],
) -> None:
    """Gives an array and its parts the same border. ScheduleError where they need different numbers
    there, or one between parts."""
    known = [name for name in join.names if name in found]
    if not known:
        return
    fills = {found[name].fill for name in known}
    between = any(
        found[name].before[join.axis] or shapes[name][join.axis] != passed[name].shape[join.axis]
        for name in known
    )
    if len(fills) > 1 or between:
        raise ScheduleError(
            f"the parts of {join.result.name} have to lie side by side, and are read with a border"
            " between them, or with others around them",
            hint="make kernels of what reads it: the host can put other borders around it",
        )
    border = _one_border([found[name] for name in known])
    wide = {name: shapes.get(name, sizes_of(passed[name])) for name in join.names}
    none = (0,) * len(border.before)
    starts = {name: found[name].before if name in found else none for name in join.names}
    ends = [[n - m for n, m in zip(wide[x], starts[x], strict=True)] for x in join.names]
    far = [max(each) for each in zip(*ends, strict=True)]
    for name in join.names:
        found[name] = border
        shape = [m + n for m, n in zip(border.before, far, strict=True)]
        shape[join.axis] = wide[name][join.axis]
        shapes[name] = tuple(shape)


def _share_borders(
    pieces: Sequence[Kernel],
    passed: Mapping[str, Buffer],
    found: dict[str, Border],
    shapes: dict[str, tuple[int, ...]],
) -> None:
    """Gives arrays of one shape and type that are read together the same border: what lies alike
    can be brought as parts of one array (stacked_inputs.py)."""
    sums = [p for p in pieces if not any(map(is_contraction, nests(p.body)))]
    pairs = [
        (a.name, b.name) for p in sums for a in p.inputs for b in p.inputs
        if _may_share(passed, found, a.name, b.name, pieces)
    ]  # fmt: skip
    for a, b in pairs * len(sums):  # what one of them shares, the next may hand on
        known = [x for x in (a, b) if x in found]
        if len({found[x].fill for x in known}) == 1:
            ends = [[n - m for n, m in zip(shapes[x], found[x].before, strict=True)] for x in known]
            far = [max(each) for each in zip(*ends, strict=True)]
            found[a] = found[b] = border = _one_border([found[x] for x in known])
            shapes[a] = shapes[b] = tuple(m + n for m, n in zip(border.before, far, strict=True))


def _may_share(
    passed: Mapping[str, Buffer],
    found: Mapping[str, Border],
    a: str,
    b: str,
    pieces: Sequence[Kernel],
) -> bool:
    """Whether two arrays that pass have the same shape and type, in all pieces."""
    if a == b or not {a, b} <= passed.keys():
        return False
    shape, dtype = passed[a].shape, passed[a].dtype
    named = [x for p in pieces for x in p.params if x.name in (a, b) and x.name not in found]
    return (passed[b].shape, passed[b].dtype) == (shape, dtype) and all(
        x.shape == shape for x in named
    )


def _one_border(borders: Sequence[Border]) -> Border:
    """The border that is enough for all."""
    before = tuple(max(sizes) for sizes in zip(*(b.before for b in borders), strict=True))
    return Border(before, borders[0].fill)


def _around(
    inner: Buffer, readers: Sequence[tuple[int, Border, Buffer]], border: Border
) -> tuple[int, ...]:
    """The shape with borders: as far as any reader goes."""
    ends = [
        [int(n) - b for n, b in zip(buffer.shape, own.before, strict=True)]
        for _, own, buffer in readers
    ]
    far = [max(int(n), *each) for n, *each in zip(inner.shape, *ends, strict=True)]
    return tuple(b + n for b, n in zip(border.before, far, strict=True))


def _with_copy(piece: Kernel, result: Buffer) -> Kernel:
    """A piece that computes an array of its own if its result is a reduction, and copies that."""
    (nest,) = (n for n in nests(piece.body) if n.buffer == result)
    if nest.update is None:
        return piece
    names = {x.name for x in piece.walk() if isinstance(x, (Var, Buffer))}
    own = result.with_(name=fresh(f"{result.name}_inside", names))
    body = rewrite_accesses(piece.body, result, own, lambda at: at)
    loops = [Var(fresh(x.var.name, names)) for x in nest.axes]
    at = tuple(loops)
    copy: Stmt = Store(result, at, Load(own, at))
    for var, n in zip(reversed(loops), reversed(result.shape), strict=True):
        copy = For(var, n, (copy,))
    return piece.with_(body=(Alloc(own), *body, copy))


def _inside(
    piece: Kernel, name: str, shape: tuple[int, ...], border: Border, before: object
) -> Kernel:
    """A piece that reads or writes an array where it is inside of its border; `before` is the
    border that its reads count with already."""
    for buffer in piece.params:
        if buffer.name != name:
            continue
        if buffer in piece.outputs:
            piece = _with_copy(piece, buffer)
        had = before if isinstance(before, tuple) else (0,) * len(shape)
        by = [b - h for b, h in zip(border.before, had, strict=True)]
        new = buffer.with_(shape=shape)

        def place(at: tuple[Expr, ...], by: list[int] = by) -> tuple[Expr, ...]:
            return tuple(i + b for i, b in zip(at, by, strict=True))

        body = rewrite_accesses(piece.body, buffer, new, place)
        piece = piece.with_(
            inputs=tuple(new if b == buffer else b for b in piece.inputs),
            outputs=tuple(new if b == buffer else b for b in piece.outputs),
            body=body,
        )
    return piece
