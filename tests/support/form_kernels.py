"""Kernels whose forms suit different units, and what a form computes."""

from collections.abc import Callable

import numpy as np

from tilewright import grid, i8, i32, i64, kernel, local, reduce, u8
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.unit_form import MadeArray, UnitForm

Interpret = Callable[[Kernel, list[np.ndarray]], list[np.ndarray]]


def depthwise(c: int, n: int, k: int, step: int, before: int) -> Kernel:
    m = (n + 2 * before - k) // step + 1

    @kernel
    def depthwise(X: i8[c, n, n], W: i8[c, k, k], b: i32[c], Y: out(i8[c, m, m])):
        total = local(i32[c, m, m])
        for o, y, x in grid(c, m, m):
            total[o, y, x] = 0
            for r, s in reduce(k, k):
                p = y * step + r - before
                q = x * step + s - before
                pixel = X[o, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[o, y, x] += i32(pixel) * i32(W[o, r, s])
        for o, y, x in grid(c, m, m):
            Y[o, y, x] = i8(max(min(total[o, y, x] + b[o] >> 6, 127), -128))

    return depthwise.kernel


def grouped(groups: int, inner: int, outer: int, n: int, k: int) -> Kernel:
    """A convolution by groups of channels, as models have them: numbered through."""
    c, f, m = groups * inner, groups * outer, n - k + 1

    @kernel
    def grouped(X: i8[c, n, n], W: i8[f, inner, k, k], b: i32[f], Y: out(i8[f, m, m])):
        total = local(i32[f, m, m])
        for o, y, x in grid(f, m, m):
            total[o, y, x] = 0
            for i, r, s in reduce(inner, k, k):
                pixel = X[o // outer * inner + i, y + r, x + s]
                total[o, y, x] += i32(pixel) * i32(W[o, i, r, s])
        for o, y, x in grid(f, m, m):
            Y[o, y, x] = i8(max(min(total[o, y, x] + b[o] >> 6, 127), -128))

    return grouped.kernel


def groups_again() -> Kernel:
    """Eight groups of the result for four of the data."""

    @kernel
    def groups_again(X: i8[16, 6], W: i8[16, 2, 3], Y: out(i8[16, 4])):
        t = local(i32[16, 4])
        for o, y in grid(16, 4):
            t[o, y] = 0
            for i, r in reduce(2, 3):
                t[o, y] += i32(X[o // 2 % 4 * 2 + i, y + r]) * i32(W[o, i, r])
        for o, y in grid(16, 4):
            Y[o, y] = i8(max(min(t[o, y] >> 6, 127), -128))

    return groups_again.kernel


def groups_apart() -> Kernel:
    """The last groups all have the same channels."""

    @kernel
    def groups_apart(X: i8[16, 6], W: i8[16, 2, 3], Y: out(i8[16, 4])):
        t = local(i32[16, 4])
        for o, y in grid(16, 4):
            t[o, y] = 0
            for i, r in reduce(2, 3):
                t[o, y] += i32(X[min(o // 2 * 2 + i, 9), y + r]) * i32(W[o, i, r])
        for o, y in grid(16, 4):
            Y[o, y] = i8(max(min(t[o, y] >> 6, 127), -128))

    return groups_apart.kernel


def groups_guarded() -> Kernel:
    """What is summed depends on the channel of the group."""

    @kernel
    def groups_guarded(X: i8[16, 6], W: i8[16, 2, 3], Y: out(i8[16, 4])):
        t = local(i32[16, 4])
        for o, y in grid(16, 4):
            t[o, y] = 0
            for i, r in reduce(2, 3):
                x = X[o // 2 * 2 + i, y + r] if i + r < 3 else 0
                t[o, y] += i32(x) * i32(W[o, i, r])
        for o, y in grid(16, 4):
            Y[o, y] = i8(max(min(t[o, y] >> 6, 127), -128))

    return groups_guarded.kernel


def groups_read() -> Kernel:
    """Where the channels of a group begin is read."""

    @kernel
    def groups_read(X: i8[16, 6], I: i64[16], W: i8[16, 2, 3], Y: out(i8[16, 4])):
        t = local(i32[16, 4])
        for o, y in grid(16, 4):
            t[o, y] = 0
            for i, r in reduce(2, 3):
                t[o, y] += i32(X[max(min(I[o], 14), 0) + i, y + r]) * i32(W[o, i, r])
        for o, y in grid(16, 4):
            Y[o, y] = i8(max(min(t[o, y] >> 6, 127), -128))

    return groups_read.kernel


def two_terms() -> Kernel:
    """A sum that is added to twice in one loop."""

    @kernel
    def two_terms(X: i8[16, 6], b: i32[16], W: i8[16, 2, 3], Y: out(i8[16, 4])):
        t = local(i32[16, 4])
        for o, y in grid(16, 4):
            t[o, y] = 0
            for i, r in reduce(2, 3):
                t[o, y] += b[o]
                t[o, y] += i32(X[o // 2 * 2 + i, y + r]) * i32(W[o, i, r])
        for o, y in grid(16, 4):
            Y[o, y] = i8(max(min(t[o, y] >> 6, 127), -128))

    return two_terms.kernel


def transposed(c: int, f: int, n: int, k: int) -> Kernel:
    m, each, before = 2 * n, k // 2, (k - 2) // 2

    @kernel
    def transposed(X: i8[c, n, n], W: i8[c, f, k, k], b: i32[f], Y: out(i8[f, m, m])):
        total = local(i32[f, n, 2, n, 2])
        for o, y, a, x, z in grid(f, n, 2, n, 2):
            total[o, y, a, x, z] = 0
            for i, r, s in reduce(c, each, each):
                u = (a + before) % 2 + 2 * r
                v = (z + before) % 2 + 2 * s
                p = y + (a + before) // 2 - r
                q = x + (z + before) // 2 - s
                pixel = X[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[o, y, a, x, z] += i32(pixel) * i32(W[i, o, u, v])
        for o, y, a, x, z in grid(f, n, 2, n, 2):
            Y[o, y * 2 + a, x * 2 + z] = i8(max(min(total[o, y, a, x, z] + b[o] >> 6, 127), -128))

    return transposed.kernel


def first_layer(c: int, f: int, n: int, k: int, step: int) -> Kernel:
    m = (n - k) // step + 1

    @kernel
    def first(X: i8[c, n, n], W: i8[f, c, k, k], Y: out(i8[f, m, m])):
        total = local(i32[f, m, m])
        for o, y, x in grid(f, m, m):
            total[o, y, x] = 0
            for i, r, s in reduce(c, k, k):
                total[o, y, x] += i32(X[i, y * step + r, x * step + s]) * i32(W[o, i, r, s])
        for o, y, x in grid(f, m, m):
            Y[o, y, x] = i8(max(min(total[o, y, x] >> 7, 127), -128))

    return first.kernel


def rescaled(c: int, n: int, a: int, b: int, more: int, shift: int) -> Kernel:
    @kernel
    def rescaled(X: i8[c, n], Y: i8[c, n], Z: out(i8[c, n])):
        for k, i in grid(c, n):
            total = i32(X[k, i]) * a + i32(Y[k, i]) * b + more >> shift
            Z[k, i] = i8(max(min(total, 127), -128))

    return rescaled.kernel


def average(c: int, n: int, k: int, factor: int, more: int) -> Kernel:
    m = n // k

    @kernel
    def average(X: i8[c, n, n], Z: out(i8[c, m, m])):
        for o, y, x in grid(c, m, m):
            total: i32 = 0
            for r, s in reduce(k, k):
                total += i32(X[o, y * k + r, x * k + s])
            Z[o, y, x] = i8(total * factor + more >> 9)

    return average.kernel


def pool(c: int, n: int, size: int, step: int, before: int, least: bool) -> Kernel:
    """The largest of windows, or the least."""
    m, border = (n + 2 * before - size) // step + 1, 127 if least else -128

    @kernel
    def largest(X: i8[c, n, n], Z: out(i8[c, m, m])):
        for o, y, x in grid(c, m, m):
            found: i8 = -128
            for r, s in reduce(size, size):
                p = y * step + r - before
                q = x * step + s - before
                found = max(found, X[o, p, q] if 0 <= p < n and 0 <= q < n else border)
            Z[o, y, x] = found

    @kernel
    def smallest(X: i8[c, n, n], Z: out(i8[c, m, m])):
        for o, y, x in grid(c, m, m):
            found: i8 = 127
            for r, s in reduce(size, size):
                p = y * step + r - before
                q = x * step + s - before
                found = min(found, X[o, p, q] if 0 <= p < n and 0 <= q < n else border)
            Z[o, y, x] = found

    return smallest.kernel if least else largest.kernel


def relu6(c: int, n: int, most: int) -> Kernel:
    @kernel
    def relu6(X: i8[c, n], Z: out(i8[c, n])):
        for k, i in grid(c, n):
            Z[k, i] = max(min(X[k, i], i8(most)), i8(0))

    return relu6.kernel


def gram(n: int, c: int) -> Kernel:
    @kernel
    def gram(X: i8[n, c], Y: out(i8[n, n])):
        total = local(i32[n, n])
        for i, j in grid(n, n):
            total[i, j] = 0
            for k in reduce(c):
                total[i, j] += i32(X[i, k]) * i32(X[j, k])
        for i, j in grid(n, n):
            Y[i, j] = i8(max(min(total[i, j] >> 7, 127), -128))

    return gram.kernel


def with_itself(c: int, n: int) -> Kernel:
    """A convolution to which its own picture is added."""

    @kernel
    def with_itself(X: i8[c, n, n], W: i8[c, c, 3, 3], Y: out(i8[c, n - 2, n - 2])):
        total = local(i32[c, n - 2, n - 2])
        for o, y, x in grid(c, n - 2, n - 2):
            total[o, y, x] = 0
            for i, r, s in reduce(c, 3, 3):
                total[o, y, x] += i32(X[i, y + r, x + s]) * i32(W[o, i, r, s])
        for o, y, x in grid(c, n - 2, n - 2):
            Y[o, y, x] = i8(max(min((total[o, y, x] >> 7) + i32(X[o, y + 1, x + 1]), 127), -128))

    return with_itself.kernel


def triangle(c: int, n: int) -> Kernel:
    """A convolution of the upper half of a window."""

    @kernel
    def triangle(X: i8[c, n, n], W: i8[c, c, 3, 3], Y: out(i8[c, n - 2, n - 2])):
        total = local(i32[c, n - 2, n - 2])
        for o, y, x in grid(c, n - 2, n - 2):
            total[o, y, x] = 0
            for i, r, s in reduce(c, 3, 3):
                if r <= s:
                    total[o, y, x] += i32(X[i, y + r, x + s]) * i32(W[o, i, r, s])
        for o, y, x in grid(c, n - 2, n - 2):
            Y[o, y, x] = i8(max(min(total[o, y, x] >> 7, 127), -128))

    return triangle.kernel


def by_itself(c: int, n: int) -> Kernel:
    """A row that slides over itself."""

    @kernel
    def by_itself(X: i8[c, n], Y: out(i8[c, n - 2])):
        total = local(i32[c, n - 2])
        for o, y in grid(c, n - 2):
            total[o, y] = 0
            for r in reduce(3):
                total[o, y] += i32(X[o, y + r]) * i32(X[o, r])
        for o, y in grid(c, n - 2):
            Y[o, y] = i8(max(min(total[o, y] >> 7, 127), -128))

    return by_itself.kernel


def wrapped(c: int, n: int, factor: int) -> Kernel:
    """Bytes that are added as bytes: what wraps around there stays so."""

    @kernel
    def wrapped(X: i8[c, n], Y: i8[c, n], Z: out(i8[c, n])):
        for k, i in grid(c, n):
            total = i32(X[k, i] * i8(factor) + Y[k, i])
            Z[k, i] = i8(max(min(total >> 1, 127), -128))

    return wrapped.kernel


def by_vector(n: int, c: int) -> Kernel:
    """A matrix by a vector."""

    @kernel
    def by_vector(X: i8[n, c], V: i8[c], b: i32[n], Y: out(i8[n])):
        total = local(i32[n])
        for i in grid(n):
            total[i] = 0
            for k in reduce(c):
                total[i] += i32(X[i, k]) * i32(V[k])
        for i in grid(n):
            Y[i] = i8(max(min(total[i] + b[i] >> 6, 127), -128))

    return by_vector.kernel


def by_vectors(m: int, n: int, c: int) -> Kernel:
    """Matrices, each by a vector of its own."""

    @kernel
    def by_vectors(X: i8[m, n, c], V: i8[m, c], Y: out(i8[m, n])):
        total = local(i32[m, n])
        for p, i in grid(m, n):
            total[p, i] = 0
            for k in reduce(c):
                total[p, i] += i32(X[p, i, k]) * i32(V[p, k])
        for p, i in grid(m, n):
            Y[p, i] = i8(max(min(total[p, i] >> 6, 127), -128))

    return by_vectors.kernel


def neighbours(n: int, more: int) -> Kernel:
    """Means of three neighbours in a row, each with a factor of its own."""

    @kernel
    def neighbours(X: i8[n + 2], Z: out(i8[n])):
        for i in grid(n):
            total = i32(X[i]) + i32(X[i + 1]) * 2 + i32(X[i + 2]) + more >> 2
            Z[i] = i8(max(min(total, 127), -128))

    return neighbours.kernel


def filtered(n: int, k: int) -> Kernel:
    """A row that slides over a row of factors."""

    @kernel
    def filtered(X: i8[n + k - 1], V: i8[k], Y: out(i8[n])):
        total = local(i32[n])
        for i in grid(n):
            total[i] = 0
            for r in reduce(k):
                total[i] += i32(X[i + r]) * i32(V[r])
        for i in grid(n):
            Y[i] = i8(max(min(total[i] >> 6, 127), -128))

    return filtered.kernel


def outer(n: int, m: int) -> Kernel:
    """A matrix of all products of two vectors' elements."""

    @kernel
    def outer(X: i8[n], V: i8[m], Y: out(i8[n, m])):
        total = local(i32[n, m])
        for i, j in grid(n, m):
            total[i, j] = 0
            total[i, j] += i32(X[i]) * i32(V[j])
        for i, j in grid(n, m):
            Y[i, j] = i8(max(min(total[i, j] >> 6, 127), -128))

    return outer.kernel


def each(n: int, m: int) -> Kernel:
    """Products of elements, which are no sums."""

    @kernel
    def each(X: i8[n, m], V: i8[n, m], Y: out(i8[n, m])):
        total = local(i32[n, m])
        for i, j in grid(n, m):
            total[i, j] = 0
            total[i, j] += i32(X[i, j]) * i32(V[i, j])
        for i, j in grid(n, m):
            Y[i, j] = i8(max(min(total[i, j] >> 6, 127), -128))

    return each.kernel


def scaled(n: int) -> Kernel:
    """A row by one number, which has no axis."""

    @kernel
    def scaled(X: i8[n], f: i8[()], b: i32[n], Y: out(i8[n])):
        total = local(i32[n])
        for i in range(n):
            total[i] = 0
            total[i] += i32(X[i]) * i32(f[()])
        for i in range(n):
            Y[i] = i8(max(min(total[i] + b[i] >> 7, 127), -128))

    return scaled.kernel


def as_unsigned(f: int, n: int) -> Kernel:
    """Windows of bytes that are taken without their sign: a conversion that is no detail."""

    @kernel
    def as_unsigned(X: i8[n + 3], W: i8[f, 2, 3], Y: out(i8[f, n])):
        total = local(i32[f, n])
        for o, y in grid(f, n):
            total[o, y] = 0
            for r, q in reduce(2, 3):
                total[o, y] += i32(u8(X[y + r + q])) * i32(W[o, r, q])
        for o, y in grid(f, n):
            Y[o, y] = i8(max(min(total[o, y] >> 7, 127), -128))

    return as_unsigned.kernel


def arrays_of(program: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    most = {i8: 128, i32: 3000}
    return [rng.integers(-most[b.dtype], most[b.dtype], b.shape).astype(b.dtype.numpy)
            for b in program.inputs]  # fmt: skip


def computed(
    form: UnitForm, program: Kernel, arrays: list[np.ndarray], run: Interpret = interpret
) -> np.ndarray:
    """What a form computes, of arrays made of the kernel's."""
    given = dict(zip((b.name for b in program.inputs), arrays, strict=True))
    found = []
    for b in form.kernel.inputs:
        made = form.made.get(b.name, MadeArray((b.name,)))
        found.append(made.of([given[name] for name in made.sources]))
        assert found[-1].shape == tuple(b.shape)
    (result,) = run(form.kernel, found)
    (output,) = program.outputs
    return form.results.get(output.name, MadeArray((output.name,))).of([result])
