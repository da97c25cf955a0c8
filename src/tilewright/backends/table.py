"""The kinds of devices, in a table: the only place that asks what kind of device a target is.

A kind is imported when a target of it is first met, so that a program without chips does not bring
what makes kernels for chips. C for microcontrollers, OpenCL and CUDA would be further rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.backends.backend import Backend, Unit
from tilewright.backends.option import Option
from tilewright.base.errors import CompileError
from tilewright.ir.tensor import TensorProgram
from tilewright.target.target import Target


@dataclass(frozen=True)
class Row:
    """A kind of device: whether a target is of it, by the facts of its description; the module that
    has its record, and what that is called."""

    fits: Callable[[Target], bool]
    module: str
    record: str


TABLE = (  # the first that fits
    Row(lambda t: t.native is not None, "tilewright.backends.processors", "NATIVE"),
    Row(lambda t: t.bundles is not None, "tilewright.backends.chips", "BUNDLES"),
    Row(lambda t: bool(t.queues), "tilewright.backends.chips", "STREAM"),
)


def unit_of(given: Target | Unit) -> Unit:
    """The target with the backend that fits; CompileError if none does."""
    if isinstance(given, Unit):
        return given
    for row in TABLE:
        if row.fits(given):
            backend = getattr(importlib.import_module(row.module), row.record)
            assert isinstance(backend, Backend)
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
