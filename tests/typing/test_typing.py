"""The public types, checked by mypy and pyright in a program of a user's (user.py)."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
USER = Path(__file__).with_name("user.py")
WRONG = """
import tilewright
number: int = tilewright.compile("model.onnx")
tilewright.compile("model.onnx", target=3)
tilewright.compile("model.onnx", until="graph").run({})
tilewright.load("model.tw").profiel(1)
tilewright.Options(dims=4)
tilewright.compile("model.onnx", until="llvm")["kernel"].lower()
"""
WRONG_LINES = {
    3: "assignment",
    4: "call-overload",
    5: "attr-defined",
    6: "attr-defined",
    7: "arg-type",
}


def mypy(*paths):
    cache = PROJECT / "build" / "mypy"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--no-error-summary"]
    command += ["--cache-dir", cache, *paths]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert not found.stderr
    return found.stdout


def test_mypy_agrees():
    assert mypy(USER) == ""


def test_mypy_finds_what_is_wrong(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    found = re.findall(
        r"wrong\.py:(\d+): error: .*\[([\w-]+)\]$", mypy(tmp_path / "wrong.py"), re.M
    )
    assert {int(line): code for line, code in found} == WRONG_LINES


PYRIGHT = shutil.which("pyright", path=Path(sys.executable).parent) or shutil.which("pyright")


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed: `make types` installs it")
def test_pyright_agrees():
    """Strictly: the file says so in its first line."""
    command = [PYRIGHT, "--pythonpath", sys.executable, USER]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert found.stdout.splitlines()[-1] == "0 errors, 0 warnings, 0 informations", found.stdout


def test_the_program_runs(capsys):
    runpy.run_path(str(USER), run_name="__main__")
    assert capsys.readouterr().out == (
        "input 'image' has 0 dimensions, shape []; the model takes f32[batch, 1, 8, 8]\n"
    )
