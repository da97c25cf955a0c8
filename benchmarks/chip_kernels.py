"""Kernels that the chips' benchmark runs: products of bytes, and convolutions of networks, with
what follows them: clip((sum + bias) >> s, -128, 127). And numpy, for what they should give."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilewright import cast, grid, i8, i32, kernel, local, reduce
from tilewright.ir.loop import Kernel

SHIFT = 8
Reference = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Case:
    """A kernel; its parameters are inputs in order, then the result."""

    name: str
    kernel: Kernel
    reference: Reference
    tolerance: float = field(default=0.0, kw_only=True)  # of floats: relative, and of the largest

    def arguments(self) -> list[np.ndarray]:
        """Inputs over the whole range of their types (biases: of 16 bits; floats: normal), and a
        result."""
        rng = np.random.default_rng(0)
        inputs = []
        for b in self.kernel.inputs:
            if b.dtype.is_integer:
                reach = 128 if b.dtype == i8 else 1 << 15
                inputs.append(rng.integers(-reach, reach, b.shape).astype(b.dtype.numpy))
            else:
                inputs.append(rng.standard_normal(b.shape).astype(b.dtype.numpy))
        (result,) = self.kernel.outputs
        return [*inputs, np.zeros(result.shape, result.dtype.numpy)]

    def agrees(self, found: object, wanted: np.ndarray) -> bool:
        """Whether a result is what numpy says: to the bit, or within the tolerance."""
        if not self.tolerance:
            return np.array_equal(found, wanted)
        a, b = (np.asarray(x).astype(np.float64) for x in (found, wanted))
        return np.allclose(a, b, self.tolerance, self.tolerance * float(np.abs(b).max()))


def narrow(total: np.ndarray) -> np.ndarray:
    """What follows the sums."""
    return np.clip(total >> SHIFT, -128, 127).astype(np.int8)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b of bytes, exact: doubles hold sums of 2^37 products."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)


# ---------------------------------------------------------------- products


def gemm(n: int) -> Case:
    """n x n matrices."""

    @kernel
    def gemm(A: i8[n, n], B: i8[n, n], bias: i32[n], Y: i8[n, n]):
        total = local(i32[n, n])
        for i, j in grid(n, n):
            total[i, j] = 0
            for k in reduce(n):
                total[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
        for i, j in grid(n, n):
            Y[i, j] = cast(i8, max(min((total[i, j] + bias[j]) >> SHIFT, 127), -128))

    return Case(f"GEMM {n}³", gemm.kernel, lambda a, b, bias: narrow(product(a, b) + bias))


# ---------------------------------------------------------------- convolutions


@dataclass(frozen=True)
class Conv:
    """A convolution of size x size pictures; `size` is that of the input without padding."""

    name: str
    size: int
    channels: int
    filters: int
    window: int
    stride: int

    @property
    def out(self) -> int:
        return (self.size + 2 * (self.window // 2) - self.window) // self.stride + 1

    def case(self) -> Case:
        """The picture comes with its border of zeros."""
        c, f, k, st, n = self.channels, self.filters, self.window, self.stride, self.out
        rows = self.size + 2 * (k // 2)

        @kernel
        def conv(X: i8[c, rows, rows], W: i8[f, c, k, k], bias: i32[f], Y: i8[f, n, n]):
            total = local(i32[f, n, n])
            for o, y, x in grid(f, n, n):
                total[o, y, x] = 0
                for i, r, s in reduce(c, k, k):
                    pixel = X[i, y * st + r, x * st + s]
                    total[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
            for o, y, x in grid(f, n, n):
                Y[o, y, x] = cast(i8, max(min((total[o, y, x] + bias[o]) >> SHIFT, 127), -128))

        return Case(f"{self.name} {self}", conv.kernel, self._reference)

    def _reference(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        n, st = self.out, self.stride
        total = np.zeros((self.filters, n * n), np.int32)
        for r in range(self.window):
            for s in range(self.window):
                part = x[:, r : r + (n - 1) * st + 1 : st, s : s + (n - 1) * st + 1 : st]
                total += product(w[:, :, r, s], part.reshape(self.channels, -1))
        return narrow(total.reshape(self.filters, n, n) + bias[:, None, None])

    def __str__(self) -> str:
        window = f"{self.window}×{self.window}" + (f"/{self.stride}" if self.stride > 1 else "")
        return f"{window} {self.channels}→{self.filters} {self.size}²"


FIRST = Conv("C1", 224, 3, 64, 7, 2)  # of both networks: its channels leave most of a unit idle
RESNET18 = [  # the others
    Conv("C2", 56, 64, 64, 3, 1),
    Conv("C3", 56, 64, 128, 3, 2),
    Conv("C4", 56, 64, 128, 1, 2),
    Conv("C5", 28, 128, 128, 3, 1),
    Conv("C6", 28, 128, 256, 3, 2),
    Conv("C7", 28, 128, 256, 1, 2),
    Conv("C8", 14, 256, 256, 3, 1),
    Conv("C9", 14, 256, 512, 3, 2),
    Conv("C10", 14, 256, 512, 1, 2),
    Conv("C11", 7, 512, 512, 3, 1),
]


def resnet50() -> list[Conv]:
    """Every different convolution but the first: four stages of blocks 1x1, 3x3, 1x1, the first of
    a stage with a stride and a 1x1 beside it."""
    found: dict[Conv, None] = {}
    channels = 64
    for stage, (size, width) in enumerate(((56, 64), (28, 128), (14, 256), (7, 512))):
        stride = 1 if stage == 0 else 2
        before = size * stride
        layers = [
            (before, channels, width, 1, 1),
            (before, width, width, 3, stride),
            (size, width, 4 * width, 1, 1),
            (before, channels, 4 * width, 1, stride),
            (size, 4 * width, width, 1, 1),
            (size, width, width, 3, 1),
        ]
        found |= dict.fromkeys(Conv("", *layer) for layer in layers)
        channels = 4 * width
    return [
        Conv(f"R{k}", c.size, c.channels, c.filters, c.window, c.stride)
        for k, c in enumerate(found, 1)
    ]
