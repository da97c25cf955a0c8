"""Operators that the caller supplies: compiled code calls back, and gets numpy's answer.

An exception in such a function stops the call, and is raised again where the model was called.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ArtifactError, CompileError, TilewrightError
from tilewright.program.host_program import HostCall, HostProgram, Slot, Submit, Wait, slots_of
from tilewright.program.size import evaluate_size
from tilewright.runtime.array import array_at
from tilewright.runtime.devices import Device, Devices

# From an operator's attributes (JSON) to a function from its inputs to its outputs. The inputs are
# the model's own memory: read-only, and only there while the function runs.
HostTable = Mapping[str, Callable[[Any], Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]]]

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


Callback = Callable[[Mapping[str, int], Any], None]  # of symbols, and of buffers' addresses


class HostBridge:
    """What a program has the caller's functions and its devices do, behind one address that
    compiled code can call."""

    def __init__(self, program: HostProgram, table: HostTable | None, devices: Devices) -> None:
        check_table(program, table)
        places = program.slots_by_name
        self._functions: list[Callback] = []
        for step in program.callbacks:
            if isinstance(step, HostCall):
                self._functions.append(_host_function(step, places, table or {}))
            else:
                if step.device not in devices:
                    raise ArtifactError(
                        f"{program.name!r} has no part for {step.device!r}, which runs kernels"
                    )
                self._functions.append(_device_step(step, places, devices[step.device]))
        self._running: dict[int, Mapping[str, int]] = {}  # a call's number: its symbols
        self._errors: dict[int, BaseException] = {}
        me = weakref.ref(self)  # so that a bridge that nobody uses goes at once

        def run(*arguments: Any) -> int:
            bridge = me()
            assert bridge is not None  # who calls it holds the bridge
            return bridge._run(*arguments)

        self._callback = _Callback(run)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def begin(self, number: int, symbols: Mapping[str, int]) -> None:
        """Before call `number` runs; end(number) follows."""
        self._running[number] = symbols

    def end(self, number: int) -> BaseException | None:
        """What went wrong in call `number`'s functions."""
        del self._running[number]
        return self._errors.pop(number, None)

    def _run(self, number: int, function: int, buffers: Any, dims: object) -> int:
        try:
            self._functions[function](self._running[number], buffers)
        except BaseException as error:  # noqa: BLE001 - cannot pass compiled code; see end()
            self._errors[number] = error
            return 1
        return 0


def _arrays(
    slots: Sequence[Slot], results: int, symbols: Mapping[str, int], buffers: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays at these addresses: those that are read, and the last ones, which are written."""
    arrays = []
    for i, slot in enumerate(slots):
        shape = tuple(evaluate_size(d, symbols) for d in slot.shape)
        arrays.append(array_at(buffers[i] or 0, shape, slot.dtype.numpy))
    inputs, outputs = arrays[: len(arrays) - results], arrays[len(arrays) - results :]
    for array in inputs:
        array.flags.writeable = False
    return inputs, outputs


def _host_function(step: HostCall, places: Mapping[str, Slot], table: HostTable) -> Callback:
    function = table[step.op](json.loads(step.attrs))
    slots = [places[name] for name in slots_of(step)]

    def apply(symbols: Mapping[str, int], buffers: Any) -> None:
        inputs, outputs = _arrays(slots, len(step.outputs), symbols, buffers)
        results = function(inputs)
        _check_results(step, results, outputs)
        for target, result in zip(outputs, results, strict=True):
            target[...] = result

    return apply


def _device_step(step: Submit | Wait, places: Mapping[str, Slot], device: Device) -> Callback:
    if isinstance(step, Wait):
        return lambda symbols, buffers: device.wait()
    slots = [places[name] for name in slots_of(step)]

    def submit(symbols: Mapping[str, int], buffers: Any) -> None:
        device.submit(step.kernel, *_arrays(slots, len(step.outputs), symbols, buffers))

    return submit


def check_table(program: HostProgram, table: HostTable | None) -> None:
    """ArtifactError when the caller's table lacks an operator that the program calls."""
    called = {s.op for s in program.callbacks if isinstance(s, HostCall)}
    lacking = sorted(called - (table or {}).keys())
    if lacking:
        what = "an operator that runs" if len(lacking) == 1 else "operators that run"
        raise ArtifactError(
            f"{program.name!r} has {what} on the host and that the caller must supply:"
            f" {', '.join(lacking)}",
            hint="give host={operator: attributes -> function of arrays}",
        )


def _check_results(
    step: HostCall, results: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> None:
    wanted = [(a.shape, a.dtype) for a in outputs]
    found = [(np.shape(r), getattr(r, "dtype", None)) for r in results]
    if wanted != found:
        raise CompileError(
            f"the host's function for {step.op} must return {_show(wanted)}"
            f" and returned {_show(found)}"
        )


def _show(arrays: Sequence[tuple[tuple[int, ...], Any]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in arrays) or "nothing"


def explain_host_error(error: BaseException, step: str, nodes: Sequence[str]) -> BaseException:
    """The error, with the step that it happened in."""
    line = f"running {step} on the host" + (f" for {', '.join(nodes)}" if nodes else "")
    if isinstance(error, TilewrightError):
        error.add_context(line)
    elif hasattr(error, "add_note"):  # Python 3.11
        error.add_note(f"while {line}")
    return error
