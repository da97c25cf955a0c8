"""What must be true of a kernel's source beside the rules for every loop program."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.errors import CompileError
from tilewright.ir.expr import BinaryOp, Buffer, Load
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Stmt,
    Store,
    expressions,
    loads,
    walk_statements,
)
from tilewright.ir.python.block import BlockReader


def check_reduction(r: BlockReader, body: Block) -> None:
    """The iterations of a reduction may run in any order: all that they do outside of themselves
    is to accumulate, each buffer with one operator, and none reads what they accumulate."""
    inside = {s.buffer for s in walk_statements(body) if isinstance(s, Alloc)}
    operators: dict[Buffer, BinaryOp] = {}
    for s in walk_statements(body):
        if not isinstance(s, (Store, Accumulate)) or s.buffer in inside:
            continue
        if isinstance(s, Store) or operators.setdefault(s.buffer, s.op) is not s.op:
            name, first = s.buffer.name, operators.get(s.buffer, BinaryOp.ADD)
            how = f"stores {name}, and may only accumulate it"
            if isinstance(s, Accumulate):
                how = f"accumulates {name} by {first.value} and by {s.op.value}"
            what = f"a reduction {how}"
            hint = "write +=, or = max(…) and its like; a loop with range may do anything, in order"
            raise r.refuse(r.node_of(s), what, hint)
    for s, load in _reads(body):
        if load.buffer in operators:
            what = f"{load.buffer.name} is read while a reduction accumulates it"
            hint = "read it behind the loop, or loop with range: then iterations stay in order"
            raise r.refuse(r.node_of(s), what, hint)


def check_defined(r: BlockReader, body: Block, inputs: set[Buffer], outputs: set[Buffer]) -> None:
    """What starts undefined is stored before it is read: in the order of the text, some element
    before any. (An element's own value may read others: that is how scans are written.)"""
    started = set(inputs)

    def refuse(s: Stmt, buffer: Buffer, how: str) -> CompileError:
        hint = "an output starts undefined: store it first, or pass its old value as an input"
        local = "it starts undefined: store it first"
        what = f"{buffer.name} is {how} before it has a value"
        return r.refuse(r.node_of(s), what, hint if buffer in outputs else local)

    for s in walk_statements(body):
        for load in (x for e in expressions(s) for x in loads(e)):
            scan = isinstance(s, Store) and s.buffer == load.buffer and s.indices != load.indices
            if load.buffer not in started and not scan:
                raise refuse(s, load.buffer, "read")
        if isinstance(s, Accumulate) and s.buffer not in started:
            raise refuse(s, s.buffer, "accumulated")
        if isinstance(s, Store):
            started.add(s.buffer)


def _reads(body: Block) -> Iterator[tuple[Stmt, Load]]:
    for s in walk_statements(body):
        for e in expressions(s):
            for load in loads(e):
                yield s, load
