"""Bytes that an operand does not have, and bytes that nothing has written: in whole sentences."""

from dataclasses import replace

import numpy as np
import pytest
from handmade_streams import BYTES, copier, stream_of
from stream_cases import CASES

from tilewright import u8
from tilewright.backends.stream.addresses import Place
from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.faults import FaultKind, name_of
from tilewright.backends.stream.memory import check_bounds, check_memory, check_written
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer


@pytest.fixture(scope="module")
def built() -> ChipKernel:
    return CASES["tiny"].build()


def lines_of(chip: ChipKernel, name: str) -> tuple[str, tuple[int, ...]]:
    instruction = next(i for i in chip.target.instructions if i.name == name)
    return instruction.file, instruction.lines


def test_streams_of_kernels_have_no_faults(built: ChipKernel):
    assert check_memory(built.stream, built.kernel.inputs) is None


def test_an_operand_that_ends_outside(built: ChipKernel):
    s = built.stream
    row = next(r for r in range(len(s)) if s.sites[s.site[r]].instruction.name == "gemm")
    addresses = s.addresses.copy()
    addresses[row, 0] -= 32
    fault = check_memory(replace(s, addresses=addresses), built.kernel.inputs)
    begin = int(addresses[row, 0])
    file, lines = lines_of(built, "gemm")
    more = s.fields[row, 0]
    assert (fault.kind, fault.rows) == (FaultKind.OUTSIDE, (row,))
    assert str(fault) == (
        f"instruction {row}, gemm(accumulate={more}) of compute, touches bytes {begin} to "
        f"{begin + 255} of spad, and A_local lies at 0 to 2047\n"
        f"  instruction {row} reads it: operand a, {file}:{lines[-1]}"
    )


def test_a_read_before_anything_is_written(built: ChipKernel):
    """A sum that goes on from nothing."""
    s = built.stream
    row = next(r for r in range(len(s)) if s.sites[s.site[r]].instruction.name == "gemm")
    fields = s.fields.copy()
    fields[row, 0] = 1
    fault = check_memory(replace(s, fields=fields), built.kernel.inputs)
    file, lines = lines_of(built, "gemm")
    assert (fault.kind, fault.rows) == (FaultKind.UNWRITTEN, (row,))
    assert str(fault) == (
        f"instruction {row}, gemm(accumulate=1) of compute, reads byte {s.addresses[row, 2]} of "
        "acc, which nothing has written\n"
        f"  instruction {row} reads it: operand c, {file}:{lines[-1]}"
    )


def test_inputs_are_there_from_the_start(built: ChipKernel):
    fault = check_written(boxes(built.stream), [])
    assert fault.kind is FaultKind.UNWRITTEN
    assert "of load, reads byte" in str(fault)
    assert "of dram, which nothing has written" in str(fault)


def test_part_of_what_is_read_was_written():
    """The first byte that was not."""
    rows = [("load_copy", {"n": 8}, (0, 64)), ("compute_copy", {"n": 16}, (64, 128))]
    held = Buffer("held", u8, (64,), "m")
    s = stream_of(copier("interlock"), rows, {"m": BYTES})
    b = boxes(replace(s, places={held: Place("m", 0)}))
    assert check_bounds(b) is None
    assert check_written(b, [held]).text.startswith(
        "instruction 1, compute_copy(n=16) of compute, reads byte 72 of m, which nothing has "
        "written\n"
    )


@pytest.mark.parametrize("address", [BYTES - 4, -4])
def test_a_memory_that_ends(address: int):
    rows = [("load_copy", {"n": 8}, (64, address))]
    fault = check_bounds(boxes(stream_of(copier("interlock"), rows, {"m": BYTES})))
    assert str(fault).startswith(
        f"instruction 0, load_copy(n=8) of load, touches bytes {address} to {address + 7} of m, "
        f"and m lies at 0 to {BYTES - 1}\n"
    )


def test_cells_at_the_ends_of_memory_are_not_passed():
    """Even where bounds are not checked: nothing is written outside of the shadow."""
    rows = [("load_copy", {"n": 8}, (64, a)) for a in (-4, BYTES - 4, -500, 4 * BYTES)]
    assert check_written(boxes(stream_of(copier("interlock"), rows, {"m": BYTES})), []) is not None


# ---------------------------------------------------------------- registers


def test_a_register_that_holds_something_else():
    built = CASES["gemmini"].build()
    s = built.stream
    names = [s.sites[k].instruction.name for k in s.site]
    setter = next(i.name for i in built.target.instructions if i.sets_state)
    row = names.index(setter)
    fields = s.fields.copy()
    column = int(np.flatnonzero(fields[row])[0])
    fields[row, column] += 1
    fault = check_memory(replace(s, fields=fields), built.kernel.inputs)
    user, setting = fault.rows
    assert (fault.kind, setting) == (FaultKind.STATE, row)
    register = (setter, s.sites[s.site[row]].instruction.fields[column].name)
    user_fields = s.sites[s.site[user]].instruction.fields
    field = next(f.name for f in user_fields if f.register == register)
    changed = replace(s, fields=fields)
    assert str(fault) == (
        f"{name_of(changed, user)}, has {field} in a register that holds something else\n"
        f"  {name_of(changed, row)}, set it last"
    )


def test_a_register_that_nothing_has_set():
    built = CASES["gemmini"].build()
    s = built.stream
    kept = [r for r in range(len(s)) if not s.sites[s.site[r]].instruction.sets_state]
    columns = {name: getattr(s, name)[kept] for name in ("site", "fields", "addresses", "lists")}
    fault = check_memory(replace(s, **columns), built.kernel.inputs)
    assert fault.kind is FaultKind.STATE
    assert str(fault).endswith(" in a register that nothing has set")
