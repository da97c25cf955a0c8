"""Limits of streams, each at it and one beyond; what is given and never taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from handmade_streams import BYTES, copier, stream_of
from stream_cases import CASES

from tilewright.backends.stream import durations as module
from tilewright.backends.stream.boxes import dependences
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.durations import durations
from tilewright.backends.stream.micro_ops import place_lists
from tilewright.backends.stream.waits import no_waits, synchronise
from tilewright.base.errors import CompileError, TargetError
from tilewright.target.vary import with_memory


def copies(kind: str, *places: tuple[str, int, int], depth: int = 64):
    rows = [(f"{queue}_copy", {"n": 8}, (source, to)) for queue, source, to in places]
    return stream_of(copier(kind, depth), rows, {"m": BYTES})


@pytest.mark.parametrize("room, refused", [(0, False), (-1, True)])
def test_cycles_together(room: int, refused: bool, monkeypatch):
    """Each copy takes 8 cycles, 7 of latency and 1 to be issued."""
    stream = copies("interlock", ("load", 0, 64), ("compute", 64, 128), ("store", 128, 0))
    monkeypatch.setattr(module, "TOGETHER", 3 * 16 + room)
    if not refused:
        found = durations(stream)
        assert (found.work.tolist(), found.latency.tolist()) == ([8] * 3, [7] * 3)
        return
    with pytest.raises(CompileError) as error:
        durations(stream)
    assert error.value.what == "the stream's 3 instructions take up to 48 cycles"
    assert error.value.hint == "47 are simulated: correct the description's costs"


@pytest.mark.parametrize("event", [0, 1, 5])
def test_an_event_that_nothing_takes(event: int):
    stream = copies("events", ("load", 0, 64), ("store", 128, 192))
    for row in (0, 1):
        waits = no_waits(stream)
        waits.sets[row] |= np.uint64(1 << event)
        fault = check_waits(stream, None, waits)
        assert fault is not None
        assert fault.rows == (row,)
        assert str(fault).endswith(f"gives event {event} that nothing takes")


def test_an_event_that_is_set_twice():
    stream = copies("events", ("load", 0, 64), ("store", 128, 192))
    waits = no_waits(stream)
    waits.sets[:] = np.uint64(2)
    assert str(check_waits(stream, None, waits)).endswith("sets event 1, which is set already")


def test_a_token_that_nothing_takes():
    stream = copies("tokens of all", ("load", 0, 64), ("store", 128, 192))
    for row, queue, name in ((0, 1, "compute"), (0, 2, "store"), (1, 0, "load"), (1, 1, "compute")):
        waits = no_waits(stream)
        waits.pushes[row] |= waits.pushes.dtype.type(1 << queue)
        fault = check_waits(stream, None, waits)
        assert fault is not None
        assert fault.rows == (row,)
        assert str(fault).endswith(f"gives a token to {name} that nothing takes")


@pytest.mark.parametrize("kind", ["events", "tokens of all"])
def test_what_waits_without_end(kind: str):
    """The one that would give it stands behind the one that waits."""
    stream = copies(kind, ("load", 0, 64), ("store", 64, 128))
    done = synchronise(stream)
    assert check_waits(done.stream, done.need, done.waits) is None
    waits = replace(done.waits, **{
        name: np.zeros_like(getattr(done.waits, name)) for name in ("sets", "pushes")
    })  # fmt: skip
    fault = check_waits(done.stream, dependences(done.stream), waits)
    assert fault is not None
    assert "that nothing gives" in str(fault)


@pytest.mark.parametrize("entries", [1, 2, 3, 4, 8])
def test_lists_and_the_memory_that_holds_them(entries: int):
    """What is too small for the longest list is refused; else each list fits where it is put."""
    stream = CASES["vta"].build().stream
    (kind,) = {s.instruction.micro_ops.with_(axes=()) for s in stream.sites if s.entries}
    longest = max(s.entries for s in stream.sites)
    target = with_memory(stream.target, kind.memory, size=entries * kind.bytes)
    lists = np.full(len(stream), -1, np.int64)
    keep = np.array([not s.instruction.name.startswith("load_uop") for s in stream.sites])
    rows = keep[stream.site]
    bare = replace(
        stream, target=target, site=stream.site[rows], fields=stream.fields[rows],
        addresses=stream.addresses[rows], lists=lists[rows],
    )  # fmt: skip
    if entries < longest:
        with pytest.raises(TargetError) as error:
            place_lists(bare)
        first = next(s.entries for k in bare.site if (s := bare.sites[k]).entries > entries)
        assert error.value.what == (
            f"an instruction needs {first} micro-operations, and {kind.memory} holds {entries}"
        )
        return
    placed = place_lists(bare)
    at = [(placed.lists[r], placed.sites[k].entries) for r, k in enumerate(placed.site)]
    assert all(0 <= begin <= entries - n for begin, n in at if n)
