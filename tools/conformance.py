"""ONNX's own operator tests: import each model, run it, compare with the expected outputs.

    python tools/conformance.py                        all of them, with the reference evaluator
    python tools/conformance.py --engine compiled      as machine code: what `make conformance` does
    python tools/conformance.py --filter softmax -v    some of them, saying why each was refused
    python tools/conformance.py --json results.json    one record for each test

Every test ends in one of these:

    compiled   right, and every node has a loop form
    host       right, with a node that calls the host
    contents   right, compiled for what inputs that set shapes hold
    refused    the importer said no, with a ModelError (compiling: a size depends on data)
    wrong      another type, shape or value than expected
    crashed    any exception but a refusal
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import tilewright
from tilewright.base.dtype import DType
from tilewright.base.errors import CompileError, ContentsError, ModelError
from tilewright.frontends.onnx.load import import_inputs, import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph
from tilewright.ir.op import Category
from tilewright.options import Options
from tilewright.program.host_program import HostCall
from tilewright.runtime.module import Module
from tilewright.targets import cpu

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
OUTCOMES = ("compiled", "host", "contents", "refused", "wrong", "crashed")

# Where the suite's expected output is the less exact one, by more than its own tolerance: rounding
# of 16-bit floats at every step, and of a transform whose exact result is 0. (rtol, atol)
INEXACT: dict[str, tuple[float, float]] = {
    "test_attention_4d_causal_fp16": (2e-3, 1e-7),
    "test_attention_4d_causal_fp16_expanded": (2e-3, 1e-7),
    "test_dft_inverse": (1e-3, 1e-6),
    "test_dft_inverse_opset19": (1e-3, 1e-6),
}

# Makes of a model a function from its inputs to its outputs, and says how it runs.
Engine = Callable[[onnx.ModelProto], "Runner"]

_TARGET = cpu.host(threads=1)


@dataclass(frozen=True)
class Runner:
    """A model ready to run; `way` is an outcome, `why` what stands in the way of a better one."""

    call: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    outputs: Callable[[], Sequence[tuple[DType, tuple[object, ...]]]]  # their types, after a call
    way: str
    why: str = ""


def run_compiled(model: onnx.ModelProto) -> Runner:
    """As machine code, every intermediate program verified."""
    module = tilewright.compile(model, target=_TARGET, options=Options(verify=True))

    def call(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        results = module(*arrays)
        return results if isinstance(results, tuple) else (results,)

    def outputs() -> Sequence[tuple[DType, tuple[object, ...]]]:
        return [(t.dtype, t.shape) for t in module.outputs]

    if isinstance(module, Module):
        host = any(isinstance(s, HostCall) for s in module.program.host.steps)
        return Runner(call, outputs, "host" if host else "compiled")
    return Runner(call, outputs, "contents", str(module))


def run_evaluated(model: onnx.ModelProto) -> Runner:
    """By the meaning of the graph, without compiling it."""
    graphs: list[Graph] = []
    needed: dict[str, None] = {}
    why = ""
    try:
        graphs.append(import_model(model))
    except ContentsError as error:
        if not error.inputs:
            raise
        needed |= dict.fromkeys(error.inputs)
        why = str(error)

    def call(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        given = {v.name: a for v, a in zip(import_inputs(model), arrays, strict=True)}
        graph = graphs[-1] if not needed else _import_for(model, given, needed)
        graphs[:] = [graph]
        rest = [given[v.name] for v in graph.inputs]
        return evaluate_graph(graph, rest, _symbols(graph, rest))

    def outputs() -> Sequence[tuple[DType, tuple[object, ...]]]:
        return [(v.dtype, v.shape) for v in graphs[-1].outputs]

    way = "contents" if needed else _way(graphs[-1])
    return Runner(call, outputs, way, why)


def _import_for(
    model: onnx.ModelProto, given: Mapping[str, np.ndarray], needed: dict[str, None]
) -> Graph:
    while True:
        try:
            return import_model(model, constants={n: given[n] for n in needed})
        except ContentsError as error:
            if needed.keys() >= set(error.inputs):
                raise
            needed |= dict.fromkeys(error.inputs)


def _symbols(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    return {
        dim.name: size
        for value, array in zip(graph.inputs, arrays, strict=True)
        for dim, size in zip(value.shape, array.shape, strict=True)
        if isinstance(dim, Symbol)
    }


def _way(graph: Graph) -> str:
    opaque = any(n.op.category is Category.OPAQUE for n in graph.nodes)
    return "host" if opaque else "compiled"


ENGINES: dict[str, Engine] = {"compiled": run_compiled, "evaluate": run_evaluated}


@dataclass(frozen=True)
class Outcome:
    """How one test ended."""

    name: str
    kind: str
    outcome: str
    why: str
    seconds: float


def run_case(case: TestCase, engine: Engine) -> Outcome:
    """One test, with all its data sets."""
    start = time.perf_counter()
    try:
        model, data_sets = _load_case(case)
        runner = engine(model)
        for inputs, expected in data_sets:
            _check(case, runner, inputs, expected)
        outcome, why = runner.way, runner.why
    except ModelError as error:
        outcome, why = "refused", str(error)
    except CompileError as error:
        known = "is known only after" in error.what  # sizes that depend on data
        outcome, why = ("refused", str(error)) if known else ("crashed", traceback.format_exc())
    except AssertionError as error:
        outcome, why = "wrong", str(error).strip()
    except Exception:  # noqa: BLE001 - a crash is a result here
        outcome, why = "crashed", traceback.format_exc()
    return Outcome(case.name, case.kind, outcome, why, time.perf_counter() - start)


def _check(case: TestCase, runner: Runner, inputs: Sequence[Any], expected: Sequence[Any]) -> None:
    """AssertionError unless the model gives what the test expects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = runner.call([np.asarray(a) for a in inputs])
    assert len(results) == len(expected), f"{len(results)} outputs, not {len(expected)}"
    for position, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        _compare(f"output {position}", np.asarray(result), np.asarray(wanted), case)
        dtype, shape = runner.outputs()[position]
        declared = f"{dtype}{list(shape)}"
        assert dtype.numpy == result.dtype, f"output {position}: declared {declared}"
        for dim, size in zip(shape, result.shape, strict=True):
            fits = not isinstance(dim, int) or dim == size
            assert fits, f"output {position}: declared {declared}, computed {result.shape}"


def _compare(what: str, result: np.ndarray, wanted: np.ndarray, case: TestCase) -> None:
    assert result.dtype == wanted.dtype, f"{what} is {result.dtype}, not {wanted.dtype}"
    assert result.shape == wanted.shape, f"{what} has shape {result.shape}, not {wanted.shape}"
    rtol, atol = INEXACT.get(case.name, (case.rtol, case.atol))
    if result.dtype.kind not in "biufc":  # ml_dtypes: as the suite itself compares them
        rtol = max(rtol, 2**-6) if result.dtype.name == "bfloat16" else rtol
        result, wanted = result.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(result, wanted, rtol=rtol, atol=atol, err_msg=what)


def _load_case(case: TestCase) -> tuple[onnx.ModelProto, list[Any]]:
    if case.model is not None:
        sets = [tuple([_array(item) for item in side] for side in data) for data in case.data_sets]
        return case.model, sets
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set*")):
        inputs = [
            _read(data / f"input_{i}.pb", model.graph.input[i].type)
            for i in range(len(list(data.glob("input_*.pb"))))
        ]
        outputs = [
            _read(data / f"output_{i}.pb", model.graph.output[i].type)
            for i in range(len(list(data.glob("output_*.pb"))))
        ]
        sets.append((inputs, outputs))
    return model, sets


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _read(path: Path, of: onnx.TypeProto) -> Any:
    if of.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    if of.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


# ---------------------------------------------------------------- the report


def report(outcomes: Sequence[Outcome], verbose: bool) -> None:
    """The table, and what is wrong."""
    kinds = [k for k in KINDS if any(o.kind == k for o in outcomes)]
    print(f"{'':20}" + "".join(f"{o:>10}" for o in OUTCOMES) + f"{'total':>10}")
    for kind in [*kinds, "all"]:
        own = [o for o in outcomes if kind in ("all", o.kind)]
        counts = collections.Counter(o.outcome for o in own)
        print(f"{kind:20}" + "".join(f"{counts[o]:>10}" for o in OUTCOMES) + f"{len(own):>10}")
    for bad in ("wrong", "crashed"):
        for o in outcomes:
            if o.outcome == bad:
                print(f"\n{bad}: {o.name}\n{_indent(o.why)}")
    if verbose:
        for o in outcomes:
            if o.outcome in ("refused", "contents"):
                print(f"{o.outcome}: {o.name}: {o.why.splitlines()[0]}")


def _indent(text: str) -> str:
    lines = text.splitlines()
    kept = lines if len(lines) <= 24 else [*lines[:4], "…", *lines[-18:]]
    return "\n".join("    " + line for line in kept)


def main(arguments: list[str] | None = None) -> int:
    """Runs the tests; 1 if anything was wrong or crashed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--engine", choices=sorted(ENGINES), default="evaluate")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only tests it finds")
    parser.add_argument("--kind", choices=KINDS, help="only tests of this kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="one record for each test")
    parser.add_argument("-v", "--verbose", action="store_true", help="list refusals too")
    options = parser.parse_args(arguments)
    wanted = re.compile(options.filter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own, while it makes its data
        cases = [
            case
            for kind in KINDS
            if options.kind in (None, kind)
            for case in load_model_tests(kind=kind)
            if wanted.search(case.name)
        ]
    outcomes = []
    for number, case in enumerate(cases, start=1):
        if sys.stderr.isatty():
            print(f"\r{number}/{len(cases)} {case.name[:60]:60}", end="", file=sys.stderr)
        outcomes.append(run_case(case, ENGINES[options.engine]))
    if sys.stderr.isatty():
        print("\r" + " " * 80 + "\r", end="", file=sys.stderr)
    report(outcomes, options.verbose)
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    return int(any(o.outcome in ("wrong", "crashed") for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
