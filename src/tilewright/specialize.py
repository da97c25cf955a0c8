"""Models that cannot be imported before it is known what some of their inputs hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tilewright.base.errors import ContentsError
from tilewright.frontends.onnx.load import LoadedModel, import_inputs
from tilewright.ir.expr import Symbol, product
from tilewright.ir.graph import Value
from tilewright.options import Options
from tilewright.runtime.module import Module
from tilewright.runtime.plan import SymbolSpec, TargetFacts, Tensor
from tilewright.runtime.specialized import LARGEST, Interface, SpecializedModule


def specialize(
    model: LoadedModel,
    options: Options,
    target: TargetFacts,
    compile_for: Callable[[Options], Module],
    cause: ContentsError,
) -> SpecializedModule:
    """The model as something that compiles itself when it is called. Its import failed for `cause`,
    which is raised again if it names no input, or one that is too large to compile for."""
    inputs = import_inputs(model, dims=options.dims)
    needed = [v for v in inputs if v.name in cause.inputs]
    if not (needed or cause.symbols) or any(_is_large(v) for v in needed):
        raise cause

    def make(values: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> Module:
        all_values, all_dims = {**options.values, **values}, {**options.dims, **dims}
        return compile_for(replace(options, values=all_values, dims=all_dims))

    return SpecializedModule(_interface(model, inputs, options), target, make, cause)


def _is_large(value: Value) -> bool:
    size = product(value.shape)
    return isinstance(size, int) and size > LARGEST


def _interface(model: LoadedModel, inputs: tuple[Value, ...], options: Options) -> Interface:
    given = [v for v in inputs if v.name not in options.values]
    symbols = dict.fromkeys(d for v in given for d in v.shape if isinstance(d, Symbol))
    return Interface(
        model.proto.graph.name,
        tuple(SymbolSpec(s.name, s.lower, s.upper) for s in symbols),
        tuple(_tensor(v, i) for i, v in enumerate(given)),
        tuple(v.name for v in model.proto.graph.output),
    )


def _tensor(value: Value, number: int) -> Tensor:
    shape = tuple(d.name if isinstance(d, Symbol) else int(d) for d in value.shape)
    return Tensor(value.name, value.dtype, shape, number)
