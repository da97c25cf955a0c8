"""Where arrays lie that were made before, and kernels that read them there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import grid, i8, kernel
from tilewright.ir.expr import Buffer, Load, const, select
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.places import order_of, orders_of, with_room
from tilewright.plan.unit_form import MadeArray, UnitForm, made


@given(st.permutations(range(4)), st.lists(st.integers(2, 4), min_size=4, max_size=4))
@settings(max_examples=50, deadline=None)
def test_the_order_of_axes_in_memory(order: list[int], shape: list[int]):
    places = np.arange(np.prod(shape)).reshape([shape[d] for d in order])
    found = order_of(places.transpose(np.argsort(order)), tuple(shape))
    assert found == tuple(order)


def test_what_has_no_order():
    """Channels in blocks of two, and another number of elements."""
    places = np.arange(16).reshape(2, 4, 2).transpose(0, 2, 1).reshape(4, 4)
    assert order_of(places, (4, 4)) is None
    assert order_of(places, (2, 2, 4)) == (0, 2, 1)
    assert order_of(places, (4, 5)) is None


def test_places_that_may_be_anywhere():
    """The second block of 16 channels has 8."""
    places = np.arange(4 * 24).reshape(4, 24).T
    blocks = np.full((32, 4), -1)
    blocks[:24] = places
    assert order_of(blocks, (2, 16, 4)) == (2, 0, 1)
    blocks[23, 3] += 1
    assert order_of(blocks, (2, 16, 4)) is None
    assert order_of(np.full(8, -1), (2, 4)) is None


def negated() -> Kernel:
    @kernel
    def negated(X: i8[8, 3, 3], Y: out(i8[8, 3, 3])):
        for c, y, x in grid(8, 3, 3):
            Y[c, y, x] = i8(0) - X[c, y, x]

    return negated.kernel


def test_a_kernel_that_reads_some_of_a_larger_array():
    """Of 16 channels, innermost, the first eight; of rows of five pixels, the first three."""
    channels = np.arange(3 * 3 * 16).reshape(3, 3, 16)[..., :8].transpose(2, 0, 1)
    rows = np.arange(8 * 3 * 5).reshape(8, 3, 5)[..., :3]
    for places, shape in ((channels, (16, 3, 3)), (rows, (8, 3, 5))):
        wider = with_room(negated(), {"X": places})
        assert [b.shape for b in wider.params] == [shape, (8, 3, 3)]
        assert str(wider) == str(negated()).replace("X: i8[8, 3, 3]", f"X: i8{list(shape)}")


@pytest.mark.parametrize(
    "places",
    [
        np.arange(72).reshape(8, 3, 3),  # as they are
        2 * np.arange(72).reshape(8, 3, 3),  # with gaps
        np.arange(3 * 20)[:, None] + np.zeros(72 // 60 + 1, int),  # of another number
        np.arange(8)[:, None, None] + 24 * np.arange(3)[:, None] + 7 * np.arange(3),  # overlapping
    ],
    ids=["as they are", "gaps", "another number", "overlapping"],
)
def test_no_larger_array(places: np.ndarray):
    assert with_room(negated(), {"X": places}) == negated()
    assert with_room(negated(), {"other": places}) == negated()


def test_orders_of_what_a_form_reads():
    """As it is, in other words, with 0s behind it, and not at all."""
    x = Buffer("X", i8, (8, 3, 3))
    places = np.arange(72).reshape(3, 3, 8).transpose(2, 0, 1)

    def orders(shape: tuple[int, ...], value) -> dict[str, tuple[int, ...]]:
        program = negated()
        array = made("X_made", shape, [x], value)
        form = program.with_(inputs=(x.with_(shape=shape),), body=())
        return orders_of(UnitForm(form, {"X": array}), {"X": places})

    assert orders_of(UnitForm(negated()), {"X": places}) == {"X": (1, 2, 0)}
    assert orders_of(UnitForm(negated(), {"X": MadeArray(("X",))}), {}) == {}
    turned = orders((3, 3, 8), lambda i, j, c: Load(x, (c, i, j)))
    assert turned == {"X": (0, 1, 2)}
    inside = orders(
        (3, 16, 3),
        lambda i, c, j: select(c < 8, Load(x, (c % 8, i, j)), const(0, i8)),
    )
    assert inside == {"X": (0, 2, 1)}
    assert orders((3, 3), lambda i, j: Load(x, (i, j, i))) == {}
