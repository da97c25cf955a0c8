"""Running a planned host program with numpy: what a compiled model must do, step by step.

Every memory is an array of bytes, and every step reads and writes it through slots, so the results
are right only if the plan is: memory starts as NaN, and so does a kernel's scratch after its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.ir.evaluate import evaluate_dim, evaluate_node
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.optimize.plan_memory import MemoryPlan
from tilewright.program.host_program import Copy, HostStep, MemoryKind, Slot, Wait, slots_of
from tilewright.program.size import evaluate_size

POISON = 0xFF  # in every byte: NaN in floats, -1 in integers
OnStep = Callable[[HostStep, "State"], None]


class State:
    """The memories of one run."""

    def __init__(self, plan: MemoryPlan, symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.slots = plan.program.slots_by_name
        self.memories = {
            m.name: np.full(evaluate_size(m.size, symbols), POISON, np.uint8)
            for m in plan.program.memories
        }
        for placed in plan.constants:
            data = placed.array.reshape(-1).view(np.uint8)
            self.memories[placed.memory][placed.offset : placed.offset + data.size] = data

    def span(self, name: str) -> tuple[str, int, int]:
        """The memory in which a slot lies, and its first byte and the one behind its last."""
        slot = self.slots[name]
        start = evaluate_size(slot.offset, self.symbols)
        return slot.memory, start, start + evaluate_size(slot.bytes, self.symbols)

    def bytes(self, name: str) -> np.ndarray:
        memory, start, end = self.span(name)
        assert 0 <= start <= end <= len(self.memories[memory]), f"{name} lies outside {memory}"
        return self.memories[memory][start:end]

    def rows(self, name: str) -> np.ndarray:
        """What a slot holds, as it lies there."""
        slot = self.slots[name]
        shape = tuple(evaluate_size(d, self.symbols) for d in slot.shape)
        return self.bytes(name).view(slot.dtype.numpy).reshape(shape)

    def read(self, name: str, type_: TensorType) -> np.ndarray:
        """The value of this type that a slot holds."""
        return read_arranged(self.rows(name).reshape(-1), type_, self._shape(type_)).copy()

    def write(self, name: str, array: np.ndarray, type_: TensorType) -> None:
        assert array.shape == self._shape(type_), f"{name}: {array.shape} for {type_}"
        self.bytes(name)[:] = arrange(array, type_).reshape(-1).view(np.uint8)

    def _shape(self, type_: TensorType) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, self.symbols) for d in type_.shape)


def run_host(
    plan: MemoryPlan,
    inputs: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    on_step: OnStep | None = None,
) -> list[np.ndarray]:
    """The model's outputs; `on_step` looks at the memories before each step."""
    state = State(plan, symbols or {})
    for name, array in zip(plan.program.inputs, inputs, strict=True):
        state.rows(name)[...] = array
    for step, n in zip(plan.program.steps, plan.nodes, strict=True):
        if on_step is not None:
            on_step(step, state)
        if isinstance(step, Copy):
            state.bytes(step.target)[:] = state.bytes(step.source)
            continue
        if isinstance(step, Wait):  # what was handed over has been done at once
            continue
        assert n is not None
        names = slots_of(step)
        reads, others = names[: len(n.inputs)], names[len(n.inputs) :]
        values = [state.read(s, v.type) for s, v in zip(reads, n.inputs, strict=True)]
        results = evaluate_node(n, values, state.symbols)
        for name in others[len(n.outputs) :]:  # scratch
            state.bytes(name)[:] = POISON
        for name, array, v in zip(others, results, n.outputs, strict=False):
            state.write(name, array, v.type)
    return [state.rows(name).copy() for name in plan.program.outputs]


def uses_of(
    step: HostStep, inputs: int, outputs: int
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What a step reads, writes and works in."""
    if isinstance(step, Copy):
        return (step.source,), (step.target,), ()
    names = slots_of(step)
    return names[:inputs], names[inputs : inputs + outputs], names[inputs + outputs :]


def is_given(plan: MemoryPlan, slot: Slot) -> bool:
    """Whether a slot holds its value before the first step."""
    kinds = {m.name: m.kind for m in plan.program.memories}
    return kinds[slot.memory] in (MemoryKind.CONSTANTS, MemoryKind.INPUT)
