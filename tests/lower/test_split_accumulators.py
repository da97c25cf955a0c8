"""Accumulators of lanes: which reductions get them."""

import textwrap

import pytest

from tilewright.ir.text.loop import parse_kernel
from tilewright.lower.split_accumulators import split_accumulators


def split(body: str) -> str:
    head = """
        def f(x: f32[4, 8], y: out(f32[2])):
            for o in range(2):
                y[o] = f32(0.0)
    """
    text = (
        textwrap.dedent(head).strip()
        + "\n"
        + textwrap.indent(textwrap.dedent(body).strip(), " " * 4)
    )
    kernel = parse_kernel(text)
    found = split_accumulators(kernel)
    assert (found is kernel) == (str(found) == str(kernel))
    return textwrap.dedent("\n".join(str(found).splitlines()[3:]))


def test_a_sum_is_taken_apart():
    assert split(
        """
        for j in range(4):
            for i in vectorize(8):
                y[1] += x[j, i]
        """
    ) == textwrap.dedent(
        """\
        y_lanes = alloc(f32[8] @ "register")
        for i_first in vectorize(8):
            y_lanes[i_first] = f32(0.0)
        for j in range(4):
            for i in vectorize(8):
                y_lanes[i] += x[j, i]
        for i_last in vectorize(8):
            y[1] += y_lanes[i_last]"""
    )


def test_a_tile_of_sums_has_lanes_for_each():
    assert split(
        """
        for j in range(4):
            for p in unroll(2):
                for i in vectorize(8):
                    y[p] += x[j, i]
        for p_1 in unroll(2):
            for i_1 in vectorize(4):
                y[p_1] += x[3, i_1]
        """
    ) == textwrap.dedent(
        """\
        y_lanes = alloc(f32[2, 8] @ "register")
        for p_first in unroll(2):
            for i_first in vectorize(8):
                y_lanes[p_first, i_first] = f32(0.0)
        for j in range(4):
            for p in unroll(2):
                for i in vectorize(8):
                    y_lanes[p, i] += x[j, i]
        for p_1 in unroll(2):
            for i_1 in vectorize(4):
                y_lanes[p_1, i_1] += x[3, i_1]
        for p_last in unroll(2):
            for i_last in vectorize(8):
                y[p_last] += y_lanes[p_last, i_last]"""
    )


REST = """
    for j in range(3):
        for i in vectorize(8):
            y[1] += x[j, i]
    for i_1 in vectorize(4):
        y[1] += x[3, i_1]
    """


def test_the_rest_is_added_to_the_first_lanes():
    assert split(REST) == textwrap.dedent(
        """\
        y_lanes = alloc(f32[8] @ "register")
        for i_first in vectorize(8):
            y_lanes[i_first] = f32(0.0)
        for j in range(3):
            for i in vectorize(8):
                y_lanes[i] += x[j, i]
        for i_1 in vectorize(4):
            y_lanes[i_1] += x[3, i_1]
        for i_last in vectorize(8):
            y[1] += y_lanes[i_last]"""
    )


@pytest.mark.parametrize(
    "change",
    [
        ("y[1] += x[3, i_1]", "y[0] += x[3, i_1]"),
        ("y[1] += x[3, i_1]", "accumulate(max, y[1], x[3, i_1])"),
        ("vectorize(4)", "range(4)"),
        ("    for i_1 in", "    y[1] = y[1] * f32(2.0)\n    for i_1 in"),
        ("    for i_1 in vectorize(4):", "    for i_1 in vectorize(16):"),
        ("y[1] += x[3, i_1]", "y[1] += x[3, i_1] * y[1]"),
    ],
    ids=[
        *("another element", "another operation", "no lanes", "something between", "more lanes"),
        "the sum so far is read",
    ],
)
def test_what_follows_and_is_no_rest(change: tuple[str, str]):
    found = split(REST.replace(*change))
    whole = textwrap.dedent(REST.replace(*change)).strip().splitlines()
    assert found.splitlines()[-2:] == whole[-2:]
    assert "    y[1] += y_lanes[i_last]" in found.splitlines()[:-2]


WHOLE = {
    "two elements of one buffer": """
        for j in range(4):
            for i in vectorize(8):
                y[0] += x[j, i]
                y[1] += x[j, i] * x[j, i]
        """,
    "a sum that is read on the way": """
        for j in range(4):
            for i in vectorize(8):
                y[0] += x[j, i] * y[0]
        """,
    "an element that is not there": """
        for j in range(4):
            for i in vectorize(8):
                if 9 < i:
                    y[2] += x[j, i]
        """,
    "an element of each row": """
        for j in range(2):
            for i in vectorize(8):
                y[j] += x[j, i]
        """,
    "a loop over elements that is not unrolled": """
        for j in range(4):
            for p in range(2):
                for i in vectorize(8):
                    y[p] += x[j, i]
        """,
    "no loop around": """
        for i in vectorize(8):
            y[0] += x[0, i]
        """,
    "lanes one after another": """
        for j in range(4):
            for i in range(8):
                y[0] += x[j, i]
        """,
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_stays_whole(name: str):
    body = textwrap.dedent(WHOLE[name]).strip()
    assert split(body) == body
