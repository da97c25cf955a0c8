"""Machine code for AArch64, run under an emulator (Unicorn, which is QEMU's).

    (y,) = run_aarch64(kernel, target, [x])

The object file is placed in the emulator's memory and relocated here. Every buffer lies in pages of
its own, so that what is read or written far beside them ends the run.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection
from unicorn import UC_ARCH_ARM64, UC_HOOK_CODE, UC_MODE_ARM, Uc
from unicorn import arm64_const as reg

from tilewright.backends.native import passes as backends
from tilewright.ir.evaluate import evaluate_dim, poisoned
from tilewright.ir.loop import Kernel, symbols
from tilewright.target.target import Target

PAGE = 1 << 12
CODE, STACK, DATA = 0x10_0000, 0x4000_0000, 0x5000_0000
STACK_SIZE = 1 << 20
RETURN = 0x1000  # where the kernel returns to
MASK = (1 << 64) - 1
LOADS = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # relocations of low bits: their scale
PAGE_OF, LOW = 275, 277  # ADR_PREL_PG_HI21, ADD_ABS_LO12_NC
CALLS = (282, 283)  # JUMP26, CALL26
ABSOLUTE, RELATIVE = 257, 261  # ABS64, PREL32
LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))
OF_TWO = ("pow", "powf", "atan2", "atan2f", "fmod", "fmodf", "remainder")


class Image:
    """An object file in memory: sections one behind the other, relocated."""

    def __init__(self, data: bytes) -> None:
        self.elf = ELFFile(io.BytesIO(data))
        self.places: dict[int, int] = {}
        undefined = (s for s in self._table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF")
        names = [s.name for s in undefined if s.name]
        self.outside = {name: RETURN + PAGE * (k + 1) for k, name in enumerate(names)}
        at = CODE
        sections = list(self.elf.iter_sections())
        for k, s in enumerate(sections):
            if s["sh_flags"] & 2:  # takes memory
                at += -at % max(1, s["sh_addralign"])
                self.places[k] = at
                at += s["sh_size"]
        self.memory = bytearray(at - CODE)
        for k, start in self.places.items():
            content = sections[k].data()
            self.memory[start - CODE : start - CODE + len(content)] = content
        for s in sections:
            if isinstance(s, RelocationSection) and s["sh_info"] in self.places:
                for r in s.iter_relocations():
                    self._relocate(s, r)

    @property
    def _table(self) -> SymbolTableSection:
        return next(s for s in self.elf.iter_sections() if isinstance(s, SymbolTableSection))

    def address(self, symbol: Any) -> int:
        if symbol["st_shndx"] == "SHN_UNDEF":
            return self.outside[symbol.name]
        return self.places[symbol["st_shndx"]] + symbol["st_value"]

    def function(self, name: str) -> int:
        (found,) = self._table.get_symbol_by_name(name)
        return self.address(found)

    def _relocate(self, section: RelocationSection, r: Any) -> None:
        at = self.places[section["sh_info"]] + r["r_offset"]
        value = self.address(self._table.get_symbol(r["r_info_sym"])) + r["r_addend"]
        kind = r["r_info_type"]
        if kind in (ABSOLUTE, RELATIVE):
            value -= at if kind == RELATIVE else 0
            size = 8 if kind == ABSOLUTE else 4
            self._put(at, (value & MASK).to_bytes(8, "little")[:size])
            return
        word = int.from_bytes(self.memory[at - CODE : at - CODE + 4], "little")
        if kind == PAGE_OF:
            pages = (value // PAGE - at // PAGE) & 0x1F_FFFF
            word |= (pages & 3) << 29 | (pages >> 2) << 5
        elif kind in LOADS:
            word |= ((value % PAGE) >> LOADS[kind]) << 10
        elif kind in CALLS:
            word |= (value - at) >> 2 & 0x3FF_FFFF
        else:
            raise ValueError(
                f"{section.name} has a relocation of kind {kind}, which is not one of those"
            )
        self._put(at, word.to_bytes(4, "little"))

    def _put(self, at: int, content: bytes) -> None:
        self.memory[at - CODE : at - CODE + len(content)] = content


class Machine:
    """An emulated processor with an image. What that calls outside is done here."""

    def __init__(self, data: bytes) -> None:
        self.image = Image(data)
        self.uc = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
        self.uc.ctl_set_cpu_model(reg.UC_CPU_ARM64_MAX)
        self.uc.mem_map(RETURN & -PAGE, PAGE * (len(self.image.outside) + 2))
        self.uc.mem_map(CODE, _pages(len(self.image.memory)))
        self.uc.mem_write(CODE, bytes(self.image.memory))
        self.uc.mem_map(STACK, STACK_SIZE)
        enable_vectors = 3 << 20
        self.uc.reg_write(reg.UC_ARM64_REG_CPACR_EL1, enable_vectors)
        for name, at in self.image.outside.items():
            self.uc.mem_write(at, (0xD65F03C0).to_bytes(4, "little"))  # ret
            self.uc.hook_add(UC_HOOK_CODE, self._called, name, at, at)
        self.next = DATA

    def buffer(self, content: bytes) -> int:
        """Memory between pages that are not there."""
        at = self.next
        size = _pages(max(1, len(content)))
        self.uc.mem_map(at, size)
        self.uc.mem_write(at, content)
        self.next += size + PAGE
        return at

    def call(self, name: str, arguments: Sequence[int]) -> None:
        """A call: eight arguments are in registers, others on the stack (AAPCS64, 6.8)."""
        stack = STACK + STACK_SIZE - PAGE
        for k, value in enumerate(arguments):
            if k < 8:
                self.uc.reg_write(reg.UC_ARM64_REG_X0 + k, value & MASK)
            else:
                self.uc.mem_write(stack + 8 * (k - 8), (value & MASK).to_bytes(8, "little"))
        self.uc.reg_write(reg.UC_ARM64_REG_SP, stack)
        self.uc.reg_write(reg.UC_ARM64_REG_LR, RETURN)
        self.uc.emu_start(self.image.function(name), RETURN)

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.uc.mem_read(at, size))

    def _called(self, uc: Uc, _address: int, _size: int, name: str) -> None:
        to, source, size = (uc.reg_read(reg.UC_ARM64_REG_X0 + k) for k in range(3))
        if name == "memset":
            uc.mem_write(to, bytes([source & 255]) * size)
        elif name in ("memcpy", "memmove"):
            uc.mem_write(to, bytes(uc.mem_read(source, size)))
        else:
            self._mathematics(name)

    def _mathematics(self, name: str) -> None:
        """A function of the mathematics library: this machine's."""
        kind = ctypes.c_float if name.endswith("f") else ctypes.c_double
        function = getattr(LIBRARY, name)
        function.restype, function.argtypes = kind, [kind] * (2 if name in OF_TWO else 1)
        given = [
            kind.from_buffer_copy(self.uc.reg_read(reg.UC_ARM64_REG_D0 + k).to_bytes(8, "little"))
            for k in range(len(function.argtypes))
        ]
        found = int.from_bytes(bytes(kind(function(*given))), "little")
        self.uc.reg_write(reg.UC_ARM64_REG_D0, found)


def run_aarch64(
    kernel: Kernel, target: Target, inputs: Sequence[np.ndarray], **values: int
) -> Iterator[np.ndarray]:
    """The kernel's results, compiled for `target` by its passes; `values` are those of symbols."""
    lowered = backends.lower(kernel, target, None, verify=True)
    machine = Machine(backends.to_object(backends.to_llvm(lowered, target), target))
    made = [
        poisoned(tuple(evaluate_dim(d, values) for d in b.shape), b.dtype)
        for b in (*kernel.outputs, *lowered.scratch)
    ]
    places = [machine.buffer(np.ascontiguousarray(a).tobytes()) for a in (*inputs, *made)]
    machine.call(lowered.name, [0, *places, *(values[s.name] for s in symbols(lowered))])
    for place, array in zip(places[len(inputs) :], made[: len(kernel.outputs)], strict=False):
        data = machine.read(place, array.nbytes)
        yield np.frombuffer(bytearray(data), array.dtype).reshape(array.shape)


def _pages(size: int) -> int:
    return size + -size % PAGE
