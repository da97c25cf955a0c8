"""Ten kernels for a drawn chip, of a size or two of what its unit takes, with the values that sums
and what follows them go through: what a search among sequences of instructions looks for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from drawn_chips import Facts

from tilewright import cast, f32, grid, i8, i32, kernel, reduce
from tilewright.base.dtype import DType
from tilewright.ir.loop import Kernel
from tilewright.ir.python.kernel import KernelFunction

Arrays = Sequence[np.ndarray]
Values = Iterator[np.ndarray]
BY = 6  # places that sums are shifted by
LIMIT = 100


@dataclass(frozen=True)
class Case:
    """A kernel; the numbers that instructions may want as fields; and, of its inputs, what values
    between those and its result may be."""

    name: str
    kernel: Kernel
    numbers: tuple[int, ...]
    between: Callable[[Arrays], Values]


@dataclass(frozen=True)
class Sizes:
    m: int
    n: int
    k: int


def draw_sizes(f: Facts, rng: np.random.Generator) -> Sizes:
    """What the unit takes along each axis, twice that along one of them."""
    twice = int(rng.integers(0, 3))
    takes = (f.rows or 4, f.columns, f.depth)
    m, n, k = (x * (1 + (d == twice)) for d, x in enumerate(takes))
    return Sizes(m, n, k)


def cases(f: Facts, s: Sizes) -> list[Case]:
    """The kernels of these sizes, with the elements that the chip multiplies and stores."""
    if f.stores == "plain":
        kinds = (i8, i32) if f.kind == "i8" else (f32, f32)
        return [*_products(*kinds, s), *_followed(*kinds, s), *_of_windows(*kinds, s)]
    return [*_narrow_products(s), *_narrow_windows(s), *_narrowed(s)]


def draw_inputs(kernel: Kernel, rng: np.random.Generator) -> list[np.ndarray]:
    """Any bytes, sums of a few thousand, floats of which sums are rounded."""
    found = []
    for b in kernel.inputs:
        shape = [int(n) for n in b.shape]
        limit = 128 if b.dtype == i8 else 8000
        whole = rng.integers(-limit, limit, shape) if b.dtype.is_integer else None
        array = rng.normal(size=shape) if whole is None else whole
        found.append(array.astype(b.dtype.numpy))
    return found


# ---------------------------------------------------------------- values on the way


def _sums(spec: str, sums: DType, start: int | None = None) -> Callable[[Arrays], Values]:
    """Sums of the first products of two inputs, one after the other, as floats are rounded each
    time. They begin with 0 or, if that is an input, with what it holds; whole numbers with both."""

    def between(arrays: Arrays) -> Values:
        yield from _partial(arrays[0], arrays[1], spec, sums, arrays[start] if start else None)

    return between


def _partial(
    a: np.ndarray, b: np.ndarray, spec: str, sums: DType, start: np.ndarray | None = None
) -> Values:
    inputs, result = spec.split("->")
    letter = next(x for x in inputs if x.isalpha() and x not in result)
    left, right = (x.index(letter) for x in inputs.split(","))
    a, b = a.astype(sums.numpy), b.astype(sums.numpy)
    total: object = 0 if start is None or sums.is_integer else start
    for t in range(a.shape[left]):
        total = total + np.einsum(spec, a.take([t], left), b.take([t], right))
        yield total
        if start is not None and sums.is_integer:
            yield total + start


def _window_sums(sums: DType) -> Callable[[Arrays], Values]:
    """Those of a window of two, whose places or channels come first."""

    def between(arrays: Arrays) -> Values:
        x, w = arrays
        m = x.shape[1] - 1
        views = [x[:, r : r + m] for r in range(2)]
        for order in ((0, 1), (1, 0))[: 1 if sums == f32 else 2]:
            weights = np.concatenate([w[..., r] for r in order], axis=1)
            yield from _partial(
                np.concatenate([views[r] for r in order]), weights, "dm,nd->nm", sums
            )
        if sums == i32:
            pairs = np.stack(views, 1).reshape(-1, m), w.reshape(len(w), -1)
            yield from _partial(*pairs, "dm,nd->nm", sums)

    return between


def _batch_sums(sums: DType) -> Callable[[Arrays], Values]:
    def between(arrays: Arrays) -> Values:
        for h in range(2):
            yield from _partial(arrays[0][h], arrays[1][h], "md,nd->mn", sums)

    return between


def _then(
    sums: Callable[[Arrays], Values], low: int = -128, high: int = 127, by: int = BY
) -> Callable[[Arrays], Values]:
    """Sums, and of the last of them what shifts and limits make."""

    def between(arrays: Arrays) -> Values:
        totals = list(sums(arrays))
        yield from totals
        for total in totals[-2:]:
            shifted = total >> by
            yield shifted
            yield np.minimum(shifted, high)
            yield np.maximum(shifted, low)
            yield np.clip(shifted, low, high)

    return between


def _case(
    name: str, function: KernelFunction, between: Callable[[Arrays], Values], *numbers: int
) -> Case:
    return Case(name, function.kernel, numbers, between)


# ---------------------------------------------------------------- kernels of whole sums


def _products(kind: DType, sums: DType, s: Sizes) -> Iterator[Case]:
    m, n, k = s.m, s.n, s.k

    @kernel
    def product(A: kind[m, k], B: kind[k, n], C: sums[m, n]):
        for i, j in grid(m, n):
            C[i, j] = cast(sums, 0)
            for d in reduce(k):
                C[i, j] += cast(sums, A[i, d]) * cast(sums, B[d, j])

    @kernel
    def by_rows(A: kind[m, k], B: kind[n, k], C: sums[m, n]):
        for i, j in grid(m, n):
            C[i, j] = cast(sums, 0)
            for d in reduce(k):
                C[i, j] += cast(sums, A[i, d]) * cast(sums, B[j, d])

    @kernel
    def by_columns(A: kind[k, m], B: kind[k, n], C: sums[m, n]):
        for i, j in grid(m, n):
            C[i, j] = cast(sums, 0)
            for d in reduce(k):
                C[i, j] += cast(sums, A[d, i]) * cast(sums, B[d, j])

    yield _case("product", product, _sums("md,dn->mn", sums))
    yield _case("product by rows", by_rows, _sums("md,nd->mn", sums))
    yield _case("product by columns", by_columns, _sums("dm,dn->mn", sums))


def _followed(kind: DType, sums: DType, s: Sizes) -> Iterator[Case]:
    m, n, k = s.m, s.n, s.k

    @kernel
    def bias(A: kind[m, k], B: kind[n, k], b: sums[n], C: sums[m, n]):
        for i, j in grid(m, n):
            C[i, j] = b[j]
            for d in reduce(k):
                C[i, j] += cast(sums, A[i, d]) * cast(sums, B[j, d])

    @kernel
    def relu(A: kind[m, k], B: kind[n, k], C: sums[m, n]):
        for i, j in grid(m, n):
            acc: sums = cast(sums, 0)
            for d in reduce(k):
                acc += cast(sums, A[i, d]) * cast(sums, B[j, d])
            C[i, j] = max(acc, cast(sums, 0))

    @kernel
    def residual(A: kind[m, k], B: kind[n, k], D: sums[m, n], C: sums[m, n]):
        for i, j in grid(m, n):
            acc: sums = cast(sums, 0)
            for d in reduce(k):
                acc += cast(sums, A[i, d]) * cast(sums, B[j, d])
            C[i, j] = acc + D[i, j]

    @kernel
    def addition(P: sums[m, n], Q: sums[m, n], R: sums[m, n]):
        for i, j in grid(m, n):
            R[i, j] = P[i, j] + Q[i, j]

    @kernel
    def maximum(P: sums[m, n], Q: sums[m, n], R: sums[m, n]):
        for i, j in grid(m, n):
            R[i, j] = max(P[i, j], Q[i, j])

    begun = _sums("md,nd->mn", sums, 2)
    yield _case("bias", bias, begun)
    yield _case("relu", relu, _sums("md,nd->mn", sums), 0)
    yield _case("residual", residual, begun if sums == i32 else _sums("md,nd->mn", sums))
    yield _case("addition", addition, lambda arrays: iter(()))
    yield _case("maximum", maximum, lambda arrays: iter(()))


def _of_windows(kind: DType, sums: DType, s: Sizes) -> Iterator[Case]:
    m, n, k = s.m, s.n, s.k

    @kernel
    def convolution(X: kind[k, m + 1], W: kind[n, k, 2], Y: sums[n, m]):
        for j, i in grid(n, m):
            Y[j, i] = cast(sums, 0)
            for r, d in reduce(2, k):
                Y[j, i] += cast(sums, X[d, i + r]) * cast(sums, W[j, d, r])

    @kernel
    def scores(A: kind[2, m, k], B: kind[2, n, k], C: sums[2, m, n]):
        for h, i, j in grid(2, m, n):
            C[h, i, j] = cast(sums, 0)
            for d in reduce(k):
                C[h, i, j] += cast(sums, A[h, i, d]) * cast(sums, B[h, j, d])

    yield _case("convolution", convolution, _window_sums(sums))
    yield _case("scores", scores, _batch_sums(sums))


# ---------------------------------------------------------------- kernels of bytes


def _narrow_products(s: Sizes) -> Iterator[Case]:
    m, n, k = s.m, s.n, s.k

    @kernel
    def shifted(A: i8[m, k], B: i8[n, k], C: i8[m, n]):
        for i, j in grid(m, n):
            acc: i32 = 0
            for d in reduce(k):
                acc += cast(i32, A[i, d]) * cast(i32, B[j, d])
            C[i, j] = cast(i8, max(min(acc >> BY, 127), -128))

    @kernel
    def shifted_columns(A: i8[k, m], B: i8[k, n], C: i8[m, n]):
        for i, j in grid(m, n):
            acc: i32 = 0
            for d in reduce(k):
                acc += cast(i32, A[d, i]) * cast(i32, B[d, j])
            C[i, j] = cast(i8, max(min(acc >> BY, 127), -128))

    @kernel
    def shifted_bias(A: i8[m, k], B: i8[n, k], b: i32[n], C: i8[m, n]):
        for i, j in grid(m, n):
            acc: i32 = b[j]
            for d in reduce(k):
                acc += cast(i32, A[i, d]) * cast(i32, B[j, d])
            C[i, j] = cast(i8, max(min(acc >> BY, 127), -128))

    @kernel
    def shifted_relu(A: i8[m, k], B: i8[k, n], C: i8[m, n]):
        for i, j in grid(m, n):
            acc: i32 = 0
            for d in reduce(k):
                acc += cast(i32, A[i, d]) * cast(i32, B[d, j])
            C[i, j] = cast(i8, max(min(acc >> BY, 127), 0))

    limits = BY, 127, -128
    yield _case("shifted", shifted, _then(_sums("md,nd->mn", i32)), *limits)
    yield _case("shifted columns", shifted_columns, _then(_sums("dm,dn->mn", i32)), *limits)
    yield _case("shifted bias", shifted_bias, _then(_sums("md,nd->mn", i32, 2)), *limits)
    yield _case("shifted relu", shifted_relu, _then(_sums("md,dn->mn", i32), 0), BY, 127, 0)


def _narrow_windows(s: Sizes) -> Iterator[Case]:
    m, n, k = s.m, s.n, s.k

    @kernel
    def shifted_convolution(X: i8[k, m + 1], W: i8[n, k, 2], Y: i8[n, m]):
        for j, i in grid(n, m):
            acc: i32 = 0
            for r, d in reduce(2, k):
                acc += cast(i32, X[d, i + r]) * cast(i32, W[j, d, r])
            Y[j, i] = cast(i8, max(min(acc >> BY, 127), -128))

    @kernel
    def shifted_scores(A: i8[2, m, k], B: i8[2, n, k], C: i8[2, m, n]):
        for h, i, j in grid(2, m, n):
            acc: i32 = 0
            for d in reduce(k):
                acc += cast(i32, A[h, i, d]) * cast(i32, B[h, j, d])
            C[h, i, j] = cast(i8, max(min(acc >> BY, 127), -128))

    limits = BY, 127, -128
    yield _case("shifted convolution", shifted_convolution, _then(_window_sums(i32)), *limits)

    def heads(arrays: Arrays) -> Values:
        for h in range(2):
            yield from _then(_sums("md,nd->mn", i32))([x[h] for x in arrays])

    yield _case("shifted scores", shifted_scores, heads, *limits)


def _narrowed(s: Sizes) -> Iterator[Case]:
    m, n, k = s.m, s.n, s.k

    @kernel
    def limited(A: i8[m, k], B: i8[n, k], C: i8[m, n]):
        for i, j in grid(m, n):
            acc: i32 = 0
            for d in reduce(k):
                acc += cast(i32, A[i, d]) * cast(i32, B[j, d])
            C[i, j] = cast(i8, max(min(acc, LIMIT), -LIMIT))

    @kernel
    def shifted_residual(A: i8[m, k], B: i8[n, k], D: i32[m, n], C: i8[m, n]):
        for i, j in grid(m, n):
            acc: i32 = 0
            for d in reduce(k):
                acc += cast(i32, A[i, d]) * cast(i32, B[j, d])
            C[i, j] = cast(i8, max(min((acc + D[i, j]) >> BY, 127), -128))

    @kernel
    def narrowed(P: i32[m, n], R: i8[m, n]):
        for i, j in grid(m, n):
            R[i, j] = cast(i8, max(min(P[i, j] >> BY, 127), -128))

    @kernel
    def narrowed_sum(P: i32[m, n], Q: i32[m, n], R: i8[m, n]):
        for i, j in grid(m, n):
            R[i, j] = cast(i8, max(min((P[i, j] + Q[i, j]) >> BY, 127), -128))

    products = _sums("md,nd->mn", i32)
    yield _case("limited", limited, _then(products, -LIMIT, LIMIT, 0), 0, LIMIT, -LIMIT)
    limits = BY, 127, -128
    yield _case("shifted residual", shifted_residual, _then(_sums("md,nd->mn", i32, 2)), *limits)
    yield _case("narrowed", narrowed, _then(lambda a: iter(a[:1])), *limits)
    yield _case("narrowed sum", narrowed_sum, _then(lambda a: iter([a[0] + a[1]])), *limits)
