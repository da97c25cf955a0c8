"""Maxima over windows of a picture that a matrix unit brings, as products with the identity."""

import numpy as np
import pytest
from form_kernels import arrays_of, average, computed, pool

from tilewright.chip import build_chip
from tilewright.chip_kernel import stream_kernel
from tilewright.ir.interpret import interpret
from tilewright.plan.form_models import Wanted, form_models
from tilewright.plan.normal_form import normal_form
from tilewright.plan.vector_schedule import tile_vectors
from tilewright.plan.vector_tiles import VectorChoices
from tilewright.plan.window_products import window_product_forms
from tilewright.schedule.schedule import Schedule
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

SMALL = vta(block=8)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size, step", [(2, 2), (3, 3), (3, 2), (5, 3), (4, 3)])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("least", [False, True])
def test_forms_compute_the_same(size: int, step: int, before: int, least: bool):
    program = pool(16, 10, size, step, before, least)
    arrays = arrays_of(program)
    wanted = interpret(program, arrays)[0]
    (form,) = window_product_forms(normal_form(program), SMALL)
    np.testing.assert_array_equal(computed(form, program, arrays), wanted)


@pytest.mark.parametrize(
    "program, target",
    [
        (pool(12, 10, 3, 2, 0, False), SMALL),  # channels fill no blocks
        (pool(16, 10, 3, 1, 0, False), SMALL),  # neighbours share all phases
        (average(16, 6, 2, 3, 128), SMALL),
        (pool(16, 10, 3, 2, 0, False), gemmini()),  # nothing works on rows
    ],
)
def test_where_there_is_no_such_form(program, target):
    assert not list(window_product_forms(normal_form(program), target))


def largest(x: np.ndarray, before: int, least: bool) -> np.ndarray:
    """Of windows of 3 x 3 that move by two elements."""
    border = ((0, 0), (before, before), (before, before))
    x = np.pad(x, border, constant_values=127 if least else -128)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
    return windows.min((3, 4)) if least else windows.max((3, 4))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("before, least", [(1, False), (1, True)])
def test_the_picture_comes_by_another_queue(before: int, least: bool):
    """The queue that works loads nothing: a row of 64 bytes takes it 2 cycles instead of 8. What is
    outside of the picture is a border; a tile's picture and the identity come once for all phases,
    and the bus is busy for 85 % of the time."""
    program = pool(64, 112, 3, 2, before, least)
    built = build_chip(program, vta(block=64))
    assert "identity" in built.form.made
    sites = [x.instruction for x in built.stream.sites]
    names = {i.name for i in sites if i.queue == "compute"} - {"load_uop", "finish"}
    assert names == {"clear", "gemm", "min" if least else "max"}
    brought = {r.buffer.name for x in built.stream.sites if x.instruction.queue == "load"
               for r in x.call.regions if r.buffer.memory != "dram"}  # fmt: skip
    assert len(brought) == 2
    assert built.bound.cycles > (112 * 112 + 56 * 56) * 64 / 8
    assert built.cycles < built.bound.cycles / 0.85
    assert built.predicted == pytest.approx(built.cycles, rel=0.05)
    (x,) = arrays_of(program)
    wanted = largest(x, before, least)
    np.testing.assert_array_equal(built(x, np.zeros_like(wanted)), wanted)
    assert built.replay(x, wanted.copy(), orders=2) is None


@pytest.mark.parametrize("size, step", [(3, 3), (2, 3), (2, 2)])
def test_windows_that_share_nothing(size: int, step: int):
    """Each phase has one element of a window: a tile needs those of all, be they apart."""
    program, target = pool(64, 36, size, step, 0, False), vta(block=64)
    models = form_models(program, target, Wanted(kept={"X"}))
    (found,) = (m for m in models if "identity" in m.form.made)
    assert isinstance(found.model, VectorChoices)
    choice = found.model.plans[0]
    s = Schedule(choice.form.kernel)
    layouts = tile_vectors(s, target, choice.plan, choice.form).layouts
    built = stream_kernel(s, target, (), layouts)
    assert found.bound.cycles <= built.cycles
    assert choice.cycles == pytest.approx(built.cycles, rel=0.12)
