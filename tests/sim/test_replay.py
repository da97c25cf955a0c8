"""Streams in adversarial orders: right ones are never accused, and faults are told apart."""

from dataclasses import replace

import numpy as np
import pytest
from handmade_streams import BYTES, copier, stream_of, windows
from stream_cases import CASES

from tilewright import u8
from tilewright.backends.stream.addresses import Place
from tilewright.backends.stream.faults import FaultKind
from tilewright.backends.stream.waits import Waits, no_waits, synchronise
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer
from tilewright.sim.replay import replay
from tilewright.targets import cpu

HOST = cpu.host(threads=1)


@pytest.fixture(scope="module")
def built() -> ChipKernel:
    return CASES["tiny"].build()


@pytest.fixture(scope="module")
def arrays() -> list[np.ndarray]:
    inputs, outputs = CASES["tiny"].arrays(0)
    return [*inputs, *outputs]


KINDS = ("interlock", "hub", "events", "barriers")


@pytest.mark.parametrize(
    "name", ["tiny", "vta", "fused, single", *(f"chip with {k}" for k in KINDS)]
)
def test_right_streams_are_not_accused(name: str):
    inputs, outputs = CASES[name].arrays(3)
    assert CASES[name].build().replay(*inputs, *outputs, orders=24, seed=5) is None


def left_out(chip: ChipKernel, row: int) -> ChipKernel:
    """Without the waits of an instruction, and what they take."""
    pops, pushes = chip.waits.pops.copy(), chip.waits.pushes.copy()
    names = [q.name for q in chip.target.queues]
    queue = [names.index(chip.stream.sites[s].instruction.queue) for s in chip.stream.site]
    for p in range(len(names)):
        if int(pops[row]) >> p & 1:
            takers = [i for i in range(len(queue)) if queue[i] == queue[row] and pops[i] >> p & 1]
            givers = [i for i in range(len(queue)) if queue[i] == p and pushes[i] >> queue[row] & 1]
            pushes[givers[takers.index(row)]] &= ~np.uint32(1 << queue[row])
    pops[row] = 0
    return replace(chip, waits=Waits(pops, pushes))


def test_every_wait_that_is_left_out_shows(built: ChipKernel, arrays: list[np.ndarray]):
    """In the first orders already: with each queue as far ahead as it can go."""
    rows = np.flatnonzero(built.waits.pops)
    assert len(rows) > 10
    for row in rows:
        fault = left_out(built, row).replay(*arrays, orders=6)
        assert fault.kind is FaultKind.STALE
        assert fault.kind.is_synchronisation


def test_stale_data_are_reported_with_all_three(built: ChipKernel, arrays: list[np.ndarray]):
    """Who reads, whose data it reads, and whose it should."""
    s = built.stream
    faults = [left_out(built, row).replay(*arrays) for row in np.flatnonzero(built.waits.pops)]
    kinds = ["gemm", "mvin", "mvin"]
    names = [[s.sites[s.site[r]].instruction.name for r in fault.rows] for fault in faults]
    fault = faults[names.index(kinds)]
    reader, *writers = fault.rows
    instruction = s.sites[s.site[reader]].instruction
    found, wanted = (
        f"instruction {r}, mvin(rows={s.fields[r, 0]}, stride={s.fields[r, 1]}) of load,"
        for r in writers
    )
    head, reads, order = str(fault).split("\n")
    at = head.split("reads byte ")[1].split(" ")[0]
    assert head == (
        f"instruction {reader}, gemm(accumulate={s.fields[reader, 0]}) of compute, reads byte {at} "
        f"of spad as {found} left it, and in program order as {wanted} did"
    )
    operand = reads.split("operand ")[1][0]
    where = f"{instruction.file}:{instruction.lines[-1]}"
    assert reads == f"  instruction {reader} reads it: operand {operand}, {where}"
    assert order.startswith("  in the order: ")
    assert order.endswith(", each as far as it can go")


def test_results_that_are_wrong_in_program_order(built: ChipKernel, arrays: list[np.ndarray]):
    """No matter of synchronisation."""
    *inputs, expected = arrays
    wrong = expected.copy()
    wrong[5, 7] += 1
    fault = built.replay(*inputs, wrong)
    assert str(fault) == (
        f"instructions one after another: C[5, 7] is {expected[5, 7]}, and should be {wrong[5, 7]}"
    )
    assert not fault.kind.is_synchronisation


def test_results_that_depend_on_unwritten_memory(built: ChipKernel, arrays: list[np.ndarray]):
    """The bytes are found before any data are run."""
    s = built.stream
    row = next(r for r in range(len(s)) if s.sites[s.site[r]].instruction.name == "gemm")
    fields = s.fields.copy()
    fields[row, 0] = 1
    fault = replace(built, stream=replace(s, fields=fields)).replay(*arrays)
    assert fault.kind is FaultKind.UNWRITTEN
    assert not fault.kind.is_synchronisation


def test_a_stream_that_stops(built: ChipKernel, arrays: list[np.ndarray]):
    pushes = built.waits.pushes.copy()
    pushes[np.flatnonzero(pushes)[0]] = 0
    fault = replace(built, waits=Waits(built.waits.pops, pushes)).replay(*arrays)
    assert fault.kind is FaultKind.DEADLOCK
    assert fault.kind.is_synchronisation


def test_the_last_writer_of_an_output_counts():
    """Two write the same place with the same bytes, and nothing says which comes last."""
    rows = [("load_copy", {"n": 8}, (0, 200)), ("compute_copy", {"n": 8}, (0, 200))]
    held, result = Buffer("held", u8, (64,), "m"), Buffer("result", u8, (8,), "m")
    places = {held: Place("m", 0), result: Place("m", 200)}
    s = replace(stream_of(copier("tokens"), rows, {"m": BYTES}), places=places)
    inputs = {held: np.arange(64, dtype=np.uint8)}
    assert replay(s, synchronise(s).waits, HOST, inputs, [result]) is None
    fault = replay(s, no_waits(s), HOST, inputs, [result])
    assert (fault.kind, fault.rows) == (FaultKind.STALE, (0, 1))
    assert str(fault) == (
        "result is at the end as instruction 0, load_copy(n=8) of load, left it, and in program "
        "order as instruction 1, compute_copy(n=8) of compute, did\n"
        "  in the order: compute, then load, each as far as it can go"
    )


def test_data_that_are_read_too_early():
    rows = [("load_copy", {"n": 8}, (0, 100)), ("compute_copy", {"n": 8}, (100, 200))]
    held, result = Buffer("held", u8, (64,), "m"), Buffer("result", u8, (8,), "m")
    places = {held: Place("m", 0), result: Place("m", 200)}
    s = replace(stream_of(copier("tokens"), rows, {"m": BYTES}), places=places)
    inputs = {held: np.arange(64, dtype=np.uint8)}
    fault = replay(s, no_waits(s), HOST, inputs, [result])
    assert str(fault).split("\n")[0] == (
        "instruction 1, compute_copy(n=8) of compute, reads byte 100 of m as nobody left it, and "
        "in program order as instruction 0, load_copy(n=8) of load, did"
    )


def test_results_that_depend_on_memory_in_ways_that_are_not_judged():
    """A triangle is no box: whether what it reads was written shows in the results."""
    held, result = Buffer("held", u8, (64,), "m"), Buffer("result", u8, (8,), "m")
    rows = [("triangle", {"n": 8}, (40, 200))]
    s = stream_of(windows(), rows, {"m": 1024})
    s = replace(s, places={held: Place("m", 0), result: Place("m", 200)})
    inputs = {held: np.arange(64, dtype=np.uint8)}
    fault = replay(s, no_waits(s), HOST, inputs, [result])
    assert fault.kind is FaultKind.UNWRITTEN
    assert str(fault).startswith("memory that nothing has written: result[")
