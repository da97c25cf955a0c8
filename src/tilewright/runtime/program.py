"""A compiled model as data: what a file holds, and what a Module runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.program.check import BrokenRule, check_program
from tilewright.program.host_program import HostProgram
from tilewright.program.size import Size

ENTRY = "tw_entry"  # the function that runs the model; see native/tilewright_runtime.h


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What the code was compiled for, and how fast that is (None: not known)."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]  # instruction sets that the code uses
    operations_per_second: int | None = None
    bytes_per_second: int | None = None

    @property
    def architecture(self) -> str:
        return self.triple.split("-")[0]

    def __str__(self) -> str:
        """ "host (x86_64 znver4)"."""
        return f"{self.name} ({f'{self.architecture} {self.cpu}'.rstrip()})"


@dataclass(frozen=True, slots=True)
class StepInstruction:
    """An instruction of the processor, by its name, and how LLVM spells it."""

    name: str
    native: str


@dataclass(frozen=True, slots=True)
class StepPiece:
    """One of several kernels of the model that a device runs as one step: the model's nodes, and
    what is known of it. Its `cycles` are those from when the pieces before it were done; `bound` is
    what it would take at least by itself, which can be more."""

    kernel: str
    nodes: tuple[str, ...]
    operations: Size | None
    cycles: int
    bound: int | None = None
    bytes: Size | None = None  # of distinct elements
    after: tuple[int, ...] = ()  # the pieces, by number, whose results it reads


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What is known of a step; `operations` and `bytes` (moved to and from memory) are None where
    they are not known. `instruction` is what multiplies and adds in it. Of a kernel that a device
    runs, `cycles` and `picoseconds` are what it takes there, and `bound` the cycles that no
    schedule can beat; `pieces` are the kernels of which it is made, where they are several. Of one
    that the host runs though there are devices, `obstacles` say why, a line for each. `fallback` is
    not empty where the rules for schedules refused a kernel, and says what they refused. `written`
    are the numbers of the slots that a kernel of the host writes, scratch left out."""

    operations: Size | None = None
    bytes: Size | None = None
    cycles: int | None = None
    picoseconds: int | None = None
    obstacles: tuple[str, ...] = ()
    fallback: str = ""
    instruction: StepInstruction | None = None
    bound: int | None = None
    pieces: tuple[StepPiece, ...] = ()
    written: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What a device is given before the first call: files by name, which a device of this `kind`
    reads (runtime/devices.py)."""

    device: str
    kind: str
    files: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """`steps` has what is known of each step of the host's program; `objects` are object files by
    name; `constants` the bytes of each constants memory; `parts` what devices besides the host are
    given."""

    host: HostProgram
    steps: tuple[StepFacts, ...]
    target: TargetFacts
    objects: tuple[tuple[str, bytes], ...]
    constants: tuple[np.ndarray, ...]
    compiler: str  # the version that made it
    entry: str = ENTRY
    parts: tuple[DevicePart, ...] = ()


def checked(host: HostProgram, steps: tuple[StepFacts, ...]) -> HostProgram:
    """The host's program itself; ArtifactError where it breaks a rule, or has other steps."""
    try:
        check_program(host)
    except BrokenRule as broken:
        raise ArtifactError(
            f"the program of {host.name!r} does not hold together: {broken.what}"
        ) from None
    if len(steps) != len(host.steps):
        raise ArtifactError(f"{len(steps)} facts are given of {len(host.steps)} steps")
    return host
