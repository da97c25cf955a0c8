"""Trials of the timed simulator on random chips: each stream beside the slow clock, and no faster
than its queues and memories allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import slow_clock
from random_chips import as_steps, machine_of, random_chip, random_stream
from random_units import Facts, chip_of, gemm_of, random_facts

from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.parts import part_starts
from tilewright.backends.stream.waits import Synchronised, synchronise
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.chip import build_chip
from tilewright.sim.events import simulate
from tilewright.target.target import Target

MOST = 14  # instructions of a stream
MOST_SUBMITTED = 5  # instructions of a part
TOKENS = (None, 1, 2)  # of one queue for another, untaken at most


@dataclass(frozen=True)
class Tally:
    """Streams that ran on one chip; those that nothing could put in order; hazards in them."""

    streams: int
    refused: int
    stalled: int


def run_chip(seed: int, streams: int) -> Tally:
    """Random streams on one random chip; AssertionError where the two clocks differ."""
    rng = np.random.default_rng(seed)
    chip = random_chip(rng)
    most = MOST_SUBMITTED if seed % 2 and chip.target.end is not None else None
    target = replace(chip.target, token_depth=TOKENS[seed % len(TOKENS)], most_submitted=most)
    chip = replace(chip, target=target)
    ran = refused = stalled = 0
    for number in range(streams):
        stream = random_stream(chip, rng, int(rng.integers(2, MOST + 1)))
        try:
            done = synchronise(stream)
        except CompileError as error:
            if "events of random are in use" not in str(error):
                raise
            refused += 1
            continue
        assert check_distances(done.stream, done.boxes) is None, (seed, number)
        found = simulate(done.stream, done.waits, found=done.boxes)
        starts = part_starts(done.stream).tolist()
        steps = as_steps(chip, done.stream, done.waits, starts)
        slow = slow_clock.run(machine_of(chip.target), steps)
        assert slow is not None, (seed, number)
        for name in ("begin", "leave", "end"):
            mine, theirs = getattr(found, name).tolist(), list(getattr(slow, name))
            assert mine == theirs, (seed, number, name, mine, theirs)
        _check_bound(steps, found.cycles, (seed, number))
        _check_cores(chip.target, done, machine_of(chip.target), steps, (seed, number))
        _check_exposed(steps, slow, (seed, number))
        ran, stalled = ran + 1, stalled + int(found.result.sum() > 0)
    return Tally(ran, refused, stalled)


def _check_cores(
    target: Target, done: Synchronised, machine: slow_clock.Machine, steps: list[slow_clock.Step],
    where: tuple[int, int],
) -> None:  # fmt: skip
    """The stream on two or three cores, which share every memory without banks, or every second
    one."""
    cores, every = 2 + where[1] % 2, 1 + where[0] % 2
    together = [
        m.size is None or (m.banks == 1 and k % every == 0) for k, m in enumerate(target.memories)
    ]
    memories = tuple(
        replace(m, shared_by=cores if one else 1)
        for m, one in zip(target.memories, together, strict=True)
    )
    stream = done.stream
    shifts = np.zeros((cores, len(stream.sites), stream.addresses.shape[1]), np.int64)
    several = replace(target, cores=cores, memories=memories)
    found = simulate(replace(stream, target=several, shifts=shifts), done.waits, found=done.boxes)
    shared = [m.name for m in memories if m.shared_by > 1]
    slow = slow_clock.run_cores(machine, steps, cores, shared)
    assert slow is not None, where
    for core, (mine, theirs) in enumerate(zip(found.cores, slow, strict=True)):
        for name in ("begin", "leave", "end"):
            pair = getattr(mine, name).tolist(), list(getattr(theirs, name))
            assert pair[0] == pair[1], (where, core, name, *pair)


def _check_bound(steps: list[slow_clock.Step], cycles: int, where: object) -> None:
    """All that a queue does, and all that goes through a channel, takes its time."""
    for queue in {s.queue for s in steps}:
        work = sum(s.setup + max([s.busy, *s.transfer.values()]) for s in steps if s.queue == queue)
        assert work <= cycles, where
    for channel in {c for s in steps for c in s.transfer}:
        assert sum(s.transfer.get(channel, 0) for s in steps) <= cycles, where


def _check_exposed(steps: list[slow_clock.Step], times: slow_clock.Times, where: object) -> None:
    """Nothing begins before the exposed results that it reads are there."""
    last: dict[object, int] = {}  # who wrote each byte
    for i, s in enumerate(steps):
        for j in {last[byte] for byte in s.reads if byte in last}:
            if steps[j].queue == s.queue and steps[j].hazard == slow_clock.EXPOSED:
                assert times.begin[i] >= times.begin[j] + steps[j].forward, where
        last |= dict.fromkeys(s.writes, i)


SIZES = (1, 4, 7, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Built:
    """A kernel that was built on a random chip: cycles, and the bound; None if it was refused."""

    facts: Facts
    cycles: int | None
    bound: int | None
    refusal: str = ""


def build_random(seed: int) -> Built:
    """A product on a random chip; AssertionError where it beats its bound, or is wrong."""
    rng = np.random.default_rng(seed)
    facts = random_facts(rng)
    sizes = [int(n) for n in rng.choice(SIZES, 3)]
    try:
        built = build_chip(gemm_of(*sizes), chip_of(facts))
    except (CompileError, ScheduleError) as error:
        return Built(facts, None, None, str(error).splitlines()[0])
    a, b = (rng.integers(-128, 128, x.shape).astype(np.int8) for x in built.source.inputs)
    found = built(a, b, np.zeros((len(a), b.shape[1]), np.int32))
    assert np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32)), (seed, sizes, facts)
    assert built.bound.cycles <= built.cycles, (seed, sizes, facts)
    return Built(facts, built.cycles, built.bound.cycles)
