"""ONNX models as graphs: opset 7 and later, and much of what came before.

    load → check → inputs and constants → nodes, one by one → graph

Each operator has a small function in one of the tables of onnx_*.py. Operators without one are
replaced by the body that ONNX or the model defines for them. What cannot be imported is refused
with a ModelError that names the node; no other exception comes out, whatever the file holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tilewright.base.errors import ModelError
from tilewright.frontends.foreign import (
    nearest_file,
    refuse_content,
    refuse_ending,
    refuse_folder,
    refuse_object,
)
from tilewright.frontends.names import shown
from tilewright.frontends.onnx.check import check_texts
from tilewright.frontends.onnx.model import ModelImporter
from tilewright.frontends.onnx.split_weights import without_weights
from tilewright.frontends.onnx.tensor import Files
from tilewright.ir.graph import Graph, Value

LARGEST_FILE = (1 << 31) - 1
READ_BYTES, READ_TIMES = 32 << 20, 3  # protobuf ends the process without so much memory
START = 1 << 16  # bytes that tell what kind of file a larger one is


class ModelMessage(Protocol):
    """What an onnx.ModelProto is to a type checker: protobuf's own classes have no types."""

    def SerializeToString(self) -> bytes: ...


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read, and where the tensors are that are not in it."""

    proto: onnx.ModelProto
    files: Files = field(default_factory=Files)


ModelSource = str | os.PathLike[str] | bytes | ModelMessage | LoadedModel

Require = Callable[[int, str], None]


def import_model(
    model: ModelSource,
    *,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    half_up: bool = False,
) -> Graph:
    """The graph of an ONNX model: a path, the file's bytes, or a loaded model.

    `dims` gives numbers for symbolic dimensions, by name. A dimension without a name is called
    after its input and axis: `x_0`. `constants` gives the contents of inputs that are the same in
    every call, such as the target shape of a reshape; the graph does not have these inputs. Where
    shapes depend on the contents of others, the ContentsError names them. With `half_up`,
    quantisation rounds halves up, where ONNX rounds them to even (docs/semantics.md).
    Initializers in other files are read from the model's folder.
    """
    loaded = load_model(model)
    check_texts(loaded.proto)
    given = dims or {}, constants or {}
    try:
        return ModelImporter(loaded.proto, loaded.files, *given, half_up=half_up).run()
    except ModelError:  # it may mean dimensions not to be 0
        return ModelImporter(loaded.proto, loaded.files, *given, least=1, half_up=half_up).run()


def import_inputs(
    model: ModelSource, *, dims: Mapping[str, int] | None = None
) -> tuple[Value, ...]:
    """The inputs that the graph of a model has, or would have if the rest can be imported."""
    loaded = load_model(model)
    check_texts(loaded.proto)
    return ModelImporter(loaded.proto, loaded.files, dims or {}, {}).inputs()


# ---------------------------------------------------------------- loading


def load_model(
    model: object, require: Require = lambda size, purpose: None, *, whole: bool = False
) -> LoadedModel:
    """The model, read from its file or bytes. Large weights stay in the file, which must not be
    written to while they are used, but for `whole` models. `require` is told how many bytes of
    memory it takes and what for, before it does."""
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, onnx.ModelProto):
        return LoadedModel(model)
    if isinstance(model, bytes):
        return LoadedModel(_parse(model, "the model given as bytes", Path("model")))
    if not isinstance(model, (str, os.PathLike)) or model == "":
        raise refuse_object(model)
    path = Path(model)
    what = repr(shown(path.name))
    if not whole and (split := _split(path)) is not None:
        data, own = split
        return LoadedModel(_parse(data, what, path), Files(path.parent, own))
    data = _read(path, what, require)
    if not data:
        raise ModelError(f"{what} is empty", hint="was it written to the end?")
    return LoadedModel(_parse(data, what, path), Files(path.parent))


def _split(path: Path) -> tuple[bytes, memoryview] | None:
    """A regular file's model without its large weights, and the file's content, mapped."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        with open(path, "rb") as file:
            mapped = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
    except (OSError, ValueError):  # no file, or an empty one: what is wrong is said elsewhere
        return None
    small = without_weights(mapped)
    return None if small is None else (small, mapped)


def _read(path: Path, what: str, require: Require) -> bytes:
    try:
        if path.is_dir() and (refusal := refuse_folder(path)):
            raise refusal
        status = path.stat()
        if stat.S_ISCHR(status.st_mode):  # it may never end
            raise ModelError(
                f"{shown(str(path))!r} is a device, not a file",
                hint="give the path of an .onnx file, or pipe the model in: … | tilewright run"
                " /dev/stdin",
            )
        is_large = status.st_size > LARGEST_FILE
        with open(path, "rb") as file:
            if stat.S_ISREG(status.st_mode):
                size = START if is_large else status.st_size
                require(READ_BYTES + READ_TIMES * size, f"reading {path}")
                data = file.read(size)
            else:
                data = _read_pipe(file)
                is_large = len(data) > LARGEST_FILE
        if is_large:
            raise refuse_content(data, what, path) or ModelError(
                f"{what} is larger than 2 GiB, which protobuf cannot read",
                hint="save the model with its weights as external data",
            )
        return data
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        near = nearest_file(path) if isinstance(error, FileNotFoundError) else None
        hint = f"did you mean {shown(str(near))!r}?" if near else None
        raise ModelError(f"cannot read {shown(str(path))!r}: {why}", hint=hint) from None


def _read_pipe(file: BinaryIO) -> bytes:
    """What a pipe brings, but not much more than a model can have: it may never end."""
    data = bytearray()
    while len(data) <= LARGEST_FILE and (part := file.read(START)):
        data += part
    return bytes(data)


def _parse(data: bytes, what: str, path: Path) -> onnx.ModelProto:
    if refusal := refuse_content(data, what, path):
        raise refusal
    try:
        found: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise refuse_ending(what, path) or ModelError(
            f"{what} is not an ONNX model, or is damaged",
            hint="it does not parse as a ModelProto message: was the file cut short?",
        ) from None
    if not found.HasField("graph") and (refusal := refuse_ending(what, path)):
        raise refusal
    return found
