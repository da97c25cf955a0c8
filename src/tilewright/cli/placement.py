"""Where the kernels of a model run, in sentences, and what would bring more of them to a chip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.base.words import nanoseconds
from tilewright.cli.find_target import find_description
from tilewright.cli.session import Request
from tilewright.frontends.onnx.load import load_model
from tilewright.options import HALF_EVEN
from tilewright.plan.units import units
from tilewright.runtime.device_work import DeviceWork, DividedWork, divided_work
from tilewright.runtime.module import Module
from tilewright.runtime.shapes import solve

MUCH = 0.5  # of the operations: where chips run more than that, nothing is suggested


def sizes_of(module: Module, arrays: Mapping[str, np.ndarray]) -> Mapping[str, int]:
    """The sizes that a module's symbols have for these inputs."""
    return solve(module.program.host, [arrays[t.name].shape for t in module.inputs]).symbols


def placement_lines(module: Module, sizes: Mapping[str, int], request: Request) -> list[str]:
    """A sentence for each chip, and what would help; none where there are no chips."""
    found = divided_work(module.program, sizes)
    chips = [w for w in found.work if w.is_chip]
    kernels = sum(w.kernels for w in found.work)
    lines = [_line(w, kernels, found) for w in chips]
    if chips and sum(found.share(w.device) for w in chips) < MUCH:
        lines += [f"hint: {text}" for text in _help(request, module, sizes)]
    return lines


def _line(work: DeviceWork, kernels: int, found: DividedWork) -> str:
    """Returns "vta runs 5 of 7 kernels, 96% of the operations, in 4,551 cycles (45.5 µs)"; where
    that is little, with why it does not run the largest of the others."""
    runs, share = f"none of {kernels} kernels", found.share(work.device)
    if work.kernels:
        spent = f"{work.cycles:,} cycles ({nanoseconds(work.nanoseconds)})"
        of_all = (
            f"{work.kernels} of {kernels} kernels, {math.floor(100 * share)}% of the operations"
        )
        runs = f"{of_all}, in {spent}"
    refused = next((r for r in found.refusals if r.device == work.device), None)
    if refused is None or share >= MUCH:
        return f"{work.device} runs {runs}"
    return f"{work.device} runs {runs}; it refuses {refused.kernel}: {refused.why}"


def placement_json(module: Module, sizes: Mapping[str, int]) -> dict[str, Any]:
    found = divided_work(module.program, sizes)
    return {
        "devices": [
            {
                "device": w.device,
                "kernels": w.kernels,
                "operations": w.operations,
                "cycles": w.cycles if w.is_chip else None,
                "device_nanoseconds": w.nanoseconds if w.is_chip else None,
            }
            for w in found.work
        ],
        "refused": [f"{r.kernel} on {r.device}: {r.why}" for r in found.refusals],
    }


def _help(request: Request, module: Module, sizes: Mapping[str, int]) -> list[str]:
    """What brings kernels of the model to chips, as far as the model and the options tell."""
    if request.is_compiled:
        return []
    if module.symbols:
        options = " ".join(f"--dim {s.name}={sizes[s.name]}" for s in module.symbols)
        return [f"chips want sizes that are numbers: {options}"]
    if not any(_multiplies_integers(name) for name in request.targets):
        return []
    graph = load_model(request.model).proto.graph
    if not any("Quantize" in n.op_type or "QLinear" in n.op_type for n in graph.node):
        example = f"tilewright quantize {request.model} --scheme pow2 --calibrate DATA.npz"
        return [f"a chip that multiplies integers wants a quantised model: {example}"]
    if not all(map(_is_power_of_two, _scales(graph))):
        return ["a chip that shifts wants scales that are powers of two: quantize --scheme pow2"]
    if request.rounding == HALF_EVEN:
        return ["a chip that shifts rounds halves up, and ONNX to even: --rounding half_up"]
    return []


def _multiplies_integers(name: str) -> bool:
    """Whether a target is a chip with units for integers, and with none for floats."""
    target = find_description(name, None)
    kinds = {u.left.buffer.dtype.is_float for u in units(target)}
    return target.native is None and kinds == {False}


def _scales(graph: onnx.GraphProto) -> list[np.ndarray]:
    """The scales of quantising nodes that are constants."""
    names = {n.input[1] for n in graph.node if n.op_type == "QuantizeLinear"}
    return [numpy_helper.to_array(t) for t in graph.initializer if t.name in names]


def _is_power_of_two(scales: np.ndarray) -> bool:
    return bool((np.frexp(scales.astype(np.float64))[0] == 0.5).all())
