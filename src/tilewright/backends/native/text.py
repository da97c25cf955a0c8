"""Writing LLVM IR: one function at a time, as lines of text, with typed values.

Text because it is what LLVM documents, and because building it is many times faster than building
objects that print themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType, Kind, f32, f64

# Other float types are held as their bits: lower/expand_f8.py, llvm_convert.py.
_FLOATS = {"f64": "double", "f32": "float", "f16": "half"}


@dataclass(frozen=True, slots=True)
class LLVMValue:
    """An LLVM value: its text, its element type, and its lanes (1: a scalar)."""

    ref: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        return type_name(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


def element_type(dtype: DType) -> str:
    """LLVM's name for a value of this type (bool is i1; in memory it is a byte)."""
    if dtype.kind is Kind.BOOL:
        return "i1"
    if dtype.is_float:
        return _FLOATS.get(dtype.name, f"i{dtype.bits}")
    return f"i{max(8, dtype.bits)}"


def memory_type(dtype: DType) -> str:
    """LLVM's name for an element in memory."""
    return "i8" if dtype.kind is Kind.BOOL else element_type(dtype)


def type_name(dtype: DType, lanes: int) -> str:
    name = element_type(dtype)
    return name if lanes == 1 else f"<{lanes} x {name}>"


def literal(value: int | float | bool, dtype: DType) -> str:
    """The text of a scalar constant, exact to the bit."""
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    if dtype in (f32, f64):
        (bits,) = struct.unpack("<Q", struct.pack("<d", float(value)))
        return f"0x{bits:016X}"
    with np.errstate(all="ignore"):
        (bits,) = np.array(value, dtype.numpy).reshape(1).view(f"u{dtype.bytes}")
    return f"0xH{int(bits):04X}" if dtype.name in _FLOATS else str(int(bits))


def splat(text: str, dtype: DType, lanes: int) -> str:
    """The text of a vector constant with one element in all lanes."""
    return f"splat ({element_type(dtype)} {text})" if lanes > 1 else text


def _leading_type(text: str) -> str:
    """The type in front of `type value`."""
    return text[: text.index(">") + 1] if text.startswith("<") else text.split(" ", 1)[0]


class Function:
    """The lines of one LLVM function under construction."""

    def __init__(self, name: str, params: Sequence[str], *, linkage: str = "") -> None:
        self.head = f"define {linkage}void @{name}({', '.join(params)}) #0 {{"
        self.entry: list[str] = []  # allocations: they belong to the first block
        self.lines: list[str] = []
        self.block = "entry"
        self.declared: dict[str, str] = {}  # functions called, with their declarations
        self._count = 0

    def fresh(self, stem: str = "") -> str:
        """A new local name."""
        self._count += 1
        return f"%{stem}{self._count}" if stem else f"%v{self._count}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def let(self, text: str) -> str:
        """Emits `%new = text` and returns %new."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, result: str, name: str, *args: LLVMValue | str) -> str:
        """Emits a call of an outside function, noting its declaration; returns the result."""
        listed = [str(a) for a in args]
        types = ", ".join(_leading_type(a) for a in listed)
        plain = result.removeprefix("reassoc ")
        self.declared[name] = f"declare {plain} @{name}({types})"
        text = f"call {result} @{name}({', '.join(listed)})"
        if result == "void":
            self.emit(text)
            return ""
        return self.let(text)

    def label(self, stem: str) -> str:
        """A new label's name (without starting the block)."""
        self._count += 1
        return f"{stem}{self._count}"

    def start(self, label: str) -> None:
        """Starts the block `label`."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def text(self) -> str:
        body = ["entry:", *self.entry, *self.lines, "  ret void", "}"]
        return "\n".join([self.head, *body])
