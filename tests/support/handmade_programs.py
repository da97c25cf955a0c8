"""Models made by hand: a host program, kernels as LLVM IR, and what becomes of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.backends.host.constants import pack_constants
from tilewright.backends.host.functions import attrs_to_json, host_table
from tilewright.backends.host.llvm import KernelSignature, emit_host
from tilewright.base.dtype import DType, f32
from tilewright.base.errors import InputError, TargetError
from tilewright.ir.dims import size_of
from tilewright.ir.expr import Dim, Symbol, product
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor_type import TensorType
from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostProgram,
    HostStep,
    KernelCall,
    MemoryKind,
    MemorySpec,
    Slot,
    SymbolSpec,
    slots_of,
    total_bytes,
)
from tilewright.runtime.module import Module
from tilewright.runtime.program import Program, StepFacts, TargetFacts, checked
from tilewright.runtime.system import host_triple

# Each works on f32 buffers of `n` elements.
KERNELS = """
declare float @expf(float)
declare void @tw_parallel(ptr, ptr, ptr, i64, i64)

; y = 2 x
define void @double(ptr %pool, ptr %x, ptr %y, i64 %n) {
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %a = load float, ptr %from
  %b = fadd float %a, %a
  %to = getelementptr float, ptr %y, i64 %i
  store float %b, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}

; y = a + b
define void @add(ptr %pool, ptr %a, ptr %b, ptr %y, i64 %n) {
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %a.at = getelementptr float, ptr %a, i64 %i
  %p = load float, ptr %a.at
  %b.at = getelementptr float, ptr %b, i64 %i
  %q = load float, ptr %b.at
  %r = fadd float %p, %q
  %to = getelementptr float, ptr %y, i64 %i
  store float %r, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}

; y = exp x, in parallel, 8 elements at a time
%pair = type { ptr, ptr }
define void @exp(ptr %pool, ptr %x, ptr %y, i64 %n) {
  %context = alloca %pair
  store ptr %x, ptr %context
  %second = getelementptr %pair, ptr %context, i32 0, i32 1
  store ptr %y, ptr %second
  call void @tw_parallel(ptr %pool, ptr @exp.body, ptr %context, i64 %n, i64 8)
  ret void
}
define internal void @exp.body(ptr %context, i64 %begin, i64 %end, i64 %worker) {
entry:
  %x = load ptr, ptr %context
  %second = getelementptr %pair, ptr %context, i32 0, i32 1
  %y = load ptr, ptr %second
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %a = load float, ptr %from
  %b = call float @expf(float %a)
  %to = getelementptr float, ptr %y, i64 %i
  store float %b, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
SIGNATURES = {
    "double": KernelSignature("double", 2, 1),
    "add": KernelSignature("add", 3, 1),
    "exp": KernelSignature("exp", 2, 1),
}
N = Symbol("n", 0)


def object_code(text: str) -> bytes:
    """The object file of an LLVM module, for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_triple(host_triple())
    return target.create_target_machine(opt=2, reloc="pic").emit_object(module)


@functools.cache
def kernels() -> bytes:
    return object_code(KERNELS)


class Placed(NamedTuple):
    memory: str
    offset: int
    array: np.ndarray


def tensor(*shape: Dim, dtype: DType = f32) -> TensorType:
    return TensorType(dtype, shape)


def slot(name: str, memory: str, type: TensorType, offset: Dim = 0) -> Slot:
    return Slot(name, memory, size_of(offset), type.dtype, tuple(map(size_of, type.shape)))


def call(kernel: str, *slots: str, symbols: Sequence[Symbol] = (N,)) -> KernelCall:
    return KernelCall(kernel, "cpu", slots, tuple(s.name for s in symbols), (f"{kernel}_node",))


def host_program(
    inputs: Mapping[str, TensorType],
    outputs: Mapping[str, TensorType],
    steps: Sequence[HostStep],
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    scratch: Mapping[str, TensorType] | None = None,
    returned: Sequence[str] | None = None,
    name: str = "model",
) -> HostProgram:
    """A program whose constants and scratch lie one after the other, 64 bytes apart or more."""
    memories, slots = [], []
    at: Dim = 0
    for key, array in (constants or {}).items():
        slots.append(slot(key, "weights", tensor(*array.shape), at))
        at += -(-array.nbytes // 64) * 64
    memories.append(MemorySpec("weights", "cpu", MemoryKind.CONSTANTS, size_of(at)))
    at = 0
    for key, type in (scratch or {}).items():
        slots.append(slot(key, "scratch", type, at))
        at = at + (product((type.bytes,)) + 63) // 64 * 64
    memories.append(MemorySpec("scratch", "cpu", MemoryKind.ARENA, size_of(at)))
    for kind, group in ((MemoryKind.INPUT, inputs), (MemoryKind.OUTPUT, outputs)):
        for key, type in group.items():
            memories.append(MemorySpec(key, "cpu", kind, size_of(type.bytes)))
            slots.append(slot(key, key, type))
    found = {d for t in inputs.values() for d in t.shape if isinstance(d, Symbol)}
    return HostProgram(
        name,
        tuple(SymbolSpec(s.name, s.lower, s.upper) for s in sorted(found, key=lambda s: s.name)),
        tuple(inputs),
        tuple(returned if returned is not None else outputs),
        tuple(memories),
        tuple(slots),
        tuple(steps),
    )


def facts(**changes: object) -> TargetFacts:
    return TargetFacts(
        **{"name": "here", "triple": host_triple(), "cpu": "", "features": ()} | changes
    )


def build(
    host: HostProgram,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    objects: Sequence[tuple[str, bytes]] | None = None,
    **changes: object,
) -> Program:
    """The compiled program."""
    offsets = {s.name: s.offset for s in host.slots}
    placed = [Placed("weights", offsets[k], a) for k, a in (constants or {}).items()]
    known = tuple(
        StepFacts(bytes=total_bytes(host.slots_by_name[name] for name in slots_of(s)))
        for s in host.steps
    )
    entry = object_code(emit_host(host, SIGNATURES))
    return Program(
        checked(host, known),
        known,
        facts(**changes),
        (*(objects if objects is not None else [("kernels", kernels())]), ("entry", entry)),
        tuple(pack_constants(host, placed)),
        "0.1.0",
    )


def affine(rows: Dim = N) -> Program:
    """y = 2 x + b, for x and b of `rows` rows of one number, with one intermediate value."""
    shape = tensor(rows)
    steps = [call("double", "x", "t"), call("add", "t", "b", "y")]
    return build(host_program({"x": shape, "b": shape}, {"y": shape}, steps, scratch={"t": shape}))


# ---------------------------------------------------------------- operators of the host


@dataclass(frozen=True, slots=True)
class ScaleAttrs(Attrs):
    factor: float = attr(1.0, doc="what every element is multiplied by")


def opaque(function, name="scale"):
    """An operator that runs on the host."""
    return Op(
        name,
        ScaleAttrs,
        lambda attrs, types: types,
        Category.OPAQUE,
        "for tests",
        (1, 1),
        evaluate=function,
    )


def with_host(function, steps=None, attrs=ScaleAttrs(2.0), **settings):
    """y = exp(scale(2 x)): `scale` is `function`, on the host."""
    op, kind = opaque(function), tensor(N)
    told = json.dumps(attrs_to_json("scale", attrs))
    steps = steps or [
        call("double", "x", "a"),
        HostCall("scale", told, ("a",), ("b",), ("Scale_1",)),
        call("exp", "b", "y"),
    ]
    program = host_program({"x": kind}, {"y": kind}, steps, scratch={"a": kind, "b": kind})
    return Module(build(program), host=host_table({"scale": op}), **settings)


def times_factor(attrs, inputs):
    return [inputs[0] * np.float32(attrs.factor)]


# ---------------------------------------------------------------- modules


def copying(dtype, *shape, inputs=("x",), **changes):
    """A module whose outputs y0, y1 … are its inputs."""
    kind = tensor(*shape, dtype=dtype)
    outputs = [f"y{i}" for i in range(len(inputs))]
    steps = [Copy(x, y) for x, y in zip(inputs, outputs, strict=True)]
    program = host_program(dict.fromkeys(inputs, kind), dict.fromkeys(outputs, kind), steps)
    return Module(build(program.with_(**changes)), threads=1)


def refusal(what, *args, **named):
    with pytest.raises((InputError, TargetError)) as caught:
        what(*args, **named)
    return str(caught.value)
