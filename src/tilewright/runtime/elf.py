"""Just enough of ELF to look before we link: the machine, and what an object defines and needs.

The linker in LLVM takes what it is given on trust. An object that is damaged, or that calls a
function that nobody has, is better refused here, with a name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.base.errors import ArtifactError

MACHINES = {  # e_machine: (LLVM's architecture names)
    62: ("x86_64",),
    183: ("aarch64", "arm64"),
    243: ("riscv64",),
    22: ("s390x",),
    21: ("powerpc64", "powerpc64le", "ppc64le"),
}
_TABLE = "_GLOBAL_OFFSET_TABLE_"  # made by the linker
_SYMTAB = 2
_RELOCATABLE = 1
_HEADER = struct.Struct("HHIQQQIHHHHHH")
_SECTION = struct.Struct("IIQQQQIIQQ")
_SYMBOL = struct.Struct("IBBHQQ")


@dataclass(frozen=True)
class ObjectFacts:
    architectures: tuple[str, ...]  # names of the one it is for
    defined: frozenset[str]  # global functions and data
    undefined: frozenset[str]


def read_object(name: str, data: bytes) -> ObjectFacts:
    """The facts of a 64-bit relocatable object file; ArtifactError if it is not one."""
    if data[:4] != b"\x7fELF" or len(data) < 16 + _HEADER.size or data[4] != 2:
        raise ArtifactError(f"object {name!r} is not a 64-bit ELF file")
    order = "<" if data[5] == 1 else ">"
    try:
        kind, machine, *rest = struct.unpack_from(order + _HEADER.format, data, 16)
        if kind != _RELOCATABLE:
            raise ArtifactError(f"object {name!r} is an ELF file that is not an object file")
        sections = list(_sections(data, order, rest[3], rest[8], rest[9]))
        defined, undefined = _symbols(data, order, sections)
    except (struct.error, IndexError, ValueError):
        raise ArtifactError(f"object {name!r} is damaged") from None
    return ObjectFacts(MACHINES.get(machine, ()), frozenset(defined), frozenset(undefined))


def _sections(
    data: bytes, order: str, offset: int, entry: int, count: int
) -> Iterator[tuple[int, ...]]:
    """(name, type, flags, address, offset, size, link, …) of each section."""
    for i in range(count):
        section = struct.unpack_from(order + _SECTION.format, data, offset + i * entry)
        if section[1] != 8 and section[4] + section[5] > len(data):  # 8: takes no room in the file
            raise ValueError
        yield section


def _symbols(data: bytes, order: str, sections: list[tuple[int, ...]]) -> tuple[set[str], set[str]]:
    defined: set[str] = set()
    undefined: set[str] = set()
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        names = sections[section[6]]
        text = data[names[4] : names[4] + names[5]]
        for at in range(section[4], section[4] + section[5], _SYMBOL.size):
            start, info, _, index, _, _ = struct.unpack_from(order + _SYMBOL.format, data, at)
            name = text[start : text.index(b"\0", start)].decode()
            if name and name != _TABLE and info >> 4 != 0:  # 0: local
                (defined if index else undefined).add(name)
    return defined, undefined
