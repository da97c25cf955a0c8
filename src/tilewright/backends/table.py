"""The kinds of devices: what one is, and all of them in a table, which is the only place that asks
what kind of device a target is.

A kind is imported when a target of it is first met, so that a program without chips does not bring
what makes kernels for chips. C for microcontrollers, OpenCL and CUDA would be further rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.backends.binary import Binary
from tilewright.base.errors import CompileError
from tilewright.base.passes import Watch
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.move_arrays import Held
from tilewright.runtime.devices import Device
from tilewright.runtime.program import DevicePart
from tilewright.target.target import Target


@dataclass(frozen=True)
class Part:
    """What one of the kernels of an option that does several takes: `cycles` from when those before
    it are done, and the `bound` of those that it takes alone."""

    program: TensorProgram
    cycles: int
    bound: int | None = None


@dataclass(frozen=True, eq=False)
class Option:
    """One way to run a kernel on a target: how its operands and results lie in memory, the time it
    takes (seconds; of a chip also cycles, and the `bound` that no schedule can beat), energy where
    it is described (joules), bytes to and from the outermost memory, and the decisions that get
    there. A device that is given arrays has them as `held`, operands first: it must say all of
    them. `seconds` chooses among the options of one device, and is reported; devices are not
    compared. With an `obstacle`, a sentence, the target cannot run it. `parts` are the kernels of
    which it is made, where they are several; where the obstacle is in one of those, `fits` is how
    many are before it. `built` is what the backend has made of it already,
    for its part."""

    operands: tuple[TensorType, ...] = ()
    results: tuple[TensorType, ...] = ()
    seconds: float = 0.0
    cycles: int | None = None
    joules: float | None = None
    bytes: int = 0
    trace: str = ""
    held: tuple[Held, ...] = ()
    obstacle: str = ""
    built: Any = None
    bound: int | None = None
    parts: tuple[Part, ...] = ()
    fits: int | None = None


def best(options: Sequence[Option]) -> Option:
    """The fastest of those that can be had; the first obstacle if none can."""
    can = [o for o in options if not o.obstacle]
    return min(can, key=lambda o: o.seconds) if can else options[0]


@dataclass(frozen=True)
class Member:
    """One of several kernels that are to be one: what was offered for it alone, and the values that
    it takes and gives, by name. One that only lays its operands side by side has the axis along
    which it `joins` them, and needs no option."""

    program: TensorProgram
    option: Option
    operands: tuple[str, ...]
    result: str
    joins: int | None = None


JoinMembers = Callable[[Sequence[Member], Sequence[str], Target, dict[Any, Any], Watch], Option]


@dataclass(frozen=True)
class Backend:
    """One kind of device. `options` says how a target of the kind can run a kernel, or what is in
    the way. `part` makes what one device is given before the first call, of its name, the `built`
    of its kernels' options by name, and the host's target; `device` runs it, and `kind` is what the
    part is called. A kind whose kernels the host program calls itself has no part: they are linked
    into the host's code. `subgraph` says how kernels of a target that follow each other run as one,
    given the names of the values that come from elsewhere, what it has built for others
    of the model, and who is told how far that is; or what is in the way. `outlook` says
    what `options` will, without making the kernel: an obstacle, or an option for `subgraph`.
    `binary` has the `built` of a kernel as the device itself would be given it."""

    name: str
    options: Callable[[TensorProgram, Target], list[Option]]
    part: Callable[[str, Mapping[str, Any], Target], DevicePart] | None = None
    kind: str = ""
    device: Callable[[DevicePart], Device] | None = None
    subgraph: JoinMembers | None = None
    outlook: Callable[[TensorProgram, Target], Option] | None = None
    binary: Callable[[Any], Binary] | None = None


@dataclass(frozen=True)
class DeviceSpec:
    """A device as `compile` is given it: a target, and the backend that makes its kernels."""

    target: Target
    backend: Backend

    @property
    def is_host(self) -> bool:
        """Whether the host program calls its kernels itself."""
        return self.backend.part is None


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


def spec_of(given: Target | DeviceSpec) -> DeviceSpec:
    """The target with the backend that fits; CompileError if none does."""
    if isinstance(given, DeviceSpec):
        return given
    for row in TABLE:
        if row.fits(given):
            backend = getattr(importlib.import_module(row.module), row.record)
            assert isinstance(backend, Backend)
            return DeviceSpec(given, backend)
    raise CompileError(
        f"{given.name} has neither queues nor bundles, and is no processor",
        hint="a description says how instructions are issued: t.queues(…) or t.bundles(…)",
    )


def options(program: TensorProgram, target: Target | DeviceSpec) -> list[Option]:
    """The ways to run a kernel on a target, of every kind: what placement asks. If there is none,
    one option with the obstacle. CompileError if the backend's answer is neither."""
    spec = spec_of(given=target)
    found = spec.backend.options(program, spec.target)
    wrong = [o for o in found if not (spec.is_host or o.obstacle or _holds_all(o, program))]
    if found and not wrong:
        return found
    count = len(program.inputs) + len(program.outputs)
    what = f"says how {len(wrong[0].held)} of {count} arrays are held" if wrong else "has no option"
    raise CompileError(
        f"backend {spec.backend.name!r} {what} for {program.name}",
        program=program,
        hint="an Option has one Held for each operand and result, or an obstacle: see"
        " docs/new-device-kind.md",
    )


def _holds_all(option: Option, program: TensorProgram) -> bool:
    """Whether an option says of all results how they are held, and of operands by their number, or
    of which of them others are made."""
    given = len(option.held) - len(program.outputs)
    if all(h.operands is None for h in option.held):
        return given == len(program.inputs)
    numbers = range(len(program.inputs))
    made = option.held[:given]
    return given >= 0 and all(h.operands is not None and {*h.operands} <= {*numbers} for h in made)
