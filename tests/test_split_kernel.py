"""Kernels of several contractions: pieces that compute the same, and one stream that does them."""

import itertools

import numpy as np
import pytest
from form_kernels import arrays_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_kernels import check, first, second

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.backends.stream.addresses import place_buffers
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Alloc, For, Kernel, walk_statements
from tilewright.ir.python.words import out
from tilewright.plan.normal_form import normal_form
from tilewright.plan.same_kernels import told_in_names, with_param_names, with_plain_names
from tilewright.plan.split_kernel import split_kernel
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

CHIPS = {"vta": vta(), "gemmini": gemmini(), "conv_engine": conv_engine(), "dsp": dsp()}


def chain(c: int, f: int, n: int, k: int) -> Kernel:
    """A k x k convolution with a border behind a 1 x 1."""
    before = k // 2

    @kernel
    def chain(X: i8[c, n, n], V: i8[f, c], W: i8[f, f, k, k], b: i32[f], Y: out(i8[f, n, n])):
        first = local(i32[f, n, n])
        middle = local(i8[f, n, n])
        second = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            first[o, y, x] = 0
            for i in reduce(c):
                first[o, y, x] += i32(X[i, y, x]) * i32(V[o, i])
        for o, y, x in grid(f, n, n):
            middle[o, y, x] = i8(max(min(first[o, y, x] >> 7, 127), 0))
        for o, y, x in grid(f, n, n):
            second[o, y, x] = 0
            for i, r, s in reduce(f, k, k):
                p = y + r - before
                q = x + s - before
                pixel = middle[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                second[o, y, x] += i32(pixel) * i32(W[o, i, r, s])
        for o, y, x in grid(f, n, n):
            Y[o, y, x] = i8(max(min(second[o, y, x] + b[o] >> 8, 127), -128))

    return chain.kernel


def three_products(n: int) -> Kernel:
    """One after the other, the last of the first two results."""

    @kernel
    def three(A: i8[n, n], B: i8[n, n], C: i8[n, n], Y: out(i8[n, n])):
        s = local(i32[n, n])
        p = local(i8[n, n])
        t = local(i32[n, n])
        q = local(i8[n, n])
        u = local(i32[n, n])
        for i, j in grid(n, n):
            s[i, j] = 0
            for k in reduce(n):
                s[i, j] += i32(A[i, k]) * i32(B[j, k])
        for i, j in grid(n, n):
            p[i, j] = i8(max(min(s[i, j] >> 6, 127), -128))
        for i, j in grid(n, n):
            t[i, j] = 0
            for k in reduce(n):
                t[i, j] += i32(p[i, k]) * i32(C[j, k])
        for i, j in grid(n, n):
            q[i, j] = i8(max(min(t[i, j] >> 6, 127), -128))
        for i, j in grid(n, n):
            u[i, j] = 0
            for k in reduce(n):
                u[i, j] += i32(q[i, k]) * i32(B[j, k])
        for i, j in grid(n, n):
            Y[i, j] = i8(max(min(u[i, j] >> 6, 127), -128))

    return three.kernel


def chained(x: np.ndarray, v: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What a chain of 3 x 3 gives."""
    n = x.shape[1]
    middle = np.clip(np.tensordot(v.astype(int), x.astype(int), 1) >> 7, 0, 127)
    wide = np.pad(middle, ((0, 0), (1, 1), (1, 1)))
    total = sum(np.tensordot(w[:, :, r, s].astype(int), wide[:, r : r + n, s : s + n], 1)
                for r in range(3) for s in range(3))  # fmt: skip
    return np.clip(total + b[:, None, None] >> 8, -128, 127).astype(np.int8)


def multiplied(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What three products give."""
    for other in (b, c, b):
        a = np.clip(a.astype(int) @ other.T.astype(int) >> 6, -128, 127)
    return a.astype(np.int8)


def run(built, arrays):
    (output,) = built.source.outputs
    return built(*arrays, np.zeros(output.shape, output.dtype.numpy))


@given(st.integers(1, 5), st.integers(1, 5), st.integers(3, 4), st.sampled_from([1, 3]),
       st.sampled_from(list(CHIPS)))  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_pieces_compute_the_same(c: int, f: int, n: int, k: int, chip: str):
    program = chain(c, f, n, k)
    arrays = arrays_of(program)
    split = split_kernel(normal_form(program), CHIPS[chip])
    known = dict(zip((b.name for b in program.inputs), arrays, strict=True))
    for piece in split.pieces:
        (output,) = piece.outputs
        found = interpret(piece, [known[b.name] for b in piece.inputs])[0]
        if output.name in split.borders:
            border = split.borders[output.name]
            assert set(border.before) == {0, k // 2}
            inner = found[:, border.before[1] :, border.before[2] :][:, :n, :n]
            found = np.pad(inner, ((0, 0), (k // 2, k // 2), (k // 2, k // 2)))
        known[output.name] = found
    np.testing.assert_array_equal(known["Y"], interpret(program, arrays)[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "program,reference",
    [(chain(16, 32, 10, 3), chained), (chain(5, 20, 7, 3), chained),
     (three_products(32), multiplied)],
    ids=["chain", "odd chain", "three"],
)  # fmt: skip
@pytest.mark.parametrize("chip", CHIPS)
def test_one_stream_does_all(program: Kernel, reference, chip: str):
    arrays = arrays_of(program)
    built = build_chip(program, CHIPS[chip])
    wanted = reference(*arrays)
    np.testing.assert_array_equal(run(built, arrays), wanted)
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles
    assert built.replay(*arrays, wanted.copy(), orders=2) is None


@pytest.mark.long
def test_bundles_one_after_the_other():
    """Pieces of a statically scheduled chip are one program, with the waits of one, be there a
    border between them or not."""
    target = dsp()
    built = check(first(16, 8), second(16, 8, 1), target=target)
    assert built.program is not None
    assert len(built.program.sections) >= 2
    alone = [check(k, target=target).cycles for k in (first(16, 8), second(16, 8, 1))]
    assert sum(p.cycles for p in built.pieces) == built.cycles < sum(alone)
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles
    assert len(check(first(16, 8), second(16, 8), target=target).pieces) == 2


def test_what_passes_stays_on_the_chip():
    """Nothing of it is an argument, and its border is there from the start."""
    built = build_chip(chain(16, 32, 6, 3), gemmini())
    assert {b.name for b in built.kernel.params} == {"X", "V", "W", "b", "Y"}
    middle = next(b for b in built.stream.constants if b.name == "middle")
    assert middle.shape == (2 * 8 * 8 * 16,)
    assert not built.stream.constants[middle].any()


def test_memories_are_used_in_turn_where_they_are_small():
    """Two pieces that each fill most of the accumulators lie over each other, one from the front
    and one up to the end: the second's operands may come while the first is still at work."""
    chip = vta(acc=8 << 10)
    program = chain(16, 16, 14, 3)
    built = build_chip(program, chip)
    places, used = place_buffers(built.kernel, chip)
    assert used["acc"] <= 8 << 10
    held = sorted((p.offset, p.end(b)) for b, p in places.items() if b.memory == "acc")
    assert any(start < end for (_, end), (start, _) in itertools.pairwise(held))
    assert held[0][0] == 0
    assert max(end for _, end in held) == 8 << 10
    arrays = arrays_of(program)
    np.testing.assert_array_equal(run(built, arrays), chained(*arrays))


def test_borders_that_differ():
    """A maximum wants the least number around what a convolution wants zeros around."""

    @kernel
    def both(X: i8[16, 6, 6], V: i8[16, 16], W: i8[16, 16, 3], Y: out(i8[16, 6, 6])):
        first = local(i32[16, 6, 6])
        middle = local(i8[16, 6, 6])
        most = local(i8[16, 6, 6])
        second = local(i32[16, 6, 6])
        for o, y, x in grid(16, 6, 6):
            first[o, y, x] = 0
            for i in reduce(16):
                first[o, y, x] += i32(X[i, y, x]) * i32(V[o, i])
        for o, y, x in grid(16, 6, 6):
            middle[o, y, x] = i8(max(min(first[o, y, x] >> 7, 127), -128))
        for o, y, x in grid(16, 6, 6):
            most[o, y, x] = -128
            for r in reduce(3):
                p = y + r - 1
                most[o, y, x] = max(most[o, y, x], middle[o, p, x] if 0 <= p < 6 else -128)
        for o, y, x in grid(16, 6, 6):
            second[o, y, x] = 0
            for i, r in reduce(16, 3):
                p = y + r - 1
                second[o, y, x] += i32(middle[i, p, x] if 0 <= p < 6 else 0) * i32(W[o, i, r])
        for o, y, x in grid(16, 6, 6):
            total = (second[o, y, x] >> 7) + i32(most[o, y, x])
            Y[o, y, x] = i8(max(min(total, 127), -128))

    with pytest.raises(ScheduleError) as error:
        build_chip(both.kernel, vta())
    assert error.value.what == (
        "middle is read with -128 around it, and with 0, and has one border"
    )


def test_two_results_of_one_piece():
    @kernel
    def two(A: i8[16, 16], B: i8[16, 16], Y: out(i8[16, 16]), Z: out(i8[16, 16])):
        s = local(i32[16, 16])
        t = local(i32[16, 16])
        for i, j in grid(16, 16):
            s[i, j] = 0
            for k in reduce(16):
                s[i, j] += i32(A[i, k]) * i32(B[j, k])
        for i, j in grid(16, 16):
            Y[i, j] = i8(max(min(s[i, j] >> 6, 127), -128))
        for i, j in grid(16, 16):
            t[i, j] = 0
            for k in reduce(16):
                t[i, j] += i32(A[k, i]) * i32(B[j, k])
        for i, j in grid(16, 16):
            Z[i, j] = i8(max(min(t[i, j] >> 6, 127), -128))

    with pytest.raises(ScheduleError) as error:
        build_chip(two.kernel, vta())
    assert error.value.what == ("two has 2 results, and what a chip does in pieces has one")


def test_plain_names():
    """Kernels that differ in names alone become one."""
    one, names = with_plain_names(three_products(4))
    other, _ = with_plain_names(with_param_names(three_products(4), {"A": "B", "B": "A"}))
    assert one == other
    assert names == {"p.0": "A", "p.1": "B", "p.2": "C", "p.3": "Y"}
    arrays = arrays_of(one)
    np.testing.assert_array_equal(
        interpret(one, arrays)[0], interpret(three_products(4), arrays)[0]
    )


def test_what_is_said_in_plain_names():
    """Of a kernel's own: as expressions have them, and as programs print them."""
    program = three_products(4)
    plain, _ = with_plain_names(program)
    loop = next(x.var.name for x in walk_statements(program.body) if isinstance(x, For))
    said = "p.2 at i.0 + 1, p_x2e_0_local of p.31 and t.0_lane"
    (inner, *_) = (x.buffer.name for x in walk_statements(program.body) if isinstance(x, Alloc))
    wanted = f"C at {loop} + 1, A_local of p.31 and {inner}_lane"
    assert told_in_names(said, program) == wanted
    assert told_in_names(str(plain.params[0]), program) == str(program.params[0])


@pytest.mark.parametrize("chip", CHIPS)
def test_what_passes_as_both_factors(chip: str):
    """It is refused: a second copy of it would have to come from outside."""

    @kernel
    def squares(A: i8[16, 16], B: i8[16, 16], Y: out(i8[16, 16])):
        s = local(i32[16, 16])
        p = local(i8[16, 16])
        t = local(i32[16, 16])
        for i, j in grid(16, 16):
            s[i, j] = 0
            for k in reduce(16):
                s[i, j] += i32(A[i, k]) * i32(B[j, k])
        for i, j in grid(16, 16):
            p[i, j] = i8(max(min(s[i, j] >> 6, 127), -128))
        for i, j in grid(16, 16):
            t[i, j] = 0
            for k in reduce(16):
                t[i, j] += i32(p[i, k]) * i32(p[j, k])
        for i, j in grid(16, 16):
            Y[i, j] = i8(max(min(t[i, j] >> 6, 127), -128))

    with pytest.raises(ScheduleError):
        build_chip(squares.kernel, CHIPS[chip])


def test_an_array_of_which_two_kernels_make_a_part_each():
    """What a piece makes is all of an array: the other part would be lost."""

    @kernel
    def halves(X: i8[16, 9], V: i8[16, 9], W: i8[16, 16], Y: out(i8[32, 16])):
        total = local(i32[16, 16])
        for i, j in grid(16, 16):
            total[i, j] = 0
            for k in reduce(9):
                total[i, j] += i32(X[i, k]) * i32(V[j, k])
        for i, j in grid(16, 16):
            Y[i, j] = i8(max(min(total[i, j] >> 6, 127), -128))
        for i, j in grid(16, 16):
            Y[i + 16, j] = W[i, j]

    for target in CHIPS.values():
        with pytest.raises(ScheduleError) as error:
            build_chip(halves.kernel, target)
        assert error.value.what == (
            "Y is computed in several parts, and a chip's tiles need one nest of loops for each"
            " array"
        )
        assert error.value.hint == "make a kernel of each part"
