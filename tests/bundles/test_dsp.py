"""The signal processor, from its description alone: exact to the bit, and close to what its slots
need at least."""

from collections.abc import Callable

import numpy as np
import pytest
from dsp_kernels import (
    LOCAL,
    conv,
    convolved,
    depthwise,
    dots,
    filtered,
    filtered_channels,
    fir,
    in_bytes,
    layer,
    pairs,
    product,
    row_products,
)

from tilewright import cast, grid, i8, i32, kernel, reduce
from tilewright.backends.bundles.code import loops
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.python.words import out
from tilewright.kernels import KernelFunction, Schedule
from tilewright.targets.dsp import dsp

Reference = Callable[..., np.ndarray]


# Kernel, reference, and the share of the bound that is reached at least.
CASES: dict[str, tuple[KernelFunction, Reference, float]] = {
    "dot products": (dots.bind(M=32, N=64, K=256), product, 0.9),
    "dot products of pairs": (pairs.bind(N=64, K=512), row_products, 0.95),
    "FIR": (fir.bind(T=16384, K=32), filtered, 0.9),
    "3x3": (conv.bind(H=16, W=16, C=16, F=32, R=3), convolved, 0.9),
    "1x1": (conv.bind(H=16, W=16, C=64, F=32, R=1), convolved, 0.85),
    "3x3 of a network": (layer.bind(H=8, W=16, C=16, F=64, R=3), in_bytes, 0.85),
    "depthwise 3x3": (depthwise.bind(H=28, W=28, C=64, R=3), filtered_channels, 0.85),
}


def inputs(built: ChipKernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, b.shape).astype(b.dtype.numpy) for b in built.source.inputs]


def run(built: ChipKernel) -> tuple[np.ndarray, list[np.ndarray]]:
    arrays = inputs(built)
    (output,) = built.source.outputs
    return built(*arrays, np.zeros(output.shape, output.dtype.numpy)), arrays


@pytest.mark.sampled(3)
@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "in turn"])
@pytest.mark.parametrize("name", CASES)
def test_exact_and_near_the_bound(name: str, overlap: bool):
    function, reference, share = CASES[name]
    built = build_chip(function.kernel, dsp(), overlap=overlap)
    result, arrays = run(built)
    np.testing.assert_array_equal(result, reference(*arrays))
    assert built.bound.cycles <= built.cycles
    if overlap:
        assert built.bound.cycles >= share * built.cycles
        for section in built.program.sections:  # every interval is as short as can be
            for loop in loops(section.code):
                p = loop.pipelined
                assert p is None or p.interval == max(p.slots, p.recurrence)


@pytest.mark.parametrize("name", ["dot products", "3x3"])
def test_in_many_orders(name: str):
    """Transfers as early and as late as the waits let them."""
    function, reference, _ = CASES[name]
    built = build_chip(function.kernel, dsp())
    arrays = inputs(built)
    assert built.replay(*arrays, reference(*arrays), orders=8) is None


def test_build_runs_it_on_the_chip():
    """Like any target's: the same call, arrays in, arrays out."""
    built = fir.bind(T=16384, K=16).build(dsp())
    result, arrays = run(built)
    np.testing.assert_array_equal(result, filtered(*arrays))
    assert built.predicted == pytest.approx(built.cycles, rel=0.15)


def test_rings_save_bytes_and_energy():
    """Columns of the picture that the next tile needs again stay in local memory."""
    function = conv.bind(H=48, W=32, C=16, F=16, R=7)
    chip = dsp(local=20 << 10)
    built = {rings: build_chip(function.kernel, chip, rings=rings) for rings in (True, False)}
    for each in built.values():
        result, arrays = run(each)
        np.testing.assert_array_equal(result, convolved(*arrays))
    moved = {rings: b.timeline.moved["dram", "local"] for rings, b in built.items()}
    assert moved[True] < moved[False] / 4
    assert built[True].timeline.joules < 0.95 * built[False].timeline.joules
    assert built[True].cycles < 1.01 * built[False].cycles


def test_a_schedule_by_hand():
    """Sixteen sums in one register, of what is in local memory: each waits for the one before."""

    @kernel
    def few(A: i8[8, 16, 4] @ LOCAL, B: i8[8, 16, 4] @ LOCAL, C: out(i32[16] @ LOCAL)):
        for i in range(16):
            C[i] = 0
            for n, k in reduce(8, 4):
                C[i] += cast(i32, A[n, i, k]) * cast(i32, B[n, i, k])

    chip = dsp()
    by_name = {x.name: x for x in chip.instructions}
    s = Schedule(few)
    s.fold_init(s.cache_write(s.buffer("C"), "v"), s.loop("n"))
    s.reorder(s.loop("n"), s.loop("i"))
    for name in "AB":
        s.cache_read(s.buffer(name), s.loop("n"), "v")
    s.tensorize(s.loop("i"), by_name["vdot"])
    for name in "AB":
        rows = s.fuse(s.loop(f"{name}_local_1"), s.loop(f"{name}_local_2"))
        s.tensorize(rows, by_name["vld_i8"])
    s.tensorize(s.loop("i_c"), by_name["vst_i32"])
    built = s.build(chip)
    result, (a, b) = run(built)
    np.testing.assert_array_equal(result, np.einsum("nik,nik->i", a.astype(int), b))
    assert (
        built.assembly
        == """\
; few on dsp: 29 cycles
; A: i8[8, 16, 4] at 0 of local
; B: i8[8, 16, 4] at 512 of local
; C: i32[16] at 1024 of local
; section0: 29 cycles
{ vld_i8 v1, [B], n=64 | vld_i8 v3, [A], n=64 }
{ nop }
{ nop }
{ vld_i8 v2, [B + 64], n=64 | vld_i8 v4, [A + 64], n=64 }
{ vdot v0, v3, v1, more=0 }
{ loop 3 }
n in 3: ; 8 iterations of n, one every 3 cycles (slots need 1, chains 3), 2 under way, 2 to a round
    { vld_i8 v1, [B + n * 128 + 128], n=64 | vld_i8 v3, [A + n * 128 + 128], n=64 }
    { vdot v0, v4, v2, more=1 }
    { nop }
    { vld_i8 v2, [B + n * 128 + 192], n=64 | vld_i8 v4, [A + n * 128 + 192], n=64 }
    { vdot v0, v3, v1, more=1 }
    { nop }
{ nop }
{ vdot v0, v4, v2, more=1 }
{ nop }
{ nop }
{ vst_i32 [C], v0, n=16 }"""
    )


def test_a_kernel_that_no_operation_does():
    @kernel
    def differences(A: i8[16, 16], B: i8[16, 16], C: i32[16, 16]):
        for i, j in grid(16, 16):
            C[i, j] = 0
            for k in reduce(16):
                C[i, j] += cast(i32, A[i, k]) - cast(i32, B[k, j])

    with pytest.raises(ScheduleError) as error:
        build_chip(differences.kernel, dsp())
    assert error.value.what == (
        "differences has no contraction, and all that dsp computes begins with one"
    )
    assert error.value.hint == "each axis of an instruction needs a loop that plays its part"


def test_elements_of_a_type_that_no_operation_takes():
    @kernel
    def wide(A: i32[16, 16], B: i32[16, 16], C: i32[16, 16]):
        for i, j in grid(16, 16):
            C[i, j] = 0
            for k in reduce(16):
                C[i, j] += A[i, k] * B[j, k]

    with pytest.raises(ScheduleError) as error:
        build_chip(wide.kernel, dsp())
    assert error.value.what == "no operation of dsp takes a contraction of this kernel"
    assert error.value.hint == (
        "the axes of an operation move its registers as loops move the kernel's arrays"
    )


def test_sizes_that_fill_no_operation():
    """Padded; along another loop where what follows the sums could not be done."""
    odd = {
        "dot products": (dots.bind(M=37, N=53, K=29), product),
        "FIR": (fir.bind(T=1000, K=13), filtered),
        "3x3 of a network": (layer.bind(H=13, W=13, C=10, F=18, R=3), in_bytes),
        "depthwise": (depthwise.bind(H=13, W=13, C=10, R=3), filtered_channels),
    }
    for function, reference in odd.values():
        built = build_chip(function.kernel, dsp())
        result, arrays = run(built)
        np.testing.assert_array_equal(result, reference(*arrays))
        assert built.replay(*arrays, reference(*arrays), orders=2) is None


def test_a_memory_that_is_too_small():
    function, _, _ = CASES["3x3"]
    with pytest.raises(TargetError) as error:
        build_chip(function.kernel, dsp(local=1 << 10))
    assert str(error.value) == (
        "no tile of conv fits the memories of dsp\n"
        "  hint: they have (local 1024) bytes, and a tile has whole sums"
    )


def test_arrays_of_many_axes():
    """In blocks for the unit and in two places they have nine."""

    @kernel
    def many(X: i8[1, 32, 1, 1, 1, 1, 3], W: i8[32, 1, 1, 3], Y: i32[1, 32, 1, 1]):
        for n, o, h, w in grid(1, 32, 1, 1):
            Y[n, o, h, w] = 0
            for c, r, s in reduce(1, 1, 3):
                Y[n, o, h, w] += cast(i32, X[n, o, h, w, c, r, s]) * cast(i32, W[o, c, r, s])

    built = build_chip(many.kernel, dsp())
    result, (x, w) = run(built)
    wanted = (x.reshape(32, 3).astype(int) * w.reshape(32, 3)).sum(1)
    np.testing.assert_array_equal(result.reshape(32), wanted)
