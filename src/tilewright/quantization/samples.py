"""Calibration data as calls of the model.

An array has a model's input in its own shape, or several along the first axis: where that is of
any size, as many as there are; where it has a size, a multiple of it; or stacked along an axis
before all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from tilewright.base.errors import InputError, did_you_mean
from tilewright.quantization.network import Network

Arrays = Mapping[str, np.ndarray]
MOST = 1 << 24  # elements of watched values at once: 64 MiB of f32
WIDEST = 64  # samples at once


@dataclass(frozen=True)
class Samples:
    """`count` calls of the model, or, where it takes any number at once, so many samples. Arrays
    that are `whole` are given to every call."""

    arrays: Arrays
    whole: frozenset[str]
    count: int
    step: Mapping[str, int]  # rows of one sample, for each array that is cut
    stacked: frozenset[str]  # whose first axis counts samples, and is not the model's
    joins: bool  # whether several samples are one call
    width: int = 1  # how many samples are run at once

    def batch(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The inputs of the samples from `first` up to `last`."""
        found = {}
        for name, array in self.arrays.items():
            if name in self.whole:
                found[name] = array
            elif name in self.stacked:
                found[name] = array[first]
            else:
                found[name] = array[first * self.step[name] : last * self.step[name]]
        return found

    def batches(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """All samples, `width` at once, each time with how many are done after it."""
        for first in range(0, self.count, self.width):
            last = min(first + self.width, self.count)
            yield last, self.batch(first, last)

    def for_elements(self, count: int) -> Samples:
        """As many at once as memory has room for, if one makes so many elements to look at."""
        width = max(1, min(WIDEST, MOST // max(count, 1))) if self.joins else 1
        return replace(self, width=width)


def read_samples(network: Network, given: object, most: int | None) -> Samples:
    """The data that a caller gave, against the model's inputs; InputError where it does not fit."""
    graph = network.header.graph
    arrays = _by_name(graph, given)
    sizes = {i.name: _shape(i) for i in graph.input}
    whole, stacked, step, counts = set(), set(), {}, {}
    symbols = set()
    for i in graph.input:
        array, shape = arrays[i.name], sizes[i.name]
        if _is_stacked(array, shape):
            stacked.add(i.name)
            counts[i.name] = len(array)
        elif array.ndim != len(shape) or not _fits(array.shape[1:], shape[1:]):
            raise _no_fit(i.name, array, shape)
        elif not shape:
            whole.add(i.name)
        elif isinstance(shape[0], int):
            if shape[0] == 0 or len(array) % shape[0]:
                raise _no_fit(i.name, array, shape)
            step[i.name], counts[i.name] = shape[0], len(array) // shape[0]
        else:
            symbols.add(shape[0])
            step[i.name], counts[i.name] = 1, len(array)
    joins = len(symbols) == 1 and not stacked and all(s == 1 for s in step.values())
    joins &= all(not isinstance(sizes[n][0], int) for n in step)
    if counts and set(counts.values()) != {1}:  # one of several is given to each call
        count = max(counts.values())
        for name, found in list(counts.items()):
            if found == 1 and name in step and isinstance(sizes[name][0], int):
                whole.add(name)
            elif found != count:
                raise InputError(
                    "the calibration data has different numbers of samples: "
                    + ", ".join(f"{n}: {c}" for n, c in counts.items()),
                    hint="give as many of each input",
                )
    total = max(counts.values(), default=1)
    if total == 0:
        raise InputError("the calibration data has no samples", hint="give one or more")
    total = total if most is None else min(total, most)
    return Samples(arrays, frozenset(whole), total, step, frozenset(stacked), joins)


def _by_name(graph: onnx.GraphProto, given: object) -> dict[str, np.ndarray]:
    names = [i.name for i in graph.input]
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise InputError(
                f"the model has {len(names)} inputs, and the calibration data is one array",
                hint=f"give a mapping with an array for each: {', '.join(names)}",
            )
        given = {names[0]: given}
    arrays = {str(name): np.asarray(a) for name, a in given.items()}
    if len(names) == 1 and names[0] not in arrays:
        arrays = {names[0]: _only_one_that_fits(graph.input[0], arrays)}
    for i in graph.input:
        if i.name not in arrays:
            raise InputError(
                f"the calibration data has no array for the input {i.name!r}",
                hint=did_you_mean(i.name, sorted(arrays)),
            )
        wanted = helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        array = arrays[i.name]
        if array.dtype != wanted and not (
            array.dtype.kind == wanted.kind == "f"
            or (array.dtype.kind in "iu" and wanted.kind == "i")
        ):
            raise InputError(
                f"the calibration data for {i.name!r} is {array.dtype}, and the model takes"
                f" {wanted}"
            )
        arrays[i.name] = array.astype(wanted, copy=False)
    return {name: arrays[name] for name in names}


def _only_one_that_fits(info: onnx.ValueInfoProto, arrays: Arrays) -> np.ndarray:
    """The array for the only input where none has its name."""
    wanted, shape = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type), _shape(info)
    fitting = [
        a
        for a in arrays.values()
        if a.dtype.kind == wanted.kind
        and (_is_stacked(a, shape) or (a.ndim == len(shape) and _fits(a.shape[1:], shape[1:])))
    ]
    if len(fitting) != 1:
        shown = ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in arrays.items()) or "nothing"
        raise InputError(
            f"the calibration data has no array for the input {info.name!r}: {wanted}"
            f"[{', '.join(map(str, shape))}], and"
            f" {'none' if not fitting else 'more than one'} of its arrays fits: {shown}",
            hint=f"call the array {info.name!r}",
        )
    return fitting[0]


def _shape(info: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    dims = info.type.tensor_type.shape.dim
    return tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or f"{info.name}_{k}"
        for k, d in enumerate(dims)
    )


def _fits(found: Sequence[int], wanted: Sequence[int | str]) -> bool:
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(isinstance(w, str) or f == w for f, w in pairs)


def _is_stacked(array: np.ndarray, shape: Sequence[int | str]) -> bool:
    """Whether samples lie along an axis that the input does not have."""
    return array.ndim == len(shape) + 1 and _fits(array.shape[1:], shape)


def _no_fit(name: str, array: np.ndarray, shape: Sequence[int | str]) -> InputError:
    return InputError(
        f"the calibration data for {name!r} has shape {list(array.shape)}, and the model takes"
        f" [{', '.join(map(str, shape))}]",
        hint="the first axis may have several samples, one after another",
    )
