"""Calling a module: the forms a call takes, what is an input, and what every mistake says."""

import numpy as np
import pytest
from handmade_programs import N, affine, build, copying, host_program, refusal, tensor

from tilewright.base.dtype import f32
from tilewright.ir.expr import Symbol
from tilewright.program.host_program import Copy, MemoryKind, MemorySpec
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
    scratch = MemorySpec("scratch", "cpu", MemoryKind.ARENA, 1 << 40)
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
    facts = module.target
    assert repr(module) == (
        f"Module(model: x: f32[n], b: f32[n] -> y: f32[n]; for here ({facts.architecture}))"
    )
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
    assert [(s.kind, s.name, s.device, s.nodes) for s in profile.steps] == [
        ("call", "double", "cpu", ("double_node",)),
        ("call", "add", "cpu", ("add_node",)),
    ]
    assert [(s.operations, s.bytes) for s in profile.steps] == [(None, 24), (None, 36)]
    assert profile.calls == 5
    assert 0 <= profile.steps[0].fastest <= profile.steps[0].nanoseconds <= profile.nanoseconds
    assert refusal(module.profile, X, B, repeat=0) == (
        "repeat is 0, and must be a whole number of 1 or more\n"
        "  hint: for example module.profile(x, repeat=10)"
    )


def test_bad_settings():
    assert refusal(Module, affine(), threads=0) == "threads is 0, and must be from 1 to 1024"
    assert refusal(Module, affine(), concurrency=0) == "concurrency is 0, and must be at least 1"
