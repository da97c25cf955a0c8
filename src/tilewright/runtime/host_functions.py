"""Operators that the caller supplies: compiled code calls back, and gets numpy's answer.

An exception in such a function stops the call, and is raised again where the model was called.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ArtifactError, CompileError, TilewrightError
from tilewright.runtime.array import array_at
from tilewright.runtime.devices import Devices
from tilewright.runtime.plan import DeviceCall, HostFunction, Plan, Tensor
from tilewright.runtime.size import evaluate_size

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
    """A plan's host functions, and what its devices are told, behind one address that compiled code
    can call."""

    def __init__(self, plan: Plan, table: HostTable | None, devices: Devices) -> None:
        self._functions = [_host_function(f, table) for f in check_table(plan, table)]
        self._functions += [_device_call(c, devices) for c in plan.device_calls]
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
    tensors: Sequence[Tensor], results: int, symbols: Mapping[str, int], buffers: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays at these addresses: those that are read, and the last ones, which are written."""
    arrays = []
    for i, tensor in enumerate(tensors):
        shape = tuple(evaluate_size(d, symbols) for d in tensor.shape)
        arrays.append(array_at(buffers[i] or 0, shape, tensor.dtype.numpy))
    inputs, outputs = arrays[: len(arrays) - results], arrays[len(arrays) - results :]
    for array in inputs:
        array.flags.writeable = False
    return inputs, outputs


def _host_function(spec: HostFunction, table: HostTable | None) -> Callback:
    function = bind_function(spec, table)
    tensors = (*spec.inputs, *spec.outputs)

    def apply(symbols: Mapping[str, int], buffers: Any) -> None:
        inputs, outputs = _arrays(tensors, len(spec.outputs), symbols, buffers)
        results = function(inputs)
        _check_results(spec, results, outputs)
        for target, result in zip(outputs, results, strict=True):
            target[...] = result

    return apply


def _device_call(call: DeviceCall, devices: Devices) -> Callback:
    device = devices[call.device]
    if not call.kernel:
        return lambda symbols, buffers: device.wait()

    def submit(symbols: Mapping[str, int], buffers: Any) -> None:
        device.submit(call.kernel, *_arrays(call.arrays, call.results, symbols, buffers))

    return submit


def check_table(plan: Plan, table: HostTable | None) -> tuple[HostFunction, ...]:
    """The plan's host functions; ArtifactError when the caller's table lacks any."""
    lacking = sorted({f.op for f in plan.functions if f.op not in (table or {})})
    if lacking:
        what = "an operator that runs" if len(lacking) == 1 else "operators that run"
        raise ArtifactError(
            f"{plan.name!r} has {what} on the host and that the caller must supply:"
            f" {', '.join(lacking)}",
            hint="give host={operator: attributes -> function of arrays}",
        )
    return plan.functions


def bind_function(spec: HostFunction, table: HostTable | None) -> Callable[..., Any]:
    assert table is not None
    return table[spec.op](spec.attrs)


def _check_results(
    spec: HostFunction, results: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> None:
    wanted = [(a.shape, a.dtype) for a in outputs]
    found = [(np.shape(r), getattr(r, "dtype", None)) for r in results]
    if wanted != found:
        raise CompileError(
            f"the host's function for {spec.op} must return {_show(wanted)}"
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
