"""The tiny chip, from its description alone: kernels become streams, exact to the bit, free of
races, and close to the time that no schedule can beat."""

import pathlib

import numpy as np
import pytest
from byte_kernels import conv, gemm, layer, plane_sums

import tilewright
from tilewright import cast, grid, i8, i32, local, reduce
from tilewright.backends.stream.boxes import dependences
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.decode import decode
from tilewright.backends.stream.waits import Waits
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.chip import build_chip, lower_bound
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.bound import find_bound
from tilewright.sim.events import simulate
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.vary import with_bursts
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny

CHIP = tiny()
# Channels first, for which operands must be arranged.
PLANES = plane_sums(32, 64, 32, 3, 1)
GEMM, SMALL = gemm.bind(M=256, N=256, K=256), gemm.bind(M=48, N=64, K=32)
ONE_TILE = gemm.bind(M=16, N=16, K=16)
CONV = conv.bind(H=32, V=32, R=3, C=32, F=64)


def inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, b.shape).astype(b.dtype.numpy) for b in kernel.inputs]


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.int32) @ b.astype(np.int32)


def convolve(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    h, wide = x.shape[0] - 2, x.shape[1] - 2
    parts = (matmul(x[r : r + h, s : s + wide], w[r, s]) for r in range(3) for s in range(3))
    return sum(parts)


def convolve_planes(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return convolve(x.transpose(1, 2, 0), w.transpose(2, 3, 1, 0)).transpose(2, 0, 1)


# Kernel, reference, and the shares of the bound with tiles that overlap and one after another.
CASES = {
    "gemm": (GEMM, matmul, 0.97, 0.7),
    "small gemm": (SMALL, matmul, 0.5, 0.3),
    "conv": (CONV, convolve, 0.98, 0.85),
    "conv of planes": (PLANES, convolve_planes, 0.98, 0.8),
}


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "single"])
@pytest.mark.parametrize("name", CASES)
def test_exact_and_near_the_bound(name: str, overlap: bool):
    function, reference, overlapped, single = CASES[name]
    built = build_chip(function.kernel, CHIP, overlap=overlap)
    arrays = inputs(function.kernel)
    result = np.zeros(function.kernel.outputs[0].shape, np.int32)
    assert built(*arrays, result) is result
    np.testing.assert_array_equal(result, reference(*arrays))
    share = lower_bound(function.kernel, CHIP).cycles / built.timeline.cycles
    wanted = overlapped if overlap else single
    assert wanted <= share <= 1


def test_bound_is_counted_by_hand():
    """256³ multiply-adds at 4,096 in 16 cycles; two loads of 16 rows of 16 bytes at 16 bytes a
    cycle, 16 cycles to set up each, 64 until the last byte is there; the unit's own 32; a store of
    1 KiB."""
    bound = lower_bound(GEMM.kernel, CHIP)
    assert bound.work == 256**3 / 4096 * 16
    assert bound.moves == (65536 + 65536 + 4 * 65536) / 16  # both operands and the result
    assert (bound.fill, bound.drain) == (2 * (16 + 16) + 64, 32 + 16 + 64 + 64)


def test_nothing_is_there_earlier_than_the_bound_says():
    """Where whole planes come faster than a few rows of each, the first operands may well be more
    than the fewest that one step needs: fill and drain are those of the tile that is best."""

    @tilewright.kernel
    def layer(X: i8[256, 9, 9], W: i8[32, 256, 3, 3], Y: i8[32, 7, 7]):
        total = local(i32[32, 7, 7])
        for o, h, w in grid(32, 7, 7):
            total[o, h, w] = 0
            for c, r, s in reduce(256, 3, 3):
                total[o, h, w] += cast(i32, X[c, h + r, w + s]) * cast(i32, W[o, c, r, s])
        for o, h, w in grid(32, 7, 7):
            Y[o, h, w] = cast(i8, max(min(total[o, h, w] >> 8, 127), -128))

    chip = with_bursts(conv_engine(), 64, 256)
    built = build_chip(layer.kernel, chip)
    bound = find_bound(analytic_model(layer.kernel, chip))
    assert (
        built.bound.cycles <= bound.cycles <= built.cycles
    )  # windows side by side may be there earlier
    planes = 32 + 256 * 81 // 16  # set up once; all side by side
    weights = 32 + 256 * 9 // 16  # of one filter
    assert bound.fill == planes + weights + 64


@pytest.fixture(scope="module")
def stream() -> ChipKernel:
    return build_chip(GEMM.kernel, CHIP)


@pytest.mark.long
def test_every_wait_is_needed(stream: ChipKernel):
    """Each wait that is left out is caught."""
    need = dependences(stream.stream)
    assert check_waits(stream.stream, need, stream.waits) is None
    assert stream.waits.count > 400
    for row in np.flatnonzero(stream.waits.pops):
        for queue in range(len(CHIP.queues)):
            if stream.waits.pops[row] >> queue & 1:
                pops = stream.waits.pops.copy()
                pops[row] &= ~np.uint32(1 << queue)
                left_out = Waits(pops, stream.waits.pushes)
                assert check_waits(stream.stream, need, left_out) is not None


def test_a_race_is_reported(stream: ChipKernel):
    """With both instructions, the byte, and the lines of the description."""
    nothing = Waits(np.zeros_like(stream.waits.pops), np.zeros_like(stream.waits.pushes))
    fault = check_waits(stream.stream, None, nothing)
    late, early = fault.rows
    file = CHIP.instructions[0].file
    assert file.endswith("targets/tiny.py")
    source = pathlib.Path(file).read_text().split("\n")
    loads, sums = (
        next(n for n, line in enumerate(source, 1) if line.strip() == text)
        for text in ("dst[i, j] = src[i, j]", "c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])")
    )
    byte = stream.stream.addresses[early, 1]
    operand = "ab"[stream.stream.addresses[late].tolist().index(byte)]
    rows, stride = stream.stream.fields[early, :2]
    assert str(fault) == (
        f"instruction {late}, gemm(accumulate=0) of compute, may begin before instruction {early}, "
        f"mvin(rows={rows}, stride={stride}) of load, is done, and both touch byte {byte} of spad\n"
        f"  instruction {late} reads it: operand {operand}, {file}:{sums}\n"
        f"  instruction {early} writes it: operand dst, {file}:{loads}"
    )


def test_more_waits_change_nothing_but_time(stream: ChipKernel):
    assert simulate(stream.stream, stream.waits).cycles == stream.timeline.cycles


def test_a_kernel_the_chip_cannot_do():
    @tilewright.kernel
    def differences(A: i8[16, 16], B: i8[16, 16], C: i32[16, 16]):
        for i, j in grid(16, 16):
            C[i, j] = 0
            for k in reduce(16):
                C[i, j] += cast(i32, A[i, k]) - cast(i32, B[k, j])

    with pytest.raises(ScheduleError) as error:
        build_chip(differences.kernel, CHIP)
    program = str(differences.kernel).replace("\n", "\n      ")
    assert str(error.value) == (
        "differences has no contraction, and no instruction of tiny works on rows of its own"
        " memories\n"
        f"  in: {program}\n"
        "  hint: an ALU or a vector unit would: one instruction for each operator"
    )


def test_a_loop_that_cannot_run_more_often():
    @tilewright.kernel
    def odd(A: i8[16, 10], B: i8[10, 16], C: i32[16, 16]):
        for i, j in grid(16, 16):
            C[i, j] = 0
            for k in reduce(10):
                C[i, j] += cast(i32, A[i, 9 - k]) * cast(i32, B[k, j])

    with pytest.raises(ScheduleError) as error:
        build_chip(odd.kernel, CHIP)
    assert error.value.what == (
        "added iterations would do the read of A[i, 9 - k], outside of A: i8[16, 10]"
    )


def test_build_runs_it_on_the_chip():
    """Like any target's: the same call, arrays in, arrays out."""
    built = SMALL.build(CHIP)
    assert isinstance(built, ChipKernel)
    arrays = inputs(SMALL.kernel)
    result = built(*arrays, np.zeros((48, 64), np.int32))
    np.testing.assert_array_equal(result, matmul(*arrays))
    assert built.cycles == built.timeline.cycles > built.bound.cycles


def test_a_schedule_by_hand():
    """What accelerate does, done by the kernel's author: one tile, nothing overlapped."""
    s = tilewright.Schedule(ONE_TILE)
    s.cache_write(s.buffer("C"), "acc")
    whole, rows = s.split(s.loop("i"), 16)
    s.cache_read(s.buffer("A"), whole, "spad")
    s.cache_read(s.buffer("B"), whole, "spad")
    by_name = {x.name: x for x in CHIP.instructions}
    for loop, name in (("A_local_0", "mvin"), ("B_local_0", "mvin"), ("i_c", "mvout")):
        s.tensorize(s.loop(loop), by_name[name])
    s.tensorize(rows, by_name["gemm"])
    built = s.build(CHIP)
    arrays = inputs(ONE_TILE.kernel)
    result = built(*arrays, np.zeros((16, 16), np.int32))
    np.testing.assert_array_equal(result, matmul(*arrays))


def test_sums_in_parts():
    """A memory that holds a few steps of the unit: operands come part by part, sums stay."""
    built = build_chip(GEMM.kernel, tiny(spad=4 << 10))
    arrays = inputs(GEMM.kernel)
    result = built(*arrays, np.zeros((256, 256), np.int32))
    np.testing.assert_array_equal(result, matmul(*arrays))


def test_sums_in_parts_of_the_only_tile():
    """The whole result is one tile, whose sums come part by part."""
    built = build_chip(SMALL.kernel, CHIP, whole=("i", "j"), tile={"k": 16})
    arrays = inputs(SMALL.kernel)
    result = built(*arrays, np.zeros((48, 64), np.int32))
    np.testing.assert_array_equal(result, matmul(*arrays))
    assert built.tile == {"i": 48, "j": 64, "k": 16}


def test_memories_that_are_too_small():
    with pytest.raises(TargetError) as error:
        build_chip(GEMM.kernel, tiny(spad=1 << 9))
    assert str(error.value) == (
        "no tile of gemm fits spad of tiny, which has 512 bytes: the smallest takes 1,024\n"
        "  hint: overlap=False, which needs no second place for operands"
    )


def test_the_words_that_the_chip_fetches():
    built = build_chip(layer.bind(M=64, N=64, K=64).kernel, gemmini())
    found = decode(built.target, built.words(), sizes=built.stream.sizes)
    assert len(found.stream) == len(built.stream)
    np.testing.assert_array_equal(found.stream.fields, built.stream.fields)


def test_moves_that_count_their_columns():
    """As most DMA engines do: rows and columns are fields, both sides have a pitch."""
    t = TargetBuilder("columns", clock=500e6)
    dram = t.memory("dram", bandwidth=16, latency=64)
    spad, acc = t.memory("spad", 64 << 10), t.memory("acc", 64 << 10)
    load, compute, store = t.queues("load", "compute", "store", depth=64)
    t.tokens((load, compute), (compute, store))
    ROWS, COLUMNS, PITCH = Range(1, 64), Range(1, 64), Range(0, 65535)

    @t.instruction(load)
    def mvin(
        src: view(i8[64, 64] @ dram, "far"),
        dst: view(out(i8[64, 64] @ spad), "near"),
        rows: ROWS,
        columns: COLUMNS,
        far: PITCH,
        near: PITCH,
    ):
        for i, j in grid(rows, columns):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * columns)

    @t.instruction(compute)
    def product(a: i8[16, 16] @ spad, b: i8[16, 16] @ spad, c: out(i32[16, 16] @ acc), more: flag):
        for i, j in grid(16, 16):
            if more == 0:
                c[i, j] = 0
            for k in reduce(16):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        cost(busy=16, latency=32)

    @t.instruction(store)
    def mvout(
        src: view(i32[64, 64] @ acc, "near"),
        dst: view(out(i32[64, 64] @ dram), "far"),
        rows: ROWS,
        columns: COLUMNS,
        far: PITCH,
        near: PITCH,
    ):
        for i, j in grid(rows, columns):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=4 * rows * columns)

    built = build_chip(SMALL.kernel, t.build())
    a, b = inputs(SMALL.kernel)
    wanted = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(built(a, b, np.zeros((48, 64), np.int32)), wanted)
    assert built.bound.cycles <= built.cycles
