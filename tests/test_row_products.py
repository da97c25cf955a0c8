"""Kernels of several products with element-wise work between them, whose tiles of rows never leave
the chip: attention, and what is like it."""

import sys
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from attention_chips import vector_core

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_cases import LOWEST, attention, layer_norm, softmax
from chip_kernels import Case

from tilewright import bf16, cast, exp, f32, grid, kernel, local, reduce
from tilewright.analyze.nests import nests
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.plan.normal_form import normal_form
from tilewright.plan.row_products import find_product
from tilewright.plan.vector_form import vector_form


def heads(h: int, n: int, d: int) -> Case:
    """Attention of several heads."""

    @kernel
    def heads(Q: bf16[h, n, d], K: bf16[h, n, d], V: bf16[h, n, d], Y: bf16[h, n, d]):
        scores = local(f32[h, n, n])
        for b, i, j in grid(h, n, n):
            scores[b, i, j] = 0.0
            for k in reduce(d):
                scores[b, i, j] += cast(f32, Q[b, i, k]) * cast(f32, K[b, j, k])
        weights = local(bf16[h, n, n])
        for b, i in grid(h, n):
            most: f32 = LOWEST
            for j in reduce(n):
                most = max(most, scores[b, i, j])
            total: f32 = 0.0
            for j in reduce(n):
                total += exp(scores[b, i, j] - most)
            for j in grid(n):
                weights[b, i, j] = cast(bf16, exp(scores[b, i, j] - most) / total)
        found = local(f32[h, n, d])
        for b, i, k in grid(h, n, d):
            found[b, i, k] = 0.0
            for j in reduce(n):
                found[b, i, k] += cast(f32, weights[b, i, j]) * cast(f32, V[b, j, k])
        for b, i, k in grid(h, n, d):
            Y[b, i, k] = cast(bf16, found[b, i, k])

    def reference(q, k, v):
        one = attention(n, d).reference
        return np.stack([one(*x) for x in zip(q, k, v, strict=True)])

    return Case(f"{h} heads {n}x{d}", heads.kernel, reference, tolerance=2e-2)


def product_and_softmax(n: int, d: int, m: int) -> Case:
    """Rows of probabilities: one product, and reductions behind it."""

    @kernel
    def classify(X: bf16[n, d], W: bf16[d, m], Y: f32[n, m]):
        sums = local(f32[n, m])
        for i, j in grid(n, m):
            sums[i, j] = 0.0
            for k in reduce(d):
                sums[i, j] += cast(f32, X[i, k]) * cast(f32, W[k, j])
        for i in grid(n):
            most: f32 = LOWEST
            for j in reduce(m):
                most = max(most, sums[i, j])
            total: f32 = 0.0
            for j in reduce(m):
                total += exp(sums[i, j] - most)
            for j in grid(m):
                Y[i, j] = exp(sums[i, j] - most) / total

    def reference(x, w):
        sums = x.astype(np.float32) @ w.astype(np.float32)
        e = np.exp(sums - sums.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return Case(f"classify {n}x{d}x{m}", classify.kernel, reference, tolerance=2e-2)


def two_layers(n: int, d: int, m: int) -> Case:
    """Two products with a bias and a ReLU between them."""

    @kernel
    def layers(X: bf16[n, d], W: bf16[d, m], b: f32[m], V: bf16[m, d], Y: f32[n, d]):
        sums = local(f32[n, m])
        for i, j in grid(n, m):
            sums[i, j] = 0.0
            for k in reduce(d):
                sums[i, j] += cast(f32, X[i, k]) * cast(f32, W[k, j])
        hidden = local(bf16[n, m])
        for i, j in grid(n, m):
            hidden[i, j] = cast(bf16, max(sums[i, j] + b[j], 0.0))
        for i, j in grid(n, d):
            Y[i, j] = 0.0
            for k in reduce(m):
                Y[i, j] += cast(f32, hidden[i, k]) * cast(f32, V[k, j])

    def reference(x, w, b, v):
        sums = x.astype(np.float32) @ w.astype(np.float32)
        hidden = np.maximum(sums + b, 0).astype(ml_dtypes.bfloat16)
        return hidden.astype(np.float32) @ v.astype(np.float32)

    return Case(f"layers {n}x{d}x{m}", layers.kernel, reference, tolerance=2e-2)


CASES = {
    "attention": (attention(128, 64), 0.88),
    "attention of many places": (attention(160, 96), 0.95),
    "of few": (attention(32, 16), 0.3),
    "as wide as long": (attention(64, 64), 0.5),
    "heads": (heads(3, 64, 32), 0.75),
    "rows that fill no tile": (attention(48, 16), 0.4),
    "product and softmax": (product_and_softmax(128, 64, 128), 0.8),
    "rows that are filled": (product_and_softmax(100, 32, 64), 0.65),
    "two layers": (two_layers(128, 64, 128), 0.9),
    "as wide as no unit": (attention(64, 20), 0.45),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CASES)
def test_right_and_near_the_bound(name):
    case, share = CASES[name]
    built = build_chip(case.kernel, vector_core())
    arrays = case.arguments()
    assert case.agrees(built(*arrays), case.reference(*arrays[:-1]))
    assert built.bound.cycles >= share * built.cycles, built.bound.cycles / built.cycles
    assert built.replay(*arrays, orders=3) is None


@pytest.mark.parametrize("name", ["attention", "heads", "product and softmax"])
def test_only_inputs_and_results_are_moved(name):
    case, _ = CASES[name]
    built = build_chip(case.kernel, vector_core())
    outside = sum(n for ends, n in built.timeline.moved.items() if "dram" in ends)
    size = sum(b.dtype.bytes * int(np.prod(b.shape)) for b in case.kernel.params)
    assert outside == size


@pytest.mark.parametrize("queue", ["matrix", "vector"])
def test_every_queue_works_on_a_tile_of_its_own(queue):
    """The two that compute are busy for most of the time, both."""
    built = build_chip(attention(160, 96).kernel, vector_core())
    assert built.timeline.busy[queue] > 0.6 * built.cycles


@pytest.mark.parametrize("case", [softmax(100, 64), softmax(24, 64), layer_norm(20, 128)])
def test_numbers_of_rows_are_filled(case):
    built = build_chip(case.kernel, vector_core())
    arrays = case.arguments()
    assert case.agrees(built(*arrays), case.reference(*arrays[:-1]))


def test_what_a_form_says():
    chip = vector_core()
    plain = normal_form(attention(64, 32).kernel)
    form = vector_form(plain, chip, along_rows=True)
    assert form.products == {"scores_rows", "found_rows"}
    assert form.common == {"K_operand", "V_operand"}
    assert {form.memories[n] for n in form.common} == {"local"}
    assert {form.memories[n] for n in form.products} == {"acc"}
    made = {n.buffer.name: find_product(n, chip, form.common) for n in nests(form.kernel.body)}
    assert {n for n, found in made.items() if found is not None} == form.products


def test_a_product_that_cannot_fill_a_unit():
    """40 columns are no multiple of 16, and what is added of weights would count."""
    with pytest.raises(ScheduleError) as error:
        build_chip(attention(40, 16).kernel, vector_core())
    said, *where = str(error.value).splitlines()
    assert said == (
        "j_4 runs 40 times, and cannot run more often: it does not add products of inputs'"
        " elements to 0"
    )
    assert "\n".join(where) == textwrap.indent(
        textwrap.dedent("""\
            in: for i_2 in range(40):
                    for k_1 in range(16):
                        found[i_2, k_1] = f32(0.0)
                        for j_4 in range(40):
                            found[i_2, k_1] += cast(f32, weights[i_2, j_4]) * cast(f32, V[j_4, k_1])
            hint: let it run a multiple of what the chip's unit takes"""),
        "  ",
    )
