"""How much of the project two short walks go through: files, and calls of Python functions.

    python tools/count_calls.py           a table
    python tools/count_calls.py --json    the same, by walk

One walk takes a model of a convolution and a ReLU to assembly, the other a matrix product to the
stream of a chip. Calls are counted by sys.setprofile in functions of src/tilewright alone, on all
threads, after everything is imported; what a first run leaves in caches is not there: each walk
runs in a process of its own. The counts are the same on every run of the same code.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import tilewright
from tilewright import cast, grid, i8, i32, kernel, local, reduce
from tilewright.chip import build_chip
from tilewright.compiler import compile as compile_model
from tilewright.targets.vta import vta

PACKAGE = str(Path(tilewright.__file__).parent)
SIZE = 64


def convolution() -> onnx.ModelProto:
    """Conv (16 to 16 channels, 3x3, padding 1) and ReLU on 1x16x14x14."""
    weights = np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 14, 14]) for name in "xy"
    )
    graph = helper.make_graph(nodes, "conv", [x], [y], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@kernel
def product(A: i8[SIZE, SIZE], B: i8[SIZE, SIZE], C: i8[SIZE, SIZE]):
    acc = local(i32[SIZE, SIZE])
    for i, j in grid(SIZE, SIZE):
        acc[i, j] = 0
        for k in reduce(SIZE):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(SIZE, SIZE):
        C[i, j] = cast(i8, min(max(acc[i, j] >> 8, -128), 127))


def to_assembly() -> None:
    compile_model(convolution(), target="avx2", until="asm")


def to_stream() -> None:
    build_chip(product.kernel, vta())


WALKS = {"Conv + ReLU to assembly": to_assembly, f"{SIZE}³ GEMM to a VTA stream": to_stream}


def count(walk: str) -> dict[str, Any]:
    """Files and calls of one walk in this process; the files with most calls."""
    calls: Counter[str] = Counter()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_filename] += 1

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        WALKS[walk]()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    most = {str(Path(f).relative_to(PACKAGE)): n for f, n in calls.most_common(8)}
    return {"walk": walk, "files": len(calls), "calls": calls.total(), "most": most}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--walk", choices=list(WALKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk is not None:
        print(json.dumps(count(options.walk)))
        return
    command = [sys.executable, __file__, "--walk"]
    runs = [subprocess.run([*command, w], check=True, capture_output=True) for w in WALKS]
    found = [json.loads(run.stdout) for run in runs]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    table = Table("walk", "files", "calls", "most of them in")
    for row in found:
        most = ", ".join(f"{f} {n:,}" for f, n in list(row["most"].items())[:4])
        table.add_row(row["walk"], str(row["files"]), f"{row['calls']:,}", most)
    Console().print(table)


if __name__ == "__main__":
    main()
