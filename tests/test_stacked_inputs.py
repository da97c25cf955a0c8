"""Additions of two arrays as products of an array that has both: each is read where it lies."""

import numpy as np
import pytest
from fast_interpret import fast_interpret
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_choice, build_split
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer, Load, select
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.ir.tensor_type import Layout
from tilewright.join_pieces import PieceRefused
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.control import CHOSEN
from tilewright.plan.form_models import form_models
from tilewright.plan.normal_form import normal_form
from tilewright.plan.same_kernels import with_param_names
from tilewright.plan.split_kernel import with_passed_borders
from tilewright.plan.stacked_inputs import order_of, parts_of, stacks_of
from tilewright.plan.tile_model import TileModel
from tilewright.plan.unit_form import Stack, made
from tilewright.schedule.schedule import Schedule
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

GEMMINI = gemmini()


def first(c: int, n: int) -> Kernel:
    @kernel
    def first(X: i8[c, n, n], V: i8[c, c], A: out(i8[c, n, n])):
        total = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            total[o, y, x] = 0
            for k in reduce(c):
                total[o, y, x] += i32(X[k, y, x]) * i32(V[o, k])
        for o, y, x in grid(c, n, n):
            A[o, y, x] = i8(max(min(total[o, y, x] >> 7, 127), -128))

    return first.kernel


def second(c: int, n: int, k: int = 3) -> Kernel:
    """A convolution that sees zeros around what the first one makes."""

    @kernel
    def second(A: i8[c, n, n], W: i8[c, c, k, k], B: out(i8[c, n, n])):
        total = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            total[o, y, x] = 0
            for f, r, s in reduce(c, k, k):
                i = y + r - k // 2
                j = x + s - k // 2
                pixel = A[f, i, j] if 0 <= i < n and 0 <= j < n else 0
                total[o, y, x] += i32(pixel) * i32(W[o, f, r, s])
        for o, y, x in grid(c, n, n):
            B[o, y, x] = i8(max(min(total[o, y, x] >> 9, 127), -128))

    return second.kernel


def added(c: int, n: int, a: int, b: int) -> Kernel:
    @kernel
    def added(A: i8[c, n, n], B: i8[c, n, n], Z: out(i8[c, n, n])):
        for o, y, x in grid(c, n, n):
            total = i32(A[o, y, x]) * a + i32(B[o, y, x]) * b
            Z[o, y, x] = i8(max(min(total >> 7, 127), -128))

    return added.kernel


def stream_of(*kernels: Kernel, target: Target = GEMMINI) -> ChipKernel:
    """Kernels that pass arrays by their names, as one stream."""
    pieces = [normal_form(k) for k in kernels]
    made = {b.name for k in pieces for b in k.outputs}
    inputs = {b.name: b for k in pieces for b in k.inputs if b.name not in made}
    whole = pieces[-1].with_(inputs=tuple(inputs.values()))
    split = with_passed_borders(pieces, target)
    order = (*inputs, pieces[-1].outputs[0].name)
    return build_split(whole, split, target, CHOSEN, order, {})


def check(*kernels: Kernel, target: Target = GEMMINI) -> ChipKernel:
    """The stream, once it made what the kernels do, also in other orders."""
    built, random = stream_of(*kernels, target=target), np.random.default_rng(0)
    known: dict[str, np.ndarray] = {}
    given: dict[str, np.ndarray] = {}
    for k in kernels:
        for b in k.inputs:
            if b.name not in known:
                known[b.name] = random.integers(-128, 128, b.shape).astype(np.int8)
                given[b.name] = known[b.name]
        known[k.outputs[0].name] = fast_interpret(k, [known[b.name] for b in k.inputs])[0]
    wanted = known[kernels[-1].outputs[0].name]
    arrays = [given[b.name] for b in built.source.inputs]
    np.testing.assert_array_equal(built(*arrays, np.zeros_like(wanted)), wanted)
    assert built.replay(*arrays, wanted.copy(), orders=2) is None
    return built


@pytest.mark.parametrize("a,b", [(77, 51), (1, 1), (200, -3)])
def test_an_addition_follows_what_made_its_operands(a: int, b: int):
    """One of them has zeros around it, which the other then has as well. 200 is two terms."""
    built = check(first(16, 5), second(16, 5), added(16, 5, a, b))
    assert len(built.pieces) == 3
    assert {x.name for x in built.kernel.inputs} == {"X", "V", "W", "factors"}
    sizes = {x.name: x.shape for x in built.stream.constants}
    assert sizes["A"] == sizes["B"] == (16 * 7 * 7,)


def test_the_largest_border_of_both():
    """The first array has one row of zeros around it, the second two."""
    names = {"A": "B", "W": "V2", "B": "C"}
    third = with_param_names(second(16, 4, 5), names)
    built = stream_of(
        first(16, 4), second(16, 4), third, with_param_names(added(16, 4, 3, 5), {"Z": "D"}),
        with_param_names(added(16, 4, 1, 1), {"A": "C", "B": "D"}),
    )  # fmt: skip
    sizes = {x.name: x.shape for x in built.stream.constants}
    assert sizes["A"] == sizes["B"] == (16 * 8 * 8,)


@pytest.mark.parametrize("c", [16, 24, 32, 40])
def test_arrays_as_channels_of_one_window(c: int):
    """The engine adds 2 x 16 channels for 16, or 2 x 8 for 8 where those fill blocks."""
    built = check(first(c, 6), second(c, 6), added(c, 6, 77, 51), target=conv_engine())
    assert len(built.pieces) == 3
    assert {x.name for x in built.kernel.inputs} == {"X", "V", "W", "factors"}
    sizes = {int(x.shape[0]): x.shape for x in built.kernel.inputs if x.name == "factors"}
    lanes = 16 if c % 16 == 0 else 8
    assert sizes == {lanes: (lanes, 2 * lanes)}


def test_orders_of_axes_are_followed():
    """An addition of pictures of fewer rows than blocks of channels would rather have rows outside
    of channels; what follows a convolution has them as that leaves them."""
    built = check(first(96, 4), second(96, 4, 1), added(96, 4, 3, 1), target=conv_engine())
    assert len(built.pieces) == 3


def test_no_blocks_of_what_lies_in_an_order():
    """VTA would rather take 16 pictures by 16 channels as its second factor, which lies in blocks
    of both; where channels are innermost, it takes them as its first."""

    @kernel
    def mean(A: i8[32, 16, 3, 3], F: i8[16, 16], Z: out(i8[32, 16])):
        total = local(i32[32, 16])
        for o, p in grid(32, 16):
            total[o, p] = 0
            for c, y, x in reduce(16, 3, 3):
                total[o, p] += i32(A[o, c, y, x]) * i32(F[p, c])
        for o, p in grid(32, 16):
            Z[o, p] = i8(max(min(total[o, p] >> 3, 127), -128))

    def layout(**orders: tuple[int, ...]) -> Layout:
        model = analytic_model(mean.kernel, vta(), orders)
        (choice, *_) = choose_tiles(model, None)
        return tile_for_unit(Schedule(mean.kernel), vta(), choice.plan)["A"]

    assert len(layout().blocks) == 2
    assert layout(A=(0, 2, 3, 1)) == Layout((0, 2, 3, 1), ((1, 16),))


def test_what_cannot_be_brought_apart():
    """One channel more than blocks of 8 have: the array of both would have channels of neither."""
    message = "kernel has no contraction"
    with pytest.raises(PieceRefused, match=message) as error:
        stream_of(first(17, 4), second(17, 4, 1), added(17, 4, 7, -5), target=conv_engine())
    assert error.value.number == 2


def test_an_instruction_that_steps_around_parts():
    """With both arrays innermost, pixels of one lie further apart than in an array of its own."""
    models = form_models(added(32, 14, 7, -5), conv_engine())
    found = next(m for m in models if any(b.shape == (2, 2, 16, 14, 14) for b in m.kernel.inputs))
    assert isinstance(found.model, TileModel)
    choice = choose_tiles(found.model, run_pipelines)[0]
    with pytest.raises(ScheduleError, match="one load takes places of A_B that lie around its"):
        build_choice(found.kernel, conv_engine(), choice, stacks=stacks_of(found.form))


@pytest.mark.parametrize("c", [16, 24, 48])
def test_an_operand_from_outside(c: int):
    """24 channels leave half a block of the unit idle, so that the arrays are not those of the
    model any more, and the addition is no part of the stream."""
    kernels = (first(c, 7), added(c, 7, 3, 5).with_(name="added"))
    if c % 16:
        with pytest.raises(PieceRefused):
            stream_of(*kernels)
        return
    built = check(*kernels)
    assert {x.name for x in built.kernel.inputs} == {"X", "V", "B", "factors"}


def test_what_is_stacked():
    x, y = (Buffer(name, i8, (2, 3)) for name in "XY")

    def of(count: int, value):
        return made("S", (count, 3, 2), [x, y], value).stacked

    def at(b: Buffer, i, j):
        flat = i * 2 + j
        return Load(b, (flat // 3, flat % 3))

    both = of(2, lambda t, i, j: select(t.equals(0), at(x, i, j), at(y, i, j)))
    assert both == Stack(("X", "Y"), 0, 1)
    again = of(3, lambda t, i, j: select(t.equals(1), at(x, i, j), at(y, i, j)))
    assert again == Stack(("Y", "X", "Y"), 0, 1)
    turned = of(2, lambda t, i, j: select(t.equals(0), at(x, i, j), Load(y, (j, i))))
    assert turned == Stack(("X", "Y"), 0, 1)
    twice = of(2, lambda t, i, j: select(t.equals(0), at(x, i, j), Load(y, (j, i % 2))))
    assert twice is None
    assert of(2, lambda t, i, j: select(i.equals(0), at(x, i, j), at(y, i, j))) is None
    assert made("S", (2, 3), [x], lambda i, j: Load(x, (i, j))).stacked is None
    beside = made(
        "S", (2, 6), [x, y], lambda i, j: select(j < 3, Load(x, (i, j % 3)), Load(y, (i, j % 3)))
    )
    assert beside.stacked == Stack(("X", "Y"), 1, 3)
    parts = parts_of(beside, Stack(("X", "Y"), 1, 3))
    assert parts == {}  # each is as it is


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
