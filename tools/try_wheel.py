"""Tries a wheel where nothing of the project is, and no compiler: installs it into a virtual
environment of its own, then imports it, compiles a model, runs it, saves and loads it.

    python tools/try_wheel.py dist/tilewright-….whl
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
TRIAL = """
import shutil
import numpy as np
import tilewright

compilers = [name for name in ("cc", "gcc", "clang", "c++") if shutil.which(name)]
assert not compilers, compilers
module = tilewright.compile("digits.onnx")
print(module)
with np.load("held_out.npz") as data:
    images, labels = data["images"], data["labels"]
scores = module(images)
print(f"{np.mean(scores.argmax(axis=1) == labels):.1%} of {len(labels)} digits are read right")
module.save("digits.tw")
with tilewright.load("digits.tw") as again:
    assert np.array_equal(again(images), scores)
print(f"saved and loaded by tilewright {tilewright.__version__} in {tilewright.__file__}")
"""


def main() -> int:
    (wheel,) = (Path(name).resolve() for name in sys.argv[1:])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("digits.onnx", "held_out.npz"):
            shutil.copy(DIGITS / file, folder)
        print(f"trial: a new environment in {folder}, with {wheel.name}")
        venv.create(folder / "env", with_pip=True)
        programs = folder / "env" / "bin"
        quiet = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
        _run([programs / "python", "-m", "pip", "install", *quiet, wheel], folder, os.environ)
        alone = {"PATH": str(programs), "HOME": name, "LANG": "C.UTF-8"}  # no compiler on this path
        _run([programs / "python", "-I", "-c", TRIAL], folder, alone)
        _run([programs / "tilewright", "run", "digits.onnx", "--dim", "batch=2"], folder, alone)
    print("trial: passed")
    return 0


def _run(command: list[str | Path], folder: Path, environment: os._Environ[str] | dict) -> None:
    subprocess.run(command, cwd=folder, env=dict(environment), check=True)


if __name__ == "__main__":
    sys.exit(main())
