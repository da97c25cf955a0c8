"""The bounds that are counted without the planner: by hand, and beside the planner's own."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from attention_cases import layer_norm, softmax
from attention_chips import vector_core
from chip_kernels import Case, gemm
from matrix_bounds import independent_bound
from matrix_cases import conv, dense, depthwise
from unit_chips import several_cubes, weight_fifo
from vector_cases import average_pool, global_average, max_pool

from tilewright.chip import build_chip, lower_bound
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

GEMMINI_ENDS = 16 + 64 + 2 * 16 + 64  # until rows are there, sums, and until they have left


@pytest.mark.parametrize(
    "case, cycles",
    [
        (gemm(256), 256**3 // 16**2),
        (dense(1), 512 * 512 // 16 + 32 * 20),  # bytes of weights, and biases by the same queue
        (conv("", 14, 3, 16, 3, before=1), 2 * 14 * 14),  # 27 products are two rows of 16
        (depthwise(14, 32), 2 * 9 * 14 * 14),  # two diagonals of 16
    ],
    ids=["product", "one row", "few channels", "depthwise"],
)
def test_by_hand(case: Case, cycles: int):
    bound = independent_bound(case.kernel, gemmini())
    assert bound is not None
    assert cycles <= bound <= cycles + GEMMINI_ENDS + 600  # bytes of small layers


@pytest.mark.parametrize("units", [1, 2, 4])
def test_units_share_the_work(units: int):
    bound = independent_bound(gemm(512).kernel, several_cubes(units))
    assert bound is not None
    assert bound == pytest.approx(512**3 / 16**2 / units, rel=0.01)


@pytest.mark.parametrize(
    "make, chip",
    [
        (lambda: dense(128), vta),
        (lambda: conv("", 28, 64, 64, 3, before=1), vta),
        (lambda: depthwise(28, 64), vta),
        (lambda: average_pool(64, 28), vta),
        (lambda: conv("", 28, 64, 64, 3, before=1), gemmini),
        (lambda: depthwise(28, 64), gemmini),
        (lambda: conv("", 28, 64, 64, 3, before=1), conv_engine),
        (lambda: softmax(128, 128), vector_core),
        (lambda: layer_norm(128, 128), vector_core),
    ],
)
def test_beside_the_planner(make: Callable[[], Case], chip: Callable[[], Target]):
    """Both count the same, whatever they look at for it."""
    case, target = make(), chip()
    bound = independent_bound(case.kernel, target)
    assert bound is not None
    assert math.isclose(bound, lower_bound(case.kernel, target).cycles, rel_tol=0.03)


def test_what_the_only_queue_that_loads_has_to_do():
    """A row of biases for each pixel and 16 channels, in a cycle; all bytes of factors, at 64 a
    cycle; and 16 cycles for each 256 of these rows and for each 4 KiB."""
    bound = independent_bound(conv("", 56, 32, 64, 1).kernel, several_cubes())
    size = 32 * 56 * 56 + 64 * 32
    ends = 16 + 80 + 16 + 80
    rows = 4 * 56 * 56 * (1 + 16 / 256)
    assert bound == pytest.approx(rows + size / 64 + size / 256 + ends, abs=1)


def test_bytes_of_a_memory_of_their_own():
    """Weights come from flash memory at 8 bytes a cycle; by the way of pictures at 16, in 64 loads,
    beside a row of biases for each of 512 results, which lie along the other axis of the sums."""
    bound = independent_bound(dense(1).kernel, weight_fifo())
    assert bound == 512 * 32 + 64 * 16 + 512 * (16 + 4) + 16 + 80 + 16 + 80


def test_blocks_of_channels_with_the_same_numbers():
    """A mean of every channel: 16 on a diagonal, their blocks as the rows of a cube."""
    program = global_average(256, 7).kernel
    bound = independent_bound(program, several_cubes())
    assert bound is not None
    assert bound <= build_chip(program, several_cubes()).cycles


def test_without_an_instruction_for_it():
    assert independent_bound(max_pool(16, 14, 3, 2, 1).kernel, gemmini()) is None
    assert independent_bound(softmax(16, 16).kernel, gemmini()) is None
