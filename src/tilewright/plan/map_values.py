"""Element-wise work on a chip's instructions: a nest that computes a buffer becomes calls.

An instruction may do all that a nest does, or the last of it: the rest then gets a buffer in the
memory where the instruction wants its operand, and is mapped in the same way.

    Y[i, j] = cast(i8, min(Acc[i, j] + b[j], 127))
->  T2[j] = b[j]                 load
    T1[i, j] = Acc[i, j] + T2[j] add
    T0[i, j] = cast(i8, min(T1)) clip, narrow
    Y[i, j] = T0[i, j]           store

Instructions that do more are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, nest_of, nests, without_casts
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Binary, Buffer, Const, Dim, Expr, Load, Symbol, Unary, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Accumulate,
    Block,
    For,
    Store,
    Write,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.element_writes import reduction_of, write_of
from tilewright.plan.elementwise import arrange, collapse
from tilewright.plan.interleave import turns_of_sums
from tilewright.plan.rates import calls
from tilewright.schedule.core.state import Moment, attempt, refuse
from tilewright.schedule.match.binding import Binding
from tilewright.schedule.match.match import Matcher
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

MAX_COPIES = 2  # between two operators: via one intermediate memory
MOST_GOALS = 500  # parts of a value in memories that are looked at before anything is scheduled


@dataclass(frozen=True)
class RowLayout:
    """How the elements of a nest lie in a chip's memory, by its loops: `order` from outside
    inwards, then blocks of so many iterations of some loops, innermost. Parts that take turns are
    of the outermost loop that can be cut; or, where rows of one block follow each other
    (`blocked`), of the innermost outside of the blocks."""

    order: tuple[Var, ...]
    blocks: tuple[tuple[Var, int], ...]
    blocked: bool = False

    def layout(self, axes: Sequence[Var]) -> Layout:
        """Returns the layout of a buffer indexed by these loops."""
        order = tuple(axes.index(v) for v in self.order if v in axes)
        return Layout(order, tuple((axes.index(v), n) for v, n in self.blocks if v in axes))

    def renamed(self, names: dict[Var, Var]) -> RowLayout:
        """Returns the same rows over renamed loops; loops without a new name are dropped."""
        order = tuple(names[v] for v in self.order if v in names)
        blocks = tuple((names[v], n) for v, n in self.blocks if v in names)
        return RowLayout(order, blocks, self.blocked)


@dataclass(frozen=True)
class Parts:
    """Into how many parts operations on a chip's own memories are split, and stores to those
    outside, if their loops can be."""

    work: int = 1
    stores: int = 1


WHOLE = Parts()


def map_values(
    s: Schedule, target: Target, loop: Loop, rows: RowLayout | None = None, parts: Parts = WHOLE
) -> Buffer:
    """Replaces the nest of a loop, which stores into one buffer, by calls of the target's
    instructions; returns the buffer that holds it then (another one, where an instruction works in
    place). ScheduleError, and the schedule as it was, where they cannot do it. `rows` says
    how buffers that become necessary are to lie; without it none may. Operations are split into
    `parts` so that part 0 of one depends only on part 0 of the one before."""
    nest = nest_of(s.for_(loop))
    if nest is None or isinstance(nest.store, Accumulate):
        refuse(f"{loop} does more than store into one buffer", s)
    found = _map(s, target, loop, rows, MAX_COPIES, parts)
    if found is None:
        raise _no_instructions(nest, target)
    return found


def check_values(s: Schedule, target: Target, nest: Nest, held: Mapping[Buffer, str]) -> None:
    """Raises the ScheduleError of `map_values` if instructions cannot make what a nest stores
    whatever its loops are, buffers of `held` being in the memories named. Costs no scheduling."""

    def there(buffer: Buffer) -> Buffer:
        return buffer.with_(memory=held.get(buffer, buffer.memory))

    def placed(e: Expr) -> Expr:
        return e.with_(buffer=there(e.buffer)) if isinstance(e, Load) else e

    store = nest.store.with_(
        buffer=there(nest.store.buffer), value=rewrite(nest.store.value, placed)
    )
    assert isinstance(store, Store)
    if not _coverable(s, target, store):
        raise _no_instructions(nest, target)


Goal = tuple[Store, int]  # a store that instructions are to do, with so many copies


def _coverable(s: Schedule, target: Target, store: Store) -> bool:
    """Whether `_map` finds instructions, if those that may be called can be."""
    ways: dict[Goal, list[list[Goal]]] = {}
    left: list[Goal] = [(store, MAX_COPIES)]
    while left:
        goal = left.pop()
        if goal not in ways:
            ways[goal] = list(_ways(s, target, *goal))
            left += [x for way in ways[goal] for x in way]
        if len(ways) > MOST_GOALS:
            return True  # scheduling will tell
    done: set[Goal] = set()
    while new := {g for g in ways.keys() - done if any(done.issuperset(w) for w in ways[g])}:
        done |= new
    return (store, MAX_COPIES) in done


def _ways(s: Schedule, target: Target, store: Store, copies: int) -> Iterator[list[Goal]]:
    """What has to be done before each instruction that can do the last of a store."""
    for _, leaves in covers(s, target, store):
        only_copies = _only_copies(store, leaves)
        if only_copies and copies == 0:
            continue
        before = []
        for operand, part in leaves:
            held = part.buffer if isinstance(part, Load) else None
            if held is None or not _same_type_and_memory(operand, held):
                into = store.buffer.with_(memory=operand.memory, dtype=part.dtype)
                before.append((store.with_(buffer=into, value=part), part))
        if all(variables(part) for _, part in before):  # one number: chips move rows
            yield [(x, copies - 1 if only_copies else MAX_COPIES) for x, _ in before]


def _no_instructions(nest: Nest, target: Target) -> ScheduleError:
    missing = _missing(nest.store.value, target)
    if missing:
        return ScheduleError(
            f"no instruction of {target.name} computes {' or '.join(missing)}, which"
            f" {nest.store.buffer.name} needs",
            program=nest.stmt,
            hint="a vector unit would: one instruction for each operator",
        )
    source = ", ".join(dict.fromkeys(str(x.buffer) for x in _loads(nest.store.value)))
    return ScheduleError(
        f"no instructions of {target.name} make {nest.store.buffer} of {source}",
        program=nest.stmt,
        hint="it needs one for each operator, and copies between the memories",
    )


def _missing(value: Expr, target: Target) -> list[str]:
    """The operators of a value that no instruction has."""
    inner = [x for i in target.instructions for x in walk_statements(i.body)]
    writes = [x for x in inner if isinstance(x, (Store, Accumulate))]
    known: set[object] = {x.op for x in writes if isinstance(x, Accumulate)}
    known |= {x.op for w in writes for x in w.value.walk() if isinstance(x, (Binary, Unary))}
    places = {x for read in _loads(value) for i in read.indices for x in i.walk()}
    ops = [x.op for x in value.walk() if isinstance(x, (Binary, Unary)) and x not in places]
    return list(dict.fromkeys(op.value for op in ops if op not in known))


def bring_part(
    s: Schedule, target: Target, loop: Loop, rows: RowLayout, part: Expr, memory: str
) -> Buffer:
    """Copies what a nest reads of a parameter into a memory of the target, in front of the nest:
    `part` is the read, or a conversion of what is read."""
    found = _materialise(s, target, loop, rows, part, memory, MAX_COPIES, WHOLE, whole=False)
    if found is None:
        refuse(f"no instruction of {target.name} brings {part} into {memory}", s)
    return found


def _map(
    s: Schedule, target: Target, loop: Loop, rows: RowLayout | None, copies: int, parts: Parts
) -> Buffer | None:
    """The buffer that holds what the nest computes, once instructions do it; None if none can."""
    store = _store(s, loop)
    for instruction, leaves in covers(s, target, store):
        only_copies = _only_copies(store, leaves)
        if only_copies and copies == 0:
            continue
        before = s.moment
        left = copies - 1 if only_copies else MAX_COPIES
        try:
            result = _use(s, target, loop, rows, instruction, leaves, left, parts)
            if result is not None:
                return result
        except ScheduleError:
            pass  # another instruction may do
        s.back_to(before)
    return None


def _only_copies(store: Store, leaves: Sequence[tuple[Buffer, Expr]]) -> bool:
    return isinstance(store.value, Load) or [e for _, e in leaves] == [store.value]


def _use(
    s: Schedule,
    target: Target,
    loop: Loop,
    rows: RowLayout | None,
    instruction: Instruction,
    leaves: list[tuple[Buffer, Expr]],
    copies: int,
    parts: Parts,
) -> Buffer | None:
    """Gives the last of a nest to an instruction, what it reads to others."""
    held: dict[Buffer, Buffer] = {}
    pattern = write_of(instruction)
    for operand, part in leaves:
        found = part.buffer if isinstance(part, Load) else None
        if found is None or (found.memory, found.dtype) != (operand.memory, operand.dtype):
            if rows is None:
                return None
            in_place = pattern is not None and pattern.buffer == operand
            found = _materialise(
                s, target, loop, rows, part, operand.memory, copies, parts, whole=in_place
            )
            if found is None:
                return None
        held[operand] = found
    result = _store(s, loop).buffer
    if pattern is not None and held.get(pattern.buffer, result) != result:  # in place
        s.reuse(result, held[pattern.buffer])
        result = held[pattern.buffer]
    blocked = rows is not None and rows.blocked
    numbers = pattern is not None and bool(_numbers_of_rows(pattern))
    _tensorize(s, target, loop, instruction, parts, innermost=blocked and numbers)
    return result


def _materialise(
    s: Schedule,
    target: Target,
    loop: Loop,
    rows: RowLayout,
    part: Expr,
    memory: str,
    copies: int,
    parts: Parts,
    *,
    whole: bool,
) -> Buffer | None:
    """Computes a subexpression into a new buffer by instructions; returns the buffer, or None if no
    instruction can. A `whole` buffer has all of the nest's axes, and may become its result."""
    store = _store(s, loop)
    outer = [x.var for x in _nest(s, loop).axes]
    needed = [v for v in outer if v in variables(part)]
    if not needed:
        return None  # one number: chips move rows
    needed = outer if whole else needed
    value = s.split_value(loop, _path(store.value, part), memory, whole=whole)
    inner = next(n for n in _all_nests(s.kernel.body) if n.buffer == value)
    names = dict(zip(needed, [x.var for x in inner.axes], strict=True))
    below = rows.renamed(names)
    layout = below.layout([x.var for x in inner.axes])
    start = Loop(inner.axes[0].var)
    s.pack_layout(value, layout)
    return _map(s, target, start, below, copies, parts)


def _path(value: Expr, part: Expr) -> tuple[int, ...]:
    """Where a part stands in a value: operand of operand."""

    def search(e: Expr) -> tuple[int, ...] | None:
        if e is part:
            return ()
        operands = [c for c in e.children() if isinstance(c, Expr)] if not _is_read(e) else []
        for k, operand in enumerate(operands):
            found = search(operand)
            if found is not None:
                return (k, *found)
        return None

    found = search(value)
    if found is None:
        raise ScheduleError(f"{part} is no part of {value}")
    return found


def _is_read(e: Expr) -> bool:
    return isinstance(e, Load)


# ---------------------------------------------------------------- which instructions


def covers(
    s: Schedule, target: Target, store: Store
) -> Iterator[tuple[Instruction, list[tuple[Buffer, Expr]]]]:
    """Every instruction that can do a store, or the last of it, with the values that its operands
    would be; those that do most first."""
    found = []
    for instruction in target.instructions:
        pattern = write_of(instruction)
        if pattern is None or not _same_type_and_memory(pattern.buffer, store.buffer):
            continue
        value = pattern.value
        if isinstance(pattern, Accumulate):  # in place
            value = Binary(pattern.op, Load(pattern.buffer, pattern.indices), value)
        for leaves in _Cover(instruction, s.simplifier).leaves(value, store.value):
            moves = isinstance(without_casts(value), Load)
            same = any(part == store.value for _, part in leaves) and not moves
            if same or any(isinstance(part, Const) for _, part in leaves):
                continue
            if _varies_enough(pattern, store, leaves):
                does = not _only_copies(store, leaves)
                found.append((instruction, leaves, (_operators(value), does, _size(value))))
    for instruction, leaves, _ in sorted(found, key=lambda f: f[2], reverse=True):
        yield instruction, leaves


def _varies_enough(pattern: Write, store: Store, leaves: Sequence[tuple[Buffer, Expr]]) -> bool:
    """Whether what varies along the rows of the result is no operand that has a number for each
    row: those lie along the last axis of what is written."""
    along = variables(store.indices[-1]) if store.indices else frozenset()
    numbers = _numbers_of_rows(pattern)
    return not any(b in numbers and variables(part) & along for b, part in leaves)


def _numbers_of_rows(pattern: Write) -> set[Buffer]:
    """The operands of an element-wise instruction that have a number for each row."""
    lanes = variables(pattern.indices[-1]) if pattern.indices else frozenset()
    reads = _loads(pattern.value) if lanes else []
    return {x.buffer for x in reads if not any(lanes & variables(i) for i in x.indices)}


def _same_type_and_memory(operand: Buffer, buffer: Buffer) -> bool:
    return operand.dtype == buffer.dtype and operand.memory == buffer.memory


def _operators(value: Expr) -> int:
    """Counts what an expression computes, subscripts and conversions left out."""
    own = isinstance(value, (Binary, Unary))
    inner = () if isinstance(value, Load) else value.children()
    return own + sum(_operators(x) for x in inner if isinstance(x, Expr))


def _size(value: Expr) -> int:
    """Counts the nodes of an expression but for loads and buffers, subscript variables included."""
    return sum(not isinstance(x, (Load, Buffer)) for x in value.walk())


class _Cover(Matcher):
    """Values unified without loops: an operand may be any value."""

    def leaves(self, pattern: Expr, value: Expr) -> Iterator[list[tuple[Buffer, Expr]]]:
        for binding in self._value(pattern, value, Binding()):
            yield list(binding.parts)

    def _operand(self, pattern: Load, e: Expr, b: Binding) -> Iterator[Binding]:
        yield b.with_part(pattern.buffer, e)


# ---------------------------------------------------------------- loops


def _tensorize(
    s: Schedule,
    target: Target,
    loop: Loop,
    instruction: Instruction,
    parts: Parts,
    *,
    innermost: bool,
) -> None:
    """The nest's loops in the order of the chip's memory, as calls."""
    nest = _nest(s, loop)
    managed = target.memory(nest.buffer.memory).size is not None
    read = next((x.buffer for x in _loads(nest.store.value) if _managed(target, x.buffer)), None)
    loops = arrange(s, nest, None if managed else read)
    _call(s, target, loops, instruction, parts, innermost)


def map_accumulation(s: Schedule, target: Target, loop: Loop, along: Var | None = None) -> None:
    """Replaces a nest that accumulates into one buffer by calls of an instruction that does, for
    one iteration of the reduction after the other; or, where the operand's rows lie along a loop of
    the reduction, by one that does a row. ScheduleError where none can."""
    nest = _nest(s, loop)
    reduce = {x.var for x in nest.reduce}
    before = s.moment
    if along is not None:
        return _map_along_rows(s, target, nest, along)
    for instruction in target.instructions:
        pattern = write_of(instruction)
        if not isinstance(pattern, Accumulate) or not _same_type_and_memory(
            pattern.buffer, nest.buffer
        ):
            continue
        loops = arrange(s, nest)
        summed = [x for x in loops if x.var in reduce]
        rows = [x for x in loops if x not in summed]
        try:
            s.reorder(*summed, *rows)
            loops = rows if _comes_back(s, rows, instruction) else [*summed, *rows]
            return _call(s, target, loops, instruction, WHOLE)
        except ScheduleError:
            s.back_to(before)  # another instruction may do
    raise ScheduleError(
        f"no instruction of {target.name} accumulates {nest.buffer.name}", program=nest.stmt
    )


def _map_along_rows(s: Schedule, target: Target, nest: Nest, along: Var) -> None:
    """One row of each element after the other: an instruction would wait for the last one's sum. So
    does the next row's call, but for that of another part of the elements."""
    extents = [x.extent for x in nest.axes if isinstance(x.extent, int)]
    sizes = sorted({n for m in extents for n in range(1, m + 1) if m % n == 0})
    before = s.moment
    for instruction in target.instructions:
        pattern = reduction_of(instruction)
        if pattern is None or not _same_type_and_memory(pattern.buffer, nest.buffer):
            continue
        try:
            outer, inner = s.split(Loop(along), row_length(instruction))
            rest = [Loop(x.var) for x in nest.reduce if x.var != along]
            rows = [Loop(x.var) for x in nest.axes]
            s.reorder(*rest, outer, *rows, inner)
            parts = turns_of_sums(instruction, math.prod(extents), sizes, target.issue)
            rows = _in_turns(s, rows, [inner], parts)
            rows = collapse(s, rows) if rows else []
            return s.tensorize((*rows, inner)[0], instruction)
        except ScheduleError:
            s.back_to(before)  # another instruction may do
    raise ScheduleError(
        f"no instruction of {target.name} accumulates {nest.buffer.name}", program=nest.stmt
    )


def row_length(instruction: Instruction) -> int:
    """How many elements a row of an instruction has."""
    return math.prod(n for n in _extents(instruction) if isinstance(n, int))


def _comes_back(s: Schedule, rows: list[Loop], instruction: Instruction) -> bool:
    """Whether an instruction that did several sweeps over rows would be at one again too soon."""
    wanted = max((n for _, n in instruction.distances), default=0)
    extents = [s.for_(x).extent for x in rows]
    count = math.prod(n for n in extents if isinstance(n, int))
    return count < wanted * math.prod(n for n in _extents(instruction) if isinstance(n, int))


def _call(
    s: Schedule,
    target: Target,
    loops: list[Loop],
    instruction: Instruction,
    parts: Parts,
    innermost: bool = False,
) -> None:
    """Gives a perfect nest to an instruction: as many of its innermost loops as it has axes."""
    several = [x for x in loops if s.for_(x).extent != 1] or loops[-1:]
    s.reorder(*(x for x in loops if x not in several), *several)
    loops = several
    # The last run within one row of the instruction, if it has rows of its own.
    extents = _extents(instruction)
    rows = sum(isinstance(n, int) and n > 1 for n in extents)
    ranges = sum(not isinstance(n, int) for n in extents)
    most = max((n.upper or 1 for n in extents if isinstance(n, Symbol)), default=1)
    within, outer = loops[len(loops) - rows :], loops[: len(loops) - rows]
    outer = _in_turns(s, outer, within, _parts_of(instruction, target, parts), innermost=innermost)
    ways = [(s.moment, outer[0])] if outer else []
    outer = collapse(s, outer, most) if outer else []
    ways += [(s.moment, outer[0])] if outer else []
    for loop in (*outer[max(0, len(outer) - ranges) :], *within):
        if attempt(s.tensorize, loop, instruction):
            if outer and any(x.var == outer[0].var for x in _loops_of(s)):
                _with_fewer_calls(s, instruction, ways)
            return
    s.tensorize([*outer, *within][-1], instruction)


def _parts_of(instruction: Instruction, target: Target, parts: Parts) -> int:
    """Into how many parts what an instruction does is split: loads are not."""
    if all(_managed(target, b) for b in instruction.operands):
        return parts.work
    pattern = write_of(instruction)
    return 1 if pattern is None or _managed(target, pattern.buffer) else parts.stores


def _with_fewer_calls(
    s: Schedule, instruction: Instruction, ways: Sequence[tuple[Moment, Loop]]
) -> None:
    """Gives all loops of a nest to an instruction, fused ones or those before, if that makes fewer
    calls than what is: inner loops that an operand does not go along are then around a call."""
    found, least = s.moment, _count(s, instruction)
    for before, outermost in ways if least > 1 else ():
        s.back_to(before)
        if attempt(s.tensorize, outermost, instruction) and _count(s, instruction) < least:
            found, least = s.moment, _count(s, instruction)
    s.back_to(found)


def _loops_of(s: Schedule) -> Iterator[For]:
    return (x for x in walk_statements(s.kernel.body) if isinstance(x, For))


def _count(s: Schedule, instruction: Instruction) -> int:
    return sum(n for call, n in calls(s.kernel.body) if call.instruction == instruction)


def _in_turns(
    s: Schedule, outer: list[Loop], within: list[Loop], parts: int, *, innermost: bool = False
) -> list[Loop]:
    """The loops that are left once the outermost that can be is cut into parts, or the innermost,
    which are the iterations of a loop around all others."""
    numbers = reversed(range(len(outer))) if innermost else range(len(outer))
    for k in numbers if parts > 1 else ():
        loop = outer[k]
        extent = s.for_(loop).extent
        if isinstance(extent, int) and extent > parts and extent % parts == 0:
            turns, inner = s.split(loop, extent // parts)
            rest = [*outer[:k], inner, *outer[k + 1 :]]
            s.reorder(turns, *rest, *within)
            return rest
        if extent == parts:
            rest = [*outer[:k], *outer[k + 1 :]]
            s.reorder(loop, *rest, *within)
            return rest
    return outer


def _extents(instruction: Instruction) -> list[Dim]:
    return [x.extent for x in walk_statements(instruction.body) if isinstance(x, For)]


def _managed(target: Target, buffer: Buffer) -> bool:
    return target.memory(buffer.memory).size is not None


def _nest(s: Schedule, loop: Loop) -> Nest:
    nest = nest_of(s.for_(loop))
    assert nest is not None
    return nest


def _store(s: Schedule, loop: Loop) -> Store:
    store = _nest(s, loop).store
    assert isinstance(store, Store)
    return store


def _loads(value: Expr) -> list[Load]:
    return [x for x in value.walk() if isinstance(x, Load)]


def _all_nests(block: Block) -> Iterator[Nest]:
    """The nests of a block and of the blocks in it."""
    yield from nests(block)
    for stmt in block:
        for inner in sub_blocks(stmt):
            yield from _all_nests(inner)
