"""Streams that cannot be made of a kernel."""

import pytest
from stream_cases import CASES

from tilewright.backends.stream.stream import expand_stream
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Symbol
from tilewright.ir.loop import For, Stmt, map_block, map_inner_blocks
from tilewright.schedule.schedule import Schedule


def test_a_loop_without_a_number():
    built = CASES["tiny"].build()
    first: list[str] = []

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and not first:
            first.append(str(stmt.var))
            return stmt.with_(extent=Symbol("n"))
        return map_inner_blocks(stmt, lambda b: map_block(b, change))

    kernel = built.kernel.with_(body=map_block(built.kernel.body, change))
    with pytest.raises(CompileError) as error:
        expand_stream(kernel, built.target)
    assert error.value.what == f"loop {first[0]} runs n times, which is not a number"


def test_a_statement_that_no_instruction_does():
    source = CASES["tiny"].source
    with pytest.raises(CompileError) as error:
        expand_stream(Schedule(source).kernel, CASES["tiny"].target())
    assert error.value.what == "a statement is left that no instruction does"
    assert error.value.hint == "map it with tensorize, or leave it to the host"
