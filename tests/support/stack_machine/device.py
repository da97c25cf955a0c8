"""The machine: a stack of arrays, with an element for each iteration of a stage's loops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import dtype
from tilewright.runtime.program import DevicePart

_NAMES = """abs sqrt exp log sin cos tan tanh floor ceil trunc sign add mod neg=negative not=invert
 round=rint sub=subtract mul=multiply div=divide floordiv=floor_divide min=minimum max=maximum
 and=bitwise_and or=bitwise_or shl=left_shift shr=right_shift <=less >=greater"""
_PAIRS = [(n[0], n[1:].strip("=")) if n[0] in "<>" else n.split("=") for n in _NAMES.split()]
APPLY = {pair[0]: getattr(np, pair[-1]) for pair in _PAIRS}
APPLY |= {"==": np.equal, "!=": np.not_equal, "<=": np.less_equal, ">=": np.greater_equal}
COMBINE = ("add", "mul", "min", "max")


class StackMachine:
    """One machine, which does what it is given at once."""

    def __init__(self, part: DevicePart) -> None:
        self.programs = {name: json.loads(code) for name, code in part.files}

    def submit(
        self, kernel: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Runs every stage of a kernel."""
        program = self.programs[kernel]
        buffers = [np.zeros(shape, dtype(kind).numpy) for kind, shape in program["buffers"]]
        buffers[: len(inputs)] = inputs
        with np.errstate(all="ignore"):
            for stage in program["stages"]:
                _run_stage(stage, buffers)
        for array, k in zip(outputs, program["outputs"], strict=True):
            array[...] = buffers[k]

    def wait(self) -> None:
        """Everything is done when `submit` returns."""

    after_fork = wait  # there are no threads


def _run_stage(stage: Any, buffers: list[np.ndarray]) -> None:
    shape = (*stage["axes"], *stage["reduce"])
    result = buffers[stage["buffer"]]
    value = np.broadcast_to(_run(stage["code"], shape, buffers), shape)
    if stage["combine"] is not None:
        axes = tuple(range(len(stage["axes"]), len(shape)))
        first = np.asarray(_run(stage["init"], shape, buffers)).reshape(-1)[0]
        combine = APPLY[stage["combine"]]
        value = combine.reduce(value, axis=axes, dtype=result.dtype, initial=first)
    result[...] = value


def _run(code: Sequence[Any], shape: tuple[int, ...], buffers: Sequence[np.ndarray]) -> np.ndarray:
    """What is on the stack at the end."""
    stack: list[Any] = []
    for word, *rest in code:
        if word == "axis":
            (k,) = rest
            stack.append(np.arange(shape[k]).reshape(-1, *[1] * (len(shape) - k - 1)))
        elif word == "const":
            stack.append(np.asarray(rest[0]).astype(dtype(rest[1]).numpy))
        elif word == "load":  # what is outside is read by the branch that is not taken
            places = [stack.pop() for _ in range(rest[1])][::-1]
            array = buffers[rest[0]]
            inside = [np.clip(p, 0, n - 1) for p, n in zip(places, array.shape, strict=True)]
            stack.append(array[tuple(inside)])
        elif word == "cast":
            stack.append(stack.pop().astype(dtype(rest[0]).numpy))
        elif word == "select":
            no, yes, condition = stack.pop(), stack.pop(), stack.pop()
            stack.append(np.where(condition, yes, no))
        else:
            operands = [stack.pop() for _ in range(APPLY[rest[0]].nin)][::-1]
            stack.append(APPLY[rest[0]](*operands))
    return stack.pop()
