"""Limits that the signal processor has no instruction for, and sums that begin with what is added
to them: exact to the bit, whatever the limits."""

import numpy as np
import pytest
from fast_interpret import fast_interpret
from form_kernels import arrays_of, average, depthwise, relu6, rescaled
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright import cast, grid, i8, i16, i32, kernel, local, reduce
from tilewright.backends.bundles.choose import choose_plans
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Call, Kernel, walk_statements
from tilewright.ir.python.words import out
from tilewright.plan.limit_forms import limit_form, limits_apart
from tilewright.plan.normal_form import normal_form
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp

DSP = dsp()


def dense(low: int, high: int) -> Kernel:
    @kernel
    def dense(X: i8[4, 64], W: i8[16, 64], bias: i32[16], Y: out(i8[4, 16])):
        total = local(i32[4, 16])
        for i, j in grid(4, 16):
            total[i, j] = 0
            for k in reduce(64):
                total[i, j] += cast(i32, X[i, k]) * cast(i32, W[j, k])
        for i, j in grid(4, 16):
            Y[i, j] = cast(i8, max(min((total[i, j] + bias[j]) >> 7, high), low))

    return dense.kernel


def mean(low: int, high: int) -> Kernel:
    @kernel
    def mean(A: i8[8, 32], B: i8[8, 32], Y: out(i8[8, 32])):
        for i, j in grid(8, 32):
            Y[i, j] = i8(max(min(i32(A[i, j]) * 77 + i32(B[i, j]) * 51 >> 7, high), low))

    return mean.kernel


def clipped(low: int, high: int) -> Kernel:
    @kernel
    def clipped(A: i8[8, 32], Y: out(i8[8, 32])):
        for i, j in grid(8, 32):
            Y[i, j] = max(min(A[i, j], i8(high)), i8(low))

    return clipped.kernel


def right(program: Kernel) -> ChipKernel:
    """A kernel in bundles, once it computes what the interpreter does, at the ends of types too."""
    built = build_chip(program, DSP)
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-(1 << 15), 1 << 15, b.shape).clip(b.dtype.min, b.dtype.max)
        .astype(b.dtype.numpy) for b in program.inputs
    ]  # fmt: skip
    (output,) = program.outputs
    result = built(*arrays, np.zeros(output.shape, output.dtype.numpy))
    np.testing.assert_array_equal(result, fast_interpret(program, arrays)[0])
    return built


def called(built: ChipKernel) -> set[str]:
    every = walk_statements(built.kernel.body)
    return {s.instruction.name for s in every if isinstance(s, Call)}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("make", [dense, mean, clipped], ids=["dense", "mean", "clipped"])
@pytest.mark.parametrize("ends", [(-128, 127), (0, 96), (127, 127), (-128, 0)])
def test_limits(make, ends: tuple[int, int]):
    right(make(*ends))


@pytest.mark.long
@pytest.mark.parametrize("make", [dense, mean, clipped], ids=["dense", "mean", "clipped"])
@given(st.tuples(st.integers(-128, 127), st.integers(-128, 127)).map(sorted))
@example([-128, -128])
@settings(max_examples=10, deadline=None)
def test_any_limits(make, ends: list[int]):
    right(make(*ends))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chip", ["dsp", "conv_engine"])
def test_one_number(chip: str):
    """A result of one element, of several that are added up, or of one."""
    target = {"dsp": DSP, "conv_engine": conv_engine()}[chip]
    for program in (average(1, 8, 8, 5, 256), rescaled(1, 1, 77, 51, 0, 7)):
        built = build_chip(program, target)
        arrays = arrays_of(program)
        result = built(*arrays, np.zeros(program.outputs[0].shape, np.int8))
        np.testing.assert_array_equal(result, fast_interpret(program, arrays)[0])


@pytest.mark.long
def test_limits_in_one_pass():
    """Elements are brought once, and what is between the two sums stays in registers."""
    built = right(relu6(16, 512, 96))
    assert not built.pieces
    assert {"vmac", "vpack"} <= called(built)
    assert built.timeline.moved["dram", "local"] < 1.25 * 16 * 512
    assert len(right(dense(0, 96)).pieces) == 2
    assert not right(dense(0, 127)).pieces


def test_who_has_no_use_of_it():
    """A chip that has the limits, or none that multiplies element by element; a kernel without
    limits of its own, in another type, or of several results."""
    program = normal_form(clipped(0, 96))
    assert limit_form(program, DSP) is not None
    assert limit_form(program, conv_engine()) is None
    assert limit_form(normal_form(clipped(0, 127)), DSP) is None
    assert limit_form(normal_form(dense(0, 96)), DSP) is None

    @kernel
    def words(A: i16[8, 32], Y: out(i16[8, 32])):
        for i, j in grid(8, 32):
            Y[i, j] = max(min(A[i, j], i16(96)), i16(0))

    @kernel
    def two(A: i8[64], Y: out(i8[64]), Z: out(i8[64])):
        for i in range(64):
            Y[i] = max(min(A[i], i8(96)), i8(0))
        for i in range(64):
            Z[i] = max(min(A[i], i8(96)), i8(0))

    for other in (words.kernel, two.kernel):
        assert limit_form(normal_form(other), DSP) is None
    assert limits_apart(program) is None
    assert limits_apart(normal_form(dense(-128, 127))) is None
    with pytest.raises(ScheduleError, match="words has no contraction, and all that dsp computes"):
        build_chip(words.kernel, DSP)


@pytest.mark.long
def test_sums_begin_with_what_is_added():
    """A bias is loaded for sums to begin with, by other slots than the one that multiplies; it is
    added where the sums begin with nothing that can be loaded."""
    assert "vadd" not in called(right(depthwise(64, 8, 3, 1, 1)))
    plans = list(choose_plans(normal_form(dense(-128, 127)), DSP))
    assert {p.plan.begins for p in plans} == {True, False}
    assert min(plans, key=lambda p: p.cycles).plan.begins

    @kernel
    def doubled(X: i8[4, 64], W: i8[16, 64], bias: i32[16], Y: out(i8[4, 16])):
        total = local(i32[4, 16])
        for i, j in grid(4, 16):
            total[i, j] = 0
            for k in reduce(64):
                total[i, j] += cast(i32, X[i, k]) * cast(i32, W[j, k])
        for i, j in grid(4, 16):
            Y[i, j] = cast(i8, max(min(((total[i, j] >> 1) + bias[j]) >> 7, 127), -128))

    with pytest.raises(ScheduleError, match="no instructions of dsp make Y"):
        right(doubled.kernel)  # shifted before: what is added does not come first
    right(rescaled(16, 64, 3, 5, 1, 1))
