"""What becomes of a kernel's source: the whole program, as text."""

import pytest
from kernel_files import cases, run_file

from tilewright import CompileError, KernelFunction, dims, exp, f32, grid, kernel, reduce
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel

M, N, K = dims("M N K", min=2, max=64)


def kernel_in(names):
    (found,) = (value for value in names.values() if isinstance(value, KernelFunction))
    return found


@pytest.mark.parametrize("source, program", cases("kernel_texts.txt"))
def test_program(tmp_path, source, program):
    found = kernel_in(run_file(tmp_path, source + "\n"))
    assert str(found) == program
    assert parse_kernel(program) == found.kernel
    verify_kernel(found.kernel)


@kernel
def scaled(X: f32[M, N], factor: f32, Y: f32[N + 1, M * 2]):
    for a, b in grid(N + 1, M * 2):
        Y[a, b] = 0.0
    for i in range(1, M):
        for j in range(N):
            Y[j, i] = X[i, j] * factor if j < N - 4 else exp(X[M - 1, j])


def test_bind_some():
    assert str(scaled.bind(N=8)) == "\n".join(
        [
            "def scaled(X: f32[M, 8], factor: f32[()], Y: out(f32[9, M * 2])):",
            "    M = symbol(2, 64)",
            "    for a in range(9):",
            "        for b in range(M * 2):",
            "            Y[a, b] = f32(0.0)",
            "    for i in range(M - 1):",
            "        for j in range(8):",
            "            Y[j, i + 1] = select(j < 4, X[i + 1, j] * factor[()], exp(X[M - 1, j]))",
        ]
    )


def test_bind_all():
    assert str(scaled.bind(N=8).bind(M=2)) == "\n".join(
        [
            "def scaled(X: f32[2, 8], factor: f32[()], Y: out(f32[9, 4])):",
            "    for a in range(9):",
            "        for b in range(4):",
            "            Y[a, b] = f32(0.0)",
            "    for i in range(1):",
            "        for j in range(8):",
            "            Y[j, i + 1] = select(j < 4, X[i + 1, j] * factor[()], exp(X[1, j]))",
        ]
    )
    assert scaled.bind(N=8, M=2).symbols == ()
    assert [s.name for s in scaled.symbols] == ["M", "N"]


REFUSED = [
    (
        {"L": 3},
        "scaled has no dimension called 'L'\n  hint: known: M, N",
    ),
    ({"M": 1}, "M is 1, and must be at least 2"),
    ({"M": 65}, "M is 65, and must be at most 64"),
    ({"M": 2.5}, "M is 2.5, and must be an integer"),
]


@pytest.mark.parametrize("sizes, error", REFUSED)
def test_bind_refuses(sizes, error):
    with pytest.raises(CompileError) as caught:
        scaled.bind(**sizes)
    assert str(caught.value) == error


def test_loops_that_vanish():
    """A loop from a to b with b < a runs no time, also when its sizes are known only later."""
    n = dims("n")

    @kernel
    def tail(X: f32[n], Y: f32[n]):
        for i in range(n):
            Y[i] = 0.0
        for i in range(4, n):
            Y[i] = X[i]

    assert str(tail.bind(n=3)).splitlines()[3:] == [
        "    for i_1 in range(0):",
        "        Y[i_1 + 4] = X[i_1 + 4]",
    ]


def test_dims():
    n = dims("n", min=0, max=9)
    assert (n.name, n.lower, n.upper) == ("n", 0, 9)
    assert [s.name for s in dims("a, b c")] == ["a", "b", "c"]


def test_undecorated():
    """kernel() may be called on a function that stands elsewhere."""

    def copy(X: f32[4], Y: f32[4]):
        for i in grid(4):
            Y[i] = X[i]

    assert kernel(copy).parameters == ("X", "Y")
    assert kernel(copy).kernel == kernel(copy).kernel


@kernel
def gemm(C: f32[M, N], A: f32[M, K], B: f32[K, N]):
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in reduce(K):
            C[i, j] += A[i, k] * B[k, j]


def test_parameters_keep_their_order():
    assert gemm.parameters == ("C", "A", "B")
    assert [b.name for b in gemm.kernel.params] == ["A", "B", "C"]
