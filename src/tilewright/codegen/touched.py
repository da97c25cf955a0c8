"""What the instructions of a stream touch: boxes of bytes, operand by operand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.analyze.accesses import accesses
from tilewright.analyze.linear import linear
from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Site, Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Var, as_expr, const
from tilewright.ir.loop import For
from tilewright.ir.substitute import substitute


@dataclass(frozen=True, eq=False)
class Touched:
    """Boxes of memory, one row for each operand of each instruction [m]: the instruction's row,
    the memory's number, first byte, and per axis (padded to three) extent and step, innermost
    last; `writes` and `reads` say what is done."""

    row: np.ndarray
    memory: np.ndarray
    start: np.ndarray
    extents: np.ndarray
    steps: np.ndarray
    width: np.ndarray
    reads: np.ndarray
    writes: np.ndarray


AXES = 3


def touched(stream: Stream) -> Touched:
    """What every instruction reads and writes, operand by operand."""
    numbers = {m.name: k for k, m in enumerate(stream.target.memories)}
    parts = []
    for k, site in enumerate(stream.sites):
        rows = stream.rows(k)
        for o, operand in enumerate(site.instruction.operands):
            parts.append(_touch(stream, site, rows, o, operand, numbers))
    order = np.argsort(np.concatenate([p[0] for p in parts]), kind="stable")
    columns = [np.concatenate([p[c] for p in parts])[order] for c in range(8)]
    return Touched(*columns)


def _touch(
    stream: Stream, site: Site, rows: np.ndarray, o: int, operand: Buffer, numbers: dict[str, int]
) -> tuple[np.ndarray, ...]:
    n = len(rows)
    used = [a for a in accesses(site.instruction.body) if a.buffer == operand]
    env = {f.symbol: stream.fields[rows, c] for c, f in enumerate(site.instruction.fields)}
    extents = np.ones((n, AXES), np.int64)
    steps = np.zeros((n, AXES), np.int64)
    pad = AXES - len(operand.shape)
    if pad < 0:
        raise CompileError(f"operand {operand} has more than {AXES} axes")
    for d in range(len(operand.shape)):
        reach = [_reach(a.indices[d], a.loops) for a in used]
        most = np.max([np.broadcast_to(evaluate_expr(r, env, {}), (n,)) for r in reach], axis=0)
        extents[:, pad + d] = most + 1
        steps[:, pad + d] = site.steps[o][d]
    memory = numbers[site.memories[o]]
    reads = any(not a.writes or a.op is not None for a in used)
    writes = any(a.writes for a in used)
    return (
        rows,
        np.full(n, memory),
        stream.addresses[rows, o],
        extents,
        steps,
        np.full(n, operand.dtype.bytes),
        np.full(n, reads),
        np.full(n, writes),
    )


def _reach(i: Expr, loops: tuple[For, ...]) -> Expr:
    """The greatest value of an operand's subscript, in the fields."""
    form = linear(i)
    extents = {loop.var: loop.extent for loop in loops}
    values: dict[Expr, Expr] = {}
    for atom, k in form.items():
        if isinstance(atom, Var) and atom in extents:
            values[atom] = as_expr(extents[atom]) - 1 if k > 0 else const(0)
    return substitute(i, values)
