"""A 3x3 convolution (stride 1, padding 1) written as a kernel, and scheduled by hand.

    python examples/kernels/conv3x3.py              64 channels, 56 x 56: ResNet-18's first stage
    python examples/kernels/conv3x3.py 512 7        512 channels, 7 x 7: its last
    python examples/kernels/conv3x3.py 128 28 2     on two cores

Images lie with their channels innermost (NHWC), and the weights, which are constants of a model,
are packed once and for all, outside of the call; the padded copy of the image is made in it.
"""

import sys

import numpy as np
from common import Case, random, vectors, zeros

import tilewright as tw
from tilewright import Schedule, dims, f32, grid, local, reduce
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.optimize.arrange import arrange
from tilewright.schedule.primitives.loops import Tail
from tilewright.target.target import Target
from tilewright.targets import cpu

N, C, K, H, W = dims("N C K H W", min=1)

PIXELS = 14
"""Of one row of the image, the register tile's rows. With 2 vectors of output channels they are 28
sums, the 2 vectors of weights make 30, and 2 registers of 32 are left for the pixels' values: each
step reads 2 vectors and 14 numbers for 28 multiply-adds. 56, 28 and 14 are multiples of 14; rows of
7 make 14 sums, which is still enough to cover the latency of a multiply-add (4 cycles, one a
cycle)."""

BLOCK = 16
"""Input channels that lie together (fewer, if 16 does not divide them): a cache line. 14 pixels of
such a block are 14 lines side by side, so they never compete for a cache set, whatever the number
of channels."""

BAND = 14
"""Rows of the image that are padded at a time: with 64 channels 16 rows of 58 pixels are 232 KiB,
which leaves most of L2 (1 MiB) for the weights (144 KiB)."""

NHWC = Layout((0, 2, 3, 1))


@tw.kernel
def conv3x3(X: f32[N, C, H, W], F: f32[K, C, 3, 3], Y: f32[N, K, H, W]):
    P = local(f32[N, C, H + 2, W + 2])
    for n, c, y, x in grid(N, C, H + 2, W + 2):
        P[n, c, y, x] = X[n, c, y - 1, x - 1] if 1 <= y <= H and 1 <= x <= W else 0.0
    for n, k, y, x in grid(N, K, H, W):
        Y[n, k, y, x] = 0.0
        for c, r, s in reduce(C, 3, 3):
            Y[n, k, y, x] += P[n, c, y + r, x + s] * F[k, c, r, s]


def weights_layout(channels: int, target: Target) -> Layout:
    """Panels of 2 vectors of output channels; in a panel, vectors in the order of their use."""
    width = 2 * target.vector.lanes(f32)
    return Layout((0, 1, 2, 3), ((1, block_of(channels)), (0, width)))


def block_of(channels: int) -> int:
    return max(n for n in range(1, BLOCK + 1) if channels % n == 0)


def schedule(program: tw.KernelFunction, target: Target) -> Schedule:
    """The program in register tiles of PIXELS x (2 vectors of output channels)."""
    lanes = target.vector.lanes(f32)
    s = tw.Schedule(program)
    channels = s.buffer("X").shape[1]
    s.pack_layout(s.buffer("X"), NHWC)
    s.pack_layout(s.buffer("Y"), NHWC)
    s.pack_layout(s.buffer("F"), weights_layout(channels, target))
    padded = s.pack_layout(s.buffer("P"), Layout((0, 2, 1, 3), ((1, block_of(channels)),)))

    # The result: bands of rows, panels of channels, and in a panel tile after tile. The weights of
    # a panel (512 channels: 576 KiB) are in L2 while the band's tiles pass.
    tile = s.cache_write(s.buffer("Y"), "register")
    y, x, k = (s.loop(name) for name in ("y_1_c", "x_1_c", "k_c"))
    panel, k = s.split(k, 2 * lanes)
    columns = s.for_(x).extent
    x_tile, x = s.split(x, min(PIXELS, columns), Tail.SHIFT)
    band, y = s.split(y, min(BAND, s.for_(y).extent), Tail.SHIFT)
    s.reorder(band, panel, y, x_tile, x, k)
    tile = s.compute_at(tile, x_tile)

    # The band's padded copy, in lines of 16 channels.
    block, c = s.split(s.loop("c"), block_of(channels))
    s.compute_at(padded, band)
    s.reorder(s.loop("y"), block, s.loop("x"), c)
    s.vectorize(c)

    # A tile: the window and the blocks of channels outside, channel by channel inside, each a
    # number of every pixel and two vectors of weights.
    s.split_init(tile)
    block, c = s.split(s.loop("c_1"), block_of(channels))
    s.reorder(block, s.loop("r"), s.loop("s"), c, s.loop("x_1"), s.loop("k"))
    for pixels, lane in (("x_1_init", "k_init"), ("x_1", "k"), (x, k)):
        s.unroll(s.loop(str(pixels)))
        vectors(s, s.loop(str(lane)), lanes)
    if target.cores > 1:
        s.parallel(panel)
    return s


def case(channels: int = 64, size: int = 56, cores: int = 1) -> Case:
    target = cpu.host(threads=cores)
    x, f = random(1, size, size, channels), random(channels, channels, 3, 3)
    packed = arrange(f, TensorType(f32, f.shape, weights_layout(channels, target)))
    s = schedule(conv3x3.bind(N=1, C=channels, K=channels, H=size, W=size), target)
    arrays = (x, packed, zeros(1, size, size, channels))
    flops = 2.0 * 9 * channels**2 * size**2
    return Case(s, target, arrays, lambda: by_numpy(x, f), flops)


def by_numpy(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The convolution as nine matrix products."""
    _, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    window = ((r, s) for r in range(3) for s in range(3))
    return sum(padded[:, r : r + h, s : s + w] @ f[:, :, r, s].T for r, s in window)


def main(channels: int = 64, size: int = 56, cores: int = 1) -> None:
    case(channels, size, cores).show()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
