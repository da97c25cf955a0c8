"""Deciding a trace anew, by formulas: what the fast path accepts, a replay in full accepts too, and
it makes loops and buffers of just these sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from convolution import CONV, convolution
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import schedule
from schedule_programs import LONG, MATMUL, MATRIX, STENCIL
from strategies_instructions import INSTRUCTIONS
from strategies_schedule import applications

from tilewright.base.errors import ScheduleError
from tilewright.ir.loop import Alloc, For, walk_statements
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Memory, Target

BLUR = """
def blur(x: f32[14, 18], y: out(f32[12, 16])):
    t = alloc(f32[14, 16])
    for a in range(14):
        for b in range(16):
            t[a, b] = x[a, b] + x[a, b + 1] + x[a, b + 2]
    for i in range(12):
        for j in range(16):
            y[i, j] = t[i, j] + t[i + 1, j] + t[i + 2, j]
"""
STRIDED = """
def strided(x: f32[25], y: out(f32[12])):
    p = alloc(f32[25])
    for a in range(25):
        p[a] = select((1 <= a) & (a < 24), x[a], f32(0.0))
    for i in range(12):
        y[i] = f32(0.0)
        for r in range(3):
            y[i] += p[2 * i + r]
"""
SCANNED = """
def scanned(x: f32[12, 8], y: out(f32[12, 8])):
    for t in range(12):
        for i in range(8):
            y[t, i] = x[t, i] + select(0 < t, y[t - 1, (i + 7) % 8], f32(0.0))
"""
CARRIED4 = """
def carried(x: f32[12], y: out(f32[16])):
    for i in range(4):
        y[i] = f32(0.0)
    for i_1 in range(12):
        y[i_1 + 4] = y[i_1] + x[i_1]
"""
HISTOGRAM = """
def histogram(x: f32[12, 8], y: out(f32[3])):
    for o in range(3):
        y[o] = f32(0.0)
    for i in range(12):
        for j in range(8):
            y[i // 4] += x[i, j]
"""
PRODUCT = """
def product(a: f32[12, 8], b: f32[8, 16], c: out(f32[12, 16])):
    for i in range(12):
        for j in range(16):
            c[i, j] = f32(0.0)
            for p in range(8):
                c[i, j] += a[i, p] * b[p, j]
"""
BLOCKED = """
def blocked(x: f32[6, 16], y: out(f32[12, 8])):
    t = alloc(f32[12, 8])
    for a in range(12):
        for b in range(8):
            t[a, b] = x[a // 2, a % 2 * 8 + b] * f32(2.0)
    for i in range(12):
        for j in range(8):
            y[i, j] = t[i, j] + f32(1.0)
"""
PADDED = """
def padded(x: f32[8, 12], w: f32[16, 8, 3], y: out(f32[16, 12])):
    p = alloc(f32[8, 14])
    for a in range(8):
        for b in range(14):
            p[a, b] = select((1 <= b) & (b < 13), x[a, b - 1], f32(0.0))
    c = alloc(f32[16, 12])
    for o in range(16):
        for h in range(12):
            c[o, h] = f32(0.0)
            for i in range(8):
                for r in range(3):
                    c[o, h] += p[i, h + r] * w[o, i, r]
    for m in range(16):
        for n in range(12):
            y[m, n] = max(c[m, n], f32(0.0))
"""
PROGRAMS = (PADDED, BLUR, STRIDED, SCANNED, CARRIED4, HISTOGRAM, PRODUCT, BLOCKED)
FACTORS = (1, 2, 3, 4, 6, 8, 12, 16, 5)


def agree(candidate) -> None:
    """The candidate is what a replay in full gives."""
    kernel = candidate.schedule().kernel
    statements = list(walk_statements(kernel.body))
    loops = {x.var.name: x.extent for x in statements if isinstance(x, For)}
    assert candidate.extents == loops, kernel
    buffers = [*kernel.params, *(x.buffer for x in statements if isinstance(x, Alloc))]
    sizes = {b.name: math.prod(b.shape) * b.dtype.bytes for b in buffers}
    assert candidate.footprints == sizes, kernel


@settings(max_examples=150, deadline=None)
@given(text=st.sampled_from(PROGRAMS), data=st.data())
def test_random_traces(text, data):
    s = schedule(text)
    for _ in range(data.draw(st.integers(1, 3))):
        loops = [x for x in s.loops() if s.for_(x).extent > 1]
        loop = data.draw(st.sampled_from(loops))
        n = s.for_(loop).extent
        s.split(loop, data.draw(st.sampled_from([f for f in range(1, n + 1) if n % f == 0])))
    for _ in range(data.draw(st.integers(0, 7))):
        step = data.draw(applications(s))
        if step is not None:
            try:
                step(s)
            except ScheduleError:
                continue
    space = s.trace.space(s.original)
    agree(space.prove())
    for _ in range(6):
        values = {
            d.name: data.draw(st.sampled_from(FACTORS))
            for d in s.trace.decisions()
            if type(d.value) is int and data.draw(st.integers(0, 2))
        }
        try:
            candidate = space.candidate(values)
        except ScheduleError:
            continue
        agree(candidate)


def test_convolution():
    s = convolution(schedule(CONV))
    space = s.trace.space(s.original)
    with pytest.raises(ScheduleError, match="nothing is proven of this trace yet"):
        space.candidate({})
    agree(space.prove())
    accepted = 0
    for o in (2, 4, 8):
        for h in (2, 4, 7):
            for i in (2, 4):
                agree(space.candidate({"1.factor": o, "2.factor": h, "8.factor": i}))
                accepted += 1
    assert accepted == 18


def test_features():
    s = schedule(PRODUCT)
    i_o, i_i = s.split(s.loop("i"), 4)
    j_o, j_i = s.split(s.loop("j"), 4)
    s.reorder(i_o, j_o, i_i, j_i)
    s.cache_read(s.buffer("a"), i_o, "sram")
    c = s.trace.space(s.original).prove({"1.factor": 6})
    assert c.decisions == (6, 4, 0)
    assert c.extents == {
        "i_o": 2, "a_local_0": 6, "a_local_1": 8, "j_o": 4, "i_i": 6, "j_i": 4, "p": 8
    }  # fmt: skip
    assert c.footprints == {"a": 384, "b": 512, "c": 768, "a_local": 192}
    assert c.trips["p"] == 12 * 16 * 8
    assert c.memory == {"sram": 192}
    assert "range(6)" in str(c.kernel)


REFUSED = [
    ({"1.factor": 5}, "tiles of 5 do not divide the 12 iterations of i"),
    ({"1.factor": 0}, "tiles of 0 do not divide the 12 iterations of i"),
    ({"1.factor": 12}, "i_o is 1, and proven for more than 1"),
    ({"1.faktor": 12}, "the trace has no decision '1.faktor'"),
    ({"1.factor": True}, "1.factor is decided by True"),
]


@pytest.mark.parametrize("values, text", REFUSED)
def test_refused(values, text):
    s = schedule(PRODUCT)
    s.split(s.loop("i"), 4)
    space = s.trace.space(s.original)
    space.prove()
    with pytest.raises(ScheduleError) as caught:
        space.candidate(values)
    assert str(caught.value).splitlines()[0] == text


def test_a_refused_replay_proves_nothing():
    s = schedule(PRODUCT)
    s.split(s.loop("i"), 4)
    space = s.trace.space(s.original)
    with pytest.raises(ScheduleError) as caught:
        space.prove({"1.factor": 0})
    assert 'while replaying step 1: i_o, i_i = s.split(s.loop("i"), 0)' in str(caught.value)


def test_dependences_pin_factors():
    """Iterations 4 apart depend on each other: lanes up to 4 are legal, and 6 are not."""
    s = schedule(CARRIED4)
    _, lanes = s.split(s.loop("i_1"), 4)
    s.vectorize(lanes)
    space = s.trace.space(s.original)
    space.prove()
    with pytest.raises(ScheduleError, match="a decision is 6 instead of 4"):
        space.candidate({"1.factor": 6})
    with pytest.raises(ScheduleError, match="the lanes of i_1_i are not independent"):
        space.prove({"1.factor": 6})
    agree(space.prove({"1.factor": 3}))


def test_accumulations_pin_workers():
    s = schedule(HISTOGRAM)
    workers, _ = s.split(s.loop("i"), 4)
    s.parallel(workers)
    space = s.trace.space(s.original)
    space.prove()
    with pytest.raises(ScheduleError, match="a decision is 6 instead of 4"):
        space.candidate({"1.factor": 6})


def test_blocks_of_layouts_pin_factors():
    """A tile that is a block of a layout must stay one; others need not."""
    s = schedule(PADDED)
    s.pack_layout(s.buffer("w"), Layout((0, 1, 2), ((0, 4),)))
    m_o, m_i = s.split(s.loop("m"), 4)
    n_o, n_i = s.split(s.loop("n"), 6)
    s.reorder(m_o, n_o, m_i, n_i)
    s.compute_at(s.buffer("c"), n_o)
    s.compute_at(s.buffer("p"), n_o)
    space = s.trace.space(s.original)
    space.prove()
    agree(space.candidate({"3.factor": 3}))
    with pytest.raises(ScheduleError) as caught:
        space.candidate({"2.factor": 8})
    assert caught.value.what == "a decision is 8 instead of 4, and a layout has blocks along o"


def test_layouts_of_what_an_instruction_reads():
    """A block of a layout is along a loop that is the instruction's own."""
    s = schedule(MATRIX)
    (copy,) = (x for x in INSTRUCTIONS if x.name == "copy_f32")
    s.split(s.loop("i"), 2)
    s.tensorize(s.loop("j"), copy)
    s.pack_layout(s.buffer("x"), Layout((1, 0), ((1, 2),)))
    agree(s.trace.space(s.original).prove())


def test_rests_pin_factors():
    s = schedule(PRODUCT)
    s.split(s.loop("i"), 5)
    s.split(s.loop("j"), 4)
    space = s.trace.space(s.original)
    space.prove()
    agree(space.candidate({"2.factor": 8}))
    with pytest.raises(ScheduleError, match="its tiles leave a rest"):
        space.candidate({"1.factor": 4})


def test_pipelines_are_proven_one_by_one():
    s = schedule(STENCIL)
    s.peel(s.loop("t"), 1)
    space = s.trace.space(s.original)
    agree(space.prove())
    with pytest.raises(ScheduleError, match="a decision is 2 instead of 1, and peel was proven"):
        space.candidate({"1.count": 2})
    agree(space.prove({"1.count": 2}))
    assert space.candidate({"1.count": 1}).decisions == (1,)


def test_capacity():
    s = schedule(PRODUCT)
    i_o, _ = s.split(s.loop("i"), 2)
    s.cache_read(s.buffer("a"), i_o, "sram")
    target = Target("small", 1, 1e9, memories=(Memory("sram", 130),))
    space = s.trace.space(s.original, target)
    space.prove()
    assert space.candidate({"1.factor": 4}).memory == {"sram": 128}
    with pytest.raises(ScheduleError) as caught:
        space.candidate({"1.factor": 6})
    assert caught.value.what == "allocations take 192 bytes of sram, which has 130"


def test_what_a_ring_carries_pins_factors():
    """After a step without a rule, iterations that were independent may not be any more."""
    s = schedule(BLUR)
    i_o, _ = s.split(s.loop("i"), 2)
    s.compute_at(s.buffer("t"), i_o)
    s.ring_buffer(s.buffer("t"), i_o)
    s.split(i_o, 2)
    space = s.trace.space(s.original)
    agree(space.prove())
    for name in ("1.factor", "4.factor"):
        with pytest.raises(ScheduleError, match="a decision is 3 instead of 2"):
            space.candidate({name: 3})


def test_symbols_are_proven_one_by_one():
    s = schedule(LONG)
    s.split(s.loop("i"), 4)
    space = s.trace.space(s.original)
    space.prove()
    with pytest.raises(ScheduleError, match="are proven one by one"):
        space.candidate({"1.factor": 2})


def test_columns():
    s = schedule(MATMUL)
    s.split(s.loop("p"), 3)
    space = s.trace.space(s.original)
    good, found = space.columns({"1.factor": np.array([0, 1, 2, 3, 4, 6])})
    assert good.tolist() == [False, False, True, True, False, False]
    assert found["p_o"][good].tolist() == [3, 2]
    assert found["p_i.trips"][good].tolist() == [120, 120]
    assert found["a.bytes"] == 96


def test_a_candidate_is_a_trace():
    s = Schedule(schedule(PRODUCT).kernel)
    s.split(Loop(s.loop("i").var), 4)
    c = s.trace.space(s.original).prove({"1.factor": 3})
    assert str(c.trace) == 'i_o, i_i = s.split(s.loop("i"), 3)'
