"""Dependences: what conflict() says against what iterations really touch."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import defaultdict

import pytest
from executor import Executor, Touch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import arrays, kernels, symbol_values

from tilewright.analyze.dependence import conflict
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.loop import For, Kernel, symbols, walk_statements
from tilewright.ir.text.loop import parse_kernel


def loops(kernel: Kernel) -> list[For]:
    return [s for s in walk_statements(kernel.body) if isinstance(s, For)]


def simplifier(kernel: Kernel) -> Simplifier:
    return Simplifier({s.var: s.extent for s in loops(kernel)})


def found_conflicts(touched: list[Touch], loop: For, *, concurrent: bool) -> list[tuple]:
    """Pairs of accesses to one element in two iterations of one run of a loop, one a write; for
    buffers that were there before the loop."""
    by_element = defaultdict(list)
    for t in touched:
        here = [(run, i) for x, run, i in t.within if x.var == loop.var]
        if here:
            by_element[t.buffer, t.birth, t.place, here[0][0]].append((here[0][1], t))
    found = []
    for group in by_element.values():
        for (i, a), (j, b) in itertools.combinations(group, 2):
            reads = a.how == b.how == "read"
            commute = not concurrent and a.how == b.how and a.how not in ("read", "write")
            if i != j and not reads and not commute:
                found.append((a, b))
    return found


@settings(max_examples=250)
@given(kernel=kernels(), data=st.data(), concurrent=st.booleans())
def test_no_conflict_is_missed(kernel: Kernel, data: st.DataObject, concurrent: bool):
    """It may see conflicts that are none, but never the other way round."""
    values = data.draw(symbol_values(symbols(kernel)))
    executor = Executor(concurrent=False, log=True)
    executor.run(kernel, data.draw(arrays(kernel.inputs, values)), values)
    s = simplifier(kernel)
    for loop in loops(kernel):
        if conflict(loop.body, loop.var, s, concurrent=concurrent) is None:
            real = found_conflicts(executor.touched, loop, concurrent=concurrent)
            assert not real, f"{loop.var}: {real[0][0]} and {real[0][1]} in\n{kernel}"


def read(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text).strip())


INDEPENDENT = {
    "rows": "for i in range(4):\n        y[i] = x[i]",
    "a row each": "for i in range(4):\n        for j in range(3):\n            z[i, j] = x[j]",
    "tiles": "for i in range(2):\n        for j in range(2):\n            y[i * 2 + j] = x[0]",
    "blocks": "for i in range(12):\n        z[i // 3, i % 3] = x[0]",
    "own memory": "for i in range(4):\n        t = alloc(f32[1])\n        t[0] = x[i]\n"
    "        y[i] = t[0]",
    "even and odd": "for i in range(2):\n        y[i * 2] = x[0]\n        y[i * 2 + 1] = x[1]",
    "guarded": "for i in range(8):\n        if i < 4:\n            y[i] = x[i]",
    "reversed": "for i in range(4):\n        y[3 - i] = x[i]",
}
DEPENDENT = {
    "one place": "for i in range(4):\n        y[0] = x[i]",
    "neighbours": "for i in range(3):\n        y[i] = y[i + 1]",
    "overlapping tiles": "for i in range(2):\n        for j in range(3):\n"
    "            y[i + j] = x[j]",
    "a place from memory": "for i in range(4):\n        y[n[i]] = x[i]",
    "a place that changes": "for i in range(4):\n        m[0] = 3 - i\n        y[i + m[0]] = x[i]",
    "a place of its own memory": "for i in range(4):\n        t = alloc(i64[1])\n"
    "        t[0] = 3 - i\n        y[i + t[0]] = x[i]",
    "half": "for i in range(4):\n        y[i // 2] = x[i]",
    "remainder": "for i in range(4):\n        y[i % 3] = x[i]",
    "a row and a column": "for i in range(3):\n        z[i, 1] = x[i]\n        z[0, i] = x[i]",
    "sum and read": "for i in range(4):\n        y[0] += x[i]\n        y[1] = y[0]",
    "two operators": "for i in range(4):\n        y[0] += x[i]\n"
    "        accumulate(max, y[0], x[i])",
}
HEAD = """\
def k(x: f32[8], n: i64[4], y: out(f32[4]), z: out(f32[4, 3]), m: out(i64[1])):
    """


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent(name: str):
    kernel = read(HEAD + INDEPENDENT[name])
    loop = loops(kernel)[0]
    assert conflict(loop.body, loop.var, simplifier(kernel), concurrent=True) is None


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent(name: str):
    kernel = read(HEAD + DEPENDENT[name])
    loop = loops(kernel)[0]
    assert conflict(loop.body, loop.var, simplifier(kernel)) is not None


def test_sums_conflict_only_at_the_same_time():
    kernel = read(HEAD + "for i in range(4):\n        y[0] += x[i]")
    (loop,) = loops(kernel)
    assert conflict(loop.body, loop.var, simplifier(kernel)) is None
    found = conflict(loop.body, loop.var, simplifier(kernel), concurrent=True)
    wanted = "write after write: accumulation of y[0], then accumulation of y[0], for example "
    assert re.fullmatch(re.escape(wanted) + r"at i=(\d) and at i=(?!\1)\d", str(found))


def test_text_of_a_conflict():
    kernel = read(HEAD + "for i in range(3):\n        y[i] = y[i + 1] + x[n[i]]")
    (loop,) = loops(kernel)
    found = str(conflict(loop.body, loop.var, simplifier(kernel)))
    wanted = "write after read: read of y[i + 1], then write of y[i], for example "
    assert found in [f"{wanted}at i={i} and at i={i + 1}" for i in range(2)]
