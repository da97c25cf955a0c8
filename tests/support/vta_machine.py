"""VTA as its published facts have it (hardware 0.0.2, one row of 16): its words, and what they do
to its memories. Written from the facts alone, in numpy; it shares no code with the compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# From the lowest bit up: (name, bits), for each of the two words of an instruction.
HEAD = "opcode 3 pop_prev 1 pop_next 1 push_prev 1 push_next 1 "
MOVE = HEAD + "memory_type 3 sram_base 16 dram_base 32"
SIZES = "y_size 16 x_size 16 x_stride 16 y_pad_0 4 y_pad_1 4 x_pad_0 4 x_pad_1 4"
LOOPS = HEAD + "reset 1 uop_bgn 13 uop_end 14 iter_out 14 iter_in 14"
FACTORS = "dst_out 11 dst_in 11 src_out 11 src_in 11 wgt_out 10 wgt_in 10"
ALU = "dst_out 11 dst_in 11 src_out 11 src_in 11 op 3 use_imm 1 imm 16"
UOP = "dst 11 src 11 wgt 10"

LOAD, STORE, GEMM, FINISH, ALU_CODE = range(5)
UOPS, WGT, INP, ACC, OUT, ACC_8BIT = range(6)
MIN, MAX, ADD, SHR, MUL = range(5)
BLOCK = 16


def assemble(layout: str, **values: int) -> int:
    """A word of this layout; what is not given is 0."""
    names = layout.split()[::2]
    widths = map(int, layout.split()[1::2])
    word = start = 0
    for name, width in zip(names, widths, strict=True):
        value = values.pop(name, 0)
        assert -(1 << width - 1) <= value < 1 << width
        word |= (value & (1 << width) - 1) << start
        start += width
    assert not values
    assert start <= 64
    return word


def parts(layout: str, word: int) -> dict[str, int]:
    """What a word of this layout says."""
    found, start = {}, 0
    for name, width in zip(layout.split()[::2], map(int, layout.split()[1::2]), strict=True):
        found[name] = word >> start & (1 << width) - 1
        start += width
    return found


class Machine:
    """The chip's memories, in elements; DRAM in bytes."""

    def __init__(self, dram: np.ndarray, fill: int) -> None:
        self.dram = dram.copy()
        byte = np.uint8(fill)
        self.uop = np.full(8192 * 4, byte).view("<u4")
        self.wgt = np.full((1024, BLOCK, BLOCK), byte).view(np.int8)
        self.inp = np.full((2048, BLOCK), byte).view(np.int8)
        self.acc = np.full((2048, BLOCK * 4), byte).view("<i4")

    def run(self, words: Sequence[int]) -> None:
        """Instructions one after another, up to FINISH; two words each."""
        for first, second in zip(words[::2], words[1::2], strict=True):
            opcode = first & 7
            if opcode == FINISH:
                return
            if opcode in (LOAD, STORE):
                self._move(opcode, parts(MOVE, first), parts(SIZES, second))
            else:
                self._compute(opcode, parts(LOOPS, first), second)

    def _move(self, opcode: int, m: dict[str, int], s: dict[str, int]) -> None:
        if opcode == STORE:
            for y in range(s["y_size"]):
                for x in range(s["x_size"]):
                    row = self.acc[m["sram_base"] + y * s["x_size"] + x]
                    at = (m["dram_base"] + y * s["x_stride"] + x) * BLOCK
                    self.dram[at : at + BLOCK] = (row & 0xFF).astype(np.uint8)
            return
        kind = m["memory_type"]
        memory, element = {
            UOPS: (self.uop, 4), WGT: (self.wgt, 256), INP: (self.inp, 16), ACC: (self.acc, 64),
            ACC_8BIT: (self.acc, 16),
        }[kind]  # fmt: skip
        here = m["sram_base"]
        wide = s["x_pad_0"] + s["x_size"] + s["x_pad_1"]
        for y in range(s["y_pad_0"] + s["y_size"] + s["y_pad_1"]):
            for x in range(wide):
                j, i = y - s["y_pad_0"], x - s["x_pad_0"]
                if 0 <= j < s["y_size"] and 0 <= i < s["x_size"]:
                    at = (m["dram_base"] + j * s["x_stride"] + i) * element
                    data = self.dram[at : at + element]
                    if kind == ACC_8BIT:
                        memory[here] = data.view(np.int8).astype(np.int32)
                    else:
                        memory[here] = data.view(memory.dtype).reshape(memory.shape[1:])
                else:
                    memory[here] = 0
                here += 1

    def _compute(self, opcode: int, m: dict[str, int], second: int) -> None:
        f = parts(FACTORS if opcode == GEMM else ALU, second)
        for i in range(m["iter_out"]):
            for j in range(m["iter_in"]):
                for u in self.uop[m["uop_bgn"] : m["uop_end"]].tolist():
                    entry = parts(UOP, u)
                    dst = entry["dst"] + i * f["dst_out"] + j * f["dst_in"]
                    src = entry["src"] + i * f["src_out"] + j * f["src_in"]
                    if opcode == GEMM:
                        wgt = entry["wgt"] + i * f["wgt_out"] + j * f["wgt_in"]
                        self._product(m["reset"], dst, src, wgt)
                    else:
                        self._alu(f, dst, src)

    def _product(self, reset: int, dst: int, src: int, wgt: int) -> None:
        if reset:
            self.acc[dst] = 0
        else:
            with np.errstate(over="ignore"):
                self.acc[dst] += self.wgt[wgt].astype(np.int32) @ self.inp[src].astype(np.int32)

    def _alu(self, f: dict[str, int], dst: int, src: int) -> None:
        a = self.acc[dst].astype(np.int64)
        imm = f["imm"] - (1 << 16) * (f["imm"] >> 15)
        b = np.full(BLOCK, imm) if f["use_imm"] else self.acc[src].astype(np.int64)
        if f["op"] == SHR:  # to the left by a negative amount
            pairs = zip(a.tolist(), b.tolist(), strict=True)
            result = np.array([x >> y if y >= 0 else x << min(-y, 64) for x, y in pairs])
        else:
            result = {MIN: np.minimum, MAX: np.maximum, ADD: np.add, MUL: np.multiply}[f["op"]](
                a, b
            )
        low = np.array([int(x) & 0xFFFFFFFF for x in result], np.uint64)
        self.acc[dst] = low.astype(np.uint32).view(np.int32)
