"""ONNX's signal operators: DFT and STFT as matrix products with constants, mel filters."""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.builder import FOLD_LIMIT
from tilewright.frontends.onnx.context import FIX_DIMS, Importer, NodeContext, axis_of
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.types import element_type
from tilewright.ir.graph import Value

LONGEST = 1 << 11  # points of a transform that is done as a matrix product


def transform_matrix(
    points: int, parts: int, length: int, onesided: bool, inverse: bool
) -> np.ndarray:
    """The DFT of `points` numbers, each of one (real) or two parts, as a matrix from
    [points * parts] to [frequencies * parts of the result]: what it does to each unit vector."""
    units = np.eye(points * parts).reshape(points * parts, points, parts)
    signal = units[..., 0] + (1j * units[..., 1] if parts == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(signal, n=length, axis=-1).reshape(points * parts, -1)
    transform = np.fft.ifft if inverse else np.fft.fft
    result = transform(signal, n=length, axis=-1)
    if onesided:
        result = result[..., : length // 2 + 1]
    pairs = np.stack([result.real, result.imag], axis=-1)
    return pairs.reshape(points * parts, -1)


def _transform(
    ctx: NodeContext, x: Value, axis: int, length: int, onesided: bool, inverse: bool
) -> Value:
    """The DFT along `axis` of x[…, parts]; the matrix is of x's type."""
    rank, points, parts = x.type.rank, x.shape[axis], x.shape[-1]
    if not isinstance(points, int) or parts not in (1, 2):
        raise ModelError(f"the input is {x.type}: its length and its 1 or 2 parts must be known")
    if not 1 <= max(points, length) <= LONGEST or length < 1:
        raise ModelError(f"a transform of {points} points to {length}: at most {LONGEST}")
    others = [a for a in range(rank - 1) if a != axis]
    matrix = transform_matrix(points, int(parts), length, onesided, inverse)
    moved = ctx.transpose(x, (*others, axis, rank - 1))
    flat = ctx.reshape(moved, [*moved.shape[:-2], points * parts])
    flat = ctx.reshape(flat, [1, *flat.shape]) if flat.type.rank == 1 else flat
    out = ctx.emit("matmul", [flat, ctx.constant(matrix.astype(x.dtype.numpy))])
    out_parts = 1 if inverse and onesided else 2
    count = matrix.shape[1] // out_parts
    out = ctx.reshape(out, [*moved.shape[:-2], count, out_parts])
    back = [*others, axis]
    return ctx.transpose(out, (*(back.index(a) for a in range(rank - 1)), rank - 1))


def dft(ctx: NodeContext, node: OnnxNode) -> Value:
    """DFT (17: axis is an attribute, 20: an input)."""
    x = node.input(0)
    onesided, inverse = node.flag("onesided"), node.flag("inverse")
    if node.opset < 20:
        axis = node.int("axis", 1)
    else:
        given = node.optional(2)
        axis = -2 if given is None else ctx.need_int(given, "axis")
    axis = axis_of(axis, x.type.rank)
    if axis == x.type.rank - 1:
        raise ModelError("the last axis holds the parts of numbers")
    points, given = x.shape[axis], node.optional(1)
    if given is not None:
        length = ctx.need_int(given, "dft_length")
    elif not isinstance(points, int):
        raise ModelError("the length is symbolic", hint=FIX_DIMS)
    else:
        length = 2 * (points - 1) if inverse and onesided else points
    return ctx.cast(_transform(ctx, ctx.widened(x), axis, length, onesided, inverse), x.dtype)


def stft(ctx: NodeContext, node: OnnxNode) -> Value:
    """STFT (17): the DFT of windows of the signal [batch, length, parts]."""
    x, window = node.input(0), node.optional(2)
    step = ctx.need_int(node.input(1), "frame_step")
    given = node.optional(3)
    length = x.shape[1] if window is None else window.shape[0]
    if given is not None:
        length = ctx.need_int(given, "frame_length")
    if x.type.rank == 2:
        x = ctx.reshape(x, [*x.shape, 1])
    total = x.shape[1]
    if not isinstance(total, int) or not isinstance(length, int) or step < 1 or length > total:
        raise ModelError(f"frames of {length}, {step} apart, of {x.type}")
    frames = 1 + (total - length) // step
    if frames * length > FOLD_LIMIT:
        raise ModelError(f"{frames} frames of {length} are too many")
    places = np.arange(frames)[:, None] * step + np.arange(length)
    out = ctx.widened(ctx.emit("gather", [x, ctx.constant(places)], axis=1))
    if window is not None:
        out = ctx.emit("mul", [out, ctx.cast(ctx.reshape(window, [length, 1]), out.dtype)])
    out = _transform(ctx, out, 2, length, node.flag("onesided", True), False)
    return ctx.cast(out, x.dtype)


def mel_weight_matrix(ctx: NodeContext, node: OnnxNode) -> Value:
    """MelWeightMatrix (17): triangular filters, evenly spaced on the mel scale."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    bins, length, rate, low, high = (
        float(ctx.need_number(node.input(i), name)) for i, name in enumerate(names)
    )
    if bins < 1 or length < 1 or rate <= 0 or max(bins, length) > LONGEST:
        raise ModelError(f"{bins:g} bins for a transform of {length:g} points")
    rows = int(length) // 2 + 1
    mel = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mel[0] + np.arange(int(bins) + 2) * (mel[1] - mel[0]) / (bins + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    places = np.floor((length + 1) * hertz / rate).astype(np.int64)
    out = np.zeros((rows, int(bins)))
    for i in range(int(bins)):
        left, centre, right = places[i : i + 3]
        if left == centre:
            out[min(centre, rows - 1), i] = 1
        else:
            rise = np.arange(left, centre + 1)
            out[rise[rise < rows], i] = ((rise - left) / (centre - left))[rise < rows]
        if right > centre:
            fall = np.arange(centre, right)
            out[fall[fall < rows], i] = ((right - fall) / (right - centre))[fall < rows]
    return ctx.constant(out.astype(element_type(node.int("output_datatype", 1)).numpy))


IMPORTERS: dict[str, Importer] = {
    "DFT": dft,
    "MelWeightMatrix": mel_weight_matrix,
    "STFT": stft,
}
