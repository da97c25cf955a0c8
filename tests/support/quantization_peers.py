"""Quantised models in another runtime, where it is installed, and how far results may be apart."""

import importlib.util

import numpy as np
import onnx
import pytest

HAS_PEER = importlib.util.find_spec("onnxruntime") is not None


def steps_of(model: onnx.ModelProto) -> dict[str, float | None]:
    """The scale of each output; None of those that are floats."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    makers = {o: n for n in model.graph.node for o in n.output}
    found = {}
    for o in model.graph.output:
        maker = makers.get(o.name)
        is_pair = maker is not None and maker.op_type == "DequantizeLinear"
        found[o.name] = float(constants[maker.input[1]]) if is_pair else None
    return found


def in_peer(model: onnx.ModelProto, samples: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    return runtime.InferenceSession(model.SerializeToString(), options).run(None, samples)
