"""Running a planned host program with numpy: what a compiled model must do, step by step.

Every memory is an array of bytes, and every step reads and writes it through slots, so the results
are right only if the plan is: memory starts as NaN, and so does a kernel's scratch after its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.ir.evaluate import evaluate_dim, evaluate_node
from tilewright.ir.host_program import (
    Call,
    Copy,
    HostCall,
    HostStep,
    MemoryKind,
    Slot,
    Submit,
    Wait,
)
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.optimize.plan_memory import MemoryPlan

POISON = 0xFF  # in every byte: NaN in floats, -1 in integers
OnStep = Callable[[HostStep, "State"], None]


class State:
    """The memories of one run."""

    def __init__(self, plan: MemoryPlan, symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.slots = {s.name: s for s in plan.program.slots}
        self.memories = {
            m.name: np.full(evaluate_dim(m.size, symbols), POISON, np.uint8)
            for m in plan.program.memories
        }
        for placed in plan.constants:
            data = placed.array.reshape(-1).view(np.uint8)
            self.memories[placed.memory][placed.offset : placed.offset + data.size] = data

    def span(self, name: str) -> tuple[str, int, int]:
        """The memory in which a slot lies, and its first byte and the one behind its last."""
        slot = self.slots[name]
        start = evaluate_dim(slot.offset, self.symbols)
        return slot.memory, start, start + evaluate_dim(slot.type.bytes, self.symbols)

    def bytes(self, name: str) -> np.ndarray:
        memory, start, end = self.span(name)
        assert 0 <= start <= end <= len(self.memories[memory]), f"{name} lies outside {memory}"
        return self.memories[memory][start:end]

    def read(self, name: str) -> np.ndarray:
        slot = self.slots[name]
        array = self.bytes(name).view(slot.type.dtype.numpy)
        found: np.ndarray = read_arranged(array, slot.type, self._shape(slot)).copy()
        return found

    def write(self, name: str, array: np.ndarray) -> None:
        slot = self.slots[name]
        assert array.shape == self._shape(slot), f"{name}: {array.shape} for {slot.type}"
        self.bytes(name)[:] = arrange(array, slot.type).reshape(-1).view(np.uint8)

    def _shape(self, slot: Slot) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, self.symbols) for d in slot.type.shape)


def run_host(
    plan: MemoryPlan,
    inputs: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    on_step: OnStep | None = None,
) -> list[np.ndarray]:
    """The model's outputs; `on_step` looks at the memories before each step."""
    state = State(plan, symbols or {})
    for name, array in zip(plan.program.inputs, inputs, strict=True):
        state.write(name, np.asarray(array))
    for step, n in zip(plan.program.steps, plan.nodes, strict=True):
        if on_step is not None:
            on_step(step, state)
        if isinstance(step, Copy):
            state.bytes(step.target)[:] = state.bytes(step.source)
            continue
        if isinstance(step, Wait):  # what was handed over has been done at once
            continue
        assert n is not None
        reads, writes, scratch = slots_of(step, len(n.inputs), len(n.outputs))
        results = evaluate_node(n, [state.read(name) for name in reads], state.symbols)
        for name in scratch:
            state.bytes(name)[:] = POISON
        for name, array in zip(writes, results, strict=True):
            state.write(name, array)
    return [state.read(name) for name in plan.program.outputs]


def slots_of(
    step: Call | HostCall | Copy | Submit, inputs: int, outputs: int
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What a step reads, writes and works in."""
    if isinstance(step, Copy):
        return (step.source,), (step.target,), ()
    names = step.slots if isinstance(step, Call) else (*step.inputs, *step.outputs)
    return names[:inputs], names[inputs : inputs + outputs], names[inputs + outputs :]


def is_given(plan: MemoryPlan, slot: Slot) -> bool:
    """Whether a slot holds its value before the first step."""
    kinds = {m.name: m.kind for m in plan.program.memories}
    return kinds[slot.memory] in (MemoryKind.CONSTANTS, MemoryKind.INPUT)
