"""Tokens that find no room: when a queue stands still, how waits keep to a depth, and what is said
where queues stop each other for good."""

import numpy as np
import pytest
from byte_kernels import layer

from tilewright import i8
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.rows import Rows, stream_of_rows
from tilewright.backends.stream.waits import Waits, bound_tokens
from tilewright.base.errors import CompileError, TargetError
from tilewright.chip import build_chip
from tilewright.ir.python.words import grid, out
from tilewright.sim.events import simulate
from tilewright.target.describe import TargetBuilder, cost
from tilewright.target.vary import with_depths
from tilewright.targets.vta import vta

M = "m"


def machine(depth, commands=64):
    """Two queues with one instruction each: 10 and 30 cycles, 5 until others learn of it."""
    t = TargetBuilder("two", clock=1e9)
    t.memory(M, 256)
    a, b = t.queues("a", "b", depth=commands)
    t.tokens((a, b), depth=depth)
    t.issue(0)
    step(t, a, 10)
    step(t, b, 30)
    return t.build()


def step(t, queue, cycles):
    """An instruction of a queue."""

    @t.instruction(queue, name=f"on_{queue}")
    def copy(x: i8[4] @ M, y: out(i8[4] @ M)):
        for i in grid(4):
            y[i] = x[i]
        cost(busy=cycles, latency=5)


def pairs(target, count):
    """`count` instructions of a that each give b a token, then as many of b that take one."""
    rows = Rows.empty(target, np.repeat([0, 1], count))
    rows.addresses[:count] = [0, 4]
    rows.addresses[count:] = [8, 12]
    gives, takes = np.zeros((2, 2 * count), np.uint32)
    gives[:count], takes[count:] = 1 << 1, 1 << 0
    return stream_of_rows(target, rows, {M: 256}), Waits(takes, gives)


def times(depth, count=4):
    found = simulate(*pairs(machine(depth), count))
    return found.begin.tolist(), found.end.tolist(), found


def test_without_a_depth_nothing_stands_still():
    begin, end, _ = times(None)
    assert begin == [0, 10, 20, 30, 15, 45, 75, 105]
    assert end == [15, 25, 35, 45, 50, 80, 110, 140]


def test_a_queue_without_room_begins_nothing_until_a_token_is_taken():
    """With one token: the second of a is at its end at 20, and gives it when b has begun, at 15,
    which is before; the third has no room from 30 to 45, when b takes the second."""
    begin, end, found = times(1)
    assert begin == [0, 10, 20, 45, 15, 45, 75, 105]
    assert end == [15, 25, 50, 80, 50, 80, 110, 140]
    assert found.wait.tolist()[:4] == [0, 0, 0, 15]  # the fourth, behind the third
    assert found.cause.tolist()[3] == 5
    assert found.cycles == 140


def test_more_room_means_less_standing():
    assert times(2)[0][:4] == [0, 10, 20, 30]


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_waits_keep_to_a_depth(depth):
    """All that was waited for is still, and no more tokens are untaken than may be."""
    rng = np.random.default_rng(depth)
    for _ in range(200):
        n = int(rng.integers(2, 30))
        queue = rng.integers(0, 2, n).astype(np.int32)
        pops, pushes, open_ = np.zeros(n, np.uint32), np.zeros(n, np.uint32), []
        for i in range(n):
            if queue[i] and open_ and rng.random() < 0.4:
                pushes[open_.pop(0)], pops[i] = 2, 1
            elif not queue[i] and rng.random() < 0.8:
                open_.append(i)
        fewer = bound_tokens(pops, pushes, queue, depth)
        assert _most_untaken(*fewer) <= depth
        before, after = _known(queue, pops, pushes), _known(queue, *fewer)
        assert (after >= before).all()


def _most_untaken(pops, pushes):
    return int(np.cumsum((pushes > 0).astype(int) - (pops > 0)).max(initial=0))


def _known(queue, pops, pushes):
    """The last instruction of queue 0 that each of queue 1 knows is done."""
    given, known, found = list(np.flatnonzero(pushes)), -1, np.full(len(queue), -1)
    for i in np.flatnonzero(queue == 1):
        if pops[i]:
            known = max(known, given.pop(0))
        found[i] = known
    return found


def test_queues_that_stop_each_other_for_good():
    """Commands of both queues are few: b's first stands behind a's third in the fetch, and a's
    second has no room for its token."""
    stream, waits = pairs(machine(1, commands=1), 4)
    with pytest.raises(CompileError) as caught:
        simulate(stream, waits)
    assert str(caught.value) == WANTED
    assert str(check_waits(stream, None, waits)) in str(caught.value)


WANTED = """\
the stream stops for good, in a cycle
  instruction 2, on_a() of a, comes behind instruction 1, which has no room for a token for b, \
until instruction 4 takes one
  instruction 4, on_b() of b, is issued behind instruction 3
  instruction 3, on_a() of a, comes behind instruction 2 in its queue
  hint: the waits of this stream are wrong: check_waits"""


def test_a_layer_on_vta_with_queues_of_eight():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (2, 64, 64)).astype(np.int8)
    bias, y = rng.integers(-999, 999, 64).astype(np.int32), np.zeros((64, 64), np.int8)
    bound = layer.bind(M=64, K=64, N=64).kernel
    few, many = (build_chip(bound, chip) for chip in (with_depths(vta(), 8, 1), vta()))
    assert np.array_equal(few(a, b, bias, y).copy(), many(a, b, bias, y))
    assert few.cycles > many.cycles


@pytest.mark.parametrize("depth", [0, -1, 1.5, True])
def test_a_depth_is_a_whole_number(depth):
    with pytest.raises(TargetError) as caught:
        machine(depth)
    assert str(caught.value) == (
        f"two: {depth!r} tokens may wait to be taken\n"
        "  hint: a whole number from 1 to 2147483647, or None for any number"
    )
