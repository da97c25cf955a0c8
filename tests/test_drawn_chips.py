"""Chips that are drawn at random: what their descriptions have in common with what a team would
write, kernels that were refused on one once, and a few chips against a search by brute force."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_chips import Facts, draw_facts, target_of, text_of
from drawn_kernels import Case, Sizes, cases, draw_inputs
from sequence_search import Search

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from search_chips import Found, same, summary, try_chip

from tilewright import build, cast, f32, grid, i8, i32, kernel, out, reduce
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.interpret import interpret
from tilewright.target.describe import TargetBuilder, flag
from tilewright.target.pairs import selectable

ACC = "acc"
PLAIN = Facts(
    kind="i8", rows=0, columns=4, depth=4, orders=("mk", "nk", "mn"),
    memories=("spad", "wgt", "acc"), chain=False, begins="flag", loads="strided", turns=False,
    stores="plain", apart=False, vector=(), in_place=False, bias="none", waits="events",
    queues=("load", "unit", "store"),
)  # fmt: skip
BYTES = replace(PLAIN, stores="narrow")

# What a kernel was refused on once, and instructions that it needs there.
MENDED: dict[str, tuple[Facts, str, set[str]]] = {
    "begins with an instruction of its own": (
        replace(PLAIN, begins="two", depth=1),
        "product",
        {"multiply", "multiply_add"},
    ),
    "begins with 0.0": (replace(PLAIN, kind="f32", begins="two"), "scores", {"multiply"}),
    "begins with a bias of floats": (
        replace(PLAIN, kind="f32", bias="rows"),
        "bias",
        {"load_bias", "multiply"},
    ),
    "begins with what is loaded": (replace(BYTES, begins="load"), "shifted", {"load_sums"}),
    "rows in DRAM": (replace(PLAIN, memories=("dram", "wgt", "acc")), "product", {"load_right"}),
    "weights in DRAM": (replace(PLAIN, memories=("spad", "dram", "acc")), "product", {"load_left"}),
    "both in DRAM": (
        replace(PLAIN, memories=("dram", "dram", "acc"), begins="clear"),
        "product",
        {"clear", "multiply_add"},
    ),
    "weights by way of rows": (replace(PLAIN, chain=True), "product", {"weigh"}),
    "biases where weights come to": (
        replace(PLAIN, chain=True, bias="row"),
        "bias",
        {"weigh", "load_row", "add_row"},
    ),
    "one product": (replace(PLAIN, rows=1, depth=1), "product", {"multiply"}),
    "blocks of a fixed size": (replace(BYTES, rows=4, loads="tiles"), "shifted", {"load_left"}),
    "a window along rows": (
        replace(PLAIN, rows=4, depth=1, orders=("km", "kn", "mn")),
        "convolution",
        {"load_left"},
    ),
    "a window of blocks": (
        replace(BYTES, rows=4, depth=8, loads="tiles"),
        "shifted convolution",
        {"load_left"},
    ),
    "a residual as one row": (replace(PLAIN, rows=1, bias="row"), "residual", {"add_row"}),
    "a maximum without numbers": (
        replace(PLAIN, vector=("maximum",), begins="load"),
        "relu",
        {"maximum", "load_sums"},
    ),
    "limits around others": (
        replace(BYTES, stores="limited", vector=("shr_imm", "max_imm")),
        "shifted relu",
        {"shr_imm", "max_imm"},
    ),
    "narrower limits": (
        replace(BYTES, stores="limited", vector=("min_imm", "max_imm")),
        "limited",
        {"min_imm", "max_imm"},
    ),
}


def case_of(facts: Facts, name: str, times: int = 2) -> Case:
    sizes = Sizes((facts.rows or 4) * times, facts.columns, facts.depth * times)
    if facts.rows == 1:
        sizes = replace(sizes, m=1)
    return next(c for c in cases(facts, sizes) if c.name == name)


def checked(built: ChipKernel, case: Case, rng: np.random.Generator) -> ChipKernel:
    inputs = draw_inputs(case.kernel, rng)
    (wanted,) = interpret(case.kernel, inputs)
    result = np.zeros_like(wanted)
    built(*inputs, result)
    assert same(result, wanted)
    return built


@pytest.mark.parametrize("name", MENDED)
def test_what_was_refused_once(name: str, tmp_path: Path):
    facts, kernel, needs = MENDED[name]
    case = case_of(facts, kernel)
    built = build(case.kernel, target_of(facts, tmp_path))
    assert isinstance(built, ChipKernel)
    checked(built, case, np.random.default_rng(0))
    assert needs <= {x.instruction.name for x in built.stream.sites}


@pytest.mark.parametrize("begins", ["flag", "clear", "two"])
def test_a_single_block_by_way_of_another_memory(begins: str, tmp_path: Path):
    facts = replace(PLAIN, chain=True, begins=begins)
    case = case_of(facts, "product", times=1)
    built = build(case.kernel, target_of(facts, tmp_path))
    assert isinstance(built, ChipKernel)
    checked(built, case, np.random.default_rng(0))
    assert sum(built.stream.sites[k].instruction.name == "weigh" for k in built.stream.site) == 1


def test_tiles_of_which_there_is_one(tmp_path: Path):
    facts = replace(BYTES, rows=4, columns=1, depth=1, orders=("mk", "nk", "nm"), chain=True)
    facts = replace(facts, begins="clear", stores="narrow", apart=True, turns=True)
    case = next(c for c in cases(facts, Sizes(8, 1, 1)) if c.name == "shifted")
    checked(build(case.kernel, target_of(facts, tmp_path)), case, np.random.default_rng(0))


@pytest.mark.parametrize("value", [np.inf, np.nan, 2.5, 1e38])
def test_any_number_as_an_array(value: float, tmp_path: Path):
    @kernel
    def greatest(A: f32[4, 8], B: f32[4, 8], C: f32[4, 4]):
        for i, j in grid(4, 4):
            acc: f32 = 0.0
            for d in reduce(8):
                acc += A[i, d] * B[j, d]
            C[i, j] = max(acc, value)

    facts = replace(PLAIN, kind="f32", vector=("maximum",), begins="load")
    built = build(greatest.kernel, target_of(facts, tmp_path))
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(4, 8)).astype(np.float32) for _ in range(2))
    found = built(a, b, np.zeros((4, 4), np.float32))
    np.testing.assert_allclose(found, np.maximum(a @ b.T, np.float32(value)), 1e-5)


def test_every_drawn_description_is_one(tmp_path: Path):
    texts = set()
    for seed in range(40):
        facts = draw_facts(np.random.default_rng(seed))
        assert target_of(facts, tmp_path).instructions
        texts.add(text_of(facts))
    assert len(texts) == 40


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", [0, 2, 10, 14])
def test_build_finds_what_a_search_finds(seed: int):
    every = try_chip(seed)
    assert len(every) == 10
    assert sum(x.found for x in every) >= 3
    assert not [x for x in every if x.wrong or (x.found and not x.built)]


def search(facts: Facts, name: str, folder: Path) -> bool:
    case, rng = case_of(facts, name, times=1), np.random.default_rng(0)
    inputs, *others = (draw_inputs(case.kernel, rng) for _ in range(3))
    return Search(target_of(facts, folder), case, inputs, others).found()


@pytest.mark.parametrize(
    "facts, name, found",
    [
        (PLAIN, "product", True),
        (PLAIN, "relu", False),
        (replace(PLAIN, vector=("relu",)), "relu", True),
        (replace(PLAIN, vector=("maximum",)), "relu", False),  # no zeros come to where sums are
        (BYTES, "shifted", True),
        (replace(BYTES, stores="cast"), "shifted", False),
        (replace(BYTES, stores="limited", vector=("shr_imm",)), "shifted", True),
    ],
)
def test_what_the_search_finds(facts: Facts, name: str, found: bool, tmp_path: Path):
    assert search(facts, name, tmp_path) == found


def test_the_summary():
    every = [
        Found(0, "product", True, True, True),
        Found(0, "relu", True, True, False, "no instruction computes max"),
        Found(1, "relu", False, False, True, wrong=True),
        Found(1, "bias", False, True, False),
    ]
    assert summary(every) == [
        "4 kernels on 2 chips: 2 built, 1 of them wrong",
        "the search found 2 programs, and gave up on 1 kernels",
        "build did 1 of those that it found (50.0%)",
        "  not built: 1 of relu",
    ]


def test_sums_that_a_nest_of_its_own_begins():
    t = TargetBuilder("apart", clock=1e9)
    t.memory(ACC, 1024)
    (unit,) = t.queues("unit", depth=4)

    @t.instruction(unit)
    def begin(a: i8[4, 4] @ ACC, b: i8[4, 4] @ ACC, c: out(i32[4, 4] @ ACC)):
        for i, j in grid(4, 4):
            c[i, j] = 0
        for i, j in grid(4, 4):
            for k in reduce(4):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])

    @t.instruction(unit)
    def add(a: i8[4, 4] @ ACC, b: i8[4, 4] @ ACC, c: out(i32[4, 4] @ ACC)):
        for i, j in grid(4, 4):
            for k in reduce(4):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])

    target = t.build()
    assert [i.name for i in selectable(target)] == ["begin", "add", "begin_or_add"]


def test_what_only_one_of_two_does_is_no_pair():
    t = TargetBuilder("limited", clock=1e9)
    t.memory(ACC, 1024)
    (unit,) = t.queues("unit", depth=4)

    @t.instruction(unit)
    def begin(a: i8[4] @ ACC, b: i8[4] @ ACC, c: out(i32[4] @ ACC), twice: flag):
        for i in range(4):
            c[i] = 0
            c[i] += cast(i32, a[i]) * cast(i32, b[i])
        if twice == 1:
            for i in range(4):
                c[i] += cast(i32, a[i]) * cast(i32, b[i])

    @t.instruction(unit)
    def add(a: i8[4] @ ACC, b: i8[4] @ ACC, c: out(i32[4] @ ACC), twice: flag):
        for i in range(4):
            c[i] += cast(i32, a[i]) * cast(i32, b[i])

    assert selectable(t.build()) == t.build().instructions
