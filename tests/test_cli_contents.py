"""The command line with models whose shapes depend on what inputs hold, and checked calls."""

import json

import numpy as np
import onnx
import pytest
from command_line import failure, run_commands  # noqa: F401  (a fixture: `tilewright`)
from onnx import TensorProto, helper, numpy_helper

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4) / 10


@pytest.fixture
def lookup(tmp_path, monkeypatch):
    """y = reshape(table[i], shape)."""
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["rows"], name="emb"),
        helper.make_node("Reshape", ["rows", "shape"], ["y"], name="turn"),
    ]
    infos = [
        helper.make_tensor_value_info("i", TensorProto.INT64, (2,)),
        helper.make_tensor_value_info("shape", TensorProto.INT64, (2,)),
    ]
    results = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(
        nodes, "lookup", infos, results, [numpy_helper.from_array(TABLE, "table")]
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "lookup.onnx")
    np.save("shape.npy", np.array([4, 2]))
    np.save("i.npy", np.array([0, 2]))
    np.save("bad.npy", np.array([0, 3]))


def test_what_an_input_holds(tilewright, lookup):
    given = ("--input", "i=i.npy")
    code, out, _ = tilewright("run", "lookup.onnx", *given, "--input", "shape=shape.npy", "--check")
    assert code == 0
    assert "f32[4, 2]" in out
    fixed = ("--value", "shape=shape.npy")
    assert tilewright("run", "lookup.onnx", *given, *fixed, "--check")[0] == 0
    assert tilewright("compile", "lookup.onnx", *fixed, "-o", "m.tw")[0] == 0
    shapes = json.loads(tilewright("run", "m.tw", *given, "--json")[1])["outputs"]
    assert [r["shape"] for r in shapes] == [[4, 2]]
    assert failure(tilewright("compile", "lookup.onnx", "-o", "n.tw")) == (
        "error: 'lookup' cannot be saved to n.tw as it is: its shapes depend on the contents of"
        " 'shape', and a file has one program\n"
        "  hint: fix what it depends on: --value shape=FILE.npy\n"
    )
    assert failure(tilewright("dump", "lookup.onnx", "--stage", "graph")).endswith(
        "\n  hint: fix what 'shape' holds with values= (--value shape=FILE.npy), or fold constants"
        " when exporting the model\n"
    )
    assert failure(tilewright("run", "lookup.onnx", "--value", "shape")) == (
        "error: --value shape: not NAME=FILE\n  hint: for example --value k=k.npy\n"
    )


def test_random_numbers_are_no_shape(tilewright, lookup):
    for command in ("run", "explain", "bench"):
        assert failure(tilewright(command, "lookup.onnx", "--input", "i=i.npy")) == (
            "error: operator Reshape (node 'turn', opset 18): reshape: [2, 4] has 8 elements,"
            " [1, 1] has 1\n"
            "  hint: the model's shapes depend on its inputs, and 'shape' was random, [1, 1]: give"
            " --input shape=FILE.npy\n"
        )


def test_a_model_for_certain_contents_is_explained_and_timed(tilewright, lookup):
    given = ("--input", "i=i.npy", "--input", "shape=shape.npy", "--json")
    steps = json.loads(tilewright("explain", "lookup.onnx", *given, "--repeat", "2")[1])["steps"]
    assert [s["nodes"] for s in steps] == [["emb"]]
    found = json.loads(tilewright("bench", "lookup.onnx", *given, "--seconds", "0")[1])
    assert found["calls"] >= 5


def test_certain_contents_that_fit_certain_sizes_only(tilewright, lookup):
    info = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n",)),
        helper.make_tensor_value_info("shape", TensorProto.INT64, (2,)),
    ]
    turn = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="turn")]
    graph = helper.make_graph(turn, "flat", info, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "flat.onnx")
    assert failure(tilewright("compile", "flat.onnx")).splitlines()[1] == (
        "  hint: fix what it depends on: --value shape=FILE.npy; add --dim n=NUMBER if it fits"
        " certain sizes only"
    )
    fixed = ("--value", "shape=shape.npy")
    assert failure(tilewright("compile", "flat.onnx", *fixed)).splitlines()[1] == (
        "  hint: they fit for certain sizes only: fix n with dims= (--dim n=NUMBER)"
    )
    assert tilewright("compile", "flat.onnx", *fixed, "--dim", "n=8")[0] == 0


def test_checked_calls(tilewright, lookup):
    given = ("--input", "i=bad.npy", "--value", "shape=shape.npy")
    assert tilewright("run", "lookup.onnx", *given)[0] == 0
    assert failure(tilewright("run", "lookup.onnx", *given, "--checks")) == (
        "error: node 'emb' (gather): i[1] is 3, and the axis that it points along has 3 elements:"
        " -3 … 2 are allowed\n"
        "  while running guard on the host for emb\n"
        "  hint: without checks=True the nearest element would have been taken\n"
    )
