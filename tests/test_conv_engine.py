"""The convolution engine, scheduled by hand: whole layers in the simulator, exact to the bit."""

import ast
import inspect
import io
import tokenize

import numpy as np
import pytest
from byte_kernels import padded_conv, scaled

from tilewright import i8
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.kernels import KernelFunction
from tilewright.schedule.schedule import Schedule
from tilewright.targets import conv_engine

CHIP = conv_engine.conv_engine()
DO = {i.name: i for i in CHIP.instructions}


def layer(c: int, size: int, f: int, k: int, stride: int, pad: int) -> KernelFunction:
    """A convolution, a bias, a scale by 3 / 512 and a clamp."""
    return padded_conv(c, size, f, k, stride, pad, pad, scaled)


def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray, stride: int, pad: int) -> np.ndarray:
    wide = np.pad(x.astype(np.int64), ((0, 0), (pad, pad), (pad, pad)))
    views = np.lib.stride_tricks.sliding_window_view(wide, w.shape[2:], axis=(1, 2))
    sums = np.einsum("chvrs,fcrs->fhv", views[:, ::stride, ::stride], w.astype(np.int64))
    return np.clip((sums + b[:, None, None]) * 3 >> 9, -120, 120).astype(np.int8)


def scheduled(kernel: KernelFunction, filters: int, rows: int) -> Schedule:
    """Tiles of filters and rows; the pictures' tiles are loaded, computed and stored in turn."""
    s = Schedule(kernel.kernel)
    s.cache_write(s.buffer("Y"), "local")
    outer, inner = zip(
        s.split(s.loop("o_1_c"), filters), s.split(s.loop("h_1_c"), rows), strict=True
    )
    s.reorder(*outer, *inner, s.loop("v_1_c"))
    weights, tiles = outer
    s.compute_at(s.buffer("Y_local"), tiles)
    s.compute_at(s.buffer("sums"), s.loop("v_1"))
    s.cache_read(s.buffer("X"), tiles, "local")
    s.cache_read(s.buffer("W"), weights, "local")
    s.cache_read(s.buffer("b"), weights, "local")
    s.tensorize(s.loop("o_1"), DO["conv"])
    s.tensorize(s.loop("X_local_0"), DO["load"])
    s.tensorize(s.fuse(s.loop("W_local_0"), s.loop("W_local_1")), DO["load"])
    s.tensorize(s.loop("b_local_0"), DO["load_bias"])
    s.tensorize(inner[0], DO["store"])
    s.pipeline(tiles, (0, 1, 2))
    return s


LAYERS = {  # channels, size, filters, window, stride, padding; filters and rows of a tile
    "3x3": ((16, 24, 16, 3, 1, 1), (8, 8)),
    "3x3, every other": ((16, 24, 16, 3, 2, 1), (16, 4)),
    "1x1": ((24, 16, 24, 1, 1, 0), (8, 4)),
    "1x1, every other": ((24, 16, 8, 1, 2, 0), (8, 4)),
    "7x7, every other": ((3, 32, 16, 7, 2, 3), (16, 4)),
    "without padding": ((8, 18, 8, 3, 1, 0), (8, 4)),
}


def built(name: str) -> tuple[ChipKernel, list[np.ndarray], np.ndarray]:
    """A layer on the chip, its inputs, and what it must give."""
    sizes, tile = LAYERS[name]
    kernel = layer(*sizes)
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(-128, 128, b.shape).astype(b.dtype.numpy)
        if b.dtype == i8
        else rng.integers(-4000, 4000, b.shape).astype(np.int32)
        for b in kernel.kernel.inputs
    ]
    return stream_kernel(scheduled(kernel, *tile), CHIP), inputs, expected(*inputs, *sizes[4:])


@pytest.mark.parametrize("name", LAYERS)
def test_exact(name: str):
    chip_kernel, inputs, wanted = built(name)
    found = chip_kernel(*inputs, np.zeros(wanted.shape, np.int8))
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(found)) > 100


def test_time_is_what_the_description_says():
    """16 x 16 channels in a cycle: 8 filters use half of that. The unit is never idle for long."""
    chip_kernel, _, _ = built("3x3")
    work = 2 * 3 * (3 * 3 * 8 * 24)  # tiles of filters, of rows, cycles of each
    assert chip_kernel.timeline.busy["compute"] == work
    assert work < chip_kernel.cycles < 1.6 * work


def test_the_description_is_short():
    """Lines of code, without comments and docstrings."""
    assert code_lines(inspect.getsource(conv_engine)) <= 60


def code_lines(source: str) -> int:
    texts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts |= set(range(node.lineno, node.end_lineno + 1))
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*blank, tokenize.ENDMARKER):
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)
