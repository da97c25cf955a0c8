"""What follows a contraction, on chips that do element-wise work in different ways: apart, in
place, and as part of a store. Exact to the bit."""

import numpy as np
import pytest
from byte_kernels import conv_layer, layer
from epilogue_chips import CHIPS

from tilewright import grid, i8, i32, kernel, local, out, reduce
from tilewright.base.errors import TilewrightError
from tilewright.chip import build_chip, build_choice, check_form
from tilewright.ir.interpret import interpret
from tilewright.ir.text.loop import parse_kernel
from tilewright.plan import analytic_model
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.form_models import form_models
from tilewright.plan.tile_model import TileModel
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.targets.chips import CHIPS as SHIPPED
from tilewright.targets.vta import vta

LAYER = layer.bind(M=128, N=96, K=64)
CONV = conv_layer.bind(H=16, V=16, R=3, C=32, F=32)


def finished(acc: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.clip((acc + b) >> 8, -128, 127).astype(np.int8)


def expected_layer(a: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return finished(a.astype(np.int32) @ w.astype(np.int32), b)


def expected_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [a.astype(np.int32) for a in (x, w)]
    parts = (wide[0][r : r + 16, s : s + 16] @ wide[1][r, s] for r in range(3) for s in range(3))
    return finished(sum(parts), b)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "single"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "function, expected",
    [(LAYER, expected_layer), (CONV, expected_conv)],
    ids=["gemm", "conv"],
)
def test_exact(function, expected, chip: str, overlap: bool):
    rng = np.random.default_rng(0)
    built = build_chip(function.kernel, CHIPS[chip](), overlap=overlap)
    arrays = [
        rng.integers(-128, 128, b.shape).astype(b.dtype.numpy)
        if b.dtype == i8
        else rng.integers(-5000, 5000, b.shape).astype(np.int32)
        for b in function.kernel.inputs
    ]
    result = np.zeros(function.kernel.outputs[0].shape, np.int8)
    built(*arrays, result)
    np.testing.assert_array_equal(result, expected(*arrays))
    assert len(np.unique(result)) > 50


# ---------------------------------------------------------------- when operands come


@pytest.mark.long
def test_a_residual_that_comes_late():
    """VTA's queue of products loads it itself. Where there is little room for sums, one place for
    it leaves more to others than two do, and that is faster, though not by the model, which sees
    no contention where the other one comes early; both are exact."""
    n, c = 8, 32

    @kernel
    def block(X: i8[n, n, c], W: i8[c, c], R: i8[n, n, c], Y: out(i8[n, n, c])):
        t = local(i32[n, n, c])
        for y, x, o in grid(n, n, c):
            t[y, x, o] = 0
            for k in reduce(c):
                t[y, x, o] += i32(X[y, x, k]) * i32(W[o, k])
        for y, x, o in grid(n, n, c):
            Y[y, x, o] = i8(max(min(t[y, x, o] + i32(R[y, x, o]) * 16 >> 5, 127), -128))

    target = vta(acc=2 << 10)
    program = block.kernel
    (found,) = (m for m in form_models(program, target) if not m.form.made)
    assert isinstance(found.model, TileModel)
    choices = choose_tiles(found.model, run_pipelines)
    late, early = (next(c for c in choices if c.plan.late is when) for when in (True, False))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, b.shape).astype(np.int8) for b in program.inputs]
    wanted = interpret(program, arrays)[0]
    cycles = []
    for choice in (late, early):
        built = build_choice(found.kernel, target, choice)
        cycles.append(built.cycles)
        np.testing.assert_array_equal(built(*arrays, np.zeros_like(wanted)), wanted)
        assert built.replay(*arrays, wanted.copy(), orders=2) is None
        held = next(b for b in built.stream.places if b.name.startswith("Y_part"))
        assert held.shape[0] == (1 if choice is late else 2)
    assert cycles[0] < cycles[1]


# ---------------------------------------------------------------- what no instructions make

SHIFTED = "t[m, n] >> i32(4)"
EPILOGUES = {
    "shifted": SHIFTED,
    "residual": f"({SHIFTED}) + cast(i32, r[m, n])",
    "residual before": "t[m, n] + cast(i32, r[m, n]) >> i32(4)",
    "subtracted": f"cast(i32, r[m, n]) - ({SHIFTED})",
    "or": f"({SHIFTED}) | i32(1)",
    "product": f"({SHIFTED}) * cast(i32, r[m, n])",
    "twice": f"({SHIFTED}) + (t[m, n] >> i32(2))",
    "of places": f"({SHIFTED}) + cast(i32, n)",
}
# Refused by what a schedule does with rows: an accumulator that is needed twice, a residual that an
# accumulator would begin with, an operand that the engine would not read.
LATE = {("vta", "twice"), ("conv_engine", "shifted")}
DENSE = """
def dense(x: i8[32, 32], w: i8[32, 32], r: i8[32, 32], y: out(i8[32, 32])):
    t = alloc(i32[32, 32])
    for i in range(32):
        for j in range(32):
            t[i, j] = i32(0)
            for k in range(32):
                t[i, j] += cast(i32, x[i, k]) * cast(i32, w[j, k])
    for m in range(32):
        for n in range(32):
            y[m, n] = cast(i8, max(min({value}, i32(127)), i32(-128)))
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chip", ["vta", "gemmini", "conv_engine"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_no_instructions_make_is_refused_before_anything_is_scheduled(
    name: str, chip: str, monkeypatch
):
    """And only that: what is refused so is refused by scheduling it, too."""
    kernel = parse_kernel(DENSE.format(value=EPILOGUES[name]).strip())
    target = SHIPPED[chip]()

    def forget() -> None:
        analytic_model._remembered.cache_clear()
        analytic_model._ways.cache_clear()

    def obstacle() -> str:
        forget()
        try:
            check_form(kernel, target)
        except TilewrightError as error:
            return error.what
        return ""

    def counted(*arguments: object, **named: object) -> object:
        scheduled.append(arguments)
        return tile_for_unit(*arguments, **named)

    scheduled: list[object] = []
    monkeypatch.setattr(analytic_model, "tile_for_unit", counted)
    early = obstacle()
    assert bool(scheduled) == (not early or (chip, name) in LATE)
    monkeypatch.setattr(analytic_model, "_check_epilogue", lambda *arguments: False)
    late = obstacle()
    assert bool(early) == bool(late)
    forget()
