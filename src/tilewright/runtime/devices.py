"""Devices that run kernels beside the host: what one does, and the kinds that there are.

A program has a part for each device, with all that the device needs before the first call. While
the program runs, the device is given kernels by name, with arrays of its memory; it runs them in
order, and is done with all of them when the host has waited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from tilewright.base.errors import ArtifactError, did_you_mean
from tilewright.runtime.program import DevicePart
from tilewright.runtime.simulator import Simulator


class Device(Protocol):
    """One device. Calls of a module come from any thread, one step after another of each call; the
    device orders those of several calls itself. Inputs are read-only; both kinds of arrays are the
    device's memory, with the shape in which each lies there, and are there until the next `wait`
    has returned. An exception ends the call of the model, which raises it."""

    def submit(
        self, kernel: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Runs a kernel after all that were submitted before, now or by the next `wait`."""

    def wait(self) -> None:
        """Returns when everything that was submitted is done."""

    def after_fork(self) -> None:
        """In a forked process, where other threads do not exist."""


Devices = Mapping[str, Device]
DeviceTable = Mapping[str, Callable[[DevicePart], Device]]  # by kind

DEVICES: DeviceTable = {"simulator": Simulator}


def open_devices(parts: Sequence[DevicePart], others: DeviceTable | None = None) -> Devices:
    """The devices that the parts of a program are for; `others` has kinds of the caller's.
    ArtifactError for a kind that nobody knows."""
    table = {**DEVICES, **(others or {})}
    found = {}
    for part in parts:
        if part.kind not in table:
            raise ArtifactError(
                f"{part.device!r} is a device of kind {part.kind!r}, which is not known here",
                hint=did_you_mean(part.kind, list(table)) or "give devices={kind: part -> device}",
            )
        found[part.device] = table[part.kind](part)
    return found
