"""Forms of kernels that units take: each computes what the kernel does, whether a chip then does it
or not; and what chips do because of them."""

import numpy as np
import pytest
from form_kernels import (
    arrays_of,
    as_unsigned,
    average,
    by_itself,
    by_vector,
    by_vectors,
    computed,
    depthwise,
    each,
    filtered,
    first_layer,
    gram,
    grouped,
    groups_again,
    groups_apart,
    groups_guarded,
    groups_read,
    neighbours,
    outer,
    pool,
    relu6,
    rescaled,
    scaled,
    transposed,
    triangle,
    two_terms,
    with_itself,
    wrapped,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_chips import dram_engine

from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.plan.diagonal import lane_numbers
from tilewright.plan.lane_products import lane_sizes
from tilewright.plan.normal_form import normal_form
from tilewright.plan.unit_forms import unit_forms
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

CHIPS = {"vta": vta(), "gemmini": gemmini(), "conv_engine": conv_engine(), "dsp": dsp()}
ANY = CHIPS | {"dram_engine": dram_engine()}
NO_GROUPS = (groups_again(), groups_apart(), groups_guarded())


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
    st.builds(grouped, st.integers(1, 9), st.integers(1, 6), st.integers(1, 6), st.integers(3, 6),
              st.integers(1, 3)),
    st.builds(transposed, st.integers(1, 5), st.integers(1, 18), st.integers(2, 3),
              st.sampled_from([2, 4])),
    st.builds(first_layer, st.integers(1, 4), st.integers(1, 18), st.integers(5, 9),
              st.integers(1, 5), st.integers(1, 2)),
    st.builds(rescaled, st.integers(1, 40), st.integers(1, 9), st.integers(-300, 300),
              st.integers(-128, 127), st.sampled_from([0, 1, 64, -5]), st.integers(0, 9)),
    st.builds(average, st.integers(1, 40), st.sampled_from([4, 6]), st.integers(1, 3),
              st.integers(-200, 200), st.sampled_from([0, 256])),
    st.builds(pool, st.integers(1, 20), st.integers(4, 9), st.integers(2, 4), st.integers(1, 3),
              st.integers(0, 1), st.booleans()),
    st.builds(relu6, st.integers(1, 40), st.integers(1, 9), st.integers(0, 127)),
    st.builds(gram, st.integers(2, 20), st.integers(1, 20)),
    st.builds(scaled, st.integers(1, 20)),
    st.builds(filtered, st.integers(1, 40), st.integers(1, 9)),
    st.builds(outer, st.integers(1, 20), st.integers(1, 20)),
    st.builds(each, st.integers(1, 20), st.integers(1, 20)),
    st.builds(by_vector, st.integers(1, 20), st.integers(1, 20)),
    st.builds(by_vectors, st.integers(1, 4), st.integers(1, 20), st.integers(1, 20)),
    st.builds(neighbours, st.integers(1, 40), st.integers(-9, 9)),
)  # fmt: skip


@given(KERNELS, st.sampled_from(list(ANY)))
@settings(max_examples=6, deadline=None)
def test_every_form_computes_the_same(program: Kernel, chip: str):
    arrays = arrays_of(program)
    wanted = interpret(program, arrays)[0]
    forms = list(unit_forms(normal_form(program), ANY[chip]))
    for form in forms:
        np.testing.assert_array_equal(computed(form, program, arrays), wanted)


@given(KERNELS, st.sampled_from(list(ANY)))
@settings(max_examples=6, deadline=None)
def test_chips_do_them(program: Kernel, chip: str):
    """Exactly, and not faster than the least bound of all forms; or they are refused in words."""
    try:
        built = build_chip(program, ANY[chip])
    except ScheduleError:
        return
    arrays = arrays_of(program)
    (output,) = program.outputs
    result = built(*arrays, np.zeros(output.shape, np.int8))
    np.testing.assert_array_equal(result, interpret(program, arrays)[0])
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "program",
    [
        depthwise(20, 6, 3, 1, 1),
        depthwise(16, 6, 3, 1, 1).with_(name="one_block"),
        grouped(8, 4, 4, 6, 3),
        grouped(6, 1, 2, 6, 3).with_(name="several_of_each"),
        transposed(3, 5, 3, 4),
        first_layer(3, 20, 9, 3, 2),
        rescaled(20, 7, 77, 51, 64, 7),
        rescaled(20, 7, 300, 0, 0, 3),
        average(20, 6, 2, 128, 256),
        relu6(20, 9, 96),
        gram(20, 9),
        by_vector(20, 9),
        by_vectors(3, 20, 9),
        neighbours(40, 2),
        scaled(20),
        filtered(40, 5),
        outer(20, 17),
    ],
    ids=lambda program: program.name,
)
@pytest.mark.parametrize("chip", CHIPS)
def test_families_are_done(program: Kernel, chip: str):
    """None of them is refused: they have a form on each of these chips. 16 channels are one block,
    whose loop runs once. The signal processor has no maximum of what it reads."""
    if chip == "dsp" and program.name == "relu6":
        pytest.skip("it has no instruction for that")
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "chip, inner, outer",
    [
        ("vta", 16, 16), ("vta", 2, 4),
        *(pytest.param("vta", *n, marks=pytest.mark.long) for n in ((4, 4), (1, 2), (5, 3))),
        ("gemmini", 4, 4), ("gemmini", 16, 16), ("gemmini", 1, 2), ("gemmini", 5, 3),
        ("conv_engine", 16, 16), ("conv_engine", 2, 4), ("conv_engine", 5, 3),
    ],
)  # fmt: skip
def test_narrow_groups_share_a_unit(chip: str, inner: int, outer: int):
    """As many groups at a time as have no more channels than there are lanes."""
    groups, n = 80 // max(inner, outer), 14
    program = grouped(groups, inner, outer, n + 2, 3)
    built = build_chip(program, CHIPS[chip])
    x, w, b = (a.astype(int) for a in arrays_of(program))
    result = built(*arrays_of(program), np.zeros(program.outputs[0].shape, np.int8))
    total = np.zeros((groups, outer, n, n), int)
    for r, s in np.ndindex(3, 3):
        window = x.reshape(groups, inner, n + 2, n + 2)[..., r : r + n, s : s + n]
        total += np.einsum("giyx,goi->goyx", window, w[..., r, s].reshape(groups, outer, inner))
    sums = total.reshape(-1, n, n) + b[:, None, None] >> 6
    np.testing.assert_array_equal(result, np.clip(sums, -128, 127))
    several = max(n for n in range(1, 17) if groups % n == 0 and n * max(inner, outer) <= 16)
    assert built.cycles < 2.5 * n * n * 9 * groups / several


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", NO_GROUPS, ids=lambda program: program.name)
def test_what_only_looks_like_groups(program: Kernel):
    arrays = arrays_of(program)
    for chip in (CHIPS["vta"], CHIPS["conv_engine"]):
        result = build_chip(program, chip)(*arrays, np.zeros((16, 4), np.int8))
        np.testing.assert_array_equal(result, interpret(program, arrays)[0])


@pytest.mark.parametrize("chip", CHIPS)
def test_channels_at_places_that_are_read_are_refused(chip: str):
    with pytest.raises(ScheduleError):
        build_chip(groups_read(), CHIPS[chip])


@pytest.mark.parametrize("chip", CHIPS)
def test_sums_of_two_terms_are_refused(chip: str):
    with pytest.raises(ScheduleError) as refusal:
        build_chip(two_terms(), CHIPS[chip])
    assert refusal.value.what == "t is added to 2 times in one loop, and units add one term"
    assert refusal.value.hint == "add the terms up in one statement, or in a loop for each"


def test_sums_of_one_row_are_made_in_parts():
    """A unit that adds to one row waits for its last sum each time: 16 cycles of VTA, where the
    bound, which knows no order of work, says two. Channels as rows do not wait."""
    built = build_chip(average(16, 32, 32, 3, 128), vta())
    assert built.cycles < 32 * 32 * 16 / 3
    program = average(16, 32, 32, 3, 128)
    (array,) = arrays_of(program)
    result = np.zeros((16, 1, 1), np.int8)
    built(array, result)
    total = array.astype(int).sum((1, 2))
    np.testing.assert_array_equal(result.reshape(-1), (total * 3 + 128 >> 9).astype(np.int8))


def test_how_many_lanes():
    """As many as both axes have; where they may have any number, as many as a cycle takes."""
    assert lane_numbers(vta()) == [16]
    assert lane_numbers(vta(block=32)) == [32]
    assert lane_numbers(conv_engine()) == [16]
    assert lane_numbers(conv_engine(inputs=8, outputs=8)) == [8]
    assert lane_numbers(tiny()) == [16]
    assert lane_numbers(dsp()) == [16]  # four along sums, sixteen along results
    assert (lane_sizes(dsp()), lane_sizes(vta())) == ([64], [])


def test_an_authors_loops_are_the_kernels():
    """Forms that have other loops are left out where tiles are given by name."""
    program = first_layer(16, 16, 9, 3, 1)
    built = build_chip(program, vta(), tile={"y": 7})
    assert not built.form.made
    assert built.tile["y"] == 7
