"""Forms of kernels that units take: each computes what the kernel does, whether a chip then does it
or not; and what chips do because of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import grid, i8, i32, kernel, local, reduce, u8
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.diagonal import lane_numbers
from tilewright.plan.normal_form import normal_form
from tilewright.plan.unit_form import MadeArray, UnitForm
from tilewright.plan.unit_forms import unit_forms
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

CHIPS = {"vta": vta(), "gemmini": gemmini(), "conv_engine": conv_engine()}


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


KERNELS = st.one_of(
    st.builds(as_unsigned, st.integers(1, 18), st.integers(3, 9)),
    st.builds(wrapped, st.integers(1, 20), st.integers(1, 9), st.integers(-128, 127)),
    st.builds(triangle, st.integers(1, 4), st.integers(4, 7)),
    st.builds(by_itself, st.integers(1, 20), st.integers(4, 9)),
    st.builds(with_itself, st.integers(1, 4), st.integers(4, 7)),
    st.builds(
        depthwise, st.integers(1, 40), st.integers(3, 7), st.integers(1, 3), st.integers(1, 2),
        st.integers(0, 1),
    ),
    st.builds(transposed, st.integers(1, 5), st.integers(1, 18), st.integers(2, 3),
              st.sampled_from([2, 4])),
    st.builds(first_layer, st.integers(1, 4), st.integers(1, 18), st.integers(5, 9),
              st.integers(1, 5), st.integers(1, 2)),
    st.builds(rescaled, st.integers(1, 40), st.integers(1, 9), st.integers(-300, 300),
              st.integers(-128, 127), st.sampled_from([0, 1, 64, -5]), st.integers(0, 9)),
    st.builds(average, st.integers(1, 40), st.sampled_from([4, 6]), st.integers(1, 3),
              st.integers(-200, 200), st.sampled_from([0, 256])),
    st.builds(relu6, st.integers(1, 40), st.integers(1, 9), st.integers(0, 127)),
    st.builds(gram, st.integers(2, 20), st.integers(1, 20)),
)  # fmt: skip


def arrays_of(program: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    most = {i8: 128, i32: 3000}
    return [rng.integers(-most[b.dtype], most[b.dtype], b.shape).astype(b.dtype.numpy)
            for b in program.inputs]  # fmt: skip


def computed(form: UnitForm, program: Kernel, arrays: list[np.ndarray]) -> np.ndarray:
    """What a form computes, of arrays made of the kernel's."""
    given = dict(zip((b.name for b in program.inputs), arrays, strict=True))
    found = []
    for b in form.kernel.inputs:
        made = form.made.get(b.name, MadeArray((b.name,)))
        found.append(made.of([given[name] for name in made.sources]))
        assert found[-1].shape == tuple(b.shape)
    (result,) = interpret(form.kernel, found)
    (output,) = program.outputs
    return form.results.get(output.name, MadeArray((output.name,))).of([result])


@given(KERNELS, st.sampled_from(list(CHIPS)))
@settings(max_examples=40, deadline=None)
def test_every_form_computes_the_same(program: Kernel, chip: str):
    arrays = arrays_of(program)
    wanted = interpret(program, arrays)[0]
    forms = list(unit_forms(normal_form(program), CHIPS[chip]))
    for form in forms:
        np.testing.assert_array_equal(computed(form, program, arrays), wanted)


@given(KERNELS, st.sampled_from(list(CHIPS)))
@settings(max_examples=20, deadline=None)
def test_chips_do_them(program: Kernel, chip: str):
    """Exactly, and not faster than the least bound of all forms; or they are refused in words."""
    try:
        built = build_chip(program, CHIPS[chip])
    except ScheduleError:
        return
    arrays = arrays_of(program)
    (output,) = program.outputs
    result = built(*arrays, np.zeros(output.shape, np.int8))
    np.testing.assert_array_equal(result, interpret(program, arrays)[0])
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles


@pytest.mark.parametrize(
    "program",
    [
        depthwise(20, 6, 3, 1, 1),
        depthwise(16, 6, 3, 1, 1).with_(name="one_block"),
        transposed(3, 5, 3, 4),
        first_layer(3, 20, 9, 3, 2),
        rescaled(20, 7, 77, 51, 64, 7),
        rescaled(20, 7, 300, 0, 0, 3),
        average(20, 6, 2, 128, 256),
        relu6(20, 9, 96),
        gram(20, 9),
    ],
    ids=lambda program: program.name,
)
@pytest.mark.parametrize("chip", CHIPS)
def test_families_are_done(program: Kernel, chip: str):
    """None of them is refused: they have a form on each of these chips. 16 channels are one block,
    whose loop runs once."""
    arrays = arrays_of(program)
    (output,) = program.outputs
    built = build_chip(program, CHIPS[chip])
    result = built(*arrays, np.zeros(output.shape, np.int8))
    np.testing.assert_array_equal(result, interpret(program, arrays)[0])
    assert built.replay(*arrays, result, orders=2) is None


def test_a_bound_counts_lanes_as_units_fill_them():
    """Three channels of sixteen: windows side by side fill 160 of 160 lanes for 147 elements."""
    built = build_chip(first_layer(3, 16, 23, 7, 2), gemmini())
    assert list(built.form.made) == ["X", "W"]
    assert built.bound is not None
    assert built.bound.work == 9 * 9 * 160 / 16
    assert built.cycles < 81 * 3 * 49 / 3  # what the window's 49 places take one by one


def test_how_many_lanes():
    """As many as both axes have; where they may have any number, as many as a cycle takes."""
    assert lane_numbers(vta()) == [16]
    assert lane_numbers(vta(block=32)) == [32]
    assert lane_numbers(conv_engine()) == [16]
    assert lane_numbers(conv_engine(inputs=8, outputs=8)) == [8]
    assert lane_numbers(tiny()) == [16]


def test_an_authors_loops_are_the_kernels():
    """Forms that have other loops are left out where tiles are given by name."""
    program = first_layer(16, 16, 9, 3, 1)
    built = build_chip(program, vta(), tile={"y": 7})
    assert not built.form.made
    assert built.tile["y"] == 7
