"""Bad input through the command line and through Python: the whole text of each error, exit code
2, no traceback, and no file that was not there before."""

import os
import resource
import shutil
import struct
import sys

import numpy as np
import pytest
from bad_models import BAD_MODELS, WEIGHT, model, node, tensor, write_bad_models
from onnx import numpy_helper

import tilewright
from tilewright.cli import main as cli
from tilewright.runtime import shapes
from tilewright.targets import cpu

HOST = cpu.host(threads=1)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    write_bad_models(folder)
    with tilewright.compile(folder / "good.onnx", target=HOST) as module:
        module.save(folder / "good.tw")
    return folder


@pytest.fixture
def folder(originals, tmp_path, monkeypatch):
    """The current folder, with all models in it."""
    place = tmp_path / "here"
    shutil.copytree(originals, place)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def refused(capsys, monkeypatch, folder):
    """Runs a command that must fail; returns its words."""

    def run(*arguments):
        before = sorted(p.name for p in folder.rglob("*"))
        monkeypatch.setattr(sys, "argv", ["tilewright", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert sorted(p.name for p in folder.rglob("*")) == before
        lines = [line for line in err.splitlines() if not line.startswith("target: ")]
        assert all(lines), "one paragraph"
        return "\n".join(lines)

    return run


def error(call, *arguments, **named):
    with pytest.raises(tilewright.TilewrightError) as caught:
        call(*arguments, **named)
    return str(caught.value)


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models(refused, name):
    text = BAD_MODELS[name][1]
    assert error(tilewright.compile, name, target=HOST) == text
    assert refused("run", name) == f"error: {text}"
    assert refused("compile", name, "-o", "out.tw") == f"error: {text}"


def test_what_is_no_file(refused, folder):
    for name, why in (
        ("nowhere.onnx", "No such file or directory"),
        ("folder.onnx", "Is a directory"),
    ):
        text = f"cannot read {name!r}: {why}"
        assert error(tilewright.compile, name, target=HOST) == text
        assert refused("run", name) == f"error: {text}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(refused, folder):
    (folder / "good.onnx").chmod(0)
    assert refused("run", "good.onnx") == "error: cannot read 'good.onnx': Permission denied"


def test_a_link_that_leads_out(refused, folder):
    (folder.parent / "secret").write_bytes(WEIGHT.tobytes())
    os.symlink("../secret", folder / "w.bin")
    assert refused("run", "no_data.onnx") == (
        "error: the initializer 'w' lies in 'w.bin', a link that leads out of the model's folder\n"
        "  hint: copy the data file beside the model file"
    )


# ---------------------------------------------------------------- compiled models


def changed(folder, change):
    data = bytearray((folder / "good.tw").read_bytes())
    change(data)
    (folder / "bad.tw").write_bytes(data)


def newer(data):
    data[8:12] = struct.pack("<I", 4)


def flip_code(data):
    data[-100] ^= 1


COMPILED = [
    (
        newer,
        (
            "bad.tw has format 4, and this version of tilewright reads format 3\n"
            "  hint: load it with a newer tilewright, or compile the model again"
        ),
    ),
    (
        lambda data: data.__delitem__(slice(len(data) - 10, None)),
        "bad.tw is damaged: it has {less} of {size} bytes\n  hint: copy or compile it again",
    ),
    (
        lambda data: data.__setitem__(30, data[30] ^ 1),
        "bad.tw is damaged: its header is not what was written\n  hint: copy or compile it again",
    ),
    (
        lambda data: data.clear(),
        "bad.tw is not a compiled model\n  hint: `tilewright compile` makes .tw files",
    ),
]


@pytest.mark.parametrize("change, text", COMPILED)
def test_bad_compiled_models(refused, folder, change, text):
    size = (folder / "good.tw").stat().st_size
    changed(folder, change)
    text = text.format(size=size, less=size - 10)
    assert error(tilewright.load, "bad.tw") == text
    assert refused("run", "bad.tw") == f"error: {text}"


def test_every_flipped_bit_of_a_compiled_model_is_found_or_harmless(folder):
    data = (folder / "good.tw").read_bytes()
    x = np.ones((3, 4), np.float32)
    generator = np.random.default_rng(0)
    refusals = 0
    for place in generator.integers(0, len(data) * 8, 60).tolist():
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        (folder / "bad.tw").write_bytes(damaged)
        try:
            with tilewright.load(folder / "bad.tw") as module:  # a bit between the sections
                np.testing.assert_allclose(module(x), x @ WEIGHT, rtol=1e-5)
        except tilewright.ArtifactError:
            refusals += 1
    assert refusals > 20


# ---------------------------------------------------------------- calls


def arrays(folder):
    np.save("good.npy", np.ones((2, 4), np.float32))
    np.save("wide.npy", np.ones((2, 4)))
    np.save("shape.npy", np.ones((2, 5), np.float32))
    np.save("rank.npy", np.ones((2, 4, 1), np.float32))
    np.save("big.npy", np.ones((2, 4), ">f4"))
    np.save("text.npy", np.array(["a"]))
    (folder / "noise.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff garbage")


F64 = (
    "input 'x' has elements of type f64; the model takes f32[n, 4]\n"
    "  hint: convert it first: .astype('float32')"
)
CALLS = [
    ("x=wide.npy", F64),
    (
        "x=shape.npy",
        "input 'x' has shape [2, 5]; the model takes f32[n, 4], so dimension 1 must be 4",
    ),
    ("x=rank.npy", "input 'x' has 3 dimensions, shape [2, 4, 1]; the model takes f32[n, 4]"),
    (
        "x=big.npy",
        (
            "input 'x' has elements of type >f4; the model takes f32[n, 4]\n"
            "  hint: convert it first: .astype('float32')"
        ),
    ),
    (
        "x=text.npy",
        (
            "input 'x' has elements of type <U1; the model takes f32[n, 4]\n"
            "  hint: convert it first: .astype('float32')"
        ),
    ),
    ("x=noise.npy", "noise.npy is not a .npy file of numbers"),
    ("x=nowhere.npy", "cannot read nowhere.npy: No such file or directory"),
    ("z=good.npy", "--input z=good.npy: the model has no input 'z'\n  hint: known: x"),
]


@pytest.mark.parametrize("given, text", CALLS)
@pytest.mark.parametrize("name", ["good.onnx", "good.tw"])
def test_bad_inputs_on_the_command_line(refused, folder, name, given, text):
    arrays(folder)
    assert refused("run", name, "--input", given, "--output", "out") == f"error: {text}"


@pytest.mark.parametrize(
    "dim, text",
    [
        ("n", "--dim n: not NAME=NUMBER\n  hint: for example --dim batch=4"),
        ("n=-1", "--dim n=-1: not NAME=NUMBER\n  hint: for example --dim batch=4"),
        ("n=1.5", "--dim n=1.5: not NAME=NUMBER\n  hint: for example --dim batch=4"),
        ("=4", "--dim =4: not NAME=NUMBER\n  hint: for example --dim batch=4"),
        ("m=4", "the model has no dimension called 'm'\n  hint: known: n"),
        (
            f"n={2**31}",
            "the dimension 'n' was given as 2147483648\n  hint: it must be 0 … 2147483647",
        ),
        ("n=" + "9" * 5000, "--dim n: a number of 5000 digits"),
    ],
)
def test_bad_dimensions(refused, dim, text):
    assert refused("run", "good.onnx", "--dim", dim) == f"error: {text}"


def test_bad_calls_from_python(folder):
    with tilewright.load("good.tw") as module:
        x = np.ones((2, 4), np.float32)
        assert error(module) == "missing input: 'x'\n  hint: the model takes x: f32[n, 4]"
        assert error(module, x, x) == (
            "the model takes 1 input and was given 2\n  hint: the model takes x: f32[n, 4]"
        )
        assert error(module, z=x) == "the model has no input 'z'\n  hint: known: x"
        assert error(module, x, x=x) == "input 'x' was given twice, by position and by name"
        assert error(module.run, {"x": x, "extra": x}) == (
            "the model has no input 'extra'\n  hint: known: x"
        )
        assert error(module, x.astype(np.float64)) == F64
        assert error(module, x[0]) == (
            "input 'x' has 1 dimension, shape [4]; the model takes f32[n, 4]"
        )
        np.testing.assert_allclose(module(x), x @ WEIGHT)  # still in order


def test_symbols_that_disagree():
    data = model(
        [node("Add", "a b", "y", "sum")],
        [tensor("a", ("n", 3)), tensor("b", ("n", 3))],
        [tensor("y", ("n", 3))],
    )
    with tilewright.compile(data, target=HOST) as module:
        two, five = np.ones((2, 3), np.float32), np.ones((5, 3), np.float32)
        assert error(module, two, five) == (
            "n is 2 in input 'a' (dimension 0 of f32[n, 3]) and 5 in input 'b' (dimension 0 of"
            " f32[n, 3])\n  hint: the model takes these only when they are equal"
        )


# ---------------------------------------------------------------- what is no mistake


ARRANGED = {
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "fortran": np.asfortranarray,
    "reversed": lambda x: x[::-1][::-1],
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "read-only": lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
    "unaligned": lambda x: (
        np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    ),
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("name", ARRANGED)
def test_arrays_of_every_arrangement_are_taken(folder, name):
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    given = ARRANGED[name](x)
    before = given.copy()
    with tilewright.load("good.tw") as module:
        y = module(given)
    assert y.shape == given.shape
    np.testing.assert_allclose(y, before @ WEIGHT, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given, before)


def test_zero_sized_arrays_are_computed():
    """A sum over nothing is 0, and nothing else is touched."""
    data = model(
        [node("ReduceSum", "x", "s", "sum", keepdims=0), node("Neg", "x", "y", "negate")],
        [tensor("x", ("n", 0, 3))],
        [tensor("s", ()), tensor("y", ("n", 0, 3))],
    )
    with tilewright.compile(data, target=HOST) as module:
        s, y = module(np.empty((2, 0, 3), np.float32))
    assert (s.shape, float(s), y.shape) == ((), 0.0, (2, 0, 3))


def test_nan_and_infinity_pass_through(folder):
    x = np.array([[np.nan, 1, 1, 1], [np.inf, 1, 1, 1], [-np.inf, 1, 1, 1]], np.float32)
    with tilewright.load("good.tw") as module:
        y = module(x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(x @ WEIGHT))
    assert y[1, 1] == np.inf
    assert y[2, 1] == -np.inf


# ---------------------------------------------------------------- memory


def growing(folder):
    """y = x wᵀ w, with an intermediate value a thousand times as wide."""
    wide = np.ones((4, 4096), np.float32)
    data = model(
        [node("MatMul", "x w", "p", "widen"), node("Sigmoid", "p", "q", "bend"),
         node("Softmax", "q", "r", "normalize"), node("MatMul", "r v", "y", "narrow")],
        [tensor("x", ("n", 4))],
        [tensor("y", ("n", 4))],
        [numpy_helper.from_array(wide, "w"), numpy_helper.from_array(wide.T.copy(), "v")],
    )  # fmt: skip
    (folder / "growing.onnx").write_bytes(data)


def test_a_plan_larger_than_memory_is_refused_before_allocation(folder):
    growing(folder)
    with tilewright.compile("growing.onnx", target=HOST) as module:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        text = error(module, np.zeros((1 << 26, 4), np.float32))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert module(np.ones((2, 4), np.float32)).shape == (2, 4)
    first, hint = text.split("\n")
    assert first.startswith("this call needs 2.0 TiB of memory, and ")
    assert first.endswith(" (2.0 TiB for intermediate values, 1.0 GiB for outputs)")
    assert hint == (
        "  hint: call it with smaller inputs (this was n = 67108864), or where there is more memory"
    )
    assert after - before < 1 << 20  # KiB


def test_a_plan_larger_than_memory_on_the_command_line(refused, folder, monkeypatch):
    growing(folder)
    monkeypatch.setattr(shapes, "available_memory", lambda: 1 << 20)
    assert refused("run", "growing.onnx", "--dim", "n=1000", "--output", "y.npy") == (
        "error: this call needs 31.3 MiB of memory, and 1.0 MiB are available (31.2 MiB for"
        " intermediate values, 15.6 KiB for outputs)\n"
        "  hint: run it where there is more memory"
    )
    text = refused("run", "good.onnx", "--dim", "n=2000000000")
    assert text.startswith("error: random inputs need 89.4 GiB of memory, and ")
    assert text.endswith(
        " available: x: f32[2000000000, 4]\n  hint: choose smaller dimensions with --dim"
    )
