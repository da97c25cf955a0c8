"""How a device ran one kernel, queue by queue, as its timed simulator saw it while compiling: what
pages and traces show. The part of a device has it in a file `NAME.run` for each kernel.

Instructions that lie side by side are one group, so that a stream of any length is a few thousand.
"""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import dataclass
from zipfile import BadZipFile

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.runtime.program import DevicePart
from tilewright.runtime.records import from_json, to_json

SUFFIX = ".run"
GROUPS = 4096  # of a queue, at most
QUEUE, INSTRUCTION, COUNT, BEGIN, END, BUSY = range(6)  # rows of `groups`
MOST = 1 << 53  # what any of their numbers may be


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A memory of a device: its bytes (None: as many as there are), and those that are used."""

    name: str
    bytes: int | None
    used: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """`cycles` of a kernel at `clock` cycles a second, and what the model that chose its tiles
    expected. `moved` are the bytes that instructions moved; `operations_per_second` and
    `bytes_per_second` what the device does at best (None: not known)."""

    cycles: int
    clock: int
    expected: int | None
    moved: int
    operations_per_second: int | None
    bytes_per_second: int | None
    queues: tuple[str, ...]
    instructions: tuple[str, ...]
    memories: tuple[MemoryUse, ...]


@dataclass(frozen=True, eq=False)
class DeviceRun:
    """`groups` has a column for each group of instructions, by queue and then time: the numbers of
    its queue and of the instruction that works most in it, how many instructions it has, the cycles
    in which it begins and ends, and for how many of these the queue works."""

    facts: RunFacts
    groups: np.ndarray  # i8[6, n]

    def in_bins(self, bins: int) -> np.ndarray:
        """The groups, of each queue at most one for each of so many equal parts of the time."""
        return group(self.groups, self.facts.cycles, bins)

    def to_bytes(self) -> bytes:
        file, groups = io.BytesIO(), as_steps(self.groups)
        facts = np.frombuffer(json.dumps(to_json(self.facts)).encode(), np.uint8)
        np.savez_compressed(file, facts=facts, groups=groups)
        return file.getvalue()


def as_steps(groups: np.ndarray) -> np.ndarray:
    """The groups in small numbers, which take little: the cycles since the group before began in
    the place of when each began, and how many it takes in the place of when it ended."""
    found: np.ndarray = groups.copy()
    found[END] -= found[BEGIN]
    found[BEGIN] = np.diff(found[BEGIN], prepend=0)
    return found


def group(rows: np.ndarray, cycles: int, bins: int) -> np.ndarray:
    """Groups (or single instructions) as fewer: those of a queue that begin in the same of `bins`
    equal parts of the time are one."""
    if not rows.shape[1]:
        return rows
    part = rows[BEGIN] * bins // max(cycles, 1)
    key = rows[QUEUE] * (bins + 1) + part
    order = np.lexsort((rows[BUSY], key))  # of each group, the one that works most is last
    rows, key = rows[:, order], key[order]
    first = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    last = np.append(first[1:], len(key)) - 1
    found = np.stack(
        [
            rows[QUEUE][first],
            rows[INSTRUCTION][last],
            np.add.reduceat(rows[COUNT], first),
            np.minimum.reduceat(rows[BEGIN], first),
            np.maximum.reduceat(rows[END], first),
            np.add.reduceat(rows[BUSY], first),
        ]
    )
    return found


def find_run(part: DevicePart, kernel: str) -> DeviceRun | None:
    """How a device ran a kernel, if its part says so; ArtifactError if that cannot be read."""
    content = dict(part.files).get(kernel + SUFFIX)
    return None if content is None else _read(part.device, kernel + SUFFIX, content)


def _read(device: str, name: str, data: bytes) -> DeviceRun:
    """The run in a file; every number of it is checked."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            text, groups = bytes(file["facts"]), np.array(file["groups"], np.int64)
        facts = from_json(RunFacts, json.loads(text), "run")
        if groups.ndim != 2 or len(groups) != 6:
            raise ArtifactError("its groups are no table of six rows")
    except (OSError, ValueError, KeyError, BadZipFile, zlib.error, ArtifactError) as error:
        raise ArtifactError(f"{name!r} of {device!r} cannot be read: {error}") from None
    groups[BEGIN] = np.cumsum(groups[BEGIN])
    groups[END] += groups[BEGIN]
    inside = (
        (groups >= 0).all()
        and (groups <= MOST).all()
        and (groups[BEGIN] <= groups[END]).all()
        and (groups[QUEUE] < len(facts.queues)).all()
        and (groups[INSTRUCTION] < len(facts.instructions)).all()
        and facts.cycles >= 0
        and facts.clock > 0
    )
    if not inside:
        raise ArtifactError(f"{name!r} of {device!r} cannot be read: a number is out of range")
    return DeviceRun(facts, groups)
