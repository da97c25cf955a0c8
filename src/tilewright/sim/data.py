"""The functional simulator: a stream's effect on memory, in program order.

Every call of the program becomes a small kernel, the meaning of its instruction with the steps of
its operands put in, compiled to machine code like any other; a loop over the stream calls them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.codegen.llvm import emit_kernel
from tilewright.codegen.machine import compile_object
from tilewright.codegen.stream import Site, Stream, listed_steps
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import Buffer, Expr, as_expr, const
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import Call, Kernel, symbols
from tilewright.runtime.loader import LoadedCode, load_code
from tilewright.target.target import Target

RUN = "tw_stream"
_ARGUMENTS = ("count", "site", "fields", "addresses", "bases")


class DataEngine:
    """A stream's machine code on the host; `run` applies it to memories."""

    def __init__(self, stream: Stream, host: Target) -> None:
        self.stream = stream
        kernels = [site_kernel(k, s) for k, s in enumerate(stream.sites)]
        objects = [(k.name, compile_object(emit_kernel(k, host), host.native)) for k in kernels]
        objects.append((RUN, compile_object(driver(stream, kernels, host), host.native)))
        self.code: LoadedCode = load_code(objects, [RUN])
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(self.code.addresses[RUN])

    def run(self, memories: Mapping[str, np.ndarray]) -> None:
        """Runs all instructions on these memories (bytes, by name), in place."""
        stream = self.stream
        names = [m.name for m in stream.target.memories]
        bases = np.array([memories[n].ctypes.data if n in memories else 0 for n in names], np.int64)
        site = np.ascontiguousarray(stream.site, np.int32)
        fields = np.ascontiguousarray(stream.fields, np.int64)
        addresses = np.ascontiguousarray(stream.addresses, np.int64)
        count = np.array([len(stream)], np.int64)
        self._run(
            *(ctypes.c_void_p(a.ctypes.data) for a in (count, site, fields, addresses, bases))
        )


def run_stream(
    stream: Stream, host: Target, inputs: Mapping[Buffer, np.ndarray], outputs: Sequence[Buffer]
) -> list[np.ndarray]:
    """The outputs of a stream for these inputs: arrays are put where their buffers lie, and what
    lies at the outputs' places is read back. Memory starts with a pattern nobody expects."""
    memories = {name: np.full(size, 0xA5, np.uint8) for name, size in stream.sizes.items()}
    for buffer, array in {**stream.constants, **inputs}.items():
        place = stream.places[buffer]
        data = np.ascontiguousarray(array, buffer.dtype.numpy).reshape(-1).view(np.uint8)
        memories[place.memory][place.offset : place.offset + data.size] = data
    DataEngine(stream, host).run(memories)
    found = []
    for buffer in outputs:
        place = stream.places[buffer]
        shape = tuple(int(n) for n in buffer.shape if isinstance(n, int))
        size = int(np.prod(shape)) * buffer.dtype.bytes
        data = memories[place.memory][place.offset : place.offset + size]
        found.append(data.view(buffer.dtype.numpy).reshape(shape))
    return found


def site_kernel(number: int, site: Site) -> Kernel:
    """The meaning of one call: operands are flat buffers that begin at their first element."""
    instruction = site.instruction
    regions, params = [], []
    for k, (operand, steps) in enumerate(zip(instruction.operands, site.steps, strict=True)):
        listed = listed_steps(site.call, operand, site.call.regions[k])
        flat = Buffer(f"o{k}_{operand.name}", operand.dtype, (1 << 40,))
        position: Expr = const(0) if listed is None else listed
        for d, step in enumerate(steps):
            position = position + as_expr(axis(d)) * (step // operand.dtype.bytes)
        regions.append(Region(flat, (position,)))
        params.append(flat)
    call = Call(instruction, tuple(regions), tuple(f.symbol for f in instruction.fields))
    return Kernel(f"i{number}_{instruction.name}", (), tuple(params), expand_call(call))


def driver(stream: Stream, kernels: Sequence[Kernel], host: Target) -> str:
    """LLVM's text of `tw_stream(count, site, fields, addresses, bases)`: a loop over the stream
    with a switch over its sites."""
    numbers = {m.name: k for k, m in enumerate(stream.target.memories)}
    width, operands = stream.fields.shape[1], stream.addresses.shape[1]
    cases, blocks, declared = [], [], []
    for k, (site, kernel) in enumerate(zip(stream.sites, kernels, strict=True)):
        cases.append(f"    i32 {k}, label %site{k}")
        lines, arguments = [f"site{k}:"], ["ptr null"]
        for o, memory in enumerate(site.memories):
            lines += [
                f"  %ia{k}_{o} = add i64 %first_a, {o}",
                f"  %pa{k}_{o} = getelementptr i64, ptr %addresses, i64 %ia{k}_{o}",
                f"  %a{k}_{o} = load i64, ptr %pa{k}_{o}",
                f"  %pb{k}_{o} = getelementptr i64, ptr %bases, i64 {numbers[memory]}",
                f"  %b{k}_{o} = load ptr, ptr %pb{k}_{o}",
                f"  %o{k}_{o} = getelementptr i8, ptr %b{k}_{o}, i64 %a{k}_{o}",
            ]
            arguments.append(f"ptr %o{k}_{o}")
        positions = {f.name: c for c, f in enumerate(site.instruction.fields)}
        for symbol in symbols(kernel):
            c = positions[symbol.name]
            lines += [
                f"  %if{k}_{c} = add i64 %first_f, {c}",
                f"  %pf{k}_{c} = getelementptr i64, ptr %fields, i64 %if{k}_{c}",
                f"  %f{k}_{c} = load i64, ptr %pf{k}_{c}",
            ]
            arguments.append(f"i64 %f{k}_{c}")
        lines += [f"  call void @{kernel.name}({', '.join(arguments)})", "  br label %next"]
        blocks += lines
        types = ", ".join(a.split(" ")[0] for a in arguments)
        declared.append(f"declare void @{kernel.name}({types})")
    return "\n".join(
        [
            f'target triple = "{host.native.triple}"',
            *declared,
            f"define void @{RUN}({', '.join('ptr %' + name for name in _ARGUMENTS)}) {{",
            "entry:",
            "  %n = load i64, ptr %count",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %j, %next ]",
            "  %more = icmp slt i64 %i, %n",
            "  br i1 %more, label %body, label %done",
            "body:",
            f"  %first_f = mul i64 %i, {width}",
            f"  %first_a = mul i64 %i, {operands}",
            "  %ps = getelementptr i32, ptr %site, i64 %i",
            "  %s = load i32, ptr %ps",
            "  switch i32 %s, label %next [",
            *cases,
            "  ]",
            *blocks,
            "next:",
            "  %j = add i64 %i, 1",
            "  br label %loop",
            "done:",
            "  ret void",
            "}",
        ]
    )
