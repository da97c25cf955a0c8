"""Kernels as functions of arrays: calls and what they refuse, checks of schedules, places of
errors in the user's file."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tw
from tilewright import (
    ArtifactError,
    CompileError,
    InputError,
    Schedule,
    ScheduleError,
    build,
    dims,
    f32,
    grid,
    i8,
    i32,
    kernel,
    local,
    out,
    parallel,
    reduce,
)
from tilewright.ir.expr import Const, const
from tilewright.ir.loop import map_block, map_exprs
from tilewright.ir.tensor_type import Layout
from tilewright.targets import cpu
from tilewright.targets.tiny import tiny

HOST = cpu.host(threads=1)
TWO = cpu.host(threads=2)
M, N, K = dims("M N K")


@kernel
def gemm(C: f32[M, N], A: f32[M, K], B: f32[K, N]):
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in reduce(K):
            C[i, j] += A[i, k] * B[k, j]


@kernel
def exp(x: f32[N], scale: f32, y: f32[N + 1]):
    """Called like a function of C's, which it calls as well."""
    y[N] = scale
    for i in range(N):
        y[i] = tw.exp(x[i]) * scale


EXP = exp.build(HOST)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("make", [lambda f: f, Schedule, lambda f: f.kernel])
def test_call(make):
    """Arguments come in the order of the function's parameters; of a Kernel's, inputs first."""
    f = build(make(gemm.bind(M=9, N=20, K=5)), HOST)
    a, b, c = floats(9, 5), floats(5, 20), zeros(9, 20)
    arguments = (c, a, b) if make(gemm) is not gemm.kernel else (a, b, c)
    assert f(*arguments) is c
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)


def test_sizes_come_from_the_arrays():
    for n in (1, 7, 20):
        y = zeros(n + 1)
        EXP(floats(n), 2.0, y)
        np.testing.assert_allclose(y[:n], np.exp(floats(n)) * 2, rtol=1e-6)
        assert y[n] == 2


def test_several_outputs():
    @kernel
    def both(x: f32[N], low: f32[()], high: out(f32)):
        low[()] = 0.0
        high[()] = 0.0
        for i in range(N):
            low[()] = min(low[()], x[i])
            high[()] = max(high[()], x[i])

    low, high = zeros(), zeros()
    found = both.build(HOST)(np.array([3, -2, 1], np.float32), low, high)
    assert found[0] is low
    assert found[1] is high
    assert (low, high) == (-2, 3)


def test_texts():
    assert EXP.llvm.startswith("; kernel_exp, for host\n")
    assert "kernel_exp:" in EXP.asm
    assert str(EXP) == "BuiltKernel(x: f32[N], scale: f32[()], y: f32[N + 1])"


def test_many_threads_call():
    """Calls share the threads of one pool, and have working memory of their own."""

    @kernel
    def rows(x: f32[M, N], y: f32[M]):
        for i in parallel(M):
            t = local(f32[N])
            for j in range(N):
                t[j] = x[i, j] * 2.0
            y[i] = 0.0
            for j in range(N):
                y[i] += t[j]

    f = rows.build(TWO)

    def call(seed):
        x, y = np.full((50, 3000), seed, np.float32), zeros(50)
        f(x, y)
        return bool(np.all(y == seed * 6000))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(40)))


READ_ONLY = zeros(4)
READ_ONLY.flags.writeable = False
SHARED = zeros(4)
REFUSED = [
    (
        (zeros(3), 2.0),
        "exp takes 3 arrays and was given 2\n  hint: x: f32[N], scale: f32[()], y: f32[N + 1]",
    ),
    (([1, 2, 3], 2.0, zeros(4)), "x of exp is a list\n  hint: pass a numpy array"),
    (
        (zeros(3, dtype=np.float64), 2.0, zeros(4)),
        "x of exp has elements of type f64, not f32\n  hint: convert it first: .astype('float32')",
    ),
    (
        (zeros(3), 2.0, zeros(5)),
        "y of exp has shape [5]\n  hint: it is y: f32[N + 1] with N = 3",
    ),
    ((zeros(3), 2.0, zeros(4, 1)), "y of exp has shape [4, 1]\n  hint: it is y: f32[N + 1]"),
    ((zeros(3), "2", zeros(4)), "scale of exp is a str\n  hint: pass a numpy array"),
    ((zeros(3), 1e60, zeros(4)), "scale of exp: 1e+60 is not a value of f32"),
    ((zeros(3), True, zeros(4)), "scale of exp: True is not a value of f32"),
    (
        (zeros(6)[::2], 2.0, zeros(4)),
        "x of exp is not a row-major array\n  hint: copy it first: np.ascontiguousarray(…)",
    ),
    ((zeros(3), 2.0, READ_ONLY), "y of exp is written, and the array is read-only"),
    (
        (SHARED[:3], 2.0, SHARED),
        "y and x of exp share memory\n  hint: y is written: pass a copy",
    ),
    ((zeros(0), 2.0, zeros(1)), "x of exp: N is 0, and must be at least 1"),
]


@pytest.mark.parametrize("arguments, error", REFUSED)
def test_call_refuses(arguments, error):
    with pytest.raises(InputError) as caught:
        EXP(*arguments)
    assert str(caught.value) == error


def test_size_that_no_array_tells():
    @kernel
    def fill(y: f32[M * N]):
        for i in range(M * N):
            y[i] = f32(M)

    with pytest.raises(InputError) as caught:
        fill.build(HOST)(zeros(6))
    assert str(caught.value) == (
        "the arrays of fill do not tell its dimension M\n  hint: give it a number first: bind(M=…)"
    )
    y = zeros(6)
    fill.bind(M=2).build(HOST)(y)
    assert np.all(y == 2)


def test_code_for_another_machine():
    f = gemm.bind(M=4, N=4, K=4).build(cpu.cpu("neon"))
    assert "fmla" in f.asm
    with pytest.raises(ArtifactError):
        f(zeros(4, 4), zeros(4, 4), zeros(4, 4))


# ---------------------------------------------------------------- schedules


def tiled(program):
    s = Schedule(program)
    s.split(s.loop("i"), 4)
    _, j = s.split(s.loop("j"), 8)
    s.unroll(j)
    return s


def test_check():
    tiled(gemm).check()
    tiled(gemm).check(seed=1, target=HOST, M=3)
    tiled(gemm.bind(M=200, N=200, K=200)).check(target=HOST)
    tiled(gemm.bind(M=200, N=200, K=200)).check()  # as machine code for the machine this runs on


def test_check_of_packed_parameters():
    s = tiled(gemm)
    s.pack_layout(s.buffer("A"), Layout((1, 0), ((0, 4),)))
    s.pack_layout(s.buffer("C"), Layout((1, 0), ((1, 4),)))
    s.check()
    s.check(target=HOST)


def test_check_of_instructions():
    """A program of another chip's instructions, too large for the interpreter."""

    @kernel
    def copy(x: i8[8192, 16], y: out(i8[8192, 16])):
        held = local(i8[8192, 16] @ "spad")
        for i, j in grid(8192, 16):
            held[i, j] = x[i, j]
        for a, b in grid(8192, 16):
            y[a, b] = held[a, b]

    s = Schedule(copy)
    mvin = next(x for x in tiny().instructions if x.name == "mvin")
    s.tensorize(s.loop("i"), mvin)
    assert "mvin(x[" in s.show()
    s.check()


def test_check_of_gathers():
    @kernel
    def rows(x: f32[M, N], at: i32[K], y: f32[K, N]):
        for i, j in grid(K, N):
            y[i, j] = x[at[i], j]

    Schedule(rows).check()
    Schedule(rows).check(target=HOST)
    with pytest.raises(CompileError) as caught:
        Schedule(rows).check(target=HOST, K=10**6)
    assert str(caught.value) == (
        "rows is too large for the interpreter\n  hint: subscripts come from memory, which only"
        " the interpreter checks: make the sizes symbolic, and check small ones"
    )


def test_check_finds_differences():
    s = Schedule(gemm)
    s.split(s.loop("i"), 2)
    wrong = const(1.0, f32)
    replaced = map_block(
        s.kernel.body,
        lambda stmt: map_exprs(stmt, lambda e: wrong if isinstance(e, Const) else e),
    )
    s.kernel = s.kernel.with_(body=replaced)
    with pytest.raises(ScheduleError) as caught:
        s.check(seed=2, M=1, N=1, K=2)
    text = str(caught.value)
    assert text.startswith(
        "the schedule gives C[0, 0] = -3.0, where the original has -4.0\n"
        "  while checking gemm with seed 2, M = 1, N = 1, K = 2\n"
        "  in: def gemm(A: f32[M, K], B: f32[K, N], C: out(f32[M, N])):\n"
    )
    assert text.endswith("  hint: a step of it is wrong: split(loop=i, factor=2, tail=guard)")


CHECK_REFUSED = [
    (gemm, {"Q": 1}, "gemm has no dimension called 'Q'\n  hint: known: K, M, N"),
    (gemm, {"M": 0}, "M is 0, and must be at least 1"),
]


@pytest.mark.parametrize("program, sizes, error", CHECK_REFUSED)
def test_check_refuses(program, sizes, error):
    with pytest.raises(CompileError) as caught:
        Schedule(program).check(**sizes)
    assert str(caught.value) == error


# ---------------------------------------------------------------- places of errors


@kernel
def gather(x: f32[N], at: i32[N], y: f32[N]):
    for i in range(N):
        y[i] = x[at[i]]
    for n in range(N):
        y[n] += 1.0


def place(function, line):
    """The line-th line of a kernel of this file, as errors give it."""
    number = function.lines.start + line - 1
    return function.lines.place(number)


def test_place_of_an_interpreted_statement():
    with pytest.raises(CompileError) as caught:
        gather.interpret(zeros(3), np.array([0, 3, 2], np.int32))
    assert str(caught.value) == (
        "subscript 0 of x is 3, outside 0 … 2\n"
        f"  while interpreting {__file__}:{gather.lines.start + 2}: y[i] = x[at[i]]\n"
        "  in: x[cast(i64, at[i])]\n"
        "      with i=1"
    )
    assert gather.bind(N=7).locate(caught.value) == place(gather, 3)


def test_place_of_a_scheduled_loop():
    s = Schedule(gemm)
    outer, _ = s.split(s.loop("k"), 4)
    with pytest.raises(ScheduleError) as caught:
        s.reorder(outer, s.loop("i"))
    assert gemm.locate(caught.value) == place(gemm, 4)


def test_place_of_a_buffer():
    error = CompileError("gemm: C_local_1 does not fit in a register")
    assert gemm.locate(error) == place(gemm, 3)
    assert gemm.locate(CompileError("read of B_local[3]")) == place(gemm, 1)


def test_no_place():
    assert gemm.locate(CompileError("it does not fit")) is None
    assert gemm.locate(CompileError("nothing", program="for q in range(3):")) is None


def test_place_of_a_build():
    bound = gemm.bind(M=4, N=4, K=4)
    s = Schedule(bound)
    s.kernel = s.kernel.with_(body=s.kernel.body[0].body)  # its first loop is gone
    with pytest.raises(CompileError) as caught:
        s.build(HOST)
    assert str(caught.value).startswith(
        "variable 'i' is not bound by any loop here\n"
        f"  while building {place(gemm, 3)}\n"
        "  in: def gemm("
    )
