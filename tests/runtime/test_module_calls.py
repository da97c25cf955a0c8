"""Many calls at once, forks, closing, and functions of the host inside a call."""

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from handmade_programs import (
    affine,
    build,
    host_program,
    opaque,
    tensor,
    times_factor,
    with_host,
)

from tilewright.backends.host.functions import host_table
from tilewright.base.errors import ArtifactError, CompileError, InputError, ModelError
from tilewright.ir.expr import Symbol
from tilewright.program.host_program import Copy, HostCall, Wait
from tilewright.runtime.module import Module
from tilewright.runtime.pool import ThreadPool

X = np.array([1, 2, 3], np.float32)


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_calls_from_many_threads(concurrency):
    with Module(affine(), threads=2, concurrency=concurrency) as module:

        def work(seed):
            generator = np.random.default_rng(seed)
            for _ in range(100):
                n = int(generator.integers(0, 3000))
                x, b = generator.random((2, n), np.float32)
                np.testing.assert_array_equal(module(x, b), 2 * x + b)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(16)))
        assert len(module._executor._arenas._free) <= concurrency


def test_a_call_beyond_the_limit_waits_for_another():
    inside, leave = threading.Barrier(3), threading.Event()
    running, most = [], []

    def hold(attrs, inputs):
        running.append(1)
        most.append(len(running))
        if not leave.is_set():
            inside.wait(10)
            leave.wait(10)
        running.pop()
        return [inputs[0]]

    with with_host(hold, threads=1, concurrency=2) as module, ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(module, X) for _ in range(4)]
        inside.wait(10)
        time.sleep(0.05)
        assert max(most) == 2
        leave.set()
        for done in calls:
            np.testing.assert_allclose(done.result(10), np.exp(2 * X), rtol=1e-6)
        assert max(most) == 2


def test_one_thread_uses_one_set_of_memory():
    module = Module(affine(), threads=1, concurrency=4)
    for n in range(1, 50):
        module(np.ones(n, np.float32), np.ones(n, np.float32))
    assert len(module._executor._arenas._free) == 1


def test_a_lost_set_of_memory_is_made_again():
    module = Module(affine(), threads=1, concurrency=1)
    pool = module._executor._arenas
    held = pool.take()  # as a call does that Ctrl-C ends at the worst moment
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(module, X, X)
        time.sleep(0.05)
        assert not waiting.done()
        del held
        np.testing.assert_array_equal(waiting.result(10), 3 * X)


def test_errors_give_the_memory_back():
    module = with_host(times_factor, threads=1, concurrency=1)

    def fail(attrs, inputs):
        raise ZeroDivisionError("seven")

    broken = with_host(fail, threads=1, concurrency=1)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            broken(X)
    for _ in range(5):
        with pytest.raises(InputError):
            module(X[None])
    np.testing.assert_allclose(module(X), np.exp(4 * X), rtol=1e-6)


def test_a_pool_of_the_callers():
    with ThreadPool(3) as pool:
        module = Module(affine(), pool=pool)
        assert module.threads == 3
        np.testing.assert_array_equal(module(X, X), 3 * X)
    with pytest.raises(ValueError, match="closed"):
        module(X, X)


# ---------------------------------------------------------------- forks


def run_python(text):
    """In a process of its own: a fork of a test runner is no place to find out what hangs."""
    folder = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "tests" / "support")},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


# A process that hangs says where, and one that fails ends: the other threads must not keep it. They
# rest between calls: with none, the thread that forks can wait for Python's lock for minutes on a
# machine that has more to do.
FORK = """
import faulthandler, os, signal, threading, traceback
import numpy as np
from handmade_programs import affine, N, build, call, host_program, tensor
from tilewright.runtime.module import Module

kind = tensor(N)
program = host_program({"x": kind}, {"y": kind}, [call("exp", "x", "y")])
module = Module(build(program), threads=2, concurrency=2)
x = np.linspace(0, 1, 400_000, dtype=np.float32)
module(x)
stop = threading.Event()
def work():
    while not stop.wait(0.001):
        module(x)
faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(50)
others = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in others]
try:
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                for _ in range(3):
                    assert np.allclose(module(x), np.exp(x))
                os._exit(7)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
finally:
    stop.set()
    [t.join() for t in others]
assert np.allclose(module(x), np.exp(x))
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_module_works_in_a_fork_made_in_the_middle_of_calls():
    assert run_python(FORK) == (0, "done\n", "")


LEFT_OPEN = """
import threading, time
import numpy as np
from handmade_programs import affine
from tilewright.runtime.module import Module
module = Module(affine(), threads=2)
x = np.ones(1000, np.float32)
def work():
    while True:
        module(x, x)
[threading.Thread(target=work, daemon=True).start() for _ in range(3)]
time.sleep(0.2)
"""


def test_a_process_may_end_while_calls_run():
    for _ in range(5):
        assert run_python(LEFT_OPEN) == (0, "", "")


# ---------------------------------------------------------------- closing


def test_a_closed_module_refuses_calls():
    module = Module(affine(), threads=1)
    module(X, X)
    with module:
        assert not module.closed
    assert module.closed
    module.close()
    for use in (lambda: module(X, X), lambda: module.profile(X, X), lambda: module.threads):
        with pytest.raises(InputError) as caught:
            use()
        assert str(caught.value) == "'model' is closed"
    assert [t.name for t in module.inputs] == ["x", "b"]


def test_closing_lets_running_calls_end():
    inside, leave = threading.Event(), threading.Event()

    def hold(attrs, inputs):
        inside.set()
        leave.wait(10)
        return [inputs[0]]

    module = with_host(hold, threads=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(module, X)
        assert inside.wait(10)
        module.close()
        gc.collect()
        leave.set()
        np.testing.assert_allclose(running.result(10), np.exp(2 * X), rtol=1e-6)


def test_closed_modules_leave_nothing_behind():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not say how much memory a process has")
    big = np.ones(1 << 21, np.float32)  # so large that the scratch is a mapping of its own
    sizes = []
    for _ in range(12):
        for _ in range(4):
            Module(affine(), threads=1)(big, big)
        sizes.append(resident())
    assert sizes[-1] - sizes[2] < 4 << 20


# ---------------------------------------------------------------- host functions


def test_a_host_function_inside_a_model():
    seen = []

    def scale(attrs, inputs):
        seen.append((inputs[0].shape, inputs[0].dtype, inputs[0].flags.writeable))
        return times_factor(attrs, inputs)

    module = with_host(scale, threads=2)
    for n in (3, 0, 1000):
        x = np.linspace(0, 1, n, dtype=np.float32)
        np.testing.assert_allclose(module(x), np.exp(4 * x), rtol=1e-6)
    assert seen == [((n,), np.float32, False) for n in (3, 0, 1000)]
    assert [s.kind for s in module.profile(X).steps] == ["call", "host_call", "call"]


def test_host_functions_in_calls_of_many_threads():
    with with_host(times_factor, threads=2, concurrency=3) as module:

        def work(n):
            x = np.full(n + 1, n, np.float32)
            for _ in range(50):
                np.testing.assert_allclose(module(x / 100), np.exp(x / 25), rtol=1e-5)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))


def test_an_exception_in_a_host_function_is_raised_again():
    def fail(attrs, inputs):
        raise ZeroDivisionError("seven")

    with pytest.raises(ZeroDivisionError, match="seven") as caught:
        with_host(fail, threads=1)(X)
    assert caught.traceback[-1].name == "fail"
    if hasattr(caught.value, "__notes__"):
        assert caught.value.__notes__ == ["while running scale on the host for Scale_1"]


def test_an_error_of_ours_in_a_host_function_says_where():
    def fail(attrs, inputs):
        raise ModelError("it cannot be")

    with pytest.raises(ModelError) as caught:
        with_host(fail, threads=1)(X)
    assert str(caught.value) == "it cannot be\n  while running scale on the host for Scale_1"


def test_control_c_in_a_host_function():
    def fail(attrs, inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_host(fail, threads=1)(X)


@pytest.mark.parametrize(
    "result, text",
    [
        ([X[:2]], "float32[2]"),
        ([X.astype(np.float64)], "float64[3]"),
        ([X, X], "float32[3], float32[3]"),
        ([], "nothing"),
    ],
)
def test_a_host_function_that_returns_something_else(result, text):
    with pytest.raises(CompileError) as caught:
        with_host(lambda attrs, inputs: result, threads=1)(X)
    assert str(caught.value) == (
        f"the host's function for scale must return float32[3] and returned {text}\n"
        "  while running scale on the host for Scale_1"
    )


def test_host_functions_must_be_supplied():
    module = with_host(times_factor, threads=1)
    with pytest.raises(ArtifactError) as caught:
        Module(module.program)
    assert str(caught.value) == (
        "'model' has an operator that runs on the host and that the caller must supply: scale\n"
        "  hint: give host={operator: attributes -> function of arrays}"
    )


def test_a_host_function_of_the_callers_own():
    program = with_host(times_factor, threads=1).program
    module = Module(
        program, host={"scale": lambda attrs: lambda x: [x[0] + np.float32(attrs["factor"])]}
    )
    np.testing.assert_allclose(module(X), np.exp(2 * X + 2), rtol=1e-6)


def test_a_host_function_may_call_another_module():
    inner = Module(affine(), threads=1)
    module = with_host(lambda attrs, inputs: [inner(inputs[0], inputs[0])], threads=1)
    np.testing.assert_allclose(module(X), np.exp(6 * X), rtol=1e-6)


def test_symbols_of_host_functions():
    rows = Symbol("rows", 0)
    op, kind = opaque(lambda attrs, inputs: [np.repeat(inputs[0], 2)]), tensor(rows)
    twice = tensor(rows * 2)
    step = HostCall("scale", "{}", ("x",), ("y",))
    program = host_program({"x": kind}, {"y": twice}, [step])
    module = Module(build(program), host=host_table({"scale": op}), threads=1)
    np.testing.assert_array_equal(module(X), np.repeat(X, 2))


def test_a_device_without_a_part():
    kind = tensor(4)
    program = host_program({"x": kind}, {"y": kind}, [Copy("x", "y"), Wait("npu")])
    with pytest.raises(ArtifactError) as caught:
        Module(build(program), threads=1)
    assert str(caught.value) == "'model' has no part for 'npu', which runs kernels"
