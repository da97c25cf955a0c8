"""Of choices that a model has ranked, the one that is fast once it is built."""

from dataclasses import dataclass

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.plan.fastest import MOST, build_fastest


@dataclass(frozen=True)
class Choice:
    cycles: float
    takes: int | None = None  # None: cannot be built


@dataclass(frozen=True)
class Built:
    cycles: int


def run(*choices: Choice, tries: int = 3, near: float = 1.1) -> tuple[int, int]:
    """Cycles of the fastest, and how many were tried."""
    tried = []

    def build(choice: Choice) -> Built:
        tried.append(choice)
        if choice.takes is None:
            raise ScheduleError(f"number {len(tried)} cannot be built")
        return Built(choice.takes)

    return build_fastest(choices, build, tries=tries, near=near).cycles, len(tried)


def test_a_choice_that_keeps_its_promise_is_enough():
    assert run(Choice(100, 105), Choice(101, 90)) == (105, 1)


def test_the_fastest_of_some():
    assert run(Choice(100, 150), Choice(101, 120), Choice(102, 130), Choice(103, 1)) == (120, 3)


def test_what_cannot_be_built_does_not_count():
    assert run(*[Choice(100)] * 4, Choice(100, 150), Choice(101, 140)) == (140, 6)


def test_of_those_that_are_expected_to_be_as_good_one_is_enough():
    assert run(Choice(100, 150), Choice(100.02, 140), Choice(101, 145), Choice(102, 1)) == (145, 2)


def test_the_first_refusal_is_told_after_many():
    with pytest.raises(ScheduleError, match="number 1 cannot be built"):
        run(*[Choice(100)] * 3 * MOST, Choice(100, 100))


def test_of_one_kind_only_those_that_differ_are_built():
    """0.05 % apart each: every second of one kind, and all of those that have none in common, also
    where nothing but the iterator holds them."""
    found = []
    for kinds in ({"kind": lambda _: 0}, {}):
        takes: list[int] = []

        def build(choice: Choice, takes: list[int] = takes) -> Built:
            takes.append(int(choice.takes or 0))
            return Built(takes[-1])

        choices = (Choice(100 + 0.05 * k, 150 + k) for k in range(4))
        build_fastest(choices, build, tries=4, near=0.9, **kinds)
        found.append(takes)
    assert found == [[150, 152], [150, 151, 152, 153]]
