"""Streams of at most 200 instructions, to be damaged: kernels on chips that differ in how queues
wait, in what follows a contraction, and in what an instruction can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import byte_kernels
import numpy as np
from byte_kernels import gemm, layer, planes
from epilogue_chips import CHIPS
from sync_chips import chip

from tilewright import i8
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Kernel
from tilewright.ir.python.kernel import KernelFunction
from tilewright.kernels import build
from tilewright.target.target import Target
from tilewright.targets import cpu
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

MOST = 220  # instructions

conv = byte_kernels.conv.bind(H=8, V=16, R=3, C=16, F=32)


@dataclass(frozen=True)
class Case:
    """A kernel on a chip; tiles one after another unless they overlap."""

    kernel: KernelFunction
    target: Callable[[], Target]
    sizes: tuple[tuple[str, int], ...] = ()
    overlap: bool = True

    @property
    def source(self) -> Kernel:
        return self.kernel.bind(**dict(self.sizes)).kernel

    def build(self) -> ChipKernel:
        built = build_chip(self.source, self.target(), overlap=self.overlap)
        assert len(built.stream) <= MOST, len(built.stream)
        return built

    def arrays(self, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs at random, and the outputs that a processor computes of them."""
        source, rng = self.source, np.random.default_rng(seed)
        inputs = [
            rng.integers(-128, 128, b.shape).astype(np.int8)
            if b.dtype == i8
            else rng.integers(-5000, 5000, b.shape).astype(b.dtype.numpy)
            for b in source.inputs
        ]
        outputs = [np.zeros(b.shape, b.dtype.numpy) for b in source.outputs]
        build(source, cpu.host(threads=1))(*inputs, *outputs)
        return inputs, outputs


def _sizes(m: int, n: int, k: int) -> tuple[tuple[str, int], ...]:
    return (("M", m), ("N", n), ("K", k))


SMALL, WIDE, SQUARE = _sizes(64, 48, 32), _sizes(48, 64, 48), _sizes(64, 64, 64)


SMALL_PLANES = (("C", 8), ("F", 16), ("S", 10))


def _small_vta() -> Target:
    return vta(inp=1024, wgt=4096, acc=4096)


CASES: dict[str, Case] = {
    "tiny": Case(gemm, tiny, SMALL),
    "tiny, wide": Case(gemm, tiny, WIDE),
    "tiny, parts": Case(gemm, lambda: tiny(spad=4 << 10, acc=8 << 10), _sizes(64, 64, 64)),
    "tiny, single": Case(gemm, tiny, SMALL, overlap=False),
    "tiny, window": Case(conv, tiny),
    "vta": Case(layer, _small_vta, _sizes(48, 48, 32)),
    "vta, wide": Case(layer, _small_vta, WIDE),
    "vta, deep": Case(layer, _small_vta, _sizes(24, 64, 64)),
    "vta, single": Case(layer, _small_vta, SMALL, overlap=False),
    "gemmini": Case(layer, gemmini, SQUARE),
    "gemmini, single": Case(layer, gemmini, WIDE, overlap=False),
    "engine": Case(planes, lambda: conv_engine(memory=2 << 10), SMALL_PLANES),
    "engine, single": Case(planes, lambda: conv_engine(3 << 10), SMALL_PLANES, overlap=False),
    **{
        f"{name}, {size}": Case(layer, CHIPS[name], sizes, overlap)
        for name in CHIPS
        for size, sizes, overlap in (
            ("small", SMALL, True),
            ("square", _sizes(64, 48, 64), True),
            ("single", WIDE, False),
        )
    },
    **{
        f"chip with {kind}": Case(gemm, lambda kind=kind: chip(kind), SMALL)
        for kind in ("tokens of all", "hub", "events", "tokens and events", "barriers",
                     "tokens and barriers", "interlock")
    },
}  # fmt: skip
