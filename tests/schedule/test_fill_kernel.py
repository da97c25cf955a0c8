"""Kernels with longer loops and larger buffers: they compute the same."""

import numpy as np
import pytest

import tilewright
from tilewright import cast, f32, grid, i8, i32, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import For, Kernel, walk_statements
from tilewright.plan.fill_unit import fill_kernel


def filled(kernel: Kernel, **extents: int) -> Kernel:
    loops = (x for x in walk_statements(kernel.body) if isinstance(x, For))
    return fill_kernel(kernel, {x.var: extents[x.var.name] for x in loops if x.var.name in extents})


def check_same(kernel: Kernel, longer: Kernel) -> None:
    """With zeros added to inputs, and without what is added to outputs."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, b.shape).astype(b.dtype.numpy) for b in kernel.inputs]
    grown = [
        np.pad(a, [(0, n - m) for n, m in zip(b.shape, a.shape, strict=True)])
        for a, b in zip(arrays, longer.inputs, strict=True)
    ]
    for wanted, found in zip(interpret(kernel, arrays), interpret(longer, grown), strict=True):
        np.testing.assert_array_equal(found[tuple(map(slice, wanted.shape))], wanted)


@tilewright.kernel
def layer(A: i8[5, 7], B: i8[7, 3], bias: i32[3], C: i32[5, 3]):
    total = local(i32[5, 3])
    for i, j in grid(5, 3):
        total[i, j] = 0
        for k in reduce(7):
            total[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(5, 3):
        C[i, j] = total[i, j] + bias[j]


def test_what_a_loop_runs_over_grows():
    longer = filled(layer.kernel, j=4, k=8)
    assert str(longer) == (
        "def layer(A: i8[5, 8], B: i8[8, 4], bias: i32[4], C: out(i32[5, 4])):\n"
        "    total = alloc(i32[5, 4])\n"
        "    for i in range(5):\n"
        "        for j in range(4):\n"
        "            total[i, j] = i32(0)\n"
        "            for k in range(8):\n"
        "                total[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])\n"
        "    for i_1 in range(5):\n"
        "        for j_1 in range(4):\n"
        "            C[i_1, j_1] = total[i_1, j_1] + bias[j_1]"
    )
    check_same(layer.kernel, longer)


def test_windows_grow_by_what_added_iterations_read():
    @tilewright.kernel
    def conv(X: i8[3, 9], W: i8[2, 3, 3], Y: i32[2, 4]):
        for o, x in grid(2, 4):
            Y[o, x] = 0
            for c, s in reduce(3, 3):
                Y[o, x] += cast(i32, X[c, x * 2 + s]) * cast(i32, W[o, c, s])

    longer = filled(conv.kernel, x=6, c=4)
    assert [b.shape for b in longer.params] == [(4, 13), (2, 4, 3), (2, 6)]
    check_same(conv.kernel, longer)


def test_a_guard_keeps_reads_inside():
    @tilewright.kernel
    def conv(X: i8[3, 6], W: i8[2, 3, 3], Y: i32[2, 6]):
        for o, x in grid(2, 6):
            Y[o, x] = 0
            for c, s in reduce(3, 3):
                pixel = X[c, x + s - 1] if 0 <= x + s - 1 < 6 else 0
                Y[o, x] += cast(i32, pixel) * cast(i32, W[o, c, s])

    longer = filled(conv.kernel, x=8, c=4)
    assert [b.shape for b in longer.params] == [(4, 6), (2, 4, 3), (2, 8)]
    check_same(conv.kernel, longer)


def test_another_sum_over_what_was_added_leaves_it_out():
    @tilewright.kernel
    def rows(A: i8[5, 7], B: i8[7, 3], C: i32[5]):
        total = local(i32[5, 3])
        for i, j in grid(5, 3):
            total[i, j] = 0
            for k in reduce(7):
                total[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
        for i in grid(5):
            C[i] = 0
            for j in reduce(3):
                C[i] += total[i, j]

    longer = filled(rows.kernel, i=8, j=4)
    assert [b.shape for b in longer.params] == [(8, 7), (7, 4), (8,)]
    check_same(rows.kernel, longer)


def test_axes_that_grow_alike():
    longer = filled(mirrored.kernel, i=8, j=8)
    assert [b.shape for b in longer.params] == [(8, 7), (7, 8), (8, 8)]
    check_same(mirrored.kernel, longer)


def test_axes_that_do_not_grow_alike():
    with pytest.raises(ScheduleError) as error:
        filled(mirrored.kernel, i=6, j=8)
    nest = str(mirrored.kernel.body[2]).replace("\n", "\n      ")
    assert str(error.value) == (
        "added iterations would do the read of total[p, q], outside of total: i32[5, 5]\n"
        f"  in: {nest}\n"
        "  hint: let it run a multiple of what the chip's unit takes"
    )  # fmt: skip


def test_nothing_to_fill():
    assert filled(layer.kernel, j=3, k=7) is layer.kernel


def test_one_factor_that_is_0_makes_a_product_of_integers_0():
    @tilewright.kernel
    def filtered(X: i8[11], Q: i8[5], Y: i32[7]):
        for t in grid(7):
            Y[t] = 0
            for k in reduce(5):
                Y[t] += cast(i32, X[t + k]) * cast(i32, Q[k])

    longer = filled(filtered.kernel, k=8)
    assert [b.shape for b in longer.inputs] == [(14,), (8,)]
    check_same(filtered.kernel, longer)
    rng = np.random.default_rng(0)  # whatever is read behind the end
    x, q = (rng.integers(-128, 128, b.shape).astype(np.int8) for b in longer.inputs)
    q[5:] = 0
    (first,), (second,) = interpret(filtered.kernel, [x[:11], q[:5]]), interpret(longer, [x, q])
    np.testing.assert_array_equal(first, second)


def test_sums_of_floats_that_begin_with_0():
    @tilewright.kernel
    def product(A: f32[4, 7], B: f32[7], C: f32[4]):
        for i in grid(4):
            C[i] = 0.0
            for k in reduce(7):
                C[i] += A[i, k] * B[k]

    longer = filled(product.kernel, k=8)
    check_same(product.kernel, longer)
    a = np.float32([[np.inf] * 7, [-0.0] * 7, [np.nan] * 7, [-1e30] * 7])
    b = np.float32([1, -1, 1, -1, 1, 1, -0.0])
    wide = [np.pad(a, ((0, 0), (0, 1))), np.pad(b, (0, 1))]
    (first,), (second,) = interpret(product.kernel, [a, b]), interpret(longer, wide)
    assert first.tobytes() == second.tobytes()


# ---------------------------------------------------------------- refusals


@tilewright.kernel
def largest(A: i8[4, 7], C: i8[4]):
    for i in grid(4):
        C[i] = -128
        for k in reduce(7):
            C[i] = max(C[i], A[i, k])


@tilewright.kernel
def backwards(A: i8[4, 7], B: i8[7], C: i32[4]):
    for i in grid(4):
        C[i] = 0
        for k in reduce(7):
            C[i] += cast(i32, A[3 - i, 6 - k]) * cast(i32, B[k])


@tilewright.kernel
def upwards(A: i8[4, 7], B: i8[7], C: i32[4]):
    for i in grid(4):
        C[3 - i] = 0
        for k in reduce(7):
            C[3 - i] += cast(i32, A[i, k]) * cast(i32, B[k])


@tilewright.kernel
def floats(A: f32[10], B: f32[7], C: f32[4]):
    for i in grid(4):
        C[i] = 0.0
        for k in reduce(7):
            C[i] += A[i + k] * B[k]


@tilewright.kernel
def begun(A: f32[4, 7], B: f32[7], C: f32[4]):
    for i in grid(4):
        C[i] = -0.0
        for k in reduce(7):
            C[i] += A[i, k] * B[k]


@tilewright.kernel
def some(A: i8[4, 7], B: i8[7], C: i32[4]):
    for i in grid(4):
        C[i] = 0
        for k in reduce(7):
            if k < 6:
                C[i] += cast(i32, A[i, k]) * cast(i32, B[k])


@tilewright.kernel
def listed(A: i8[4, 7], B: i8[7], at: i32[7], C: i32[4]):
    for i in grid(4):
        C[i] = 0
        for k in reduce(7):
            C[i] += cast(i32, A[i, at[k]]) * cast(i32, B[k])


@tilewright.kernel
def mirrored(A: i8[5, 7], B: i8[7, 5], C: i32[5, 5]):
    total = local(i32[5, 5])
    for i, j in grid(5, 5):
        total[i, j] = 0
        for k in reduce(7):
            total[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for p, q in grid(5, 5):
        C[p, q] = total[p, q] + total[q, p]


K = "k runs 7 times, and cannot run more often: "
NOTHING = K + "it does not add products of inputs' elements to 0"
REFUSED = {
    "another sum": (largest, {"k": 8}, NOTHING),
    "elements before the first of a sum": (
        backwards,
        {"k": 8},
        "added iterations would do the read of A[3 - i, 6 - k], outside of A: i8[4, 7]",
    ),
    "an infinity times 0": (floats, {"k": 8}, NOTHING),
    "0 added to -0": (begun, {"k": 8}, NOTHING),
    "a condition": (some, {"k": 8}, K + "what it does depends on a condition"),
    "subscripts from memory": (listed, {"k": 8}, K + "it reads subscripts from memory"),
    "elements that count": (
        upwards,
        {"i": 8},
        "i runs 4 times, and cannot run more often: it does not run over an axis of C",
    ),
    "elements before the first": (
        backwards,
        {"i": 8},
        "added iterations would do the read of A[3 - i, 6 - k], outside of A: i8[4, 7]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    function, extents, what = REFUSED[name]
    with pytest.raises(ScheduleError) as error:
        filled(function.kernel, **extents)
    nest = str(function.kernel.body[0]).replace("\n", "\n      ")
    assert str(error.value) == (
        f"{what}\n"
        f"  in: {nest}\n"
        "  hint: let it run a multiple of what the chip's unit takes"
    )  # fmt: skip
