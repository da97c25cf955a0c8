"""The conformance suite of a chip: what its description means, held against a device that claims to
be that chip. By default the device is the chip's own simulator.

    report = check_conformance(target)
    report = check_conformance(target, engine)     engine(stream, waits, memories) changes memories

Every instruction is tried alone, within its limits, against the interpreter of its meaning, to the
bit, all memory compared; pairs of instructions of different queues on the same data, in order and
with each wait left out; and all queues filled beyond their depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.decode import decode
from tilewright.backends.stream.encode import encode
from tilewright.backends.stream.rows import stream_of_rows
from tilewright.base.errors import TilewrightError
from tilewright.check.cases import Case, cases, memory_sizes, rows_of
from tilewright.check.engine import Engine, constants, run, simulator, synchronised
from tilewright.check.hazards import HazardReport, check_hazards
from tilewright.check.reference import differences, interpret_rows, random_memories
from tilewright.ir.instruction import Cost, Instruction
from tilewright.ir.samples import count_statements
from tilewright.target.encoding_faults import fit_faults
from tilewright.target.target import Target

COUNT = 12  # cases of an instruction, as far as the interpreter is fast enough for them
LEAST = 4
STATEMENTS = 16_000  # that it interprets of one instruction


@dataclass(frozen=True)
class InstructionReport:
    """One instruction: cases that were tried and passed, what was wrong with the first that did
    not, and how its encoding did: "128 bits", "none", or what is wrong with it (and then not
    `is_encoded`)."""

    name: str
    queue: str
    cases: int
    passed: int
    encoding: str
    failure: str = ""
    is_encoded: bool = True

    @property
    def conforms(self) -> bool:
        return self.cases == self.passed and not self.failure and self.is_encoded


@dataclass(frozen=True)
class ConformanceReport:
    """What was tried, and what is missing in the description."""

    instructions: tuple[InstructionReport, ...]
    hazards: HazardReport
    missing: tuple[str, ...]

    @property
    def conforms(self) -> bool:
        return self.hazards.conforms and all(i.conforms for i in self.instructions)


def check_conformance(
    target: Target,
    engine: Engine = simulator,
    *,
    seed: int = 0,
    listener: Callable[[str], None] = lambda what: None,
) -> ConformanceReport:
    """Tries everything. `listener` is told what is being tried."""
    reports = []
    for kind, instruction in enumerate(target.instructions):
        listener(instruction.name)
        rng = np.random.default_rng([seed, kind])
        reports.append(_try(target, kind, engine, rng))
    listener("pairs of instructions")
    hazards = check_hazards(target, engine, np.random.default_rng([seed, len(reports)]))
    return ConformanceReport(tuple(reports), hazards, tuple(missing(target)))


def missing(target: Target) -> list[str]:
    """What the description does not say."""
    found = []
    for what, without in (
        ("no time (cost)", [i for i in target.instructions if i.cost == Cost() and i.operands]),
        ("no encoding", [i for i in target.instructions if target.encoding(i) is None]),
    ):
        if without:
            names = ", ".join(i.name for i in without)
            found.append(f"{what}: {'all instructions' if _all(target, without) else names}")
    return found


def _all(target: Target, some: Sequence[Instruction]) -> bool:
    return len(some) == len(target.instructions) > 1


# ---------------------------------------------------------------- one instruction


def _try(target: Target, kind: int, engine: Engine, rng: np.random.Generator) -> InstructionReport:
    instruction = target.instructions[kind]
    encoding = target.encoding(instruction)
    bits = "none" if encoding is None else f"{encoding.width} bits"
    if not instruction.operands:
        return InstructionReport(instruction.name, instruction.queue, 0, 0, bits)
    tried = _affordable(instruction, cases(target, kind, COUNT, rng))
    if not tried:
        failure = "no case fits its memories"
        return InstructionReport(instruction.name, instruction.queue, 0, 0, bits, failure)
    start = random_memories([instruction], rng, memory_sizes(target))
    failures = _failures(target, tried, engine, start)
    passed = len(tried) - len(failures)
    failure = next(iter(failures.values()), "")
    bits, is_encoded = _encoded(target, instruction, tried, start)
    return InstructionReport(
        instruction.name, instruction.queue, len(tried), passed, bits, failure, is_encoded
    )


def _encoded(
    target: Target,
    instruction: Instruction,
    tried: Sequence[Case],
    start: Mapping[str, np.ndarray],
) -> tuple[str, bool]:
    """How the encoding did, in words, and whether that is right."""
    encoding = target.encoding(instruction)
    if encoding is None:
        return "none", True
    if fit_faults(target, instruction):
        return "does not fit", False
    bits = f"{encoding.width} bits"
    others = [i for i in target.instructions if i != instruction]
    if any(target.encoding(i) is None or fit_faults(target, i) for i in others):
        return f"{bits}, not tried", True
    wrong = _encoding_fault(target, tried, start)
    return (wrong, False) if wrong else (bits, True)


def _affordable(instruction: Instruction, found: list[Case]) -> list[Case]:
    """The first cases that the interpreter can do in a short time."""
    work = 0
    kept: list[Case] = []
    for case in found:
        names = (f.name for f in instruction.fields)
        work += count_statements(instruction.body, dict(zip(names, case.fields, strict=True)))
        if work > STATEMENTS and len(kept) >= LEAST:
            break
        kept.append(case)
    return kept


def _failures(
    target: Target, tried: Sequence[Case], engine: Engine, start: Mapping[str, np.ndarray]
) -> dict[int, str]:
    """What is wrong with the cases: all are run in one stream, and if that goes wrong, each alone.
    What is wrong in sequence only is the last one's fault."""
    together = _difference(target, tried, engine, start)
    if not together:
        return {}
    alone = {k: _difference(target, [case], engine, start) for k, case in enumerate(tried)}
    found = {k: text for k, text in alone.items() if text}
    return found or {len(tried) - 1: f"in sequence, {together}"}


def _difference(
    target: Target, tried: Sequence[Case], engine: Engine, start: Mapping[str, np.ndarray]
) -> str:
    """The first byte where the engine and the meaning leave different memories, in words."""
    rows = rows_of(target, tried)
    stream = stream_of_rows(target, rows, memory_sizes(target))
    expected = {name: a.copy() for name, a in start.items()}
    interpret_rows(target, rows, expected)
    try:
        found = run(synchronised(stream), engine, start)
    except TilewrightError as error:
        return f"the device refuses it: {error.what}"
    place = differences(stream, expected, found)
    return place and f"{tried[-1].text(target)}: {place}"


def _encoding_fault(target: Target, tried: Sequence[Case], start: Mapping[str, np.ndarray]) -> str:
    """What is wrong when cases are encoded and decoded again."""
    try:
        done = synchronised(stream_of_rows(target, rows_of(target, tried), memory_sizes(target)))
        stream, waits = done.stream, done.waits
        held = constants(stream, start)
        found = decode(target, encode(stream, waits), sizes=stream.sizes, memories=held)
    except TilewrightError as error:
        return error.what
    bits, columns = (
        ("pops", "pushes", "awaits", "sets", "barriers"),
        ("fields", "addresses", "lists"),
    )
    pairs = [(n, getattr(found, n), getattr(waits, n)) for n in bits]
    pairs += [(n, getattr(found.stream, n), getattr(stream, n)) for n in columns]
    return next((f"other {name} are decoded" for name, a, b in pairs if not _equal(a, b)), "")


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a[..., : b.shape[-1]], b) if a.ndim > 1 else np.array_equal(a, b)
