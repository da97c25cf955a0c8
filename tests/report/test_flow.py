"""How values pass between steps, and how much of a memory is in use."""

import numpy as np
import onnx
from onnx import TensorProto, helper

import tilewright
from tilewright.options import Options
from tilewright.report.flow import Edge, find_edges, memory_tracks


def diamond():
    """a = x @ w; b = softmax(a); c = a reshaped, @ w; y = b + c, so that a is read twice."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Softmax", ["a"], ["b"], "soft"),
        helper.make_node("Reshape", ["a", "shape"], ["r"], "seen otherwise"),
        helper.make_node("Softmax", ["r"], ["c"], "other"),
        helper.make_node("MatMul", ["c", "v"], ["d"], "second"),
        helper.make_node("ReduceSum", ["d"], ["s"], "sum", keepdims=0),
        helper.make_node("Add", ["b", "s"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "diamond",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (16, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (16, 16))],
        [
            onnx.numpy_helper.from_array(np.ones((8, 16), np.float32), "w"),
            onnx.numpy_helper.from_array(np.ones((4, 5), np.float32), "v"),
            onnx.numpy_helper.from_array(np.array([64, 4]), "shape"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def module():
    return tilewright.compile(diamond(), target="host", options=Options(cache=False))


def test_a_value_that_is_read_through_another_slot_has_an_edge():
    program = module().program
    steps = {n: str(k) for k, s in enumerate(program.host.steps) for n in s.nodes}
    edges = {(e.source, e.target): e.bytes for e in find_edges(program, {})}
    assert edges["in:x", steps["first"]] == 16 * 8 * 4
    assert edges[steps["first"], steps["soft"]] == 16 * 16 * 4
    assert edges[steps["first"], steps["other"]] == 16 * 16 * 4
    assert edges[steps["last"], "out:y"] == 16 * 16 * 4
    made = {b for _, b in edges}
    assert made == {*steps.values(), "out:y"}


def test_memory_in_use_fits_the_plan_and_reaches_it():
    program = module().program
    (track,) = memory_tracks(program, {}, {}, "host")
    assert (track.device, track.name) == ("host", "arena")
    assert 0 < max(track.values) <= track.size
    kilo = 16 * 16 * 4
    assert max(track.values) >= 2 * kilo  # two of the values at the same time


def test_a_chip_has_its_arena_and_its_own_memories(on_chip):
    module, _ = on_chip
    from_host = [e for e in find_edges(module.program, {}) if e.source == "in:image"]
    assert from_host == [Edge("in:image", "0", "image", 256)]
    profile = module.profile(np.zeros((1, 1, 8, 8), np.float32), repeat=1)
    assert profile.program is module.program
