"""A graph compiled and run beside the evaluator: after every pass on its own, every stage of every
kernel, and the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import tilewright
from tilewright.base.passes import Recorder
from tilewright.ir.evaluate import evaluate_dim, evaluate_graph, evaluate_program
from tilewright.ir.expr import Dim
from tilewright.ir.graph import Graph, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor import TensorProgram
from tilewright.options import Options
from tilewright.plan.fused_axes import fuse_rows
from tilewright.target.target import Target

INTERPRETED = 256  # elements: kernels whose arrays are larger are not interpreted
TOLERANCE = 1e-4  # of the largest magnitude in an array


@dataclass(frozen=True)
class Counts:
    """What one graph was compared in: after how many passes, at how many stages of kernels."""

    passes: int
    stages: int


def check_compiled(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    values: Mapping[str, int],
    targets: Target | Mapping[str, Target],
    options: Options,
    unknown: frozenset[Value] = frozenset(),
) -> Counts:
    """Raises AssertionError where compiled and evaluated differ. Of the outputs in `unknown`, whose
    values depend on rounding, only types and shapes are compared."""
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(graph, inputs, dict(values))
    recorder = Recorder()
    module = tilewright.compile(graph, target=targets, options=options, recorder=recorder)
    free = [v in unknown for v in graph.outputs]
    steps = [s for s in recorder.steps if s.changed and isinstance(s.program, Graph)]
    for step in steps[1:]:  # the first is the graph itself
        if _runs_as_graph(step.program):
            with np.errstate(all="ignore"):
                found = evaluate_graph(step.program, inputs, dict(values))
            _compare(graph, wanted, found, free, f"after {step.name}\n{step.program}")
    found = module(*inputs)
    _compare(graph, wanted, found if isinstance(found, tuple) else (found,), free, "compiled")
    return Counts(len(steps) - 1, _check_kernels(recorder, values))


def scheduled_kernels(graph: Graph, target: Target) -> dict[str, Kernel]:
    """The kernels of a graph as they are scheduled, compared on small whole numbers after every
    stage."""
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, [int(n) for n in v.shape]).astype("f") for v in graph.inputs]
    check_compiled(graph, inputs, {}, target, Options())
    found = tilewright.compile(graph, target=target, until="scheduled")
    return {name: s.kernel for name, s in found.items()}


def _runs_as_graph(graph: Graph) -> bool:
    """Arranged values are not numpy's to compute with."""
    return all(v.type.layout is None for n in graph.nodes for v in n.outputs)


def _compare(
    graph: Graph,
    wanted: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    free: Sequence[bool],
    where: str,
) -> None:
    assert len(wanted) == len(found), where
    for a, b, v, skip in zip(wanted, found, graph.outputs, free, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{v.name} {where}: {b.dtype}{b.shape}"
        if not skip:
            same_numbers(a, b, f"{v.name} {where}")


def same_numbers(a: np.ndarray, b: np.ndarray, where: str) -> None:
    """Integers to the bit; floats within a part of the array's magnitude."""
    if a.dtype.kind in "biu":
        assert np.array_equal(a, b), f"{where}:\n{b}\nnot\n{a}"
        return
    wide = a.astype(np.float64)
    size = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
    allowed = TOLERANCE * (1 + size)
    near = np.isclose(wide, b.astype(np.float64), rtol=0, atol=allowed, equal_nan=True)
    assert near.all(), f"{where}:\n{b}\nnot\n{a}"


def _check_kernels(recorder: Recorder, values: Mapping[str, int]) -> int:
    """Every stage of every small kernel without arranged parameters, against its tensor
    expression, on small integers. Axes may have become one."""
    stages = 0
    for program in [s.program for s in recorder.steps if isinstance(s.program, TensorProgram)]:
        known = {s.name: values.get(s.name, 1) for s in symbols_of(recorder, program.name)}
        try:
            inputs = _small_arrays(program, known)
        except KeyError:
            continue  # sizes that depend on data
        if inputs is None:
            continue
        with np.errstate(all="ignore"):
            wanted = evaluate_program(program, inputs, known)
            for step in recorder.steps:
                kernel = step.program
                if step.subject != program.name or not isinstance(kernel, Kernel):
                    continue
                if step.name == "loops":
                    shapes = [_shapes(kernel), _shapes_of_fused(kernel)]
                if _shapes(kernel) not in shapes:
                    continue  # arranged
                given = [
                    a.reshape([evaluate_dim(n, known) for n in b.shape])
                    for a, b in zip(inputs, kernel.inputs, strict=True)
                ]
                found = interpret(kernel, given, known)
                for a, b in zip(wanted, found, strict=True):
                    where = f"{step.stage} {step.name} of\n{program}\n{kernel}"
                    same_numbers(a, b.reshape(a.shape), where)
                stages += 1
    return stages


def _shapes(kernel: Kernel) -> list[tuple[Dim, ...]]:
    return [b.shape for b in kernel.params]


def _shapes_of_fused(kernel: Kernel) -> list[tuple[Dim, ...]]:
    """The shapes of parameters whose neighbouring axes are one, where they can be."""
    fused = fuse_rows(kernel, {})
    return _shapes(kernel if fused is None else fused.kernel)


def symbols_of(recorder: Recorder, kernel: str) -> tuple:
    found = [s.program for s in recorder.steps if s.subject == kernel]
    return next((symbols(k) for k in found if isinstance(k, Kernel)), ())


def _small_arrays(program: TensorProgram, values: Mapping[str, int]) -> list[np.ndarray] | None:
    rng = np.random.default_rng(0)
    arrays = []
    for buffer in program.inputs:
        shape = [evaluate_dim(d, values) for d in buffer.shape]
        if np.prod(shape, dtype=int) > INTERPRETED:
            return None
        arrays.append(rng.integers(0, 3, shape).astype(buffer.dtype.numpy))
    return arrays
