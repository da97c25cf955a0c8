"""Arguments of other types than are meant, paths that are none, and models that never end: the
whole text of each answer."""

import contextlib
import copy
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import double

import tilewright
from tilewright.frontends.onnx import load as onnx_frontend

X = np.ones((1, 3), np.float32)


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    """double.onnx in the current folder: y = x + x, of [n, 3] float32."""
    monkeypatch.chdir(tmp_path)
    onnx.save(double(), "double.onnx")


def error(call, *arguments, **named):
    with pytest.raises(tilewright.TilewrightError) as caught:
        call(*arguments, **named)
    return type(caught.value).__name__, str(caught.value)


PROFILE = "  hint: for example module.profile(x, repeat=10)"


def test_what_is_no_path():
    module = tilewright.compile("double.onnx")
    for path in (3, None, ""):
        for call, example in (
            (tilewright.load, 'load("model.tw")'),
            (module.save, 'module.save("model.tw")'),
            (module.profile(X).save, 'profile.save("trace.json")'),
        ):
            text = f"{path!r} is no path\n  hint: for example {example}"
            assert error(call, path) == ("ArtifactError", text)


@pytest.mark.parametrize("repeat", [2.5, "a", None, True, 0, -1])
def test_how_often_to_repeat(repeat):
    module = tilewright.compile("double.onnx")
    text = f"repeat is {repeat!r}, and must be a whole number of 1 or more\n{PROFILE}"
    assert error(module.profile, X, repeat=repeat) == ("InputError", text)
    assert module.profile(X, repeat=np.int64(2)).calls == 2


@pytest.mark.parametrize("work", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_module_is_no_data(work):
    assert error(work, tilewright.compile("double.onnx")) == (
        "InputError",
        (
            "'double' cannot be pickled or copied: it is code that is loaded in this process\n"
            "  hint: save it with module.save(path), and load it elsewhere with"
            " tilewright.load(path)"
        ),
    )


OPTIONS = [
    (
        {"dims": [("n", 2)]},
        "dims is [('n', 2)], and must be a mapping from names",
        'dims={"batch": 1}',
    ),
    (
        {"values": 3},
        "values is 3, and must be a mapping from names",
        'values={"shape": np.array([2, 6])}',
    ),
    (
        {"assign": 3},
        "assign is 3, and must be a mapping",
        'assign={"conv_1": "first"}, or a function of a node',
    ),
    ({"separate": "a"}, "separate is 'a', and must be a set", 'separate={"first"}'),
    ({"checks": "yes"}, "checks is 'yes', and must be True or False", "checks=True"),
    ({"verify": 1}, "verify is 1, and must be True or False", "verify=True"),
]


@pytest.mark.parametrize("settings, what, example", OPTIONS)
def test_options_of_other_types(settings, what, example):
    options = tilewright.Options(**settings)
    text = f"{what}\n  hint: for example options=Options({example})"
    assert error(tilewright.compile, "double.onnx", options=options) == ("CompileError", text)


def test_sizes_of_other_whole_types():
    for size in (np.int64(2), np.uint8(2)):
        module = tilewright.compile("double.onnx", options=tilewright.Options(dims={"n": size}))
        assert str(module.inputs[0]) == "x: f32[2, 3]"


def test_names_in_other_letters():
    assert error(tilewright.compile, "double.onnx", target="AVX2") == (
        "TargetError",
        "there is no target called 'AVX2'\n  hint: did you mean 'avx2'?",
    )


def test_a_path_that_is_empty():
    assert error(tilewright.compile, "") == (
        "ModelError",
        (
            "the model is ''\n"
            "  hint: give the path of an .onnx file, its bytes, an onnx.ModelProto, or a Graph"
        ),
    )
    assert error(tilewright.compile, Path()) == (
        "ModelError",
        "'.' is a folder, which holds double.onnx\n  hint: give the file: double.onnx",
    )


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_model(path):
    assert error(tilewright.compile, path) == (
        "ModelError",
        (
            f"{path!r} is a device, not a file\n"
            "  hint: give the path of an .onnx file, or pipe the model in: … | tilewright run"
            " /dev/stdin"
        ),
    )


def test_a_pipe_is_read_to_its_end_or_to_the_limit(monkeypatch):
    os.mkfifo("pipe")

    def through_pipe(data):
        def write():
            with contextlib.suppress(BrokenPipeError):
                Path("pipe").write_bytes(data)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            return tilewright.compile("pipe")
        finally:
            writer.join()

    with through_pipe(Path("double.onnx").read_bytes()) as module:
        np.testing.assert_array_equal(module(X), 2 * X)
    monkeypatch.setattr(onnx_frontend, "LARGEST_FILE", 1 << 20)
    assert error(through_pipe, bytes(1 << 23)) == (
        "ModelError",
        (
            "'pipe' is larger than 2 GiB, which protobuf cannot read\n"
            "  hint: save the model with its weights as external data"
        ),
    )
