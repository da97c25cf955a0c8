"""A chip with an instruction whose author says what it reads and writes, and simulates it: tiled,
pipelined, proven free of races, and run in many orders like any other."""

import numpy as np
import pytest

import tilewright
from tilewright import grid, i8, opaque
from tilewright.base.errors import CompileError
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.instruction import BlackBox
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.schedule.schedule import Schedule
from tilewright.sim.replay import replay
from tilewright.target.describe import Range, TargetBuilder, cost, limit, view
from tilewright.target.target import Target
from tilewright.targets import cpu

R, N, M = dims("R N M", max=64)
STEP = Range(0, 4096)


def sharpened(x: np.ndarray) -> np.ndarray:
    """From rows with one more element at each end."""
    wide = 3 * x[:, 1:-1].astype(np.int32) - x[:, :-2] - x[:, 2:]
    return np.clip(wide, -128, 127).astype(np.int8)


def run(fields, arrays):
    arrays["y"][...] = sharpened(arrays["x"])


def chip(function: BlackBox = run, more: int = 2) -> Target:
    """Rows are loaded, sharpened by a block that we only have as a function, and stored. What goes
    in is so many elements longer than what comes out."""
    t = TargetBuilder("sharp", clock=1e9)
    dram = t.memory("dram", bandwidth=16, latency=32)
    local = t.memory("local", 4096)
    load, compute, store = t.queues("load", "compute", "store", depth=4)
    t.tokens((load, compute), (compute, store))
    for name, queue, here, there in (("load", load, dram, local), ("store", store, local, dram)):

        @t.instruction(queue, name=name)
        def move(
            src: view(i8[R, N] @ here, "a"), dst: view(out(i8[R, N] @ there), "b"), a: STEP, b: STEP
        ):
            for i, j in grid(R, N):
                dst[i, j] = src[i, j]
            cost(setup=8, bytes=R * N)

    @t.instruction(compute, black_box=function)
    def sharpen(x: view(i8[R, M] @ local, "far"), y: out(i8[R, N] @ local), far: STEP):
        limit(N + more == M)
        for i, j in grid(R, N):
            y[i, j] = opaque("sharpen", i8, x[i, j + 1], x[i, j], x[i, j + 2])
        cost(busy=4 * R, latency=8)

    return t.build()


@tilewright.kernel
def picture(X: i8[48, 34], Y: i8[48, 32]):
    for i, j in grid(48, 32):
        Y[i, j] = opaque("sharpen", i8, X[i, j + 1], X[i, j], X[i, j + 2])


def built(target: Target) -> ChipKernel:
    do = {i.name: i for i in target.instructions}
    s = Schedule(picture.kernel)
    s.cache_write(s.buffer("Y"), "local")
    tiles, rows = s.split(s.loop("i_c"), 8)
    s.compute_at(s.buffer("Y_local"), tiles)
    s.cache_read(s.buffer("X"), tiles, "local")
    s.tensorize(s.loop("i"), do["sharpen"])
    s.tensorize(s.loop("X_local_0"), do["load"])
    s.tensorize(rows, do["store"])
    s.pipeline(tiles, (0, 1, 2))
    return stream_kernel(s, target)


def picture_data() -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 128, (48, 34)).astype(np.int8)


def test_the_stream_is_what_the_function_computes():
    x, y = picture_data(), np.zeros((48, 32), np.int8)
    f = built(chip())
    np.testing.assert_array_equal(f(x, y), sharpened(x))
    assert f.waits.count > 10
    assert f.timeline.busy["compute"] == 48 * 4


def test_in_any_order_that_its_waits_allow():
    f, x = built(chip()), picture_data()
    inputs, outputs = {f.kernel.inputs[0]: x}, f.kernel.outputs
    host = cpu.host(threads=1)
    assert replay(f.stream, f.waits, host, inputs, outputs, [sharpened(x)]) is None


def test_a_function_that_fails():
    def broken(fields, arrays):
        raise ValueError(f"no rows: {fields['R']}")

    f = built(chip(broken))
    with pytest.raises(CompileError) as error:
        f(picture_data(), np.zeros((48, 32), np.int8))
    assert error.value.what == "the black box of sharpen failed: ValueError: no rows: 8"


def test_a_function_that_would_see_more_than_is_said():
    """The arrays of a function are what its operands' shapes say; others rely on the meaning."""
    f = built(chip(more=3))
    with pytest.raises(CompileError) as error:
        f(picture_data(), np.zeros((48, 32), np.int8))
    assert str(error.value) == (
        "sharpen gets more elements of x: i8[R, M] than its meaning reaches\n"
        "  hint: declare the operand with dims() that are what is touched"
    )
