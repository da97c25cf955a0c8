"""Kernels in the form of contractions: whatever they were, they compute the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import same, symbol_values
from strategies_loop import kernels

from tilewright import cast, dims, f32, grid, i8, i32, kernel, local, reduce
from tilewright.chip import build_chip
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, const
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Accumulate, Alloc, For, Kernel, Stmt, Store, symbols
from tilewright.ir.verify.loop import verify_kernel
from tilewright.plan.normal_form import normal_form
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

M, N, K = dims("M N K")


@kernel
def scalar(A: i8[M, K], B: i8[K, N], b: i32[N], C: i8[M, N]):
    for i, j in grid(M, N):
        acc: i32 = b[j]
        for k in reduce(K):
            acc += cast(i32, A[i, k]) * cast(i32, B[k, j])
        C[i, j] = cast(i8, max(min(acc >> 8, 127), -128))


@kernel
def together(A: i8[M, K], B: i8[K, N], b: i32[N], C: i8[M, N]):
    """An array for all sums, and one nest."""
    acc = local(i32[M, N])
    for i, j in grid(M, N):
        acc[i, j] = 0
        for k in reduce(K):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
        C[i, j] = cast(i8, max(min((acc[i, j] + b[j]) >> 8, 127), -128))


@kernel
def first(A: i8[M, K], B: i8[K, N], b: i32[N], C: i8[M, N]):
    """Sums that begin with the bias."""
    acc = local(i32[M, N])
    for i, j in grid(M, N):
        acc[i, j] = b[j]
        for k in reduce(K):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(M, N):
        C[i, j] = cast(i8, max(min(acc[i, j] >> 8, 127), -128))


@kernel
def in_place(A: i8[M, K], B: i8[K, N], b: i32[N], C: i8[M, N]):
    """What follows the sums, step by step in their place."""
    acc = local(i32[M, N])
    for i, j in grid(M, N):
        acc[i, j] = 0
        for k in reduce(K):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(M, N):
        acc[i, j] = (acc[i, j] + b[j]) >> 8
    for i, j in grid(M, N):
        C[i, j] = cast(i8, max(min(acc[i, j], 127), -128))


WAYS = {"scalar": scalar, "together": together, "first": first, "in place": in_place}


def arrays(program: Kernel, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-100, 100, b.shape).astype(b.dtype.numpy) for b in program.inputs]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("chip", [vta, gemmini])
def test_a_layer_however_it_is_written(name: str, chip):
    program = WAYS[name].bind(M=32, N=48, K=64).kernel
    built = build_chip(program, chip())
    a, b, bias = arrays(program, 0)
    result = np.zeros((32, 48), np.int8)
    built(a, b, bias * 50, result)
    sums = a.astype(np.int32) @ b.astype(np.int32) + bias * 50
    np.testing.assert_array_equal(result, np.clip(sums >> 8, -128, 127))
    assert built.cycles == build_chip(together.bind(M=32, N=48, K=64).kernel, chip()).cycles


def test_the_form():
    @kernel
    def plain(A: i8[M, K], B: i8[K, N], b: i32[N], C: i32[M, N]):
        for i, j in grid(M, N):
            acc: i32 = b[j]
            for k in reduce(K):
                acc += cast(i32, A[i, k]) * cast(i32, B[k, j])
            C[i, j] = max(acc, 0)

    program = normal_form(plain.bind(M=8, N=8, K=4).kernel)
    assert str(program).splitlines() == [
        "def plain(A: i8[8, 4], B: i8[4, 8], b: i32[8], C: out(i32[8, 8])):",
        "    acc = alloc(i32[8, 8])",
        "    for i in range(8):",
        "        for j in range(8):",
        "            acc[i, j] = i32(0)",
        "            for k in range(4):",
        "                acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])",
        "    for i_1 in range(8):",
        "        for j_1 in range(8):",
        "            C[i_1, j_1] = max(acc[i_1, j_1] + b[j_1], i32(0))",
    ]


def test_in_that_form_it_stays():
    program = normal_form(together.bind(M=8, N=8, K=4).kernel)
    assert normal_form(program) is program


def test_sums_of_floats_begin_as_they_do():
    """The order of additions is theirs."""

    @kernel
    def total(A: f32[8, 4], b: f32[8], C: f32[8]):
        for i in grid(8):
            C[i] = b[i]
            for k in reduce(4):
                C[i] += A[i, k]

    program = total.kernel
    assert normal_form(program) is program


# ---------------------------------------------------------------- any kernel


def check_same(program: Kernel, seed: int, values: dict[str, int]) -> None:
    made = normal_form(program)
    verify_kernel(made)
    rng = np.random.default_rng(seed)
    inputs = [
        rng.integers(-4, 5, [evaluate_dim(n, values) for n in b.shape]).astype(b.dtype.numpy)
        for b in program.inputs
    ]
    for a, b in zip(
        interpret(program, inputs, values), interpret(made, inputs, values), strict=True
    ):
        assert same(a, b)


@given(kernels(), st.data())
def test_any_kernel_computes_the_same(program, data):
    values = data.draw(symbol_values(symbols(program)))
    check_same(program, data.draw(st.integers(0, 255)), values)


SIZE = 4
ARRAYS = [Buffer(f"a{n}", i32, (SIZE + 1, SIZE + 1)) for n in range(4)]


@st.composite
def muddles(draw) -> Kernel:
    """Arrays that are 0, then loops with scalars, sums, and arrays that are read and written where
    the loops are, before that, behind it, or always at one place."""
    i, j, k = (Var(v) for v in "ijk")
    body: list[Stmt] = []
    for n, array in enumerate(ARRAYS):
        rows, columns = Var(f"r{n}"), Var(f"c{n}")
        zero = For(columns, SIZE + 1, (Store(array, (rows, columns), const(n, i32)),))
        body.append(For(rows, SIZE + 1, (zero,)))

    def place() -> tuple[Expr, ...]:
        at = st.sampled_from([i, i, i, i + 1, const(0), j])
        other = st.sampled_from([j, j, j, j + 1, const(1)])
        return draw(at), draw(other)

    def value(scalars: list[Buffer]) -> Expr:
        read = [Load(b, place()) for b in draw(st.lists(st.sampled_from(ARRAYS), max_size=2))]
        read += [Load(b, ()) for b in scalars if draw(st.booleans())]
        return sum(read, const(draw(st.integers(0, 3)), i32))

    scalars: list[Buffer] = []
    inner: list[Stmt] = []
    for n in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["store", "sum", "scalar"]))
        if kind == "scalar":
            t = Buffer(f"t{n}", i32, ())
            more = Accumulate(t, (), BinaryOp.ADD, value(scalars) + const(n, i32))
            inner += [Alloc(t), Store(t, (), value(scalars)), For(k, 2, (more,))]
            scalars.append(t)
        elif kind == "sum":
            target, at = draw(st.sampled_from(ARRAYS)), place()
            inner.append(Accumulate(target, at, BinaryOp.ADD, value(scalars)))
        else:
            inner.append(Store(draw(st.sampled_from(ARRAYS)), place(), value(scalars)))
        k = Var(f"k{n}")
    body.append(For(i, SIZE, (For(j, SIZE, tuple(inner)),)))
    last = draw(st.sampled_from(ARRAYS))
    p, q = Var("p"), Var("q")
    anew = Store(last, (p, q), Load(last, (p, q)) * 2 + Load(draw(st.sampled_from(ARRAYS)), (q, p)))
    body.append(For(p, SIZE + 1, (For(q, SIZE + 1, (anew,)),)))
    sums, result, given_ = (Buffer(name, i32, (SIZE + 1, SIZE + 1)) for name in "syx")
    u, v, w = (Var(name) for name in "uvw")
    begin = Store(sums, (u, v), Load(draw(st.sampled_from([*ARRAYS, given_])), (v, u)))
    add = For(w, 3, (Accumulate(sums, (u, v), BinaryOp.ADD, const(1, i32)),))
    body.insert(-1, For(u, SIZE + 1, (For(v, SIZE + 1, (begin, add)),)))
    f, g = Var("f"), Var("g")
    use = Store(result, (f, g), Load(sums, (g, f)) * 3)
    body.append(For(f, SIZE + 1, (For(g, SIZE + 1, (use,)),)))
    count = draw(st.integers(0, len(ARRAYS)))
    outputs = (result, *ARRAYS[:count], *([sums] if draw(st.booleans()) else []))
    allocs = tuple(Alloc(b) for b in (sums, *ARRAYS) if b not in outputs)
    return Kernel("muddle", (given_,), outputs, (*allocs, *body))


@settings(max_examples=80)
@given(muddles())
def test_loops_are_distributed_only_where_that_is_the_same(program):
    check_same(program, 0, {})
