"""A call's arguments as arrays that compiled code can read: right type, row-major, aligned.

An array that is all that already is used where it lies. Compiled code relies on no more than the
alignment of its elements for inputs and outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DTYPES, DType, Kind
from tilewright.base.errors import InputError, did_you_mean
from tilewright.program.host_program import Slot
from tilewright.runtime.dlpack import HOST_DEVICES, import_dlpack

_NAMES = {t.numpy: t.name for t in DTYPES.values()}
_NOTHING = ctypes.c_char * 0


def address_of(array: np.ndarray) -> int:
    """Where the elements lie."""
    memory: Any = array  # numpy says that arrays are buffers, but not before Python 3.12
    try:  # five times faster than numpy's own answer, but only for writable standard types
        return ctypes.addressof(_NOTHING.from_buffer(memory))
    except (TypeError, ValueError):
        return int(array.__array_interface__["data"][0])


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array on memory that somebody else keeps alive."""
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size == 0:  # there may be nothing at the address
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)  # a buffer, as numpy takes them
    found: np.ndarray = np.ndarray(shape, dtype, memory)
    return found


def arrange(inputs: Sequence[Slot], args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The arguments in the order of the model's inputs."""
    names = [t.name for t in inputs]
    if len(args) > len(names):
        raise InputError(
            f"the model takes {_count(len(names))} and was given {len(args)}", hint=_takes(inputs)
        )
    values = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise InputError(f"the model has no input {name!r}", hint=did_you_mean(name, names))
        if name in values:
            raise InputError(f"input {name!r} was given twice, by position and by name")
        values[name] = value
    missing = [repr(n) for n in names if n not in values]
    if missing:
        what = "input" if len(missing) == 1 else "inputs"
        raise InputError(f"missing {what}: {', '.join(missing)}", hint=_takes(inputs))
    return [values[n] for n in names]


def _takes(inputs: Sequence[Slot]) -> str:
    return "the model takes " + (", ".join(map(str, inputs)) or "no inputs")


def _count(n: int) -> str:
    return f"{n} input" if n == 1 else f"{n} inputs"


# ---------------------------------------------------------------- inputs


def as_input(tensor: Slot, value: Any) -> np.ndarray:
    """`value` as an array of the tensor's type, its own memory where that will do."""
    if isinstance(value, (bool, int, float, list, tuple)):
        return _from_numbers(tensor, value)
    array = _from_foreign(f"input {tensor.name!r}", value)
    _check_dtype(f"input {tensor.name!r}", tensor, array)
    if not array.flags.c_contiguous or not array.flags.aligned:
        array = np.array(array, order="C")
    return array


def _from_foreign(what: str, value: Any) -> np.ndarray:
    """Anything that holds an array, as one of numpy's that shares its memory where it can."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(what, value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if isinstance(value, (memoryview, bytearray, bytes)):
        return np.asarray(memoryview(value))
    hint = "pass a numpy array, an object with __dlpack__, or numbers in lists"
    if isinstance(value, Mapping):
        hint = 'inputs by name are passed as module(x=…), or to module.run({"x": …})'
    raise InputError(f"{what} is a {type(value).__name__}", hint=hint)


def _from_dlpack(what: str, value: Any) -> np.ndarray:
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else 1
    if device not in HOST_DEVICES:
        raise InputError(
            f"{what} lies in the memory of another device (DLPack device type {int(device)})",
            hint="copy it to the host first",
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error)
    try:
        return import_dlpack(value)
    except (BufferError, ValueError):
        raise InputError(f"{what} cannot be read through DLPack: {reason}") from None


def _check_dtype(what: str, tensor: Slot, array: np.ndarray) -> None:
    wanted = tensor.dtype.numpy
    if array.dtype != wanted:
        found = _NAMES.get(array.dtype, str(array.dtype))
        raise InputError(
            f"{what} has elements of type {found}; the model takes {tensor.type}",
            hint=f"convert it first: .astype({str(wanted)!r})",
        )


def _from_numbers(tensor: Slot, value: Any) -> np.ndarray:
    """Python's numbers have no type of their own and take the input's, if it can hold them: whole
    numbers exactly, fractions (for a float) rounded to the nearest."""
    try:
        wide = np.asarray(value)
    except ValueError:
        raise InputError(f"input {tensor.name!r} is a list whose items differ in length") from None
    target = tensor.dtype
    if wide.size == 0:
        return wide.astype(target.numpy)
    if wide.dtype.kind not in ("b" if target.kind is Kind.BOOL else "biuf"):
        raise InputError(f"input {tensor.name!r}: {_show(value)} is not of type {target}")
    if target.is_integer and wide.dtype.kind == "f":
        wide = np.asarray(value, object)  # numpy has rounded whole numbers beside fractions
    result, held = _convert(wide, target)
    if not np.all(held):
        first = wide[~held].flat[0] if wide.ndim else wide[()]
        raise InputError(f"input {tensor.name!r}: {first} does not fit {target}")
    return np.asarray(result, order="C")


def _convert(wide: np.ndarray, target: DType) -> tuple[np.ndarray, np.ndarray]:
    """The numbers as `target`, and which of them it holds."""
    if wide.dtype == object:
        low, high = target.min, target.max
        held = np.array([low <= v <= high and v == int(v) for v in wide.flat]).reshape(wide.shape)
        whole = np.where(held, wide, 0).astype(np.int64 if target.is_signed else np.uint64)
        return whole.astype(target.numpy), held
    with np.errstate(all="ignore"):
        result = wide.astype(target.numpy)
        if target.is_integer:
            return result, np.asarray((wide >= target.min) & (wide <= target.max))
        back = result.astype(wide.dtype)
        if wide.dtype.kind == "f" and target.is_float:
            return result, np.asarray(np.isfinite(back) | ~np.isfinite(wide))
        return result, np.asarray(back == wide)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


# ---------------------------------------------------------------- outputs


def check_outputs(
    outputs: Sequence[Slot], shapes: Sequence[tuple[tuple[int, ...], np.dtype]], out: Any
) -> list[np.ndarray]:
    """The caller's arrays for the outputs; InputError if results cannot be written there."""
    given = [out] if len(outputs) == 1 and not isinstance(out, (list, tuple)) else list(out)
    if len(given) != len(outputs):
        raise InputError(
            f"out= has {len(given)} arrays for {len(outputs)} outputs:"
            f" {', '.join(map(str, outputs))}"
        )
    arrays = []
    for tensor, (shape, _), value in zip(outputs, shapes, given, strict=True):
        what = f"out= for output {tensor.name!r}"
        array = _from_foreign(what, value)
        _check_dtype(what, tensor, array)
        if array.shape != shape:
            raise InputError(f"{what} has shape {list(array.shape)}; the result is {list(shape)}")
        flags = array.flags
        if not flags.c_contiguous or not flags.aligned or not flags.writeable:
            raise InputError(f"{what} must be a writable, aligned, row-major array")
        arrays.append(array)
    for i, a in enumerate(arrays):
        for j, b in enumerate(arrays[:i]):
            if np.may_share_memory(a, b):
                names = f"{outputs[j].name!r} and {outputs[i].name!r}"
                raise InputError(f"out= for outputs {names} is the same memory")
    return arrays
