"""Random quantised networks on chips beside the host, against the interpreter.

    python tools/fuzz_devices.py --count 100 --seed 0
    python tools/fuzz_devices.py --chips vta,dsp --count 20
    python tools/fuzz_devices.py --branches --count 100

Each network is drawn (convolutions of many sizes, strides, paddings, dilations and groups, residual
additions, pooling, linear layers; hard swish and channels times gates where halves go up, so that
nothing inside is left in floats; with --branches concatenations), quantised, and compiled for one
chip and the host in one of the two modes of rounding, with neighbouring kernels as one stream or
apart, and some nodes pinned to a device where it can run them. Results must be those of the
interpreter of the imported model, to the bit, also after saving and loading. Exit code 1: a
difference, or an exception that is no refusal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.errors import CompileError
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.options import Options
from tilewright.program.host_program import Submit
from tilewright.runtime.module import Module
from tilewright.targets.chips import CHIPS

LAYERS = 5  # at most
CHANNELS = (1, 3, 5, 8, 16, 17, 24, 32)
SIZES = (1, 4, 5, 7, 8, 12, 14, 17)


class Network:
    """A random float network, as an ONNX model; with `branches`, some that are put side by side."""

    def __init__(self, random: np.random.Generator, branches: bool = False) -> None:
        self.random, self.branches = random, branches
        self.rounding = self.pick(("half_up", "half_up", "half_even"))
        self.has_gates = self.rounding == "half_up"
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = (1, self.pick(CHANNELS), self.pick(SIZES), self.pick(SIZES))
        self.input = self.shape

    def pick(self, options):
        return options[int(self.random.integers(len(options)))]

    def model(self) -> onnx.ModelProto:
        value = "x"
        for _ in range(int(self.random.integers(1, LAYERS + 1))):
            layers = [self.conv, self.conv, self.conv, self.pool, self.residual]
            # Before the first convolution gates would be products of floats, which end otherwise.
            layers += [self.squeezed] if self.has_gates and self.weights else []
            layers += [self.joined, self.dense] * 2 if self.branches else []
            value = self.pick(layers)(value)
        pools_alone = not self.weights  # nothing that could be quantised
        kinds = [n.op_type for n in self.nodes if n.op_type not in ("MaxPool", "Add")]
        gated = bool(kinds) and kinds[-1] in ("HardSwish", "HardSigmoid", "Mul")  # be it pooled
        if self.random.random() < 0.5 or pools_alone or gated:
            value = self.linear(value)
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self.weights,
        )
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def emit(self, kind: str, inputs: list[str], **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        node = helper.make_node(kind, inputs, [name], name=f"{kind}_{name}", **attributes)
        self.nodes.append(node)
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        array = self.random.normal(size=shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, value: str) -> str:
        n, c, h, w = self.shape
        kernel = [self.pick((1, 1, 3, 3, 5)), self.pick((1, 3, 3))]
        strides = [self.pick((1, 1, 2))] * 2
        dilation = self.pick((1, 1, 1, 2))
        pads = [int(self.random.integers(0, k)) for k in (*kernel, *kernel)]
        sizes = [
            (s + pads[i] + pads[i + 2] - dilation * (kernel[i] - 1) - 1) // strides[i] + 1
            for i, s in enumerate((h, w))
        ]
        if min(sizes) < 1:
            return self.conv(value)
        groups = self.pick([g for g in (1, 1, 1, 1, 2, 4, c) if c % g == 0])
        out = self.pick([o for o in (*CHANNELS, c) if o % groups == 0] or [c])
        inputs = [value, self.weight(out, c // groups, *kernel)]
        if self.random.random() < 0.7:
            inputs.append(self.weight(out))
        self.shape = (n, out, *sizes)
        made = self.emit(
            "Conv", inputs, kernel_shape=kernel, strides=strides, pads=pads, group=groups,
            dilations=[dilation] * 2,
        )  # fmt: skip
        gates = ("HardSwish", "HardSwish", "HardSigmoid") if self.has_gates else ("Relu",)
        kind = self.pick(("Relu", "Relu", "Relu", "", *gates))
        return self.emit(kind, [made]) if kind else made

    def squeezed(self, value: str) -> str:
        """Channels times gates, of what they are on average (squeeze and excite)."""
        c, reduced = self.shape[1], self.pick((1, 4, 8))
        found = self.emit("GlobalAveragePool", [value])
        found = self.emit("Conv", [found, self.weight(reduced, c, 1, 1), self.weight(reduced)])
        found = self.emit("Relu", [found])
        found = self.emit("Conv", [found, self.weight(c, reduced, 1, 1), self.weight(c)])
        return self.emit("Mul", [value, self.emit("HardSigmoid", [found])])

    def pool(self, value: str) -> str:
        n, c, h, w = self.shape
        if min(h, w) < 2:
            return self.conv(value)
        if self.random.random() < 0.2:
            self.shape = (n, c, 1, 1)
            return self.emit("GlobalAveragePool", [value])
        self.shape = (n, c, h // 2, w // 2)
        kind = self.pick(("MaxPool", "MaxPool", "AveragePool"))
        return self.emit(kind, [value], kernel_shape=[2, 2], strides=[2, 2])

    def residual(self, value: str) -> str:
        c = self.shape[1]
        weight = self.weight(c, c, 3, 3)
        made = self.emit("Conv", [value, weight], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        return self.emit("Relu", [self.emit("Add", [made, value])])

    def branch(self, value: str) -> str:
        """A few channels more of a picture of the same size."""
        n, c, h, w = self.shape
        size, out = self.pick((1, 1, 3)), self.pick((16, 16, 32, *CHANNELS))
        if self.random.random() < 0.2:
            pads = {"kernel_shape": [3, 3], "pads": [1] * 4}
            value = self.emit("MaxPool", [value], **pads)
        inputs = [value, self.weight(out, c, size, size), self.weight(out)]
        made = self.emit("Conv", inputs, kernel_shape=[size] * 2, pads=[size // 2] * 4)
        self.shape = (n, out, h, w)
        return self.emit("Relu", [made]) if self.random.random() < 0.7 else made

    def joined(self, value: str) -> str:
        """Branches side by side; perhaps with what they are made of."""
        before = self.shape
        parts = [value] if self.random.random() < 0.3 else []
        count = before[1] * len(parts)
        for _ in range(self.pick((1, 2, 3)) if parts else self.pick((2, 3))):
            self.shape = before
            parts.append(self.branch(value))
            count += self.shape[1]
        self.shape = (before[0], count, *before[2:])
        order = self.random.permutation(len(parts))
        return self.emit("Concat", [parts[k] for k in order], axis=1)

    def dense(self, value: str) -> str:
        """Layers that read all before them, as each is put beside these."""
        parts, total = [value], self.shape
        for _ in range(self.pick((1, 2, 3))):
            parts.append(self.branch(value))
            total = (*total[:1], total[1] + self.shape[1], *total[2:])
            self.shape = total
            value = self.emit("Concat", parts, axis=1)
        return value

    def linear(self, value: str) -> str:
        flat = self.emit("Flatten", [value])
        out = self.pick((1, 2, 10, 16, 33))
        size = int(np.prod(self.shape[1:]))
        return self.emit("Gemm", [flat, self.weight(size, out), self.weight(out)])


def compiled(model: onnx.ModelProto, target: dict, options: Options) -> Module:
    """The model; without pins that cannot be."""
    try:
        return tilewright.compile(model, target=target, options=options)
    except CompileError as error:
        if "pinned" not in error.what:
            raise
        return tilewright.compile(model, target=target, options=replace(options, pins={}))


def trial(seed: int, chips: list[str], branches: bool = False) -> str:
    """What came of one network: how many kernels its chip ran."""
    random = np.random.default_rng(seed)
    network = Network(random, branches)
    model = network.model()
    given = {"x": random.normal(size=(1, *network.input[1:])).astype(np.float32)}
    quantised = tilewright.quantize(model, given, scheme="pow2").model
    rounding, chip = network.rounding, network.pick(chips)
    graph = import_model(quantised.SerializeToString(), half_up=rounding == "half_up")
    (wanted,) = evaluate_graph(graph, [given["x"]])
    named = [n.name for n in quantised.graph.node if n.name]
    pins = {
        network.pick(named): network.pick(("host", "npu")) for _ in range(network.pick((0, 1, 3)))
    }
    options = Options(
        rounding=rounding, verify=True, pins=pins, subgraphs=network.pick((True, True, False))
    )
    module = compiled(quantised, {"npu": CHIPS[chip](), "host": "host"}, options)
    if not np.array_equal(module(given["x"]), wanted):
        raise AssertionError(f"{chip}, {rounding}: not as interpreted")
    with tempfile.TemporaryDirectory() as folder:
        module.save(Path(folder) / "m.tw")
        with tilewright.load(Path(folder) / "m.tw") as loaded:
            if not np.array_equal(loaded(given["x"]), wanted):
                raise AssertionError(f"{chip}, {rounding}: not as interpreted once it is loaded")
    given = sum(isinstance(s, Submit) for s in module.program.host.steps)
    products = sum(n.op_type in ("Conv", "Gemm") for n in model.graph.node)
    return f"{chip}, {rounding}: {given} submitted, {products} products"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--branches", action="store_true", help="concatenations as well")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        start = time.perf_counter()
        try:
            told = trial(seed, options.chips.split(","), options.branches)
        except Exception:  # noqa: BLE001 - whatever it is, it is to be seen
            failed += 1
            told = f"FAILED\n{traceback.format_exc()}"
        print(f"{seed}: {told} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{options.count} networks, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
