"""What sections touch: every byte of every operation, and where they say so, no other."""

import itertools

import numpy as np
from bundle_programs import programs, small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.backends.bundles.operations import Body, Operand, OperationLoop
from tilewright.backends.bundles.program import make_program
from tilewright.backends.bundles.section_boxes import program_touched
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr

CHIP = small()


def operands(body: Body, env: dict[Expr, np.int64]):
    """Every operand in memory, in every iteration."""
    for item in body.items:
        if isinstance(item, OperationLoop):
            for i in range(item.count):
                yield from operands(item.body, {**env, item.var: np.int64(i)})
        else:
            yield from ((o, env) for o in item.operands if not o.row)


def bytes_of(o: Operand, env: dict[Expr, np.int64]) -> range:
    first = sum(
        k if atom is None else k * int(evaluate_expr(atom, env, {})) for atom, k in o.start.items()
    )
    return range(first, first + o.span)


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_every_byte(data: st.DataObject):
    program = make_program(data.draw(programs(CHIP)), CHIP)
    stream, (section,) = program.stream, program.sections
    wanted: dict[bool, set[int]] = {False: set(), True: set()}
    for o, env in operands(section.body, {}):
        place = stream.places[o.buffer].offset
        for writes in (False, True):
            if o.writes if writes else o.reads:
                wanted[writes].update(place + b for b in bytes_of(o, env))
    found = program_touched(stream, program.sections)
    (row,) = [i for i, k in enumerate(stream.site)
              if stream.sites[k].instruction.name == section.instruction.name]  # fmt: skip
    for writes in (False, True):
        boxes = np.flatnonzero((found.row == row) & (found.writes == writes))
        touched, certain = set(), set()
        for k in boxes:
            pairs = zip(found.extents[k], found.steps[k], strict=True)
            axes = [range(0, n * s, s) for n, s in pairs if s]
            inside = {int(found.start[k]) + sum(at) for at in itertools.product(*axes)}
            touched |= inside
            certain |= inside if found.exact[k] else set()
        assert wanted[writes] <= touched
        assert certain <= wanted[writes]
