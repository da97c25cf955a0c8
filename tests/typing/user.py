# pyright: strict
"""A program of a user's, as type checkers see it: `assert_type` says what each call gives back.

tests/typing/test_typing.py runs mypy on this file, and pyright where it is installed. It also runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, no_type_check

import numpy as np
import onnx

import tilewright
from tilewright import (
    InputError,
    KernelFunction,
    Module,
    Options,
    Profile,
    Recorder,
    StepTime,
    Target,
    TilewrightError,
    f32,
    grid,
    reduce,
)
from tilewright.ir.graph import Graph
from tilewright.ir.loop import Kernel
from tilewright.ir.tensor import TensorProgram
from tilewright.program.host_program import HostProgram
from tilewright.schedule.schedule import Schedule
from tilewright.targets import cpu

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:  # only type checkers need it

    def assert_type(value, kind):
        return value


MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def compile_and_run(folder: Path) -> None:
    module = tilewright.compile(MODEL)
    assert_type(module, Module)
    x = np.zeros((2, 1, 8, 8), np.float32)
    y = module(x)
    assert_type(y, np.ndarray | tuple[np.ndarray, ...])
    named = module.run({"image": x})
    assert_type(named, dict[str, np.ndarray])
    module.save(folder / "digits.tw")
    with tilewright.load(folder / "digits.tw", threads=1) as again:
        assert_type(again, Module)
        again(image=x)


def stop_early() -> None:
    options = Options(dims={"batch": 2}, verify=True)
    recorder = Recorder()
    target = cpu.host(threads=1)
    assert_type(target, Target)
    graph = tilewright.compile(MODEL, target=target, options=options, until="graph")
    assert_type(graph, Graph)
    tilewright.compile(graph, target={"first": "host", "second": target}, recorder=recorder)
    tilewright.compile(onnx.ModelProto.FromString(MODEL.read_bytes()), until="graph")
    assert_type(tilewright.compile(MODEL, until="tensor"), dict[str, TensorProgram])
    assert_type(tilewright.compile(MODEL, until="loops"), dict[str, Kernel])
    assert_type(tilewright.compile(MODEL, until="scheduled"), dict[str, Schedule])
    assert_type(tilewright.compile(MODEL, target="avx2", until="llvm"), dict[str, str])
    assert_type(tilewright.compile(MODEL, until="host"), HostProgram)


def profile(module: Module) -> None:
    found = module.profile(np.zeros((1, 1, 8, 8), np.float32), repeat=2)
    assert_type(found, Profile)
    for step in found.steps:
        assert_type(step, StepTime)
        assert_type(step.nanoseconds, int)
        assert_type(step.operations, int | None)


def refuse(module: Module, inputs: Mapping[str, object]) -> str:
    try:
        module.run(inputs)
    except InputError as error:
        return str(error)
    except TilewrightError as error:
        return error.what
    return ""


@tilewright.kernel
@no_type_check  # arrays' shapes are no types
def gemm(A: f32[64, 64], B: f32[64, 64], C: f32[64, 64]):
    for i, j in grid(64, 64):
        C[i, j] = 0.0
        for k in reduce(64):
            C[i, j] += A[i, k] * B[k, j]


def kernels() -> None:
    kernel: KernelFunction = gemm
    s = tilewright.Schedule(kernel.bind())
    s.unroll(s.split(s.loop("i"), 16)[1])
    built = s.build(cpu.host(threads=1))
    a = np.ones((64, 64), np.float32)
    c = np.zeros((64, 64), np.float32)
    built(a, a, c)
    tilewright.build(kernel, cpu.host(threads=1))(a, a, c)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        compile_and_run(Path(name))
    stop_early()
    profile(tilewright.compile(MODEL))
    print(refuse(tilewright.compile(MODEL), {"image": 1}))
    kernels()
