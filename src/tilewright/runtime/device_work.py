"""Where the kernels of a compiled model run, and why not elsewhere: sums over its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.program.host_program import HostCall, KernelCall, Submit, name_of_step
from tilewright.program.size import Size, evaluate_size
from tilewright.runtime.program import Program, StepFacts

HOST = "host"


@dataclass(frozen=True)
class DeviceWork:
    """The kernels that one device runs and their operations; of a chip, which is what kernels are
    submitted to, the cycles that these take there, and how many nanoseconds that is."""

    device: str
    is_chip: bool = False
    kernels: int = 0
    operations: int = 0
    cycles: int = 0
    nanoseconds: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """Why a chip does not run a kernel of the host: `why` is a sentence without its full stop."""

    device: str
    kernel: str
    operations: int
    why: str


@dataclass(frozen=True)
class DividedWork:
    """What each device runs, chips first, and what chips refused, the kernels with most operations
    first."""

    work: tuple[DeviceWork, ...]
    refusals: tuple[Refusal, ...]

    def share(self, device: str) -> float:
        """The share of a device in all operations; 0 where nothing is computed."""
        total = sum(w.operations for w in self.work)
        return sum(w.operations for w in self.work if w.device == device) / max(total, 1)


def divided_work(program: Program, symbols: Mapping[str, int]) -> DividedWork:
    """Where the kernels of a program run; `symbols` are the sizes that operations depend on."""
    work: dict[str, DeviceWork] = {}
    refusals = []
    for step, facts in zip(program.host.steps, program.steps, strict=True):
        if not isinstance(step, (KernelCall, HostCall, Submit)):
            continue
        device = HOST if isinstance(step, HostCall) else step.device
        here = _work_of(device, isinstance(step, Submit), facts, symbols)
        if not (here.is_chip or here.operations):
            continue  # it arranges what the others compute with
        before = work.get(device)
        work[device] = here if before is None else _add(before, here)
        for line in facts.obstacles:
            chip, _, why = line.partition(": ")
            work.setdefault(chip, DeviceWork(chip, is_chip=True))
            refusals.append(Refusal(chip, name_of_step(step), here.operations, why))
    order = sorted(work.values(), key=lambda w: not w.is_chip)
    return DividedWork(tuple(order), tuple(sorted(refusals, key=lambda r: -r.operations)))


def _work_of(
    device: str, is_chip: bool, facts: StepFacts, symbols: Mapping[str, int]
) -> DeviceWork:
    sizes: list[Size | None] = [p.operations for p in facts.pieces] or [facts.operations]
    operations = sum(evaluate_size(n, symbols) for n in sizes if n is not None)
    kernels, spent = max(1, len(facts.pieces)), (facts.picoseconds or 0) / 1e3
    return DeviceWork(device, is_chip, kernels, operations, facts.cycles or 0, spent)


def _add(a: DeviceWork, b: DeviceWork) -> DeviceWork:
    return DeviceWork(
        a.device,
        a.is_chip,
        a.kernels + b.kernels,
        a.operations + b.operations,
        a.cycles + b.cycles,
        a.nanoseconds + b.nanoseconds,
    )
