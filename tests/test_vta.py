"""VTA's description beside its published facts: random programs of all its instructions, as words,
on the functional simulator and on a machine that shares no code with it (vta_machine.py)."""

import numpy as np
import pytest
from vta_machine import (
    ACC,
    ACC_8BIT,
    ADD,
    ALU,
    ALU_CODE,
    FACTORS,
    FINISH,
    GEMM,
    HEAD,
    INP,
    LOAD,
    LOOPS,
    MOVE,
    MUL,
    SHR,
    SIZES,
    STORE,
    UOP,
    UOPS,
    WGT,
    Machine,
    assemble,
)

from tilewright.backends.stream.decode import decode
from tilewright.sim.data import FILL, DataEngine
from tilewright.targets import cpu
from tilewright.targets.vta import vta

DRAM = 1 << 16
ENTRIES = 6  # micro-operations
ROWS = 64  # of accumulators and inputs that programs use; of weights as many blocks as entries


def load(kind: int, sram: int, dram: int, **sizes: int) -> list[int]:
    opcode = sizes.pop("opcode", LOAD)
    head = assemble(MOVE, opcode=opcode, memory_type=kind, sram_base=sram, dram_base=dram)
    return [head, assemble(SIZES, **sizes)]


def loops(opcode: int, rng: np.random.Generator) -> dict[str, int]:
    first = int(rng.integers(0, ENTRIES))
    end = int(rng.integers(first + 1, ENTRIES + 1))
    return {"opcode": opcode, "uop_bgn": first, "uop_end": end,
            "iter_out": int(rng.integers(1, 4)), "iter_in": int(rng.integers(1, 4))}  # fmt: skip


def steps(rng: np.random.Generator, *names: str) -> dict[str, int]:
    return {f"{n}_{k}": int(rng.integers(0, 4)) for n in names for k in ("out", "in")}


def anything(rng: np.random.Generator) -> list[int]:
    """One instruction at random."""
    sizes = {"y_size": int(rng.integers(1, 4)), "x_size": int(rng.integers(1, 5))}
    sizes["x_stride"] = sizes["x_size"] + int(rng.integers(0, 3))
    what = rng.integers(0, 8)
    far = int(rng.integers(0, 100))
    if what == 0:
        return load(WGT, int(rng.integers(0, 4)), far, y_size=1, x_size=2, x_stride=2)
    if what in (1, 2):
        pads = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
        around = {p: int(rng.integers(0, 3)) for p in pads} if what == 1 else {}
        return load(INP, int(rng.integers(0, 8)), far, **sizes, **around)
    if what == 3:
        kind = int(rng.choice([ACC, ACC_8BIT]))
        return load(kind, int(rng.integers(0, 40)), far, **sizes)
    if what == 4:
        return load(4, int(rng.integers(0, 40)), far, opcode=STORE, **sizes)
    if what == 5:
        head = assemble(LOOPS, **loops(GEMM, rng), reset=int(rng.integers(0, 2)))
        reset = head >> 7 & 1
        return [head, assemble(FACTORS, **steps(rng, "dst", *([] if reset else ["src", "wgt"])))]
    op, use = int(rng.integers(0, 5)), int(rng.integers(0, 2))
    few = int(rng.integers(-9, 9)) if op == SHR else int(rng.integers(-(1 << 15), 1 << 15))
    given = {"use_imm": 1, "imm": few} if use else steps(rng, "src")
    return [
        assemble(LOOPS, **loops(ALU_CODE, rng)),
        assemble(ALU, op=op, **steps(rng, "dst"), **given),
    ]


def program(rng: np.random.Generator, count: int) -> tuple[list[int], np.ndarray]:
    """Micro-operations and everything that is read are loaded, then anything; and DRAM."""
    dram = rng.integers(0, 256, DRAM, np.uint8)
    entries = [
        assemble(UOP, dst=int(rng.integers(0, 24)), src=int(rng.integers(0, 24)),
                 wgt=int(rng.integers(0, 4)))
        for _ in range(ENTRIES)
    ]  # fmt: skip
    dram[DRAM // 2 : DRAM // 2 + 4 * ENTRIES] = np.array(entries, "<u4").view(np.uint8)
    words = load(UOPS, 0, DRAM // 8, y_size=1, x_size=ENTRIES)
    words += load(WGT, 0, 0, y_size=1, x_size=32, x_stride=32)
    words += load(INP, 0, 0, y_size=1, x_size=ROWS, x_stride=ROWS)
    words += load(ACC_8BIT, 0, 7, y_size=1, x_size=ROWS, x_stride=ROWS)
    for _ in range(count):
        words += anything(rng)
    return [*words, assemble(HEAD, opcode=FINISH), 0], dram


def simulated(words: list[int], dram: np.ndarray) -> dict[str, np.ndarray]:
    """The memories behind a program, by the functional simulator."""
    target = vta()
    sizes = {m.name: m.size or DRAM for m in target.memories}
    found = decode(target, np.array(words, "<u8"), sizes=sizes, memories={"dram": dram})
    memories = {name: np.full(size, FILL, np.uint8) for name, size in sizes.items()}
    memories["dram"][:] = dram
    DataEngine(found.stream, cpu.host(threads=1)).run(memories)
    return memories


def check(words: list[int], dram: np.ndarray) -> Machine:
    memories = simulated(words, dram)
    machine = Machine(dram, FILL)
    machine.run(words)
    for name in ("dram", "uop", "wgt", "inp", "acc"):
        wanted = getattr(machine, name).reshape(-1).view(np.uint8)
        np.testing.assert_array_equal(memories[name], wanted, err_msg=name)
    return machine


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int):
    check(*program(np.random.default_rng(seed), 40))


def test_shifts_by_negative_amounts_go_to_the_left():
    rng = np.random.default_rng(0)
    words, dram = program(rng, 0)
    one = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}
    entry = int(dram[DRAM // 2 : DRAM // 2 + 4].view("<u4")[0]) & 2047
    before = check(words, dram).acc[entry].copy()
    left = [assemble(LOOPS, opcode=ALU_CODE, **one), assemble(ALU, op=SHR, use_imm=1, imm=-5)]
    np.testing.assert_array_equal(
        check(words[:-2] + left + words[-2:], dram).acc[entry], before << 5
    )


def test_a_residual_takes_two_instructions_of_the_alu_for_a_row():
    """Bytes go straight into accumulators: one addition, and one product, for two tiles."""
    words, dram = program(np.random.default_rng(1), 0)
    one = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}
    added = load(ACC_8BIT, 0, 50, y_size=1, x_size=ROWS, x_stride=ROWS)
    for op in (ADD, MUL):
        added += [assemble(LOOPS, opcode=ALU_CODE, **one), assemble(ALU, op=op, src_out=1)]
    check(words[:-2] + added + words[-2:], dram)
