"""Encodings: VTA's layouts bit by bit, random ones both ways, and what is refused."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import cast, grid, i8, i32, reduce
from tilewright.base.errors import CompileError, TargetError
from tilewright.chip import build_chip
from tilewright.codegen.disassemble import disassemble
from tilewright.codegen.encode import decode, encode, pack, unpack
from tilewright.codegen.rows import stream_of_rows
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.kernel_words import out
from tilewright.ir.loop import Kernel
from tilewright.sim.data import DataEngine
from tilewright.sim.engine import Waits
from tilewright.target.describe import Range, TargetBuilder, flag, view
from tilewright.target.encoding import (
    Carries,
    Encoding,
    address,
    at,
    bits,
    constant,
    field,
    pad,
    pop,
    push,
)
from tilewright.target.target import Queue, Target
from tilewright.targets.tiny import tiny

# ---------------------------------------------------------------- VTA's layouts

SIZES = {"inp": 32 << 10, "wgt": 256 << 10, "acc": 128 << 10}
WORD = Range(0, 65535)
PAD = Range(0, 15)


def vta(log_acc: int = 17) -> Target:
    """Loads, the matrix unit with and without reset, an ALU operation and FINISH of VTA, with the
    encodings of its hardware 0.0.2; the meanings are cut short."""
    t = TargetBuilder("vta", clock=100e6)
    t.memory("dram")
    for name, size in (SIZES | {"acc": 1 << log_acc}).items():
        t.memory(name, size)
    load, compute, store = t.queues("load", "compute", "store", depth=8)
    t.tokens((load, compute), (compute, store))
    acc, inp, wgt = log_acc - 6, 11, 10  # bits of an element's number

    def head(opcode, before, behind):
        return constant(opcode, 3), pop(before), pop(behind), push(before), push(behind)

    def move(kind, size):
        return bits(
            128, head(0, None, compute), constant(kind, 3),
            address("dst", 16, unit=size), address("src", 32, unit=size), at(64),
            field("rows cols", 16), field("stride", 16, unit=size),
            field("top bottom left right", 4),
        )  # fmt: skip

    def loops(opcode, reset):
        return (
            head(opcode, load, store), constant(reset, 1), field("begin", 13),
            field("end outer inner", 14), at(64), field("do di", acc),
        )  # fmt: skip

    for memory, kind, size in (("wgt", 1, 256), ("inp", 2, 16)):

        @t.instruction(load, name=f"load_{memory}", encoding=move(kind, size))
        def mvin(
            src: view(i8[64, 64, size] @ "dram", "stride"),
            dst: out(i8[64, 64, size] @ memory),
            rows: WORD, cols: WORD, stride: Range(0, 65535 * size, multiple=size),
            top: PAD, bottom: PAD, left: PAD, right: PAD,
        ):  # fmt: skip
            for i, j, k in grid(rows, cols, size):
                dst[i, j, k] = src[i, j, k]

    def matrix(name, reset):
        code = bits(128, loops(2, reset), field("so si", inp), field("wo wi", wgt))

        @t.instruction(compute, name=name, encoding=code)
        def gemm(
            a: i8[16] @ "inp", c: out(i32[16] @ "acc"),
            begin: Range(0, 8191), end: Range(0, 8191), outer: Range(0, 16383),
            inner: Range(0, 16383), do: Range(0, (1 << acc) - 1), di: Range(0, (1 << acc) - 1),
            so: Range(0, 2047), si: Range(0, 2047), wo: Range(0, 1023), wi: Range(0, 1023),
        ):  # fmt: skip
            for i in grid(16):
                c[i] += cast(i32, a[i])

    matrix("gemm", 0)
    matrix("clear", 1)
    shift = field("so si", acc), constant(3, 3), constant(1, 1)

    @t.instruction(compute, encoding=bits(128, loops(4, 0), shift, field("by", 16, signed=True)))
    def shift_by(
        c: out(i32[16] @ "acc"),
        begin: Range(0, 8191), end: Range(0, 8191), outer: Range(0, 16383),
        inner: Range(0, 16383), do: Range(0, 2047), di: Range(0, 2047),
        so: Range(0, 2047), si: Range(0, 2047), by: Range(-32768, 32767),
    ):  # fmt: skip
        for i in grid(16):
            c[i] = c[i] >> cast(i32, by)

    @t.instruction(compute, encoding=bits(128, head(3, load, store)))
    def finish():
        pass

    return t.build()
