"""What is plain is settled without integer sets, which take a hundred times as long: how many are
made for a program, and how many questions are asked of them."""

from __future__ import annotations

import textwrap

import pytest

from tilewright.analyze import bounds, dependence
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.loop import For, Kernel, walk_statements
from tilewright.ir.text.loop import parse_kernel


def read(head: str, body: str) -> Kernel:
    return parse_kernel(f"def f({head}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}")


@pytest.fixture
def count(monkeypatch):
    """How often a function of a module is called."""

    def counted(module, name: str) -> list:
        calls, function = [], getattr(module, name)

        def call(*args, **kwargs):
            calls.append(args)
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, call)
        return calls

    return counted


# ---------------------------------------------------------------- faults

HEAD = "x: f32[4], y: out(f32[4])"
FILLED = "t = alloc(f32[4])\nfor i in range(4):\n"
# What reads t asks nothing, or for the elements that it reads and those of each write before it.
PLAIN: dict[str, tuple[str, int]] = {
    "stored in the same iteration": (f"{FILLED}    t[i] = x[i]\n    y[i] = t[i]", 0),
    "under the same condition": (
        f"{FILLED}    if i < 4:\n        t[i] = x[i]\n        y[i] = t[i]", 0,
    ),
    "under fewer conditions": (
        f"{FILLED}    t[i] = x[i]\n    y[i] = x[i]\n    if i < 4:\n        y[i] = t[i]", 0,
    ),
    "under more conditions": (
        f"{FILLED}    if i < 4:\n        t[i] = x[i]\n    y[i] = t[i]", 2,
    ),
    "in another loop": (
        f"{FILLED}    t[i] = x[i]\nfor j in range(4):\n    y[j] = t[j]", 2,
    ),
    "elsewhere": (f"{FILLED}    t[3 - i] = x[i]\nfor i_1 in range(4):\n    y[i_1] = t[i_1]", 2),
    "in a loop of its own": (
        ("t = alloc(f32[4])\nfor i in range(4):\n    for k in range(2):\n        t[i] = x[i]\n"
        "    y[i] = t[i]"), 2,
    ),
    "in a loop around both": (
        ("t = alloc(f32[4])\nfor k in range(2):\n    for i in range(4):\n        t[i] = x[i]\n"
        "        y[i] = t[i]"), 0,
    ),
    "a number before a loop": (
        "t = alloc(f32[4])\nt[1] = x[1]\nfor i in range(4):\n    y[i] = t[1]", 0,
    ),
    "one of two numbers": (
        "t = alloc(f32[4])\nt[1] = x[1]\nt[2] = x[2]\nfor i in range(4):\n    y[i] = t[2]", 0,
    ),
    "a number that another write may be": (
        ("t = alloc(f32[4])\nfor k in range(4):\n    t[k] = x[k]\nfor i in range(4):\n"
        "    y[i] = t[1]"), 2,
    ),
    "a sum": (f"{FILLED}    t[i] = f32(0.0)\n    t[i] += x[i]\n    y[i] = t[i]", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_reads_of_what_was_stored(name: str, count):
    body, wanted = PLAIN[name]
    kernel = read(HEAD, body)
    found = list(bounds.accesses(kernel.body))
    sets = count(bounds, "_set")
    assert list(bounds._undefined(found, set(kernel.inputs), {})) == []
    assert len(sets) == wanted


def test_an_element_that_is_not_the_one(count):
    """Writes of other elements, by their numbers, are not asked about."""
    kernel = read(
        HEAD,
        "t = alloc(f32[4])\nfor k in range(2):\n    t[1] = x[1]\n    t[2] = x[2]\n"
        "for i in range(4):\n    y[i] = t[1]",
    )
    found = list(bounds.accesses(kernel.body))
    sets = count(bounds, "_set")
    assert list(bounds._undefined(found, set(kernel.inputs), {})) == []
    assert len(sets) == 2  # the read, and one of the two writes


FAULTS = [
    ("y[0] = x[0]\nt[i] += x[i]", "t[i] is accumulated before it has a value"),
    ("y[0] = t[i]", "t[i] is read before it has a value"),
]


@pytest.mark.parametrize("inner, what", FAULTS)
def test_how_it_is_used(inner: str, what: str):
    body = f"t = alloc(f32[4])\nfor i in range(4):\n{textwrap.indent(inner, '    ')}"
    kernel = read("x: f32[4], y: out(f32[1])", body)
    assert [f.what for f in bounds.faults(kernel)] == [what]


MAYBE = [("i < 4", [True] * 2), ("i > 3", [False] * 2), ("i > 2", [True] * 2)]


@pytest.mark.parametrize("condition, found", MAYBE)
def test_what_may_happen(condition: str, found: list[bool]):
    kernel = read(HEAD, f"for i in range(4):\n    if {condition}:\n        y[i] = x[i]")
    assert [bounds.may_happen(a) for a in bounds.accesses(kernel.body)] == found


@pytest.mark.parametrize("times, found", [(0, False), (1, True), (3, True)])
def test_what_may_happen_where_memory_decides(times: int, found: bool):
    """Then a loop that never runs is what counts."""
    kernel = read(
        "x: f32[4], p: i64[4], y: out(f32[4])",
        f"for k in range({times}):\n    for i in range(4):\n        if x[p[i]] > f32(0.0):\n"
        "            y[i] = x[i]",
    )
    assert {bounds.may_happen(a) for a in bounds.accesses(kernel.body)} == {found}


# ---------------------------------------------------------------- conflicts

ROWS = "x: f32[64], n: i64[8], y: out(f32[64]), z: out(f32[8, 8])"
# Asked of a set only where the linear forms do not tell.
APART: dict[str, tuple[str, bool, int]] = {
    "rows": ("y[i] = x[i]", False, 0),
    "from behind": ("y[7 - i] = x[i]", False, 0),
    "every other": ("y[i * 2] = x[i]\ny[i * 2 + 1] = x[i]", False, 0),
    "tiles": ("for j in range(8):\n    y[i * 8 + j] = x[j]", False, 0),
    "tiles with room": ("for j in range(5):\n    y[i * 7 + j + 1] = x[j]", False, 0),
    "tiles that just meet": ("for j in range(8):\n    y[i * 7 + j] = x[j]", True, 1),
    "tiles of two loops": (
        "for j in range(2):\n    for k in range(4):\n        y[i * 8 + j * 4 + k] = x[j]", False, 0,
    ),
    "one of two axes": ("for j in range(8):\n    z[j, i] = x[j]", False, 0),
    "blocks": ("z[i // 4, i % 4] = x[i]", False, 0),
    "blocks, the other way": ("z[i % 4, i // 4] = x[i]", False, 0),
    "half": ("y[i // 2] = x[i]", True, 1),
    "neighbours": ("y[i] = y[i + 1]", True, None),
    "what is read is not written": ("y[i] = x[0]", False, 0),
    "one element": ("y[0] = x[i]", True, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_iterations_apart(name: str, count):
    body, conflicts, wanted = APART[name]
    kernel = read(ROWS, f"for i in range(8):\n{textwrap.indent(body, '    ')}")
    loops = [s for s in walk_statements(kernel.body) if isinstance(s, For)]
    asked = count(dependence, "sample")
    s = Simplifier({x.var: x.extent for x in loops})
    found = dependence.conflict(loops[0].body, loops[0].var, s, concurrent=True)
    assert (found is not None) == conflicts
    assert wanted is None or len(asked) == wanted


@pytest.mark.parametrize("times, asked", [(1, 0), (2, 1)])
def test_one_iteration_conflicts_with_none(times: int, asked: int, count):
    kernel = read(ROWS, f"for i in range({times}):\n    y[n[i]] = x[i]")
    (loop,) = kernel.body
    calls = count(dependence, "violation")
    found = dependence.conflict(loop.body, loop.var, Simplifier({loop.var: times}))
    assert (len(calls), found is not None) == (asked, asked > 0)
