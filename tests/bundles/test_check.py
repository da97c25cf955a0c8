"""Bundles that are wrong are caught: whatever changes a result, or reads or writes too early."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from bundle_programs import SIZE, M, programs, small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.backends.bundles.check import check
from tilewright.backends.bundles.code import Bundle, Code, LoopControl, Repeat
from tilewright.backends.bundles.program import BundleProgram, make_program
from tilewright.backends.bundles.run_bundles import Machine
from tilewright.backends.bundles.sections import Section
from tilewright.base.errors import CompileError
from tilewright.ir.loop import Kernel
from tilewright.sim.data import FILL
from tilewright.target.target import Target
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
CHIP = small(ls=2, alu=2, ready=3, done=2)


def section_of(kernel: Kernel, chip: Target) -> tuple[BundleProgram, Section]:
    program = make_program(kernel, chip)
    (section,) = program.sections
    return program, section


def result(program: BundleProgram, code: Code, chip: Target) -> bytes | None:
    """What the code leaves in local memory; None where the machine refuses it."""
    place = program.stream.places[M]
    memory = np.full(program.stream.sizes["local"], FILL, np.uint8)
    memory[place.offset : place.offset + SIZE] = np.random.default_rng(1).integers(0, 256, SIZE)
    machine = Machine(chip, HOST, {"local": memory}, program.stream.places)
    try:
        machine.run(code, {})
    except CompileError:
        return None
    machine.drain()
    return machine.memories["local"].tobytes()


# ---------------------------------------------------------------- changes


def changes(code: Code) -> Iterator[tuple[str, Code]]:
    """The code with one thing changed: an operation moved by a bundle, left out, done twice, with
    another register or slot's neighbour; a loop that runs once more."""
    for i, item in enumerate(code):
        if isinstance(item, Repeat):
            yield "a loop runs once more", swapped(code, i, replace(item, count=item.count + 1))
            for name, inner in changes(item.code):
                yield name, swapped(code, i, replace(item, code=inner))
            continue
        for x in item:
            if isinstance(x, LoopControl):
                continue
            rest = tuple(y for y in item if y is not x)
            yield "left out", swapped(code, i, rest)
            for j in (i - 1, i + 1):
                there = code[j] if 0 <= j < len(code) else None
                if isinstance(there, tuple):
                    yield "moved", swapped(swapped(code, i, rest), j, (*there, x))
                    yield "done twice", swapped(code, j, (*there, x))
            for k, register in enumerate(x.registers):
                if register is not None:
                    for other in {max(register - 1, 0), min(register + 1, 14)} - {register}:
                        registers = (*x.registers[:k], other, *x.registers[k + 1 :])
                        changed = replace(x, registers=registers)
                        yield "another register", swapped(code, i, (*rest, changed))


def swapped(code: Code, i: int, item: Bundle | Repeat) -> Code:
    return (*code[:i], item, *code[i + 1 :])


@given(data=st.data())
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_every_change_that_matters_is_caught(data: st.DataObject):
    program, section = section_of(data.draw(programs(CHIP)), CHIP)
    right = result(program, section.code, CHIP)
    assert check(section.body, section.code, CHIP) is None
    for name, code in changes(section.code):
        if check(section.body, code, CHIP) is None:
            assert result(program, code, CHIP) == right, name
