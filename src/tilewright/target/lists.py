"""How long lists of micro-operations are."""

from __future__ import annotations

from tilewright.ir.expr import Dim, Load, Symbol, Var
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import Accumulate, For, Store, walk_statements


def list_extent(instruction: Instruction) -> Dim | None:
    """How many micro-operations the instruction's list has: a number, or what a field says; None
    for an instruction without a list."""
    loops = {s.var: s.extent for s in walk_statements(instruction.body) if isinstance(s, For)}
    places = [
        x for s in instruction.body for x in s.walk() if isinstance(x, (Load, Store, Accumulate))
    ]
    for x in places:
        listed = instruction.listed(x.buffer)
        for v in x.indices[listed].walk() if listed is not None else ():
            if isinstance(v, Var) and v in loops:
                return loops[v]
    return None


def list_count(instruction: Instruction) -> Field | None:
    """The field that says how many micro-operations the instruction's list has, if one does."""
    extent = list_extent(instruction)
    return instruction.field(extent.name) if isinstance(extent, Symbol) else None
