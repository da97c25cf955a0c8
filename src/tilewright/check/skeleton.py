"""The description that a chip's author begins with: a small chip that works, with a word on every
part."""

from __future__ import annotations

import keyword
from pathlib import Path

from tilewright.base.errors import TargetError
from tilewright.runtime.atomic import write_atomically


def write_skeleton(name: str, folder: Path) -> Path:
    """Writes NAME.py. TargetError if NAME is no name, or the file is there already."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise TargetError(
            f"{name!r} cannot be a chip's name: a function is called so",
            hint="letters, digits and underscores, a letter first",
        )
    path = folder / f"{name}.py"
    if path.exists():
        raise TargetError(f"{path} exists already", hint="take another name, or move it away")
    if not folder.is_dir():
        raise TargetError(f"there is no folder {folder}")
    data = SKELETON.replace("NAME", name).encode()
    write_atomically(path, lambda file: file.write(data))
    return path


SKELETON = '''"""NAME: what the compiler and the simulators know of the chip is all in this file.

    tilewright check-target NAME.py      what is wrong or missing; the chip against its own meaning
    tilewright targets NAME.py           its manual
"""

from tilewright import i8, i32
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.encoding import address, bits, constant, field, pop, push
from tilewright.target.target import Target


def NAME(mesh: int = 8, spad_bytes: int = 64 << 10, acc_bytes: int = 32 << 10) -> Target:
    """A mesh x mesh matrix unit between two copy engines. Parameters make a family of chips."""
    t = TargetBuilder("NAME", clock=500e6)  # Hz; all times below are in cycles of it

    # Memories. "dram" is the host's: arrays come from there, and results go there. Sizes in bytes,
    # bandwidth in bytes a cycle, latency in cycles. Encoded addresses count in `unit` bytes.
    dram = t.memory("dram", bandwidth=16, latency=64)
    spad = t.memory("spad", spad_bytes, unit=mesh)
    acc = t.memory("acc", acc_bytes, unit=4 * mesh)

    # Queues run their instructions in order, and each other's at the same time. Each takes `depth`
    # instructions in advance. Tokens are how queues wait for each other; the compiler says when.
    load, compute, store = t.queues("load", "compute", "store", depth=16)
    t.tokens((load, compute), (compute, store))

    # Encodings, from the lowest bit up. Leave them out (here and below) until you know your bits.
    def code(opcode, before, behind, *parts):
        """128 bits: an opcode, a bit for each token, and what is the instruction's own."""
        tokens = pop(before), pop(behind), push(before), push(behind)
        return bits(128, constant(opcode, 4), tokens, parts)

    # Instructions. The loops are the meaning: simulators, compiler and manual follow from them.
    # Operands are arrays of the largest shape, in a memory; `out` marks those that are written;
    # `view(…, "stride")` says which field carries the step from row to row. Other parameters are
    # fields, within limits. cost: `setup` cycles, then `busy` cycles or `bytes` through the
    # memories, whichever takes longer; results are there `latency` cycles later.
    moved = address("src dst", 32), field("rows", 6, minus=1), field("stride", 16)

    @t.instruction(load, encoding=code(0, None, compute, moved))
    def mvin(
        src: view(i8[64, mesh] @ dram, "stride"),
        dst: out(i8[64, mesh] @ spad),
        rows: Range(1, 64),
        stride: Range(0, 65535),
    ):
        for i, j in grid(rows, mesh):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * mesh)

    product = address("a b c", 32), field("accumulate", 1)

    @t.instruction(compute, encoding=code(1, load, store, product))
    def gemm(
        a: i8[mesh, mesh] @ spad,
        b: i8[mesh, mesh] @ spad,
        c: out(i32[mesh, mesh] @ acc),
        accumulate: flag,
    ):
        for i, j in grid(mesh, mesh):
            if accumulate == 0:
                c[i, j] = 0
            for k in reduce(mesh):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        cost(busy=mesh, latency=2 * mesh)

    @t.instruction(store, encoding=code(2, compute, None, moved))
    def mvout(
        src: i32[64, mesh] @ acc,
        dst: view(out(i32[64, mesh] @ dram), "stride"),
        rows: Range(1, 64),
        stride: Range(0, 65535),
    ):
        for i, j in grid(rows, mesh):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=4 * rows * mesh)

    # What is left: element-wise instructions (bias, shift, clip) between acc and dram, so that
    # whole layers stay on the chip. See tilewright/targets/ for chips that have them.
    return t.build()
'''
