"""Bad input to the command as a process, and processes that are stopped: no traceback, and nothing
left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest
from bad_models import model, node, tensor, write_bad_models


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_bad_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments):
    return [sys.executable, "-m", "tilewright", *arguments]


def test_no_traceback_from_a_process(folder):
    for arguments in (
        ["run", "cyclic.onnx"],
        ["explain", "truncated.onnx"],
        ["bench", "nowhere.tw"],
    ):
        done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[-2 if "hint" in done.stderr else -1].startswith("error: ")
        assert "Traceback" not in done.stderr


SLOW_SAVE = """
import os, sys, time
from tilewright.runtime import atomic
sync = os.fsync
def slow(handle):
    sync(handle)
    print("saving", flush=True)
    time.sleep(60)
atomic.os.fsync = slow
from tilewright.cli.main import main
sys.argv = ["tilewright", "compile", "good.onnx", "-o", "new.tw"]
main()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_killed_while_it_saves_leaves_nothing(folder, how):
    before = sorted(os.listdir("."))
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_SAVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"saving\n"
        process.send_signal(how)
        _, err = process.communicate(timeout=30)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert b"Traceback" not in err
    assert sorted(os.listdir(".")) == before


def test_control_c_while_compiling(folder):
    """Kernels that have not begun are not waited for."""
    names = [f"v{i}" for i in range(300)]
    nodes = [
        node("Softmax", a, b, b, axis=-1 - i % 2)
        for i, (a, b) in enumerate(zip(["x", *names], names, strict=False))
    ]
    many = model(nodes, [tensor("x", (64, 64, 4))], [tensor(names[-1], (64, 64, 4))])
    (folder / "many.onnx").write_bytes(many)
    with subprocess.Popen(
        command("run", "many.onnx"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stderr.readline()  # the target: it has begun
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        start = time.perf_counter()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert time.perf_counter() - start < 20
