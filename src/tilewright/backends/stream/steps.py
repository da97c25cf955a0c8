"""Whether instructions step through memory as the program says: where a field holds the distance
from row to row, it was chosen for a buffer, and the buffer may have been moved since."""

from __future__ import annotations

import numpy as np

from tilewright.backends.stream.faults import Fault, FaultKind, name_of
from tilewright.backends.stream.rows import operand_ends
from tilewright.backends.stream.stream import Stream, alike
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr, as_expr
from tilewright.ir.instruction import Instruction


def check_steps(stream: Stream) -> Fault | None:
    """The first instruction of a kind whose fields step otherwise through an operand than the
    region of its call does, along an axis of which it uses more than one place; None if there is
    none."""
    for site, rows in alike(stream):
        if site.call.regions and site.instruction.black_box is None:
            fault = _wrong_steps(stream, site.instruction, rows)
            if fault is not None:
                return fault
    return None


def _wrong_steps(stream: Stream, instruction: Instruction, rows: np.ndarray) -> Fault | None:
    """The first of these calls of an instruction that is so."""
    sites, which = np.unique(stream.site[rows], return_inverse=True)
    values = _named(instruction, stream.fields[rows])
    for o, operand in enumerate(instruction.operands):
        wanted = np.array([stream.sites[k].steps[o] for k in sites])[which]
        for d in range(len(operand.shape)):
            elements = evaluate_expr(as_expr(instruction.step(operand, d)), values, {})
            found = np.broadcast_to(elements * operand.dtype.bytes, len(rows))
            apart = np.flatnonzero(found != wanted[:, d])
            if not len(apart):
                continue
            fields, kind = np.unique(stream.fields[rows[apart]], axis=0, return_inverse=True)
            ends = operand_ends(instruction, operand, _named(instruction, fields), len(fields))
            wrong = apart[ends[kind.reshape(-1), d] > 1]
            if len(wrong):
                row, step = int(rows[wrong[0]]), found[wrong[0]]
                text = (
                    f"{name_of(stream, row)}, steps {step} bytes along axis {d} of "
                    f"{operand.name}, where the program steps {wanted[wrong[0], d]}"
                )
                return Fault(FaultKind.STEPS, (row,), text)
    return None


def _named(instruction: Instruction, fields: np.ndarray) -> dict[Expr, np.ndarray]:
    """The columns of fields [n, most fields] by the fields' symbols."""
    return {f.symbol: fields[:, c] for c, f in enumerate(instruction.fields)}
