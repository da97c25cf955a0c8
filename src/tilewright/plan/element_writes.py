"""What instructions write that work element by element, or along rows."""

from __future__ import annotations

from tilewright.analyze.nests import without_casts
from tilewright.ir.expr import Const, Load
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, For, If, Store, Write, walk_statements
from tilewright.ir.substitute import variables


def write_of(instruction: Instruction) -> Write | None:
    """What an element-wise instruction writes: once, each element in an iteration of its own. A
    field may say that it begins with a number before."""
    inner = list(walk_statements(instruction.body))
    writes = [x for x in inner if isinstance(x, (Store, Accumulate))]
    guarded = [y for x in inner if isinstance(x, If) for y in x.body]
    if len(writes) == 2 and any(writes[0] is x for x in guarded) and _is_number(writes[0]):
        writes = writes[1:]
    loops = {x.var for x in inner if isinstance(x, For)}
    if len(writes) != 1 or set().union(*map(variables, writes[0].indices)) != loops:
        return None
    return writes[0]


def _is_number(stmt: Write) -> bool:
    return isinstance(stmt, Store) and isinstance(stmt.value, Const)


def reduction_of(instruction: Instruction) -> Accumulate | None:
    """What an instruction adds up along rows, or takes the most of: once for each element."""
    inner = list(walk_statements(instruction.body))
    writes = [x for x in inner if isinstance(x, (Store, Accumulate))]
    loops = {x.var for x in inner if isinstance(x, For)}
    found = writes[0] if len(writes) == 1 else None
    if not isinstance(found, Accumulate) or not isinstance(without_casts(found.value), Load):
        return None
    kept = set().union(*map(variables, found.indices))
    return found if kept < loops <= kept | variables(found.value) else None
