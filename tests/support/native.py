"""Compiling one kernel and calling it on arrays, with traps around every buffer.

    run = build(kernel, cpu.host(threads=1))
    (y,) = run([x], {"n": 5})

Every buffer lies against a page that may be neither read nor written: once behind its last byte,
once before its first. What a kernel touches outside of its buffers ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.native import passes as backends
from tilewright.ir.evaluate import evaluate_dim, poisoned
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Kernel, symbols
from tilewright.lower.vectorize import vectorize
from tilewright.runtime import _native
from tilewright.runtime.loader import LoadedCode, load_code
from tilewright.runtime.pool import shared_pool
from tilewright.target.target import Target

PAGE = mmap.PAGESIZE
CANARY = 0xC5  # fills the rest of a buffer's pages: to be found unchanged
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
NONE, READ_WRITE = 0, 3


class Trapped:
    """Memory of `size` bytes, its end (or start) at a page that must not be touched."""

    def __init__(self, size: int, *, at_end: bool) -> None:
        pages = -(-size // PAGE)
        self.size = size
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.slack = pages * PAGE - size
        self.offset = PAGE + (self.slack if at_end else 0)
        self.rest = PAGE if at_end else PAGE + size  # where the slack lies
        ctypes.memset(self.base + PAGE, CANARY, pages * PAGE)
        for at in (self.base, self.base + (pages + 1) * PAGE):
            assert _libc.mprotect(at, PAGE, NONE) == 0, ctypes.get_errno()

    @property
    def address(self) -> int:
        return self.base + self.offset

    def put(self, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).tobytes()
        assert len(data) == self.size
        ctypes.memmove(self.address, data, self.size)

    def get(self, like: np.ndarray) -> np.ndarray:
        data = ctypes.string_at(self.address, self.size)
        return np.frombuffer(bytearray(data), like.dtype).reshape(like.shape)

    def slack_untouched(self) -> bool:
        found = ctypes.string_at(self.base + self.rest, self.slack)
        return found == bytes([CANARY]) * self.slack


@dataclass
class NativeKernel:
    """A compiled kernel. Called like `interpret`: inputs and symbols' values to outputs."""

    kernel: Kernel  # as scheduled
    lowered: Kernel
    target: Target
    llvm: str
    code: LoadedCode

    def __call__(
        self, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
    ) -> list[np.ndarray]:
        found = [self.run(inputs, symbols or {}, at_end=at_end) for at_end in (True, False)]
        for a, b in zip(*found, strict=True):
            assert a.tobytes() == b.tobytes(), "two calls gave two results"
        return found[0]

    def fill(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """One call on arrays as they lie, without traps: for kernels that need no scratch."""
        assert not self.lowered.scratch
        assert not symbols(self.lowered)
        self._function(self._pool, *[a.ctypes.data for a in (*inputs, *outputs)])

    def run(
        self, inputs: Sequence[np.ndarray], values: Mapping[str, int], *, at_end: bool
    ) -> list[np.ndarray]:
        """One call, with the traps on one side of the buffers."""
        made = [_fresh(b, values) for b in self.kernel.outputs + self.lowered.scratch]
        arrays = [*map(np.asarray, inputs), *made]
        with _trapped(arrays, at_end=at_end) as places:
            self._call([p.address for p in places], values)
            for place, buffer in zip(places, self.lowered.params, strict=True):
                assert place.slack_untouched(), f"written beside {buffer.name}"
            for place, array in zip(places, inputs, strict=False):
                assert place.get(array).tobytes() == array.tobytes(), "an input was changed"
            outputs = places[len(inputs) : len(inputs) + len(self.lowered.outputs)]
            return [p.get(a) for p, a in zip(outputs, made, strict=False)]

    def _call(self, addresses: Sequence[int], values: Mapping[str, int]) -> None:
        self._function(self._pool, *addresses, *(values[s.name] for s in symbols(self.lowered)))

    @functools.cached_property
    def _pool(self) -> int:
        return _native.pool_address(shared_pool(self.target.cores).handle)

    @functools.cached_property
    def _function(self) -> Callable[..., None]:
        kinds = [ctypes.c_void_p] * (1 + len(self.lowered.params))
        kinds += [ctypes.c_int64] * len(symbols(self.lowered))
        return ctypes.CFUNCTYPE(None, *kinds)(self.code.addresses[self.lowered.name])


def _fresh(buffer: Buffer, values: Mapping[str, int]) -> np.ndarray:
    return poisoned(tuple(evaluate_dim(d, values) for d in buffer.shape), buffer.dtype)


@contextlib.contextmanager
def _trapped(arrays: Sequence[np.ndarray], *, at_end: bool) -> Iterator[list[Trapped]]:
    places = [Trapped(a.nbytes, at_end=at_end) for a in arrays]
    for place, array in zip(places, arrays, strict=True):
        place.put(array)
    yield places  # the maps go when nothing refers to them any more


def build(kernel: Kernel, target: Target, *, lower: bool = True) -> NativeKernel:
    """The kernel's machine code, by the target's passes, verified; without `lower` by the last of
    them alone."""
    if lower:
        lowered = backends.lower(kernel, target, None, verify=True)
    else:
        lowered = vectorize(kernel, target)
    text = backends.to_llvm(lowered, target)
    code = load_code([(kernel.name, backends.to_object(text, target))], [kernel.name])
    return NativeKernel(kernel, lowered, target, text, code)
