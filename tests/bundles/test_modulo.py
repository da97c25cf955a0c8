"""Modulo scheduling: intervals never below the bounds, schedules that keep every dependence and
every slot, whatever the graph."""

from collections import Counter
from itertools import product

from bundle_programs import small
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.backends.bundles.modulo import (
    Modulo,
    heights,
    modulo_schedule,
    recurrence_bound,
    resource_bound,
)
from tilewright.backends.bundles.operation_graph import Edge
from tilewright.backends.bundles.operations import Operation
from tilewright.ir.loop import Call

SLOTS = {"ls": 2, "alu": 1}
CALL = Call(small().instructions[0], ())


def operation(number: int, slot: str, busy: int = 1) -> Operation:
    return Operation(number, CALL, (), slot, busy, 1, 0.0, (), 0)


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> tuple[list[Operation], list[Edge]]:
    """Operations, and edges that never lead from one to itself within an iteration."""
    count = draw(st.integers(1, most))
    operations = [
        operation(k, draw(st.sampled_from(list(SLOTS))), draw(st.sampled_from([1, 1, 1, 2, 3])))
        for k in range(count)
    ]
    edges = []
    for _ in range(draw(st.integers(0, 2 * count))):
        a, b = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        distance = draw(st.integers(0 if a < b else 1, 3))
        edges.append(Edge(a, b, draw(st.integers(0, 6)), distance))
    return operations, edges


def bound(operations: list[Operation], edges: list[Edge]) -> int:
    needed = resource_bound(operations, SLOTS)
    return max(needed, recurrence_bound(len(operations), edges), 1)


def faults(operations: list[Operation], edges: list[Edge], found: Modulo) -> list[str]:
    """What is wrong with a schedule: written anew, without the scheduler's tables."""
    wrong = []
    for e in edges:
        if found.times[e.to] + e.distance * found.interval < found.times[e.of] + e.delay:
            wrong.append(f"{e}")
    used: Counter[tuple[str, int]] = Counter()
    for o, t in zip(operations, found.times, strict=True):
        used.update((o.slot, (t + k) % found.interval) for k in range(o.busy))
    wrong += [f"{key}: {n}" for key, n in used.items() if n > SLOTS[key[0]]]
    return wrong


@given(graphs())
def test_schedules_are_valid(graph: tuple[list[Operation], list[Edge]]):
    operations, edges = graph
    least = bound(operations, edges)
    for interval in range(least, least + 40):
        found = modulo_schedule(operations, edges, SLOTS, interval=interval)
        if found is not None:
            assert found.interval == interval
            assert min(found.times) == 0
            assert faults(operations, edges, found) == []
            return
    raise AssertionError(f"no schedule with {least} to {least + 39} cycles")


@given(graphs())
def test_nothing_shorter_than_the_bounds(graph: tuple[list[Operation], list[Edge]]):
    """Below the bound a chain of dependences comes back to itself too early, or slots overflow."""
    operations, edges = graph
    chain = recurrence_bound(len(operations), edges)
    assert heights(len(operations), edges, chain) is not None
    if chain > 0:
        assert heights(len(operations), edges, chain - 1) is None
    for slot, count in SLOTS.items():
        used = sum(o.busy for o in operations if o.slot == slot)
        assert used <= count * resource_bound(operations, SLOTS)


@given(graphs(most=3))
@settings(max_examples=40)
def test_the_least_interval_of_small_graphs(graph: tuple[list[Operation], list[Edge]]):
    """What every placement in a few cycles says: the scheduler misses none of these."""
    operations, edges = graph
    best = next(
        interval
        for interval in range(1, 60)
        if any(
            not faults(operations, edges, Modulo(interval, times))
            for times in product(range(14), repeat=len(operations))
        )
    )
    least = bound(operations, edges)
    assert least <= best
    found = (modulo_schedule(operations, edges, SLOTS, interval=n) for n in range(least, best + 1))
    assert any(found)


def test_a_sum_waits_for_itself():
    """One operation that needs its own result of the iteration before, five cycles later."""
    sums = [operation(0, "alu")]
    edges = [Edge(0, 0, 5, 1)]
    assert recurrence_bound(1, edges) == 5
    assert modulo_schedule(sums, edges, SLOTS, interval=4) is None
    assert modulo_schedule(sums, edges, SLOTS, interval=5) == Modulo(5, (0,))


def test_loads_come_as_late_as_they_can():
    """Eight products of what two loads bring: the loads are there when they are needed first."""
    loads = [operation(0, "ls"), operation(1, "ls")]
    products = [operation(2 + k, "alu") for k in range(8)]
    edges = [Edge(k, 2 + j, 4, 0) for k in range(2) for j in range(4 * k, 4 * k + 4)]
    found = modulo_schedule([*loads, *products], edges, SLOTS, interval=8)
    assert found is not None
    for k in range(2):
        first = min(found.times[2 + 4 * k : 6 + 4 * k])
        assert first - found.times[k] == 4
