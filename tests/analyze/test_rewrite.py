"""Rewriting programs: what changes, and that everything else stays the same object."""

from __future__ import annotations

import textwrap

from tilewright.analyze.rewrite import (
    replace_in,
    rewrite_accesses,
    simplify_block,
    substitute_block,
    uses,
)
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Var, const
from tilewright.ir.loop import For, Kernel, Store, walk_statements
from tilewright.ir.text.loop import parse_kernel

KERNEL = """
def k(x: f32[8], n: i64[8], y: out(f32[8]), z: out(f32[8])):
    t = alloc(f32[8])
    for i in range(8):
        t[i] = x[n[i] + 0]
    for j in range(8):
        if t[j] > f32(0.0):
            y[j] = t[7 - j]
        else:
            y[j] += x[j]
    for l in range(8):
        z[l] = x[l]
"""


def kernel() -> Kernel:
    return parse_kernel(KERNEL.strip())


def body(k: Kernel, block) -> str:
    lines = str(k.with_(body=block)).splitlines()[1:]
    return textwrap.dedent("\n".join(lines))


def test_a_statement_is_replaced_by_identity():
    k = kernel()
    store = next(s for s in walk_statements(k.body) if isinstance(s, Store))
    block = replace_in(k.body, store, (store, store))
    assert body(k, block).splitlines()[1:4] == [
        "for i in range(8):",
        "    t[i] = x[n[i] + 0]",
        "    t[i] = x[n[i] + 0]",
    ]
    assert block[2] is k.body[2]
    assert replace_in(k.body, Store(store.buffer, store.indices, store.value), None) is k.body


def test_variables_are_replaced_everywhere():
    k = kernel()
    loop = k.body[2]
    assert isinstance(loop, For)
    found = substitute_block(loop.body, {loop.var: Var("i") + 1})
    assert body(k, found) == (
        "if t[i + 1] > f32(0.0):\n    y[i + 1] = t[7 - (i + 1)]\nelse:\n    y[i + 1] += x[i + 1]"
    )
    assert substitute_block(loop.body, {Var("other"): const(0)}) is loop.body


def test_accesses_are_redirected():
    k = kernel()
    old = next(b for b in (s.buffer for s in k.body[:1]))
    new = old.with_(name="s", shape=(2, 4))
    found = rewrite_accesses(k.body, old, new, lambda at: (at[0] // 4, at[0] % 4))
    assert body(k, found).splitlines()[:6] == [
        "s = alloc(f32[2, 4])",
        "for i in range(8):",
        "    s[i // 4, i % 4] = x[n[i] + 0]",
        "for j in range(8):",
        "    if s[j // 4, j % 4] > f32(0.0):",
        "        y[j] = s[(7 - j) // 4, (7 - j) % 4]",
    ]
    assert found[3] is k.body[3]
    assert uses(k.body[2], old)
    assert not uses(found[2], old)


def test_decided_conditions_give_way():
    k = parse_kernel(
        """
def k(y: out(f32[8])):
    for i in range(8):
        if i < 8:
            y[i // 8 + i] = f32(1.0)
        else:
            y[i] = f32(2.0)
        if i < 4:
            if i >= 0:
                y[i] = f32(3.0)
    """.strip()
    )
    (loop,) = k.body
    assert isinstance(loop, For)
    found = simplify_block(k.body, Simplifier({loop.var: 8}))
    assert body(k, found) == (
        "for i in range(8):\n    y[i] = f32(1.0)\n    if i < 4:\n        y[i] = f32(3.0)"
    )
    assert simplify_block(found, Simplifier({loop.var: 8})) is found
