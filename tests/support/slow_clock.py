"""When the instructions of a stream begin and are done, cycle by cycle, in plain Python.

It shares no code with the timed simulator: it is written from docs/semantics.md ("What queues
mean") alone. In a cycle all that can happen happens, one thing at a time: of several, the fetch of
instructions comes first, then the queue that is described first; of several cores, the first one's
come before the others'. Cycles in which nothing was due are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

STALL, FORWARD, EXPOSED = "stall", "forward", "exposed"


@dataclass(frozen=True)
class Fetching:
    """Instructions of so many bytes come through a channel of so many bytes a cycle (None: not a
    limited one), so many together; cycles until they are there, instructions that there is room
    for."""

    channel: str | None
    bytes: int
    rate: Fraction
    burst: int
    ahead: int
    latency: int


@dataclass(frozen=True)
class Machine:
    """How many instructions each queue holds, cycles to issue one, whether the chip itself has
    queues wait for what they depend on, how many tokens of one queue for another may be untaken
    (None: any number)."""

    depths: Sequence[int]
    issue: int = 1
    interlock: bool = False
    fetch: Fetching | None = None
    room: int | None = None


@dataclass(frozen=True)
class Step:
    """One instruction: its queue; cycles; cycles through each channel; bytes that it reads and
    writes (any numbers); banks that it uses; tokens and events that it takes and gives; whether all
    before it are done before it is issued, and before it is fetched (it begins a part); what its
    queue does where others read what it writes; whether it ends a part: it begins when all before
    it are done."""

    queue: int
    setup: int = 0
    busy: int = 0
    latency: int = 0
    transfer: Mapping[str, int] = field(default_factory=dict)
    reads: frozenset = frozenset()
    writes: frozenset = frozenset()
    banks: frozenset = frozenset()
    takes: Sequence[object] = ()
    gives: Sequence[object] = ()
    barrier: bool = False
    part: bool = False
    hazard: str = STALL
    forward: int = 0
    ends: bool = False


@dataclass(frozen=True)
class Times:
    """Of every instruction; None in all if the stream stops for good."""

    begin: Sequence[int]
    leave: Sequence[int]
    end: Sequence[int]


class _Clock:
    def __init__(
        self, machine: Machine, steps: Sequence[Step], common: dict[str, int] | None = None
    ) -> None:
        """`common` are the channels that cores share, and from when on they are free."""
        self.common = {} if common is None else common
        self.machine, self.steps, self.n = machine, steps, len(steps)
        self.begin: list = [None] * self.n
        self.ready: list = [None] * self.n  # set up
        self.leave: list = [None] * self.n
        self.end: list = [None] * self.n
        self.usable: list = [None] * self.n
        self.entry: list = [None] * self.n
        queues = range(len(machine.depths))
        self.rows = [[i for i, s in enumerate(steps) if s.queue == q] for q in queues]
        self.given: dict[object, list[int]] = {}  # who gave what, in order
        self.taken: dict[object, int] = {}
        self.free: dict[str, int] = {}  # from when on
        self.fetched = 0 if machine.fetch else self.n
        self.there = [0] * self.n  # when it has been fetched
        self.fetching = 0
        self.issuer = 0
        self.own, self.others = self._dependences()

    def _dependences(self) -> tuple[list[set[int]], list[set[int]]]:
        """For each instruction those of its queue that wrote last what it reads, and those of other
        queues that touch the same bytes, one of the two writing."""
        own, others = [], []
        for i, s in enumerate(self.steps):
            mine = set()
            for byte in s.reads:
                writers = [j for j in range(i) if byte in self.steps[j].writes]
                if writers and self.steps[writers[-1]].queue == s.queue:
                    mine.add(writers[-1])
            own.append(mine)
            found = set()
            for j, t in enumerate(self.steps[:i]):
                clash = t.writes & (s.reads | s.writes) or t.reads & s.writes
                if t.queue != s.queue and clash:
                    found.add(j)
            others.append(found)
        return own, others

    @property
    def due(self) -> list[int]:
        """When something may happen."""
        columns = (self.ready, self.leave, self.end, self.usable, self.entry, self.there)
        due = [t for column in columns for t in column if t is not None]
        return [*due, self.issuer, self.fetching, *self.free.values(), *self.common.values()]

    def is_done(self, now: int) -> bool:
        return all(e is not None and e <= now for e in self.end)

    def _channels(self, name: str) -> dict[str, int]:
        return self.common if name in self.common else self.free

    def something(self, now: int) -> bool:
        """Whether something happens in this cycle: one thing at a time."""
        if self._issue(now) or self._fetch(now):
            return True
        return any(self._queue(q, now) for q in range(len(self.rows)))

    # ---------------------------------------------------------- instructions come

    def _issue(self, now: int) -> bool:
        entered = [e for e in self.entry if e is not None]
        k = len(entered)
        if k == self.n or k >= self.fetched or self.there[k] > now or self.issuer > now:
            return False
        s = self.steps[k]
        if s.barrier and any(e is None or e > now for e in self.end[:k]):
            return False
        held = [i for i in self.rows[s.queue] if self.entry[i] is not None]
        if sum(self.begin[i] is None for i in held) >= self.machine.depths[s.queue]:
            return False
        self.entry[k] = self.issuer = now + self.machine.issue
        return True

    def _fetch(self, now: int) -> bool:
        f = self.machine.fetch
        if f is None or self.fetched == self.n or self.fetching > now:
            return False
        before = self.end[: self.fetched]
        if self.steps[self.fetched].part and any(e is None or e > now for e in before):
            return False
        gone = self.fetched + f.burst - f.ahead
        if gone > 0 and (self.entry[gone - 1] is None or self.entry[gone - 1] > now):
            return False
        count = min(f.burst, self.n - self.fetched)
        cycles = math.ceil(f.bytes * count / f.rate)
        start = now
        if f.channel is not None:
            free = self._channels(f.channel)
            start = max(now, free.get(f.channel, 0))
            free[f.channel] = start + cycles
            self.fetching = start + cycles
        else:
            self.fetching = now
        for k in range(self.fetched, self.fetched + count):
            self.there[k] = self.fetching + f.latency
        self.fetched += count
        return True

    # ---------------------------------------------------------- instructions run

    def _queue(self, q: int, now: int) -> bool:
        for place, i in enumerate(self.rows[q]):
            if self.begin[i] is None:
                return self._can_begin(q, place, i, now) and self._start(i, now)
            if self.leave[i] is None:
                return self.ready[i] <= now and self._move(i)
            if self.end[i] is None:  # nothing behind it begins before it has given its tokens
                return self.leave[i] <= now and self._give(q, place, i, now)
        return False

    def _can_begin(self, q: int, place: int, i: int, now: int) -> bool:
        s = self.steps[i]
        if self.entry[i] is None or self.entry[i] > now:
            return False
        if place and self.leave[self.rows[q][place - 1]] > now:
            return False
        for channel in s.takes:
            givers = self.given.get(channel, [])
            k = self.taken.get(channel, 0)
            if k >= len(givers) or self.end[givers[k]] > now:
                return False
        if s.ends and any(e is None or e > now for e in self.end[:i]):
            return False
        others = self.others[i] if self.machine.interlock else ()
        if any(self.end[j] is None or self.end[j] > now for j in others):
            return False
        for j in self.own[i]:
            kind = self.steps[j].hazard
            if kind == STALL and self.end[j] > now:
                return False
            if kind == FORWARD and self.usable[j] > now:
                return False
        for j, t in enumerate(self.steps):
            inside = self.begin[j] is not None and (self.leave[j] is None or self.leave[j] > now)
            if inside and t.queue != q and t.banks & s.banks:
                return False
        return True

    def _start(self, i: int, now: int) -> bool:
        s = self.steps[i]
        for channel in s.takes:
            self.taken[channel] = self.taken.get(channel, 0) + 1
        self.begin[i], self.ready[i] = now, now + s.setup
        mine = [j for j in self.rows[s.queue] if j < i and self.steps[j].hazard == FORWARD]
        if s.hazard == FORWARD:
            self.usable[i] = max([now + s.forward, *(self.usable[j] for j in mine)])
        return True

    def _move(self, i: int) -> bool:
        """Its bytes go through all its channels at once, in the order in which they were asked for,
        which all before it have been."""
        s = self.steps[i]
        used = {c: n for c, n in s.transfer.items() if n}
        start = max([self.ready[i], *(self._channels(c).get(c, 0) for c in used)])
        for c, n in used.items():
            self._channels(c)[c] = start + n
        moved = start + max(used.values()) if used else 0
        self.leave[i] = max(self.ready[i] + s.busy, moved)
        return True

    def _give(self, q: int, place: int, i: int, now: int) -> bool:
        """What it gives, if there is room for its tokens; it is done then."""
        s, room = self.steps[i], self.machine.room
        for channel in s.gives if room is not None else ():
            untaken = len(self.given.get(channel, [])) - self.taken.get(channel, 0)
            if isinstance(channel, tuple) and untaken >= room:
                return False
        before = self.end[self.rows[q][place - 1]] if place else 0
        self.end[i] = max(now + s.latency, before)
        for channel in s.gives:
            self.given.setdefault(channel, []).append(i)
        return True


def run(machine: Machine, steps: Sequence[Step]) -> Times | None:
    """The times of all instructions; None if they stop for good."""
    found = run_cores(machine, steps, 1)
    return None if found is None else found[0]


def run_cores(
    machine: Machine, steps: Sequence[Step], cores: int, shared: Sequence[str] = ()
) -> list[Times] | None:
    """The same of cores that each do all instructions, with some channels in common."""
    common = dict.fromkeys(shared, 0)
    clocks = [_Clock(machine, steps, common) for _ in range(cores)]
    now = 0
    while True:
        while any(clock.something(now) for clock in clocks):
            pass
        if all(clock.is_done(now) for clock in clocks):
            return [Times(clock.begin, clock.leave, clock.end) for clock in clocks]
        later = [t for clock in clocks for t in clock.due if t > now]
        if not later:
            return None
        now = min(later)
