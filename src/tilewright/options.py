"""What a compilation depends on beside the model and its targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from types import NoneType

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.ir.graph import GraphNode

HALF_EVEN, HALF_UP = "half_even", "half_up"
F32, BF16 = "f32", "bf16"
_EXAMPLES = {
    "assign": 'assign={"conv_1": "first"}, or a function of a node',
    "separate": 'separate={"first"}',
    "dims": 'dims={"batch": 1}',
    "rounding": 'rounding="half_up"',
    "precision": 'precision="bf16"',
    "values": 'values={"shape": np.array([2, 6])}',
    "subgraphs": "subgraphs=False",
    "pins": 'pins={"conv_1": "host"}',
    "only": 'only="npu"',
    "cache": 'cache="build/cache", or cache=False',
}


@dataclass(frozen=True)
class Options:
    """`assign` says where nodes run when there are several devices: a mapping from node names to
    device names, or a function of the node; others run on the first device. Devices named in
    `separate` have a memory of their own: values are copied there and back. `dims` fixes symbolic
    dimensions of the model; `values` fixes what inputs hold, by name, such as the target shape of a
    reshape: the compiled model does not take these. `verify` checks every intermediate program.
    With `checks`, the compiled model raises a CheckError where an index is out of range or an
    integer is divided by zero; without it, it goes on with the nearest index, or a defined result
    (docs/semantics.md). `rounding` says how quantisation rounds halves: "half_even" as ONNX
    does, or "half_up" as chips do that add half a unit and shift. `precision` is that of
    products of floats by weights: "f32", or "bf16" where the target multiplies such numbers, sums
    staying f32. With `subgraphs`, neighbouring kernels of a chip are one stream of instructions,
    and what passes between them stays in the chip's memory; without, each is a stream. `pins` has
    devices of nodes by the nodes' names: the kernel that computes a pinned node runs there, or
    compiling fails. With `only`, the name of a device, compiling fails unless that device runs
    every kernel, and the error lists the nodes that it cannot run and why. `cache` is the folder
    that keeps what is compiled, or False for none; by default it is the user's (docs/cache.md)."""

    assign: Mapping[str, str] | Callable[[GraphNode], str] | None = None
    separate: frozenset[str] = frozenset()
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    verify: bool = False
    checks: bool = False
    rounding: str = HALF_EVEN
    precision: str = F32
    subgraphs: bool = True
    pins: Mapping[str, str] = field(default_factory=dict)
    only: str | None = None
    cache: str | os.PathLike[str] | bool | None = field(default=None, compare=False)


def check_options(options: object) -> Options:
    """What `compile` was given as options, with whole numbers of any kind as Python's: CompileError
    if they are something else."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise _no_option(f"options is {options!r}", "dims")
    for name in ("dims", "values", "pins"):
        given = getattr(options, name)
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise _no_option(f"{name} is {given!r}, and must be a mapping from names", name)
    for name, size in options.dims.items():
        if not isinstance(size, Integral) or isinstance(size, bool):
            what = f"the dimension {name!r} is {size!r}, and must be a whole number"
            raise _no_option(what, "dims")
    if not (options.assign is None or callable(options.assign)) and not (
        isinstance(options.assign, Mapping)
    ):
        raise _no_option(f"assign is {options.assign!r}, and must be a mapping", "assign")
    for name, device in options.pins.items():
        if not isinstance(device, str):
            raise _no_option(f"{name!r} is pinned to {device!r}, which is no device's name", "pins")
    if not isinstance(options.only, (str, NoneType)):
        raise _no_option(f"only is {options.only!r}, and must be a device's name", "only")
    if isinstance(options.separate, str) or not isinstance(options.separate, Collection):
        raise _no_option(f"separate is {options.separate!r}, and must be a set", "separate")
    for name in ("verify", "checks", "subgraphs"):
        given = getattr(options, name)
        if not isinstance(given, (bool, np.bool_)):
            what = f"{name} is {given!r}, and must be True or False"
            raise CompileError(what, hint=f"for example options=Options({name}=True)")
    if options.rounding not in (HALF_EVEN, HALF_UP):
        what = f"rounding is {options.rounding!r}, and must be {HALF_EVEN!r} or {HALF_UP!r}"
        raise _no_option(what, "rounding")
    if options.precision not in (F32, BF16):
        what = f"precision is {options.precision!r}, and must be {F32!r} or {BF16!r}"
        raise _no_option(what, "precision")
    if not isinstance(options.cache, (str, os.PathLike, bool, NoneType)) or options.cache == "":
        raise _no_option(f"cache is {options.cache!r}, and must be a folder or False", "cache")
    return replace(options, dims={name: int(size) for name, size in options.dims.items()})


def _no_option(what: str, name: str) -> CompileError:
    return CompileError(what, hint=f"for example options=Options({_EXAMPLES[name]})")
