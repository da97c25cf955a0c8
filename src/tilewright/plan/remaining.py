"""The nests that no other rule took: run along memory and along vectors, wherever they stand."""

from __future__ import annotations

from tilewright.analyze.nests import nest_of
from tilewright.ir.loop import Block, For, LoopKind, sub_blocks, walk_statements
from tilewright.plan.elementwise import schedule_nest
from tilewright.plan.reduction import schedule_update
from tilewright.schedule.primitives.stages import nest_loops
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target


def schedule_remaining(s: Schedule, target: Target) -> None:
    """Schedules every nest that has no vector or parallel loop yet; those at the top of the
    kernel are shared among cores as well."""
    done: set[str] = set()
    while (stmt := _next_nest(s.kernel.body, done)) is not None:
        before = {loop.var.name for loop in s.loops()}
        done |= {x.var.name for x in walk_statements((stmt,)) if isinstance(x, For)}
        if _is_perfect(stmt):
            schedule_nest(s, stmt, target, share=any(stmt is x for x in s.kernel.body))
        else:
            schedule_update(s, stmt, target)
        done |= {loop.var.name for loop in s.loops()} - before


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
