"""Random windows and chains of nests, with what is meant for them: what is accepted computes the
same, whatever was done to the kernel before and is done to it afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trial import Trial
from strategies_expr import Draws
from strategies_schedule import application, applications
from strategies_windows import chains, windows

from tilewright.ir.loop import For, Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.schedule.schedule import Schedule

PRODUCT = """
def k(a: {t}[{rows}, {inner}], b: {t}[{inner}, {columns}], c: out({t}[{rows}, {columns}])):
    for i in range({rows}):
        for j in range({columns}):
            c[i, j] = {t}(0)
            for p in range({inner}):
                c[i, j] += a[i, p] * b[p, j]
"""


@settings(max_examples=60)
@given(kernel=windows(), data=st.data())
def test_rings(kernel: Kernel, data: st.DataObject):
    _run(kernel, data, "ring_buffer")


@settings(max_examples=60)
@given(kernel=chains(), data=st.data())
def test_reverse(kernel: Kernel, data: st.DataObject):
    _run(kernel, data, "reverse_compute_at")


@settings(max_examples=60)
@given(kernel=chains(), data=st.data())
def test_pad(kernel: Kernel, data: st.DataObject):
    _run(kernel, data, "pad")


@pytest.mark.long
@given(data=st.data())
def test_padded_products(data: st.DataObject):
    """Tiles of a product of matrices, padded: no condition is left in their nest."""
    d = Draws(data.draw)
    rows, columns, inner = d.int(2, 9), d.int(2, 9), d.int(2, 9)
    kernel = parse_kernel(
        PRODUCT.format(rows=rows, columns=columns, inner=inner, t=d.pick(("f32", "i32")))
    )
    trial = Trial(kernel, data)
    s = trial.schedule
    c = s.cache_write(s.buffer("c"))
    outer = s.split(s.loop("i_c"), d.int(2, 4))[0]
    if d.chance(2):
        s.split(s.loop("j_c"), d.int(2, 4))
        outer = s.loop("j_c_o") if d.chance(2) and _nested(s) else outer
    s.compute_at(c, outer)
    for name in ("a", "b"):
        s.cache_read(s.buffer(name), outer, "sram")
    loops = [name for name in "ijp" if s.for_(s.loop(name)).extent != 1]
    for name in loops:
        s.pad(s.loop(name), d.int(2, 4))
        trial.story.append(str(s.kernel))
        trial.check()
    nest = str(s.for_(s.loop("i")))
    assert len(loops) < 3 or ("select" not in nest and "if" not in nest), nest


def _nested(s: Schedule) -> bool:
    """With the loops over tiles outermost, if they can be."""
    inner = s.loop("i_c_i")
    if len(s.for_(inner).body) != 1 or not isinstance(s.for_(inner).body[0], For):
        return False
    s.reorder(s.loop("j_c_o"), inner)
    return True


def _run(kernel: Kernel, data: st.DataObject, name: str) -> None:
    trial, d = Trial(kernel, data), Draws(data.draw)
    for _ in range(d.int(0, 2)):
        _apply_any(trial, data)
    step = application(d, trial.schedule, name)
    if step is not None:
        trial.apply(step)
    for _ in range(d.int(0, 3)):
        _apply_any(trial, data)


def _apply_any(trial: Trial, data: st.DataObject) -> None:
    step = data.draw(applications(trial.schedule))
    if step is not None:
        trial.apply(step)
