"""ONNX's own operator tests: import each model, run it, compare with the expected outputs.

    python tests/conformance.py                        all of them, with the reference evaluator
    python tests/conformance.py --engine compiled      as machine code: what `make conformance` does
    python tests/conformance.py --filter softmax -v    some of them, saying why each was refused
    python tests/conformance.py --json results.json    one record for each test

Every test ends in one of these:

    compiled   right, and every node has a loop form
    host       right, with a node that calls the host
    frozen     right (compiled or host) once inputs that set shapes were given as constants
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
from tilewright.base.errors import CompileError, ModelError
from tilewright.frontends.onnx import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph
from tilewright.ir.op import Category
from tilewright.options import Options
from tilewright.runtime.module import Module
from tilewright.targets import cpu

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
OUTCOMES = ("compiled", "host", "frozen", "refused", "wrong", "crashed")

# Where the suite's expected output is the less exact one, by more than its own tolerance: rounding
# of 16-bit floats at every step, and of a transform whose exact result is 0. (rtol, atol)
INEXACT: dict[str, tuple[float, float]] = {
    "test_attention_4d_causal_fp16": (2e-3, 1e-7),
    "test_attention_4d_causal_fp16_expanded": (2e-3, 1e-7),
    "test_dft_inverse": (1e-3, 1e-6),
    "test_dft_inverse_opset19": (1e-3, 1e-6),
}

# Runs a graph on arrays, given the values of its symbols.
Engine = Callable[[Graph, Sequence[np.ndarray], Mapping[str, int]], Sequence[np.ndarray]]

_TARGET = cpu.host(threads=1)
_last: list[tuple[Graph, Module]] = []  # the model compiled last: a test may have several data sets


def run_compiled(
    graph: Graph, arrays: Sequence[np.ndarray], symbols: Mapping[str, int]
) -> Sequence[np.ndarray]:
    """The graph as machine code, every intermediate program verified."""
    if not _last or _last[0][0] is not graph:
        options = Options(verify=True)
        _last[:] = [(graph, tilewright.compile(graph, target=_TARGET, options=options))]
    results = _last[0][1](*arrays)
    return results if isinstance(results, tuple) else (results,)


ENGINES: dict[str, Engine] = {"compiled": run_compiled, "evaluate": evaluate_graph}


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
        outcome, why = _run_model(case, model, data_sets, engine)
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


def _run_model(
    case: TestCase, model: onnx.ModelProto, data_sets: Sequence[Any], engine: Engine
) -> tuple[str, str]:
    try:
        graph = import_model(model)
        for inputs, expected in data_sets:
            _check(case, graph, inputs, expected, engine)
        return _way(graph), ""
    except ModelError as error:
        if "must be known while importing" not in error.what:
            raise
        why = str(error)
    for inputs, expected in data_sets:
        frozen, rest = _freeze(model, inputs)
        graph = import_model(model, constants=frozen)
        _check(case, graph, rest, expected, engine)
    return "frozen", why


def _way(graph: Graph) -> str:
    opaque = any(n.op.category is Category.OPAQUE for n in graph.nodes)
    return "host" if opaque else "compiled"


def _freeze(
    model: onnx.ModelProto, inputs: Sequence[Any]
) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Small inputs as constants: shapes, axes, scales, trip counts are among them."""
    frozen, rest = {}, []
    for declared, array in zip(_model_inputs(model), inputs, strict=True):
        plain = isinstance(array, (np.ndarray, np.generic))
        small = plain and np.ndim(array) <= 1 and np.size(array) <= 16
        if small and (
            np.ndim(array) == 0 or np.asarray(array).dtype.kind in "ib" or _scales(array)
        ):
            frozen[declared.name] = np.asarray(array)
        else:
            rest.append(array)
    return frozen, rest


def _scales(array: Any) -> bool:
    return np.asarray(array).dtype == np.float32


def _model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    given = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in given]


def _check(
    case: TestCase, graph: Graph, inputs: Sequence[Any], expected: Sequence[Any], engine: Engine
) -> None:
    """AssertionError unless the graph gives what the test expects."""
    arrays = [np.asarray(a) for a in inputs]
    symbols: dict[str, int] = {}
    for value, array in zip(graph.inputs, arrays, strict=True):
        for dim, size in zip(value.shape, array.shape, strict=True):
            if isinstance(dim, Symbol):
                symbols[dim.name] = size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = engine(graph, arrays, symbols)
    assert len(results) == len(expected), f"{len(results)} outputs, not {len(expected)}"
    for position, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        _compare(f"output {position}", np.asarray(result), np.asarray(wanted), case)
        declared = graph.outputs[position].type
        assert declared.dtype.numpy == result.dtype, f"output {position}: declared {declared}"
        for dim, size in zip(declared.shape, result.shape, strict=True):
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
            if o.outcome in ("refused", "frozen"):
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
