"""Fields that hold distances from row to row, and what the program says of them."""

from dataclasses import replace

import pytest
from stream_cases import CASES

from tilewright.backends.stream.faults import FaultKind, name_of
from tilewright.backends.stream.steps import check_steps
from tilewright.base.errors import CompileError
from tilewright.chip_kernel import ChipKernel, proven_stream
from tilewright.ir.loop import Call, Stmt, map_block, map_inner_blocks


@pytest.fixture(scope="module")
def built() -> ChipKernel:
    return CASES["tiny"].build()


@pytest.mark.parametrize("name", CASES)
def test_streams_step_as_their_programs_do(name: str):
    assert check_steps(CASES[name].build().stream) is None


def test_a_field_that_steps_otherwise(built: ChipKernel):
    s = built.stream
    row = next(r for r in range(len(s)) if s.sites[s.site[r]].instruction.name == "mvin")
    instruction = s.sites[s.site[row]].instruction
    column = next(k for k, f in enumerate(instruction.fields) if f.name == "stride")
    fields = s.fields.copy()
    fields[row, column] += 3
    damaged = replace(s, fields=fields)
    fault = check_steps(damaged)
    operand = instruction.operands[0]
    bytes_ = operand.dtype.bytes
    assert (fault.kind, fault.rows) == (FaultKind.STEPS, (row,))
    assert str(fault) == (
        f"{name_of(damaged, row)}, steps {fields[row, column] * bytes_} bytes along axis 0 of "
        f"{operand.name}, where the program steps {s.fields[row, column] * bytes_}"
    )


def test_a_parameter_whose_rows_were_moved_apart(built: ChipKernel):
    """Its regions say where rows lie now; the fields of loads are those of before."""
    (old, *_) = built.kernel.inputs
    new = old.with_(shape=(*old.shape[:-1], 2 * old.shape[-1]))

    def moved(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Call):
            return map_inner_blocks(stmt, lambda b: map_block(b, moved))
        regions = (r.with_(buffer=new) if r.buffer == old else r for r in stmt.regions)
        return stmt.with_(regions=tuple(regions))

    inputs = tuple(new if b == old else b for b in built.kernel.inputs)
    kernel = built.kernel.with_(inputs=inputs, body=map_block(built.kernel.body, moved))
    with pytest.raises(CompileError) as caught:
        proven_stream(kernel, built.target)
    row_bytes = old.shape[-1] * old.dtype.bytes
    assert str(caught.value).startswith(f"the stream of {kernel.name} is wrong: instruction ")
    assert (
        f", steps {row_bytes} bytes along axis 0 of src, where the program steps {2 * row_bytes}"
        in str(caught.value)
    )
