"""From the shapes of a call's inputs to everything that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import InputError, TargetError
from tilewright.program.host_program import HostProgram, MemoryKind, Slot
from tilewright.program.size import Size, evaluate_size, format_size, given
from tilewright.runtime.system import available_memory, format_bytes

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a program becomes once the inputs' shapes are known."""

    symbols: Mapping[str, int]
    dims: tuple[int, ...]  # the symbols' values, in the program's order
    arenas: tuple[int, ...]  # bytes
    outputs: tuple[tuple[Shape, np.dtype], ...]
    output_bytes: int
    runs: bool = True  # False: no input and no output has any elements, and nothing is to do


def solve(program: HostProgram, shapes: Sequence[Shape]) -> Signature:
    """The signature of a call with inputs of these shapes; InputError if they do not fit."""
    symbols, problem = _solve_symbols(program, shapes)
    for tensor, shape in zip(program.arguments, shapes, strict=True):
        _check_shape(tensor, shape, symbols)
    outputs = tuple((_output_shape(t, symbols), t.dtype.numpy) for t in program.results)
    dims = tuple(symbols[s.name] for s in program.symbols)
    if problem is not None:
        if any(0 not in shape for shape, _ in outputs):
            raise problem
        return Signature(symbols, dims, (), outputs, 0, runs=False)
    arenas = tuple(_memory_size(m.name, m.size, symbols) for m in program.of_kind(MemoryKind.ARENA))
    total = sum(int(np.prod(shape, dtype=object)) * t.itemsize for shape, t in outputs)
    return Signature(symbols, dims, arenas, outputs, total)


def check_memory(signature: Signature, growth: int) -> None:
    """TargetError if a call needs more than the machine has: its outputs, and `growth` bytes that
    its arenas still lack."""
    needed, room = growth + signature.output_bytes, available_memory()
    if room is None or needed <= room:
        return
    sizes = ", ".join(f"{name} = {value}" for name, value in signature.symbols.items())
    raise TargetError(
        f"this call needs {format_bytes(needed)} of memory, and {format_bytes(room)} are available"
        f" ({format_bytes(growth)} for intermediate values,"
        f" {format_bytes(signature.output_bytes)} for outputs)",
        hint=f"call it with smaller inputs (this was {sizes}), or where there is more memory"
        if sizes
        else "run it where there is more memory",
    )


def _solve_symbols(
    program: HostProgram, shapes: Sequence[Shape]
) -> tuple[dict[str, int], InputError | None]:
    """Each symbol from the first input dimension that it is; all others must agree. Compiled code
    may rely on a symbol not being 0: then the error says so, unless there is nothing to compute."""
    found: dict[str, tuple[int, Slot, int]] = {}
    for tensor, shape in zip(program.arguments, shapes, strict=True):
        if len(shape) != len(tensor.shape):
            raise InputError(
                f"input {tensor.name!r} has {_count(len(shape), 'dimension')}, shape"
                f" {list(shape)}; the model takes {tensor.type}"
            )
        for axis, (dim, size) in enumerate(zip(tensor.shape, shape, strict=True)):
            if not isinstance(dim, str):
                continue
            value, first, at = found.setdefault(dim, (size, tensor, axis))
            if value != size:
                raise InputError(
                    f"{dim} is {value} in input {first.name!r} (dimension {at} of {first.type})"
                    f" and {size} in input {tensor.name!r} (dimension {axis} of {tensor.type})",
                    hint="the model takes these only when they are equal",
                )
    problem = None
    for symbol in program.symbols:
        value, tensor, axis = found[symbol.name]
        name = symbol.name
        where = f"{name} is {value} in input {tensor.name!r} (dimension {axis} of {tensor.type})"
        if value < symbol.lower:
            problem = InputError(f"{where}; the model takes {symbol.lower} or more")
            if value != 0 or symbol.lower != 1:
                raise problem
        if symbol.upper is not None and value > symbol.upper:
            raise InputError(f"{where}; the model takes {symbol.upper} at most")
    return {s.name: found[s.name][0] for s in program.symbols}, problem


def _check_shape(tensor: Slot, shape: Shape, symbols: Mapping[str, int]) -> None:
    for axis, (dim, size) in enumerate(zip(tensor.shape, shape, strict=True)):
        wanted = evaluate_size(dim, symbols)
        if wanted != size:
            meaning = f" = {format_size(dim)}{given(dim, symbols)}" if dim != wanted else ""
            raise InputError(
                f"input {tensor.name!r} has shape {list(shape)}; the model takes {tensor.type},"
                f" so dimension {axis} must be {wanted}{meaning}"
            )


def _output_shape(tensor: Slot, symbols: Mapping[str, int]) -> Shape:
    shape = tuple(evaluate_size(d, symbols) for d in tensor.shape)
    for dim, size in zip(tensor.shape, shape, strict=True):
        if size < 0:
            raise InputError(
                f"output {tensor.name!r} would have the size {format_size(dim)} ="
                f" {size}{given(dim, symbols)}",
                hint="the inputs are too small for this model",
            )
    return shape


def _memory_size(name: str, size: Size, symbols: Mapping[str, int]) -> int:
    value = evaluate_size(size, symbols)
    if value < 0:
        raise InputError(
            f"the memory {name!r} would have {format_size(size)} ="
            f" {value} bytes{given(size, symbols)}",
            hint="the inputs are too small for this model",
        )
    return value


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
