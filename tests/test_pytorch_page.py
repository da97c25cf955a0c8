"""docs/pytorch.md: its blocks, run one after another. Without PyTorch the first one's file is made
by hand: the same network, as PyTorch exports it."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

PAGE = (Path(__file__).parents[1] / "docs" / "pytorch.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
HAS_TORCH = importlib.util.find_spec("torch") is not None


def conv_reference(x, w, b):
    """3x3, with a border of one, by its definition."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    h, width = x.shape[2:]
    total = np.zeros((x.shape[0], w.shape[0], h, width), np.float64)
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + h, j : j + width]
            total += np.einsum("nchw,oc->nohw", part, w[:, :, i, j])
    return total + b[None, :, None, None]


def stand_in():
    """model.onnx, and what the page's first block leaves behind."""
    rng = np.random.default_rng(0)
    w, linear = (rng.standard_normal(s).astype(np.float32) for s in ((8, 3, 3, 3), (10, 8)))
    b, scale, shift, mean, c = (rng.standard_normal(n).astype(np.float32) for n in (8, 8, 8, 8, 10))
    variance = rng.uniform(0.5, 2, 8).astype(np.float32)
    weights = {"w": w, "b": b, "scale": scale, "shift": shift, "mean": mean}
    weights |= {"variance": variance, "linear": linear, "c": c}
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["p"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["p", *list(weights)[2:6]], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "linear", "c"], ["scores"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ("batch", 3, 32, 32))],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("batch", 10))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "model.onnx")
    image = rng.standard_normal((2, 3, 32, 32)).astype(np.float32)
    normal = conv_reference(image, w, b) - mean[None, :, None, None]
    normal = normal / np.sqrt(variance + 1e-5)[None, :, None, None]
    r = np.maximum(normal * scale[None, :, None, None] + shift[None, :, None, None], 0)
    return {"image": image, "expected": (r.mean((2, 3)) @ linear.T + c).astype(np.float32)}


@pytest.mark.filterwarnings("default")  # PyTorch's exporter has some
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export, *rest = BLOCKS
    assert "torch.onnx.export(" in export
    assert len(rest) == 2
    names = {} if HAS_TORCH else stand_in()
    for block in [export, *rest] if HAS_TORCH else rest:
        exec(compile(block, "docs/pytorch.md", "exec"), names)
    out = capsys.readouterr().out
    assert "image: f32[batch, 3, 32, 32] -> scores: f32[batch, 10]; for host (" in out
    assert "all steps" in out
    assert (tmp_path / "model.tw").exists()
    assert (tmp_path / "profile.json").exists()


def test_it_is_for_all_batch_sizes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = stand_in()
    exec(compile(BLOCKS[1], "docs/pytorch.md", "exec"), names)
    for n in (1, 5):
        assert names["module"](np.zeros((n, 3, 32, 32), np.float32)).shape == (n, 10)


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_tensors_are_taken_as_they_are(tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    names = stand_in()
    exec(compile(BLOCKS[1], "docs/pytorch.md", "exec"), names)
    found = names["module"](torch.from_numpy(names["image"]))
    np.testing.assert_array_equal(found, names["scores"])
