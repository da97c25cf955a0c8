"""Additions of two arrays as products of an array that has both: each is read where it lies."""

from collections.abc import Callable

import pytest
from stream_kernels import added, check, first, second, stream_of

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_choice
from tilewright.ir.expr import Buffer, Load, const, select
from tilewright.ir.python.words import out
from tilewright.ir.tensor_type import Layout
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.form_models import form_models
from tilewright.plan.same_kernels import with_param_names
from tilewright.plan.stacked_inputs import parts_of, stacks_of
from tilewright.plan.tile_model import TileModel
from tilewright.plan.unit_form import Stack, made
from tilewright.schedule.schedule import Schedule
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

GEMMINI = gemmini()


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


@pytest.mark.long
@pytest.mark.parametrize(
    "c", [16, *(pytest.param(n, marks=pytest.mark.long) for n in (24, 32, 40))]
)
def test_arrays_as_channels_of_one_window(c: int):
    """The engine adds 2 x 16 channels for 16, or 2 x 8 for 8 where those fill blocks."""
    built = check(first(c, 6), second(c, 6), added(c, 6, 77, 51), target=conv_engine())
    assert len(built.pieces) == 3
    assert {x.name for x in built.kernel.inputs} == {"X", "V", "W", "factors"}
    sizes = {int(x.shape[0]): x.shape for x in built.kernel.inputs if x.name == "factors"}
    lanes = 16 if c % 16 == 0 else 8
    assert sizes == {lanes: (lanes, 2 * lanes)}


@pytest.mark.long
def test_an_operator_that_takes_what_lies_otherwise_is_no_slower():
    """Other axes may lie between those that the engine takes: where calls are short then, arrays
    are taken in the operator's own order."""
    built = stream_of(
        first(128, 7), second(128, 7), added(128, 7, 77, 51), target=conv_engine()
    )  # fmt: skip
    assert built.pieces[-1].cycles < 1.2 * built.pieces[-1].bound


@pytest.mark.long
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chip", [conv_engine, vta, dsp])
def test_blocks_that_are_not_full(chip: Callable[[], Target]):
    """One channel more than blocks of 8 or 16 have: there is room beside the parts for the rest,
    which factors of 0 do not count."""
    built = check(first(17, 4), second(17, 4, 1), added(17, 4, 7, -5), target=chip())
    assert len(built.pieces) == 3
    assert "A" not in {x.name for x in built.kernel.inputs}


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
    """24 channels leave half a block of the unit idle."""
    built = check(first(c, 7), added(c, 7, 3, 5).with_(name="added"))
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
    room = made(
        "S", (2, 2, 4), [x, y], lambda t, i, j: select(
            j < 3, select(t.equals(0), Load(x, (i, j % 3)), Load(y, (i, j % 3))), const(0, i8)
        )
    )  # fmt: skip
    assert room.stacked == Stack(("X", "Y"), 0, 1)
    parts = parts_of(beside, Stack(("X", "Y"), 1, 3))
    assert parts == {}  # each is as it is


def test_a_core_waits_once_for_what_several_sections_need():
    """Before it starts a transfer: what it works on then is safe as well."""
    built = check(first(64, 6), added(64, 6, 127, -128), target=dsp(local=8 << 10))
    assert len(built.pieces) == 2


def test_a_bound_counts_a_kernel_once():
    """An addition and a limit on VTA's ALU, of which either could be products with constants."""

    @kernel
    def limited(Z: i8[32, 12, 12], Y: out(i8[32, 12, 12])):
        for c, y, x in grid(32, 12, 12):
            Y[c, y, x] = max(min(Z[c, y, x], i8(77)), i8(0))

    built = check(added(32, 12, 1, 1), limited.kernel, target=vta())
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles
