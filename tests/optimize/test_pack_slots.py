"""Packing of slots with fixed and symbolic sizes, and the comparisons of sizes behind it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.dims import canonical
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Symbol, maximum
from tilewright.optimize.compare_sizes import is_at_least, larger_of, round_up
from tilewright.optimize.pack_slots import Lifetime, Packing, pack_slots

N, S = Symbol("n"), Symbol("s", 2, 512)
VALUES = [{"n": n, "s": s} for n in (1, 3, 1000) for s in (2, 3, 64, 511)]


def check(lifetimes: list[Lifetime], packing: Packing, symbols: dict) -> int:
    """Nothing overlaps; gives the arena's size."""
    size = evaluate_dim(packing.size, symbols)
    places = []
    for life, offset in zip(lifetimes, packing.offsets, strict=True):
        start, length = (evaluate_dim(d, symbols) for d in (offset, life.size))
        assert start % 64 == 0
        assert 0 <= start <= start + length <= size
        places.append((start, start + length))
    for i, a in enumerate(lifetimes):
        for j, b in enumerate(lifetimes[:i]):
            if a.first <= b.last and b.first <= a.last:
                (low, high), (start, end) = places[i], places[j]
                assert high <= start or end <= low or low == high or start == end
    return size


def sizes():
    """Fixed sizes, multiples of n, and what attention and convolutions have."""
    whole = st.integers(0, 3000)
    scale = st.integers(1, 2000)
    halved = (S + 1) // 2
    return st.one_of(
        whole,
        scale.map(lambda c: N * c),
        scale.map(lambda c: N * S * c),
        scale.map(lambda c: N * S * S * c),
        scale.map(lambda c: N * halved * halved * c),
        scale.map(lambda c: S * c + 100),
    )


@st.composite
def lifetimes(draw, size=None):
    count = draw(st.integers(0, 12))
    found = []
    for _ in range(count):
        first = draw(st.integers(0, 10))
        last = first + draw(st.integers(0, 4))
        found.append(Lifetime(draw(sizes() if size is None else size), first, last))
    return found


@settings(max_examples=100)
@given(lives=lifetimes())
def test_packings_are_right_for_all_values(lives):
    packing = pack_slots(lives)
    for symbols in VALUES:
        check(lives, packing, symbols)


@settings(max_examples=100)
@given(lives=lifetimes(st.integers(1, 40).map(lambda c: c * 64)))
def test_fixed_sizes_waste_little(lives):
    packing = pack_slots(lives)
    size = check(lives, packing, {})
    assert size == packing.typical >= packing.least
    assert size <= packing.least * 1.34  # small puzzles can have no perfect solution


def residual_network(batch=1) -> list[Lifetime]:
    """The tensors of ResNet-50 as they live: in each block three convolutions one after another,
    and the block's input until the sum at its end."""
    lives, step, size = [], 0, batch * 64 * 112 * 112 * 4
    lives.append(Lifetime(size, 0, 1))  # the first convolution's, until it is pooled
    step, side, block_in = 1, 56, batch * 64 * 56 * 56 * 4
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            inner = 2 if width > 64 and block == 0 else 1
            first = batch * width * (side * side) * 4
            side //= inner
            rest = batch * width * (side * side) * 4
            lives.append(Lifetime(block_in, step, step + (3 if block else 4)))
            lives.append(Lifetime(first, step + 1, step + 2))
            lives.append(Lifetime(rest, step + 2, step + 3))
            if block == 0:  # the convolution beside the block
                lives.append(Lifetime(rest * 4, step + 3, step + 4))
                step += 1
            block_in = rest * 4
            step += 3
    lives.append(Lifetime(block_in, step, step + 1))
    return lives


def test_residual_network():
    for batch in (1, 8, N):
        packing = pack_slots(residual_network(batch))
        assert packing.typical <= 1.05 * packing.least
        for symbols in ({"n": 1}, {"n": 5}):
            check(residual_network(batch), packing, symbols)


def test_growing_network():
    """DenseNet: every layer reads what all before it made."""
    lives, channels = [], 64
    for step in range(24):
        lives.append(Lifetime(channels * 3136, 3 * step, 3 * step + 2))  # all so far
        lives.append(Lifetime(128 * 3136, 3 * step + 1, 3 * step + 2))
        lives.append(Lifetime(32 * 3136, 3 * step + 2, 3 * step + 3))
        channels += 32
    packing = pack_slots(lives)
    check(lives, packing, {})
    assert packing.typical <= 1.05 * packing.least


def test_symbols_with_one_shape_pack_like_numbers():
    lengths = [(5, 2), (3, 1), (9, 3)] * 4
    fixed, symbolic = (
        pack_slots([Lifetime(unit * c, i, i + d) for i, (c, d) in enumerate(lengths)])
        for unit in (64, N * 64)
    )
    assert [canonical(N * o) for o in fixed.offsets] == list(symbolic.offsets)
    assert canonical(N * fixed.size) == symbolic.size


def test_attention_shares_space_with_what_follows():
    """Scores (n·s·s) and the wide layer behind them (n·s) never live together: whichever is larger,
    the arena has the size of the larger."""
    rows = N * S * 256
    lives = [Lifetime(rows, 0, 3), Lifetime(N * S * S * 64, 1, 2), Lifetime(rows * 4, 3, 4)]
    packing = pack_slots(lives)
    assert str(packing.size) == "256 * n * s + max(1024 * n * s, 64 * n * s * s)"
    for symbols in VALUES:
        check(lives, packing, symbols)


def test_fixed_sizes_come_first():
    lives = [Lifetime(N * 64, 0, 1), Lifetime(100, 0, 2), Lifetime(30, 1, 2)]
    packing = pack_slots(lives)
    assert [str(o) for o in packing.offsets] == ["192", "0", "128"]
    assert str(packing.size) == "64 * n + 192"
    assert pack_slots([]) == Packing((), 0, 0, 0)


# ---------------------------------------------------------------- comparing sizes


def test_is_at_least():
    half = (S + 1) // 2
    assert is_at_least(3, 3)
    assert not is_at_least(2, 3)
    assert is_at_least(N * 4, N * 3)
    assert is_at_least(N * S, N)  # s is 2 or more
    assert is_at_least(N * S, N * 2)
    assert not is_at_least(N * S, N * 3)
    assert is_at_least(N * N, N)
    assert is_at_least(S, half)
    assert is_at_least(S * S * N, half * half * N)
    assert is_at_least(half * 2, S)
    assert not is_at_least(half * 2, S + 1)
    assert is_at_least(round_up(N * 10, 64), N * 10)
    assert is_at_least(maximum(N * 8, S * 4), S * 4)
    assert is_at_least(N * 8 + S * 4, maximum(N * 8, S * 4))
    assert not is_at_least(N * 7 + S, maximum(N * 8, S))
    assert is_at_least(S % 8 + 5, S % 8)
    assert is_at_least(7, S % 8)


@settings(max_examples=100)
@given(a=sizes(), b=sizes(), c=sizes())
def test_comparisons_hold_for_all_values(a, b, c):
    larger = larger_of(larger_of(a, b), c)
    up = round_up(larger, 64)
    claimed = is_at_least(a, b)
    for symbols in VALUES:
        x, y, z, most, rounded = (evaluate_dim(d, symbols) for d in (a, b, c, larger, up))
        assert most >= max(x, y, z)
        assert rounded % 64 == 0
        assert rounded >= most
        assert x >= y or not claimed
    assert is_at_least(larger, a)
    assert np.all([is_at_least(d, d) for d in (a, b, c)])
