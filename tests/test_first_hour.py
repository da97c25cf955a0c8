"""What someone types who comes from another engine: targets by name, models of other frameworks,
names that are nearly right. The whole text of each answer."""

import io
import sys
import types
import zipfile

import numpy as np
import onnx
import pytest
from small_models import double

import tilewright
from tilewright.base.version import VERSION
from tilewright.cli import main as cli
from tilewright.targets import cpu
from tilewright.targets.names import PROCESSORS
from tilewright.targets.vta import vta

NAMES = "host, sse2, sse4, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot, rvv, tiny, vta"
KNOWN, NAMES = f"{NAMES}, …", f"{NAMES}, gemmini, conv_engine, dsp"


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    """double.onnx in the current folder: y = x + x, of [n, 3] float32."""
    monkeypatch.chdir(tmp_path)
    onnx.save(double(), "double.onnx")
    return tmp_path


def error(call, *arguments, **named):
    with pytest.raises(tilewright.TilewrightError) as caught:
        call(*arguments, **named)
    return type(caught.value).__name__, str(caught.value)


def refused(path, target="host"):
    """What compile says of a model; the command line says the same."""
    kind, text = error(tilewright.compile, path, target=target)
    return kind, text


# ---------------------------------------------------------------- targets


def test_without_a_target_it_is_this_machine_and_is_said():
    module = tilewright.compile("double.onnx")
    host = cpu.host()
    assert module.target.name == "host"
    assert str(module) == (
        "Module(double: x: f32[n, 3] -> y: f32[n, 3];"
        f" for host ({host.native.triple.split('-')[0]} {host.native.processor}))"
    )
    assert "Without a `target` it is compiled for the machine this runs on" in (
        tilewright.compile.__doc__
    )


@pytest.mark.parametrize("name", PROCESSORS)
def test_targets_go_by_the_names_of_the_command_line(name):
    module = tilewright.compile("double.onnx", target=name, until="llvm")
    assert all("define" in text for text in module.values())


def test_devices_go_by_the_same_names():
    for target in ({"a": "host"}, {"a": cpu.host(threads=1), "b": "host"}):
        module = tilewright.compile("double.onnx", target=target)
        assert module([[1, 2, 3]]).tolist() == [[2, 4, 6]]


CHIP = (
    "{0} can run 0 of 1 kernel of double; a host has to do the rest (Add_0) and call them\n"
    '  hint: target={{"host": "host", "{0}": vta()}}; on the command line, --target host'
    " --target {0}"
)


@pytest.mark.parametrize(
    "target, kind, text",
    [
        ("vta", "CompileError", CHIP.format("vta")),
        (vta(), "CompileError", CHIP.format("vta")),
        ({"a": "vta"}, "CompileError", CHIP.format("a")),
        (
            "avx",
            "TargetError",
            "there is no target called 'avx'\n  hint: did you mean 'avx2' or 'avx512'?",
        ),
        ("zz", "TargetError", f"there is no target called 'zz'\n  hint: known: {KNOWN}"),
        (
            3,
            "CompileError",
            (
                "target is 3, not a target\n"
                f'  hint: this machine is target="host", or leave target out; names: {NAMES}'
            ),
        ),
        (
            None,
            "CompileError",
            (
                "target is None, not a target\n"
                f'  hint: this machine is target="host", or leave target out; names: {NAMES}'
            ),
        ),
        (
            cpu,
            "CompileError",
            (
                "target is the module tilewright.targets.cpu, not a target\n"
                f'  hint: this machine is target="host", or leave target out; names: {NAMES}'
            ),
        ),
        (
            cpu.host,
            "CompileError",
            "target is the function host, not a target\n  hint: call it: host()",
        ),
        (
            {"a": 3},
            "CompileError",
            (
                "target['a'] is 3, not a target\n"
                f'  hint: this machine is target="host", or leave target out; names: {NAMES}'
            ),
        ),
        (
            {},
            "CompileError",
            f'target is an empty mapping\n  hint: target="host"; names: {NAMES}',
        ),
        (
            {1: "host"},
            "CompileError",
            (
                "target has the device 1, and devices' names are texts\n"
                '  hint: for example target={"first": "host"}'
            ),
        ),
    ],
)
def test_what_is_no_target(target, kind, text):
    assert error(tilewright.compile, "double.onnx", target=target) == (kind, text)


def test_options_that_are_none():
    assert error(tilewright.compile, "double.onnx", options={"dims": {"n": 1}}) == (
        "CompileError",
        "options is {'dims': {'n': 1}}\n  hint: for example options=Options(dims={\"batch\": 1})",
    )


# ---------------------------------------------------------------- models of other kinds


def instance(module, name, base=object):
    """An object of a class of that name in that module, without the module."""
    kind = type(name, (base,), {"__module__": module})
    return kind()


TORCH = type("Module", (), {"__module__": "torch.nn.modules.module"})
KERAS = type("Model", (), {"__module__": "keras.src.models.model"})
EXPORT = '    torch.onnx.export(model.eval(), (example_input,), "model.onnx", dynamo=True)'
COMPILE = '    module = tilewright.compile("model.onnx")'
KERAS_EXPORT = '    model.export("model.onnx", format="onnx")'


@pytest.mark.parametrize(
    "given, text",
    [
        (
            instance("torchvision.models.resnet", "ResNet", TORCH),
            (
                "the model, a torchvision.models.resnet.ResNet, is a PyTorch module, and"
                " tilewright reads ONNX\n  hint: export it to ONNX, and compile that:\n"
                f"{EXPORT}\n{COMPILE}"
            ),
        ),
        (
            instance("keras.src.models.sequential", "Sequential", KERAS),
            (
                "the model, a keras.src.models.sequential.Sequential, is a Keras model, and"
                " tilewright reads ONNX\n  hint: export it to ONNX, and compile that:\n"
                f"{KERAS_EXPORT}\n{COMPILE}"
            ),
        ),
        (
            instance("tensorflow.python.trackable.autotrackable", "AutoTrackable"),
            (
                "the model, a tensorflow.python.trackable.autotrackable.AutoTrackable, is a"
                " TensorFlow object, and tilewright reads ONNX\n  hint: export it to ONNX, and"
                " compile that:\n"
                '    tf.saved_model.save(model, "saved_model")\n'
                "    python -m tf2onnx.convert --saved-model saved_model --output model.onnx"
            ),
        ),
        (
            instance("onnxruntime.capi.onnxruntime_inference_collection", "InferenceSession"),
            (
                "the model, a onnxruntime.capi.onnxruntime_inference_collection.InferenceSession,"
                " is a session of ONNX Runtime, not a model\n"
                f"  hint: give the file that the session was made from:\n{COMPILE}"
            ),
        ),
        (
            None,
            (
                "the model is None\n  hint: give the path of an .onnx file, its bytes, an"
                " onnx.ModelProto, or a Graph"
            ),
        ),
        (
            [1, 2],
            (
                "the model is a builtins.list\n  hint: give the path of an .onnx file, its bytes,"
                " an onnx.ModelProto, or a Graph"
            ),
        ),
    ],
    ids=lambda x: "" if isinstance(x, str) else type(x).__name__,
)
def test_objects_of_other_frameworks(given, text):
    assert error(tilewright.compile, given) == ("ModelError", text)
    assert "torch" not in sys.modules


def archive(*names):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        for name in names:
            made.writestr(name, "{}")
    return data.getvalue()


def arrays():
    data = io.BytesIO()
    np.savez(data, x=np.zeros(3))
    return data.getvalue()


MAKE = "make the module that it belongs to, export that, and compile model.onnx:"
KERAS_TEXT = (
    "{name} is a Keras model, and tilewright reads ONNX\n"
    "  hint: export it to ONNX, and compile model.onnx:\n"
    '    model = keras.models.load_model("{file}")\n' + KERAS_EXPORT
)
TORCH_TEXT = (
    "{name} is a file of PyTorch's, which holds weights or a pickled module, and tilewright reads"
    f" ONNX\n  hint: {MAKE}\n"
    '    model.load_state_dict(torch.load("{file}", weights_only=True))\n' + EXPORT
)
SAFETENSORS_TEXT = (
    "{name} holds weights (safetensors) without the network they belong to, and tilewright reads"
    f" ONNX\n  hint: {MAKE}\n"
    '    model.load_state_dict(safetensors.torch.load_file("{file}"))\n' + EXPORT
)
TFLITE_TEXT = (
    "{name} is a TensorFlow Lite model, and tilewright reads ONNX\n"
    "  hint: convert it to ONNX, and compile model.onnx:\n"
    "    pip install tf2onnx\n"
    "    python -m tf2onnx.convert --tflite {file} --output model.onnx"
)
PROGRAM_TEXT = (
    "{name} is a program that torch.export saved, and tilewright reads ONNX\n"
    "  hint: export it to ONNX, and compile model.onnx:\n"
    '    program = torch.export.load("{file}")\n'
    '    torch.onnx.export(program, (), "model.onnx", dynamo=True)'
)
HDF = b"\x89HDF\r\n\x1a\n" + bytes(100)
FILES = {  # by name: what is in it, what is said
    "a.pt": (archive("a/data.pkl", "a/version"), TORCH_TEXT),
    "a.pth": (b"\x80\x02\x8a\nl\xfc\x9cF", TORCH_TEXT),
    "pytorch_model.bin": (archive("archive/data.pkl"), TORCH_TEXT),
    "a.pt2": (archive("a/models/model.json"), PROGRAM_TEXT),
    "a.safetensors": ((99).to_bytes(8, "little") + b'{"w":{}}', SAFETENSORS_TEXT),
    "no_ending": ((99).to_bytes(8, "little") + b'{"w":{}}', SAFETENSORS_TEXT),
    "a.h5": (HDF, KERAS_TEXT),
    "a.keras": (archive("config.json", "model.weights.h5"), KERAS_TEXT),
    "a.tflite": (b"\x1c\0\0\0TFL3" + bytes(20), TFLITE_TEXT),
    "a.pb": (
        b"\x0a\x03\x0a\x01x",
        (
            "{name} is no ONNX model; files of this name are often TensorFlow's frozen graphs\n"
            "  hint: convert it to ONNX, and compile model.onnx:\n"
            "    pip install tf2onnx\n"
            "    python -m tf2onnx.convert --graphdef {file} --output model.onnx --inputs x:0"
            " --outputs y"
        ),
    ),
    "a.gguf": (
        b"GGUF\x03\0\0\0",
        (
            "{name} holds the weights of a language model for llama.cpp (GGUF), and tilewright"
            " reads ONNX\n  hint: export the model that it was made from, and compile"
            " model/model.onnx:\n"
            "    optimum-cli export onnx --model MODEL model"
        ),
    ),
    "a.ort": (
        b"\x1c\0\0\0ORTM",
        (
            "{name} is in ONNX Runtime's own format, which only that reads\n"
            f"  hint: give the .onnx file that it was made from:\n{COMPILE}"
        ),
    ),
    "lfs.onnx": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        (
            "{name} is a pointer of Git LFS, not the model itself\n"
            '  hint: fetch the file:\n    git lfs pull --include "{file}"'
        ),
    ),
    "page.onnx": (
        b"<!DOCTYPE html><html></html>",
        (
            "{name} is a web page, not a model: the address that it came from does not lead to the"
            " file itself\n  hint: download it anew from the address of the raw file:\n"
            "    curl -L -o {file} ADDRESS"
        ),
    ),
    "a.npz": (
        arrays(),
        (
            "{name} holds arrays of numpy, not a model\n"
            "  hint: compile the .onnx model, and call the module with them:\n"
            '    module(numpy.load("{file}"))'
        ),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_frameworks(model, capsys, monkeypatch, name):
    content, text = FILES[name]
    (model / name).write_bytes(content)
    text = text.replace("{name}", repr(name)).replace("{file}", name)
    assert error(tilewright.compile, name) == ("ModelError", text)
    monkeypatch.setattr(sys, "argv", ["tilewright", "run", name, "--quiet"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, *capsys.readouterr()) == (2, "", f"error: {text}\n")


def test_a_compiled_model_is_loaded():
    tilewright.compile("double.onnx").save("double.tw")
    assert error(tilewright.compile, "double.tw") == (
        "ModelError",
        (
            "'double.tw' is a compiled model: it is ready to run\n"
            "  hint: load it, or compile what it was compiled from:\n"
            '    module = tilewright.load("double.tw")'
        ),
    )
    assert error(tilewright.load, "double.onnx") == (
        "ArtifactError",
        "double.onnx is not a compiled model\n  hint: `tilewright compile` makes .tw files",
    )


def test_folders(model):
    (model / "saved").mkdir()
    (model / "saved" / "saved_model.pb").write_bytes(b"\x08\x01")
    assert error(tilewright.compile, model / "saved") == (
        "ModelError",
        (
            "'saved' is a TensorFlow SavedModel, and tilewright reads ONNX\n"
            "  hint: convert it to ONNX, and compile model.onnx:\n"
            "    pip install tf2onnx\n"
            f"    python -m tf2onnx.convert --saved-model {model / 'saved'} --output model.onnx"
        ),
    )
    (model / "hub").mkdir()
    (model / "hub" / "model.onnx").write_bytes(b"")
    assert error(tilewright.compile, "hub") == (
        "ModelError",
        "'hub' is a folder, which holds model.onnx\n  hint: give the file: hub/model.onnx",
    )


def test_a_file_that_is_called_otherwise():
    assert error(tilewright.compile, "duoble.onnx") == (
        "ModelError",
        "cannot read 'duoble.onnx': No such file or directory\n  hint: did you mean 'double.onnx'?",
    )


# ---------------------------------------------------------------- the package


def test_the_version():
    assert tilewright.__version__ == VERSION
    assert tilewright.__version__.count(".") == 2


def test_what_a_shell_completes():
    assert dir(tilewright) == sorted(tilewright.__all__)
    assert {"compile", "load", "Module", "Options", "kernel"} <= set(dir(tilewright))
    for name in dir(tilewright):
        assert not isinstance(getattr(tilewright, name), types.ModuleType), name


def test_a_name_that_is_nearly_right():
    with pytest.raises(AttributeError) as caught:
        _ = tilewright.complie
    assert str(caught.value) == "module 'tilewright' has no attribute 'complie'"
    assert (caught.value.name, caught.value.obj) == ("complie", tilewright)  # for "did you mean"


# ---------------------------------------------------------------- calls


X = np.array([[1, 2, 3]], np.float32)
BY_NAME = 'results = module.run({"x": x}); arrays by position: y = module(x)'


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda m: m({"x": X}),
            (
                "input 'x' is a dict\n"
                '  hint: inputs by name are passed as module(x=…), or to module.run({"x": …})'
            ),
        ),
        (
            lambda m: m.run(None, {"x": X}),
            (
                "run takes one mapping of inputs by name, and was given: NoneType, dict\n"
                f"  hint: {BY_NAME}"
            ),
        ),
        (
            lambda m: m.run(X),
            f"run takes one mapping of inputs by name, and was given: ndarray\n  hint: {BY_NAME}",
        ),
        (
            lambda m: m(X.astype(np.float64)),
            (
                "input 'x' has elements of type f64; the model takes f32[n, 3]\n"
                "  hint: convert it first: .astype('float32')"
            ),
        ),
        (
            lambda m: m.run({"X": X}),
            "the model has no input 'X'\n  hint: did you mean 'x'?",
        ),
    ],
)
def test_calls_as_other_engines_have_them(call, text):
    assert error(call, tilewright.compile("double.onnx")) == ("InputError", text)


def test_a_batch_that_differs():
    for n in (1, 5, 0):  # one module for all
        assert tilewright.compile("double.onnx")(np.ones((n, 3), np.float32)).shape == (n, 3)
    fixed = tilewright.compile("double.onnx", options=tilewright.Options(dims={"n": 2}))
    assert error(fixed, X) == (
        "InputError",
        "input 'x' has shape [1, 3]; the model takes f32[2, 3], so dimension 0 must be 2",
    )
    for size in ("1", 1.0, True):
        options = tilewright.Options(dims={"n": size})
        assert error(tilewright.compile, "double.onnx", options=options) == (
            "CompileError",
            (
                f"the dimension 'n' is {size!r}, and must be a whole number\n"
                '  hint: for example options=Options(dims={"batch": 1})'
            ),
        )
