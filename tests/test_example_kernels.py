"""The kernels of examples/kernels give what numpy gives, also where tiles do not divide sizes."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.targets import cpu

KERNELS = Path(__file__).parents[1] / "examples" / "kernels"

SIZES = {
    "conv3x3": ((32, 14), (20, 17), (7, 5)),
    "copy_array": ((16, 64), (9, 67)),
    "gemm": ((32, 128, 16), (37, 65, 19), (3, 5, 7)),
    "layer_norm": ((16, 128), (9, 67), (3, 5)),
    "softmax": ((16, 128), (9, 67), (3, 5)),
    "transpose": ((256, 384), (144, 300), (130, 67), (3, 5)),
}


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(KERNELS))


@pytest.mark.parametrize(
    "name, sizes", [(name, sizes) for name, all_ in SIZES.items() for sizes in all_]
)
def test_a_kernel_gives_what_numpy_gives(name, sizes):
    case = importlib.import_module(name).case(*sizes)
    case.check()
    assert case.flops or case.bytes


@pytest.mark.parametrize("threads", [1, 2])
def test_the_schedule_of_gemm_is_checked(threads):
    gemm, target = importlib.import_module("gemm"), cpu.host(threads=threads)
    s = gemm.schedule(gemm.gemm.bind(M=256, N=128, K=3), target)
    s.check(target=target)


@pytest.mark.parametrize("name", ["conv3x3", "gemm"])
def test_a_kernel_runs_on_two_cores(name):
    importlib.import_module(name).case(*SIZES[name][0], cores=2).check()


def test_every_kernel_is_here():
    found = {path.stem for path in KERNELS.glob("*.py")} - {
        "common",
        "gemm_int8",
    }  # tested in tests/codegen
    assert found == set(SIZES)


def test_a_kernel_is_a_script():
    command = [sys.executable, str(KERNELS / "softmax.py"), "16", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("def softmax(X: f32[16, 64], Y: out(f32[16, 64])):")
    assert done.stdout.rstrip().endswith("GB/s")
