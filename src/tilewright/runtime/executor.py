"""A program made ready to run: code linked, constants placed, memory and threads at hand.

All that depends only on the shapes of a call's inputs is worked out once for each combination.
What remains for every call does not depend on how many steps the model has.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.program.host_program import MemoryKind, name_of_step, nodes_of
from tilewright.program.size import evaluate_size
from tilewright.runtime import _native
from tilewright.runtime.arena import LARGE, ArenaPool, ArenaSet, OutputPool
from tilewright.runtime.array import address_of, array_at
from tilewright.runtime.devices import DeviceTable, open_devices
from tilewright.runtime.host_functions import HostBridge, HostTable, explain_host_error
from tilewright.runtime.loader import load_code
from tilewright.runtime.pool import ThreadPool, shared_pool
from tilewright.runtime.program import Program
from tilewright.runtime.shapes import Shape, Signature, check_memory, solve

SIGNATURES = 256  # combinations of shapes that are remembered
ALIGNMENT = 64  # of constants


class Executor:
    """Runs one program. Any number of threads may call it; each call has its own scratch."""

    def __init__(
        self,
        program: Program,
        *,
        threads: int,
        pool: ThreadPool | None,
        host: HostTable | None,
        concurrency: int,
        devices: DeviceTable | None = None,
    ) -> None:
        host_program = self.host_program = program.host
        self.threads = pool.threads if pool is not None else threads
        self._devices = open_devices(program.parts, devices)
        calls_back = host_program.callbacks
        self._host = HostBridge(host_program, host, self._devices) if calls_back else None
        self._callback = self._host.address if self._host is not None else 0
        self._code = load_code(program.objects, [program.entry])
        self._entry = self._code.addresses[program.entry]
        self._constants = [_aligned(c) for c in program.constants]
        self._constant_addresses = [c.__array_interface__["data"][0] for c in self._constants]
        count = len(host_program.of_kind(MemoryKind.ARENA))
        self._arenas = ArenaPool(concurrency, lambda number: ArenaSet(number, count))
        self._signatures: dict[tuple[Shape, ...], Signature] = {}
        self._learning = threading.Lock()
        self._own_pool = pool
        self._handle: int | None = pool.handle if pool is not None else None
        self._results = host_program.results
        self._outputs = OutputPool(len(self._results))
        owners = {t.memory: i for i, t in reversed(list(enumerate(self._results)))}
        self._fresh = [owners[m.name] for m in host_program.of_kind(MemoryKind.OUTPUT)]
        self._plain = self._fresh == list(range(len(self._results)))
        self._places = {m.name: i for i, m in enumerate(host_program.memories)}
        _executors.add(self)

    # ------------------------------------------------------------ one call

    def run(
        self,
        arrays: Sequence[np.ndarray],
        out: Sequence[np.ndarray] | None = None,
        times: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """The outputs for these inputs, which are as array.as_input makes them."""
        signature = self.signature(arrays)
        if not signature.runs:
            return self._nothing(signature, out, times)
        arenas = self._arenas.take()
        try:
            if arenas.fitted is not signature:
                growth = arenas.growth(signature.arenas)
                if growth > 0:
                    check_memory(signature, growth)
                    arenas.ensure(signature.arenas)
                arenas.fitted = signature
            results = list(out) if out is not None else self._new_outputs(signature)
            written = results if self._plain else [results[i] for i in self._fresh]
            memories = [
                *self._constant_addresses,
                *arenas.addresses,
                *map(address_of, arrays),
                *map(address_of, written),
            ]
            self._enter(memories, signature, arenas.number, times)
            if not self._plain:
                self._copy_others(memories, signature, results)
            return results
        finally:
            self._arenas.put(arenas)

    def _nothing(
        self, signature: Signature, out: Sequence[np.ndarray] | None, times: np.ndarray | None
    ) -> list[np.ndarray]:
        """A call in which no output has any elements."""
        if times is not None:
            times[:] = 0
        return list(out) if out is not None else self._new_outputs(signature)

    def signature(self, arrays: Sequence[np.ndarray]) -> Signature:
        """All that follows from the shapes of the inputs; InputError if they do not fit."""
        key = tuple([a.shape for a in arrays])
        found = self._signatures.get(key)
        return self._learn(key) if found is None else found

    def _learn(self, key: tuple[Shape, ...]) -> Signature:
        signature = solve(self.host_program, key)
        check_memory(signature, 0)
        with self._learning:
            if len(self._signatures) >= SIGNATURES:
                del self._signatures[next(iter(self._signatures))]
            self._signatures[key] = signature
        return signature

    def _new_outputs(self, signature: Signature) -> list[np.ndarray]:
        try:
            if signature.output_bytes < LARGE:
                return [np.empty(shape, dtype) for shape, dtype in signature.outputs]
            return [self._outputs.empty(shape, dtype) for shape, dtype in signature.outputs]
        except MemoryError:
            check_memory(signature, 0)
            raise

    def _enter(
        self, memories: list[int], signature: Signature, number: int, times: np.ndarray | None
    ) -> None:
        handle = self._handle if self._handle is not None else self._start_threads()
        stamps = 0 if times is None else address_of(times)
        if self._host is None:
            status = _native.call(self._entry, memories, signature.dims, handle, 0, number, stamps)
            error = None
        else:
            self._host.begin(number, signature.symbols)
            try:
                status = _native.call(
                    self._entry, memories, signature.dims, handle, self._callback, number, stamps
                )
            finally:
                error = self._host.end(number)
        if status != 0:
            step = self.host_program.steps[status - 1]
            if error is not None:
                raise explain_host_error(error, name_of_step(step), nodes_of(step))
            raise CompileError(f"step {status - 1} ({name_of_step(step)}) failed")

    def _start_threads(self) -> int:
        self._handle = shared_pool(self.threads).handle
        return self._handle

    def _copy_others(
        self, memories: list[int], signature: Signature, results: list[np.ndarray]
    ) -> None:
        """Outputs that have no memory of their own: inputs, constants, or the same value twice."""
        for i, (slot, result) in enumerate(zip(self._results, results, strict=True)):
            if i not in self._fresh:
                start = memories[self._places[slot.memory]]
                at = start + evaluate_size(slot.offset, signature.symbols)
                result[...] = array_at(at, result.shape, result.dtype)

    # ------------------------------------------------------------ forks

    def after_fork(self) -> None:
        """In a forked process: threads, and what they held, do not exist here."""
        self._arenas.after_fork()
        for device in self._devices.values():
            device.after_fork()
        self._learning = threading.Lock()
        if self._own_pool is None:
            self._handle = None


def _aligned(constants: np.ndarray) -> np.ndarray:
    """The bytes at an address that vectors can be read from; usually they are at one."""
    flat = constants.reshape(-1).view(np.uint8)
    if flat.size == 0 or flat.__array_interface__["data"][0] % ALIGNMENT == 0:
        return flat
    room = np.empty(flat.size + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    copy = room[start : start + flat.size]
    copy[...] = flat
    return copy


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _renew_executors() -> None:
    for executor in list(_executors):
        executor.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_executors)
