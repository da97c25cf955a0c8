"""Chips that are simulated: what instructions do, as machine code of this machine, applied to the
memories of one chip, in program order.

The part of a chip has a file `kernel.npz` for each kernel, the tables that native/stream.c walks
through, and a file `code.K.o` with `run_site` for each instruction that a table names by number.
Kernels' times are figures of the timed simulator, made while compiling.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from zipfile import BadZipFile

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.runtime import stream_functions
from tilewright.runtime.loader import LoadedCode, load_code
from tilewright.runtime.program import DevicePart

ENTRY = "run_site"
FILL = 0xA5  # what memory holds before anything is written
MOST_BYTES = 1 << 36  # of a chip's memory


@dataclass(frozen=True, eq=False)
class Tables:
    """One kernel: for each instruction its site, fields and operands' addresses; for each site its
    code, the memories of its operands, how many bytes further they lie for each core, and where the
    lists of micro-operations begin (or -1); how many bytes of each memory are used; where arrays
    and constants lie (memory, byte)."""

    site: np.ndarray  # i4[n]
    fields: np.ndarray  # i8[n, most fields]
    addresses: np.ndarray  # i8[n, most operands]
    code: np.ndarray  # i8[sites]
    memory: np.ndarray  # i8[sites, most operands]
    shifts: np.ndarray  # i8[cores, sites, most operands]
    lists: np.ndarray  # i8[sites, most operands]
    entries: np.ndarray  # i8[all lists]
    sizes: np.ndarray  # i8[memories]
    places: np.ndarray  # i8[arrays, 2]
    constants: np.ndarray  # u1[all constants]
    constant_places: np.ndarray  # i8[constants, 3]: memory, byte, size

    def to_bytes(self) -> bytes:
        """An .npz file; nothing in it but numbers."""
        file = io.BytesIO()
        np.savez_compressed(file, **vars(self))
        return file.getvalue()


class Simulator:
    """One simulated chip, which does what it is given at once."""

    def __init__(self, part: DevicePart) -> None:
        files = dict(part.files)
        self.device = part.device
        self.kernels = {
            name.removesuffix(".npz"): _tables(part.device, name, data)
            for name, data in files.items()
            if name.endswith(".npz")
        }
        codes = max((int(t.code.max(initial=-1)) for t in self.kernels.values()), default=-1) + 1
        lacking = [k for k in range(codes) if f"code.{k}.o" not in files]
        if lacking:
            raise ArtifactError(f"the part of {part.device!r} has no code.{lacking[0]}.o")
        self.codes: list[LoadedCode] = [
            load_code([(f"code.{k}.o", files[f"code.{k}.o"])], [ENTRY]) for k in range(codes)
        ]
        self.functions = np.array([c.addresses[ENTRY] for c in self.codes], np.int64)
        sizes = [t.sizes for t in self.kernels.values()]
        most = np.max(sizes, axis=0) if sizes else np.zeros(0, np.int64)
        self.memories = [np.full(int(n), FILL, np.uint8) for n in most]
        self.lock = threading.Lock()  # calls of several threads share the one chip

    def submit(
        self, kernel: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Runs a kernel: its inputs are put where it expects them, its outputs taken from there."""
        t = self.kernels.get(kernel)
        if t is None or len(t.places) != len(inputs) + len(outputs):
            raise ArtifactError(f"the part of {self.device!r} has no kernel {kernel!r} like this")
        with self.lock:
            self._put(t, inputs)
            self._run(t)
            self._get(t, outputs)

    def _put(self, t: Tables, inputs: Sequence[np.ndarray]) -> None:
        at = 0
        for memory, begin, size in t.constant_places.tolist():
            self.memories[memory][begin : begin + size] = t.constants[at : at + size]
            at += size
        for (memory, begin), array in zip(t.places.tolist(), inputs, strict=False):
            self.memories[memory][begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)

    def _get(self, t: Tables, outputs: Sequence[np.ndarray]) -> None:
        last = t.places.tolist()[len(t.places) - len(outputs) :]
        for (memory, begin), array in zip(last, outputs, strict=True):
            array.reshape(-1).view(np.uint8)[:] = self.memories[memory][
                begin : begin + array.nbytes
            ]

    def wait(self) -> None:
        """Everything is done when `submit` returns."""

    def after_fork(self) -> None:
        """In a forked process: a thread that held the chip does not exist here."""
        self.lock = threading.Lock()

    def _run(self, t: Tables) -> None:
        """One core after the other: none touches what another writes."""
        bases = np.array([m.ctypes.data for m in self.memories], np.int64)
        lists = np.where(t.lists >= 0, t.entries.ctypes.data + 8 * t.lists, 0)
        for shift in t.shifts:
            addresses = np.ascontiguousarray(t.addresses + shift[t.site])
            code = stream_functions.Code(
                t.fields.shape[1], addresses.shape[1], t.site, t.fields, addresses,
                t.memory, self.functions[t.code], lists,
            )  # fmt: skip
            stream_functions.run(code, len(t.site), None, bases)


_KINDS = {"site": np.int32, "constants": np.uint8}


def _tables(device: str, name: str, data: bytes) -> Tables:
    """The tables in a file: numbers, of the types that what runs them takes."""
    wanted = Tables.__dataclass_fields__
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {
                key: np.ascontiguousarray(file[key], _KINDS.get(key, np.int64))
                for key in wanted
                if key in file or key != "shifts"  # of a file that was written before there were
            }
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ArtifactError(f"{name!r} of {device!r} cannot be read: {error}") from None
    arrays.setdefault("shifts", np.zeros((1, *arrays["memory"].shape), np.int64))
    return Tables(**arrays)
