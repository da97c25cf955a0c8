"""Values that are found as far as somebody asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Event, Thread

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.base.remembered import Memo, Remembered


def test_each_value_is_computed_once_and_no_earlier_than_it_is_asked_for():
    computed: list[int] = []

    def values() -> Iterator[int]:
        for k in range(4):
            computed.append(k)
            yield k

    found = Remembered(values)
    assert [*islice(found, 2)] == [0, 1]
    assert computed == [0, 1]
    assert [*found] == [*found] == [0, 1, 2, 3]
    assert computed == [0, 1, 2, 3]


def test_an_error_at_the_end_is_raised_each_time_after_the_same_values():
    def values() -> Iterator[int]:
        yield 1
        raise ScheduleError("there are no more")

    found = Remembered(values)
    for _ in range(2):
        seen = []
        with pytest.raises(ScheduleError, match="there are no more"):
            seen += found  # those before the error are seen
        assert seen == [1]


def test_what_is_added_to_an_error_is_not_kept():
    def values() -> Iterator[int]:
        yield from ()
        raise ScheduleError("there is none")

    found = Remembered(values)
    for k in range(2):
        with pytest.raises(ScheduleError) as error:
            next(iter(found))
        error.value.add_context(f"asking {k}")
        assert str(error.value) == f"there is none\n  while asking {k}"


def test_values_are_found_anew_after_an_interruption():
    interruptions = [KeyboardInterrupt, MemoryError]

    def values() -> Iterator[int]:
        yield 1
        if interruptions:
            raise interruptions.pop()
        yield 2

    found = Remembered(values)
    for kind in (MemoryError, KeyboardInterrupt):
        with pytest.raises(kind):
            list(found)
    assert [*found] == [1, 2]


def test_a_process_that_was_forked_finds_values_itself():
    """Also where another thread was computing one, which goes on in its own process alone."""
    computes, done = Event(), Event()

    def values() -> Iterator[int]:
        computes.set()
        done.wait()
        yield 1

    found = Remembered(values)
    thread = Thread(target=lambda: list(found))
    thread.start()
    computes.wait()
    child = os.fork()
    if not child:
        done.set()
        os._exit([*found] != [1])
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_several_threads_go_through_the_same_values():
    found = Remembered(lambda: iter(range(2000)))
    with ThreadPoolExecutor(4) as pool:
        lists = [*pool.map(lambda _: [*found], range(8))]
    assert lists == [[*range(2000)]] * 8


def test_a_question_is_asked_once_be_the_answer_a_refusal():
    memo, asked = Memo(), []

    def answer(question: str) -> str:
        asked.append(question)
        if question == "refused":
            raise ScheduleError("there is none")
        return question.upper()

    assert [memo.of("a", lambda: answer("a")) for _ in range(2)] == ["A", "A"]
    for _ in range(2):
        with pytest.raises(ScheduleError) as error:
            memo.of("refused", lambda: answer("refused"))
        error.value.add_context("asking")
        assert str(error.value) == "there is none\n  while asking"
    assert asked == ["a", "refused"]


def test_other_errors_are_no_answers():
    memo = Memo()
    with pytest.raises(ZeroDivisionError):
        memo.of("a", lambda: 1 // 0)
    assert memo.of("a", lambda: 1) == 1
