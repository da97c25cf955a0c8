"""Whether instructions step through memory as the program says: where a field holds the distance
from row to row, it was chosen for a buffer, and the buffer may have been moved since."""

from __future__ import annotations

import numpy as np

from tilewright.backends.stream.faults import Fault, FaultKind, name_of
from tilewright.backends.stream.rows import operand_ends
from tilewright.backends.stream.stream import Site, Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr, as_expr


def check_steps(stream: Stream) -> Fault | None:
    """The first instruction whose fields step otherwise through an operand than the region of its
    call does, along an axis of which it uses more than one place; None if there is none."""
    for k, site in enumerate(stream.sites):
        if site.call.regions and site.instruction.black_box is None:
            fault = _wrong_steps(stream, site, stream.rows(k))
            if fault is not None:
                return fault
    return None


def _wrong_steps(stream: Stream, site: Site, rows: np.ndarray) -> Fault | None:
    instruction = site.instruction
    fields, first = np.unique(stream.fields[rows], axis=0, return_index=True)
    values: dict[Expr, np.ndarray] = {
        f.symbol: fields[:, c] for c, f in enumerate(instruction.fields)
    }
    for operand, wanted in zip(instruction.operands, site.steps, strict=True):
        ends = operand_ends(instruction, operand, values, len(fields))
        for d, step in enumerate(wanted):
            elements = evaluate_expr(as_expr(instruction.step(operand, d)), values, {})
            found = np.broadcast_to(elements * operand.dtype.bytes, len(fields))
            wrong = np.flatnonzero((found != step) & (ends[:, d] > 1))
            if len(wrong):
                row = int(rows[first[wrong[0]]])
                text = (
                    f"{name_of(stream, row)}, steps {found[wrong[0]]} bytes along axis {d} of "
                    f"{operand.name}, where the program steps {step}"
                )
                return Fault(FaultKind.STEPS, (row,), text)
    return None
