"""Damaged streams: what the judge calls harmful is caught. `make mutation` tries many more."""

import numpy as np
import pytest
from handmade_streams import BYTES, copier, stream_of
from stream_cases import CASES, MOST
from stream_judge import Judge
from stream_mutants import KINDS, mutant
from stream_trials import Subject, run_case

from tilewright.backends.stream.waits import Waits, no_waits, synchronise

NAMES = ["tiny", "vta", "fused, small", "in place, single", "chip with events"]


@pytest.mark.parametrize("name", NAMES)
def test_what_does_harm_is_caught(name: str):
    length, (unchanged, *outcomes) = run_case(name, 18, seed=3)
    assert length <= MOST
    assert (unchanged.harm, unchanged.caught) == (None, None)
    assert len(outcomes) == 18
    assert {o.kind for o in outcomes} >= set(KINDS) - {"slot"}  # where buffers have one
    harmful = [o for o in outcomes if o.harm is not None]
    assert len(harmful) >= 9
    assert [o for o in harmful if o.caught is None] == []


def test_cases_are_three_chips_and_twenty_streams():
    assert len(CASES) >= 20
    assert len({case.target().name for case in CASES.values()}) >= 3


# ---------------------------------------------------------------- the judge


def judged(rows: list, waits: Waits | None = None, kind: str = "tokens of all") -> Judge:
    s = stream_of(copier(kind), rows, {"m": BYTES})
    return Judge(s, synchronise(s).waits if waits is None else waits)


CHAIN = [("load_copy", {"n": 8}, (0, 64)), ("compute_copy", {"n": 8}, (64, 128)),
         ("store_copy", {"n": 8}, (128, 200))]  # fmt: skip


def test_the_judge_finds_races():
    assert judged(CHAIN).race() is None
    none = np.zeros(3, np.uint32)
    assert judged(CHAIN, Waits(none, none)).race() == (0, 1)
    readers = [("load_copy", {"n": 8}, (0, 64)), ("compute_copy", {"n": 8}, (0, 128))]
    assert judged(readers, Waits(none[:2], none[:2])).race() is None


def test_the_judge_knows_what_follows_from_what():
    """0 before 1 before 2, and so 0 before 2."""
    before = judged(CHAIN).before()
    assert before.tolist() == [[False, True, True], [False, False, True], [False] * 3]


def test_the_judge_finds_streams_that_stop():
    waits = Waits(np.array([2, 0, 0]), np.zeros(3))
    assert None in list(judged(CHAIN, waits).orders(0))
    assert judged(CHAIN, Waits(np.zeros(3), np.array([2, 0, 0]))).left_over()


def test_the_judge_finds_memory_that_is_not_there():
    assert judged(CHAIN).outside() is None
    assert (
        judged([("load_copy", {"n": 8}, (0, BYTES - 4))], Waits(*np.zeros((2, 1)))).outside() == 0
    )


def test_the_judge_runs_instructions_in_legal_orders():
    s = CASES["tiny"].build()
    judge = Judge(s.stream, s.waits)
    before, orders = judge.before(), list(judge.orders(0))
    assert len({tuple(o) for o in orders}) > 5
    for order in orders:
        at = np.argsort(order)
        first, then = np.nonzero(before)
        assert np.all(at[first] < at[then])


def test_wrong_results_are_harmful():
    subject = Subject("tiny")
    rng = np.random.default_rng(0)
    m = next(m for m in (mutant(subject.chip, "base", rng) for _ in range(50)) if m is not None)
    assert Judge(m.stream, m.waits).verdict(subject.chip, subject.judged, 0) is not None
    chip = subject.chip
    assert Judge(chip.stream, chip.waits).verdict(chip, subject.judged, 0) is None
    inputs, expected = subject.judged[0]
    wrong = [(inputs, [a + 1 for a in expected])]
    assert Judge(chip.stream, chip.waits).verdict(chip, wrong, 0) == "results are wrong"


def test_mutants_change_something():
    chip = CASES["vta"].build()
    rng = np.random.default_rng(0)
    for kind in KINDS:
        found = [m for m in (mutant(chip, kind, rng) for _ in range(30)) if m is not None]
        assert found
        for m in found:
            same = all(
                np.array_equal(getattr(m.stream, name), getattr(chip.stream, name))
                for name in ("site", "fields", "addresses")
            )
            waits = ("pops", "pushes", "awaits", "sets", "barriers")
            kept = all(np.array_equal(getattr(m.waits, w), getattr(chip.waits, w)) for w in waits)
            assert not (same and kept and m.stream.sites == chip.stream.sites)


def test_an_interlock_orders_what_is_in_conflict():
    s = stream_of(copier("interlock"), CHAIN, {"m": BYTES})
    assert Judge(s, no_waits(s)).race() is None
    for order in Judge(s, no_waits(s)).orders(0):
        assert order == [0, 1, 2]
