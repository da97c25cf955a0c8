"""`--check`: the same inputs through another implementation, and where the first difference is.

The other implementation is ONNX Runtime where it is installed, else ONNX's own reference.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference

from tilewright.base.dtype import DTYPES
from tilewright.base.errors import ModelError
from tilewright.cli.session import Request, compile_graph, import_graph, optimized_graph
from tilewright.frontends.names import identifier
from tilewright.ir.evaluate import evaluate_graph, evaluate_steps
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, Value
from tilewright.options import F32, HALF_UP

Arrays = Mapping[str, np.ndarray]

# Largest difference allowed, as a part of the largest element, and beside that absolutely.
TOLERANCES = {"f64": 1e-8, "f32": 1e-3, "f16": 1e-2, "bf16": 5e-2}
LOOSEST = 2e-1  # for 8-bit floats
ABSOLUTE = 1e-6
_NAMES = {t.numpy: t.name for t in DTYPES.values()}


@dataclass(frozen=True)
class Comparison:
    """One array against what it should be. `difference` is the largest; `problem` says in words
    what is wrong, None for nothing."""

    name: str
    difference: float
    allowed: float
    problem: str | None


@dataclass(frozen=True)
class Culprit:
    """The first place where values go wrong: the model's nodes that one step computes, and whether
    the compiled step is wrong or the model was read otherwise than the reference reads it."""

    nodes: tuple[str, ...]
    comparison: Comparison
    stage: str  # "compiled" or "imported"


@dataclass(frozen=True)
class CheckReport:
    reference: str
    outputs: tuple[Comparison, ...]
    culprit: Culprit | None

    @property
    def agrees(self) -> bool:
        return all(c.problem is None for c in self.outputs)


def check(request: Request, inputs: Arrays, results: Arrays) -> CheckReport:
    """Compares results with the reference's and, if they differ, looks for the place."""
    if request.is_compiled:
        raise ModelError(
            f"{request.model} cannot be checked: what it was compiled from is not in it",
            hint="check the model that it was compiled from",
        )
    if request.rounding == HALF_UP:
        return _against_interpreter(request, inputs, results)
    reference = ReferenceEngine(request.model, inputs, request.values)
    wanted = reference.values(reference.outputs)
    outputs = tuple(
        compare(ours, array, wanted[theirs], request.precision)
        for (ours, array), theirs in zip(results.items(), reference.outputs, strict=True)
    )
    culprit = None
    if any(c.problem is not None for c in outputs):
        culprit = find_culprit(request, inputs, reference)
    return CheckReport(reference.name, outputs, culprit)


def _against_interpreter(request: Request, inputs: Arrays, results: Arrays) -> CheckReport:
    """A mode of rounding that others do not have: against the meaning of the imported model."""
    graph = import_graph(request)
    wanted = evaluate_graph(graph, [inputs[v.name] for v in graph.inputs])
    pairs = zip(results.items(), wanted, strict=True)
    outputs = tuple(compare(name, array, other) for (name, array), other in pairs)
    return CheckReport("the interpreter, rounding halves up", outputs, None)


def compare(name: str, found: np.ndarray, wanted: np.ndarray, precision: str = F32) -> Comparison:
    """Integers must be equal, floats as near as their type and the precision of products allow, NaN
    where NaN is."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        kinds = [f"{a.dtype}{list(a.shape)}" for a in (found, wanted)]
        return Comparison(name, np.inf, 0.0, f"it is {kinds[0]} and should be {kinds[1]}")
    if found.size == 0:
        return Comparison(name, 0.0, 0.0, None)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    peak = float(np.max(np.abs(b), where=finite, initial=0.0))
    part = 0.0
    if wanted.dtype.kind not in "iub":
        part = TOLERANCES.get(_NAMES.get(wanted.dtype, ""), LOOSEST)
        part = max(part, TOLERANCES[precision])
    allowed = part * peak + (ABSOLUTE if part else 0.0)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))
    difference = float(apart[worst])
    problem = None
    if difference > allowed:
        at = f" at {list(worst)}" if worst else ""
        problem = f"{found[worst]!s} instead of {wanted[worst]!s}{at}"
    return Comparison(name, difference, allowed, problem)


# ---------------------------------------------------------------- the reference


class ReferenceEngine:
    """Another implementation, and the inputs it is given. Inputs and outputs go by position: the
    model's names for them are not always ours."""

    def __init__(self, path: Path, inputs: Arrays, fixed: Arrays) -> None:
        self.path = path
        self.model = onnx.load(str(path))
        given = {t.name for t in self.model.graph.initializer}
        names = [v.name for v in self.model.graph.input if v.name not in given | fixed.keys()]
        self.inputs = dict(zip(names, inputs.values(), strict=True)) | dict(fixed)
        self.outputs = [v.name for v in self.model.graph.output]
        self.made = [o for n in self.model.graph.node for o in n.output if o]
        self.name = f"onnx {onnx.__version__} reference"

    def values(self, names: Sequence[str]) -> Arrays:
        """The values that the model calls `names`."""
        if importlib.util.find_spec("onnxruntime") is not None:
            try:
                return self._onnxruntime(names)
            except Exception:  # noqa: BLE001 - it refuses some models, with errors of many kinds
                pass
        evaluator = onnx.reference.ReferenceEvaluator(self.model)
        values: Any = evaluator.run(None, self.inputs, intermediate=True)  # by name, then
        return {n: values[n] for n in names}

    def _onnxruntime(self, names: Sequence[str]) -> Arrays:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        source: Any = str(self.path)  # a path, for weights that lie in files beside it
        inner = [n for n in names if n not in self.outputs]
        if inner:
            model = onnx.load(source)
            infos = [onnx.helper.make_empty_tensor_value_info(n) for n in inner]
            model.graph.output.extend(infos)
            source = model.SerializeToString()
        session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
        self.name = f"onnxruntime {onnxruntime.__version__}"
        return dict(zip(names, session.run(list(names), self.inputs), strict=True))


# ---------------------------------------------------------------- the place


def find_culprit(request: Request, inputs: Arrays, reference: ReferenceEngine) -> Culprit | None:
    """Compares value after value: what the compiled model makes of them with what the graph means,
    then what the graph means with what the reference makes of it."""
    graph = import_graph(request)
    makers = _makers(request, graph)
    values = [v for v in makers if v not in graph.outputs]
    module = compile_graph(request, graph.with_(outputs=(*graph.outputs, *values)))
    results = module(**inputs)
    arrays = [results] if isinstance(results, np.ndarray) else list(results)
    compiled = dict(zip((*graph.outputs, *values), arrays, strict=True))
    meanings: dict[str, np.ndarray] = {}
    for value, array in _meanings(graph, inputs):
        meanings[value.name] = array
        if value in compiled:
            found = compare(value.name, compiled[value], array, request.precision)
            if found.problem is not None:
                return Culprit(makers.get(value, ()), found, "compiled")
    theirs = {identifier(n): n for n in reference.made}
    wanted = reference.values([theirs[n] for n in meanings if n in theirs])
    nodes = {v.name: (n.name,) for n in graph.nodes for v in n.outputs}
    for name, array in meanings.items():
        if name in theirs:
            found = compare(name, array, wanted[theirs[name]], request.precision)
            if found.problem is not None:
                return Culprit(nodes[name], found, "imported")
    return None


def _makers(request: Request, graph: Graph) -> dict[Value, tuple[str, ...]]:
    """The values that steps of the compiled model leave behind, each with its step's nodes."""
    known = {v.name: v for n in graph.nodes for v in n.outputs}
    makers: dict[Value, tuple[str, ...]] = {}
    for n in optimized_graph(request, graph).nodes:
        for v in n.outputs:
            value = known.get(v.name)
            if value is not None and (value.shape, value.dtype) == (v.shape, v.dtype):
                makers[value] = getattr(n.attrs, "origins", ()) or (n.name,)
    return makers


def _meanings(graph: Graph, inputs: Arrays) -> Iterator[tuple[Value, np.ndarray]]:
    """What each node of the graph means for these inputs, in order."""
    symbols = {
        d.name: size
        for v in graph.inputs
        for d, size in zip(v.shape, inputs[v.name].shape, strict=True)
        if isinstance(d, Symbol)
    }
    values = {v: inputs[v.name] for v in graph.inputs} | dict(graph.constants)
    for _, results in evaluate_steps(graph, values, symbols):
        yield from results.items()
