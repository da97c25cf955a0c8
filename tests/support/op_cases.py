"""One or more examples of every operator, each with the numpy formula it must agree with.

A dimension written "n" is 5, and stands for a symbol as well: every example is run both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.base.dtype import DType, bool_, f16, f32, i8, i32, i64, u8
from tilewright.ir.evaluate import evaluate_program, op_program
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.op import Op
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.ir.verify.tensor import verify_program
from tilewright.ops.table import op as find_op

N = 5
Shape = tuple[Any, ...]
Operand = tuple[DType, Shape] | np.ndarray


@dataclass(frozen=True)
class Case:
    """An operator on operands; `expected` computes all its outputs from numpy arrays."""

    op: str
    operands: tuple[Operand, ...]
    expected: Callable[..., Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        shown = "-".join(f"{k}={v}".replace(" ", "") for k, v in self.attrs.items())
        return f"{self.op}-{shown}"[:80]


def case(op: str, *operands: Operand, expected: Callable[..., Any], **attrs: Any) -> Case:
    return Case(op, operands, expected, attrs)


def arrays_of(operands: Sequence[Operand], seed: int = 0) -> list[np.ndarray]:
    """Random elements; floats are standard normal, integers 0 … 8."""
    random = np.random.default_rng(seed)
    out = []
    for operand in operands:
        if isinstance(operand, np.ndarray):
            out.append(operand)
            continue
        dtype, shape = operand
        extents = [N if d == "n" else d for d in shape]
        if dtype.is_float:
            out.append(random.standard_normal(extents).astype(dtype.numpy))
        else:
            high = 2 if dtype is bool_ else 9
            out.append(random.integers(0, high, extents).astype(dtype.numpy))
    return out


def types_of(
    operands: Sequence[Operand], arrays: Sequence[np.ndarray], symbol: Any
) -> list[TensorType]:
    """The operands' types, with `symbol` for n."""
    out = []
    for operand, array in zip(operands, arrays, strict=True):
        shape = array.shape if isinstance(operand, np.ndarray) else operand[1]
        dims = tuple(symbol if d == "n" else d for d in shape)
        out.append(TensorType(_dtype(operand, array), dims))
    return out


def _dtype(operand: Operand, array: np.ndarray) -> DType:
    if not isinstance(operand, np.ndarray):
        return operand[0]
    known = {np.dtype(t.numpy): t for t in (f32, f16, i32, i64, u8, i8, bool_)}
    return known[array.dtype]


def with_symbol(value: Any, symbol: Any) -> Any:
    """Attributes: "n" is the symbol, a callable of it is called."""
    if isinstance(value, tuple):
        return tuple(with_symbol(v, symbol) for v in value)
    if callable(value):
        return value(symbol)
    return symbol if isinstance(value, str) and value == "n" else value


def prepare(c: Case, symbol: Any) -> tuple[Op, Any, list[TensorType], list[np.ndarray]]:
    op, arrays = find_op(c.op), arrays_of(c.operands)
    attrs = op.make_attrs(**{k: with_symbol(v, symbol) for k, v in c.attrs.items()})
    return op, attrs, types_of(c.operands, arrays, symbol), arrays


def program_of(op: Op, attrs: Any, types: Sequence[TensorType]) -> TensorProgram:
    buffers = [Buffer(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
    program = op_program(op, attrs, buffers)
    verify_program(program)
    return program


def run(c: Case, symbolic: bool) -> list[np.ndarray]:
    """The outputs, whose types are checked against what the operator infers."""
    symbol = Symbol("n") if symbolic else N
    op, attrs, types, arrays = prepare(c, symbol)
    inferred = op.infer(attrs, types)
    if op.evaluate is not None:
        results = [np.asarray(a) for a in op.evaluate(attrs, arrays)]
    else:
        program = program_of(op, attrs, types)
        for buffer, t in zip(program.outputs, inferred, strict=True):
            assert TensorType(buffer.dtype, tuple(buffer.shape)) == t, (buffer, t)
        results = evaluate_program(program, arrays, {"n": N})
    for result, t in zip(results, inferred, strict=True):
        assert result.dtype == t.dtype.numpy
        for dim, size in zip(t.shape, result.shape, strict=True):
            assert not isinstance(dim, int) or dim == size
    return results


# ---------------------------------------------------------------- formulas


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def standardize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def conv2d(x, w, stride=1, pad=0, dilation=1, groups=1):
    """The plain loops."""
    n, _, h, width = x.shape
    o, per_group, kh, kw = w.shape
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    oh = (h + 2 * pad - (kh - 1) * dilation - 1) // stride + 1
    ow = (width + 2 * pad - (kw - 1) * dilation - 1) // stride + 1
    out = np.zeros((n, o, oh, ow), x.dtype)
    for oc in range(o):
        first = oc // (o // groups) * per_group
        for i in range(oh):
            for j in range(ow):
                rows = slice(i * stride, i * stride + (kh - 1) * dilation + 1, dilation)
                cols = slice(j * stride, j * stride + (kw - 1) * dilation + 1, dilation)
                block = x[:, first : first + per_group, rows, cols]
                out[:, oc, i, j] = (block * w[oc]).sum((1, 2, 3))
    return out


def nibbles(q):
    """The codes of 4 bits in bytes, along the first axis."""
    return np.stack([q & 15, q >> 4], 1).reshape(-1, *q.shape[1:]).astype(np.float32)


def pool2d(x, kernel, stride, combine):
    oh, ow = ((d - kernel) // stride + 1 for d in x.shape[2:])
    out = np.zeros((*x.shape[:2], oh, ow), x.dtype)
    for i in range(oh):
        for j in range(ow):
            block = x[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            out[:, :, i, j] = combine(block.reshape(*x.shape[:2], -1))
    return out


def lstm(xw, rt, h, c):
    """Gates i, o, f, c, without peepholes."""
    ys = []
    for gates in xw:
        i, o, f, g = np.split(gates + h @ rt, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys), h, c


def gru(xw, rt, h):
    """Gates z, r, h; the reset gate acts before the product."""
    hidden, ys = rt.shape[0], []
    for gates in xw:
        z, r = np.split(sigmoid(gates[:, : 2 * hidden] + h @ rt[:, : 2 * hidden]), 2, axis=1)
        g = np.tanh(gates[:, 2 * hidden :] + (r * h) @ rt[:, 2 * hidden :])
        h = (1 - z) * g + z * h
        ys.append(h)
    return np.stack(ys), h


def rnn(xw, rt, h):
    ys = []
    for gates in xw:
        h = np.tanh(gates + h @ rt)
        ys.append(h)
    return np.stack(ys), h


def scattered(x, places, updates, axis, combine=None):
    out = x.copy()
    for index in np.ndindex(*places.shape):
        at = list(index)
        at[axis] = places[index]
        old = out[tuple(at)]
        out[tuple(at)] = updates[index] if combine is None else combine(old, updates[index])
    return out


def scattered_nd(x, places, updates):
    out = x.copy()
    for index in np.ndindex(*places.shape[:-1]):
        out[tuple(places[index])] = updates[index]
    return out


def lrn(x, size, alpha, beta, bias):
    out = np.zeros_like(x)
    for c in range(x.shape[1]):
        first, last = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
        squares = (x[:, first:last] ** 2).sum(1)
        out[:, c] = x[:, c] / (bias + alpha / size * squares) ** beta
    return out


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def bilinear(x, grid):
    """grid_sample, zeros outside, corners not aligned."""
    n, c, h, w = x.shape
    out = np.zeros((n, c, *grid.shape[1:3]), x.dtype)
    for b in range(n):
        for i, j in np.ndindex(*grid.shape[1:3]):
            px = ((grid[b, i, j, 0] + 1) * w - 1) / 2
            py = ((grid[b, i, j, 1] + 1) * h - 1) / 2
            for dy in (0, 1):
                for dx in (0, 1):
                    y, xx = int(np.floor(py)) + dy, int(np.floor(px)) + dx
                    if 0 <= y < h and 0 <= xx < w:
                        weight = (1 - abs(py - y)) * (1 - abs(px - xx))
                        out[b, :, i, j] += weight * x[b, :, y, xx]
    return out


def folded(x, shape, kernel):
    """fold in one axis of space with stride 1, in image form."""
    n, columns, blocks = x.shape
    out = np.zeros((n, columns // kernel, shape), x.dtype)
    for k in range(kernel):
        for block in range(blocks):
            out[:, :, block + k] += x[:, k::kernel, block]
    return out
