"""The zoo's networks in int8, as pairs of QuantizeLinear and DequantizeLinear (QDQ).

    python benchmarks/quantized_models.py resnet18 --activations u8 -o resnet18-u8.onnx

onnxruntime's own quantizer makes them: batch normalizations are folded, weights are i8 with a scale
for each output channel, activations u8 or i8 with one scale and zero point, from the ranges that
random inputs give. What is compared is arithmetic, not accuracy.
"""

import argparse
import logging
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from breadth_networks import BREADTH
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from zoo import ZOO, sample_inputs
from zoo_light import NAMES as LIGHT_NAMES

Arrays = dict[str, np.ndarray]

ACTIVATIONS = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
SAMPLES = 2  # random inputs that ranges are taken from
BUILDERS = {**ZOO, **BREADTH}
# What the quantizer makes no valid model of: of opsets without scales for each channel, refused by
# onnxruntime itself, with scales that are NaN.
LEFT_OUT = (*LIGHT_NAMES, "conformer", "mamba")


class _Samples(CalibrationDataReader):
    """Inputs, one after another."""

    def __init__(self, samples: Iterable[Arrays]) -> None:
        self._left = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:  # the quantizer's name for it
        """The next input; None at the end."""
        return next(self._left, None)


def quantized(name: str, activations: str, *, seed: int = 0) -> onnx.ModelProto:
    """A network of the zoo or of the breadth list with int8 contractions."""
    model = BUILDERS[name](seed=seed)
    samples = [sample_inputs(model, seed + k) for k in range(SAMPLES)]
    return quantize_model(model, activations, samples)


def models() -> dict[str, Callable[[], onnx.ModelProto]]:
    """Every network with activations of both kinds."""
    return {
        f"{name} {kind}": partial(quantized, name, kind)
        for name in BUILDERS
        for kind in ACTIVATIONS
        if name not in LEFT_OUT
    }


def quantize_model(
    model: onnx.ModelProto, activations: str, samples: Iterable[Arrays]
) -> onnx.ModelProto:
    """Any float model with int8 contractions; `activations` is u8 or s8, with ranges from samples
    of the inputs."""
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        floats, folded, made = (Path(folder) / f"{n}.onnx" for n in ("floats", "folded", "made"))
        onnx.save(model, floats)
        quant_pre_process(str(floats), str(folded), skip_symbolic_shape=True)
        quantize_static(
            str(folded),
            str(made),
            _Samples(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=ACTIVATIONS[activations],
            weight_type=QuantType.QInt8,
        )
        return onnx.load(made)


def main() -> None:
    """Write one network to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("name", choices=list(BUILDERS))
    parser.add_argument("--activations", choices=list(ACTIVATIONS), default="u8")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    onnx.save(quantized(options.name, options.activations), options.output)


if __name__ == "__main__":
    main()
