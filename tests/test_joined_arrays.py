"""Concatenations in streams of chips: arrays whose parts are made where they lie."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from branch_networks import Network
from fuzz_devices import trial
from onnx import numpy_helper

import tilewright
from tilewright.base.errors import ScheduleError
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.options import Options
from tilewright.plan.split_kernel import Join, with_passed_borders
from tilewright.program.host_program import Submit
from tilewright.targets.chips import CHIPS

HALF_UP = Options(rounding="half_up", verify=True)


def later(*values: object) -> list[object]:
    """Cases of `make test-long`."""
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=pytest.mark.long) for row in rows]


def submits(model: onnx.ModelProto, x: np.ndarray, chip: str) -> list[list[str]]:
    """The names of the pieces of each submit, of a model whose results are the interpreter's."""
    module = tilewright.compile(
        model, target={"npu": CHIPS[chip](), "host": "host"}, options=HALF_UP
    )
    found = module(x)
    graph = import_model(model.SerializeToString(), half_up=True)
    wanted = evaluate_graph(graph, [x])
    for a, b in zip([found] if len(wanted) == 1 else found, wanted, strict=True):
        assert np.array_equal(a, b)
    steps = zip(module.program.host.steps, module.program.steps, strict=True)
    return [
        [p.kernel for p in facts.pieces] or [s.kernel]
        for s, facts in steps
        if isinstance(s, Submit)
    ]


def fire(n: Network, x: str = "x") -> str:
    """Two branches of what squeezes, side by side, and what reads both."""
    squeezed = n.conv(x, n.shape[1], 16)
    both = n.op("Concat", n.conv(squeezed, 16, 32), n.conv(squeezed, 16, 16, 3), axis=1)
    return n.conv(both, 48, 16, 3)


@pytest.mark.parametrize("chip", ["vta", *later("gemmini", "conv_engine", "dsp")])
def test_branches_are_one_stream(chip: str):
    n = Network(16)
    (pieces,) = submits(*n.quantised(fire(n)), chip)
    assert len(pieces) == 5
    assert sum("concat" in p for p in pieces) == 1


@pytest.mark.long
@pytest.mark.parametrize("chip", ["vta", "gemmini", "conv_engine", "dsp"])
def test_a_stream_may_end_with_a_concatenation(chip: str):
    """What the host reads then is one array as well."""
    n = Network(16)
    squeezed = n.conv("x", 16, 16)
    both = n.op("Concat", n.conv(squeezed, 16, 32), n.conv(squeezed, 16, 16), axis=1)
    (pieces,) = submits(*n.quantised(both), chip)
    assert len(pieces) == 4


@pytest.mark.parametrize("ends, count", [(True, 2), *(later((True, 3), (False, 3)))])
def test_layers_that_read_all_before_them_lie_in_one_array(ends: bool, count: int):
    """Each concatenation begins with the one before, so that nothing is stored twice."""
    n = Network(16)
    parts, x = [n.conv("x", 16, 16)], ""
    x = parts[0]
    for k in range(count):
        parts.append(n.conv(x, 16 * (k + 1), 16))
        x = n.op("Concat", *parts, axis=1)
    (pieces,) = submits(*n.quantised(x if ends else n.conv(x, 16 * (count + 1), 16, 3)), "vta")
    assert sum("concat" in p for p in pieces) == count


def test_parts_that_blocks_of_channels_do_not_divide_are_the_hosts():
    """8 of 16 channels: between the parts would be room that what reads them does not expect."""
    n = Network(16)
    both = n.op("Concat", n.conv("x", 16, 8), n.conv("x", 16, 16), axis=1)
    found = submits(*n.quantised(n.conv(both, 24, 16)), "vta")
    assert len(found) > 1
    assert not any("concat" in p for pieces in found for p in pieces)


@pytest.mark.parametrize("chip", ["gemmini", *later("vta", "conv_engine", "dsp")])
def test_a_part_is_read_by_itself_too(chip: str):
    """Its rows take turns with those of the others, so that several rows at once lie further apart
    than they would alone; and both have the border that one reader wants."""
    n = Network(16, side=8)
    x = n.conv("x", 16, 16)
    a, b = n.conv(x, 16, 32, 3), n.conv(x, 16, 16)
    both = n.conv(n.op("Concat", b, a, axis=1), 48, 16)
    (pieces,) = submits(*n.quantised(n.op("Add", both, n.conv(a, 32, 16, 3))), chip)
    assert sum("concat" in p for p in pieces) == 1


@pytest.mark.long
def test_a_part_that_is_read_flat_too():
    """By a linear layer, for which there is no room between rows."""
    n = Network(16)
    a, b = n.conv("x", 16, 16), n.conv("x", 16, 16, 3)
    both = n.conv(n.op("Concat", a, b, axis=1), 32, 16)
    weights = n.random.normal(size=(16 * 36, 10)).astype(np.float32)
    n.weights.append(numpy_helper.from_array(weights, "flat"))
    scores = (n.op("Gemm", n.op("Flatten", y), "flat") for y in (a, both))
    submits(*n.quantised(n.op("Add", *scores)), "gemmini")


def test_room_between_rows_needs_the_same_axes():
    """A part that another piece reads as one row has none where the others could lie."""

    def copy(name: str, given: str, made: str) -> Kernel:
        return parse_kernel(
            f"""def {name}({given}: i8[16, 36], {made}: out(i8[16, 36])):
    for i in range(16):
        for j in range(36):
            {made}[i, j] = {given}[i, j]"""
        )

    flat = parse_kernel(
        """def flat(a: i8[576], y: out(i8[576])):
    for i in range(576):
        y[i] = a[i]"""
    )
    pieces = [copy("first", "x", "a"), copy("second", "x", "b"), flat]
    whole = pieces[0].outputs[0].with_(name="both", shape=(32, 36))
    joins = [Join(whole, ("a", "b"), 0, (16, 16))]
    assert with_passed_borders(pieces, CHIPS["gemmini"](), joins).joins == tuple(joins)
    with pytest.raises(ScheduleError, match="a is read with a border, and in another shape"):
        with_passed_borders(pieces, CHIPS["gemmini"](), joins, room=True)


@pytest.mark.long
def test_a_part_in_two_arrays_is_one_streams_and_the_hosts():
    n = Network(16)
    a, b, c = (n.conv("x", 16, 16, size) for size in (1, 3, 1))
    first = n.conv(n.op("Concat", b, a, axis=1), 32, 16)
    second = n.conv(n.op("Concat", a, c, axis=1), 32, 16)
    submits(*n.quantised(n.op("Add", first, second)), "vta")


def test_the_hosts_kernels_do_not_cut_streams_that_do_not_need_them():
    """The pooling of the middle branch is the host's; the branches are one submit behind it."""
    n = Network(16)
    x = n.conv("x", 16, 16)
    first = n.conv(x, 16, 16, 3)
    pooled = n.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    both = n.op("Concat", first, n.conv(pooled, 16, 32), axis=1)
    found = submits(*n.quantised(n.conv(both, 48, 16)), "gemmini")
    assert [len(pieces) for pieces in found] == [1, 4]


@pytest.mark.parametrize("seed", [1, *later(3, 9, 11)])
def test_random_networks_with_branches(seed: int):
    """`tools/fuzz_devices.py --branches` has many."""
    assert "submitted" in trial(seed, list(CHIPS), branches=True)
