"""The kinds of devices, one record each: what is asked of all of them, and nothing else asks what
kind of device it has.

    options    can it run this kernel, how fast, and how do its operands lie in memory?
    part       what is the device given before the model runs?
    device     what runs it?

A kind whose kernels the host calls itself (`native`) has no part: they are linked into the host's
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.backends.chips import chip_options, chip_part
from tilewright.backends.option import Option
from tilewright.backends.processors import native_options
from tilewright.base.errors import CompileError
from tilewright.ir.tensor import TensorProgram
from tilewright.runtime.devices import DEVICES, Device
from tilewright.runtime.program import Part
from tilewright.sim.part import KIND as SIMULATOR
from tilewright.target.target import Target


@dataclass(frozen=True)
class Backend:
    """One kind of device. `fits` says whether a target is of it. `part` makes what one device is
    given, of its name, the `built` of its kernels' options by name, and the host's target; a
    `device` that runs it is made of that part."""

    name: str
    fits: Callable[[Target], bool]
    options: Callable[[TensorProgram, Target], list[Option]]
    part: Callable[[str, Mapping[str, Any], Target], Part] | None = None
    kind: str = ""  # of the part
    device: Callable[[Part], Device] | None = None


NATIVE = Backend("native", lambda t: t.native is not None, native_options)
BUNDLES = Backend(
    "bundles",
    lambda t: t.bundles is not None,
    chip_options,
    chip_part,
    SIMULATOR,
    DEVICES[SIMULATOR],
)
STREAM = Backend(
    "stream", lambda t: bool(t.queues), chip_options, chip_part, SIMULATOR, DEVICES[SIMULATOR]
)
BACKENDS = (NATIVE, BUNDLES, STREAM)  # the first that fits


@dataclass(frozen=True)
class Unit:
    """A device of a model: a target, and the backend that makes its kernels."""

    target: Target
    backend: Backend

    @property
    def is_host(self) -> bool:
        """Whether the host program calls its kernels itself."""
        return self.backend.part is None


def unit_of(given: Target | Unit) -> Unit:
    """The target with the backend that fits; CompileError if none does."""
    if isinstance(given, Unit):
        return given
    for backend in BACKENDS:
        if backend.fits(given):
            return Unit(given, backend)
    raise CompileError(
        f"{given.name} has neither queues nor bundles, and is no processor",
        hint="a description says how instructions are issued: t.queues(…) or t.bundles(…)",
    )


def options(program: TensorProgram, target: Target | Unit) -> list[Option]:
    """The ways to run a kernel on a target, of every kind: what fusion, layouts and placement ask.
    If there is none, one option with the obstacle."""
    unit = unit_of(given=target)
    return unit.backend.options(program, unit.target)
