"""Pages of models on other devices: a kind of the caller's, two processors, names that pages use
themselves; and of calls in which nothing happens."""

import numpy as np
from onnx import TensorProto, helper
from pages import Page, is_alone
from small_models import double
from stack_machine.backend import stack_machine

import tilewright
from tilewright.options import Options
from tilewright.report.facts import gather
from tilewright.report.page import page

KEPT = Options(cache=False)


def chain():
    """y = tanh(softmax(x)), with nodes called first and second."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["h"], "first"),
        helper.make_node("Softmax", ["h"], ["y"], "second", axis=0),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 3)) for n in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def shown(module, limits, *inputs):
    """The report of a model, and its page taken apart."""
    report = gather(module.profile(*inputs, repeat=1), limits)
    found = Page(page(report))
    is_alone(found)
    return report, found


def test_a_kind_of_device_of_the_callers(limits):
    target = {"mine": stack_machine(), "host": "host"}
    module = tilewright.compile(chain(), target=target, options=KEPT)
    report, found = shown(module, limits, np.ones((2, 3), np.float32))
    assert report.devices[-1] == "mine"
    assert any(i.device == "mine" and i.cycles for i in report.items)
    assert not report.simulated
    assert "simulat" not in " ".join(found.words)
    assert [row["label"] for row in found.data["rows"]][-1] == "mine"


def test_a_device_may_be_called_as_others_are(limits):
    target = {"host": stack_machine(), "copies": "host"}
    options = Options(cache=False, pins={"first": "copies"})
    module = tilewright.compile(chain(), target=target, options=options)
    report, found = shown(module, limits, np.ones((2, 3), np.float32))
    assert report.devices == ("copies", "host")
    assert [row["label"] for row in found.data["rows"]] == ["copies", "copies", "host"]
    by_title = {i.nodes: i.device for i in report.items if i.nodes}
    assert by_title == {("first",): "copies", ("second",): "host"}


def test_a_device_that_is_called_host_and_does_all(limits):
    module = tilewright.compile(
        chain(), target={"host": stack_machine(), "cpu": "host"}, options=KEPT
    )
    report, _ = shown(module, limits, np.ones((2, 3), np.float32))
    assert report.devices[-1] == "host"
    assert len(set(report.devices)) == len(report.devices)


def test_two_processors(limits):
    options = Options(cache=False, assign={"second": "other"})
    target = {"host": "host", "other": "host"}
    module = tilewright.compile(chain(), target=target, options=options)
    report, found = shown(module, limits, np.ones((2, 3), np.float32))
    assert report.devices == ("host", "other")
    assert {i.device for i in report.items} == {"host", "other"}
    assert len(found.data["rows"]) == 2


def test_no_elements_and_no_steps(limits):
    module = tilewright.compile(double(), target="host", options=KEPT)
    report, found = shown(module, limits, np.ones((0, 3), np.float32))
    (item,) = found.data["items"]
    assert item["operations"] == item["bytes"] == 0
    assert report.roofs
    assert not [c for c in found.of("circle") if "data-item" in c]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 3)) for n in "xy"]
    constant = helper.make_node("Constant", [], ["y"], value_floats=[1.0, 2.0])
    ends[1] = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))
    graph = helper.make_graph([constant], "constant", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    module = tilewright.compile(model, target="host", options=KEPT)
    report, found = shown(module, limits, np.ones((2, 3), np.float32))
    assert {i.kind for i in report.items} <= {"copy"}
