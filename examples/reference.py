"""Another implementation to compare with: ONNX Runtime where it is installed, else the reference
evaluator of the onnx package."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import onnx.reference


class Reference:
    """One model in the other implementation; `name` says which."""

    def __init__(self, model: Path | onnx.ModelProto) -> None:
        self.model = onnx.load(model) if isinstance(model, Path) else model
        self.outside = importlib.util.find_spec("onnxruntime") is not None
        self.name = f"onnx {onnx.__version__} reference"

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """The first output."""
        if not self.outside:
            return onnx.reference.ReferenceEvaluator(self.model).run(None, inputs)[0]
        import onnxruntime

        self.name = f"onnxruntime {onnxruntime.__version__}"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        session = onnxruntime.InferenceSession(
            self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, inputs)[0]
