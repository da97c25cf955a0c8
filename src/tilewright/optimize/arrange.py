"""Arrays in the arrangement that a layout gives them in memory, and back."""

from __future__ import annotations

import numpy as np

from tilewright.ir.tensor_type import Layout, TensorType


def arrange(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """The elements as they lie in memory: a row-major array of the type's physical shape. What a
    layout pads is 0."""
    layout = type_.layout
    if layout is None or not array.shape:
        return np.ascontiguousarray(array).reshape(array.shape)
    pads = [(0, -extent % layout.factor(axis)) for axis, extent in enumerate(array.shape)]
    padded = np.pad(array, pads)
    split, order = _split(padded.shape, layout)
    return np.ascontiguousarray(padded.reshape(split).transpose(order))


def read_arranged(memory: np.ndarray, type_: TensorType, shape: tuple[int, ...]) -> np.ndarray:
    """The array of logical `shape` whose elements lie in `memory` in the type's layout."""
    layout = type_.layout
    if layout is None:
        return memory.reshape(shape)
    padded = tuple(-(-d // layout.factor(a)) * layout.factor(a) for a, d in enumerate(shape))
    split, order = _split(padded, layout)
    parts = memory.reshape([split[i] for i in order]).transpose(np.argsort(order))
    whole: np.ndarray = parts.reshape(padded)
    inside: np.ndarray = whole[tuple(slice(0, d) for d in shape)]
    return inside


def _split(shape: tuple[int, ...], layout: Layout) -> tuple[list[int], list[int]]:
    """The shape with every axis cut into its outer part and its blocks, and the order in which
    these parts lie in memory."""
    split: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}  # position of each block, by its number
    for axis, extent in enumerate(shape):
        outer[axis] = len(split)
        split.append(extent // layout.factor(axis))
        for number, (owner, factor) in enumerate(layout.blocks):
            if owner == axis:
                inner[number] = len(split)
                split.append(factor)
    return split, [*(outer[a] for a in layout.order), *(inner[i] for i in range(len(inner)))]
