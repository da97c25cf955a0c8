"""Chips as devices of a model: kernels that are built for them, and how they hold arrays."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.backends.table import Backend, Option
from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.chip import ChipKernel, build_chip
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.move_arrays import Held
from tilewright.plan.borders import Border
from tilewright.plan.create_loops import create_loops
from tilewright.plan.device_form import DeviceForm, device_forms
from tilewright.runtime.devices import DEVICES
from tilewright.runtime.program import DevicePart
from tilewright.sim.part import KIND as SIMULATOR
from tilewright.sim.part import simulator_part
from tilewright.target.target import Target


def chip_options(program: TensorProgram, target: Target) -> list[Option]:
    """The fastest kernel for a chip, timed by its simulator; or what is in the way."""
    try:
        kernel = create_loops(program)
        unnumbered = [s.name for s in symbols(kernel)]
        if unnumbered:
            names = ", ".join(unnumbered)
            verb = "has" if len(unnumbered) == 1 else "have"
            return [Option(obstacle=f"{names} {verb} no number (dims={{…}} gives one)")]
    except CompileError as error:
        return [Option(obstacle=error.what)]
    refused = []
    for form in device_forms(kernel):
        try:
            return [_option(kernel, form, build_chip(form.kernel, target))]
        except (ScheduleError, TargetError, CompileError) as error:
            refused.append(Option(obstacle=error.what))
    return refused


def _option(kernel: Kernel, form: DeviceForm, chip: ChipKernel) -> Option:
    held = tuple(_held(chip, form, b) for b in (*kernel.inputs, *kernel.outputs))
    types = [h.type for h in held]
    count = len(kernel.inputs)
    return Option(
        operands=tuple(types[:count]),
        results=tuple(types[count:]),
        seconds=chip.cycles / chip.target.clock,
        cycles=chip.cycles,
        joules=chip.timeline.joules or None,
        bytes=int(chip.timeline.bytes.sum()),
        trace=", ".join(f"{name}={n}" for name, n in chip.tile.items()),
        held=held,
        built=chip,
    )


def _held(chip: ChipKernel, form: DeviceForm, given: Buffer) -> Held:
    """How the chip holds a parameter of the model's kernel."""
    shape = tuple(int(n) for n in given.shape if isinstance(n, int))
    filled = next(b for b in chip.filled.params if b.name == given.name)
    kind = TensorType(filled.dtype, filled.shape, chip.layouts.get(given.name))
    border = chip.borders.get(given.name, Border((0,) * len(filled.shape)))
    return Held(shape, kind, form.axes[given.name], border.before, border.fill)


def chip_part(device: str, kernels: Mapping[str, ChipKernel], host: Target) -> DevicePart:
    """What the simulator of a chip is given."""
    streams = {name: (chip.stream, _parameters(chip)) for name, chip in kernels.items()}
    return simulator_part(device, streams, host)


def _parameters(chip: ChipKernel) -> tuple[Buffer, ...]:
    """The parameters as scheduled, in the order of the model's."""
    by_name = {b.name: b for b in chip.kernel.params}
    return tuple(by_name[b.name] for b in (*chip.source.inputs, *chip.source.outputs))


SIMULATED = DEVICES[SIMULATOR]
BUNDLES = Backend("bundles", chip_options, chip_part, SIMULATOR, SIMULATED)
STREAM = Backend("stream", chip_options, chip_part, SIMULATOR, SIMULATED)
