"""Models that are not ONNX: what they are, and how to export them.

They are recognised by the names of a class and of its bases, by how a file begins and by what an
archive holds: none of the libraries that made them is imported, and nothing in a file is run.
"""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tilewright.base.errors import ModelError
from tilewright.frontends.names import shown


@dataclass(frozen=True)
class Foreign:
    """A kind of model. `does` is the rest of a sentence about it; `lines` export it, in Python or a
    shell, where `{name}` stands for the file."""

    does: str
    lines: tuple[str, ...]
    before: str = "export it to ONNX, and compile that:"

    def refusal(self, what: str, path: Path | None = None) -> ModelError:
        name = "" if path is None else shown(str(path))
        lines = "".join(f"\n    {line}".replace("{name}", name) for line in self.lines)
        return ModelError(f"{what} {self.does}", hint=self.before + lines)


COMPILE = 'module = tilewright.compile("model.onnx")'
TORCH_EXPORT = 'torch.onnx.export(model.eval(), (example_input,), "model.onnx", dynamo=True)'
KERAS_EXPORT = 'model.export("model.onnx", format="onnx")'

TORCH_MODULE = Foreign("is a PyTorch module, and tilewright reads ONNX", (TORCH_EXPORT, COMPILE))
KERAS_OBJECT = Foreign("is a Keras model, and tilewright reads ONNX", (KERAS_EXPORT, COMPILE))
TENSORFLOW_OBJECT = Foreign(
    "is a TensorFlow object, and tilewright reads ONNX",
    (
        'tf.saved_model.save(model, "saved_model")',
        "python -m tf2onnx.convert --saved-model saved_model --output model.onnx",
    ),
)
SESSION = Foreign(
    "is a session of ONNX Runtime, not a model",
    ('module = tilewright.compile("model.onnx")',),
    "give the file that the session was made from:",
)
COMPILED = Foreign(
    "is a compiled model: it is ready to run",
    ('module = tilewright.load("{name}")',),
    "load it, or compile what it was compiled from:",
)
TORCH_FILE = Foreign(
    "is a file of PyTorch's, which holds weights or a pickled module, and tilewright reads ONNX",
    (
        'model.load_state_dict(torch.load("{name}", weights_only=True))',
        TORCH_EXPORT,
    ),
    "make the module that it belongs to, export that, and compile model.onnx:",
)
TORCH_PROGRAM = Foreign(
    "is a program that torch.export saved, and tilewright reads ONNX",
    (
        'program = torch.export.load("{name}")',
        'torch.onnx.export(program, (), "model.onnx", dynamo=True)',
    ),
    "export it to ONNX, and compile model.onnx:",
)
SAFETENSORS = Foreign(
    "holds weights (safetensors) without the network they belong to, and tilewright reads ONNX",
    (
        'model.load_state_dict(safetensors.torch.load_file("{name}"))',
        TORCH_EXPORT,
    ),
    "make the module that it belongs to, export that, and compile model.onnx:",
)
KERAS_FILE = Foreign(
    "is a Keras model, and tilewright reads ONNX",
    ('model = keras.models.load_model("{name}")', KERAS_EXPORT),
    "export it to ONNX, and compile model.onnx:",
)
TFLITE = Foreign(
    "is a TensorFlow Lite model, and tilewright reads ONNX",
    ("pip install tf2onnx", "python -m tf2onnx.convert --tflite {name} --output model.onnx"),
    "convert it to ONNX, and compile model.onnx:",
)
SAVED_MODEL = Foreign(
    "is a TensorFlow SavedModel, and tilewright reads ONNX",
    ("pip install tf2onnx", "python -m tf2onnx.convert --saved-model {name} --output model.onnx"),
    "convert it to ONNX, and compile model.onnx:",
)
FROZEN_GRAPH = Foreign(
    "is no ONNX model; files of this name are often TensorFlow's frozen graphs",
    (
        "pip install tf2onnx",
        "python -m tf2onnx.convert --graphdef {name} --output model.onnx --inputs x:0 --outputs y",
    ),
    "convert it to ONNX, and compile model.onnx:",
)
GGUF = Foreign(
    "holds the weights of a language model for llama.cpp (GGUF), and tilewright reads ONNX",
    ("optimum-cli export onnx --model MODEL model",),
    "export the model that it was made from, and compile model/model.onnx:",
)
ORT = Foreign(
    "is in ONNX Runtime's own format, which only that reads",
    (COMPILE,),
    "give the .onnx file that it was made from:",
)
POINTER = Foreign(
    "is a pointer of Git LFS, not the model itself",
    ('git lfs pull --include "{name}"',),
    "fetch the file:",
)
WEB_PAGE = Foreign(
    "is a web page, not a model: the address that it came from does not lead to the file itself",
    ("curl -L -o {name} ADDRESS",),
    "download it anew from the address of the raw file:",
)
ARRAYS = Foreign(
    "holds arrays of numpy, not a model",
    ('module(numpy.load("{name}"))',),
    "compile the .onnx model, and call the module with them:",
)

# ---------------------------------------------------------------- objects

_MODULES = (  # the class of an object, or one it is derived from: its package and its name
    ("torch", "Module", TORCH_MODULE),
    ("torch", "ExportedProgram", TORCH_MODULE),
    ("keras", "Model", KERAS_OBJECT),
    ("tf_keras", "Model", KERAS_OBJECT),
    ("tensorflow", "", TENSORFLOW_OBJECT),
    ("onnxruntime", "InferenceSession", SESSION),
)


def refuse_object(model: object) -> ModelError:
    """What to say of an object that is no model of ours."""
    kind = type(model)
    name = f"{kind.__module__}.{kind.__qualname__}"
    for base in kind.__mro__:
        packages = base.__module__.split(".")
        for package, class_name, foreign in _MODULES:
            inside = package == packages[0] or (package == "keras" and "keras" in packages)
            if inside and class_name in ("", base.__name__):
                return foreign.refusal(f"the model, a {name},")
    given = repr(model) if isinstance(model, (int, float, str, type(None))) else f"a {name}"
    return ModelError(
        f"the model is {given}",
        hint="give the path of an .onnx file, its bytes, an onnx.ModelProto, or a Graph",
    )


# ---------------------------------------------------------------- files

_Test = Callable[[bytes], bool]


def _begins(*starts: bytes) -> _Test:
    return lambda data: data.startswith(starts)


def _at(offset: int, magic: bytes) -> _Test:
    return lambda data: data[offset : offset + len(magic)] == magic


def _is_safetensors(data: bytes) -> bool:
    """A length, and a header of JSON as long as that."""
    return data[8:10] == b'{"' and int.from_bytes(data[:8], "little") <= 100 << 20


def _holds(*ends: str) -> _Test:
    """A zip archive with a member whose name ends so."""

    def test(data: bytes) -> bool:
        if not data.startswith(b"PK"):
            return False
        try:
            names = zipfile.ZipFile(BytesIO(data)).namelist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            return False
        return any(name.endswith(ends) for name in names)

    return test


_CONTENTS: tuple[tuple[_Test, Foreign], ...] = (
    (_begins(b"\x89TW\r\n"), COMPILED),
    (_begins(b"version https://git-lfs"), POINTER),
    (_begins(b"<!DOCTYPE html", b"<!doctype html", b"<html"), WEB_PAGE),
    (_begins(b"\x89HDF\r\n\x1a\n"), KERAS_FILE),
    (_begins(b"GGUF"), GGUF),
    (_begins(b"\x93NUMPY"), ARRAYS),
    (_at(4, b"TFL3"), TFLITE),
    (_at(4, b"ORTM"), ORT),
    (_is_safetensors, SAFETENSORS),
    (_holds("model.weights.h5"), KERAS_FILE),
    (_holds("serialized_exported_program.json", "models/model.json"), TORCH_PROGRAM),
    (_holds("data.pkl", "constants.pkl"), TORCH_FILE),
    (_holds(".npy"), ARRAYS),
)
_ENDINGS = {
    ".pt": TORCH_FILE,
    ".pth": TORCH_FILE,
    ".ckpt": TORCH_FILE,
    ".pt2": TORCH_PROGRAM,
    ".safetensors": SAFETENSORS,
    ".h5": KERAS_FILE,
    ".hdf5": KERAS_FILE,
    ".keras": KERAS_FILE,
    ".tflite": TFLITE,
    ".gguf": GGUF,
    ".ort": ORT,
    ".tw": COMPILED,
    ".pb": FROZEN_GRAPH,
}


def refuse_folder(path: Path) -> ModelError | None:
    """What to say of a folder, if it is a model of another kind."""
    if (path / "saved_model.pb").is_file() or (path / "saved_model.pbtxt").is_file():
        return SAVED_MODEL.refusal(repr(shown(path.name)), path)
    found = sorted(p.name for p in path.glob("*.onnx"))
    if found:
        return ModelError(
            f"{shown(path.name or str(path))!r} is a folder, which holds {shown(', '.join(found))}",
            hint=f"give the file: {shown(str(path / found[0]))}",
        )
    return None


def refuse_content(data: bytes, what: str, path: Path) -> ModelError | None:
    """What to say of bytes that begin as a model of another kind does."""
    for test, foreign in _CONTENTS:
        if test(data):
            return foreign.refusal(what, path)
    return None


def refuse_ending(what: str, path: Path) -> ModelError | None:
    """What to say of a file that does not parse, by its name."""
    foreign = _ENDINGS.get(path.suffix.lower())
    return None if foreign is None else foreign.refusal(what, path)


def nearest_file(path: Path) -> Path | None:
    """The file beside it whose name is most like that of one that is not there, endings apart."""
    try:
        stems = {p.stem: p for p in sorted(path.parent.iterdir())}
    except OSError:
        return None
    near = difflib.get_close_matches(path.stem, list(stems), n=1)
    return stems[near[0]] if near else None
