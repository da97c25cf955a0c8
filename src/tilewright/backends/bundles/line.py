"""A line of bundles without loops in it, filled one operation or one block after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilewright.backends.bundles.code import Bundle, Issue, LoopControl
from tilewright.backends.bundles.issue_rules import Scoreboard
from tilewright.target.target import Bundles


class Line:
    """Bundles under construction. What is put later comes later in the program; it is placed as
    early as slots, and results of what was put before, allow."""

    def __init__(self, bundles: Bundles) -> None:
        self.slots = dict(bundles.slots)
        self.control = bundles.control
        self.hazards = Scoreboard()
        self._bundles: list[list[Issue | LoopControl]] = []
        self._used: dict[tuple[str, int], int] = {}

    @classmethod
    def after(cls, bundles: Bundles, issues: Sequence[tuple[int, Issue]]) -> Line:
        """The line behind a loop: what was issued before its first cycle is under way, the rest is
        placed where it stands."""
        line = cls(bundles)
        for at, issue in issues:
            if at < 0:
                line._take(issue, at)
            else:
                line._place(issue, at)
        return line

    def put(self, issue: Issue) -> None:
        """Places an operation at the first cycle it can have."""
        at = max(self.hazards.earliest(issue) or 0, 0)
        while not self._free(issue, at):
            at += 1
        self._place(issue, at)

    def overlay(
        self,
        issues: Sequence[tuple[int, Issue]],
        length: int | None = None,
        controls: Sequence[int] = (),
    ) -> None:
        """Places a block of operations that keep their distances. With a length, those from there
        on are issued by what follows the line, which ends there; they only must not come too
        early. So must not what the control slot then does at some cycles."""
        begin = 0
        for at, issue in issues:
            earliest = self.hazards.earliest(issue)
            if earliest is not None:
                begin = max(begin, earliest - at)
        if length is not None:
            begin = max(begin, len(self._bundles) - length)
        mine = [(at, x) for at, x in issues if length is None or at < length]
        while not self._all_free(issues, controls, begin):
            begin += 1
        for at, issue in mine:
            self._place(issue, begin + at)
        if length is not None:
            self._extend(begin + length)

    def drain(self) -> None:
        """Waits until all results are there."""
        self._extend(self.hazards.last)

    def begin_loop(self, count: int, hardware: bool) -> list[Bundle]:
        """The bundles, in one of which the loop behind them is begun."""
        if hardware:
            length = len(self._bundles)
            places = itertools.chain(reversed(range(length)), itertools.count(length))
            at = next(t for t in places if self._is_free(self.control, t))
            self._extend(at + 1)
            self._bundles[at].append(LoopControl("loop", count))
        return self.bundles()

    def bundles(self) -> list[Bundle]:
        return [tuple(b) for b in self._bundles]

    def _extend(self, length: int) -> None:
        self._bundles += [[] for _ in range(length - len(self._bundles))]

    def _place(self, issue: Issue, at: int) -> None:
        self._extend(at + 1)
        self._bundles[at].append(issue)
        self._take(issue, at)

    def _take(self, issue: Issue, at: int) -> None:
        """Slots, registers and memory are its own for a while."""
        for k in range(issue.operation.busy):
            key = issue.operation.slot, at + k
            self._used[key] = self._used.get(key, 0) + 1
        self.hazards.record(issue, at)

    def _free(self, issue: Issue, at: int) -> bool:
        return all(self._is_free(issue.operation.slot, at + k) for k in range(issue.operation.busy))

    def _is_free(self, slot: str, at: int) -> bool:
        return self._used.get((slot, at), 0) < self.slots[slot]

    def _all_free(
        self, issues: Sequence[tuple[int, Issue]], controls: Sequence[int], begin: int
    ) -> bool:
        used = {(self.control, begin + at): 1 for at in controls}
        for at, issue in issues:
            for k in range(issue.operation.busy):
                key = issue.operation.slot, begin + at + k
                used[key] = used.get(key, 0) + 1
        return all(self._used.get(key, 0) + n <= self.slots[key[0]] for key, n in used.items())
