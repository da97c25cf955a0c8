"""Damaged streams on trial: a judge says whether the damage does harm, the compiler's checks say
whether they see any."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from stream_cases import CASES
from stream_judge import Judge
from stream_mutants import KINDS, Mutant, mutant

from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.faults import Fault
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits
from tilewright.chip_kernel import ChipKernel
from tilewright.sim.replay import replay
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
JUDGE, CHECKS = (11, 12), (21, 22)  # seeds of data
ORDERS = 12  # of a replay


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant: why it is harmful, if so, and what caught it, if anything."""

    case: str
    kind: str
    what: str
    harm: str | None
    caught: str | None
    words: str


class Subject:
    """A stream, with data for the judge and other data for the checks."""

    def __init__(self, name: str) -> None:
        self.name, self.case = name, CASES[name]
        self.chip: ChipKernel = self.case.build()
        self.known: dict = {}
        self.judged = [self._held(seed) for seed in JUDGE]
        self.checked = [self._held(seed) for seed in CHECKS]

    def _held(self, seed: int) -> tuple[Mapping, list[np.ndarray]]:
        """Inputs and outputs as they lie in the chip's memory."""
        inputs, outputs = self.case.arrays(seed)
        source, kernel = self.chip.source, self.chip.kernel
        given = {b.name: a for b, a in zip(source.params, (*inputs, *outputs), strict=True)}
        held = {b: self.chip.arranged(b, given) for b in kernel.params}
        return {b: held[b] for b in kernel.inputs}, [held[b] for b in kernel.outputs]

    def check(self, stream: Stream, waits: Waits) -> Fault | None:
        """What the compiler's checks and the replay say."""
        found = boxes(stream)
        fault = check_memory(stream, self.chip.kernel.inputs, found)
        fault = fault or check_waits(stream, None, waits, found)
        for seed, (inputs, expected) in enumerate(self.checked):
            fault = fault or replay(
                stream, waits, HOST, inputs, self.chip.kernel.outputs, expected,
                orders=ORDERS, seed=seed, found=found,
            )  # fmt: skip
        return fault

    def outcome(self, m: Mutant, seed: int) -> Outcome:
        harm = Judge(m.stream, m.waits, self.known).verdict(self.chip, self.judged, seed)
        fault = self.check(m.stream, m.waits)
        caught = None if fault is None else fault.kind.value
        return Outcome(self.name, m.kind, m.what, harm, caught, "" if fault is None else str(fault))


def run_case(name: str, count: int, seed: int) -> tuple[int, list[Outcome]]:
    """Its number of instructions, and what became of it unchanged and of its mutants."""
    subject = Subject(name)
    chip = subject.chip
    found = [subject.outcome(Mutant("none", "", chip.stream, chip.waits), seed)]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kinds = list(KINDS)
    seen: set[tuple[str, str]] = set()
    for attempt in range(20 * count):
        m = mutant(chip, kinds[attempt % len(kinds)], rng)
        if m is None or (m.kind, m.what) in seen:
            continue
        seen.add((m.kind, m.what))
        found.append(subject.outcome(m, attempt))
        if len(found) > count:
            break
    return len(chip.stream), found
