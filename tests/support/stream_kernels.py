"""Small layers that pass arrays by their names, and chips' streams of several."""

import numpy as np
from fast_interpret import fast_interpret

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.chip import build_split
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.control import CHOSEN
from tilewright.plan.normal_form import normal_form
from tilewright.plan.split_kernel import with_passed_borders
from tilewright.target.target import Target
from tilewright.targets.gemmini import gemmini

GEMMINI = gemmini()


def first(c: int, n: int) -> Kernel:
    @kernel
    def first(X: i8[c, n, n], V: i8[c, c], A: out(i8[c, n, n])):
        total = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            total[o, y, x] = 0
            for k in reduce(c):
                total[o, y, x] += i32(X[k, y, x]) * i32(V[o, k])
        for o, y, x in grid(c, n, n):
            A[o, y, x] = i8(max(min(total[o, y, x] >> 7, 127), -128))

    return first.kernel


def second(c: int, n: int, k: int = 3) -> Kernel:
    """A convolution that sees zeros around what the first one makes."""

    @kernel
    def second(A: i8[c, n, n], W: i8[c, c, k, k], B: out(i8[c, n, n])):
        total = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            total[o, y, x] = 0
            for f, r, s in reduce(c, k, k):
                i = y + r - k // 2
                j = x + s - k // 2
                pixel = A[f, i, j] if 0 <= i < n and 0 <= j < n else 0
                total[o, y, x] += i32(pixel) * i32(W[o, f, r, s])
        for o, y, x in grid(c, n, n):
            B[o, y, x] = i8(max(min(total[o, y, x] >> 9, 127), -128))

    return second.kernel


def added(c: int, n: int, a: int, b: int) -> Kernel:
    @kernel
    def added(A: i8[c, n, n], B: i8[c, n, n], Z: out(i8[c, n, n])):
        for o, y, x in grid(c, n, n):
            total = i32(A[o, y, x]) * a + i32(B[o, y, x]) * b
            Z[o, y, x] = i8(max(min(total >> 7, 127), -128))

    return added.kernel


def stream_of(*kernels: Kernel, target: Target = GEMMINI) -> ChipKernel:
    """Kernels that pass arrays by their names, as one stream."""
    pieces = [normal_form(k) for k in kernels]
    made = {b.name for k in pieces for b in k.outputs}
    inputs = {b.name: b for k in pieces for b in k.inputs if b.name not in made}
    whole = pieces[-1].with_(inputs=tuple(inputs.values()))
    split = with_passed_borders(pieces, target)
    order = (*inputs, pieces[-1].outputs[0].name)
    return build_split(whole, split, target, CHOSEN, order, {})


def check(*kernels: Kernel, target: Target = GEMMINI) -> ChipKernel:
    """The stream, once it made what the kernels do, also in other orders."""
    built, random = stream_of(*kernels, target=target), np.random.default_rng(0)
    known: dict[str, np.ndarray] = {}
    given: dict[str, np.ndarray] = {}
    for k in kernels:
        for b in k.inputs:
            if b.name not in known:
                known[b.name] = random.integers(-128, 128, b.shape).astype(np.int8)
                given[b.name] = known[b.name]
        known[k.outputs[0].name] = fast_interpret(k, [known[b.name] for b in k.inputs])[0]
    wanted = known[kernels[-1].outputs[0].name]
    arrays = [given[b.name] for b in built.source.inputs]
    np.testing.assert_array_equal(built(*arrays, np.zeros_like(wanted)), wanted)
    assert built.replay(*arrays, wanted.copy(), orders=2) is None
    return built
