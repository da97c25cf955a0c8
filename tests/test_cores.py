"""Chips of several cores: all of them do a kernel, each on its part of the arrays; what is built is
right, free of races, and as many times faster as the memory that they share allows."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from attention_chips import softmax_engine, vector_core
from unit_chips import dram_engine, several_cubes, weight_fifo, weight_register

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_cases import attention, layer_norm, softmax
from chip_kernels import Case, gemm
from matrix_cases import conv, dense, gram, grouped, transposed
from vector_cases import global_average, max_pool, relu6

import tilewright
from tilewright import cast, grid, i8, i32, kernel
from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.cores import check_cores, core_stream
from tilewright.backends.stream.encode import encode
from tilewright.backends.stream.faults import FaultKind
from tilewright.base.errors import TargetError
from tilewright.chip import build_chip, lower_bound
from tilewright.options import Options
from tilewright.plan.core_split import core_splits
from tilewright.target.cores import one_core
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"


def of_cores(target: Target, cores: int, wider: float = 1) -> Target:
    """So many of a chip as the cores of one, with one memory outside of so many times its
    bandwidth."""
    memories = tuple(
        replace(m, shared_by=cores, bandwidth=m.bandwidth and m.bandwidth * wider)
        if m.size is None
        else m
        for m in target.memories
    )
    return replace(target, cores=cores, memories=memories)


def check(case: Case, target: Target, cores: int, *, orders: int = 2):
    """The kernel on a chip of several cores: right, in every order that waits allow."""
    built = build_chip(case.kernel, target)
    arguments = case.arguments()
    expected = case.reference(*arguments[:-1])
    assert case.agrees(built(*arguments), expected)
    assert built.stream.cores == cores
    assert built.replay(*arguments, orders=orders) is None
    assert built.bound is None or built.bound.cycles <= built.cycles
    return built


# ---------------------------------------------------------------- as fast as the memory allows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chip", [lambda: several_cubes(1), gemmini, vta], ids=lambda f: f().name)
@pytest.mark.parametrize(
    "case", [gemm(256), conv("3x3", 14, 128, 128, 3, before=1)], ids=lambda c: c.name
)
def test_four_cores_are_nearly_four_times_as_fast(case, chip):
    alone = build_chip(case.kernel, of_cores(chip(), 1, 4))
    together = check(case, of_cores(chip(), 4, 4), 4)
    assert alone.cycles >= 3.6 * together.cycles
    assert lower_bound(case.kernel, of_cores(chip(), 4, 4)).cycles >= 0.9 * together.cycles


def test_cores_wait_for_the_memory_that_they_share():
    """A dense layer of few rows is bound by its weights, however many cores there are."""
    case = dense(16)
    alone = build_chip(case.kernel, gemmini())
    together = check(case, gemmini(cores=4), 4)
    assert together.cycles > 0.9 * alone.cycles
    assert together.bound.moves > together.bound.work


def test_one_core_does_what_four_would_not_do_faster():
    """A kernel of a number has no loop to share."""

    @kernel
    def copy(X: i8[1, 16], Y: i8[1, 16]):
        for i, j in grid(1, 16):
            Y[i, j] = X[i, j]

    built = build_chip(copy.kernel, gemmini(cores=4))
    x = np.arange(16, dtype=np.int8)[None]
    assert np.array_equal(built(x, np.zeros_like(x)), x)
    assert built.cycles <= build_chip(copy.kernel, gemmini()).cycles


def test_some_cores_do_nothing_where_parts_would_not_be_even():
    """48 rows are three times 16, as which the instructions take numbers of rows, and a fifth of
    them would be filled up to that."""
    check(softmax(48, 32), of_cores(vector_core(), 5), 3)


# ---------------------------------------------------------------- every kind of kernel and chip


CHIPS = {
    "vta": vta, "gemmini": gemmini, "conv_engine": conv_engine, "weight_fifo": weight_fifo,
    "dram_engine": dram_engine, "register": lambda: weight_register(2),
    "vector_core": vector_core, "softmax_engine": softmax_engine,
}  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    "chip, case",
    [
        ("vta", conv("7 rows, 3 cores", 7, 32, 48, 3, before=1)),
        ("vta", max_pool(32, 14, 3, 2, 1)),
        ("vta", relu6(32, 14)),
        ("vta", global_average(512, 7)),
        ("gemmini", grouped(14, 4, 16, 16)),
        ("gemmini", conv("first", 28, 3, 32, 3, 2, before=1)),
        ("gemmini", transposed(14, 32, 32, 2)),
        ("gemmini", gram(64, 48)),
        ("gemmini", gram(90, 40)),
        ("gemmini", conv("dilated", 14, 16, 32, 3, 1, 2, before=2)),
        ("conv_engine", conv("3x3", 14, 32, 32, 3, before=1)),
        ("conv_engine", conv("5x5", 14, 16, 32, 5, before=2)),
        ("weight_fifo", dense(64, 128, 128)),
        ("dram_engine", conv("1x1", 14, 64, 64, 1)),
        ("register", dense(64, 128, 128)),
        ("vector_core", softmax(64, 64)),
        ("vector_core", layer_norm(64, 64)),
        ("vector_core", attention(64, 64)),
        ("softmax_engine", softmax(64, 64)),
    ],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_kernels_are_shared(chip, case):
    cores = 3 if "3 cores" in case.name else 4
    built = check(case, of_cores(CHIPS[chip](), cores, cores), cores)
    alone = build_chip(case.kernel, of_cores(CHIPS[chip](), 1, cores))
    assert built.cycles < alone.cycles


def test_parts_of_an_array_begin_where_a_chip_has_addresses():
    """VTA addresses DRAM in squares of weights: 7x7 results of a core are no number of those."""
    case = conv("3x3", 7, 64, 64, 3, before=1)
    built = check(case, of_cores(vta(), 4, 4), 4)
    assert not (built.stream.shifts % vta().alignment("dram")).any()
    alone = encode(core_stream(built.stream, 0), built.waits)
    assert np.array_equal(built.words()[: len(alone)], alone)
    assert len(built.words()) == 4 * len(alone)


@pytest.mark.long
def test_streams_of_cores_are_the_same_but_for_addresses():
    case = dense(128)
    built = build_chip(case.kernel, gemmini(cores=4))
    first, last = core_stream(built.stream, 0), core_stream(built.stream, 3)
    assert np.array_equal(first.fields, last.fields)
    assert not np.array_equal(first.addresses, last.addresses)
    assert len(built.timeline.cores) == 4
    assert built.cycles == max(int(t.end.max()) for t in built.timeline.cores)
    assert "4 cores, of which this is the last one's run" in str(built.timeline)
    why = built.explain()
    assert str(why).splitlines()[1] == "4 cores, of which this is the one that is done last"
    assert why.memories["dram"] == built.timeline.bytes_moved / 16  # of all cores


# ---------------------------------------------------------------- what is not alike


def test_no_core_writes_what_another_touches():
    built = build_chip(dense(128).kernel, gemmini(cores=4))
    found = boxes(core_stream(built.stream, 0))
    assert check_cores(built.stream, found) is None
    writes = built.stream.shifts.any(axis=(0, 2)) & np.array(
        [s.instruction.name == "mvout" for s in built.stream.sites]
    )
    assert writes.any()
    together = built.stream.shifts.copy()
    together[1, writes] = together[0, writes]
    fault = check_cores(replace(built.stream, shifts=together), found)
    assert fault.kind is FaultKind.RACE
    first, second = str(fault).splitlines()
    assert re.fullmatch(
        r"instruction \d+, mvout\(.*\) of store on core 1, touches what instruction \d+,"
        r" mvout\(.*\) of store on core 0, touches, one of them writing",
        first,
    )
    assert re.fullmatch(r"  instruction \d+ \w+ it: operand \w+, .*gemmini.py:\d+", second)


@kernel
def prefix(X: i8[64, 16], Y: i8[64, 16]):
    for i, j in grid(64, 16):
        Y[i, j] = X[i // 2, j]


@kernel
def numbered(X: i32[64, 16], Y: i32[64, 16]):
    for i, j in grid(64, 16):
        Y[i, j] = X[i, j] + cast(i32, i)


def shared(split) -> dict[str, int]:
    return {v.name: x.count for x in split.loops for v in x.variables}


def test_loops_that_make_cores_differ_are_not_shared():
    """Rows are read in pairs in one kernel, and numbered in the other: a core's would be others."""
    for each in (prefix.kernel, numbered.kernel):
        assert [shared(s) for s in core_splits(each, 4)] == [{"j": 4}]


def test_ways_to_share_a_convolution():
    ways = [shared(s) for s in core_splits(conv("c", 14, 8, 16, 3, before=1).kernel, 4)]
    of = [{name: n for name, n in way.items() if "_" not in name} for way in ways]
    assert of == [
        {"o": 4}, {"y": 4}, {"x": 4}, {"o": 2, "y": 2}, {"o": 2, "x": 2}, {"x": 2, "y": 2},
    ]  # fmt: skip


def test_a_core_has_its_part_of_what_is_shared():
    t = TargetBuilder("shared", clock=1e9, cores=4)
    t.memory("dram", bandwidth=32)
    t.memory("l2", 1 << 20, shared_by=4, bandwidth=64)
    t.memory("spad", 64 << 10, bandwidth=128)
    t.queues("load", depth=4)
    core = one_core(t.build(), 2)
    assert [(m.name, m.size, m.bandwidth) for m in core.memories] == [
        ("dram", None, 16), ("l2", 1 << 18, 32), ("spad", 64 << 10, 128),
    ]  # fmt: skip
    assert core.cores == 1


NOT_DESCRIBED = {  # the memory, and what is said
    "some cores": (
        {"size": 1024, "shared_by": 2},
        "memory m is shared by 2 of 4 cores",
        "shared_by=4, or 1: each core has one of its own",
    ),
    "outside": (
        {"shared_by": 1},
        "memory m has no size, and each core one of its own",
        "arrays lie there for all cores: leave shared_by out",
    ),
    "banks": (
        {"size": 1024, "shared_by": 4, "banks": 2},
        "memory m has 2 banks, and is shared by 4 cores",
        "banks are simulated within a core: leave them out",
    ),
}


@pytest.mark.parametrize("name", NOT_DESCRIBED)
def test_what_cannot_be_described(name):
    memory, what, hint = NOT_DESCRIBED[name]
    t = TargetBuilder("several", clock=1e9, cores=4)
    t.memory("m", **memory)
    t.queues("load", depth=4)
    with pytest.raises(TargetError) as caught:
        t.build()
    assert str(caught.value) == f"several: {what}\n  hint: {hint}"


def test_more_cores_than_are_simulated():
    t = TargetBuilder("several", clock=1e9, cores=65)
    t.queues("load", depth=4)
    with pytest.raises(TargetError) as caught:
        t.build()
    assert str(caught.value) == "several: 65 cores with queues, and at most 64 are simulated"


# ---------------------------------------------------------------- models


@pytest.mark.long
def test_a_model_on_several_cores(digits, tmp_path):
    """Each kernel is shared, in streams of their own; a saved model is the same."""
    with np.load(DIGITS / "held_out.npz") as file:
        image = file["images"][:1]
    options = Options(dims={"batch": 1}, rounding="half_up")
    alone, several = (
        tilewright.compile(
            digits, target={"host": "host", "npu": gemmini(cores=n)}, options=options
        )
        for n in (1, 4)
    )
    assert np.array_equal(several(image), alone(image))
    several.save(tmp_path / "digits.tw")
    assert np.array_equal(tilewright.load(tmp_path / "digits.tw")(image), alone(image))
