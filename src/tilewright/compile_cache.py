"""What was compiled once and need not be compiled again: whole models, and single kernels, which
models share. `tilewright cache` shows it; docs/cache.md says what keys are made of."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError, Message

from tilewright.assemble import CompiledKernel, target_facts
from tilewright.backends.devices import Devices
from tilewright.backends.table import spec_of
from tilewright.base.digest import NoDigestError, digest
from tilewright.base.errors import TilewrightError
from tilewright.base.version import VERSION
from tilewright.frontends.onnx.load import LoadedModel
from tilewright.frontends.onnx.tensor import Files
from tilewright.ir.expr import Symbol
from tilewright.ir.loop import format_signature
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.loop import parse_kernel
from tilewright.options import Options
from tilewright.runtime.cache import Cache
from tilewright.runtime.container import read_program, write_program
from tilewright.runtime.program import Program, TargetFacts
from tilewright.target.pairs import selectable
from tilewright.target.target import Target

KERNEL, MODEL = "kernel", "tw"  # kinds of entries
_CHUNK = 1 << 20
_LOCATION = b"location"  # stands in every model that has weights in other files


@functools.cache
def compiler_version() -> bytes:
    """Digest of all that takes part in compiling beside what is compiled: this package as it lies
    on the disk, and the libraries that make decisions or code."""
    root = Path(__file__).parent
    found = hashlib.sha256(VERSION.encode())
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".so")):
        data = path.read_bytes()
        found.update(f"\n{path.relative_to(root)} {len(data)}\n".encode() + data)
    for name in ("llvmlite", "numpy", "onnx", "islpy"):
        try:
            found.update(f"\n{name} {version(name)}".encode())
        except PackageNotFoundError:  # it came without its record
            found.update(f"\n{name}".encode())
    return found.digest()


# ---------------------------------------------------------------- kernels


def kept_kernel(
    cache: Cache,
    name: str,
    program: TensorProgram,
    layouts: Mapping[str, Layout],
    target: Target,
    make: Callable[[str], CompiledKernel],
) -> CompiledKernel:
    """The kernel as it was kept, or as `make` compiles it under a symbol that is its own in every
    model; what cannot be kept has its name as the symbol."""
    found = find_kernel(cache, name, program, layouts, target)
    if found is not None:
        return found
    key = kernel_key(program, layouts, target)
    if key is None:
        return make(name)
    kernel = make(f"{program.name}_{key.hex()[:16]}")
    cache.write(KERNEL, key, encode_kernel(kernel))
    return kernel


def find_kernel(
    cache: Cache,
    name: str,
    program: TensorProgram,
    layouts: Mapping[str, Layout],
    target: Target,
) -> CompiledKernel | None:
    """The kernel, if it was kept."""
    key = kernel_key(program, layouts, target)
    data = None if key is None else cache.read(KERNEL, key)
    return None if data is None else decode_kernel(data, name, program, target)


def kernel_key(
    program: TensorProgram, layouts: Mapping[str, Layout], target: Target
) -> bytes | None:
    """What a kernel's code follows from; its name does not matter, nor how fast a processor's clock
    is. None if the target is described with functions."""
    try:
        return digest((compiler_version(), program.with_(name=""), layouts, _facts(target)))
    except NoDigestError:
        return None


def _facts(target: Target) -> Target:
    """What decides. The clock of this machine is measured, and a little different every time."""
    return target if target.native is None else replace(target, name="", clock=1.0)


def decode_kernel(data: bytes, name: str, program: TensorProgram, target: Target) -> CompiledKernel:
    """The kernel that `encode_kernel` wrote."""
    size = struct.unpack_from("<I", data)[0]
    facts = json.loads(data[4 : 4 + size])
    return CompiledKernel(
        name,
        target,
        program,
        facts["symbol"],
        parse_kernel(facts["signature"]),
        tuple(Symbol(*s) for s in facts["symbols"]),
        data[4 + size :],
        frozenset(facts["never_empty"]),
        facts["fallback"],
        next((i for i in selectable(target) if i.name == facts["instruction"]), None),
    )


def encode_kernel(kernel: CompiledKernel) -> bytes:
    """What was compiled, as bytes: a header of JSON and the object."""
    facts: dict[str, Any] = {
        "symbol": kernel.symbol,
        "signature": format_signature(kernel.signature) + "\n    pass",
        "symbols": [(s.name, s.lower, s.upper) for s in kernel.symbols],
        "never_empty": sorted(kernel.never_empty),
        "fallback": kernel.fallback,
        "instruction": kernel.instruction and kernel.instruction.name,
    }
    head = json.dumps(facts).encode()
    return struct.pack("<I", len(head)) + head + kernel.object


# ---------------------------------------------------------------- models


@dataclass(frozen=True)
class CachedModel:
    """The place of one compiled model. `files` are those that it was read from, as they were."""

    cache: Cache
    key: bytes
    files: Mapping[Path, tuple[int, ...]]
    target: TargetFacts  # of the machine as it is now

    def read(self) -> Program | None:
        """The program, its constants mapped."""
        found = self.cache.load(MODEL, self.key, read_program)
        return None if found is None else replace(found, target=self.target)

    def write(self, program: Program) -> Program:
        """Keeps it, unless the model's files were changed meanwhile. Returns the program as it lies
        in the file, or as it was given where there is none."""
        size = sum(c.nbytes for c in program.constants)
        if size > self.cache.limit // 2 or any(file_state(p) != s for p, s in self.files.items()):
            return program
        path = self.cache.place(MODEL, self.key, lambda p: write_program(p, program, flush=False))
        try:
            return program if path is None else read_program(path, verify=False)
        except TilewrightError:  # removed by another process
            return program


def cached_model(
    cache: Cache, model: object, devices: Devices, options: Options
) -> CachedModel | None:
    """Where the compiled model would be; None if it cannot be told what it depends on."""
    if not devices.called or any(
        s.backend is not spec_of(s.target).backend for s in devices.specs.values()
    ):
        return None
    try:
        read = _read_path(model) if isinstance(model, (str, os.PathLike)) else _read_model(model)
        if read is None:
            return None
        contents, files = read
        facts = [(name, t.name, _facts(t)) for name, t in devices.targets.items()]
        key = digest((compiler_version(), contents, facts, options))
    except (NoDigestError, OSError, ValueError, EncodeError, DecodeError):
        return None
    return CachedModel(cache, key, files, target_facts(devices.host_target))


_Read = tuple[
    list[bytes], dict[Path, tuple[int, ...]]
]  # digests of contents, and the files' states


def _read_path(path: str | os.PathLike[str]) -> _Read | None:
    """What a file holds, and those beside it with its weights."""
    place = Path(path)
    state = file_state(place)
    if state is None:
        return None
    found, is_split = _file_digest(place)
    if not is_split:
        return [found], {place: state}
    return _with_others(
        LoadedModel(onnx.load(place, load_external_data=False), Files(place.parent)), found
    )


def _read_model(model: object) -> _Read | None:
    """The same of a model that was read."""
    if isinstance(model, bytes):
        return [hashlib.sha256(model).digest()], {}
    if isinstance(model, onnx.ModelProto):
        model = LoadedModel(model)
    if not isinstance(model, LoadedModel):
        return None
    data = model.proto.SerializeToString(deterministic=True)
    return _with_others(model, hashlib.sha256(data).digest())


def _with_others(model: LoadedModel, first: bytes) -> _Read | None:
    digests, states = [first], {}
    for name in sorted(set(_locations(model.proto))):
        path = None if model.files.folder is None else model.files.folder / name
        state = None if path is None else file_state(path)
        if path is None or state is None:
            return None  # the import says what is wrong
        digests += [name.encode(), _file_digest(path)[0]]
        states[path] = state
    return digests, states


def _locations(message: Message) -> Iterator[str]:
    """The files that a model names."""
    for kind, value in message.ListFields():
        if kind.message_type is None:
            continue
        for part in [value] if isinstance(value, Message) else value:
            if isinstance(part, onnx.TensorProto):
                yield from (e.value for e in part.external_data if e.key == "location")
            elif isinstance(part, Message):
                yield from _locations(part)


def file_state(path: object) -> tuple[int, ...] | None:
    """What changes with a file's contents; None for what is no path of a file."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _file_digest(path: Path) -> tuple[bytes, bool]:
    """SHA-256 of a file, and whether it may name others."""
    found, names_others, before = hashlib.sha256(), False, b""
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
            names_others = names_others or _LOCATION in data or _LOCATION in before + data[:16]
            before = data[-16:]
    return found.digest(), names_others
