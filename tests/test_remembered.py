"""Values that are found as far as somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.base.remembered import Remembered


def test_each_value_is_computed_once_and_no_earlier_than_it_is_asked_for():
    computed: list[int] = []

    def values() -> Iterator[int]:
        for k in range(4):
            computed.append(k)
            yield k

    found = Remembered(values())
    assert [*islice(found, 2)] == [0, 1]
    assert computed == [0, 1]
    assert [*found] == [*found] == [0, 1, 2, 3]
    assert computed == [0, 1, 2, 3]


def test_an_error_at_the_end_is_raised_each_time_after_the_same_values():
    def values() -> Iterator[int]:
        yield 1
        raise ScheduleError("there are no more")

    found = Remembered(values())
    for _ in range(2):
        seen = []
        with pytest.raises(ScheduleError, match="there are no more"):
            seen += found  # those before the error are seen
        assert seen == [1]


def test_several_threads_go_through_the_same_values():
    found = Remembered(k for k in range(2000))
    with ThreadPoolExecutor(4) as pool:
        lists = [*pool.map(lambda _: [*found], range(8))]
    assert lists == [[*range(2000)]] * 8
