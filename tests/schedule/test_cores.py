"""How a single long loop is shared among cores."""

import re

import pytest

from tilewright.ir.loop import For, LoopKind, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.text.tensor import parse_program
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.targets import cpu

KERNEL = """
def f(x: f32[{n}], y: out(f32[{n}])):
    for i in range({n}):
        y[i] = x[i] * f32(2.0)
"""


def piece(n: int, cores: int) -> int | None:
    """Elements that one core does at a time, if it does not do all."""
    kernel = parse_kernel(KERNEL.format(n=n).strip())
    trace = str(default_schedule(kernel, cpu.cpu("avx2", cores=cores), {}).trace)
    if "parallel" not in trace:
        return None
    found = re.search(r'i_o, i_i = s.split\(s.loop\("i"\), (\d+)\)', trace)
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    "n, found",
    [
        (16376, None),  # too little to share
        (16384, 256),  # 64 pieces, 8 for each core
        (16385, 264),  # about as many, of whole vectors
        (256000, 4000),
        (256256, 3328),  # 77 is the first from 64 on that divides its vectors
        (256008, 4008),
        (296000, 4000),  # 74
        (32128, 128),  # 251
        (32896, 520),  # 257 would be too many
        (1 << 20, 1 << 14),
    ],
)
def test_pieces_for_eight_cores(n: int, found: int | None):
    assert piece(n, 8) == found


@pytest.mark.parametrize("n", [16384, 1 << 20])
def test_one_core_does_all(n: int):
    assert piece(n, 1) is None


@pytest.mark.parametrize("cores, found", [(2, 65536), (4, 32768), (16, 8192)])
def test_eight_pieces_for_each_core(cores: int, found: int):
    assert piece(1 << 20, cores) == found


PRODUCT = """
def f(x: f32[128, 64], w: f32[{columns}, 64]):
    y = tensor(f32[128, {columns}])
    define(y[i, j], reduce(add, f32(0.0), x[i, k] * w[j, k], k=64), i=128, j={columns})
    return y
"""


@pytest.mark.parametrize("cores", [2, 8, 16, 32, 64])
def test_each_core_has_pieces_of_a_product(cores: int):
    """Of 128 columns there are few blocks: rows are cut until all cores have as many pieces."""
    program = parse_program(PRODUCT.format(columns=128).strip())
    s = default_schedule(create_loops(program), cpu.cpu("avx2", cores=cores), {})
    assert not s.fallback
    (shared,) = (
        x for x in walk_statements(s.kernel.body)
        if isinstance(x, For) and x.kind is LoopKind.PARALLEL
    )  # fmt: skip
    assert isinstance(shared.extent, int)
    assert shared.extent >= cores
    assert shared.extent % cores == 0
