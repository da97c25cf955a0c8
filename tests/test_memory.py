"""Where memory is short: an error names it, and nothing ends the process."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.errors import MemoryShortage
from tilewright.runtime import pool, system
from tilewright.runtime.pool import ThreadPool
from tilewright.targets import cpu

HINT = (
    "\n  hint: run it where there is more memory, or raise the limit of the process (ulimit -v) or"
    " container"
)
MIB = 1 << 20

UNDER_A_LIMIT = """
import resource, sys
import numpy as np
import tilewright
from tilewright.targets import cpu

target = cpu.host(threads=2)
tilewright.compile  # brings the compiler's libraries, which is not what is limited here
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2]) * (1 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    module = tilewright.compile(sys.argv[1], target=target)
    y = module(np.ones((64, 64), np.float32))
    print("ran", y.shape)
except tilewright.MemoryShortage as error:
    print("refused", isinstance(error, MemoryError), str(error).count("memory") > 1)
"""


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i in range(4):
        weights.append(numpy_helper.from_array(random.random((64, 64), np.float32), f"w{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]))
        value = f"v{i}"
        kind = ("Relu", "Softmax", "Tanh", "Erf")[i]
        nodes.append(helper.make_node(kind, [f"m{i}"], [value]))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (64, 64))],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, (64, 64))],
        weights,
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "small.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("spare", [4, 16, 40, 64, 90, 128, 600])
def test_under_a_limit_it_runs_or_is_refused(file, spare):
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(file), str(spare)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ran = ["ran (64, 64)"]
    assert done.stdout.splitlines() in ([ran, ["refused True True"]] if spare < 600 else [ran])


def room(monkeypatch, count, *modules):
    for module in (system, *modules):
        monkeypatch.setattr(module, "available_memory", lambda: count, raising=False)


def refusal(what, *args, **named):
    with pytest.raises(MemoryShortage) as caught:
        what(*args, **named)
    return str(caught.value)


def test_what_the_errors_say(monkeypatch, model, file):
    target = cpu.host(threads=2)
    room(monkeypatch, 20 * MIB)
    assert refusal(tilewright.compile, file, target=target) == (
        f"reading {file} takes up to 32.2 MiB of memory, and 20.0 MiB are available{HINT}"
    )
    found = refusal(tilewright.compile, model, target=target)
    assert found.startswith("making machine code of a kernel takes up to ")
    assert found.endswith(f" MiB of memory, and 20.0 MiB are available{HINT}")
    assert refusal(ThreadPool, 5) == (
        f"starting 5 threads takes up to 40.0 MiB of memory, and 20.0 MiB are available{HINT}"
    )
    assert str(system.out_of_memory("this command")) == (
        f"there is not enough memory for this command: 20.0 MiB are available{HINT}"
    )


def test_somebody_elses_memory_error(monkeypatch, model):
    def fail(*args, **named):
        raise MemoryError

    room(monkeypatch, 300 * MIB)
    monkeypatch.setattr(sys.modules["tilewright.compiler"], "import_model", fail)
    assert refusal(tilewright.compile, model, target=cpu.host(threads=1)) == (
        f"there is not enough memory for compiling the model: 300.0 MiB are available{HINT}"
    )


def test_threads_that_do_not_start(monkeypatch):
    def fail(threads):
        raise MemoryError(f"could not start a pool of {threads} threads: no room")

    monkeypatch.setattr(pool._native, "pool_create", fail)
    assert refusal(ThreadPool, 2) == (
        "could not start a pool of 2 threads: no room\n  hint: use fewer threads"
    )
