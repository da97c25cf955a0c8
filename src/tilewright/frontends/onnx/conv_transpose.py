"""ConvTranspose: a convolution for each phase of its result, or one with the phases as channels.

With a stride s, the result's elements at i = s * j + q read the input at j and a few places beside
it, through every s-th tap of the kernel: a convolution with stride 1 and a kernel of its own. The
phases of all axes are computed apart and put together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import FIX_DIMS, NodeContext, one_of
from tilewright.frontends.onnx.neural import add_per_channel, is_short
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value

# Phases, up to which each has its own convolution; more are channels of one, up to MANY. So are
# all phases of channels of their own.
FEW = 8
MANY = 1 << 12


@dataclass(frozen=True)
class Phase:
    """Elements q, q + s, … of the result along an axis: element j reads the input from j + `first`
    on, through these taps of the kernel, in this order; None is a tap of zeros."""

    first: int
    taps: tuple[int | None, ...]

    def over(self, first: int, last: int) -> Phase:
        """The same, with taps of zeros so that it reads from `first` to in front of `last`."""
        behind = last - self.first - len(self.taps)
        return Phase(first, (*[None] * (self.first - first), *self.taps, *[None] * behind))


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution: attributes by spatial axis, and what is cut off the ends."""

    strides: Sequence[int]
    dilations: Sequence[int]
    begin: Sequence[int]
    end: Sequence[int]
    extra: Sequence[int]
    groups: int
    wide: bool

    def is_by_channel(self, weight: Sequence[Dim]) -> bool:
        """Whether each channel of the input is a group: w[c, o / groups, …]."""
        return weight[0] == self.groups

    def beyond(self, axis: int, kernel: int) -> int:
        """The result's extent, but for a stride for each place of the input behind the first."""
        reach = (kernel - 1) * self.dilations[axis]
        return self.extra[axis] + reach + 1 - self.begin[axis] - self.end[axis]

    def more(self, axis: int, kernel: int) -> int:
        """How many elements the longest phase has more than the input."""
        return -(-self.beyond(axis, kernel) // self.strides[axis]) - 1


def conv_transpose(ctx: NodeContext, node: OnnxNode) -> Value:
    """ConvTranspose (1, 11, 22)."""
    x, w = node.input(0), node.input(1)
    rank = x.type.rank - 2
    if rank < 1 or w.type.rank != x.type.rank or not all(isinstance(d, int) for d in w.shape):
        raise ModelError(f"the input is {x.type} and the weight {w.type}")
    kernel = tuple(int(d) for d in w.shape[2:])
    groups = node.int("group", 1)
    strides = node.ints("strides", (1,) * rank)
    dilations = node.ints("dilations", (1,) * rank)
    extra = node.ints("output_padding", (0,) * rank)
    if not len(strides) == len(dilations) == len(extra) == rank:
        raise ModelError(f"strides, dilations or output_padding do not fit {rank} axes")
    if min((*strides, *dilations)) < 1 or min(extra) < 0 or groups < 1:
        raise ModelError("strides, dilations and group must be positive")
    if int(w.shape[0]) % groups:
        raise ModelError(f"{w.shape[0]} input channels do not divide into {groups} groups")
    begin, end = _transpose_pads(node, x.shape[2:], kernel, strides, dilations, extra)
    wide = node.optional(2) is not None and is_short(x)
    t = Transposed(strides, dilations, begin, end, extra, groups, wide)
    array = ctx.known_constant(w)
    phases = None if array is None else [_phases(t, a, k) for a, k in enumerate(kernel)]
    most = MANY if groups == 1 or t.is_by_channel(w.shape) else FEW
    several = 1 < math.prod(strides) <= most
    if array is None or not array.size or not phases or not all(phases) or not several:
        out = _spread(ctx, x, w, t)
    else:
        out = _by_phases(ctx, x, array, t, [p for p in phases if p])
    return ctx.cast(add_per_channel(ctx, out, node.optional(2)), x.dtype)


# ---------------------------------------------------------------- by phases


def _phases(t: Transposed, axis: int, kernel: int) -> list[Phase] | None:
    """The phases along an axis; None where taps of one phase are not neighbours in the input."""
    stride, dilation = t.strides[axis], t.dilations[axis]
    if stride > 1 and dilation > 1:
        return None
    more = t.more(axis, kernel)
    found = []
    for q in range(stride):
        at = {k: q + t.begin[axis] - k * dilation for k in range(kernel)}
        taps = [k for k in reversed(range(kernel)) if at[k] % stride == 0]
        first = at[taps[0]] // stride if taps else 0
        phase = Phase(first, tuple(taps) or (None,))
        if stride > 1:  # the window is nowhere wholly beside the input
            phase = phase.over(min(first, 0), max(first + len(phase.taps), 1 - more))
        found.append(phase)
    return found


def _by_phases(
    ctx: NodeContext, x: Value, w: np.ndarray, t: Transposed, phases: Sequence[Sequence[Phase]]
) -> Value:
    """The result's phases, interleaved. w[c, o / groups, …]."""
    rank, kernel, counts = len(phases), w.shape[2:], tuple(t.strides)
    # Of channels of their own, products with taps of zeros cost less than putting phases together.
    if math.prod(counts) > FEW or t.is_by_channel(w.shape):
        phases = [_as_one(axis) for axis in phases]
        every = [_phase_weight(w, p, t.groups) for p in itertools.product(*phases)]
        by_group = [p.reshape(t.groups, -1, *p.shape[1:]) for p in every]
        weight = np.stack(by_group, axis=1).reshape(-1, *every[0].shape[1:])
        out, groups = _phase(ctx, x, weight, t, [axis[0] for axis in phases], kernel), t.groups
    else:
        parts = [
            _phase(ctx, x, _phase_weight(w, p, t.groups), t, p, kernel)
            for p in itertools.product(*phases)
        ]
        out, groups = ctx.emit("concat", parts, axis=1), 1
    batch, channels, *sizes = out.shape
    inner = int(channels) // (groups * math.prod(counts))
    out = ctx.reshape(out, (batch, groups, *counts, inner, *sizes))
    places = [axis for a in range(rank) for axis in (3 + rank + a, 2 + a)]
    out = ctx.transpose(out, (0, 1, 2 + rank, *places))
    whole = [canonical(as_expr(n) * s) for n, s in zip(sizes, counts, strict=True)]
    out = ctx.reshape(out, (batch, groups * inner, *whole))
    for a in range(rank):
        rest = (as_expr(x.shape[2 + a]) - 1) * counts[a] + t.beyond(a, kernel[a])
        if canonical(rest) != whole[a]:
            out = ctx.slice(out, 2 + a, 0, canonical(rest))
    return out


def _as_one(phases: Sequence[Phase]) -> list[Phase]:
    """The phases of an axis with one window of the input for all, by taps of zeros."""
    first = min(p.first for p in phases)
    last = max(p.first + len(p.taps) for p in phases)
    return [p.over(first, last) for p in phases]


def _phase_weight(w: np.ndarray, phase: Sequence[Phase], groups: int) -> np.ndarray:
    """w[c, o / groups, …] as the weight [o, c / groups, …] of a phase's convolution."""
    for axis, p in enumerate(phase, 2):
        taps = np.take(w, [0 if k is None else k for k in p.taps], axis)
        there = np.array([k is not None for k in p.taps]).reshape(-1, *[1] * (w.ndim - 1 - axis))
        w = np.where(there, taps, np.zeros((), w.dtype))
    c, o, *kernel = w.shape
    perm = (0, 2, 1, *range(3, 3 + len(kernel)))
    grouped = w.reshape(groups, c // groups, o, *kernel).transpose(perm)
    return np.ascontiguousarray(grouped.reshape(groups * o, c // groups, *kernel))


def _phase(
    ctx: NodeContext,
    x: Value,
    weight: np.ndarray,
    t: Transposed,
    phase: Sequence[Phase],
    kernel: Sequence[int],
) -> Value:
    """One phase: along each axis as many elements as the longest phase has."""
    before, after = [], []
    for a, p in enumerate(phase):
        before.append(-p.first)
        after.append(t.more(a, kernel[a]) + p.first + (len(p.taps) - 1) * t.dilations[a])
    return _conv(ctx, x, ctx.constant(weight), t, before, after)


# ---------------------------------------------------------------- as it is defined


def _spread(ctx: NodeContext, x: Value, w: Value, t: Transposed) -> Value:
    """A convolution, with the kernel reversed, of the input with zeros between its elements."""
    kernel = [int(d) for d in w.shape[2:]]
    spread = x
    if any(s > 1 for s in t.strides):
        spread = ctx.emit("dilate", [x], strides=(1, 1, *t.strides))
    reach = [(k - 1) * d for k, d in zip(kernel, t.dilations, strict=True)]
    before = [r - p for r, p in zip(reach, t.begin, strict=True)]
    after = [r - p + e for r, p, e in zip(reach, t.end, t.extra, strict=True)]
    return _conv(ctx, spread, _reversed_kernel(ctx, w, t.groups), t, before, after)


def _conv(
    ctx: NodeContext,
    x: Value,
    w: Value,
    t: Transposed,
    before: Sequence[int],
    after: Sequence[int],
) -> Value:
    """A convolution with stride 1; padding of less than nothing cuts off."""
    for a, ends in enumerate(zip(before, after, strict=True)):
        cut = [max(0, -n) for n in ends]
        if any(cut):
            rest = canonical(as_expr(x.shape[2 + a]) - sum(cut))
            x = ctx.slice(x, 2 + a, cut[0], rest)
    return ctx.emit(
        "conv",
        [x, w],
        strides=(1,) * len(before),
        dilations=t.dilations,
        pads_begin=tuple(max(0, n) for n in before),
        pads_end=tuple(max(0, n) for n in after),
        groups=t.groups,
        wide=t.wide,
    )


def _transpose_pads(
    node: OnnxNode,
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
) -> tuple[Sequence[int], Sequence[int]]:
    """What is cut off each end: given, or what auto_pad or output_shape ask for."""
    rank = len(kernel)
    mode = one_of(node, "auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    wanted = node.ints("output_shape")[-rank:] if node.has("output_shape") else None
    if wanted is None and not mode.startswith("SAME"):
        pads = node.ints("pads", (0,) * (2 * rank)) if mode == "NOTSET" else (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads, default=0) < 0:
            raise ModelError(f"pads {list(pads)} do not fit {rank} axes")
        return pads[:rank], pads[rank:]
    if wanted is not None and len(wanted) != rank:
        raise ModelError(f"output_shape {list(wanted)} does not fit {rank} axes")
    begin, end = [], []
    for axis, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        full = (as_expr(sizes[axis]) - 1) * s + (extra[axis] + (k - 1) * d + 1)
        target = as_expr(sizes[axis]) * s if wanted is None else as_expr(wanted[axis])
        total = canonical(full - target)
        if not isinstance(total, int):
            raise ModelError("the pads depend on a symbolic dimension", hint=FIX_DIMS)
        half, more = total // 2, total - total // 2
        begin.append(half if mode == "SAME_UPPER" else more)
        end.append(more if mode == "SAME_UPPER" else half)
    return begin, end


def _reversed_kernel(ctx: NodeContext, w: Value, groups: int) -> Value:
    """w[c, o / groups, …] as the weight [o, c / groups, …] of a convolution, reversed in space."""
    c, o, *kernel = (int(d) for d in w.shape)
    grouped = (groups, c // groups, o, *kernel)
    perm = (0, 2, 1, *range(3, 3 + len(kernel)))
    shape = (groups * o, c // groups, *kernel)
    array = ctx.known_constant(w)
    if array is not None:
        turned = array.reshape(grouped).transpose(perm).reshape(shape)
        spatial = tuple(range(2, 2 + len(kernel)))
        return ctx.constant(np.ascontiguousarray(np.flip(turned, spatial)))
    turned = ctx.reshape(ctx.transpose(ctx.reshape(w, grouped), perm), shape)
    starts = (0, 0, *(k - 1 for k in kernel))
    steps = (1, 1, *[-1] * len(kernel))
    return ctx.emit("slice", [turned], starts=starts, sizes=shape, steps=steps)
