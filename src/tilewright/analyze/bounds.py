"""What a kernel does to its arrays, checked element by element: subscripts that leave a buffer,
reads of what has no value yet, elements of outputs that are never written.

Everything here is found with an example, and never guessed: an access is judged when its
subscripts, the loops around it and the conditions that it stands under are affine. Others (places
that memory decides, products of symbols) are left to the interpreter, which checks every one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.integer_sets import SetWriter
from tilewright.base.dtype import index
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Compare,
    Const,
    Expr,
    Symbol,
    Unary,
    UnaryOp,
    Var,
)
from tilewright.ir.loop import Alloc, Block, For, Kernel, Stmt, sub_blocks

Names = Mapping[Var, str]
Example = dict[str, int]  # loops and symbols


@dataclass(frozen=True)
class KernelFault:
    """What is wrong, at which statement (None: the kernel as a whole), where for example, and what
    to do about it."""

    what: str
    stmt: Stmt | None
    example: Example
    hint: str

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {value}" for name, value in self.example.items())
        return f"{self.what}{f', for {where}' if where else ''}"


def faults(kernel: Kernel) -> Iterator[KernelFault]:
    """Every fault that can be proven, the plainest kind first."""
    found = list(accesses(kernel.body))
    yield from _outside(found)
    yield from _undefined(found, set(kernel.inputs), _homes(kernel.body, ()))
    yield from unwritten(found, kernel.outputs)


def may_happen(access: Access) -> bool:
    """Whether there is an iteration in which it happens, as far as that can be said."""
    names, writer = _names(access, "x"), SetWriter()
    known = _instances(access, writer, names)
    if known is None or not _is_plain(writer):
        return 0 not in [loop.extent for loop in access.loops]
    return not _set(writer, list(names.values()), known).is_empty()


# ---------------------------------------------------------------- the three questions


def _outside(found: Sequence[Access]) -> Iterator[KernelFault]:
    """Accesses that leave their buffer."""
    for access in found:
        names = _names(access, "x")
        writer = SetWriter()
        known = _instances(access, writer, names)
        beyond = [f"not ({inside})" for inside in _inside(access, names, writer)]
        if known is None or not beyond or not _is_plain(writer):
            continue
        known.append(f"({' or '.join(beyond)})")
        example = _first(_set(writer, names.values(), known), writer, names)
        if example is not None:
            what = f"{_place(access)} is outside of {access.buffer}"
            hint = "put it under a condition, change the loop, or say what sizes there are"
            yield KernelFault(what, access.stmt, example, hint)


def _undefined(
    found: Sequence[Access], inputs: set[Buffer], homes: Mapping[Buffer, tuple[For, ...]]
) -> Iterator[KernelFault]:
    """Reads of elements that no earlier write can have given a value."""
    for access in found:
        if access.buffer in inputs or (access.writes and access.op is None):
            continue
        writes = [w for w in found if w.writes and w.buffer == access.buffer]
        if any(_always_before(w, access) for w in writes):
            continue
        writes = [w for w in writes if not _elsewhere(w, access)]
        example = _without_value(access, writes, homes.get(access.buffer, ()))
        if example is not None:
            how = "accumulated" if access.writes else "read"
            what = f"{_place(access)} is {how} before it has a value"
            yield KernelFault(what, access.stmt, example, "store it before, in every such case")


def _always_before(w: Access, access: Access) -> bool:
    """Whether it is plain that a write of the same element comes first in each iteration."""
    if w.indices != access.indices or not all(loop in access.loops for loop in w.loops):
        return False
    if not all(e in access.conditions for e in w.conditions):
        return False
    differ = ((p, q) for p, q in zip(w.path, access.path, strict=False) if p is not q and p != q)
    p, q = next(differ, (0, 0))
    return isinstance(p, int) and isinstance(q, int) and p < q


def _elsewhere(w: Access, access: Access) -> bool:
    """Whether it is plain that these are two elements."""
    pairs = zip(w.indices, access.indices, strict=True)
    return any(isinstance(i, Const) and isinstance(j, Const) and i != j for i, j in pairs)


def _without_value(
    access: Access, writes: Sequence[Access], home: tuple[For, ...]
) -> Example | None:
    """Values for which a read comes before all writes of its element. A buffer begins anew in each
    iteration of the loops around its allocation, which are its `home`."""
    writer = SetWriter()
    names = _names(access, "x")
    read = _instances(access, writer, names)
    covered: list[list[str]] = []
    for w in writes:
        own = _names(w, "y")
        written = _instances(w, writer, own)
        same = _equal(w, own, access, names, writer)
        if written is None or same is None:
            return None
        same += [f"{own[loop.var]} = {names[loop.var]}" for loop in home]
        before = _earlier(w.path, access.path, own, names)
        if before:
            exists = " and ".join([*written, *same, f"({' or '.join(before)})"])
            covered.append([_exists(own.values(), exists)])
    inside = _inside(access, names, writer)  # beyond its buffer it is another fault
    if read is None or not _is_plain(writer):
        return None
    read += inside
    rest = _set(writer, names.values(), read)
    for known in covered:
        rest = rest.subtract(_set(writer, names.values(), [*read, *known]))
    return _first(rest, writer, names)


def unwritten(found: Sequence[Access], outputs: Sequence[Buffer]) -> Iterator[KernelFault]:
    """Elements of outputs that nothing writes."""
    for buffer in outputs:
        writer = SetWriter()
        elements = {Var(f"e{k}"): f"e{k}" for k in range(len(buffer.shape))}
        sizes = [writer.affine(n, {}) for n in buffer.shape]
        box = [f"0 <= {e} < {n}" for e, n in zip(elements.values(), sizes, strict=True)]
        parts: list[str] = []
        for w in (a for a in found if a.writes and a.buffer == buffer):
            own = _names(w, "y")
            written = _instances(w, writer, own)
            at = [writer.affine(i, own) for i in w.indices]
            if written is None or None in at:
                break
            same = [f"{e} = {i}" for e, i in zip(elements.values(), at, strict=True)]
            parts.append(_exists(own.values(), " and ".join([*written, *same]) or "0 = 0"))
        else:
            if None in sizes or not _is_plain(writer):
                continue
            rest = _set(writer, elements.values(), box)
            for part in parts:
                rest = rest.subtract(_set(writer, elements.values(), [*box, part]))
            example = _first(rest, writer, elements)
            if example is not None:
                place = ", ".join(str(example.pop(e)) for e in elements.values()) or "()"
                hint = "an output is written whole: store what is left, too"
                yield KernelFault(f"{buffer.name}[{place}] is never written", None, example, hint)


# ---------------------------------------------------------------- parts of sets


def _names(access: Access, letter: str) -> dict[Var, str]:
    return {loop.var: f"{letter}{i}" for i, loop in enumerate(access.loops)}


def _instances(access: Access, writer: SetWriter, names: Names) -> list[str] | None:
    """The constraints on the iterations in which an access happens; None if they are not affine."""
    known = []
    for loop in access.loops:
        limit = writer.affine(loop.extent, names)
        if limit is None:
            return None
        known.append(f"0 <= {names[loop.var]} < {limit}")
    for e in access.conditions:
        text = writer.condition(e, names)
        if text is None or not _is_affine(e, writer, names):
            return None
        known.append(f"({text})")
    return known


def _is_affine(e: Expr, writer: SetWriter, names: Names) -> bool:
    """Whether a condition is written whole."""
    if isinstance(e, Unary) and e.op is UnaryOp.NOT:
        return _is_affine(e.a, writer, names)
    if isinstance(e, Binary) and e.op in (BinaryOp.AND, BinaryOp.OR):
        return _is_affine(e.a, writer, names) and _is_affine(e.b, writer, names)
    return (
        isinstance(e, Compare)
        and e.a.dtype == index
        and all(writer.affine(x, names) is not None for x in (e.a, e.b))
    )


def _is_plain(writer: SetWriter) -> bool:
    """Whether everything that is fixed is a symbol: of products of symbols, isl knows nothing."""
    return all(isinstance(e, Symbol) for e in writer.parameters)


def _equal(a: Access, x: Names, b: Access, y: Names, writer: SetWriter) -> list[str] | None:
    """Both touch one element; None if their subscripts are not affine."""
    found = []
    for i, j in zip(a.indices, b.indices, strict=True):
        left, right = writer.affine(i, x), writer.affine(j, y)
        if left is None or right is None:
            return None
        found.append(f"{left} = {right}")
    return found


def _inside(access: Access, names: Names, writer: SetWriter) -> list[str]:
    """The access stays in its buffer, as far as that is affine."""
    pairs = [
        (writer.affine(i, names), writer.affine(n, names))
        for i, n in zip(access.indices, access.buffer.shape, strict=True)
    ]
    return [f"0 <= {i} < {n}" for i, n in pairs if i is not None and n is not None]


def _earlier(a: tuple[int | For, ...], b: tuple[int | For, ...], x: Names, y: Names) -> list[str]:
    """Disjuncts of: time a comes before time b, element by element."""
    found: list[str] = []
    equal: list[str] = ["0 = 0"]
    for p, q in zip(a, b, strict=False):
        if isinstance(p, For) and isinstance(q, For):
            found.append(f"({' and '.join(equal)} and {x[p.var]} < {y[q.var]})")
            equal.append(f"{x[p.var]} = {y[q.var]}")
        elif p != q:
            before = isinstance(p, int) and isinstance(q, int) and p < q
            return [*found, f"({' and '.join(equal)})"] if before else found
    return found


def _homes(block: Block, around: tuple[For, ...]) -> dict[Buffer, tuple[For, ...]]:
    """The loops around each allocation."""
    found: dict[Buffer, tuple[For, ...]] = {}
    for stmt in block:
        if isinstance(stmt, Alloc):
            found[stmt.buffer] = around
        inside = (*around, stmt) if isinstance(stmt, For) else around
        for inner in sub_blocks(stmt):
            found |= _homes(inner, inside)
    return found


def _exists(names: Collection[str], what: str) -> str:
    return f"(exists {', '.join(names)} : {what})" if names else f"({what})"


def _set(writer: SetWriter, names: Iterable[str], known: Sequence[str]) -> isl.Set:
    """The points (symbols, then these names) for which all of this holds."""
    dims = ", ".join([*writer.parameters.values(), *names])
    everything = [*writer.parameter_bounds({}), *known]
    return isl.Set(f"{{ [{dims}] : {' and '.join(everything) or '0 = 0'} }}")


def _first(points: isl.Set, writer: SetWriter, names: Names) -> Example | None:
    """The least point of a set; None if it is empty."""
    if points.is_empty():
        return None
    point = points.lexmin().sample_point()
    spelled = [str(e) for e in writer.parameters] + [var.name for var in names]
    values = (point.get_coordinate_val(isl.dim_type.set, i) for i in range(len(spelled)))
    return {name: int(v.to_python()) for name, v in zip(spelled, values, strict=True)}


def _place(access: Access) -> str:
    return f"{access.buffer.name}[{', '.join(map(str, access.indices)) or '()'}]"
