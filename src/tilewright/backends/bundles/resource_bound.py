"""What no schedule of a program can beat, counted from its operations: no simulator is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.backends.bundles.operations import Body, Operation, OperationLoop
from tilewright.backends.bundles.program import BundleProgram
from tilewright.backends.bundles.sections import CORE
from tilewright.backends.stream.durations import durations


@dataclass(frozen=True)
class ResourceBound:
    """Cycles that a program takes at least: the operations of each slot, spread over the slots of
    that kind (the resource bound of modulo scheduling, for all iterations), and its bytes through
    the slowest memory."""

    slots: Mapping[str, int]
    moves: int

    @property
    def cycles(self) -> int:
        return max([self.moves, *self.slots.values()])

    @property
    def bottleneck(self) -> str:
        """The slot that is needed longest, or "moves"."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def parts(self) -> dict[str, int]:
        """Of each slot, and "moves"."""
        return {**self.slots, "moves": self.moves}


def program_bound(program: BundleProgram) -> ResourceBound:
    """The bound of a program's operations, as the kernel has them: not as they were scheduled."""
    stream = program.stream
    bundles = stream.target.bundles
    assert bundles is not None
    used = {name: 0 for name, _ in bundles.slots}
    times = {s.instruction.name: 0 for s in program.sections}
    for k, site in enumerate(stream.sites):
        if site.instruction.queue == CORE and site.instruction.name in times:
            times[site.instruction.name] += len(stream.rows(k))
    for section in program.sections:
        for operation, count in _operations(section.body, times[section.instruction.name]):
            used[operation.slot] += operation.busy * count
    slots = {name: math.ceil(used[name] / count) for name, count in bundles.slots}
    transfer = durations(stream).transfer
    return ResourceBound(slots, int(transfer.sum(0).max(initial=0)))


def _operations(body: Body, times: int) -> Iterator[tuple[Operation, int]]:
    """The operations of a body, with how often each is done."""
    for item in body.items:
        if isinstance(item, OperationLoop):
            yield from _operations(item.body, times * item.count)
        else:
            yield item, times
