"""Issue programs to streams: the instructions that a chip is given, all at once, as arrays.

A stream has one row for each instruction in program order. Rows of one call of the program are
filled together: the loops around it become index arrays, and every field and address is computed
for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.analyze.accesses import accesses
from tilewright.analyze.linear import Linear, step_along, to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.stream.addresses import Place, check_sizes, place_buffers
from tilewright.base.errors import CompileError
from tilewright.base.node import cached_property
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import (
    Buffer,
    CompareOp,
    Dim,
    Expr,
    Var,
    as_expr,
    compare,
    const,
    constant_value,
)
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Alloc, Block, Call, For, If, Kernel, Stmt, walk_statements
from tilewright.ir.substitute import substitute, variables
from tilewright.target.target import Target


@dataclass(frozen=True, eq=False)
class Site:
    """A call of the program, and where its operands step in memory.

    `steps[o][d]` is how many bytes a step along axis d of operand o is. Where a list of
    micro-operations has the steps, that is 0, and `listed[o]` says how many elements from the
    operand's first the entry `_d` is."""

    call: Call
    memories: tuple[str, ...]
    steps: tuple[tuple[int, ...], ...]
    listed: tuple[Expr | None, ...] = ()

    @property
    def instruction(self) -> Instruction:
        return self.call.instruction

    @cached_property
    def offsets(self) -> tuple[np.ndarray | None, ...]:
        """Bytes from each operand's first element to each entry of its list."""
        operands = self.instruction.operands
        return tuple(_offsets(self.call, b, x) for b, x in zip(operands, self.listed, strict=False))

    @property
    def entries(self) -> int:
        """Micro-operations in the list of a call; 0 for an instruction without."""
        return max((len(o) for o in self.offsets if o is not None), default=0)


@dataclass(frozen=True, eq=False)
class Stream:
    """n instructions: the site of each [n], its fields [n, most fields], and the address of the
    first element of each operand [n, most operands], in bytes from the start of its memory.

    `lists` is where the list of micro-operations of each instruction begins [n], in entries; -1 for
    those without. `constants` is what some buffers hold from the start.

    Where several cores run it (stream/cores.py), `shifts` is how many bytes further the operands
    of each site lie for each of them [cores, sites, most operands]; without, one core runs it."""

    target: Target
    sites: tuple[Site, ...]
    site: np.ndarray
    fields: np.ndarray
    addresses: np.ndarray
    places: Mapping[Buffer, Place]
    sizes: Mapping[str, int]  # bytes used of each memory
    lists: np.ndarray
    constants: Mapping[Buffer, np.ndarray] = field(default_factory=dict)
    shifts: np.ndarray | None = None

    @property
    def cores(self) -> int:
        """How many cores run it."""
        return 1 if self.shifts is None else len(self.shifts)

    def __len__(self) -> int:
        return len(self.site)

    def rows(self, k: int) -> np.ndarray:
        """The rows of site k."""
        return self._by_site[k]

    @cached_property
    def _by_site(self) -> list[np.ndarray]:
        """The rows of each site."""
        order = np.argsort(self.site, kind="stable")
        counts = np.bincount(self.site, minlength=len(self.sites))
        return np.split(order, np.cumsum(counts)[:-1])

    def reordered(self, order: np.ndarray) -> Stream:
        """The same instructions in another order, given by their numbers in this one [n]."""
        return replace(
            self,
            site=self.site[order],
            fields=self.fields[order],
            addresses=self.addresses[order],
            lists=self.lists[order],
        )


def expand_stream(kernel: Kernel, target: Target, *, limits: bool = True) -> Stream:
    """The stream of a kernel whose every statement is a loop, a condition or a call; without
    `limits`, memories are as large as it takes."""
    places, sizes = place_buffers(kernel, target)
    if limits:
        check_sizes(kernel, target, sizes)
    sites: list[Site] = []
    parts = []
    for call, loops, conditions, base in _calls(kernel.body, (), (), 0):
        forms = [Simplifier().position(r.indices, r.buffer.shape) for r in call.regions]
        sites.append(_site(call, forms, places))
        parts.append(_expand(call, forms, loops, conditions, base, places))
    none = np.zeros(0, np.int64), np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64)
    parts = parts or [none]
    width = max(f.shape[1] for _, f, _ in parts)
    operands = max(a.shape[1] for _, _, a in parts)
    order = np.concatenate([p for p, _, _ in parts])
    site = np.concatenate([np.full(len(p), k, np.int32) for k, (p, _, _) in enumerate(parts)])
    fields = np.concatenate([_widened(f, width) for _, f, _ in parts])
    addresses = np.concatenate([_widened(a, operands) for _, _, a in parts])
    rank = np.argsort(order, kind="stable")
    lists = np.full(len(rank), -1, np.int64)
    rows = site[rank], fields[rank], addresses[rank]
    return Stream(target, tuple(sites), *rows, places, sizes, lists)


def alike(stream: Stream) -> Iterator[tuple[Site, np.ndarray]]:
    """Of each instruction, with its operands in the same memories, one site and the rows of all."""
    groups: dict[object, list[int]] = {}
    for k, site in enumerate(stream.sites):
        groups.setdefault((site.instruction, site.memories), []).append(k)
    for numbers in groups.values():
        rows = np.concatenate([stream.rows(k) for k in numbers])
        yield stream.sites[numbers[0]], np.sort(rows)


def statements_of_sites(kernel: Kernel) -> np.ndarray:
    """Which statement of a kernel the call of each site of its stream stands in [sites]: those that
    have calls are counted."""
    calls = [list(_calls((stmt,), (), (), 0)) for stmt in kernel.body]
    counts = [len(found) for found in calls if found]
    return np.repeat(np.arange(len(counts)), counts)


def _widened(rows: np.ndarray, width: int) -> np.ndarray:
    out = np.zeros((len(rows), width), np.int64)
    out[:, : rows.shape[1]] = rows
    return out


# ---------------------------------------------------------------- calls

Loops = tuple[tuple[Var, int, int], ...]  # variable, extent, instructions in one iteration


def _calls(
    block: Block, loops: Loops, conditions: tuple[Expr, ...], base: int
) -> Iterator[tuple[Call, Loops, tuple[Expr, ...], int]]:
    """Every call with the loops around it, the conditions on it, and its position in the first
    iteration."""
    for stmt in block:
        if isinstance(stmt, Call):
            for call, when in _alternatives(stmt):
                yield call, loops, (*conditions, *when), base
        elif isinstance(stmt, For):
            inner = (*loops, (stmt.var, _extent(stmt), _count(stmt.body)))
            yield from _calls(stmt.body, inner, conditions, base)
        elif isinstance(stmt, If):
            yield from _calls(stmt.body, loops, (*conditions, stmt.cond), base)
            other = (*conditions, ~stmt.cond)
            yield from _calls(stmt.orelse, loops, other, base + _count(stmt.body))
        elif not isinstance(stmt, Alloc):
            raise CompileError(
                "a statement is left that no instruction does", program=stmt,
                hint="map it with tensorize, or leave it to the host",
            )  # fmt: skip
        base += _positions(stmt)


def _alternatives(call: Call) -> Iterator[tuple[Call, tuple[Expr, ...]]]:
    """What stands for a call, and under which condition: one of two instructions for a pair."""
    if call.instruction.pair is None:
        yield call, ()
        return
    *fields, flag = call.fields
    for value, instruction in enumerate(call.instruction.pair):
        taken = compare(CompareOp.EQ, flag, value)
        if constant_value(taken) is not False:
            yield call.with_(instruction=instruction, fields=tuple(fields)), (taken,)


def _count(block: Block) -> int:
    """Positions that one run of a block takes, conditions taken as true."""
    return sum(_positions(s) for s in block)


def _positions(stmt: Stmt) -> int:
    if isinstance(stmt, For):
        return _extent(stmt) * _count(stmt.body)
    if isinstance(stmt, If):
        return _count(stmt.body) + _count(stmt.orelse)
    return int(isinstance(stmt, Call))


def _extent(loop: For) -> int:
    if not isinstance(loop.extent, int):
        raise CompileError(f"loop {loop.var} runs {loop.extent} times, which is not a number")
    return loop.extent


def _site(call: Call, forms: Sequence[Linear], places: Mapping[Buffer, Place]) -> Site:
    """`forms` say how many elements from its buffer's start each operand's are, in its axes."""
    memories = tuple(places[r.buffer].memory for r in call.regions)
    pairs = list(zip(call.instruction.operands, forms, strict=True))
    steps = tuple([_steps(call, operand, form) for operand, form in pairs])
    listed = tuple([_listed(call, operand, form) for operand, form in pairs])
    return Site(call, memories, steps, listed)


def _steps(call: Call, operand: Buffer, form: Linear) -> tuple[int, ...]:
    listed = call.instruction.listed(operand)
    steps = []
    for d in range(len(operand.shape)):
        step = 0 if d == listed else step_along(form, axis(d))
        if step is None:
            raise CompileError(f"the steps of {operand.name} in {call} are not fixed")
        steps.append(step * operand.dtype.bytes)
    return tuple(steps)


def _listed(call: Call, operand: Buffer, form: Linear) -> Expr | None:
    """Elements from an operand's first to the entry `_d` of its list, d being its listed axis; None
    for an operand without one."""
    listed = call.instruction.listed(operand)
    if listed is None:
        return None
    along = axis(listed)
    moves: Expr = const(0)
    for atom, k in form.items():
        if atom is not None and along in (atom, *variables(atom)):
            if variables(atom) - {along}:
                raise CompileError(f"the steps of {operand.name} in {call} are not fixed")
            moves = moves + atom * k
    first = evaluate_expr(moves, {along: np.int64(0)}, {})
    return moves - int(first)


def _offsets(call: Call, operand: Buffer, steps: Expr | None) -> np.ndarray | None:
    listed = call.instruction.listed(operand)
    if steps is None or listed is None:
        return None
    entries = np.arange(_entries(call, operand, listed))
    moves = np.broadcast_to(evaluate_expr(steps, {axis(listed): entries}, {}), entries.shape)
    return moves * operand.dtype.bytes


def _entries(call: Call, operand: Buffer, listed: int) -> int:
    """Iterations along an operand's listed axis."""
    body = call.instruction.body
    loops = {s.var: s for s in walk_statements(body) if isinstance(s, For)}
    used = next(a for a in accesses(body) if a.buffer == operand)
    (var,) = variables(used.indices[listed])
    values = {f.symbol: v for f, v in zip(call.instruction.fields, call.fields, strict=True)}
    extent = constant_value(substitute(as_expr(loops[var].extent), values))
    if extent is None:
        raise CompileError(f"{call} has no fixed number of micro-operations")
    return int(extent)


def _expand(
    call: Call,
    forms: Sequence[Linear],
    loops: Loops,
    conditions: tuple[Expr, ...],
    base: int,
    places: Mapping[Buffer, Place],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(positions, fields, addresses) of all instances of a call."""
    shape = tuple(extent for _, extent, _ in loops)
    rank = len(shape)
    env: dict[Expr, np.ndarray] = {
        var: np.arange(n).reshape([-1 if d == k else 1 for d in range(rank)])
        for k, (var, n, _) in enumerate(loops)
    }

    def column(e: Dim) -> np.ndarray:
        return np.broadcast_to(evaluate_expr(as_expr(e), env, {}), shape).reshape(-1)

    position = base + sum((column(v * each) for v, _, each in loops), np.zeros(1, np.int64))
    position = np.broadcast_to(position, (int(np.prod(shape, dtype=np.int64)),))
    fields = [column(value) for value in call.fields]
    pairs = zip(call.regions, forms, strict=True)
    axes = max((len(x.shape) for x in call.instruction.operands), default=0)
    begin: dict[Expr, Expr] = {axis(d): const(0) for d in range(axes)}
    addresses = [_address(r, form, places[r.buffer], column, begin) for r, form in pairs]
    keep = np.ones(len(position), bool)
    for condition in conditions:
        keep &= column(condition)
    table = [np.stack(rows, axis=1) if rows else np.zeros((len(position), 0), np.int64)
             for rows in (fields, addresses)]  # fmt: skip
    return position[keep], table[0][keep], table[1][keep]


def _address(
    region: Region,
    form: Linear,
    place: Place,
    column: Callable[[Dim], np.ndarray],
    at_begin: Mapping[Expr, Expr],
) -> np.ndarray:
    """Where an operand's first element lies, for each instance of a call."""
    first = substitute(to_expr(form), at_begin)
    begin: np.ndarray = place.offset + column(first) * region.buffer.dtype.bytes
    if not place.apart:
        return begin
    begin = begin + column(substitute(region.indices[0], at_begin)) * place.apart
    return begin
