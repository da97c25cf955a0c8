"""Waits of every kind: enough, none too many, and refused in words where a chip has no way."""

import numpy as np
import pytest
from handmade_streams import BYTES, QUEUES, copier, random_rows, stream_of
from stream_judge import Judge
from sync_chips import KINDS

from tilewright.backends.stream.boxes import boxes, dependences
from tilewright.backends.stream.check_waits import check_waits, interleave
from tilewright.backends.stream.faults import FaultKind
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Synchronised, Waits, no_waits, synchronise
from tilewright.base.errors import CompileError
from tilewright.sim.events import simulate

ABLE = [kind for kind in KINDS if kind not in ("nothing", "tokens", "few events")]


def random_stream(kind: str, seed: int, count: int = 30) -> Stream:
    rng = np.random.default_rng(seed)
    return stream_of(copier(kind), random_rows(rng, count), {"m": BYTES})


def copy(queue: str, source: int, to: int, n: int = 8) -> tuple:
    return (f"{queue}_copy", {"n": n}, (source, to))


def stream(kind: str, *rows: tuple, depth: int = 64) -> Stream:
    return stream_of(copier(kind, depth), rows, {"m": BYTES})


def without(waits: Waits, name: str, row: int, bit: int) -> Waits:
    arrays = {k: getattr(waits, k).copy() for k in ("pops", "pushes", "awaits", "sets", "barriers")}
    arrays[name][row] &= ~arrays[name].dtype.type(1 << bit)
    return Waits(**arrays)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ABLE)
def test_enough_and_free_of_deadlock(kind: str, seed: int):
    """By the proof, by a judge that shares nothing with it, and in simulated time."""
    done = synchronise(random_stream(kind, seed))
    assert check_waits(done.stream, done.need, done.waits) is None
    judge = Judge(done.stream, done.waits)
    assert judge.race() is None
    assert not judge.left_over()
    assert all(order is not None for order in judge.orders(seed))
    times = simulate(done.stream, done.waits)
    early, late = np.nonzero(np.triu(judge.conflicts, 1))
    apart = np.array(judge.queue)[early] != np.array(judge.queue)[late]
    assert np.all(times.begin[late[apart]] >= times.end[early[apart]])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [k for k in ABLE if k != "interlock"])
def test_none_too_many(kind: str, seed: int):
    """Each wait that is left out leaves two instructions in conflict unordered."""
    done = synchronise(random_stream(kind, seed))
    assert done.waits.count > 0
    for left_out in one_less(done):
        assert Judge(done.stream, left_out).race() is not None
        assert check_waits(done.stream, done.need, left_out).kind is FaultKind.RACE


def one_less(done: Synchronised) -> list[Waits]:
    """The waits without one of them, which is neither given nor taken."""
    found, judge = [], Judge(done.stream, done.waits)
    names = [q.name for q in done.stream.target.queues]
    for i in range(len(done.stream)):
        for c in judge.takes[i]:
            takers = [r for r in range(judge.n) if c in judge.takes[r]]
            givers = [r for r in range(judge.n) if c in judge.gives[r]]
            j = givers[takers.index(i)]
            if isinstance(c, tuple):
                rest = without(done.waits, "pops", i, c[0])
                found.append(without(rest, "pushes", j, c[1]))
            else:
                found.append(without(without(done.waits, "awaits", i, c), "sets", j, c))
        if done.waits.barriers[i]:
            found.append(without(done.waits, "barriers", i, 0))
    assert len(found) == done.waits.count, names
    return found


def test_dependences_are_conflicts_and_imply_all():
    for seed in range(10):
        s = random_stream("interlock", seed, 40)
        judge, need = Judge(s, no_waits(s)), dependences(s)
        queue, known = np.array(judge.queue), np.zeros((40, 40), bool)
        for i in range(40):
            known[i, np.flatnonzero(queue[:i] == queue[i])] = True
            for p, j in enumerate(need[i]):
                if j >= 0:
                    assert queue[j] == p
                    assert judge.conflicts[j, i]
                    known[i, : j + 1] |= queue[: j + 1] == p
        for k in range(40):
            known |= known[:, k, None] & known[k]
        assert np.all(known.T | ~np.triu(judge.conflicts, 1))


def test_a_chip_with_an_interlock_has_no_waits():
    done = synchronise(random_stream("interlock", 0))
    assert done.waits.count == 0
    assert check_waits(done.stream, None, done.waits) is None


def test_a_queue_between_two_that_are_not_linked():
    """Load must wait for compute: an instruction of store that does nothing hands that on."""
    done = synchronise(stream("hub", copy("compute", 0, 64), copy("load", 64, 128)))
    assert [done.stream.sites[s].instruction.name for s in done.stream.site] == [
        "compute_copy", "nothing", "load_copy",
    ]  # fmt: skip
    assert done.waits.pops.tolist() == [0, 2, 4]
    assert done.waits.pushes.tolist() == [4, 1, 0]
    assert check_waits(done.stream, None, done.waits) is None


def test_an_instruction_that_is_there_hands_it_on():
    """None is added where the queue between has one since then."""
    rows = (copy("compute", 0, 64), copy("store", 32, 200), copy("load", 64, 128))
    done = synchronise(stream("hub", *rows))
    assert len(done.stream) == 3
    assert done.waits.pops.tolist() == [0, 2, 4]
    assert done.waits.pushes.tolist() == [4, 1, 0]


def test_a_wait_that_is_moved_to_a_later_instruction():
    """Store waits for the first load already; what it hands on is the second one's end."""
    rows = (
        copy("load", 0, 64), copy("load", 8, 72), copy("store", 64, 200), copy("compute", 72, 128),
    )  # fmt: skip
    done = synchronise(stream("hub", *rows))
    assert check_waits(done.stream, None, done.waits) is None
    assert done.waits.pushes.tolist() == [0, 4, 2, 0]


def test_queues_with_nothing_between_them():
    with pytest.raises(CompileError) as error:
        synchronise(stream("nothing", copy("compute", 0, 64), copy("load", 64, 128, 4)))
    assert str(error.value) == (
        "instruction 1, load_copy(n=4) of load, must wait for instruction 0, compute_copy(n=8) of "
        "compute, and copier has nothing that links compute and load\n"
        "  hint: describe tokens for the two, events, barriers, or an instruction that does "
        "nothing of a queue that is linked to both"
    )


def test_one_wait_stands_for_several_where_events_run_out():
    """Three instructions of load let others begin, all before any of those begins: with two events
    the first of compute waits for what the second of it needs."""
    rows = (
        copy("load", 0, 64), copy("load", 8, 72), copy("load", 16, 80),
        copy("compute", 64, 128), copy("store", 72, 136), copy("compute", 80, 144),
    )  # fmt: skip
    done = synchronise(stream("few events", *rows))
    assert done.waits.sets.tolist() == [0, 1, 2, 0, 0, 0]
    assert done.waits.awaits.tolist() == [0, 0, 0, 2, 1, 0]
    assert check_waits(done.stream, done.need, done.waits) is None


def test_too_few_events():
    """Instructions of three pairs of queues let each other begin, all before any of them begins."""
    rows = (
        copy("load", 0, 64), copy("load", 8, 72), copy("compute", 16, 80),
        copy("compute", 64, 128), copy("store", 72, 136), copy("store", 80, 144),
    )  # fmt: skip
    with pytest.raises(CompileError) as error:
        synchronise(stream("few events", *rows))
    assert str(error.value) == (
        "instruction 2, compute_copy(n=8) of compute, must let instruction 5, store_copy(n=8) of "
        "store, wait for it, and all 2 events of copier are in use\n"
        "  hint: describe more events, or let less happen at the same time (smaller depths of "
        "buffers)"
    )


def test_an_event_is_used_again_once_it_is_free():
    """Each instruction waits for the one before it: one event is for each direction."""
    rows = [copy(QUEUES[k % 2], 64 * (k % 2), 64 * ((k + 1) % 2)) for k in range(6)]
    done = synchronise(stream("few events", *rows))
    assert done.waits.awaits.tolist() == [0, 1, 2, 1, 2, 1]
    assert done.waits.sets.tolist() == [1, 2, 1, 2, 1, 0]
    assert check_waits(done.stream, None, done.waits) is None


def test_an_event_that_another_instruction_may_take():
    """Both consumers wait for event 0; nothing says which of them gets it first."""
    rows = (
        copy("load", 0, 64), copy("compute", 64, 128), copy("load", 8, 72), copy("store", 72, 136),
    )  # fmt: skip
    s = stream("events", *rows)
    none = np.zeros(4, np.uint32)
    waits = Waits(none, none, np.array([0, 1, 2, 1]), np.array([1, 2, 1, 0]))
    assert str(check_waits(s, None, waits)) == (
        "instruction 3, store_copy(n=8) of store, waits for event 0, and instruction 1, "
        "compute_copy(n=8) of compute, which waits for it too, may not have begun"
    )


def test_an_event_that_is_set_twice():
    rows = (copy("load", 0, 64), copy("load", 8, 72), copy("compute", 64, 128, 16))
    s = stream("events", *rows)
    none = np.zeros(3, np.uint32)
    waits = Waits(none, none, np.array([0, 0, 1]), np.array([1, 1, 0]))
    fault = check_waits(s, np.full((3, 3), -1, np.int32), waits)
    assert str(fault) == (
        "instruction 1, load_copy(n=8) of load, sets event 0, which is set already"
    )


def test_one_instruction_after_another():
    """Waits that force the program's order, though nothing depends on anything."""
    rows = [copy(QUEUES[k % 3], 16 * k, 16 * k + 8) for k in range(9)]
    s = stream("tokens of all", *rows)
    assert synchronise(s).waits.count == 0
    done = synchronise(s, serial=True)
    assert done.waits.count == 8
    times = simulate(s, done.waits)
    assert np.all(times.begin[1:] >= times.end[:-1])
    assert check_waits(s, done.need, done.waits) is None
    fault = check_waits(s, done.need, no_waits(s))
    assert str(fault) == (
        "instruction 1, compute_copy(n=8) of compute, may begin before instruction 0, "
        "load_copy(n=8) of load, is done"
    )


# ---------------------------------------------------------------- deadlocks


def test_a_cycle_is_printed():
    """Each of two queues waits for the other first."""
    rows = (
        copy("load", 0, 8),
        copy("compute", 64, 72),
        copy("load", 16, 24),
        copy("compute", 80, 88),
    )
    waits = Waits(np.array([2, 1, 0, 0]), np.array([0, 0, 2, 1]))
    fault = check_waits(stream("tokens", *rows), None, waits)
    assert fault.kind is FaultKind.DEADLOCK
    assert str(fault) == (
        "the stream stops for good, in a cycle\n"
        "  instruction 0, load_copy(n=8) of load, waits for a token of compute that instruction 3 "
        "gives\n"
        "  instruction 3, compute_copy(n=8) of compute, comes behind instruction 1 in its queue\n"
        "  instruction 1, compute_copy(n=8) of compute, waits for a token of load that instruction "
        "2 gives\n"
        "  instruction 2, load_copy(n=8) of load, comes behind instruction 0 in its queue"
    )
    with pytest.raises(CompileError) as error:
        simulate(stream("tokens", *rows), waits)
    assert str(error.value) == f"{fault}\n  hint: the waits of this stream are wrong: check_waits"


def test_a_queue_that_is_too_short():
    """The token comes from an instruction that is issued behind one whose queue is full."""
    rows = (copy("load", 0, 8), copy("load", 16, 24), copy("load", 32, 40), copy("compute", 64, 72))
    waits = Waits(np.array([2, 0, 0, 0]), np.array([0, 0, 0, 1]))
    assert check_waits(stream("tokens", *rows), None, waits) is None
    fault = check_waits(stream("tokens", *rows, depth=2), None, waits)
    assert str(fault) == (
        "the stream stops for good, in a cycle\n"
        "  instruction 0, load_copy(n=8) of load, waits for a token of compute that instruction 3 "
        "gives\n"
        "  instruction 3, compute_copy(n=8) of compute, is issued behind instruction 2\n"
        "  instruction 2, load_copy(n=8) of load, comes behind instruction 0 in its queue"
    )


def test_a_token_that_nobody_gives_or_takes():
    rows = (copy("load", 0, 8), copy("compute", 64, 72))
    s, none = stream("tokens", *rows), np.zeros(2, np.uint32)
    assert str(check_waits(s, None, Waits(np.array([0, 1]), none))) == (
        "the stream stops for good\n"
        "  instruction 1, compute_copy(n=8) of compute, waits for a token of load that nothing "
        "gives"
    )
    assert str(check_waits(s, None, Waits(none, np.array([2, 0])))) == (
        "instruction 0, load_copy(n=8) of load, gives a token to compute that nothing takes"
    )


def test_a_barrier_before_what_it_waits_for():
    rows = (copy("load", 0, 8), copy("compute", 64, 72))
    waits = Waits(np.array([2, 0]), np.array([0, 1]), barriers=np.array([0, 1]))
    fault = check_waits(stream("tokens and barriers", *rows), None, waits)
    assert str(fault) == (
        "the stream stops for good, in a cycle\n"
        "  instruction 0, load_copy(n=8) of load, waits for a token of compute that instruction 1 "
        "gives\n"
        "  instruction 1, compute_copy(n=8) of compute, stands behind a barrier for instruction 0"
    )


def test_orders_follow_priorities():
    s = random_stream("tokens of all", 3)
    waits = synchronise(s).waits
    first = interleave(s, waits, -np.arange(len(s))).order
    assert first.tolist() == list(range(len(s)))
    last = interleave(s, waits, np.arange(len(s))).order
    assert sorted(last.tolist()) == list(range(len(s))) != last.tolist()


def test_boxes_of_a_stream_without_operands():
    s = stream_of(copier("hub"), [("nothing", {}, ())], {"m": BYTES})
    assert len(boxes(s)) == 0
    assert synchronise(s).waits.count == 0
