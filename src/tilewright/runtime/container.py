"""The .tw file: a header of JSON, then sections of object code and constants. See docs/artifact.md.

0   magic                                             8 bytes
8   version of the format                             u32
12  size of the header                                u32
16  size of the file                                  u64
24  SHA-256 of the bytes before this and the header   32 bytes
64  header; then, from the next page on, the sections
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.program.host_program import HostProgram, MemoryKind
from tilewright.runtime.atomic import Sink, write_atomically
from tilewright.runtime.program import DevicePart, Program, StepFacts, TargetFacts, checked
from tilewright.runtime.records import from_json, to_json

MAGIC = b"\x89TW\r\n\x1a\n\x00"  # like PNG's: a transfer that changes line ends breaks it
OLDEST, VERSION = 3, 3  # of the formats that are read; the last is written
SECTIONS = ("object", "part", "constants")
CHUNK = 1 << 20  # constants have a checksum for each so many bytes

_START = struct.Struct("<8sIIQ32s")
_SIGNED = 24  # bytes at the start that the digest covers, besides the header
_HEADER_AT = 64
_LINE, _PAGE = 64, 4096


@dataclass(frozen=True, slots=True)
class FileSection:
    """`offset` is counted from the first page after the header."""

    kind: str  # "object", "part" or "constants"
    name: str
    offset: int
    size: int
    sha256: str  # of an object or a part's file; empty for constants
    crc32: tuple[int, ...]  # of each chunk of constants


@dataclass(frozen=True, slots=True)
class DeviceOf:
    """Whose files the sections "part" with its number are."""

    device: str
    kind: str


@dataclass(frozen=True, slots=True)
class Header:
    compiler: str
    byte_order: str
    target: TargetFacts
    entry: str
    host: HostProgram
    steps: tuple[StepFacts, ...]
    parts: tuple[DeviceOf, ...]
    sections: tuple[FileSection, ...]


# ---------------------------------------------------------------- writing


def write_program(path: str | Path, program: Program, *, flush: bool = True) -> int:
    """Writes a file that `read_program` reads: all of it, or nothing. Returns its size in bytes.
    Without `flush` that holds as long as the machine does not go down."""
    parts = [("object", name, memoryview(data)) for name, data in program.objects]
    for number, part in enumerate(program.parts):
        for name, content in part.files:
            parts.append(("part", f"{number}/{name}", memoryview(content)))
    for memory, data in zip(
        program.host.of_kind(MemoryKind.CONSTANTS), program.constants, strict=True
    ):
        parts.append(("constants", memory.name, data.reshape(-1).view(np.uint8).data))
    sections = list(_place(parts))
    header = _header(program, sections)
    start = _first_page(len(header))
    total = start + max((s.offset + s.size for s in sections), default=0)
    prefix = _START.pack(MAGIC, VERSION, len(header), total, b"")[:_SIGNED]

    def fill(sink: Sink) -> None:
        sink.write((prefix + hashlib.sha256(prefix + header).digest()).ljust(_HEADER_AT, b"\0"))
        sink.write(header.ljust(start - _HEADER_AT, b"\0"))
        at = 0
        for section, (_, _, data) in zip(sections, parts, strict=True):
            sink.write(bytes(section.offset - at))
            sink.write(data)
            at = section.offset + section.size

    return write_atomically(Path(path), fill, flush=flush)


def _place(parts: Sequence[tuple[str, str, memoryview]]) -> Iterator[FileSection]:
    """One section after the other; constants on pages of their own, since they are mapped."""
    at = 0
    for kind, name, data in parts:
        constant = kind == "constants"
        at = _round_up(at, _PAGE if constant else _LINE)
        digest = "" if constant else hashlib.sha256(data).hexdigest()
        yield FileSection(
            kind, name, at, data.nbytes, digest, tuple(_sums(data)) if constant else ()
        )
        at += data.nbytes


def _header(program: Program, sections: Sequence[FileSection]) -> bytes:
    header = Header(
        program.compiler,
        sys.byteorder,
        program.target,
        program.entry,
        program.host,
        program.steps,
        tuple(DeviceOf(p.device, p.kind) for p in program.parts),
        tuple(sections),
    )
    return json.dumps(to_json(header), separators=(",", ":"), ensure_ascii=False).encode()


def _sums(data: memoryview) -> Iterator[int]:
    for at in range(0, data.nbytes, CHUNK):
        yield zlib.crc32(data[at : at + CHUNK])


def _first_page(header_size: int) -> int:
    return _round_up(_HEADER_AT + header_size, _PAGE)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# ---------------------------------------------------------------- reading


def read_program(path: str | Path, *, verify: bool = True) -> Program:
    """The program in a file, its constants mapped read-only; ArtifactError if it is not whole.

    Without `verify` constants are not read until the model is; all else is always checked.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header_size = _check_start(path, file.read(_HEADER_AT), size)
            file.seek(0)
            beginning = file.read(_HEADER_AT + header_size)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None
    digest = hashlib.sha256(beginning[:_SIGNED] + beginning[_HEADER_AT:]).digest()
    if digest != beginning[_SIGNED : _SIGNED + len(digest)]:
        raise _damaged(path, "its header is not what was written")
    try:
        header = from_json(Header, json.loads(beginning[_HEADER_AT:]), "header")
        if header.byte_order == sys.byteorder:
            data = memoryview(mapped)[_first_page(header_size) :]
            return _read_parts(header, data, verify)
    except (ValueError, RecursionError):
        raise _damaged(path, "its header cannot be read") from None
    except ArtifactError as error:
        raise _damaged(path, error.what) from None
    raise ArtifactError(f"{path} is for machines whose numbers are {header.byte_order}-endian")


def is_program(path: str | Path) -> bool:
    """Whether a file begins as a compiled model does. What is read from a pipe would be gone."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def _check_start(path: str | Path, start: bytes, size: int) -> int:
    """The header's size, if the first bytes are those of a file that we can read."""
    if start[: len(MAGIC)] != MAGIC:
        if start[:3] == MAGIC[:3] and size >= len(MAGIC):
            raise _damaged(path, "a transfer has changed its line ends")
        raise ArtifactError(
            f"{path} is not a compiled model", hint="`tilewright compile` makes .tw files"
        )
    if len(start) < _HEADER_AT:
        raise _damaged(path, f"it ends after {size} bytes")
    _, version, header_size, total, _ = _START.unpack_from(start)
    if version > VERSION:
        raise ArtifactError(
            f"{path} has format {version}, and this version of tilewright reads {_formats()}",
            hint="load it with a newer tilewright, or compile the model again",
        )
    if version < 1:
        raise _damaged(path, "it has no format version")
    if version < OLDEST:
        raise ArtifactError(
            f"{path} has format {version}, and this version of tilewright reads {_formats()}",
            hint="compile the model again, or load it with the tilewright that made it",
        )
    if size != total:
        raise _damaged(path, f"it has {size} of {total} bytes")
    if _HEADER_AT + header_size > size:
        raise _damaged(path, "its header is larger than the file")
    return int(header_size)


def _formats() -> str:
    return f"format {VERSION}" if OLDEST == VERSION else f"formats {OLDEST} to {VERSION}"


def _damaged(path: str | Path, how: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {how}", hint="copy or compile it again")


def _read_parts(header: Header, data: memoryview, verify: bool) -> Program:
    """The program; `data` begins where the sections do. Errors say what is damaged."""
    objects, constants = [], {}
    files: dict[str, list[tuple[str, bytes]]] = {}
    for section in header.sections:
        content = data[max(0, section.offset) : max(0, section.offset) + section.size]
        if section.kind not in SECTIONS:
            raise ArtifactError(f"section {section.name!r} is of kind {section.kind!r}")
        if section.offset < 0 or len(content) != section.size:
            raise ArtifactError(f"{section.kind} {section.name!r} lies outside the file")
        if section.kind == "constants":
            if verify:
                _check_sums(section, content)
            constants[section.name] = np.frombuffer(content, np.uint8)
            continue
        if hashlib.sha256(content).hexdigest() != section.sha256:
            raise ArtifactError(f"{section.kind} {section.name!r} is not what was written")
        if section.kind == "object":
            objects.append((section.name, bytes(content)))
        else:
            number, _, name = section.name.partition("/")
            files.setdefault(number, []).append((name, bytes(content)))
    return Program(
        checked(header.host, header.steps),
        header.steps,
        header.target,
        tuple(objects),
        tuple(_constants(header.host, constants)),
        header.compiler,
        header.entry,
        parts=tuple(
            DevicePart(p.device, p.kind, tuple(files.get(str(number), ())))
            for number, p in enumerate(header.parts)
        ),
    )


def _check_sums(section: FileSection, content: memoryview) -> None:
    found = tuple(_sums(content))
    if len(found) != len(section.crc32):
        raise ArtifactError(
            f"constants {section.name!r} have {len(section.crc32)} checksums for {len(found)} MiB"
        )
    for i, (one, other) in enumerate(zip(found, section.crc32, strict=True)):
        if one != other:
            raise ArtifactError(f"MiB {i} of constants {section.name!r} is not what was written")


def _constants(program: HostProgram, found: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    for memory in program.of_kind(MemoryKind.CONSTANTS):
        if memory.name not in found or found[memory.name].size != memory.size:
            raise ArtifactError(f"constants {memory.name!r} are missing or of another size")
        yield found[memory.name]
