"""The definition of tensor expressions and graphs: numpy, whole arrays at a time.

A stage is evaluated for all its axes at once, with its reduction axes stepped through in chunks
so that no intermediate grows beyond `CHUNK` elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.base.dtype import DType, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Opaque,
    Select,
    Symbol,
    Unary,
    Var,
    as_expr,
)
from tilewright.ir.graph import Graph, GraphNode, Value, symbols_in
from tilewright.ir.op import Op
from tilewright.ir.scalar import apply_binary, apply_bitcast, apply_cast, apply_compare, apply_unary
from tilewright.ir.tensor import (
    Axis,
    Builder,
    Item,
    Stage,
    TensorProgram,
    format_stage,
    stages,
)

CHUNK = 1 << 22  # elements of an intermediate

Env = Mapping[Any, Any]  # of variables and symbols, integers or index arrays
Memory = dict[Buffer, np.ndarray]


def evaluate_dim(dim: Dim, symbols: Mapping[str, int]) -> int:
    """The value of a dimension when its symbols have these values."""
    if not isinstance(dim, Expr):
        return dim
    env: Env = {s: symbols[s.name] for s in dim.walk() if isinstance(s, Symbol)}
    return int(evaluate_expr(dim, env, {}))


def evaluate_expr(e: Expr, env: Env, memory: Memory) -> Any:
    """The expression's value, broadcast over the index arrays in `env`."""
    return _EVALUATE[type(e)](e, env, memory)


def _lookup(e: Var | Symbol, env: Env, memory: Memory) -> Any:
    return np.asarray(env[e], e.dtype.numpy)


def _select(e: Select, env: Env, memory: Memory) -> Any:
    cond = evaluate_expr(e.cond, env, memory)
    if np.ndim(cond) == 0:
        return evaluate_expr(e.a if cond else e.b, env, memory)
    return np.where(cond, evaluate_expr(e.a, env, memory), evaluate_expr(e.b, env, memory))


def _load(e: Load, env: Env, memory: Memory) -> Any:
    """Reads with clipped subscripts: out of range only on a side that a select throws away."""
    array = memory[e.buffer]
    if array.size == 0:
        return np.zeros((), array.dtype)
    places = [
        np.clip(evaluate_expr(i, env, memory), 0, n - 1)
        for i, n in zip(e.indices, array.shape, strict=True)
    ]
    return array[tuple(places)] if places else array[()]


def refuse_opaque(e: Opaque) -> NoReturn:
    """What is known by name alone cannot be computed."""
    raise CompileError(
        f"{e.name} is opaque: only an instruction can compute it",
        program=e,
        hint="replace its loops by an instruction that has it: tensorize",
    )


_EVALUATE: dict[type, Any] = {
    Const: lambda e, env, memory: np.asarray(e.value, e.dtype.numpy),
    Var: _lookup,
    Symbol: _lookup,
    Unary: lambda e, env, memory: apply_unary(e.op, evaluate_expr(e.a, env, memory)),
    Binary: lambda e, env, memory: apply_binary(
        e.op, evaluate_expr(e.a, env, memory), evaluate_expr(e.b, env, memory)
    ),
    Compare: lambda e, env, memory: apply_compare(
        e.op, evaluate_expr(e.a, env, memory), evaluate_expr(e.b, env, memory)
    ),
    Select: _select,
    Cast: lambda e, env, memory: apply_cast(evaluate_expr(e.a, env, memory), e.dtype),
    Bitcast: lambda e, env, memory: apply_bitcast(evaluate_expr(e.a, env, memory), e.dtype),
    Load: _load,
    Opaque: lambda e, env, memory: refuse_opaque(e),
}


# ---------------------------------------------------------------- tensor programs


def evaluate_program(
    program: TensorProgram, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The outputs of a tensor program for these inputs."""
    memory: Memory = dict(zip(program.inputs, inputs, strict=True))
    env: Env = _symbol_env(program, symbols or {})
    _evaluate_items(program.items, env, memory)
    return [memory[b] for b in program.outputs]


def _symbol_env(root: Any, symbols: Mapping[str, int]) -> Env:
    return {s: symbols[s.name] for s in root.walk() if isinstance(s, Symbol)}


def _evaluate_items(items: Sequence[Item], env: Env, memory: Memory) -> None:
    for item in items:
        if isinstance(item, Stage):
            _evaluate_stage(item, env, memory)
            continue
        for stage in stages(item.items):
            _allocate(stage.buffer, env, memory)
        for step in range(_extent(item.step, env)):
            _evaluate_items(item.items, {**env, item.step.var: step}, memory)


def _extent(axis: Axis, env: Env) -> int:
    return int(evaluate_expr(as_expr(axis.extent), env, {}))


def _allocate(buffer: Buffer, env: Env, memory: Memory) -> np.ndarray:
    if buffer not in memory:
        shape = tuple(int(evaluate_expr(as_expr(d), env, {})) for d in buffer.shape)
        memory[buffer] = poisoned(shape, buffer.dtype)
    return memory[buffer]


def poisoned(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """A fresh array that no program should read before writing: NaN, or a rare bit pattern."""
    with np.errstate(all="ignore"):
        fill = np.nan if dtype.is_float else dtype.max // 3 * 2
        return np.full(shape, np.asarray(fill).astype(dtype.numpy))


def _evaluate_stage(stage: Stage, env: Env, memory: Memory) -> None:
    target = _allocate(stage.buffer, env, memory)
    shape = tuple(_extent(a, env) for a in stage.axes)
    if 0 in shape:
        return
    rank = len(shape)
    grids: Env = {
        a.var: np.arange(n).reshape([-1 if d == i else 1 for d in range(rank)])
        for i, (a, n) in enumerate(zip(stage.axes, shape, strict=True))
    }
    inner = {**env, **grids}
    if stage.op is None:
        value = np.broadcast_to(evaluate_expr(stage.value, inner, memory), shape)
    else:
        value = _reduce(stage, stage.op, shape, inner, memory)
    whole = target.shape == shape and stage.indices == tuple(a.var for a in stage.axes)
    target[... if whole else _places(stage, shape, inner, target, memory)] = value


def _places(
    stage: Stage, shape: tuple[int, ...], env: Env, target: np.ndarray, memory: Memory
) -> tuple[np.ndarray, ...]:
    """Where the stage writes, as index arrays; all of it must be in range."""
    places = []
    for axis, (i, n) in enumerate(zip(stage.indices, target.shape, strict=True)):
        place = np.broadcast_to(evaluate_expr(i, env, memory), shape)
        if place.min() < 0 or place.max() >= n:
            raise CompileError(
                f"subscript {axis} of {stage.buffer.name} is {place.min()} … {place.max()},"
                f" outside 0 … {n - 1}",
                program=format_stage(stage),
            )
        places.append(place)
    return tuple(places)


def _reduce(
    stage: Stage, op: BinaryOp, shape: tuple[int, ...], env: Env, memory: Memory
) -> np.ndarray:
    extents = [_extent(a, env) for a in stage.reduce]
    total = np.broadcast_to(evaluate_expr(stage.start(op), env, memory), shape)
    if 0 in extents:
        return total
    size = max(1, int(np.prod(shape)))
    # The trailing reduction axes that fit beside the result are done as array axes.
    whole = len(extents)
    while whole > 0 and size * int(np.prod(extents[whole - 1 :])) <= CHUNK:
        whole -= 1
    stepped, arrayed = stage.reduce[:whole], stage.reduce[whole:]
    for values in itertools.product(*(range(n) for n in extents[:whole])):
        here: Env = dict(zip([a.var for a in stepped], values, strict=True))
        part = _combine(stage, op, shape, {**env, **here}, arrayed, memory)
        total = apply_binary(op, total, part)
    return np.asarray(total)


def _combine(
    stage: Stage,
    op: BinaryOp,
    shape: tuple[int, ...],
    env: Env,
    over: Sequence[Axis],
    memory: Memory,
) -> np.ndarray:
    """The value combined over the axes in `over`, as arrays."""
    extents = tuple(_extent(a, env) for a in over)
    inner: dict[Expr, Any] = {}
    for var, value in env.items():  # spatial index arrays get trailing axes for `over`
        inner[var] = (
            value.reshape(value.shape + (1,) * len(over))
            if isinstance(value, np.ndarray)
            else value
        )
    for i, (axis, n) in enumerate(zip(over, extents, strict=True)):
        inner[axis.var] = np.arange(n).reshape(
            [1] * len(shape) + [-1 if d == i else 1 for d in range(len(over))]
        )
    value = np.broadcast_to(evaluate_expr(stage.value, inner, memory), shape + extents)
    flat = value.reshape((*shape, -1)) if over else value[..., None]
    result = flat[..., 0]
    ufunc = _UFUNC.get(op)
    if ufunc is not None and flat.dtype in _PLAIN:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc.reduce(flat, axis=-1, dtype=flat.dtype))
    for i in range(1, flat.shape[-1]):
        result = apply_binary(op, result, flat[..., i])
    return result


_UFUNC = {
    BinaryOp.ADD: np.add,
    BinaryOp.MUL: np.multiply,
    BinaryOp.MAX: np.maximum,
    BinaryOp.MIN: np.minimum,
}
# Types in which numpy's own reductions mean what scalar.py says (narrower ones round otherwise).
_PLAIN = frozenset(t.numpy for t in (f64, f32, i64, i32, i16, i8, u64, u32, u16, u8))


# ---------------------------------------------------------------- graphs


def op_program(op: Op, attrs: object, inputs: Sequence[Buffer]) -> TensorProgram:
    """One operator's tensor expression on these buffers."""
    if op.compute is None:
        raise CompileError(f"{op.name} has no tensor expression: it is a call to the host")
    taken = {b.name for b in inputs} | {s.name for s in symbols_in(attrs, *inputs)}
    builder = Builder(taken)
    outputs = op.compute(builder, attrs, inputs)
    unique = tuple(dict.fromkeys(inputs))
    return TensorProgram(op.name, unique, builder.items, tuple(outputs))


def evaluate_node(
    n: GraphNode, inputs: Sequence[np.ndarray], symbols: Mapping[str, int]
) -> list[np.ndarray]:
    """The outputs of one graph node, in logical (row-major) arrangement."""
    if n.op.evaluate is not None:
        return [np.asarray(a) for a in n.op.evaluate(n.attrs, inputs)]
    buffers = [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]
    return evaluate_program(op_program(n.op, n.attrs, buffers), inputs, symbols)


def evaluate_graph(
    graph: Graph, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The outputs of a graph: the definition that every pass and every compilation must keep.
    Symbols that are dimensions of inputs need no value in `symbols`."""
    values = dict(zip(graph.inputs, inputs, strict=True)) | dict(graph.constants)
    for _ in evaluate_steps(graph, values, symbols or {}):
        pass
    return [values[v] for v in graph.outputs]


def evaluate_steps(
    graph: Graph, values: dict[Value, np.ndarray], symbols: Mapping[str, int]
) -> Iterator[tuple[GraphNode, dict[Value, np.ndarray]]]:
    """Runs node after node; results are added to `values`, which the caller may change between
    two nodes. A symbol gets its value with the first array that has it as a dimension."""
    known = dict(symbols)
    _bind_symbols(values, known)
    for n in graph.nodes:
        outputs = evaluate_node(n, [values[v] for v in n.inputs], known)
        results = dict(zip(n.outputs, outputs, strict=True))
        _bind_symbols(results, known)
        values |= results
        yield n, results


def _bind_symbols(values: Mapping[Value, np.ndarray], known: dict[str, int]) -> None:
    for value, array in values.items():
        for dim, size in zip(value.shape, np.shape(array), strict=True):
            if isinstance(dim, Symbol):
                known.setdefault(dim.name, size)
