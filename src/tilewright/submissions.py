"""What devices are handed while a model runs: the kernels that the host submits, in order, to the
bit, with the places of their operands. The format of the folder stands in docs/stream-binary.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.assemble import SubmittedKernel
from tilewright.backends.binary import Binary, PlacedArray
from tilewright.backends.devices import Devices
from tilewright.base.errors import CompileError
from tilewright.base.version import VERSION
from tilewright.optimize.move_arrays import Held, packing, unpacking
from tilewright.optimize.plan_memory import MemoryPlan, PlacedConstant
from tilewright.program.host_program import HostProgram, Submit
from tilewright.program.size import Size
from tilewright.runtime.atomic import as_path
from tilewright.runtime.atomic_folder import write_folder

FORMAT = 1
INDEX, HOST = "index.json", "host.txt"


@dataclass(frozen=True, eq=False)
class Operand:
    """An operand or result of a submit: the host program's slot, its place in the device's memory,
    and how it is arranged there; `contents` where it is a constant."""

    argument: int  # its number among the submit's operands, or its results
    slot: str
    placed: PlacedArray
    held: Held
    contents: np.ndarray | None = None

    @property
    def place(self) -> str:
        """ "dram[0x1f40]"."""
        return f"{self.placed.memory}[{self.placed.address:#x}]"


@dataclass(frozen=True, eq=False)
class Submission:
    """One submit of the host program: its number among them, the step, and what is submitted."""

    number: int
    step: Submit
    binary: Binary
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]

    def __str__(self) -> str:
        """ "submit 0 to vta: nodes Conv_4; image = dram[0x0] -> y = dram[0x1f40]"."""
        given, made = (
            ", ".join(f"{o.slot} = {o.place}" for o in side)
            for side in (self.operands, self.results)
        )
        nodes = ", ".join(self.step.nodes)
        return f"submit {self.number} to {self.step.device}: nodes {nodes}; {given} -> {made}"


@dataclass(frozen=True, eq=False)
class Submissions:
    """All that a model's devices are handed, and the host program that hands it to them."""

    host: HostProgram
    submits: tuple[Submission, ...]

    @property
    def texts(self) -> dict[str, str]:
        """Of each kernel the submits of it, and its instructions, a line each."""
        found: dict[str, list[Submission]] = {}
        for s in self.submits:
            found.setdefault(s.step.kernel, []).append(s)
        return {
            name: "\n".join([name, *map(str, all_of_it), *all_of_it[0].binary.listing()])
            for name, all_of_it in found.items()
        }

    def __str__(self) -> str:
        return "\n\n".join(self.texts.values())

    def save(
        self, folder: str | os.PathLike[str], tell: Callable[[int, int], None] | None = None
    ) -> int:
        """Writes the folder, all of it or nothing; returns its bytes. TargetError where a device's
        instructions have no bits. `tell` is told how many submits of how many are written."""
        codes: dict[str, bytes] = {}
        for s in self.submits:
            if s.step.kernel not in codes:
                codes[s.step.kernel] = s.binary.code()

        def files() -> Iterator[tuple[str, bytes | memoryview]]:
            index = {
                "format": FORMAT, "compiler": VERSION, "model": self.host.name,
                "byte_order": "little", "address_bytes": 1,
                "submits": [_submit_json(s, len(codes[s.step.kernel])) for s in self.submits],
            }  # fmt: skip
            yield INDEX, (json.dumps(index, indent=1) + "\n").encode()
            yield HOST, f"{self.host}\n".encode()
            for s in self.submits:
                yield f"{s.number}/{_CODE}", codes[s.step.kernel]
                for memory in s.binary.sizes:
                    yield f"{s.number}/{_image(memory)}", memory_image(s, memory).data
                if tell is not None:
                    tell(s.number + 1, len(self.submits))

        return write_folder(as_path(folder, 'save("out")'), files())


_CODE = "instructions.bin"


def _image(memory: str) -> str:
    return f"memory.{memory}.bin"


def memory_image(s: Submission, memory: str) -> np.ndarray:
    """The bytes of a memory before the first instruction: constants, and 0 elsewhere."""
    found = np.zeros(s.binary.sizes[memory], np.uint8)
    for placed, contents in _constants(s):
        if placed.memory == memory:
            data = np.ascontiguousarray(contents, placed.dtype.numpy).reshape(-1).view(np.uint8)
            found[placed.address : placed.address + data.size] = data
    return found


def _constants(s: Submission) -> Iterator[tuple[PlacedArray, np.ndarray]]:
    for o in s.operands:
        if o.contents is not None:
            yield o.placed, o.contents
    for placed in (*s.binary.tables, *s.binary.filled):
        assert placed.contents is not None
        yield placed, placed.contents


# ---------------------------------------------------------------- the index


def _submit_json(s: Submission, size: int) -> dict[str, Any]:
    constant = [o for o in s.operands if o.contents is not None]
    return {
        "device": s.step.device,
        "target": s.binary.target,
        "kernel": s.step.kernel,
        "nodes": list(s.step.nodes),
        "instructions": {
            "file": f"{s.number}/{_CODE}", "count": sum(s.binary.parts), "bytes": size,
            "parts": list(s.binary.parts), "cores": s.binary.cores,
        },
        "memories": [
            {"name": name, "file": f"{s.number}/{_image(name)}", "bytes": bytes_}
            for name, bytes_ in s.binary.sizes.items()
        ],
        "operands": [_operand_json(o, packing) for o in s.operands if o.contents is None],
        "results": [_operand_json(o, unpacking) for o in s.results],
        "constants": [
            *(_placed_json(o.placed) | {"holds": "operand"} | _argument(o) for o in constant),
            *(_placed_json(p) | {"holds": "micro-operations"} for p in s.binary.tables),
            *(_placed_json(p) | {"holds": "fill"} for p in s.binary.filled),
        ],
    }  # fmt: skip


def _placed_json(placed: PlacedArray) -> dict[str, Any]:
    size = int(np.prod(placed.shape, dtype=np.int64)) * placed.dtype.bytes
    return {
        "name": placed.name, "memory": placed.memory, "address": placed.address, "bytes": size,
        "dtype": placed.dtype.name, "shape": list(placed.shape),
    }  # fmt: skip


def _argument(o: Operand) -> dict[str, Any]:
    return {"argument": o.argument, "slot": o.slot}


def _operand_json(o: Operand, program: Callable[[Held, str], object]) -> dict[str, Any]:
    """How an array that comes and goes lies in memory: `form` is the array of `type`, in memory by
    `order` and `blocks`, and `made_by` the program between it and the model's array."""
    kind = o.held.type
    layout = kind.layout
    name = "pack" if program is packing else "unpack"
    return (
        _placed_json(o.placed)
        | _argument(o)
        | {
            "array_shape": list(o.held.shape),
            "form": {
                "shape": [int(n) for n in kind.shape],
                "order": list(range(kind.rank)) if layout is None else list(layout.order),
                "blocks": [] if layout is None else [list(b) for b in layout.blocks],
            },
            "made_by": None if o.held.is_same else str(program(o.held, name)),
        }
    )


# ---------------------------------------------------------------- what is submitted


def find_submissions(
    plan: MemoryPlan, kernels: Mapping[str, object], devices: Devices
) -> Submissions:
    """The submits of a planned model; CompileError where there are none, or a device's kind does
    not say what its devices are given."""
    steps = [s for s in plan.program.steps if isinstance(s, Submit)]
    if not steps:
        raise CompileError(
            f"nothing of {plan.program.name} is submitted: the host runs all of it",
            hint="tilewright explain says why, for each step; --target host --target NAME gives a"
            " chip beside the host",
        )
    constants: dict[tuple[str, Size], PlacedConstant] = {
        (c.memory, c.offset): c for c in plan.constants
    }
    slots = plan.program.slots_by_name

    def contents(name: str) -> np.ndarray | None:
        slot = slots[name]
        found = constants.get((slot.memory, slot.offset))
        return None if found is None else found.array

    def operands(
        names: Sequence[str], placed: Sequence[PlacedArray], held: Sequence[Held]
    ) -> tuple[Operand, ...]:
        rows = zip(names, placed, held, strict=True)
        return tuple(Operand(k, n, p, h, contents(n)) for k, (n, p, h) in enumerate(rows))

    found = []
    for number, step in enumerate(steps):
        kernel = kernels[step.kernel]
        assert isinstance(kernel, SubmittedKernel)
        binary = devices.binary(step.device, kernel.option.built)
        k, held = kernel.given, kernel.option.held
        found.append(
            Submission(
                number, step, binary,
                operands(step.inputs, binary.parameters[:k], held[:k]),
                operands(step.outputs, binary.parameters[k:], held[k:]),
            )
        )  # fmt: skip
    return Submissions(plan.program, tuple(found))
