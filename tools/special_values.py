"""Special values through ONNX operators: `make special-values`, or with `--only NAME`.

Models of one operator, for every operator that the importer knows and every type that it takes,
compiled, on NaN, infinities, both zeros, subnormal and extreme numbers, and compared with ONNX's
reference evaluator. Element-wise operators and reductions are made from their schemas; the others
come from ONNX's own operator tests, their floats replaced. A difference that no row of EXPLAINED
explains (tools/special_values_explained.py) is an error.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).parent))
from special_values_explained import EXPLAINED, Difference

import tilewright
from tilewright.base.errors import TilewrightError
from tilewright.frontends.onnx.load import import_model
from tilewright.frontends.onnx.table import IMPORTERS
from tilewright.targets import cpu

OPSET = 24
TYPES = {
    "tensor(float)": TensorProto.FLOAT,
    "tensor(double)": TensorProto.DOUBLE,
    "tensor(float16)": TensorProto.FLOAT16,
    "tensor(bfloat16)": TensorProto.BFLOAT16,
    "tensor(int8)": TensorProto.INT8,
    "tensor(int16)": TensorProto.INT16,
    "tensor(int32)": TensorProto.INT32,
    "tensor(int64)": TensorProto.INT64,
    "tensor(uint8)": TensorProto.UINT8,
    "tensor(uint16)": TensorProto.UINT16,
    "tensor(uint32)": TensorProto.UINT32,
    "tensor(uint64)": TensorProto.UINT64,
    "tensor(bool)": TensorProto.BOOL,
}
# Operators whose inputs all have one type, and which need no attribute, or those that are given.
ELEMENTWISE = """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Ceil Celu Cos Cosh Div Elu Equal Erf Exp Floor Greater GreaterOrEqual HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax Max Mean Min Mish Mul
    Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus
    Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Xor"""
REDUCTIONS = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare ArgMax ArgMin"""
UNIFORM: dict[str, tuple[dict, ...]] = {
    **{op: ({},) for op in str.split(ELEMENTWISE)},
    "BitShift": ({"direction": "LEFT"}, {"direction": "RIGHT"}),
    "Gelu": ({"approximate": "none"}, {"approximate": "tanh"}),
    "Mod": ({"fmod": 1}, {"fmod": 0}),
    **{op: ({"keepdims": 0},) for op in str.split(REDUCTIONS)},
}
FEWEST = {"Max": 2, "Min": 2, "Mean": 2, "Sum": 2}  # inputs, of operators that take any number
CASTS = ("float", "double", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool")


@dataclass
class Problem:
    """One model, its inputs, and what it is called."""

    name: str
    op: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    exact_zeros: bool = False  # whether the sign of zero is compared


@dataclass
class Report:
    """What became of the models; differences by the reason that explains them."""

    compared: int = 0
    refused: list[str] = field(default_factory=list)
    no_reference: list[str] = field(default_factory=list)
    explained: collections.Counter = field(default_factory=collections.Counter)
    unexplained: list[str] = field(default_factory=list)


# ---------------------------------------------------------------- values


def specials(dtype: np.dtype, extremes: bool) -> np.ndarray:
    """The numbers of a type at which operators change what they do."""
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 31, 64}
        return np.array(sorted(near | ({-1, -2, -3, -7} if info.min else set())), dtype)
    info = ml_dtypes.finfo(dtype)
    sizes = [0.0, 1.0, 0.5, 2.0, 2.5, 3.0, 0.1, 7.25, 20.0, np.inf, np.nan]
    sizes += [float(info.smallest_subnormal), float(info.tiny)]
    sizes += [float(info.max), float(info.max) / 3] if extremes else []
    with np.errstate(all="ignore"):
        return np.array([s * v for v in sizes for s in (1, -1)], np.float64).astype(dtype)


def fill(dtype: np.dtype, shape: tuple[int, ...], seed: int, extremes: bool) -> np.ndarray:
    """Special values in an order that the seed decides; every one comes where there is room."""
    values, rng = specials(dtype, extremes), np.random.default_rng(seed)
    count = int(np.prod(shape))
    turns = [rng.permutation(values.size) for _ in range(-(-count // values.size))]
    return values[np.concatenate(turns)[:count]].reshape(shape) if count else np.empty(shape, dtype)


# ---------------------------------------------------------------- models


def made_models() -> Iterator[Problem]:
    """From schemas: every operator of UNIFORM, of every type that it takes."""
    for op, variants in UNIFORM.items():
        schema = onnx.defs.get_schema(op, OPSET)
        constraint = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
        for text, element in TYPES.items():
            if text in constraint.get(schema.inputs[0].type_str, [text]):
                for k, attributes in enumerate(variants):
                    yield _made(op, schema, element, attributes, k)
    for source in CASTS:
        for to in CASTS:
            if source != to:
                yield _cast(TYPES[f"tensor({source})"], TYPES[f"tensor({to})"])


def _made(op: str, schema: onnx.defs.OpSchema, element: int, attributes: dict, k: int) -> Problem:
    reduces = op.startswith(("Reduce", "Arg"))
    count = 1 if reduces else FEWEST.get(op) or sum(1 for i in schema.inputs if i.option.value == 0)
    dtype = helper.tensor_dtype_to_np_dtype(element)
    shape = (40, 3) if reduces else (24, 24)
    names = [f"x{i}" for i in range(count)]
    inputs = {n: fill(np.dtype(dtype), shape, i, not reduces) for i, n in enumerate(names)}
    if reduces and op.startswith("Reduce"):  # rows of few special values: sums say something
        axis = onnx.numpy_helper.from_array(np.array([1]), "axes")
        node = helper.make_node(op, [*names, "axes"], ["y"], **attributes)
    else:
        axis, node = None, helper.make_node(op, names, ["y"], **attributes)
    model = _model(node, inputs, [axis] if axis is not None else [])
    label = f"{op} {np.dtype(dtype).name}" + (f" {k}" if k else "")
    return Problem(label, op, model, inputs, exact_zeros=not reduces)


def _cast(source: int, to: int) -> Problem:
    x = fill(np.dtype(helper.tensor_dtype_to_np_dtype(source)), (24, 24), 0, True)
    names = [np.dtype(helper.tensor_dtype_to_np_dtype(t)).name for t in (source, to)]
    model = _model(helper.make_node("Cast", ["x0"], ["y"], to=to), {"x0": x}, [])
    return Problem(f"Cast {names[0]} {names[1]}", "Cast", model, {"x0": x}, exact_zeros=True)


def _model(node: onnx.NodeProto, inputs: dict[str, np.ndarray], constants: list) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(o) for o in node.output]
    graph = helper.make_graph([node], "special", infos, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def borrowed_models(each: int = 3) -> Iterator[Problem]:
    """From ONNX's operator tests: up to `each` of every other operator, the floats of its larger
    inputs replaced, here and there, by special values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    taken: collections.Counter[str] = collections.Counter()
    for case in cases:
        nodes = case.model.graph.node if case.model is not None else []
        if len(nodes) != 1 or case.name.endswith("_expanded"):
            continue
        op = nodes[0].op_type
        if op not in IMPORTERS[""] or op in UNIFORM or op == "Cast" or taken[op] >= each:
            continue
        names = [v.name for v in case.model.graph.input]
        given = dict(zip(names, case.data_sets[0][0], strict=False))
        if not all(isinstance(a, np.ndarray) for a in given.values()):
            continue
        replaced = {n: _mixed(a, k) for k, (n, a) in enumerate(given.items())}
        if any(replaced[n] is not given[n] for n in given):
            taken[op] += 1
            yield Problem(case.name, op, case.model, replaced)


def _mixed(array: np.ndarray, seed: int) -> np.ndarray:
    """Larger arrays of floats with every sixth element special."""
    if array.dtype.kind not in "fV" or array.size < 4 or array.dtype.name not in FLOATS:
        return array
    out = array.copy().reshape(-1)
    places = np.arange(seed, out.size, 6)
    out[places] = fill(array.dtype, places.shape, seed, False)
    return out.reshape(array.shape)


FLOATS = ("float16", "float32", "float64", "bfloat16")


# ---------------------------------------------------------------- comparing


def compare(p: Problem, report: Report) -> None:
    """Compiles and runs one model both ways, and files every difference."""
    try:
        wanted = ReferenceEvaluator(p.model).run(None, p.inputs)
    except Exception as error:  # noqa: BLE001 - whatever it raises, there is nothing to compare
        report.no_reference.append(f"{p.name}: {type(error).__name__}")
        return
    try:
        found = _run(p)
    except TilewrightError as error:
        report.refused.append(f"{p.name}: {error.what}")
        return
    report.compared += 1
    for k, (got, right) in enumerate(zip(found, wanted, strict=False)):
        _file(p, k, np.asarray(got), np.asarray(right), report)


def _run(p: Problem) -> list[np.ndarray]:
    """Machine code; what sets shapes is given as constants."""
    target = cpu.host(threads=1)
    small = {n: a for n, a in p.inputs.items() if a.dtype.kind in "iub" and a.ndim <= 1}
    try:
        module, inputs = tilewright.compile(p.model, target=target), p.inputs
    except TilewrightError:
        graph = import_model(p.model, constants=small)
        module = tilewright.compile(graph, target=target)
        inputs = {n: a for n, a in p.inputs.items() if n not in small}
    out = module(*inputs.values())
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _file(p: Problem, k: int, got: np.ndarray, right: np.ndarray, report: Report) -> None:
    if got.shape != right.shape:
        report.unexplained.append(f"{p.name}: output {k} is {got.shape}, not {right.shape}")
        return
    bad = np.flatnonzero(different(got, right, p.exact_zeros))
    if not bad.size:
        return
    inputs = [np.broadcast_to(a, got.shape) for a in p.inputs.values() if _fits(a, got.shape)]
    for at in bad:
        here = Difference(
            p.op,
            str(got.dtype),
            got.reshape(-1)[at],
            right.reshape(-1)[at],
            tuple(a.reshape(-1)[at] for a in inputs),
            tuple(p.inputs.values()),
        )
        reason = next((e.reason for e in EXPLAINED if e.applies(here)), None)
        if reason is None:
            report.unexplained.append(f"{p.name}: output {k}[{at}] {here.text()}")
        else:
            report.explained[reason] += 1


def _fits(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        return False


def different(got: np.ndarray, right: np.ndarray, zeros: bool) -> np.ndarray:
    """Where results are not the same: floats within rounding, infinities and NaN where they are."""
    got, right = got.reshape(-1), right.reshape(-1)
    if got.dtype.name not in FLOATS:
        return np.asarray(got != right)
    info = ml_dtypes.finfo(got.dtype)
    a, b = got.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        room = 32 * float(info.eps) * np.maximum(np.abs(b), float(info.tiny)) + 1e-6
        room = np.minimum(room, np.abs(b) * 0.01 + 1e-6)
        far = np.abs(a - b) > np.maximum(room, 4 * float(info.eps) * np.abs(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(a) & np.isfinite(b) & ~far)
    if zeros:
        same &= ~((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)))
    return ~same


# ---------------------------------------------------------------- running


def run(only: str | None = None, every: int = 1) -> Report:
    """All models, those whose name contains a text, or one in so many."""
    report = Report()
    problems = [*made_models(), *borrowed_models()]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for p in problems[::every]:
            if only is None or only in p.name:
                compare(p, report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("-v", action="store_true", help="list what could not be compared")
    options = parser.parse_args()
    report = run(options.only)
    out = sys.stdout
    out.write(f"{report.compared} models compared, {len(report.refused)} refused by the importer,")
    out.write(f" {len(report.no_reference)} that the reference evaluator cannot run\n")
    for reason, count in report.explained.most_common():
        out.write(f"{count:6} {reason}\n")
    out.write(f"{len(report.unexplained)} differences unexplained\n")
    shown: collections.Counter[str] = collections.Counter()
    for line in report.unexplained:
        name = line.partition(":")[0]
        shown[name] += 1
        out.write(f"  {line}\n" if shown[name] <= 4 else "")
    out.writelines(f"  {name}: {count} in all\n" for name, count in shown.items() if count > 4)
    if options.v:
        out.writelines(f"  {line}\n" for line in [*report.refused, *report.no_reference])
    return int(bool(report.unexplained))


if __name__ == "__main__":
    sys.exit(main())
