"""The definition of loop programs: one iteration and one scalar at a time.

Slow and obvious on purpose; what has lanes is computed in all of them at once. Allocations start as
NaN (floats) or a rare bit pattern, so that a read before a write shows; subscripts out of range are
errors.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_dim, poisoned, refuse_opaque
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Opaque,
    Select,
    Symbol,
    Unary,
    Var,
    as_expr,
)
from tilewright.ir.instruction import BlackBox, axis
from tilewright.ir.lanes import Across, Branch, Lane, Lookup, Masked, Shuffle
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Call,
    For,
    If,
    Kernel,
    Prefetch,
    Stmt,
    Store,
    buffers_written,
)
from tilewright.ir.loop import symbols as kernel_symbols
from tilewright.ir.scalar import apply_binary, apply_bitcast, apply_cast, apply_compare, apply_unary

Env = dict[Expr, Any]
Memory = dict[Buffer, np.ndarray]


def interpret(
    kernel: Kernel, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The kernel's outputs for these inputs (arrays of the buffers' shapes)."""
    symbols = symbols or {}
    memory: Memory = dict(zip(kernel.inputs, inputs, strict=True))
    for buffer in kernel.outputs + kernel.scratch:
        memory[buffer] = _fresh(buffer, symbols)
    env: Env = {s: np.int64(symbols[s.name]) for s in kernel_symbols(kernel)}
    env[WORKER] = np.int64(0)
    _run(kernel.body, env, memory, symbols)
    return [memory[b] for b in kernel.outputs]


def _fresh(buffer: Buffer, symbols: Mapping[str, int]) -> np.ndarray:
    return poisoned(tuple(evaluate_dim(d, symbols) for d in buffer.shape), buffer.dtype)


def _run(block: Block, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    for stmt in block:
        _RUN[type(stmt)](stmt, env, memory, symbols)


def _run_for(s: For, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    extent = int(scalar(as_expr(s.extent), env, memory))
    for i in range(extent):
        env[s.var] = np.int64(i)
        _run(s.body, env, memory, symbols)
    env.pop(s.var, None)


def _run_if(s: If, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    _run(s.body if scalar(s.cond, env, memory) else s.orelse, env, memory, symbols)


def _run_alloc(s: Alloc, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    memory[s.buffer] = _fresh(s.buffer, symbols)


def _run_store(s: Store, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    if s.mask is None:
        memory[s.buffer][_place(s, s.buffer, s.indices, env, memory)] = scalar(s.value, env, memory)
        return
    mask = np.atleast_1d(scalar(s.mask, env, memory))
    value = np.broadcast_to(scalar(s.value, env, memory), mask.shape)[mask]
    memory[s.buffer][_place(s, s.buffer, s.indices, env, memory, mask)] = value


def _run_accumulate(s: Accumulate, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    array = memory[s.buffer]
    place = _place(s, s.buffer, s.indices, env, memory)
    array[place] = apply_binary(s.op, array[place], scalar(s.value, env, memory))


def _run_call(s: Call, env: Env, memory: Memory, symbols: Mapping[str, int]) -> None:
    if s.instruction.black_box is None:
        _run(expand_call(s), env, memory, symbols)
    else:
        _run_black_box(s, s.instruction.black_box, env, memory)


def _run_black_box(s: Call, black_box: BlackBox, env: Env, memory: Memory) -> None:
    """Gives the author's function the operands' elements, and takes back those that are written."""
    i = s.instruction
    fields = {f.name: int(scalar(v, env, memory)) for f, v in zip(i.fields, s.fields, strict=True)}
    places, arrays = {}, {}
    for operand, shape, region in zip(i.operands, i.shapes(fields), s.regions, strict=True):
        found = places[operand] = np.empty(shape, object)
        arrays[operand.name] = np.empty(shape, operand.dtype.numpy)
        for at in np.ndindex(shape):
            here: Env = {**env, **{axis(d): np.int64(k) for d, k in enumerate(at)}}
            found[at] = _place(s, region.buffer, region.indices, here, memory)
            arrays[operand.name][at] = memory[region.buffer][found[at]]
    black_box(fields, arrays)
    written = buffers_written(i.body)
    for operand, region in zip(i.operands, s.regions, strict=True):
        for at in np.ndindex(places[operand].shape) if operand in written else ():
            memory[region.buffer][places[operand][at]] = arrays[operand.name][at]


_RUN: dict[type, Any] = {
    Call: _run_call,
    For: _run_for,
    If: _run_if,
    Alloc: _run_alloc,
    Store: _run_store,
    Accumulate: _run_accumulate,
    Barrier: lambda s, env, memory, symbols: None,  # one after the other, nobody has to wait
    Prefetch: lambda s, env, memory, symbols: None,
}


def scalar(e: Expr, env: Env, memory: Memory) -> Any:
    """The value of an expression: a numpy scalar of its type, or an array of its lanes."""
    return _SCALAR[type(e)](e, env, memory)


def _place(
    at: Stmt | Expr,
    buffer: Buffer,
    indices: Sequence[Expr],
    env: Env,
    memory: Memory,
    mask: np.ndarray | None = None,
) -> tuple[Any, ...]:
    """Where an element lies, or those of the lanes in which a mask holds."""
    values = [scalar(i, env, memory) for i in indices]
    if mask is not None:
        values = [np.broadcast_to(v, mask.shape)[mask] for v in values]
    place = tuple(v if np.ndim(v) else int(v) for v in values)
    for d, (i, n) in enumerate(zip(place, memory[buffer].shape, strict=True)):
        wrong = i if isinstance(i, int) else next((k for k in i if not 0 <= k < n), 0)
        if not 0 <= wrong < n:
            here = ", ".join(f"{v}={env[v]}" for v in env if isinstance(v, Var) and v != WORKER)
            raise CompileError(
                f"subscript {d} of {buffer.name} is {wrong}, outside 0 … {n - 1}",
                program=f"{at}\nwith {here}",
            )
    return place


def _load(e: Load, env: Env, memory: Memory) -> Any:
    return memory[e.buffer][_place(e, e.buffer, e.indices, env, memory)]


def _select(e: Select, env: Env, memory: Memory) -> Any:
    cond = scalar(e.cond, env, memory)
    if isinstance(cond, np.ndarray):
        return np.where(cond, scalar(e.a, env, memory), scalar(e.b, env, memory))
    return scalar(e.a if cond else e.b, env, memory)


def _masked(e: Masked, env: Env, memory: Memory) -> Any:
    mask = np.atleast_1d(scalar(e.mask, env, memory))
    read = np.zeros(mask.shape, e.dtype.numpy)
    load = e.load
    read[mask] = memory[load.buffer][_place(e, load.buffer, load.indices, env, memory, mask)]
    return read


def _across(e: Across, env: Env, memory: Memory) -> Any:
    values = np.atleast_1d(scalar(e.a, env, memory))
    return functools.reduce(functools.partial(apply_binary, e.op), values)


def _shuffle(e: Shuffle, env: Env, memory: Memory) -> Any:
    lanes = np.concatenate([np.atleast_1d(scalar(x, env, memory)) for x in e.operands])
    return lanes[list(e.places)] if len(e.places) > 1 else lanes[e.places[0]]


def _lookup(e: Lookup, env: Env, memory: Memory) -> Any:
    entries = np.array(e.entries, e.dtype.numpy)
    return entries[np.asarray(scalar(e.at, env, memory)) % len(entries)]


_SCALAR: dict[type, Any] = {
    Const: lambda e, env, memory: e.dtype.numpy.type(e.value),
    Var: lambda e, env, memory: env[e],
    Symbol: lambda e, env, memory: env[e],
    Unary: lambda e, env, memory: apply_unary(e.op, np.asarray(scalar(e.a, env, memory)))[()],
    Binary: lambda e, env, memory: apply_binary(
        e.op, scalar(e.a, env, memory), scalar(e.b, env, memory)
    ),
    Compare: lambda e, env, memory: apply_compare(
        e.op, scalar(e.a, env, memory), scalar(e.b, env, memory)
    ),
    Select: _select,
    Cast: lambda e, env, memory: apply_cast(scalar(e.a, env, memory), e.dtype)[()],
    Bitcast: lambda e, env, memory: apply_bitcast(scalar(e.a, env, memory), e.dtype)[()],
    Load: _load,
    Lane: lambda e, env, memory: np.arange(e.count),
    Masked: _masked,
    Branch: lambda e, env, memory: scalar(e.a if scalar(e.cond, env, memory) else e.b, env, memory),
    Across: _across,
    Shuffle: _shuffle,
    Lookup: _lookup,
    Opaque: lambda e, env, memory: refuse_opaque(e),
}
