"""What a module takes for an input: arrays of every arrangement and origin, and numbers."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from handmade_programs import N, affine, copying, refusal

from tilewright.base.dtype import bf16, bool_, f16, f32, f64, i4, i8, i32, i64, u8, u64
from tilewright.runtime.module import Module

X = np.array([1, 2, 3], np.float32)
B = np.array([10, 20, 30], np.float32)
Y = np.array([12, 24, 36], np.float32)


@pytest.fixture(scope="module")
def module():
    """y = 2 x + b, for any number of rows."""
    with Module(affine(), threads=2) as m:
        yield m


# ---------------------------------------------------------------- what is an input


def test_a_plain_array_is_read_where_it_lies(module, monkeypatch):
    seen = []
    run = module._executor.run
    monkeypatch.setattr(module._executor, "run", lambda a: seen.append(a) or run(a))
    module(X, B)
    assert seen[0][0] is X
    assert seen[0][1] is B


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.repeat(X, 2)[::2],
        lambda: X[::-1][::-1],
        lambda: np.asfortranarray(X),
        lambda: np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32),
        lambda: np.array([X, X]).T[:, 0],
        lambda: np.array(X, subok=True).view(np.recarray).view(np.ndarray),
        lambda: np.frombuffer(X.tobytes(), np.float32),
        lambda: memoryview(X),
        lambda: list(X.tolist()),
        lambda: [np.float32(v) for v in X],
        lambda: Export(X),
        lambda: Export(np.repeat(X, 2)[::2]),
        lambda: Interface(X),
    ],
)
def test_arrays_of_every_arrangement(module, make):
    np.testing.assert_array_equal(module(make(), B), Y)


def test_a_broadcast_array_is_copied(module):
    wide = np.broadcast_to(np.float32(2), (3,))
    np.testing.assert_array_equal(module(wide, B), 4 + B)


class Export:
    """An array of another library: it has DLPack and nothing else."""

    def __init__(self, array, device=None):
        self.array = array
        self.device = device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


class Interface:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_dlpack_arrays_are_read_where_they_lie():
    module = copying(f32, N)
    arrays = module._arrays([Export(X)])
    assert np.may_share_memory(arrays[0], X)


class Bfloat(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


class ExportRaw:
    """What numpy's own import refuses: it counts how often it is given back."""

    def __init__(self, array, code, bits, strides=None):
        self.array, self.deleted = array, []
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        steps = None if strides is None else (ctypes.c_int64 * array.ndim)(*strides)
        self.tensor = Bfloat(array.ctypes.data, (1, 0), array.ndim, code, bits, 1, shape, steps)
        self.tensor.deleter = Bfloat._fields_[-1][1](self.deleted.append)

    def __dlpack__(self, **options):
        new = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )(("PyCapsule_New", ctypes.pythonapi))
        return new(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


def test_dlpack_types_that_numpy_does_not_import():
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    module = copying(bf16, 2, 3)
    export = ExportRaw(array, 4, 16)
    np.testing.assert_array_equal(module(export), array)
    assert len(export.deleted) == 1
    columns = ExportRaw(array, 4, 16, strides=(1, 2))
    wanted = array.reshape(-1)[[0, 2, 4, 1, 3, 5]].reshape(2, 3)
    np.testing.assert_array_equal(module(columns), wanted)
    assert len(columns.deleted) == 1


def test_a_dlpack_array_that_is_refused_is_not_taken():
    export = ExportRaw(np.zeros(3, np.uint32), 4, 32)
    assert refusal(copying(bf16, 3), export).startswith("input 'x' cannot be read through DLPack: ")
    assert export.deleted == []


def test_arrays_on_other_devices(module):
    assert refusal(module, Export(X, device=(2, 0)), B) == (
        "input 'x' lies in the memory of another device (DLPack device type 2)\n"
        "  hint: copy it to the host first"
    )


def test_inputs_by_name_in_the_wrong_place(module):
    assert refusal(module, {"x": X}, B) == (
        "input 'x' is a dict\n"
        '  hint: inputs by name are passed as module(x=…), or to module.run({"x": …})'
    )


@pytest.mark.parametrize("value", [None, "text", object(), {1, 2}])
def test_what_is_not_an_array(module, value):
    assert refusal(module, value, B) == (
        f"input 'x' is a {type(value).__name__}\n"
        "  hint: pass a numpy array, an object with __dlpack__, or numbers in lists"
    )


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "dtype, value, wanted",
    [
        (f32, [1, 2], [1, 2]),
        (f32, [0.1, 2], np.array([0.1, 2], np.float32)),
        (f32, (float("inf"), float("nan")), [np.inf, np.nan]),
        (f16, [65504, 0.1], np.array([65504, 0.1], np.float16)),
        (f64, [2**53, True], [2**53, 1]),
        (bf16, [256, 0.1], np.array([256, 0.1], ml_dtypes.bfloat16)),
        (i64, [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        (i32, [2.0, True], [2, 1]),
        (u8, [0, 255], [0, 255]),
        (u64, [2**64 - 1, 1.0], [2**64 - 1, 1]),
        (i4, [-8, 7.0], [-8, 7]),
        (bool_, [True, False], [True, False]),
    ],
)
def test_numbers_take_the_inputs_type(dtype, value, wanted):
    y = copying(dtype, 2)(value)
    assert y.dtype == dtype.numpy
    np.testing.assert_array_equal(y, np.array(wanted, dtype.numpy))


@pytest.mark.parametrize(
    "dtype, value, text",
    [
        (f32, [1, 2**24 + 1], "16777217 does not fit f32"),
        (f32, [1, 1e39], "1e+39 does not fit f32"),
        (f16, [1, 65520.0], "65520.0 does not fit f16"),
        (u8, [256, 1], "256 does not fit u8"),
        (u8, [1, -1], "-1 does not fit u8"),
        (i8, [1.5, 1], "1.5 does not fit i8"),
        (i32, [1, float("nan")], "nan does not fit i32"),
        (i64, [1, 2**63], "9223372036854775808 does not fit i64"),
        (i64, [1, 2**70], "[1, 1180591620717411303424] is not of type i64"),
        (bool_, [1, 0], "[1, 0] is not of type bool"),
        (f32, [1, 1j], "[1, 1j] is not of type f32"),
        (f32, ["a", "b" * 50], "['a', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb... is not of type f32"),
    ],
)
def test_numbers_that_do_not_fit(dtype, value, text):
    assert refusal(copying(dtype, 2), value) == f"input 'x': {text}"


def test_lists_that_are_no_arrays(module):
    assert refusal(module, [[1], [1, 2]], B) == ("input 'x' is a list whose items differ in length")
