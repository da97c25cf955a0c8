"""Kernels to schedule at random: what deep learning is made of, and what dependences look like.

Each has two choices of sizes: tiny ones, at which all pairs of iterations can be looked at, and
larger ones. Sums are exact on small integers, whatever their order: what would make fractions is
rounded to whole numbers first.
"""

from __future__ import annotations

from dataclasses import dataclass

import schedule_recurrences as recurrences

from tilewright import (
    bf16,
    dims,
    exp,
    f32,
    floor,
    grid,
    i8,
    i32,
    kernel,
    local,
    out,
    reduce,
)
from tilewright.ir.python.kernel import KernelFunction

B, C, D, G, H, K, M, N, T, W = dims("B C D G H K M N T W")


@dataclass(frozen=True)
class Case:
    """A kernel, and sizes for it."""

    kernel: KernelFunction
    tiny: dict[str, int]
    larger: dict[str, int]


# ---------------------------------------------------------------- products


@kernel
def gemm(A: f32[M, K], X: f32[K, N], Y: f32[M, N]):
    for i, j in grid(M, N):
        Y[i, j] = 0.0
        for k in reduce(K):
            Y[i, j] += A[i, k] * X[k, j]


@kernel
def batched_gemm(A: f32[B, M, K], X: f32[B, K, N], Y: f32[B, M, N]):
    for b, i, j in grid(B, M, N):
        Y[b, i, j] = 0.0
        for k in reduce(K):
            Y[b, i, j] += A[b, i, k] * X[b, k, j]


@kernel
def gemm_bias_relu(A: f32[M, K], X: f32[N, K], bias: f32[N], Y: f32[M, N]):
    sums = local(f32[M, N])
    for i, j in grid(M, N):
        sums[i, j] = 0.0
        for k in reduce(K):
            sums[i, j] += A[i, k] * X[j, k]
    for i, j in grid(M, N):
        Y[i, j] = max(sums[i, j] + bias[j], 0.0)


@kernel
def two_layers(A: f32[M, K], X: f32[K, H], Z: f32[H, N], Y: f32[M, N]):
    hidden = local(f32[M, H])
    for i, h in grid(M, H):
        hidden[i, h] = 0.0
        for k in reduce(K):
            hidden[i, h] += A[i, k] * X[k, h]
    for i, j in grid(M, N):
        Y[i, j] = 0.0
        for h in reduce(H):
            Y[i, j] += max(hidden[i, h], 0.0) * Z[h, j]


@kernel
def matrix_vector(A: f32[M, K], x: f32[K], y: f32[M]):
    for i in range(M):
        total: f32 = 0.0
        for k in reduce(K):
            total += A[i, k] * x[k]
        y[i] = total


@kernel
def dot_i8(A: i8[M, K], X: i8[K], Y: i8[M]):
    for i in range(M):
        total: i32 = 0
        for k in reduce(K):
            total += i32(A[i, k]) * i32(X[k])
        Y[i] = i8(min(max(total >> 4, -128), 127))


@kernel
def layer_i8(A: i8[M, K], X: i8[K, N], bias: i32[N], Y: i8[M, N]):
    sums = local(i32[M, N])
    for i, j in grid(M, N):
        sums[i, j] = 0
        for k in reduce(K):
            sums[i, j] += i32(A[i, k]) * i32(X[k, j])
    for i, j in grid(M, N):
        Y[i, j] = i8(min(max((sums[i, j] + bias[j]) >> 4, -128), 127))


@kernel
def dot_bf16(A: bf16[M, K], X: bf16[K, N], Y: out(bf16[M, N])):
    for i, j in grid(M, N):
        total = local(f32[1])
        total[0] = 0.0
        for k in reduce(K):
            total[0] += f32(A[i, k]) * f32(X[k, j])
        Y[i, j] = bf16(total[0])


@kernel
def outer_update(x: f32[M], y: f32[N], A: f32[M, N], R: f32[M, N]):
    for i in range(M):
        for j in range(N):
            R[i, j] = A[i, j]
        for j in range(N):
            R[i, j] += x[i] * y[j]


@kernel
def scale_rows(X: f32[M, N], scale: f32[N], Y: f32[M, N]):
    for i in range(M):
        squares = local(f32[N])
        for j in range(N):
            squares[j] = scale[j] * scale[j]
        for j in range(N):
            Y[i, j] = X[i, j] * squares[j]


# ---------------------------------------------------------------- convolutions


@kernel
def convolve(X: f32[C, H + 2, W + 2], F: f32[K, C, 3, 3], Y: f32[K, H, W]):
    for k, y, x in grid(K, H, W):
        Y[k, y, x] = 0.0
        for c, a, b in reduce(C, 3, 3):
            Y[k, y, x] += X[c, y + a, x + b] * F[k, c, a, b]


@kernel
def convolve_strided(X: f32[C, 2 * H + 1, 2 * W + 1], F: f32[K, C, 3, 3], Y: f32[K, H, W]):
    for k, y, x in grid(K, H, W):
        Y[k, y, x] = 0.0
        for c, a, b in reduce(C, 3, 3):
            Y[k, y, x] += X[c, 2 * y + a, 2 * x + b] * F[k, c, a, b]


@kernel
def convolve_dilated(X: f32[H + 4, W + 4], F: f32[3, 3], Y: f32[H, W]):
    for y, x in grid(H, W):
        Y[y, x] = 0.0
        for a, b in reduce(3, 3):
            Y[y, x] += X[y + 2 * a, x + 2 * b] * F[a, b]


@kernel
def convolve_grouped(X: f32[G, C, H + 1, W], F: f32[G, K, C, 2], Y: f32[G, K, H, W]):
    for g, k, y, x in grid(G, K, H, W):
        Y[g, k, y, x] = 0.0
        for c, a in reduce(C, 2):
            Y[g, k, y, x] += X[g, c, y + a, x] * F[g, k, c, a]


@kernel
def convolve_depthwise(X: f32[C, H, W], F: f32[C, 3, 3], Y: f32[C, H, W]):
    for c, y, x in grid(C, H, W):
        total: f32 = 0.0
        for a, b in reduce(3, 3):
            inside = 0 <= y + a - 1 < H and 0 <= x + b - 1 < W
            total += X[c, y + a - 1, x + b - 1] * F[c, a, b] if inside else 0.0
        Y[c, y, x] = max(total, 0.0)


@kernel
def separable(X: f32[C, H + 2], F: f32[C, 3], P: f32[K, C], Y: f32[K, H]):
    mid = local(f32[C, H])
    for c, y in grid(C, H):
        mid[c, y] = 0.0
        for a in reduce(3):
            mid[c, y] += X[c, y + a] * F[c, a]
    for k, y in grid(K, H):
        Y[k, y] = 0.0
        for c in reduce(C):
            Y[k, y] += mid[c, y] * P[k, c]


@kernel
def convolve_transposed(X: f32[C, H], F: f32[C, K, 3], Y: f32[K, 2 * H + 1]):
    for k, y in grid(K, 2 * H + 1):
        Y[k, y] = 0.0
    for c, k, y, a in grid(C, K, H, 3):
        Y[k, 2 * y + a] += X[c, y] * F[c, k, a]


@kernel
def im2col(X: f32[C, H + 2], F: f32[K, C, 3], Y: f32[K, H]):
    columns = local(f32[C, 3, H])
    for c, a, y in grid(C, 3, H):
        columns[c, a, y] = X[c, y + a]
    for k, y in grid(K, H):
        Y[k, y] = 0.0
        for c, a in reduce(C, 3):
            Y[k, y] += F[k, c, a] * columns[c, a, y]


# ---------------------------------------------------------------- pooling, resizing, moving


@kernel
def max_pool(X: f32[C, 2 * H, 2 * W], Y: f32[C, H, W]):
    for c, y, x in grid(C, H, W):
        Y[c, y, x] = X[c, 2 * y, 2 * x]
        for a, b in reduce(2, 2):
            Y[c, y, x] = max(Y[c, y, x], X[c, 2 * y + a, 2 * x + b])


@kernel
def average_pool(X: f32[H, 2 * W], Y: f32[H, W]):
    sums = local(f32[H, W])
    for y, x in grid(H, W):
        sums[y, x] = 0.0
        for a in reduce(2):
            sums[y, x] += X[y, 2 * x + a]
    for y, x in grid(H, W):
        Y[y, x] = sums[y, x] * 0.5


@kernel
def upsample(X: f32[H, W], Y: f32[2 * H, 2 * W]):
    for y, x in grid(2 * H, 2 * W):
        Y[y, x] = X[y // 2, x // 2] + X[y // 2, x // 2]


@kernel
def transpose(X: f32[M, N], Y: f32[N, M]):
    for i, j in grid(M, N):
        Y[j, i] = X[i, j]


@kernel
def pixel_shuffle(X: f32[4 * C, H, W], Y: f32[C, 2 * H, 2 * W]):
    for c, a, b, y, x in grid(C, 2, 2, H, W):
        Y[c, 2 * y + a, 2 * x + b] = X[c * 4 + a * 2 + b, y, x]


@kernel
def concatenate(X: f32[M, N], Z: f32[M, N], Y: f32[2 * M, N]):
    for i, j in grid(M, N):
        Y[i, j] = X[i, j]
    for i, j in grid(M, N):
        Y[M + i, j] = Z[i, j]


@kernel
def gather(X: f32[M, N], at: i32[K], Y: f32[K, N]):
    for i, j in grid(K, N):
        known = 0 <= at[i] < i32(M)
        Y[i, j] = X[at[i], j] if known else -1.0


@kernel
def embedding_bag(X: f32[M, N], at: i32[K, 2], Y: f32[K, N]):
    for i, j in grid(K, N):
        Y[i, j] = 0.0
        for w in reduce(2):
            Y[i, j] += X[at[i, w] % i32(M), j]


@kernel
def histogram(X: i32[N], counts: i32[M]):
    for i in range(M):
        counts[i] = 0
    for i in range(N):
        counts[X[i] % i32(M)] += 1


@kernel
def scatter(X: f32[N], at: i32[N], Y: f32[M]):
    for i in range(M):
        Y[i] = 0.0
    for i in range(N):
        Y[at[i] % i32(M)] = X[i]


# ---------------------------------------------------------------- normalisations, attention


@kernel
def softmax(X: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        top: f32 = X[i, 0]
        for j in reduce(N):
            top = max(top, X[i, j])
        total: f32 = 0.0
        weights = local(f32[N])
        for j in range(N):
            weights[j] = floor(exp(X[i, j] - top) * 100.5)
        for j in reduce(N):
            total += weights[j]
        for j in range(N):
            Y[i, j] = weights[j] / total


@kernel
def layer_norm(X: f32[M, N], scale: f32[N], Y: f32[M, N]):
    mean = local(f32[M])
    spread = local(f32[M])
    for i in range(M):
        mean[i] = 0.0
        for j in reduce(N):
            mean[i] += X[i, j]
    for i in range(M):
        spread[i] = 0.0
        for j in reduce(N):
            spread[i] += (X[i, j] * 4.0 - mean[i]) * (X[i, j] * 4.0 - mean[i])
    for i, j in grid(M, N):
        Y[i, j] = (X[i, j] * 4.0 - mean[i]) / (spread[i] + 1.0) * scale[j]


@kernel
def rms_norm(X: f32[M, N], Y: f32[M, N]):
    squares = local(f32[M, N])
    for i, j in grid(M, N):
        squares[i, j] = X[i, j] * X[i, j]
    for i in range(M):
        total: f32 = 1.0
        for j in reduce(N):
            total += squares[i, j]
        for j in range(N):
            Y[i, j] = X[i, j] / total


@kernel
def attention(Q: f32[N, D], X: f32[T, D], V: f32[T, D], Y: f32[N, D]):
    score = local(f32[N, T])
    for i, t in grid(N, T):
        score[i, t] = 0.0
        for d in reduce(D):
            score[i, t] += Q[i, d] * X[t, d]
    for i in range(N):
        top: f32 = score[i, 0]
        for t in reduce(T):
            top = max(top, score[i, t])
        total: f32 = 0.0
        for t in reduce(T):
            total += floor(exp(score[i, t] - top) * 100.5)
        for d in range(D):
            mixed: f32 = 0.0
            for t in reduce(T):
                mixed += floor(exp(score[i, t] - top) * 100.5) * V[t, d]
            Y[i, d] = mixed / total


@kernel
def argmax(X: f32[M, N], at: i32[M]):
    for i in range(M):
        best: f32 = X[i, 0]
        place: i32 = 0
        for j in range(N):
            if X[i, j] > best:
                best = X[i, j]
                place = i32(j)
        at[i] = place


# ---------------------------------------------------------------- the table

_SIZES = {  # values of the symbols, by name: tiny ones, larger ones
    gemm: ("4 3 2", "7 5 6"),
    batched_gemm: ("2 2 3 2", "3 5 4 6"),
    gemm_bias_relu: ("3 2 4", "5 6 7"),
    two_layers: ("3 2 2 3", "5 4 4 6"),
    matrix_vector: ("5 4", "9 8"),
    dot_i8: ("5 4", "9 6"),
    layer_i8: ("3 2 3", "5 6 4"),
    dot_bf16: ("5 3 2", "8 4 4"),
    outer_update: ("4 4", "6 7"),
    scale_rows: ("3 4", "5 6"),
    convolve: ("2 3 2 3", "3 5 3 4"),
    convolve_strided: ("2 2 2 2", "2 3 3 4"),
    convolve_dilated: ("5 4", "7 9"),
    convolve_grouped: ("2 2 3 2 3", "3 2 4 2 5"),
    convolve_depthwise: ("2 4 3", "3 5 6"),
    separable: ("2 3 2", "3 5 4"),
    convolve_transposed: ("2 3 2", "3 5 3"),
    im2col: ("2 3 2", "3 6 4"),
    max_pool: ("2 3 2", "3 5 4"),
    average_pool: ("3 4", "6 5"),
    upsample: ("3 3", "5 4"),
    transpose: ("4 5", "7 6"),
    pixel_shuffle: ("2 3 2", "3 4 5"),
    concatenate: ("2 3", "4 5"),
    gather: ("3 4 5", "5 6 7"),
    embedding_bag: ("4 3 3", "6 5 4"),
    histogram: ("4 6", "5 12"),
    scatter: ("4 5", "6 8"),
    softmax: ("3 4", "5 6"),
    layer_norm: ("3 4", "5 8"),
    rms_norm: ("4 3", "6 5"),
    attention: ("2 2 3", "4 3 5"),
    argmax: ("4 3", "6 5"),
    recurrences.prefix_sum: ("6", "11"),
    recurrences.prefix_rows: ("4 5", "6 7"),
    recurrences.backwards: ("6", "9"),
    recurrences.decay: ("5", "9"),
    recurrences.lstm: ("2 2 3", "3 4 4"),
    recurrences.edit_distance: ("4 4", "6 7"),
    recurrences.shortest_paths: ("3", "4"),
    recurrences.triangular: ("4", "5"),
    recurrences.heat: ("5 3", "8 4"),
    recurrences.skewed: ("4 3", "6 5"),
    recurrences.seidel: ("4 4", "6 5"),
    recurrences.blur: ("4 3", "7 6"),
    recurrences.edges: ("4 4", "6 5"),
    recurrences.summed_area: ("3 4", "5 6"),
    recurrences.sliding: ("5", "9"),
    recurrences.line_buffer: ("3 3", "5 6"),
    recurrences.sliding_strided: ("4", "7"),
    recurrences.rotate: ("5", "8"),
    recurrences.in_place: ("3 3", "5 6"),
    recurrences.tiles: ("3 4", "6 5"),
}


def _values(function: KernelFunction, text: str) -> dict[str, int]:
    names = [s.name for s in function.symbols]
    return dict(zip(names, map(int, text.split()), strict=True))


CASES = {
    function.name: Case(function, _values(function, tiny), _values(function, larger))
    for function, (tiny, larger) in _SIZES.items()
}
