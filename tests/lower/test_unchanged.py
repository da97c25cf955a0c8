"""Passes leave alone what they need not change: statement by statement the same objects."""

from __future__ import annotations

import pytest
from decisions import RARE, draws
from strategies import COMMON_DTYPES
from strategies_loop import random_kernel

from tilewright.analyze.rewrite import (
    replace_in,
    rewrite_accesses,
    simplify_block,
    substitute_block,
    uses,
)
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import f32
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.loop import If, Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.lower.block_sums import block_sums
from tilewright.lower.expand_f8 import expand_f8
from tilewright.lower.expand_math import expand_math
from tilewright.lower.place_storage import place_storage
from tilewright.lower.run_in_order import run_in_order
from tilewright.lower.split_accumulators import split_accumulators
from tilewright.lower.unroll import unroll

PASSES = {
    "run_in_order": run_in_order,
    "expand_f8": expand_f8,
    "expand_math": expand_math,
    "unroll": unroll,
    "split_accumulators": split_accumulators,
    "block_sums": block_sums,
}
PLAIN = """
def f(x: f32[8, 16], y: out(f32[8, 16]), z: out(f32[8])):
    for k in range(8):
        z[k] = f32(1.0)
    for i in parallel(8):
        for j in vectorize(16):
            y[i, j] = x[i, j] * f32(2.0)
    for l in range(8):
        if l < 5:
            z[l] += x[l, 0]
        else:
            for m in range(3):
                z[l] += x[l, m + 1]
"""


def plain() -> Kernel:
    return parse_kernel(PLAIN.strip())


def kernels() -> list[Kernel]:
    return [
        random_kernel(draws(3000 + i), RARE if i % 2 else COMMON_DTYPES, kinds=i % 3 > 0)
        for i in range(40)
    ]


@pytest.mark.parametrize("name", PASSES)
def test_nothing_to_do(name: str):
    kernel = plain()
    assert PASSES[name](kernel) is kernel


@pytest.mark.parametrize("name", ["run_in_order", "expand_f8", "expand_math"])
def test_done_twice(name: str):
    for kernel in kernels():
        once = PASSES[name](kernel)
        assert PASSES[name](once) is once, kernel


def test_storage_in_its_place():
    kernel = plain()
    assert place_storage(kernel, workers=4).body is kernel.body
    for other in kernels():
        once = place_storage(other, workers=4)
        assert str(place_storage(once, workers=4)) == str(once)


NONE = Buffer("none", f32, (1,))
REWRITES = {
    "simplified": lambda body: simplify_block(body, Simplifier({Var("i"): 8})),
    "another variable": lambda body: substitute_block(body, {Var("other"): const(1)}),
    "another buffer": lambda body: rewrite_accesses(body, NONE, NONE, lambda at: at),
    "another statement": lambda body: replace_in(body, plain().body[0], None),
}


@pytest.mark.parametrize("name", REWRITES)
def test_rewrites_that_change_nothing(name: str):
    body = plain().body
    assert REWRITES[name](body) is body


@pytest.mark.parametrize("at", [0, 1, 2])
def test_statements_beside_a_change(at: int):
    """Only what stands around the change is new."""
    kernel = plain()
    z = kernel.params[2]
    x = next(b for b in kernel.inputs)
    for found in (
        replace_in(kernel.body, kernel.body[at], kernel.body[at].with_(body=())),
        tuple(s for k, s in enumerate(kernel.body) if k != at),
    ):
        kept = [s for k, s in enumerate(kernel.body) if k != at]
        assert [s for s in found if any(s is old for old in kernel.body)] == kept
    renamed = rewrite_accesses(kernel.body, z, z.with_(name="w"), lambda i: i)
    assert [a is b for a, b in zip(renamed, kernel.body, strict=True)] == [False, True, False]
    moved = rewrite_accesses(kernel.body, x, x.with_(name="w"), lambda i: i)
    assert [a is b for a, b in zip(moved, kernel.body, strict=True)] == [True, False, False]
    (condition,) = moved[2].body
    assert isinstance(condition, If)
    assert condition.cond is kernel.body[2].body[0].cond


def test_what_is_mentioned():
    kernel = plain()
    x, y, z = kernel.params
    assert [[uses(s, b) for b in (x, y, z)] for s in kernel.body] == [
        [False, False, True], [True, True, False], [True, False, True],
    ]  # fmt: skip
