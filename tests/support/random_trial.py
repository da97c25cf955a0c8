"""A random schedule, step by step, with what its kernel computed at first."""

from __future__ import annotations

import numpy as np
from executor import run_concurrently
from hypothesis import strategies as st
from strategies import arrays, same, symbol_values
from strategies_instructions import INSTRUCTIONS
from strategies_schedule import Application, packed_inputs, unpacked_outputs

from tilewright.base.errors import ScheduleError
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.lower.place_barriers import place_barriers
from tilewright.schedule.schedule import Schedule


class Trial:
    """A schedule, with what its kernel computed at first."""

    def __init__(self, kernel: Kernel, data: st.DataObject) -> None:
        self.original, self.schedule = kernel, Schedule(kernel)
        self.values = data.draw(symbol_values(symbols(kernel)))
        self.inputs = data.draw(arrays(kernel.inputs, self.values))
        self.wanted = interpret(kernel, self.inputs, self.values)
        self.layouts: dict[str, list[Layout]] = {}
        self.story = [str(kernel)]

    def apply(self, step: Application) -> None:
        before = self.schedule.kernel
        traced = len(self.schedule.trace)
        try:
            step(self.schedule)
        except ScheduleError as error:
            assert self.schedule.kernel is before, f"{step} was refused and changed the kernel"
            assert len(self.schedule.trace) == traced
            assert f"while applying {step.primitive}(" in str(error)  # noqa: PT017 - either is fine
            return
        if step.primitive == "pack_layout":
            buffer, layout = step.arguments
            self.layouts.setdefault(buffer.name, []).append(layout)
        self.story.append(f"\n{step}\n{self.schedule.kernel}")
        self.check()

    def check(self) -> None:
        kernel = self.schedule.kernel
        try:
            verify_kernel(kernel)
            assert parse_kernel(str(kernel), INSTRUCTIONS) == kernel
            inputs = packed_inputs(self.original.inputs, self.inputs, self.layouts)
            self.compare(interpret(kernel, inputs, self.values), "in order")
            ready = place_barriers(kernel)
            self.compare(run_concurrently(ready, inputs, self.values), "at the same time")
        except Exception as error:
            story = "\n".join(self.story)
            raise AssertionError(f"{error}\nafter\n{story}") from error

    def compare(self, outputs: list[np.ndarray], how: str) -> None:
        shapes = [a.shape for a in self.wanted]
        found = unpacked_outputs(self.original.outputs, outputs, self.layouts, shapes)
        for a, b, buffer in zip(self.wanted, found, self.original.outputs, strict=True):
            assert same(a, b), f"{buffer.name} {how}: {b}, not {a}"
