"""Default schedules: what a kernel gets without search. Rules that read the target and use only
the schedule's primitives.

    1. inline what is cheap to compute again
    2. a contraction is tiled for the registers (contraction.py), a reduction is computed where
       its result is used (reduction.py), the rest runs along memory
    3. outer loops are shared among the cores
    4. a contraction of so many rows as a symbol says has a body for each of some ranges
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.analyze.nests import Nest, is_cheap, nest_of, nests
from tilewright.base.dtype import f32
from tilewright.base.errors import ScheduleError
from tilewright.ir.dims import limits
from tilewright.ir.expr import Buffer, Dim, Expr, Load, Select, as_dim
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Block,
    Call,
    For,
    Kernel,
    LoopKind,
    Store,
    loads,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.contraction import schedule_contraction
from tilewright.plan.contraction_roles import find_contraction
from tilewright.plan.elementwise import axis_behind_blocks, schedule_nest
from tilewright.plan.fused_axes import fuse_rows
from tilewright.plan.reduction import schedule_reductions, schedule_update
from tilewright.plan.row_blocks import find_chain, schedule_chain
from tilewright.plan.rows_by_rows import find_row_product, schedule_row_product
from tilewright.plan.split_groups import split_groups
from tilewright.plan.units import units
from tilewright.plan.variants import Variant, add_variants
from tilewright.schedule.core.state import attempt
from tilewright.schedule.primitives.stages import nest_loops
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target


def default_schedule(
    kernel: Kernel, target: Target, layouts: Mapping[str, Layout] | None = None
) -> Schedule:
    """Schedules a kernel for a target; `layouts` says how parameters (by name) lie in memory. Where
    the rules meet a shape that they do not foresee, the schedule is a plain one, and its `fallback`
    says what was refused."""
    s, rows, variants = _schedule(kernel, target, layouts or {})
    if variants and not s.fallback:
        add_variants(
            s, kernel, rows, variants, lambda k, v: _schedule(k, target, layouts or {}, v)[0]
        )
    return s


def fused_schedule(kernel: Kernel, target: Target, layouts: Mapping[str, Layout]) -> Schedule:
    """The same for a caller that passes memory and no shapes: axes of parameters that are
    neighbours everywhere may be one."""
    fused = fuse_rows(kernel, layouts)
    if fused is None:
        return default_schedule(kernel, target, layouts)
    return default_schedule(fused.kernel, target, fused.fuse_layouts(layouts))


def _schedule(
    kernel: Kernel,
    target: Target,
    layouts: Mapping[str, Layout],
    variant: Variant | None = None,
) -> tuple[Schedule, Dim, Sequence[Variant]]:
    """The schedule, how many rows its contraction has (1 without one), and what other schedules
    there are for some numbers of rows."""
    fallback, rows, variants = "", as_dim(1), list[Variant]()
    try:
        s, grouped = _prepared(kernel, layouts)
        contraction = find_contraction(s, grouped, target)
        chain = find_chain(s, target)
        if chain is not None and schedule_chain(s, chain, target):
            pass
        elif contraction is not None:
            rows, variants = contraction.rows, contraction.variants(target)
            always = limits(rows)[0] or 0
            variant = variant or next((v for v in variants if v.least <= always), None)
            schedule_contraction(s, replace(contraction, variant=variant), target)
        elif (of_rows := find_row_product(s, target)) is not None:
            schedule_row_product(s, of_rows, target)
        else:
            schedule_reductions(s, target)
    except ScheduleError as refusal:  # slower, but never a refusal
        (s, _), fallback = _prepared(kernel, layouts), refusal.what
    refused = schedule_remaining(s, target)
    s.fallback = fallback or refused
    return s, rows, variants


def _prepared(kernel: Kernel, layouts: Mapping[str, Layout]) -> tuple[Schedule, frozenset[str]]:
    """The kernel with its layouts, and the sums that are split into groups."""
    s = Schedule(kernel)
    inline_stages(s)
    localize_results(s)  # before layouts: local copies stay row-major and without padding
    grouped = split_groups(s)
    for name, layout in with_copies(s, layouts).items():
        s.pack_layout(s.buffer(name), layout)
    return s, grouped


def inline_stages(s: Schedule) -> None:
    """Inlines intermediates that cost little to compute again, or are read once per element.

    A guarded copy (padding) of which a reduction reads an element several times stays: its
    condition would be tested in the innermost loop.
    """
    for buffer in list(s.allocations()):
        if _should_inline(s, buffer):
            try:
                s.inline(buffer)
            except ScheduleError:
                continue  # not a plain definition: it stays a stage


def localize_results(s: Schedule) -> None:
    """A result that is a reduction is computed locally, and copied out element by element."""
    for nest in nests(s.kernel.body):
        if nest.update is not None and nest.buffer in s.kernel.outputs:
            attempt(s.cache_write, nest.buffer)


def with_copies(s: Schedule, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """The layouts with those of buffers on the way: a guarded copy (padding) that stays lies in
    memory as its source does, and so does what windows along one axis leave for the next."""
    known = dict(layouts)
    for buffer in s.allocations():
        found = [n for n in nests(s.kernel.body) if n.buffer == buffer]
        if len(found) != 1:
            continue
        reads = [x for w in found[0].writes for x in loads(w.value) if x.buffer != buffer]
        sources = {x.buffer.name for x in reads}
        layout = known.get(next(iter(sources))) if len(sources) == 1 else None
        if layout is None or len(layout.order) != len(buffer.shape):
            continue
        if found[0].update is None or _are_windows(s, found[0], layout):
            known[buffer.name] = layout
    return known


def _are_windows(s: Schedule, nest: Nest, layout: Layout) -> bool:
    """Whether windows that another reduction goes over move along a reduction's result, and not
    along axes in blocks."""
    blocked, made = {axis for axis, _ in layout.blocks}, nest.buffer
    reads = [x for w in nest.writes for x in loads(w.value) if x.buffer != made]
    kept = all(x.indices[a] == nest.store.indices[a] for x in reads for a in blocked)
    moving = any(len(variables(i)) > 1 for x in reads for i in x.indices)
    readers = [n for n in nests(s.kernel.body) if n.buffer != made and _reads(n, made)]
    return kept and moving and all(n.update is not None for n in readers)


def _should_inline(s: Schedule, buffer: Buffer) -> bool:
    found = [n for n in nests(s.kernel.body) if n.buffer == buffer]
    if len(found) != 1 or not isinstance(found[0].store, Store) or found[0].reduce:
        return False
    value = found[0].store.value
    readers = [n for n in nests(s.kernel.body) if _reads(n, buffer)]
    if len(readers) == 1 and _reads_once(readers[0], buffer):
        return True
    return is_cheap(value) and not _keeps_guarded_copy(value, readers)


def _keeps_guarded_copy(value: Expr, readers: Sequence[Nest]) -> bool:
    """Whether what is read under a condition, as zeros around an input are, is better written to
    memory once: a reduction reads its elements several times, and would check each time."""
    in_reduction = any(n.update is not None for n in readers)
    return in_reduction and any(isinstance(x, Select) for x in value.walk())


def _reads(nest: Nest, buffer: Buffer) -> list[Load]:
    """The reads of a buffer in what a nest writes."""
    return [
        x for w in nest.writes for x in w.value.walk() if isinstance(x, Load) and x.buffer == buffer
    ]


def _reads_once(nest: Nest, buffer: Buffer) -> bool:
    """Whether an iteration reads one element; of a reduction, which may go over its operands many
    times, also whether each reads another one."""
    if nest.update is None:
        return len(_reads(nest, buffer)) == 1
    elements = {x.indices for x in _reads(nest, buffer)}
    loops = [loop.var for loop in (*nest.axes, *nest.reduce) if loop.extent != 1]
    return len(elements) == 1 and set(loops) <= set(*elements)


# ---------------------------------------------------------------- nests that no other rule took


def schedule_remaining(s: Schedule, target: Target) -> str:
    """Schedules every nest that has no vector or parallel loop yet; those at the top of the
    kernel are shared among cores as well. Returns what was refused, of nests that stay plain."""
    done: set[str] = set()
    refused = ""
    while (stmt := _next_nest(s.kernel.body, done)) is not None:
        before, moment = {loop.var.name for loop in s.loops()}, s.moment
        done |= {x.var.name for x in walk_statements((stmt,)) if isinstance(x, For)}
        try:
            if _is_perfect(stmt):
                share = any(stmt is x for x in s.kernel.body)
                first = axis_behind_blocks(nest) if (nest := nest_of(stmt)) else None
                schedule_nest(s, stmt, target, share=share, first=first)
            else:
                schedule_update(s, stmt, target)
        except ScheduleError as refusal:
            s.back_to(moment)
            refused = refused or refusal.what
        done |= {loop.var.name for loop in s.loops()} - before
    return refused


def _next_nest(block: Block, done: set[str]) -> For | None:
    """The first nest of one buffer, all of plain loops, that was not looked at."""
    for stmt in block:
        if not isinstance(stmt, For):
            continue
        if stmt.var.name not in done and _is_candidate(stmt):
            return stmt
        for inner in sub_blocks(stmt):
            found = _next_nest(inner, done)
            if found is not None:
                return found
    return None


def _is_candidate(stmt: For) -> bool:
    loops = [x for x in walk_statements((stmt,)) if isinstance(x, For)]
    nest = nest_of(stmt)
    if nest is None or any(x.kind is not LoopKind.SERIAL for x in loops):
        return False
    return _is_perfect(stmt) or nest.update is not None


def _is_perfect(stmt: For) -> bool:
    _, body = nest_loops(stmt)
    return not any(isinstance(x, For) for x in walk_statements(body))


def multiplying(kernel: Kernel, target: Target) -> Instruction | None:
    """What multiplies and adds in a scheduled kernel: the instruction that it calls, or else the
    one of the target whose sums are of the result's type, or of f32; None if there is none."""
    called = [s.instruction for s in walk_statements(kernel.body) if isinstance(s, Call)]
    single = {
        u.result.buffer.dtype: u.instruction
        for u in units(target)
        if u.depth == 1 and u.left.buffer.dtype == u.result.buffer.dtype
    }
    return called[0] if called else single.get(kernel.outputs[0].dtype, single.get(f32))
