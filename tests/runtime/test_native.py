"""The C runtime as Python sees it: memory, and calls of compiled models."""

import ctypes
import pathlib
import shutil
import subprocess
import threading

import numpy as np
import pytest

from tilewright.runtime import _native
from tilewright.runtime.pool import ThreadPool

NATIVE = pathlib.Path(__file__).parents[2] / "src/tilewright/runtime/native"
MIB = 2**20
HOST_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
)


@pytest.mark.parametrize("size", [0, 1, 64, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 33 * MIB])
def test_memory_is_aligned_and_writable(size):
    addresses = [_native.allocate(size) for _ in range(3)]
    assert len(set(addresses)) == 3
    for address in addresses:
        assert address % (2 * MIB if size >= 4 * MIB else 64) == 0
        ctypes.memset(address, 0xA5, size)
        assert ctypes.string_at(address, size) == b"\xa5" * size
        _native.release(address, size)


def test_released_memory_is_given_back():
    for _ in range(50):  # 50 GiB in all: more than fits at once, were it kept
        address = _native.allocate(1024 * MIB)
        ctypes.memset(address, 1, 16)
        _native.release(address, 1024 * MIB)


@pytest.mark.parametrize("size", [2**62, 2**63 - 1])
def test_too_much_memory(size):
    with pytest.raises(MemoryError) as error:
        _native.allocate(size)
    assert str(error.value) == f"could not allocate {size} bytes ({size // MIB} MiB) of memory"


def test_call_passes_every_field(code):
    out, other = np.zeros(8, np.uint64), np.zeros(1)
    with ThreadPool(2) as pool:
        result = _native.call(
            code("report"),
            [out.ctypes.data, other.ctypes.data],
            (-3, 4),
            pool.handle,
            0x1234,
            2**64 - 1,
            0x5678,
        )
        expected_pool = _native.pool_address(pool.handle)
    _, _, in_pool, host_call, host, times, dim, second = out.tolist()
    assert result == 7
    assert (in_pool, host_call, host, times) == (expected_pool, 0x1234, 2**64 - 1, 0x5678)
    assert (dim, second) == (2**64 - 3, other.ctypes.data)


def test_call_without_pool_or_host(code):
    out = np.ones(8, np.uint64)
    memories = (out.ctypes.data, out.ctypes.data)
    assert _native.call(code("report"), memories, [1], 0, 0, 0, 0) == 7
    assert out[2:6].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_call_takes_any_number_of_memories_and_dims(code, count):
    total = np.zeros(1, np.int64)
    memories = [total.ctypes.data, *range(count)]
    dims = [count, *range(1000, 1000 + count)]
    assert _native.call(code("sum"), memories, dims, 0, 0, 0, 0) == 0
    assert total[0] == sum(memories[1:]) + sum(dims[1:])


def test_call_reaches_the_host(code):
    seen = []

    @HOST_CALL
    def host_call(host, function, buffers, dims):
        seen.append((host, function, buffers[0], dims[1]))
        return 42

    address = ctypes.cast(host_call, ctypes.c_void_p).value
    assert _native.call(code("ask_host"), [0xABC0], [1, -2], 0, address, 99, 0) == 42
    assert seen == [(99, 5, 0xABC0, -2)]


def test_calls_run_without_the_gil(code):
    """A call that waits for this thread to set a flag ends only if this thread can run."""
    flags, results = np.zeros(2, np.int64), []
    memories = [_native.addresses()["tw_parallel"], code("hold"), flags.ctypes.data]

    def call():
        results.append(_native.call(code("region"), memories, [1], 0, 0, 0, 0))

    caller = threading.Thread(target=call)
    caller.start()
    while flags[1] == 0:
        pass
    flags[0] = 1
    caller.join()
    assert results == [0]


ENTRY = 4096  # stands for an address that is never called, since an argument before it is refused
REFUSED = [
    (("x", [], [], 0, 0, 0, 0), "entry must be an int, not str"),
    ((ENTRY, 5, [], 0, 0, 0, 0), "memories must be a list or tuple of ints, not int"),
    ((ENTRY, [1, 2.0], [], 0, 0, 0, 0), "memories[1] must be an int, not float"),
    ((ENTRY, [], {}, 0, 0, 0, 0), "dims must be a list or tuple of ints, not dict"),
    ((ENTRY, [], [None], 0, 0, 0, 0), "dims[0] must be an int, not NoneType"),
    ((ENTRY, [1] * 70, [*range(70), None], 0, 0, 0, 0), "dims[70] must be an int, not NoneType"),
    ((ENTRY, [], [], None, 0, 0, 0), "pool must be an int, not NoneType"),
    ((ENTRY, [], [], 0, print, 0, 0), "host_call must be an int, not builtin_function_or_method"),
    ((ENTRY, [], [], 0, 0, "host", 0), "host must be an int, not str"),
    ((ENTRY, [], [], 0, 0, 0, []), "times must be an int, not list"),
    (
        (ENTRY, [], []),
        "call(entry, memories, dims, pool, host_call, host, times) takes 7 arguments, not 3",
    ),
]


@pytest.mark.parametrize("arguments, text", REFUSED)
def test_call_refuses_wrong_types(arguments, text):
    with pytest.raises(TypeError) as error:
        _native.call(*arguments)
    assert str(error.value) == text


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        ((0, [], [], 0, 0, 0, 0), ValueError, "entry is 0: there is no code there"),
        ((-1, [], [], 0, 0, 0, 0), OverflowError, "entry is not an address: -1"),
        (
            (ENTRY, [2**64], [], 0, 0, 0, 0),
            OverflowError,
            f"memories[0] is not an address: {2**64}",
        ),
        (
            (ENTRY, [], [2**63], 0, 0, 0, 0),
            OverflowError,
            f"dims[0] does not fit in 64 bits: {2**63}",
        ),
        (
            (ENTRY, [], [], 10**9, 0, 0, 0),
            ValueError,
            "no thread pool has the handle 1000000000: was it closed?",
        ),
    ],
)
def test_call_refuses_impossible_values(arguments, kind, text):
    with pytest.raises(kind) as error:
        _native.call(*arguments)
    assert str(error.value) == text


def test_other_functions_refuse_wrong_types():
    for function, arguments, text in [
        (_native.pool_create, ("2",), "threads must be an int, not str"),
        (_native.pool_create, (), "pool_create(threads) takes 1 arguments, not 0"),
        (_native.pool_destroy, (None,), "handle must be an int, not NoneType"),
        (_native.allocate, (1.5,), "bytes must be an int, not float"),
        (_native.release, (b"", 1), "address must be an int, not bytes"),
    ]:
        with pytest.raises(TypeError) as error:
            function(*arguments)
        assert str(error.value) == text


def test_negative_size():
    with pytest.raises(ValueError) as error:
        _native.allocate(-1)
    assert str(error.value) == "bytes must not be negative: -1"


def test_clock_advances():
    now = ctypes.CFUNCTYPE(ctypes.c_int64)(_native.addresses()["tw_now"])
    times = [now() for _ in range(100)]
    assert times == sorted(times)
    assert times[0] < times[-1] < times[0] + 10**10


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_bare_metal_runtime(code, tmp_path):
    """serial.c needs no operating system, and runs regions as pool.c does."""
    library = tmp_path / "serial.so"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DTW_SERIAL"]
    free = ["-ffreestanding", "-nostdlib", "-shared", "-fPIC"]
    command = ["cc", *flags, *free, str(NATIVE / "serial.c"), "-o", str(library)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    serial = ctypes.CDLL(str(library))
    parallel = serial.tw_parallel
    parallel.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2]
    ends = np.zeros(10, np.int64)
    parallel(None, code("cut"), ends.ctypes.data, 10, 4)
    parallel(None, code("cut"), 0, 0, 4)
    assert {i: end for i, end in enumerate(ends.tolist()) if end} == {0: 4, 4: 8, 8: 10}
    assert serial.tw_now() == 0
