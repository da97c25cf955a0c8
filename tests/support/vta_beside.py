"""VTA from a dumped folder beside the simulator of a compiled model: every submit on both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from vta_published import Dump, Report

from tilewright.runtime.program import DevicePart
from tilewright.runtime.simulator import Simulator


class Beside:
    """A device that gives what the folder's program makes on the published machine, once that is
    what the simulator made. `reports` are of the last call's submits, by their number."""

    def __init__(self, part: DevicePart, dump: Dump, **chip) -> None:
        self.simulator, self.dump, self.chip = Simulator(part), dump, chip
        self.reports: list[Report] = []

    def submit(
        self, kernel: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        number = len(self.reports) % len(self.dump.submits)
        assert self.dump.submits[number]["kernel"] == kernel
        if number == 0:
            self.reports = []
        self.simulator.submit(kernel, inputs, outputs)
        found, report = self.dump.run(number, inputs, **self.chip)
        self.reports.append(report)
        for made, output in zip(found, outputs, strict=True):
            wanted = output.reshape(-1).view(np.uint8)
            np.testing.assert_array_equal(made.view(np.uint8), wanted, err_msg=kernel)
            wanted[:] = made.view(np.uint8)

    def wait(self) -> None:
        self.simulator.wait()

    def after_fork(self) -> None:
        self.simulator.after_fork()
