"""What no schedule can beat: held against what is built, on chips where that is close."""

import numpy as np
import pytest
from byte_kernels import gemm, layer, plane_layer
from epilogue_chips import CHIPS

from tilewright import cast, grid, i8, i32, reduce
from tilewright.chip import build_chip, lower_bound
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.python.words import out
from tilewright.plan.rates import least, most_a_cycle
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.vta import vta


def chip(
    *, queues: int = 1, setup: int = 16, dram: int = 16, near: int | None = None,
    slow: bool = False, latency: int = 32,
) -> Target:  # fmt: skip
    """A matrix unit of 16x16 with memories of their own for its factors, that one queue or two
    fill; `slow` is a second unit, described first, that takes four times as long."""
    t = TargetBuilder("small", clock=500e6)
    far_memory = t.memory("dram", bandwidth=dram, latency=64)
    left = t.memory("left", 64 << 10, bandwidth=near)
    right = t.memory("right", 64 << 10, bandwidth=near)
    acc = t.memory("acc", 64 << 10)
    names = [f"load{k}" for k in range(queues)]
    *loads, compute, store = t.queues(*names, "compute", "store", depth=64)
    t.interlock()
    for k, memory in enumerate((left, right)):

        @t.instruction(loads[k % queues], name=f"load_{k}")
        def load(
            src: view(i8[64, 16] @ far_memory, "far"), dst: out(i8[64, 16] @ memory),
            rows: Range(1, 64), far: Range(0, 65535),
        ):  # fmt: skip
            for i, j in grid(rows, 16):
                dst[i, j] = src[i, j]
            cost(setup=setup, bytes=16 * rows)

    for times in (4, 1) if slow else (1,):

        @t.instruction(compute, name=f"gemm_{times}")
        def product(
            a: i8[64, 16] @ left, b: i8[16, 16] @ right, c: out(i32[64, 16] @ acc),
            rows: Range(1, 64), more: flag,
        ):  # fmt: skip
            for i, j in grid(rows, 16):
                if more == 0:
                    c[i, j] = 0
                for k in reduce(16):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=times * rows, latency=latency + rows)  # noqa: B023  (read at once)

    @t.instruction(store)
    def send(
        src: i32[64, 16] @ acc, dst: view(out(i32[64, 16] @ far_memory), "far"),
        rows: Range(1, 64), far: Range(0, 65535),
    ):  # fmt: skip
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=setup, bytes=64 * rows)

    return t.build()


def check(built: ChipKernel) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, b.shape).astype(b.dtype.numpy) for b in built.source.inputs]
    if len(arrays) == 2:
        a, b = arrays
        result = built(*arrays, np.zeros((len(a), b.shape[1]), np.int32))
        np.testing.assert_array_equal(result, a.astype(np.int32) @ b.astype(np.int32))
    assert built.bound.cycles <= built.cycles


CLOSE = {
    "sums are cleared while operands come": (vta(bus=32), layer.bind(M=16, N=16, K=16).kernel),
    "the same, with a bus that is faster": (vta(bus=64), layer.bind(M=64, N=16, K=16).kernel),
    "the same, in small blocks": (vta(block=8, bus=16), layer.bind(M=64, N=8, K=8).kernel),
    "the same, with a slow ALU": (vta(block=8, bus=64, alu=2), layer.bind(M=64, N=8, K=8).kernel),
    "blocks that end between": (
        conv_engine(inputs=24, outputs=24, bus=256),
        plane_layer(48, 48, 28, 3, 1).kernel,
    ),
    "memories at the same time": (chip(near=2, dram=1 << 10), gemm.bind(M=16, N=16, K=2048).kernel),
    "queues at the same time": (chip(queues=2, setup=500), gemm.bind(M=32, N=32, K=32).kernel),
    "short calls have less latency": (chip(latency=0), gemm.bind(M=16, N=16, K=256).kernel),
    "loops that are padded": (chip(), gemm.bind(M=2, N=5, K=5).kernel),
    "results on their way while others are finished": (
        CHIPS["apart"](),
        layer.bind(M=16, N=16, K=16).kernel,
    ),
    "the same, in place": (CHIPS["in place"](), layer.bind(M=16, N=16, K=16).kernel),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CLOSE)
def test_nothing_is_faster(name: str):
    target, program = CLOSE[name]
    check(build_chip(program, target))
    assert lower_bound(program, target).cycles > 0


def test_the_faster_of_two_units():
    program = gemm.bind(M=128, N=128, K=128).kernel
    alone, both = build_chip(program, chip()), build_chip(program, chip(slow=True))
    check(both)
    assert (both.cycles, both.bound) == (alone.cycles, alone.bound)


def test_products_beyond_64_bits():
    n = 1 << 22
    bound = lower_bound(gemm.bind(M=n, N=n, K=n).kernel, chip())
    assert bound.cycles > n**3 // 256


# ---------------------------------------------------------------- instructions at their best


def instruction(*, busy=None, late=0):
    t = TargetBuilder("one", clock=1e9)
    dram, near = t.memory("dram"), t.memory("near", 1 << 10)
    (queue,) = t.queues("queue", depth=4)

    @t.instruction(queue)
    def copy(src: i8[50, 50] @ dram, dst: out(i8[50, 50] @ near), n: Range(1, 50), m: Range(1, 50)):
        for i, j in grid(n, m):
            dst[i, j] = src[i, j]
        cost(setup=2, busy=(n + 7) // 8 * (m + 2), latency=late + n - m)

    return t.build().instructions[0]


def test_the_best_of_all_fields():
    """Eight of n at a time; of m, two are lost: 48 times 50 in 2 + 6 * 52."""
    assert most_a_cycle(instruction()) == pytest.approx(48 * 50 / (2 + 6 * 52))


def test_the_least_of_a_cost():
    found = instruction(late=60)
    assert least(found.cost.latency) == 60 + 1 - 50
