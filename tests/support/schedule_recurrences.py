"""Kernels whose iterations depend on each other, or share what they read: to schedule at random
(schedule_kernels.py has their sizes)."""

from __future__ import annotations

from tilewright import dims, f32, floor, grid, i32, kernel, local, out, reduce, select, tanh, trunc

D, H, M, N, T, W = dims("D H M N T W")


# ---------------------------------------------------------------- recurrences


@kernel
def prefix_sum(X: i32[N], Y: i32[N]):
    Y[0] = X[0]
    for t in range(1, N):
        Y[t] = Y[t - 1] + X[t]


@kernel
def prefix_rows(X: f32[M, N], Y: f32[M, N + 1]):
    for i in range(M):
        Y[i, 0] = 0.0
    for j, i in grid(N, M):
        Y[i, j + 1] = Y[i, j] + X[i, j]


@kernel
def backwards(X: f32[N], Y: f32[N]):
    Y[N - 1] = X[N - 1]
    for t in range(N - 2, -1, -1):
        Y[t] = max(X[t], Y[t + 1])


@kernel
def decay(X: f32[N], Y: f32[N]):
    h: f32 = 0.0
    for t in range(N):
        h = floor(h * 0.5) + X[t]
        Y[t] = h


@kernel
def lstm(X: f32[T, D], R: f32[4, H, H], F: f32[4, H, D], Y: out(f32[T + 1, H])):
    cell = local(f32[H])
    for h in range(H):
        cell[h] = 0.0
        Y[0, h] = 0.0
    for t in range(T):
        gates = local(f32[4, H])
        for g, h in grid(4, H):
            gates[g, h] = 0.0
            for d in reduce(D):
                gates[g, h] += F[g, h, d] * X[t, d]
            for r in reduce(H):
                gates[g, h] += R[g, h, r] * Y[t, r]
        for h in range(H):
            kept = trunc(tanh(gates[0, h]) * 3.9) * cell[h]
            cell[h] = trunc(kept * 0.25) + trunc(tanh(gates[1, h]) * 3.9) * max(gates[2, h], 0.0)
        for h in range(H):
            Y[t + 1, h] = trunc(tanh(cell[h]) * 3.9) + trunc(tanh(gates[3, h]) * 3.9)


@kernel
def edit_distance(X: i32[M], Z: i32[N], Y: i32[M + 1, N + 1]):
    for i in range(M + 1):
        Y[i, 0] = i32(i)
    for j in range(N):
        Y[0, j + 1] = i32(j) + 1
    for i, j in grid(M, N):
        other = Y[i, j] + select(X[i] == Z[j], i32(0), i32(1))
        Y[i + 1, j + 1] = min(min(Y[i, j + 1], Y[i + 1, j]) + 1, other)


@kernel
def shortest_paths(X: f32[M, M], Y: f32[M + 1, M, M]):
    for i, j in grid(M, M):
        Y[0, i, j] = X[i, j]
    for k, i, j in grid(M, M, M):
        Y[k + 1, i, j] = min(Y[k, i, j], Y[k, i, k] + Y[k, k, j])


@kernel
def triangular(A: f32[M, M], X: f32[M], Y: f32[M]):
    for i in range(M):
        Y[i] = X[i]
        for j in range(i):
            Y[i] -= A[i, j] * Y[j]


# ---------------------------------------------------------------- stencils


@kernel
def heat(X: f32[N + 2], Y: f32[T + 1, N + 2]):
    for i in range(N + 2):
        Y[0, i] = X[i]
    for t in range(T):
        Y[t + 1, 0] = X[0]
        Y[t + 1, N + 1] = X[N + 1]
        for i in range(N):
            Y[t + 1, i + 1] = Y[t, i] + Y[t, i + 1] + Y[t, i + 2]


@kernel
def skewed(X: f32[N], Y: f32[T + 1, N + T]):
    for t, i in grid(T + 1, N + T):
        Y[t, i] = X[i % N]
    for t, i in grid(T, N + T - 1):
        Y[t + 1, i] = Y[t, i + 1] + 1.0


@kernel
def seidel(X: f32[M + 1, N + 1], Y: f32[M + 1, N + 1]):
    for i, j in grid(M + 1, N + 1):
        Y[i, j] = X[i, j]
    for i, j in grid(M, N):
        Y[i + 1, j + 1] = max(Y[i, j + 1] + Y[i + 1, j], X[i + 1, j + 1])


@kernel
def blur(X: f32[H + 2, W + 2], Y: f32[H, W]):
    rows = local(f32[H + 2, W])
    for y, x in grid(H + 2, W):
        rows[y, x] = X[y, x] + X[y, x + 1] + X[y, x + 2]
    for y, x in grid(H, W):
        Y[y, x] = rows[y, x] + rows[y + 1, x] + rows[y + 2, x]


@kernel
def edges(X: f32[H, W], Y: f32[H, W]):
    grey = local(f32[H, W])
    wide = local(f32[H, W])
    for y, x in grid(H, W):
        grey[y, x] = X[y, x] * 3.0
    for y, x in grid(H, W):
        wide[y, x] = max(grey[y, x], grey[y, (x + 1) % W])
    for y, x in grid(H, W):
        Y[y, x] = wide[y, x] - grey[y, x]


@kernel
def summed_area(X: f32[M, N], Y: f32[M + 1, N + 1]):
    for i in range(M + 1):
        Y[i, 0] = 0.0
    for j in range(N + 1):
        Y[0, j] = 0.0
    for i, j in grid(M, N):
        Y[i + 1, j + 1] = X[i, j] + Y[i, j + 1] + Y[i + 1, j] - Y[i, j]


@kernel
def sliding(X: f32[N + 2], Y: f32[N]):
    for i in range(N):
        window = local(f32[3])
        for a in range(3):
            window[a] = X[i + a] * 2.0
        Y[i] = max(window[0], window[1]) - window[2]


@kernel
def line_buffer(X: f32[H + 2, W + 2], F: f32[3, 3], Y: f32[H, W]):
    for y in range(H):
        lines = local(f32[3, W + 2])
        for a, x in grid(3, W + 2):
            lines[a, x] = max(X[y + a, x], 0.0)
        for x in range(W):
            Y[y, x] = 0.0
            for a, b in reduce(3, 3):
                Y[y, x] += lines[a, x + b] * F[a, b]


@kernel
def sliding_strided(X: f32[2 * N + 2], Y: f32[N]):
    for i in range(N):
        window = local(f32[4])
        for a in range(4):
            window[a] = X[2 * i + a] + 1.0
        Y[i] = 0.0
        for a in reduce(4):
            Y[i] += window[a]


@kernel
def rotate(X: f32[N], Y: out(f32[N])):
    old = local(f32[N])
    for i in range(N):
        Y[i] = X[i] * 2.0
    for i in range(N):
        old[i] = Y[i] + 1.0
    for i in range(N):
        Y[i] = old[(i + 1) % N]


@kernel
def in_place(X: f32[M, N], Y: out(f32[M, N])):
    old = local(f32[M, N])
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] * 2.0
    for i, j in grid(M, N):
        old[i, j] = max(Y[i, j], 0.0)
    for i, j in grid(M, N):
        Y[i, j] = old[i, j] - 1.0


@kernel
def tiles(X: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        row = local(f32[N])
        twice = local(f32[N])
        for j in range(N):
            row[j] = X[i, j] + 1.0
        for j in range(N):
            twice[j] = row[j] * 2.0
        for j in range(N):
            Y[i, j] = twice[N - 1 - j]
