"""skip_zeros: programs before and after, what is refused, and models of every kind of weights."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from schedule_cases import rewritten, schedule

import tilewright
from tilewright.base.dtype import i32
from tilewright.ir.expr import Buffer
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.schedule.schedule import Schedule
from tilewright.targets import cpu

WINDOW = """
def k(x: f32[8, 7], w: finite(f32[3, 3]), y: out(f32[8, 7])):
    p = alloc(f32[10, 9])
    for h in range(10):
        for v in range(9):
            p[h, v] = select((1 <= h) & (h < 9) & (1 <= v) & (v < 8), x[h - 1, v - 1], f32(0))
    for i in range(8):
        for j in range(7):
            y[i, j] = f32(0)
            for r in range(3):
                for q in range(3):
                    y[i, j] += p[i + r, j + q] * w[r, q]
"""


def rows(s: Schedule) -> None:
    s.skip_zeros(s.loop("r"))


def refused(text: str, steps: Callable[[Schedule], object], message: str) -> None:
    s = schedule(text)
    with pytest.raises(tilewright.ScheduleError) as caught:
        steps(s)
    assert caught.value.what == message


def test_rows_in_padding_are_left_out():
    guarded = WINDOW.replace(
        """
                for q in range(3):
                    y""",
        """
                if (0 <= i + r - 1) & (0 <= 8 - i - r):
                    for q in range(3):
                        y""",
    )
    rewritten(WINDOW, rows, guarded.replace("f32(0)", "f32(0.0)"))


def test_an_iteration_counts_if_any_of_what_is_inside_does():
    """Seven pixels read something in every column of the window; one pixel alone does not."""
    s = schedule(WINDOW)
    s.skip_zeros(s.loop("q"))
    assert "if (0 <= j + q - 1) & (0 <= 7 - j - q):" in str(s.kernel)
    one = "for r in range(3):\n                for q in range(3):\n                    y"
    seven = (
        "for r in range(3):\n                for q in range(3):\n"
        "                  for j_1 in range(7):\n                    y"
    )
    tile = WINDOW.replace(one, seven).replace("j in range(7)", "j in range(1)")
    tile = tile.replace("y[i, j] +=", "y[i, j_1] +=").replace("j + q", "j_1 + q")
    tile = tile.replace("y[i, j] = f32(0)", "for z in range(7):\n                y[i, z] = f32(0)")
    refused(tile, lambda s: s.skip_zeros(s.loop("q")), "no iteration of q adds nothing but padding")


@pytest.mark.parametrize(
    "change, message",
    [
        (
            ("finite(f32[3, 3])", "f32[3, 3]"),
            "w may hold infinities, and 0 times infinity is not 0",
        ),
        (("f32(0))", "f32(1))"), "no iteration of r adds nothing but padding"),
        (("* w[r, q]", "+ w[r, q]"), "r adds p[i + r, j + q] + w[r, q], which is no product"),
        (
            ("* w[r, q]", "* (w[r, q] / w[0, 0])"),
            "w[r, q] / w[0, 0] may be infinite, and 0 times infinity is not 0",
        ),
        (("p[i + r, j + q]", "p[i + 1, j + q]"), "no iteration of r adds nothing but padding"),
        (("y[i, j] += p", "accumulate(max, y[i, j], p"), "r does more than add to one buffer"),
    ],
)
def test_refused(change, message):
    text = WINDOW.replace(*change)
    if "accumulate" in text:
        text = text.replace("* w[r, q]", "* w[r, q])")
    refused(text, rows, message)


def test_lanes_are_not_left_out():
    def lanes(s: Schedule) -> None:
        s.split_init(s.buffer("y"))
        s.reorder(s.loop("r"), s.loop("q"), s.loop("j"))
        s.vectorize(s.loop("j"))
        s.skip_zeros(s.loop("j"))

    refused(WINDOW, lanes, "the lanes of j take part together")


def test_only_inputs_are_finite():
    kernel = parse_kernel(WINDOW)
    inputs = (*kernel.inputs, Buffer("n", i32, (3,)))
    for name, message in (
        ("p", "p is said to be finite, and is no input"),
        ("n", "n is said to be finite, as all of i32 is"),
    ):
        with pytest.raises(tilewright.CompileError, match=message):
            verify_kernel(kernel.with_(inputs=inputs, finite=(name,)))


def convolution(weight: np.ndarray, height: int, width: int) -> onnx.ModelProto:
    shape = [1, weight.shape[1], height, width]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def program(model: onnx.ModelProto) -> str:
    found = tilewright.compile(model, target=cpu.cpu("avx2"), until="scheduled")
    return "\n".join(str(s.kernel) for s in found.values())


@pytest.mark.parametrize("width", [1, 5, 7])
def test_convolutions_leave_out_what_pads(width):
    weight = np.random.default_rng(width).standard_normal((16, 8, 3, 3)).astype(np.float32)
    model = convolution(weight, 4, width)
    x = np.random.default_rng(1).standard_normal((1, 8, 4, width)).astype(np.float32)
    text = program(model)
    assert text.count("if (0 <= ") == 1, text
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("nchwrq,ocrq->nohw", windows, weight)
    y = tilewright.compile(model)(x)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


def test_weights_that_are_not_finite_meet_the_padding():
    """0 times infinity is NaN, at every pixel whose window has the weight in the border."""
    weight = np.ones((16, 8, 3, 3), np.float32)
    weight[:, 0, 0, 1] = np.inf
    model = convolution(weight, 4, 7)
    assert "if (0 <= " not in program(model)
    y = tilewright.compile(model)(np.ones((1, 8, 4, 7), np.float32))
    assert np.isnan(y[:, :, 0]).all()
    assert np.isinf(y[:, :, 1:]).all()
