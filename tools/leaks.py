"""Whether compiling, loading and calling models keeps memory: a thousand times each.

    python tools/leaks.py               exit code 1 if the process grew by more than 20 MB in any
    python tools/leaks.py --count 200

Models differ from one compilation to the next: in sizes, operators and weights, so that nothing
that is kept by its content hides. Every tenth is a network of three layers, every other one kernel
or two. What is measured is the process's resident memory after the first tenth and at the end.
"""

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.runtime.module import Module
from tilewright.targets import cpu

MOST = 20.0  # MB
OPERATORS = ("Relu", "Tanh", "Sigmoid", "Exp", "Erf", "Softmax", "Neg", "LogSoftmax")


def make_model(number: int) -> onnx.ModelProto:
    """One of many small models: no two of the first thousand are alike."""
    random = np.random.default_rng(number)
    layers = 3 if number % 10 == 0 else 1
    sizes = [int(n) for n in random.integers(3, 70, layers + 1)]
    nodes, weights, value = [], [], "x"
    for i in range(layers):
        weight = random.standard_normal((sizes[i], sizes[i + 1]), np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]))
        value = f"v{i}"
        kind = OPERATORS[(number + i) % len(OPERATORS)]
        nodes.append(helper.make_node(kind, [f"m{i}"], [value]))
    graph = helper.make_graph(
        nodes,
        f"model{number}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", sizes[0]])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)],
        weights,
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def call(module: Module, rows: int) -> None:
    module(np.ones((rows, module.inputs[0].shape[1]), np.float32))


def compile_and_call(number: int) -> None:
    """Every other module is closed, the others are left to the garbage collector. Nothing comes
    from the cache of an earlier run, which would leave the compiler out."""
    options = tilewright.Options(cache=False)
    module = tilewright.compile(make_model(number), target=cpu.host(), options=options)
    call(module, 2)
    if number % 2:
        module.close()


def load_and_call(path: Path, number: int) -> None:
    with tilewright.load(path) as module:
        call(module, 1 + number % 50)


def resident() -> float:
    """Megabytes."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1000


def growth(what: str, count: int, once: Callable[[int], object]) -> float:
    """Megabytes between the first tenth and the end."""
    warm = max(1, count // 10)
    for number in range(warm):
        once(number)
    before = resident()
    for number in range(warm, warm + count):
        once(number)
    after = resident()
    print(f"{what:24} {count:7,} times: {before:6.1f} -> {after:6.1f} MB", flush=True)
    return after - before


def main() -> int:
    """Measures; 1 if memory grew too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=1000)
    count = parser.parse_args().count
    found = [growth("compile and call", count, compile_and_call)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tw"
        module = tilewright.compile(make_model(0), target=cpu.host())
        module.save(path)
        found.append(growth("load and call", count, lambda n: load_and_call(path, n)))
        found.append(growth("save", count, lambda _: module.save(path)))
        # more shapes than are remembered
        found.append(
            growth("call, with many shapes", 100 * count, lambda n: call(module, 1 + n % 999))
        )
    return int(max(found) > MOST)


if __name__ == "__main__":
    sys.exit(main())
