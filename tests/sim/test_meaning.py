"""Instructions as machine code: the same as their meaning, whatever their fields."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from epilogue_chips import CHIPS
from handmade_streams import random_stream, windows
from stream_cases import CASES
from stream_judge import interpret

from tilewright import cast, exp, f32, grid, i8, i32, local, reduce
from tilewright.base.errors import CompileError
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, LoopKind, walk_statements
from tilewright.ir.python.words import out
from tilewright.ir.text.loop import parse_kernel
from tilewright.sim.data import DataEngine
from tilewright.sim.meaning import meaning, site_code, vectorized
from tilewright.target.describe import Range, TargetBuilder, flag, view
from tilewright.target.target import Target
from tilewright.targets import cpu
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

M = "m"
HOST = cpu.host(threads=1)


def odd() -> Target:
    """Instructions that are no plain copies or contractions."""
    t = TargetBuilder("odd", clock=1e9)
    t.memory("m", 1 << 16)
    (q,) = t.queues("q", depth=8)

    @t.instruction(q)
    def sums(a: f32[8, 96] @ M, b: out(f32[8] @ M), n: Range(1, 8)):
        """Of floats: in order."""
        for i in grid(n):
            b[i] = 0.0
            for k in reduce(96):
                b[i] += a[i, k]

    @t.instruction(q)
    def halves(a: f32[8, 24] @ M, b: out(f32[8, 24] @ M), n: Range(1, 8)):
        """By way of memory of its own."""
        for i in grid(n):
            t = local(f32[24])
            for j in grid(24):
                t[j] = a[i, j] * 0.5
            for j in grid(24):
                b[i, j] = t[j] + t[23 - j]

    @t.instruction(q)
    def shifted(a: out(i32[8, 33] @ M), n: Range(1, 8)):
        """Each iteration reads what the one before wrote."""
        for i, j in grid(n, 32):
            a[i, j + 1] = a[i, j] + 1

    @t.instruction(q)
    def long(
        a: view(i8[4, 200] @ M, "far"), b: out(i32[4, 200] @ M),
        n: Range(1, 200), far: Range(200, 300), twice: flag,
    ):  # fmt: skip
        """As many as a field says; if twice, added."""
        for i, j in grid(4, n):
            if twice == 1:
                b[i, j] += cast(i32, a[i, j])
            else:
                b[i, j] = cast(i32, a[i, j])

    return t.build()


TARGETS: dict[str, Callable[[], Target]] = {"odd": odd, "windows": windows, "tiny": tiny, **CHIPS}
INSTRUCTIONS = [(chip, i.name) for chip, make in TARGETS.items() for i in make().instructions]


@pytest.mark.parametrize("chip, name", INSTRUCTIONS)
def test_machine_code_does_what_the_meaning_says(chip: str, name: str):
    rng = np.random.default_rng(0)
    s = random_stream(TARGETS[chip](), name, rng, rows=4)
    numbers = rng.normal(size=(1 << 14)).astype(np.float32).view(np.uint8)
    memories = {m: numbers.copy() for m in s.sizes}
    expected = {m: numbers.copy() for m in s.sizes}
    DataEngine(s, HOST).run(memories)
    interpret(s, expected)
    for m in s.sizes:
        np.testing.assert_array_equal(memories[m], expected[m])
    assert any(not np.array_equal(memories[m], numbers) for m in s.sizes)


@pytest.mark.long
def test_lists_of_micro_operations():
    """A stream of VTA's, from its inputs on."""
    built = CASES["vta, single"].build()
    s = built.stream
    rng = np.random.default_rng(0)
    data = {name: rng.integers(0, 256, size).astype(np.uint8) for name, size in s.sizes.items()}
    memories = {name: a.copy() for name, a in data.items()}
    DataEngine(s, HOST).run(memories)
    interpret(s, data)
    for name in data:
        np.testing.assert_array_equal(memories[name], data[name])


def vector_loops(instruction: Instruction) -> list[str]:
    loops = walk_statements(vectorized(meaning(instruction)).body)
    found = [x for x in loops if isinstance(x, For) and x.kind is LoopKind.VECTORIZE]
    return [f"{x.var.name.split('.')[-1]}: {x.extent}" for x in found]


@pytest.mark.parametrize(
    "target, name, loops",
    [
        (tiny, "mvin", ["j: 16"]),
        (tiny, "gemm", ["j: 16"]),  # rows of b and c lie along j
        (vta, "gemm", ["k: 16"]),  # rows of both operands lie along k: summed across lanes
        (vta, "add", ["c: 16"]),
        (odd, "sums", []),  # the order of a sum of floats stays
        (odd, "halves", ["j: 24"]),  # the other one reads backwards
        (odd, "shifted", []),
        (odd, "long", ["j_i: 16"]),
    ],
)
def test_which_loops_become_vectors(target: Callable[[], Target], name: str, loops: list[str]):
    instruction = next(i for i in target().instructions if i.name == name)
    assert vector_loops(instruction) == loops


def test_code_is_shared():
    """One function for an instruction, in however many places of however many streams."""
    gemm = next(i for i in tiny().instructions if i.name == "gemm")
    again = next(i for i in tiny().instructions if i.name == "gemm")
    assert gemm is not again
    assert site_code(gemm, HOST) is site_code(again, HOST)


def test_a_meaning_that_needs_too_much():
    t = TargetBuilder("greedy", clock=1e9)
    t.memory("m", 1 << 16)
    (q,) = t.queues("q", depth=8)

    @t.instruction(q)
    def sort(a: out(f32[16384] @ M)):
        t = local(f32[16384])
        for i in grid(16384):
            t[i] = exp(a[i])
        for i in grid(16384):
            a[i] = t[16383 - i]

    with pytest.raises(CompileError) as error:
        site_code(t.build().instructions[0], HOST)
    assert str(error.value) == (
        "the meaning of sort needs sort.t: f32[16384], more than a stack holds\n"
        "  hint: give it an operand for that, or make it smaller"
    )


def test_speed():
    """More than a thousand million multiply-adds a second, wherever this runs."""
    gemm = next(i for i in tiny().instructions if i.name == "gemm")
    rows, each = 4000, 16**3
    s = random_stream(tiny(), gemm.name, np.random.default_rng(0), rows=rows)
    engine = DataEngine(s, HOST)
    memories = {m: np.zeros(size, np.uint8) for m, size in s.sizes.items()}
    engine.run(memories)
    best = min(seconds(lambda: engine.run(memories)) for _ in range(5))
    assert rows * each / best > 1e9


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def test_sums_that_read_what_they_add_to_keep_their_order():
    """Conditions go outside of loops only where any order gives the same."""

    def swapped(read: str) -> bool:
        program = parse_kernel(
            "def k(w: i32[6, 4], x: i32[6], c: out(i32[6])):\n"
            "    for k in range(4):\n        for r in range(6):\n"
            f"            c[2] += select(r < 4, {read}[r], i32(0)) * w[r, k]"
        )
        return str(vectorized(program)).index("r in") < str(vectorized(program)).index("k in")

    assert swapped("x")
    assert not swapped("c")
