"""The timed simulator, against times counted by hand."""

import itertools
import json

import numpy as np
import pytest
from handmade_streams import BYTES, QUEUES, copier, random_rows, stream_of
from stream_cases import CASES
from sync_chips import KINDS, chip

from tilewright import grid, u8
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits, no_waits, synchronise
from tilewright.base.errors import ArtifactError
from tilewright.ir.python.words import out
from tilewright.sim.events import durations, simulate
from tilewright.sim.timeline import REASONS, Timeline
from tilewright.target.describe import Range, TargetBuilder, cost
from tilewright.target.target import Target

NEAR, FAR, BANKED = "near", "far", "banked"
COUNT = Range(0, 1000)


def machine(depth: int = 64, issue: int = 1) -> Target:
    """Two queues whose instructions say in their fields what they take."""
    t = TargetBuilder("machine", clock=1e9)
    t.memory(NEAR, 1024, bandwidth=4)
    t.memory(FAR, 4096, bandwidth=1, latency=100)
    t.memory(BANKED, 1024, banks=4)
    a, b = t.queues("a", "b", depth=depth)
    t.tokens((a, b))
    t.issue(issue)
    for queue in (a, b):

        @t.instruction(queue, name=f"{queue}_work")
        def work(setup: COUNT, busy: COUNT, latency: COUNT):
            cost(setup=setup, busy=busy, latency=latency, energy=10 * busy)

        @t.instruction(queue, name=f"{queue}_move")
        def move(src: u8[64] @ FAR, dst: out(u8[64] @ NEAR), n: Range(1, 64)):
            for i in grid(n):
                dst[i] = src[i]
            cost(setup=10, bytes=n)

        @t.instruction(queue, name=f"{queue}_shift")
        def shift(src: u8[64] @ NEAR, dst: out(u8[64] @ BANKED), n: Range(1, 64)):
            for i in grid(n):
                dst[i] = src[i]
            cost(bytes=n)

    return t.build()


def work(queue: str, setup: int, busy: int, latency: int = 0) -> tuple:
    return f"{queue}_work", {"setup": setup, "busy": busy, "latency": latency}, ()


def move(queue: str, n: int, to: int = 0) -> tuple:
    return f"{queue}_move", {"n": n}, (0, to)


def shift(queue: str, n: int, to: int) -> tuple:
    return f"{queue}_shift", {"n": n}, (0, to)


SIZES = {NEAR: 1024, FAR: 4096, BANKED: 1024}


def run(*rows: tuple, waits: Waits | None = None, **how: int) -> Timeline:
    s = stream_of(machine(**how), rows, SIZES)
    return simulate(s, waits or no_waits(s))


def times(t: Timeline) -> list[tuple[int, int, int]]:
    return list(zip(t.begin.tolist(), t.leave.tolist(), t.end.tolist(), strict=True))


def test_one_queue_runs_in_order():
    """Issued at 1 and 2; the unit is free again at 31; results come 5 later."""
    t = run(work("a", 10, 20, 5), work("a", 1, 2))
    assert times(t) == [(1, 31, 36), (31, 34, 36)]  # done in order: not before the one before
    assert t.cycles == 36
    assert t.stalls["a"] == {
        "issue": 1,
        "wait": 0,
        "result": 0,
        "bank": 0,
        "bandwidth": 0,
        "done": 2,
    }
    assert t.busy == {"a": 33, "b": 0}


def test_two_queues_run_at_the_same_time():
    t = run(work("a", 0, 20), work("b", 0, 30))
    assert times(t) == [(1, 21, 21), (2, 32, 32)]


def test_a_token_comes_when_the_results_are_there():
    t = run(work("a", 0, 20, 7), work("b", 0, 30), waits=Waits(np.array([0, 1]), np.array([2, 0])))
    assert times(t) == [(1, 21, 28), (28, 58, 58)]
    assert t.stalls["b"] == {
        "issue": 2,
        "wait": 26,
        "result": 0,
        "bank": 0,
        "bandwidth": 0,
        "done": 0,
    }
    assert t.cause.tolist() == [-1, 0]


def test_instructions_are_issued_one_after_another():
    t = run(work("a", 0, 1), work("b", 0, 1), work("a", 0, 1), issue=10)
    assert t.begin.tolist() == [10, 20, 30]
    assert t.stalls["a"] == {
        "issue": 29,
        "wait": 0,
        "result": 0,
        "bank": 0,
        "bandwidth": 0,
        "done": 0,
    }
    assert run(work("a", 0, 1), work("b", 0, 1), issue=0).begin.tolist() == [0, 0]


def test_a_full_queue_stops_the_issue():
    """The third of queue a enters when its first two have begun; what is behind it waits too."""
    t = run(*[work("a", 0, 50)] * 3, work("b", 0, 1), depth=1)
    assert t.begin.tolist() == [1, 51, 101, 53]
    t = run(*[work("a", 0, 50)] * 3, work("b", 0, 1), depth=2)
    assert t.begin.tolist() == [1, 51, 101, 4]


def test_bandwidth_is_shared():
    """40 bytes at 1 a cycle: the second waits for the first, though both are set up."""
    t = run(move("a", 40), move("b", 8, 64))
    assert times(t) == [(1, 51, 151), (2, 59, 159)]
    assert t.bandwidth.tolist() == [0, 39]  # 18 of its own
    assert t.moved == {(FAR, NEAR): 48}


def test_each_memory_has_its_own_bandwidth():
    """A move takes 40 cycles of the far memory, and 10 of the near one: others use that while it
    is set up, and afterwards. It needs both at the same time."""
    t = run(move("a", 40), shift("b", 20, 0), shift("b", 40, 0))
    assert times(t) == [(1, 57, 157), (2, 7, 7), (7, 17, 17)]
    t = run(move("a", 40), shift("b", 40, 0), shift("b", 40, 0))
    assert times(t) == [(1, 52, 152), (2, 12, 12), (12, 32, 32)]  # near: 2, 12 and 22


def test_a_bank_is_for_one_queue_at_a_time():
    """Banks of 256 bytes; the third box lies in two of them."""
    t = run(shift("a", 40, 0), shift("b", 40, 512), shift("b", 40, 240))
    assert times(t) == [(1, 11, 11), (2, 21, 21), (21, 31, 31)]
    t = run(shift("a", 64, 0), shift("b", 4, 100))
    assert times(t) == [(1, 17, 17), (17, 18, 18)]
    assert t.stalls["b"] == {
        "issue": 2,
        "wait": 0,
        "result": 0,
        "bank": 15,
        "bandwidth": 0,
        "done": 0,
    }
    t = run(shift("a", 64, 0), shift("a", 4, 100))  # its own
    assert t.bank.tolist() == [0, 0]


def test_a_barrier_waits_for_all_queues():
    barriers = np.array([0, 0, 1])
    waits = Waits(np.zeros(3, np.uint32), np.zeros(3, np.uint32), barriers=barriers)
    t = run(work("a", 0, 20, 9), work("b", 0, 5), work("b", 0, 5), waits=waits)
    assert t.begin.tolist() == [1, 2, 31]
    assert t.stalls["b"]["issue"] == 26


def test_energy():
    t = run(work("a", 0, 20), work("b", 0, 30))
    assert t.joules == pytest.approx(500e-12)


def test_serial_runs_one_after_another_whatever_the_waits_say():
    rows = [work("a", 0, 20, 7), work("b", 0, 30), work("a", 0, 5)]
    s = stream_of(machine(), rows, SIZES)
    t = simulate(s, Waits(np.array([2, 0, 0]), np.zeros(3)), serial=True)
    assert times(t) == [(1, 21, 28), (28, 58, 58), (58, 63, 63)]


def test_an_interlock_waits_for_what_is_needed():
    rows = [("load_copy", {"n": 8}, (0, 64)), ("compute_copy", {"n": 8}, (64, 128)),
            ("store_copy", {"n": 8}, (0, 200))]  # fmt: skip
    t = simulate(stream := stream_of(copier("interlock"), rows, {"m": BYTES}), no_waits(stream))
    assert times(t) == [(1, 9, 16), (16, 24, 31), (3, 11, 18)]
    assert t.cause.tolist() == [-1, 0, -1]


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("nothing", "tokens", "few events")])
def test_every_cycle_is_accounted_for(kind: str):
    for seed in range(3):
        rows = random_rows(np.random.default_rng(seed), 40)
        done = synchronise(stream_of(copier(kind, depth=3), rows, {"m": BYTES}))
        t = simulate(done.stream, done.waits)
        for q in QUEUES:
            assert t.busy[q] + sum(t.stalls[q].values()) == t.cycles
            assert list(t.stalls[q]) == list(REASONS)
        assert simulate(done.stream, done.waits, serial=True).cycles >= t.cycles


def test_costs_of_fields():
    """Columns for each memory of limited bandwidth; the slowest memory's latency on top."""
    s = stream_of(machine(), [work("a", 1, 2, 3), move("b", 10), shift("a", 10, 0)], SIZES)
    d = durations(s)
    assert d.setup.tolist() == [1, 10, 0]
    assert d.busy.tolist() == [2, 0, 0]
    assert d.transfer.tolist() == [[0, 0], [3, 10], [3, 0]]
    assert d.latency.tolist() == [3, 100, 0]
    assert d.bytes.tolist() == [0, 10, 10]
    assert d.energy.tolist() == [20, 0, 0]


def test_what_is_printed():
    t = run(work("a", 0, 20, 7), move("b", 8), waits=Waits(np.array([0, 1]), np.array([2, 0])))
    assert str(t) == (
        "146 cycles (0.1 µs at 1000 MHz), a works 13.7% of them\n"
        "queue  works  issue   wait  result  bank  bandwidth   done\n"
        "a      13.7%   0.7%   0.0%    0.0%  0.0%       0.0%  85.6%\n"
        "b      12.3%   1.4%  17.8%    0.0%  0.0%       0.0%  68.5%\n"
        "far to near: 8 bytes\n"
        "energy: 0.000 µJ"
    )


# ---------------------------------------------------------------- traces


def test_a_trace_for_perfetto(tmp_path):
    t = run(work("a", 0, 20, 7), work("b", 0, 30), waits=Waits(np.array([0, 1]), np.array([2, 0])))
    path = tmp_path / "trace.json"
    t.perfetto(path)
    events = json.loads(path.read_text())["traceEvents"]
    names = [(e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
    assert names == [(0, "a"), (1, "b")]
    first, second = (e for e in events if e["ph"] == "X")
    assert (first["tid"], first["name"], first["ts"], first["dur"]) == (0, "a_work", 0.001, 0.02)
    assert second["args"] == {
        "fields": {"setup": 0, "busy": 30, "latency": 0},
        "instruction": 1, "begin": 28, "leave": 58, "done": 58,
        "stalled: issue": 2, "stalled: wait": 26, "waited for": 0,
    }  # fmt: skip
    start, finish = (e for e in events if e["ph"] in "sf")
    assert (start["tid"], start["ts"], finish["tid"], finish["ts"]) == (0, 0.02, 1, 0.028)
    assert start["id"] == finish["id"]


def test_slices_of_a_track_do_not_overlap(tmp_path):
    built = CASES["vta"].build()
    built.timeline.perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(built.stream)
    for q in range(len(built.target.queues)):
        mine = [(e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == q]
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(mine))


def test_a_trace_that_cannot_be_written(tmp_path):
    path = tmp_path / "nowhere" / "trace.json"
    with pytest.raises(ArtifactError) as error:
        run(work("a", 0, 1)).perfetto(path)
    assert str(error.value) == f"cannot write {path}: No such file or directory"


def test_banks_of_a_whole_kernel_cost_time():
    """Loads and the unit use the same scratchpad: with one bank they take turns."""
    s: Stream = CASES["chip with tokens of all"].build().stream
    with_one = synchronise(_on(s, chip("tokens of all", banks=2)))
    free = synchronise(s)
    a, b = (simulate(x.stream, x.waits) for x in (with_one, free))
    assert a.cycles > b.cycles
    assert a.bank.sum() > 0 == b.bank.sum()


def _on(s: Stream, target: Target) -> Stream:
    return Stream(target, s.sites, s.site, s.fields, s.addresses, s.places, s.sizes, s.lists)
