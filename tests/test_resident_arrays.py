"""Arrays that stay in a chip's memory between pieces of a stream."""

import numpy as np
import pytest
from stream_kernels import added, check, first, second

from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Call, Kernel, walk_statements
from tilewright.plan.same_kernels import with_param_names
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

N = 8  # pixels along an axis
C = 16
ARRAY = C * N * N  # bytes, four times as many as weights of 1x1


def named(kernel: Kernel, **names: str) -> Kernel:
    return with_param_names(kernel, names)


def layers(count: int, window: int = 1) -> list[Kernel]:
    """One convolution behind another: M0 -> M1 -> …"""
    each = second(C, N, window)
    return [named(each, A=f"M{k}", B=f"M{k + 1}", W=f"W{k}") for k in range(count)]


def brought(built: ChipKernel, name: str) -> set[str]:
    """The instructions that read or write an array outside of the chip."""
    calls = [x for x in walk_statements(built.kernel.body) if isinstance(x, Call)]
    return {x.instruction.name for x in calls for r in x.regions if r.buffer.name == name}


def local_bytes(built: ChipKernel) -> int:
    return max(p.end(b) for b, p in built.stream.places.items() if p.memory == "local")


def test_what_passes_stays_inside():
    """Only the first operand and the last result are moved."""
    built = check(*layers(3, window=3), target=conv_engine())
    assert brought(built, "M0") == {"load"}
    assert brought(built, "M1") == brought(built, "M2") == set()
    assert brought(built, "M1_local") == brought(built, "M2_local") == {"conv"}
    assert brought(built, "M3") == {"store"}
    moved = built.timeline.moved
    weights = 3 * C * C * 9
    assert moved["dram", "local"] == ARRAY + weights
    assert moved["local", "dram"] == ARRAY


@pytest.mark.long
def test_memory_is_used_again():
    """Five layers need two arrays and weights at a time."""
    built = check(*layers(5), target=conv_engine(3 * ARRAY))
    assert not any(brought(built, f"M{k}") for k in range(1, 4))
    assert local_bytes(built) <= 3 * ARRAY


def residual() -> list[Kernel]:
    """M1 is read by the next layer, and by an addition, which brings its operands."""
    return [
        *layers(3),
        named(added(C, N, 3, 5), A="M3", B="M1", Z="Z"),
    ]


@pytest.mark.long
def test_what_others_read_outside_is_spilled():
    built = check(*residual(), target=conv_engine())
    assert brought(built, "M1_local") == {"conv", "store"}
    assert brought(built, "M1") == {"store", "load"}
    assert brought(built, "M2") == set()
    assert "M3_local" not in {b.name for b in built.stream.places}  # nobody reads it inside
    assert len(built.pieces) == 4
    assert sum(p.cycles for p in built.pieces) == built.cycles


def late_reader() -> list[Kernel]:
    """M1 is read inside by the first layer behind it, and by the last of four."""
    return [
        *layers(4),
        named(first(C, N), X="M1", V="V", A="S"),
        named(added(C, N, 1, 1), A="S", B="M4", Z="Z"),
    ]


@pytest.mark.long
def test_where_there_is_no_room_for_all():
    """With room for all of M1 and two more it stays until it is read; with less, some are
    spilled, and each that is has a reader outside."""
    wide = check(*late_reader(), target=conv_engine(8 * ARRAY))
    assert brought(wide, "M1") == set()
    narrow = check(*late_reader(), target=conv_engine(3 * ARRAY))
    outside = [f"M{k}" for k in range(1, 4) if brought(narrow, f"M{k}")]
    assert outside
    assert all(brought(narrow, name) == {"store", "load"} for name in outside)
    assert local_bytes(narrow) <= 3 * ARRAY


@pytest.mark.long
@pytest.mark.parametrize(
    "eighths", [7, *(pytest.param(n, marks=pytest.mark.long) for n in (15, 19, 27))]
)
def test_memories_of_any_size(eighths: int):
    """`check` runs it also in other orders, with every byte watched."""
    size = eighths * ARRAY // 8
    built = check(*residual(), target=conv_engine(size))
    assert local_bytes(built) <= size


@pytest.mark.long
def test_no_slower():
    """What stays inside costs no cycles: a stream takes at most what its pieces take alone."""
    stream = check(*layers(3), target=conv_engine())
    alone = sum(check(k, target=conv_engine()).cycles for k in layers(3))
    assert stream.cycles <= alone


@pytest.mark.parametrize("target", [vta(), gemmini()], ids=lambda t: t.name)
def test_units_that_leave_sums_elsewhere(target: Target):
    """No operand is where results are, so arrays pass outside."""
    built = check(*layers(2), target=target)
    assert len(brought(built, "M1")) == 2


@pytest.mark.long
def test_decisions_do_not_depend_on_the_order_of_sets():
    """Two streams of the same kernels, made in one process with other objects, are one."""
    streams = [check(*residual(), target=conv_engine()).stream for _ in range(2)]
    assert np.array_equal(streams[0].fields, streams[1].fields)
    assert np.array_equal(streams[0].addresses, streams[1].addresses)
