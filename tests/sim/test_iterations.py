"""How soon iterations come back to an element, against all that they touch, one after another."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import dims, grid, i32, reduce, u8
from tilewright.backends.stream.iterations import least_apart
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Load, as_expr
from tilewright.ir.instruction import Instruction, MicroOps
from tilewright.ir.loop import For, If
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, distance, flag, read_instruction, view

FEW = Range(0, 4)
STEP = Range(0, 6)
LISTED = MicroOps("uop", 4)
I, U = dims("I U", max=6)


def sums(a: u8[8, 8], b: out(u8[8]), n: FEW, m: FEW):
    for i, j in grid(n, m):
        b[j] += a[i, j]
    distance(b=9)


def backwards(a: u8[8], b: out(u8[8]), n: FEW):
    for i in grid(n):
        b[n - 1 - i] += a[i]
    distance(b=9)


def skewed(a: u8[8], b: out(u8[64]), n: FEW, m: FEW, far: STEP, near: STEP):
    for i, j in grid(n, m):
        b[i * far + near * j + 3] = a[i]
    distance(b=9)


def apart(b: out(u8[8, 8]), n: FEW, m: FEW):
    """Loops of constant extent around hardware loops, and inside of them."""
    for _, j, k, w in grid(n, 2, m, 3):
        b[k, j + w] = 0
    distance(b=9)


def windows(b: out(u8[64]), n: FEW, m: FEW, far: STEP):
    """Iterations whose elements lie crosswise."""
    for i, j in grid(n, m):
        for v, w in grid(2, 3):
            b[i * far + j * 2 + v * 5 + 3 - w] = 0
            b[i * far + j * 2 + 1 + v] = 1
    distance(b=9)


def shifts(b: out(u8[64]), n: FEW, m: FEW):
    """Each reads what the one before it wrote."""
    for i, j in grid(n, m):
        b[i * 8 + j + 1] = b[i * 8 + j]
    distance(b=9)


def reads(b: out(u8[64]), n: FEW):
    """What is only read may be read again at once."""
    for i in grid(n):
        b[i * 2] = b[i * 2 + 1] + b[i * 2 - 1]
    distance(b=9)


def clears(a: u8[8, 8], b: out(u8[64]), n: FEW, m: FEW, first: flag, step: STEP):
    """Three nests, of which a flag may leave out one."""
    if first == 1:
        for j in grid(m):
            b[step * j] = 0
    for i, k in grid(n, m):
        b[k] += a[i, k]
    for j, k in grid(m, 2):
        b[m - j + k] = 0
    distance(b=9)


def viewed(b: view(out(u8[4, 4, 2]), "far"), far: STEP, n: FEW, m: FEW):
    """A field has the step from row to row."""
    for i, j, k in grid(n, m, 2):
        b[i, j, k] = 0
    distance(b=9)


def listed(c: view(out(i32[I, U, 2]), "far", LISTED), far: STEP):
    for i, u, w in grid(I, U, 2):
        c[i, u, w] = 0
    distance(c=9)


INSTRUCTIONS = (sums, backwards, skewed, apart, windows, shifts, reads, clears, viewed, listed)


def iterations(i: Instruction, name: str, env: dict, offsets: np.ndarray | None) -> list[dict]:
    """What each iteration touches: bytes, and whether one of the touches writes."""
    operand = next(o for o in i.operands if o.name == name)
    inner = {s for s in _loops(i.body) if not any(_is_hardware(x) for x in _loops(s.body))}
    found: list[dict] = []

    def value(e, env) -> int:
        return int(evaluate_expr(as_expr(e), env, {}))

    def touch(indices, env, *, writes: bool) -> None:
        at = 0
        for d, e in enumerate(indices):
            if d == i.listed(operand):
                at += int(offsets[value(e, env)])
            else:
                at += value(e, env) * value(i.step(operand, d), env) * operand.dtype.bytes
        found[-1][at] = found[-1].get(at, False) or writes

    def run(block, env, *, hardware: bool) -> None:
        for s in block:
            if isinstance(s, For):
                for k in range(value(s.extent, env)):
                    if hardware and s in inner:
                        found.append({})
                    inside = {**env, s.var: np.int64(k)}
                    run(s.body, inside, hardware=hardware and s not in inner)
            elif isinstance(s, If):
                run(s.body if value(s.cond, env) else s.orelse, env, hardware=hardware)
            else:
                for e in s.value.walk():
                    if isinstance(e, Load) and e.buffer == operand:
                        touch(e.indices, env, writes=False)
                if s.buffer == operand:
                    touch(s.indices, env, writes=True)

    run(i.body, env, hardware=True)
    return found


def _loops(block) -> list[For]:
    own = [s for s in block if isinstance(s, For)]
    below = [s.body for s in block if isinstance(s, (For, If))]
    return own + [x for b in below for x in _loops(b)]


def _is_hardware(loop: For) -> bool:
    return not isinstance(loop.extent, int) or any(map(_is_hardware, _loops(loop.body)))


def expected(touched: list[dict], wanted: int) -> int | None:
    for n in range(1, min(wanted, len(touched))):
        for a, b in zip(touched, touched[n:], strict=False):
            if any(a[at] or b[at] for at in a.keys() & b.keys()):
                return n
    return None


@pytest.mark.parametrize("function", INSTRUCTIONS, ids=lambda f: f.__name__)
def test_all_that_iterations_touch(function):
    i = read_instruction(function)
    ((name, _),) = i.distances
    rng = np.random.default_rng(sum(map(ord, i.name)))
    seen = set()
    for _ in range(150):
        fields = np.array([rng.integers(f.low, min(f.high, 6) + 1) for f in i.fields], np.int64)
        env = {f.symbol: v for f, v in zip(i.fields, fields, strict=True)}
        offsets = 8 * rng.integers(0, 4, env.get(U, 0)) if i.micro_ops is not None else None
        site = SimpleNamespace(instruction=i, offsets=(offsets,) * len(i.operands))
        wanted = int(rng.integers(1, 10))
        soonest = expected(iterations(i, name, env, offsets), wanted)
        assert least_apart(site, fields, name, wanted) == soonest, (env, offsets, wanted)
        seen.add(soonest)
    assert None in seen
    assert len(seen) > 1 or function in (backwards, reads)


def far(b: out(u8[64]), n: Range(1, 1 << 16), m: Range(1, 1 << 16)):
    for _, j in grid(n, m):
        b[j] = 0
    distance(b=1024)


def test_iterations_without_end():
    """2^32 of them, by their steps alone."""
    i = read_instruction(far)
    site = SimpleNamespace(instruction=i, offsets=(None,))
    for m, soonest in ((1 << 16, None), (1000, 1000), (1, 1)):
        assert least_apart(site, np.array([1 << 16, m]), "b", 1024) == soonest


# ---------------------------------------------------------------- what is not judged


def without_loops(b: out(u8[8])):
    for i in grid(8):
        b[i] = 0
    distance(b=3)


def divided(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[i // 2] = 0
    distance(b=3)


def looked_up(a: i32[8], b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[a[i]] = 0
    distance(b=3)


def beside(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[i] = 0
        for _ in reduce(n):
            b[i] += 1
    distance(b=3)


def before(b: out(u8[8]), n: Range(1, 8)):
    b[0] = 0
    for i in grid(n):
        b[i] += 1
    distance(b=3)


def conditional(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        if i > 0:
            for j in grid(n):
                b[j] = 0
    distance(b=3)


def triangle(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        for j in grid(i + 1):
            b[j] = 0
    distance(b=3)


def decided(a: u8[8], b: out(u8[8]), n: Range(1, 8)):
    if a[0] > 0:
        for i in grid(n):
            b[i] = 0
    distance(b=3)


def two_ways(b: out(u8[8, 8]), n: Range(1, 8), m: Range(1, 8)):
    for i, j in grid(n, m):
        b[i, j] = 0
        b[0, 0] += 1
    distance(b=3)


def at_once(b: out(u8[8, 1 << 17]), n: Range(1, 8)):
    for i, j in grid(n, 1 << 17):
        b[i, j] = 0
    distance(b=3)


def shared_entry(c: view(out(i32[I, U]), None, LISTED)):
    for i, u in grid(I, U):
        c[i, i + u] = 0
    distance(c=3)


BESIDE = (
    "a hardware loop over b stands beside other statements",
    (
        "a distance is judged in loops that hold each other alone, the innermost all the rest; "
        "several such nests may follow each other"
    ),
)
STEPS = "a distance is judged where subscripts are sums of loop variables, times numbers or fields"
ALONE = "a distance is judged where fields alone decide how often hardware loops run"
REFUSED = {
    without_loops: (
        "no hardware loops go over b",
        "a hardware loop is one that a field decides: for i in grid(n)",
    ),
    divided: ("b is touched at i // 2, which does not move in equal steps", STEPS),
    looked_up: (
        "b is touched at cast(i64, a[i]), which does not move in equal steps", STEPS,
    ),
    beside: BESIDE,
    before: BESIDE,
    conditional: BESIDE,
    triangle: ("loop j runs i + 1 times, which other loops decide", ALONE),
    decided: ("what memory holds decides a[0] > u8(0)", ALONE),
    two_ways: (
        "b[i, j] and b[0, 0] move differently along i",
        "a distance is judged where all that an iteration touches of an operand moves as one",
    ),
    at_once: (
        "one iteration touches 131,072 elements at b[i, j]",
        "distances are judged for up to 65,536",
    ),
    shared_entry: (
        "c[i, i + u] has no hardware loop alone at its listed axis",
        "an entry of the list is for one iteration of one loop",
    ),
}  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_is_not_judged_is_refused(function):
    with pytest.raises(CompileError) as error:
        read_instruction(function)
    what, hint = REFUSED[function]
    assert error.value.what.split(": ", 1)[1] == what
    assert error.value.hint == hint


# ---- across nests ------------------------------------------------------------


def two_by_two(b: out(u8[256]), n: FEW, m: FEW, p: FEW, far: STEP, near: STEP):
    for i, j in grid(n, m):
        b[i * far + j * near] = 0
    for i, j in grid(p, n):
        b[i * near + j * far + 7] = 1
    distance(b=40)


def inner_first(b: out(u8[256]), n: FEW, m: FEW, far: STEP):
    """The first runs backwards, the second in blocks of three."""
    for i, j in grid(n, m):
        b[40 - i - j * far] = 0
    for i, j in grid(m, n):
        for w in grid(3):
            b[i * far + j * 4 + w] = 0
    distance(b=40)


def three_deep(b: out(u8[512]), n: FEW, m: FEW, p: FEW, far: STEP):
    for i, j, k in grid(n, m, p):
        b[i * far + j * 9 + k * 2] = 0
    distance(b=40)


def reads_of_the_first(b: out(u8[256]), n: FEW, m: FEW, more: flag, far: STEP):
    """The second reads what the first wrote; between them there may be another."""
    for i, j in grid(n, m):
        b[i * far + j] = 0
    if more == 1:
        for i in grid(n):
            b[200 + i] = 0
    for i, j in grid(n, m):
        b[i * far + j + 3] = b[i * far + j]
    distance(b=40)


def listed_first(c: view(out(i32[I, U, 2]), "far", LISTED), far: STEP):
    for u, i, w in grid(U, I, 2):
        c[i, u, w] = 0
    distance(c=40)


FUNCTIONS = (two_by_two, inner_first, three_deep, reads_of_the_first, listed_first)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_all_that_iterations_across_nests_touch(function):
    i = read_instruction(function)
    ((name, _),) = i.distances
    rng = np.random.default_rng(7)
    seen = set()
    for _ in range(200):
        fields = np.array([rng.integers(f.low, min(f.high, 6) + 1) for f in i.fields], np.int64)
        env = {f.symbol: v for f, v in zip(i.fields, fields, strict=True)}
        offsets = 8 * rng.integers(0, 4, env.get(U, 0)) if i.micro_ops is not None else None
        site = SimpleNamespace(instruction=i, offsets=(offsets,) * len(i.operands))
        soonest = expected(iterations(i, name, env, offsets), 40)
        assert least_apart(site, fields, name, 40) == soonest, (env, offsets)
        if soonest is not None:  # just below what is wanted, and not
            assert least_apart(site, fields, name, soonest + 1) == soonest, (env, offsets)
            assert least_apart(site, fields, name, soonest) is None, (env, offsets)
        seen.add(soonest)
    assert None in seen
    assert len(seen) > 3
