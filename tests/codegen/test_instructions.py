"""Instructions of processors, declared in targets/cpu.py: each does what its meaning
says, becomes the machine instruction it is named for, and is reached by tensorize."""

from __future__ import annotations

import re

import numpy as np
import pytest
from instruction_calls import STEPS, calls
from native import build
from strategies import array

import tilewright
from tilewright import grid, reduce
from tilewright.backends.native import passes as backends
from tilewright.backends.native.object_code import compile_assembly
from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.expand import expand_call
from tilewright.ir.instruction import Instruction
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import For, Kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.schedule.core.state import Loop
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.targets import cpu

HOST = cpu.host(threads=1)


@pytest.mark.parametrize("instruction", HOST.instructions, ids=str)
def test_the_meaning(instruction: Instruction):
    kernel = calls(instruction)
    verify_kernel(kernel)
    inputs = [array(i, b.dtype, b.shape) for i, b in enumerate(kernel.inputs)]
    (wanted,) = interpret(kernel, inputs)
    (found,) = build(kernel, HOST)(inputs)
    np.testing.assert_array_equal(found, wanted)


MACHINE = {  # levels whose instructions have names of their own in assembly
    "sse2": {"pmaddwd": r"\spmaddwd.*xmm"},
    "avx2": {
        "fma_f32": r"vfmadd\d+ps.*ymm",
        "fma_f64": r"vfmadd\d+pd.*ymm",
        "pmaddwd": r"vpmaddwd.*ymm",
    },
    "avx2-vnni": {
        "fma_f32": r"vfmadd\d+ps.*ymm",
        "fma_f64": r"vfmadd\d+pd.*ymm",
        "pmaddwd": r"vpmaddwd.*ymm",
        "vpdpbusd": r"vpdpbusd.*ymm",
        "vpdpbusd_rows": r"vpdpbusd.*ymm",
    },
    "avx512-vnni": {
        "pmaddwd": r"vpmaddwd.*zmm",
        "fma_f32": r"vfmadd\d+ps.*zmm",
        "fma_f64": r"vfmadd\d+pd.*zmm",
        "vpdpbusd": r"vpdpbusd.*zmm",
        "vpdpbusd_rows": r"vpdpbusd.*zmm",
        "vdpbf16ps": r"vdpbf16ps.*zmm",
    },
    "neon": {
        "fma_f32": r"fmla\s+v\d+\.4s",
        "fma_f64": r"fmla\s+v\d+\.2d",
        "widening_multiply_add": r"\ssmlal\s",
    },
    "neon-dot": {
        "widening_multiply_add": r"\ssmlal\s",
        "fma_f32": r"fmla\s+v\d+\.4s",
        "fma_f64": r"fmla\s+v\d+\.2d",
        "sdot": r"\ssdot\s",
        "sdot_rows": r"\ssdot\s",
        "udot": r"\sudot\s",
        "usdot": r"\susdot\s",
        "usdot_rows": r"\susdot\s",
        "bfdot": r"\sbfdot\s",
    },
    "rvv": {
        "fma_f32": r"vfmacc\.v[vf]|vfmadd\.v[vf]",
        "fma_f64": r"vfmacc\.v[vf]|vfmadd\.v[vf]",
        "widening_multiply_add": r"vwmacc\.v[vx]",
    },
}


@pytest.mark.parametrize("level", MACHINE)
def test_the_machine_instruction(level: str):
    target = cpu.cpu(level)
    assert {i.name for i in target.instructions} == set(MACHINE[level])
    for instruction in target.instructions:
        lowered = backends.lower(calls(instruction), target, None, verify=True)
        text = compile_assembly(backends.to_llvm(lowered, target), target.native)
        assert re.search(MACHINE[level][instruction.name], text), f"{instruction}:\n{text}"


@pytest.mark.parametrize("level", MACHINE)
def test_tensorize_reaches_every_one(level: str):
    """From plain loops that mean the same."""
    for instruction in cpu.cpu(level).instructions:
        called = calls(instruction)
        (steps,) = (s for s in called.body if isinstance(s, For) and s.extent == STEPS)
        (call,) = steps.body
        plain = steps.with_(body=expand_call(call))
        body = tuple(plain if s is steps else s for s in called.body)
        s = Schedule(called.with_(body=body))
        s.tensorize(Loop(plain.body[0].var), instruction)
        assert f"{instruction.name}(" in s.show()
        check_same(s.original, s.kernel)


def check_same(a: Kernel, b: Kernel) -> None:
    inputs = [array(i, x.dtype, x.shape) for i, x in enumerate(a.inputs)]
    np.testing.assert_array_equal(interpret(a, inputs), interpret(b, inputs))


def instruction_of(target: Target, name: str) -> Instruction:
    return next(i for i in target.instructions if i.name == name)


@tilewright.kernel
def gemm(A: f32[5, 7], B: f32[7, 32], C: f32[5, 32]):
    for i, j in grid(5, 32):
        C[i, j] = 0.0
        for k in reduce(7):
            C[i, j] += A[i, k] * B[k, j]


def test_tensorize_reaches_it():
    s = Schedule(gemm.kernel)
    s.split_init(s.buffer("C"))
    outer, inner = s.split(s.loop("j"), HOST.vector.lanes(f32))
    s.reorder(s.loop("k"), outer, inner)
    s.tensorize(inner, instruction_of(HOST, "fma_f32"))
    assert "fma_f32(A[i, k], B[k, " in s.show()
    a, b = array(1, f32, (5, 7)), array(2, f32, (7, 32))
    (found,) = build(s.kernel, HOST)([a, b])
    np.testing.assert_array_equal(found, a @ b)


def test_an_instruction_of_another_chip():
    instruction = HOST.instructions[0].with_(native="")
    with pytest.raises(CompileError) as error:
        backends.to_llvm(calls(instruction), HOST)
    assert error.value.what == (
        "fma_f32 is an instruction of another chip: LLVM has no spelling for it"
    )


SPELLINGS = {
    "llvm.fma": "it is no call of an intrinsic",
    "<4 x i32> llvm.f(<4 x i32> d)": "'<4 x i32> d' is no type and operand",
    "<16 x float> llvm.f(<3 x i8> a)": "a has 32 bits, which do not fill <3 x i8>",
    "<16 x float> llvm.f(ptr a)": "a has 32 bits, which do not fill ptr",
    "<16 x float> llvm.f(metadata a)": "a has 32 bits, which do not fill metadata",
    "<2 x float> llvm.f(<16 x float> c)": "<2 x float> is not as large as c",
    "<16 x float> fadd(<16 x float> c, <16 x float> fmul(<16 x float> b, <16 x float> d))": (
        "'<16 x float> d' is no type and operand"
    ),
    "<16 x float> pow(<16 x float> c, <16 x float> c)": (
        "pow is none of add, sub, mul, fadd, fsub, fmul, sext, zext, trunc, fpext, fptrunc,"
        " bitcast, nor an intrinsic"
    ),
    "<16 x float> fadd(<16 x float> c)": "fadd takes 2, and is given 1",
    "<16 x float> asm.v(<16 x float> b, <16 x float> c)": "asm.v takes 1, and is given 2",
    "<16 x float> fadd(<16 x float> c, <16 x float> interleave.3(<16 x float> b))": (
        "interleave.3 does not divide <16 x float> into equal rows"
    ),
    "<16 x float> fadd(<16 x float> c, <16 x float> interleave.0(<16 x float> b))": (
        "interleave.0 does not divide <16 x float> into equal rows"
    ),
    "<16 x float> fadd(<16 x float> c, <16 x float> interleave.x(<16 x float> b))": (
        "interleave.x does not divide <16 x float> into equal rows"
    ),
    "<16 x float> fadd(<16 x float> c, <16 x float> interleave.2(<8 x float> a))": (
        "interleave.2 does not divide <16 x float> into equal rows"
    ),
    "<16 x float> interleave.2(<16 x float> b, <16 x float> c)": (
        "interleave.2 takes 1, and is given 2"
    ),
    "<16 x float> fadd(<16 x float> c, )": "'' is no type and operand",
    "<16 x float> fadd(<16 x float> c, <16 x float>)": "'<16 x float>' is no type and operand",
}


@pytest.mark.parametrize("native", SPELLINGS)
def test_a_spelling_that_does_not_fit(native: str):
    instruction = instruction_of(cpu.cpu("avx512"), "fma_f32").with_(native=native)
    with pytest.raises(CompileError) as error:
        backends.to_llvm(calls(instruction), HOST)
    assert str(error.value) == (
        f"the LLVM spelling of fma_f32 does not fit: {SPELLINGS[native]}\n  in: {native}\n"
        "  hint: <16 x float> llvm.fma.v16f32(<16 x float> a, <16 x float> b, <16 x float> c)"
    )
