"""Calling a module: the forms a call takes, what is an input, and what every mistake says."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.handmade import N, affine, build, call, host_program, tensor
from tilewright.base.dtype import bf16, bool_, f16, f32, f64, i4, i8, i32, i64, u8, u64
from tilewright.base.errors import InputError, TargetError
from tilewright.ir.expr import Symbol
from tilewright.ir.host import Copy, Memory, MemoryKind
from tilewright.runtime import shapes
from tilewright.runtime.module import Module

X = np.array([1, 2, 3], np.float32)
B = np.array([10, 20, 30], np.float32)
Y = np.array([12, 24, 36], np.float32)


@pytest.fixture(scope="module")
def module():
    """y = 2 x + b, for any number of rows."""
    with Module(affine(), threads=2) as m:
        yield m


def copying(dtype, *shape, inputs=("x",), **changes):
    """A module whose outputs y0, y1 … are its inputs."""
    kind = tensor(*shape, dtype=dtype)
    outputs = [f"y{i}" for i in range(len(inputs))]
    steps = [Copy(x, y) for x, y in zip(inputs, outputs, strict=True)]
    program = host_program(dict.fromkeys(inputs, kind), dict.fromkeys(outputs, kind), steps)
    return Module(build(program.with_(**changes)), threads=1)


def refusal(what, *args, **named):
    with pytest.raises((InputError, TargetError)) as caught:
        what(*args, **named)
    return str(caught.value)


# ---------------------------------------------------------------- forms of a call


def test_inputs_by_position_by_name_and_both(module):
    for y in (module(X, B), module(x=X, b=B), module(b=B, x=X), module(X, b=B)):
        np.testing.assert_array_equal(y, Y)
        assert y.dtype == np.float32


def test_run_takes_and_gives_names(module):
    outputs = module.run({"b": B, "x": X})
    assert list(outputs) == ["y"]
    np.testing.assert_array_equal(outputs["y"], Y)


def test_several_outputs_are_a_tuple_in_the_models_order():
    module = copying(f32, 3, inputs=("a", "b"))
    first, second = module(X, B)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, B)


def test_every_call_gives_new_arrays(module):
    first = module(X, B)
    kept = first.copy()
    second = module(B, B)
    np.testing.assert_array_equal(first, kept)
    assert not np.may_share_memory(first, second)
    assert first.flags.owndata
    assert first.flags.writeable


def test_shapes_may_change_from_call_to_call(module):
    for n in (1, 1000, 3, 0, 100_000, 1):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(module(x, x), 3 * x)


def test_more_shapes_than_are_remembered(module):
    for n in range(300):
        assert module(np.ones(n, np.float32), np.ones(n, np.float32)).shape == (n,)
    assert len(module._executor._signatures) == 256


def test_arrays_without_elements_are_computed(module):
    empty = np.zeros(0, np.float32)
    y = module(empty, empty)
    assert y.shape == (0,)
    module.profile(empty, empty)


def test_a_model_without_inputs():
    weights = {"w": X}
    program = host_program({}, {"y": tensor(3)}, [Copy("w", "y")], constants=weights)
    np.testing.assert_array_equal(Module(build(program, weights), threads=1)(), X)


def test_scalars_have_shape_nothing():
    module = copying(f32)
    y = module(np.array(3, np.float32))
    assert y.shape == ()
    assert module(2.5) == np.float32(2.5)
    assert module(np.float32(4)) == np.float32(4)


def test_outputs_that_are_inputs_or_constants_or_given_twice_are_copies():
    weights = {"w": B}
    kind = tensor(3)
    steps = [call("double", "x", "y", symbols=())]
    steps = [Copy("x", "y")]
    program = host_program({"x": kind}, {"y": kind}, steps, constants=weights)
    program = program.with_(outputs=("w", "y", "x", "y"))
    module = Module(build(program, weights), threads=1)
    results = module(X)
    for found, wanted in zip(results, (B, X, X, X), strict=True):
        np.testing.assert_array_equal(found, wanted)
        found[...] = 0
    np.testing.assert_array_equal(module(X)[0], B)
    places = [np.empty(3, np.float32) for _ in range(4)]
    assert all(a is b for a, b in zip(module(X, out=places), places, strict=True))
    np.testing.assert_array_equal(places[3], X)


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


@pytest.mark.parametrize("value", [{"a": 1}, None, "text", object(), {1, 2}])
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


# ---------------------------------------------------------------- mistakes in names


def test_a_missing_input(module):
    assert refusal(module, X) == "missing input: 'b'\n  hint: the model takes x: f32[n], b: f32[n]"
    assert refusal(module) == (
        "missing inputs: 'x', 'b'\n  hint: the model takes x: f32[n], b: f32[n]"
    )
    assert refusal(module.run, {"b": B}) == (
        "missing input: 'x'\n  hint: the model takes x: f32[n], b: f32[n]"
    )


def test_an_unknown_input():
    module = copying(f32, inputs=("image", "mask"))
    assert refusal(module, imgae=X, mask=X) == (
        "the model has no input 'imgae'\n  hint: did you mean 'image'?"
    )
    assert refusal(module.run, {"zzz": X}) == (
        "the model has no input 'zzz'\n  hint: known: image, mask"
    )


def test_too_many_inputs(module):
    assert refusal(module, X, B, X) == (
        "the model takes 2 inputs and was given 3\n  hint: the model takes x: f32[n], b: f32[n]"
    )


def test_an_input_given_twice(module):
    assert refusal(module, X, B, x=X) == "input 'x' was given twice, by position and by name"


# ---------------------------------------------------------------- mistakes in types and shapes


def test_a_wrong_element_type(module):
    assert refusal(module, X.astype(np.float64), B) == (
        "input 'x' has elements of type f64; the model takes f32[n]\n"
        "  hint: convert it first: .astype('float32')"
    )
    assert refusal(module, X.astype(">f4"), B) == (
        "input 'x' has elements of type >f4; the model takes f32[n]\n"
        "  hint: convert it first: .astype('float32')"
    )
    assert refusal(module, np.array(["a"]), B) == (
        "input 'x' has elements of type <U1; the model takes f32[n]\n"
        "  hint: convert it first: .astype('float32')"
    )


def test_a_wrong_rank(module):
    assert refusal(module, X[None], B) == (
        "input 'x' has 2 dimensions, shape [1, 3]; the model takes f32[n]"
    )
    assert refusal(module, X[0], B) == (
        "input 'x' has 0 dimensions, shape []; the model takes f32[n]"
    )


def test_a_wrong_size():
    module = copying(f32, 2, 3)
    assert refusal(module, np.zeros((2, 4), np.float32)) == (
        "input 'x' has shape [2, 4]; the model takes f32[2, 3], so dimension 1 must be 3"
    )


def test_inputs_that_disagree(module):
    assert refusal(module, X, B[:2]) == (
        "n is 3 in input 'x' (dimension 0 of f32[n]) and 2 in input 'b' (dimension 0 of f32[n])\n"
        "  hint: the model takes these only when they are equal"
    )


def test_one_input_that_disagrees_with_itself():
    assert refusal(copying(f32, N, N), np.zeros((2, 3), np.float32)) == (
        "n is 2 in input 'x' (dimension 0 of f32[n, n])"
        " and 3 in input 'x' (dimension 1 of f32[n, n])\n"
        "  hint: the model takes these only when they are equal"
    )


def test_sizes_that_follow_from_others():
    module = copying(f32, N, (N + 1) * 2)
    module(np.zeros((2, 6), np.float32))
    assert refusal(module, np.zeros((2, 5), np.float32)) == (
        "input 'x' has shape [2, 5]; the model takes f32[n, (n + 1) * 2],"
        " so dimension 1 must be 6 = (n + 1) * 2 for n = 2"
    )


def test_symbols_out_of_bounds():
    module = copying(f32, Symbol("batch", 2, 4))
    module(np.zeros(4, np.float32))
    assert refusal(module, np.zeros(1, np.float32)) == (
        "batch is 1 in input 'x' (dimension 0 of f32[batch]); the model takes 2 or more"
    )
    assert refusal(module, np.zeros(5, np.float32)) == (
        "batch is 5 in input 'x' (dimension 0 of f32[batch]); the model takes 4 at most"
    )


def test_inputs_too_small_for_an_output():
    program = host_program({"x": tensor(N)}, {"y": tensor(N - 2)}, [])
    module = Module(build(program), threads=1)
    assert module(np.zeros(2, np.float32)).shape == (0,)
    assert refusal(module, np.zeros(1, np.float32)) == (
        "output 'y' would have the size n - 2 = -1 for n = 1\n"
        "  hint: the inputs are too small for this model"
    )


def test_sizes_beyond_64_bits():
    big = N * (1 << 60)
    program = host_program({"x": tensor(N)}, {"y": tensor(big)}, [])
    module = Module(build(program), threads=1)
    assert refusal(module, np.zeros(5, np.float32)) == (
        "n * 1152921504606846976 does not fit in 64 bits for n = 5"
    )


# ---------------------------------------------------------------- out=


def test_results_go_where_they_are_wanted(module):
    place = np.empty(3, np.float32)
    assert module(X, B, out=place) is place
    np.testing.assert_array_equal(place, Y)
    assert module(X, B, out=[place]) is place
    assert module.run({"x": X, "b": B}, out=place)["y"] is place


def test_results_over_the_inputs(module):
    x, b = X.copy(), B.copy()
    module(x, b, out=x)
    np.testing.assert_array_equal(x, Y)
    shared = np.array([1, 2, 3, 4], np.float32)
    y = module(shared[:3], shared[:3], out=shared[1:])
    np.testing.assert_array_equal(y, [3, 6, 9])


@pytest.mark.parametrize(
    "out, text",
    [
        (np.empty(4, np.float32), "out= for output 'y' has shape [4]; the result is [3]"),
        (
            np.empty(3, np.float64),
            (
                "out= for output 'y' has elements of type f64; the model takes f32[n]\n"
                "  hint: convert it first: .astype('float32')"
            ),
        ),
        (
            np.empty(6, np.float32)[::2],
            "out= for output 'y' must be a writable, aligned, row-major array",
        ),
        (
            np.frombuffer(X.tobytes(), np.float32),
            "out= for output 'y' must be a writable, aligned, row-major array",
        ),
        ([], "out= has 0 arrays for 1 outputs: y: f32[n]"),
        (
            "text",
            (
                "out= for output 'y' is a str\n"
                "  hint: pass a numpy array, an object with __dlpack__, or numbers in lists"
            ),
        ),
    ],
)
def test_places_that_cannot_take_results(module, out, text):
    assert refusal(module, X, B, out=out) == text


def test_one_place_for_two_results():
    module = copying(f32, 2, inputs=("a", "b"))
    place = np.empty(3, np.float32)
    assert refusal(module, X[:2], B[:2], out=(place[:2], place[1:])) == (
        "out= for outputs 'y0' and 'y1' is the same memory"
    )


# ---------------------------------------------------------------- memory


def test_a_call_that_needs_more_memory_than_there_is(monkeypatch):
    monkeypatch.setattr(shapes, "available_memory", lambda: 5 << 30)
    module = Module(affine(), threads=1)
    assert module(X, B) is not None
    big = np.broadcast_to(np.float32(0), (3 << 28,))
    monkeypatch.setattr(module, "_arrays", lambda values: values)  # do not copy them
    assert refusal(module, big, big) == (
        "this call needs 6.0 GiB of memory, and 5.0 GiB are available"
        " (3.0 GiB for intermediate values, 3.0 GiB for outputs)\n"
        "  hint: call it with smaller inputs (this was n = 805306368),"
        " or where there is more memory"
    )


def test_a_model_that_needs_more_memory_than_there_is(monkeypatch):
    monkeypatch.setattr(shapes, "available_memory", lambda: 1000)
    scratch = Memory("scratch", "cpu", MemoryKind.ARENA, 1 << 40)
    program = host_program({"x": tensor(3)}, {"y": tensor(3)}, [Copy("x", "y")])
    memories = tuple(scratch if m.name == "scratch" else m for m in program.memories)
    module = Module(build(program.with_(memories=memories)), threads=1)
    assert refusal(module, X) == (
        "this call needs 1.0 TiB of memory, and 1000 bytes are available"
        " (1.0 TiB for intermediate values, 12 bytes for outputs)\n"
        "  hint: run it where there is more memory"
    )


# ---------------------------------------------------------------- what a module says of itself


def test_what_a_module_says_of_itself(module):
    assert module.name == "model"
    assert [str(t) for t in module.inputs] == ["x: f32[n]", "b: f32[n]"]
    assert [(t.name, t.dtype, t.shape) for t in module.outputs] == [("y", f32, ("n",))]
    assert repr(module) == "Module(model: x: f32[n], b: f32[n] -> y: f32[n])"
    assert module.target.name == "here"
    assert module.threads == 2


def test_sources_come_from_the_compiler():
    module = Module(affine(), source=lambda stage, kernel: f"{stage} of {kernel}")
    assert module.source("loops", "add") == "loops of add"
    assert refusal(Module(affine()).source, "loops") == (
        "'model' was loaded from a compiled file, which holds no sources\n"
        "  hint: compile the model to see them"
    )


def test_a_profile_has_every_step(module):
    profile = module.profile(X, b=B, repeat=5)
    assert [(s.kind.value, s.name, s.device, s.nodes) for s in profile.steps] == [
        ("call", "double", "cpu", ("double_node",)),
        ("call", "add", "cpu", ("add_node",)),
    ]
    assert [(s.operations, s.bytes) for s in profile.steps] == [(None, 24), (None, 36)]
    assert profile.calls == 5
    assert 0 <= profile.steps[0].fastest <= profile.steps[0].nanoseconds <= profile.nanoseconds
    assert refusal(module.profile, X, B, repeat=0) == "repeat is 0, and must be at least 1"


def test_bad_settings():
    assert refusal(Module, affine(), threads=0) == "threads is 0, and must be from 1 to 1024"
    assert refusal(Module, affine(), concurrency=0) == "concurrency is 0, and must be at least 1"
