"""Kernels of bytes without a contraction, of networks' sizes, and how many operations on rows each
needs: what the chips' benchmark runs with `--nets vectors`."""

from dataclasses import dataclass

import numpy as np
from chip_kernels import Case

from tilewright import grid, i8, i32, kernel, reduce
from tilewright.target.target import Target

ALU = 2  # cycles that VTA's ALU takes for a row


@dataclass(frozen=True)
class VectorCase(Case):
    """A kernel, and the operations that a row of its result takes at least, loads and the store
    left out."""

    operations: int = 0

    def floor(self, target: Target) -> float:
        """Cycles that VTA takes at least, by arithmetic alone: its compute queue brings every input
        once and does each operation on whole rows, or the bus moves every input and result once."""
        (result,) = self.kernel.outputs
        size = target.memory("acc").unit // 4  # elements of a row
        bus = target.memory("dram").bandwidth or 1.0
        brought = sum(int(np.prod(b.shape)) * b.dtype.bytes for b in self.kernel.inputs) / bus
        made = int(np.prod(result.shape))
        return max(brought + self.operations * ALU * made / size, brought + made / bus)


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.int32)


def window(x: np.ndarray, size: int, step: int, out: int) -> list[np.ndarray]:
    """What each place of a window sees of pictures [channels, rows, columns]."""
    last = step * (out - 1) + 1
    return [
        x[:, r : r + last : step, s : s + last : step] for r in range(size) for s in range(size)
    ]


def residual(c: int, h: int) -> VectorCase:
    """Two activations added, with a scale of a power of two."""

    @kernel
    def residual(x: i8[c, h, h], y: i8[c, h, h], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            z[k, i, j] = i8(max(min(i32(x[k, i, j]) + i32(y[k, i, j]) >> 1, 127), -128))

    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.clip(wide(x) + wide(y) >> 1, -128, 127).astype(np.int8)

    return VectorCase(f"add {c}x{h}x{h}", residual.kernel, reference, 4)


def rescaled(c: int, h: int) -> VectorCase:
    """Two activations of different scales added."""

    @kernel
    def rescaled(x: i8[c, h, h], y: i8[c, h, h], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            total = i32(x[k, i, j]) * 77 + i32(y[k, i, j]) * 51 + 64 >> 7
            z[k, i, j] = i8(max(min(total, 127), -128))

    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.clip(wide(x) * 77 + wide(y) * 51 + 64 >> 7, -128, 127).astype(np.int8)

    return VectorCase(f"rescaled add {c}x{h}x{h}", rescaled.kernel, reference, 7)


def relu6(c: int, h: int) -> VectorCase:
    @kernel
    def relu6(x: i8[c, h, h], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            z[k, i, j] = max(min(x[k, i, j], i8(96)), i8(0))

    return VectorCase(f"relu6 {c}x{h}x{h}", relu6.kernel, lambda x: np.clip(x, 0, 96), 2)


def hard_swish(c: int, h: int) -> VectorCase:
    @kernel
    def hard_swish(x: i8[c, h, h], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            gate = max(min(i32(x[k, i, j]) + 48, 96), 0)
            z[k, i, j] = i8(i32(x[k, i, j]) * gate * 171 >> 14)

    def reference(x: np.ndarray) -> np.ndarray:
        return (wide(x) * np.clip(wide(x) + 48, 0, 96) * 171 >> 14).astype(np.int8)

    return VectorCase(f"hard swish {c}x{h}x{h}", hard_swish.kernel, reference, 6)


def leaky(c: int, h: int) -> VectorCase:
    @kernel
    def leaky(x: i8[c, h, h], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            z[k, i, j] = i8(max(i32(x[k, i, j]), i32(x[k, i, j]) * 13 >> 7))

    def reference(x: np.ndarray) -> np.ndarray:
        return np.maximum(wide(x), wide(x) * 13 >> 7).astype(np.int8)

    return VectorCase(f"leaky relu {c}x{h}x{h}", leaky.kernel, reference, 3)


def scaled(c: int, h: int) -> VectorCase:
    """A factor for each channel."""

    @kernel
    def scaled(x: i8[c, h, h], s: i32[c], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            z[k, i, j] = i8(max(min(i32(x[k, i, j]) * s[k] >> 14, 127), -128))

    def reference(x: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.clip(wide(x) * s[:, None, None] >> 14, -128, 127).astype(np.int8)

    return VectorCase(f"scale {c}x{h}x{h}", scaled.kernel, reference, 4)


def max_pool(c: int, n: int, size: int, step: int, before: int) -> VectorCase:
    """The largest of windows. Neighbours share the maxima of rows: (step + 1) * (size - 1)."""
    h = (n + 2 * before - size) // step + 1

    @kernel
    def max_pool(x: i8[c, n, n], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            most: i8 = -128
            for r, s in reduce(size, size):
                p = i * step + r - before
                q = j * step + s - before
                most = max(most, x[k, p, q] if 0 <= p < n and 0 <= q < n else -128)
            z[k, i, j] = most

    def reference(x: np.ndarray) -> np.ndarray:
        border = ((0, 0), (before, before), (before, before))
        return np.max(window(np.pad(x, border, constant_values=-128), size, step, h), 0)

    least = min(size * size - 1, (step + 1) * (size - 1))
    name = f"max {size}x{size}/{step} {c}x{n}x{n}"
    return VectorCase(name, max_pool.kernel, reference, least)


def average_pool(c: int, n: int) -> VectorCase:
    h = n // 2

    @kernel
    def average_pool(x: i8[c, n, n], z: i8[c, h, h]):
        for k, i, j in grid(c, h, h):
            total: i32 = 0
            for r, s in reduce(2, 2):
                total += i32(x[k, i * 2 + r, j * 2 + s])
            z[k, i, j] = i8(total + 2 >> 2)

    def reference(x: np.ndarray) -> np.ndarray:
        return (sum(map(wide, window(x, 2, 2, h))) + 2 >> 2).astype(np.int8)

    return VectorCase(f"average 2x2/2 {c}x{n}x{n}", average_pool.kernel, reference, 5)


def global_average(c: int, n: int) -> VectorCase:
    factor = 65536 // (n * n)

    @kernel
    def global_average(x: i8[c, n, n], z: i8[c]):
        for k in grid(c):
            total: i32 = 0
            for r, s in reduce(n, n):
                total += i32(x[k, r, s])
            z[k] = i8(total * factor >> 16)

    def reference(x: np.ndarray) -> np.ndarray:
        return (wide(x).sum((1, 2)) * factor >> 16).astype(np.int8)

    name = f"global average {c}x{n}x{n}"
    return VectorCase(name, global_average.kernel, reference, n * n + 1)


def vector_cases() -> list[Case]:
    """ResNet-18's additions and pools, and what other networks have between convolutions."""
    sizes = [(64, 56), (128, 28), (256, 14), (512, 7)]
    return [
        *(residual(c, h) for c, h in sizes),
        rescaled(128, 28),
        relu6(96, 56),
        hard_swish(240, 14),
        leaky(128, 26),
        scaled(64, 56),
        max_pool(64, 112, 3, 2, 1),
        max_pool(64, 28, 2, 2, 0),
        max_pool(256, 20, 5, 1, 2),
        max_pool(64, 20, 13, 1, 6),
        average_pool(128, 28),
        global_average(512, 7),
        global_average(64, 112),
    ]
