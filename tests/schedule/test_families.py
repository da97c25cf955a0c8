"""Default schedules of whole families: windows that slide, channels in groups, sums of squares, and
reads a few elements apart. Each is checked against the interpreter, and for what it must not do."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import build
from strategies_schedule import packed_inputs

from tilewright.base.dtype import f32
from tilewright.ir.evaluate import evaluate_program, op_program
from tilewright.ir.expr import Buffer, Load, Select
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    For,
    Kernel,
    LoopKind,
    Store,
    expressions,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.ir.tensor import TensorProgram, stages
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.tensor import parse_program
from tilewright.ops.table import OPS
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.plan.preferred_layouts import preferred_layouts
from tilewright.plan.separate_windows import separate_windows
from tilewright.targets import cpu

TARGET = cpu.cpu("avx2")


def program(text: str) -> TensorProgram:
    return parse_program(textwrap.dedent(text).strip())


def numbers(buffer: Buffer) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(-9, 9, [int(n) for n in buffer.shape]).astype(buffer.dtype.numpy)


def weights(p: TensorProgram) -> dict[str, Layout]:
    """How a program likes its weights."""
    wanted = preferred_layouts(create_loops(p), TARGET, {})
    name, layout = ("", None) if wanted is None else wanted.weight
    return {} if layout is None else {name: layout}


def check(p: TensorProgram) -> Kernel:
    """The kernel of a program, with operands as it likes them: its machine code gives what the
    program means."""
    layouts = weights(p)
    s = default_schedule(create_loops(p), TARGET, layouts)
    assert s.fallback == ""
    inputs = [numbers(b) for b in p.inputs]
    given = packed_inputs(p.inputs, inputs, {name: [x] for name, x in layouts.items()})
    for a, b in zip(evaluate_program(p, inputs), build(s.kernel, TARGET)(given, {}), strict=True):
        np.testing.assert_array_equal(a, b)
    return s.kernel


# ---------------------------------------------------------------- windows

BOX = """
    def f(x: f32[3, {h}, {w}]):
        y = tensor(f32[3, {oh}, {ow}])
        define(y[c, i, j], reduce({op}, f32({init}), x[c, i * {si} + k * {di}, j * {sj} + q]{over})
        return y
"""


@settings(max_examples=60)
@given(
    op=st.sampled_from([("max", "-inf"), ("min", "inf"), ("add", "0.0"), ("add", "3.0")]),
    window=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    steps=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    extents=st.tuples(st.integers(1, 9), st.integers(1, 40)),
)
def test_boxes_are_taken_apart(op, window, steps, extents):
    (k, q), (si, sj, di), (oh, ow) = window, steps, extents
    h, w = (oh - 1) * si + (k - 1) * di + 1, (ow - 1) * sj + q
    sizes = {"h": h, "w": w, "oh": oh, "ow": ow, "k": k, "q": q, "si": si, "sj": sj, "di": di}
    over = f", k={k}, q={q}), c=3, i={oh}, j={ow}"
    p = program(BOX.format(**sizes, op=op[0], init=op[1], over=over))
    apart = separate_windows(p)
    x = numbers(p.inputs[0])
    np.testing.assert_array_equal(evaluate_program(apart, [x])[0], evaluate_program(p, [x])[0])
    gain = oh * ow * k * q / (h * ow * q + oh * ow * k)
    assert len(stages(apart.items)) == (2 if gain >= 1.5 and min(k, q) > 1 else 1)
    check(apart)


WHOLE = {
    "a product": "x[0, i + k, j + q] * f32(2.0)",
    "one axis in two subscripts": "x[0, i + k, i + q]",
    "one side in two subscripts": "x[0, i + k, k + j + q]",
    "a side alone": "x[0, i + k, q]",
    "a remainder": "x[0, i + k, (j + q) % 9]",
}


@pytest.mark.parametrize("what", WHOLE)
def test_what_is_no_box_stays_whole(what: str):
    text = f"""
        def f(x: f32[1, 40, 40]):
            y = tensor(f32[9, 9])
            define(y[i, j], reduce(max, f32(-inf), {WHOLE[what]}, k=9, q=9), i=9, j=9)
            return y
    """
    assert separate_windows(program(text)) == program(text)


def operator(name: str, *shapes: tuple[int, ...], **attrs: object) -> TensorProgram:
    op = OPS[name]
    return op_program(
        op, op.attrs(**attrs), [Buffer(f"x{i}", f32, s) for i, s in enumerate(shapes)]
    )


WINDOW = {"strides": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1), "dilations": (1, 1)}


def test_a_padded_copy_is_made_once_for_all_windows():
    """Not for each window, nor for each of its elements."""
    text = str(check(operator("max_pool", (1, 4, 20, 20), kernel=(3, 3), **WINDOW)))
    assert "pad = alloc(f32[1, 1, 22, 22])" in text


def test_windows_apart_need_their_own_part_of_a_copy():
    """Where the near caches do not hold the copy of a whole picture."""
    window = {**WINDOW, "strides": (3, 3)}
    text = str(check(operator("max_pool", (1, 2, 60, 2998), kernel=(3, 3), **window)))
    assert "pad = alloc(f32[1, 1, 3, 3000])" in text


def test_a_picture_is_padded_before_windows_go_along_it():
    """A row's copy, made right before it is read at other places, would not be there yet; and sums
    of what vectors do not divide are kept in registers, the last ones twice."""
    window = {**WINDOW, "strides": (1, 1), "pads_begin": (2, 2), "pads_end": (2, 2)}
    small, large = (
        separate_windows(operator("max_pool", (1, 2, n, n), kernel=(5, 5), **window))
        for n in (20, 70)
    )
    text = str(check(small))
    assert "pad = alloc(f32[1, 1, 24, 24])" in text
    assert "if " not in text
    assert "pad = alloc(f32[1, 1, 74, 74])" in str(check(large))
    tiny = cpu.cpu("avx2", l1=4096, l2=16384, l3=16384)  # which would not hold a picture
    text = str(default_schedule(create_loops(large), tiny, weights(large)).kernel)
    assert "pad = alloc(f32[1, 1, 1, 74])" in text


# ---------------------------------------------------------------- borders


BORDERS = {
    "i, w": """
        def f(x: f32[5, {extent}]):
            y = tensor(f32[5, {n}])
            define(y[i, w], select({guard}, x[i, w - {before}], f32(2.0)), i=5, w={n})
            return y
        """,
    "i, w, c": """
        def f(x: f32[5, {extent}, 8]):
            y = tensor(f32[5, {n}, 8])
            define(y[i, w, c], select({guard}, x[i, w - {before}, c], f32(2.0)), i=5, w={n}, c=8)
            return y
        """,
    "i, c, w": """
        def f(x: f32[5, 8, {extent}]):
            y = tensor(f32[5, 8, {n}])
            define(y[i, c, w], select({guard}, x[i, c, w - {before}], f32(2.0)), i=5, c=8, w={n})
            return y
        """,
}


@pytest.mark.parametrize("before, behind", [(1, 1), (0, 2), (3, 0), (4, 4)])
@pytest.mark.parametrize("extent", [4, 7, 16, 33])
@pytest.mark.parametrize("order", BORDERS)
def test_what_lies_between_borders_is_moved_unasked(
    order: str, extent: int, before: int, behind: int
):
    """Only rows ask, whether their channels lie behind them, before them, or nowhere."""
    guard = f"(i < 3) & ({before} <= w) & (w < {before + extent})"
    width = before + extent + behind
    text = BORDERS[order].format(extent=extent, n=width, before=before, guard=guard)
    assert guards(check(program(text))) == {"i < 3"}


@pytest.mark.parametrize("before, extent", [(5, 20), (1, 3), (0, 16)])
def test_what_is_no_border_is_not_cut(before: int, extent: int):
    """Too many iterations before it or too few between; or none at all."""
    guard = f"(i < 3) & ({before} <= w) & (w < {before + extent})"
    text = BORDERS["i, w"].format(extent=extent, n=extent + before, before=before, guard=guard)
    assert (guards(check(program(text))) == {"i < 3"}) == (before == 0)


def test_a_long_row_is_shared_and_not_cut():
    """Around it there is nothing to share."""
    p = program(
        """
        def f(x: f32[1, 60000]):
            y = tensor(f32[1, 60002])
            define(y[i, w], select((1 <= w) & (w < 60001), x[i, w - 1], f32(2.0)), i=1, w=60002)
            return y
        """
    )
    kernel = default_schedule(create_loops(p), cpu.cpu("avx2", cores=2)).kernel
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    assert [x.kind for x in loops].count(LoopKind.PARALLEL) == 1
    assert guards(kernel)


NONLINEAR = {  # subscripts of x, whose borders are an edge, a mirror, the other end
    "edge": "min(max(w - {before}, 0), {last})",
    "mirror": "min((w + {around} - {before}) % {around}, {back})",
    "wrap": "(w + {extent} - {before}) % {extent}",
}


@pytest.mark.parametrize("before, behind", [(1, 1), (0, 2), (3, 0), (4, 4), (5, 0)])
@pytest.mark.parametrize("extent", [7, 16, 33])
@pytest.mark.parametrize("mode", NONLINEAR)
def test_what_lies_between_nonlinear_borders_is_moved_in_order(
    mode: str, extent: int, before: int, behind: int
):
    """Between borders of up to four elements, a subscript is a sum."""
    around = 2 * (extent - 1)
    back = f"{around} - (w + {around} - {before}) % {around}"
    names = {"before": before, "extent": extent, "last": extent - 1, "around": around}
    place = NONLINEAR[mode].format(**names, back=back)
    n = before + extent + behind
    p = program(
        f"""
        def f(x: f32[5, {extent}]):
            y = tensor(f32[5, {n}])
            define(y[i, w], x[i, {place}], i=5, w={n})
            return y
        """
    )
    kernel = check(p)
    places = [str(x.indices[-1]) for stmt in walk_statements(kernel.body)
              for e in expressions(stmt) for x in e.walk() if isinstance(x, Load)]  # fmt: skip
    left = [i for i in places if "max(" in i or "%" in i or "min(w" in i.replace("w_o", "")]
    assert bool(left) == (before == 5), kernel


def guards(kernel: Kernel) -> set[str]:
    """What is asked where something is chosen."""
    parts = (e for stmt in walk_statements(kernel.body) for e in expressions(stmt))
    return {str(x.cond) for e in parts for x in e.walk() if isinstance(x, Select)}


# ---------------------------------------------------------------- planes beside each other


@pytest.mark.parametrize("channels", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("size", [15, 16, 37, 64])
def test_channels_that_become_innermost_are_interleaved(channels: int, size: int):
    """One vector loop over some pixels and all their channels, of which there are few."""
    p = program(
        f"""
        def f(x: f32[2, {channels}, {size}], s: f32[{channels}], t: f32[{size}]):
            y = tensor(f32[2, {size}, {channels}])
            define(y[n, i, c], x[n, c, i] * s[c] + t[i], n=2, i={size}, c={channels})
            return y
        """
    )
    loops = [x for x in walk_statements(check(p).body) if isinstance(x, For)]
    vectors = [x.extent for x in loops if x.kind is LoopKind.VECTORIZE]
    assert vectors == [8 * channels if channels < 8 else 8]  # from 8 on, squares are turned


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(
    "channels, out, groups",
    [
        *[(32, 32, 8), (32, 32, 4), (48, 48, 2), (24, 48, 4), (48, 12, 4), (18, 18, 3)],
        *[(20, 20, 4), (22, 22, 2), (40, 40, 2), (28, 28, 2)],
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_grouped_convolutions_have_vectors(channels: int, out: int, groups: int, stride: int):
    """The places in a group run along vectors, as the columns of any contraction do, or pixels of
    a row; the last vector takes some again where that is one vector less."""
    attrs = {**WINDOW, "strides": (stride, stride), "groups": groups}
    kernel = check(operator("conv", (1, channels, 9, 9), (out, channels // groups, 3, 3), **attrs))
    size = out // groups
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    vectors = {x.extent for x in loops if x.kind is LoopKind.VECTORIZE}
    lanes = {3: 2, 4: 4, 6: 4, 5: {1: 8, 2: 4}[stride]}  # of 5, rows of 9 pixels, or of 5
    assert lanes.get(size, 8) in vectors
    assert f"f32[1, {groups}, 9" not in str(kernel)  # sums stay in registers


@pytest.mark.parametrize("channels, unrolled", [(1, True), (3, False)])
def test_short_windows_are_unrolled_where_the_code_stays_short(channels: int, unrolled: bool):
    """9 steps of 18 vectors are, 27 are not."""
    target = cpu.cpu("avx512")
    p = operator("conv", (1, channels, 9, 9), (32, channels, 3, 3), **WINDOW)
    wanted = preferred_layouts(create_loops(p), target, {})
    assert wanted is not None
    assert wanted.weight[1] is not None
    s = default_schedule(create_loops(p), target, {wanted.weight[0]: wanted.weight[1]})
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    kinds = {x.kind for x in loops if x.extent == 3}
    assert kinds == {LoopKind.UNROLL if unrolled else LoopKind.SERIAL}


@pytest.mark.parametrize("size, lanes", [(12, 8), (24, 16), (40, 16), (56, 16), (48, 16), (8, 8)])
def test_vectors_of_a_group_overlap(size: int, lanes: int):
    """Two of 16 channels instead of three of 8; the weights of a group lie side by side."""
    target = cpu.cpu("avx512")
    p = operator("conv", (1, 2 * size, 7, 7), (2 * size, size, 3, 3), **WINDOW, groups=2)
    wanted = preferred_layouts(create_loops(p), target, {})
    assert wanted is not None
    name, layout = wanted.weight
    assert layout is not None
    s = default_schedule(create_loops(p), target, {name: layout})
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    assert lanes in {x.extent for x in loops if x.kind is LoopKind.VECTORIZE}
    assert layout.blocks[-1][1] % size == 0


@pytest.mark.parametrize("window, unrolled", [(1, False), (2, True)])
def test_products_by_groups_are_not_unrolled(window: int, unrolled: bool):
    """LLVM would read all of a group's pixels ahead of its vectors, and spill them; neighbours of a
    window share what they read."""
    size = 12 // window
    attrs = {**WINDOW, "pads_begin": (0, 0), "pads_end": (0, 0), "groups": 2}
    kernel = check(operator("conv", (1, 2 * size, 6, 6), (24, size, 1, window), **attrs))
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    (kind,) = {x.kind for x in loops if x.extent == size and x.var.name.startswith("c")}
    assert kind == (LoopKind.UNROLL if unrolled else LoopKind.SERIAL)


@pytest.mark.parametrize(
    "shape, across",
    [
        ((36, 2, 512), True),
        ((36, 1, 200), True),  # 25 vectors: the last tile has one
        ((36, 3, 512), False),  # the sums take longer than their stores
        ((36, 2, 40), False),  # two tiles
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_short_products_are_written_as_lines_lie(
    shape: tuple[int, int, int], across: bool, turned: bool
):
    """Rows of a power of two would fall into a few sets of the cache, one below the other."""
    rows, depth, columns = shape
    result, place = (f"{columns}, {rows}", "b, a") if turned else (f"{rows}, {columns}", "a, b")
    product = f"x[m, k] * w[k, n], k={depth}"
    text = f"""
        def f(x: f32[{rows}, {depth}], w: f32[{depth}, {columns}]):
            s = tensor(f32[{rows}, {columns}])
            define(s[m, n], reduce(add, f32(0.0), {product}), m={rows}, n={columns})
            y = tensor(f32[{result}])
            define(y[{place}], s[a, b] + f32(1.0), a={rows}, b={columns})
            return y
        """
    kernel = check(program(text))
    outermost = next(x for x in walk_statements(kernel.body) if isinstance(x, For))
    assert outermost.var.name == ("a_o" if across and not turned else "b_o"), str(kernel)


def test_a_multiplied_depthwise_convolution():
    check(operator("conv", (1, 8, 9, 9), (24, 1, 3, 3), **WINDOW, groups=8))


@pytest.mark.parametrize("kernel, last", [(1, 8), (3, 8)])
def test_vectors_along_rows_where_a_group_has_few_channels(kernel: int, last: int):
    """Also where its channels' weights lie side by side."""
    pads = (kernel // 2, kernel // 2)
    window = {**WINDOW, "pads_begin": pads, "pads_end": pads}
    found = operator("conv", (1, 6, 9, 16), (24, 1, kernel, kernel), **window, groups=6)
    kernel_ = check(found)
    loops = [x for x in walk_statements(kernel_.body) if isinstance(x, For)]
    lanes = {x.var for x in loops if x.kind is LoopKind.VECTORIZE and x.extent == last}
    stores = [x for x in walk_statements(kernel_.body) if isinstance(x, Store)]
    (out,) = (x for x in stores if x.buffer == kernel_.outputs[0])
    assert variables(out.indices[-1]) & lanes, str(kernel_)


# ---------------------------------------------------------------- reductions


def test_a_sum_of_squares_reduces_one_operand():
    p = program(
        """
        def f(x: f32[8, 100]):
            y = tensor(f32[8])
            define(y[i], reduce(add, f32(0.0), x[i, r] * x[i, r], r=100), i=8)
            return y
        """
    )
    loops = [x for x in walk_statements(check(p).body) if isinstance(x, For)]
    assert [x.extent for x in loops if x.kind is LoopKind.VECTORIZE] == [32, 4]


@pytest.mark.parametrize("extent", [7, 8, 31, 32, 33, 100, 1000])
def test_a_reduction_along_memory_has_no_masks(extent: int):
    p = program(
        f"""
        def f(x: f32[5, {extent}]):
            y = tensor(f32[5])
            define(y[i], reduce(max, f32(-inf), x[i, r], r={extent}), i=5)
            return y
        """
    )
    assert "if " not in str(check(p)) or extent < 32


@pytest.mark.parametrize("shape", [(5, 8, 1, 12), (5, 1, 8, 12), (5, 8, 12, 1), (5, 1, 1, 49)])
def test_axes_of_one_element_between_those_that_are_reduced(shape: tuple[int, ...]):
    check(operator("reduce_sum", shape, axes=(1, 2, 3), keepdims=False))
    check(operator("reduce_max", shape, axes=(0, 1, 2, 3), keepdims=True))


def test_neighbouring_axes_are_reduced_as_one():
    p = program(
        """
        def f(x: f32[5, 8, 12]):
            y = tensor(f32[5])
            define(y[i], reduce(add, f32(0.0), x[i, r, q], r=8, q=12), i=5)
            return y
        """
    )
    loops = [x for x in walk_statements(check(p).body) if isinstance(x, For)]
    assert [x.extent for x in loops if x.kind is LoopKind.VECTORIZE] == [32]


@pytest.mark.parametrize("steps, together", [(4, 1), (5, 4), (32, 4), (100, 4)])
def test_vectors_side_by_side_are_reduced_together(steps: int, together: int):
    """Of steps that are far apart each line is read once, also where lines and vectors differ."""
    p = program(
        f"""
        def f(x: f32[3, {steps}, 128]):
            y = tensor(f32[3, 128])
            define(y[i, j], reduce(max, f32(-inf), x[i, r, j], r={steps}), i=3, j=128)
            return y
        """
    )
    loops = [x for x in walk_statements(check(p).body) if isinstance(x, For)]
    inner = next(x for x in loops if x.var.name.startswith("r"))
    around = {x.extent for x in walk_statements(inner.body) if isinstance(x, For)}
    assert around - {8} == ({together} if together > 1 else set())


@pytest.mark.parametrize(
    "shape, rows", [((1024, 64), 8), ((1000, 64), 16), ((4096, 1024), 16), ((1000, 12), 8)],
    ids=["rows of a page", "rows apart", "what is read collides as well", "narrow"],
)  # fmt: skip
def test_squares_are_smaller_where_rows_of_the_result_collide(shape: tuple[int, int], rows: int):
    """16 lines a page apart take 16 of the 8 places that a cache has for them."""
    p = operator("transpose", shape, perm=(1, 0))
    s = default_schedule(create_loops(p), cpu.cpu("avx512"), {})
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    assert [x.extent for x in loops if x.kind is LoopKind.UNROLL] == [rows]


def test_blocks_that_are_read_whole_have_their_own_loop():
    """A square that is shifted would lie across the last two blocks, of which one has 2 channels:
    each lane would be read by itself."""
    source, layout = Buffer("x", f32, (1, 18, 64)), Layout((0, 1, 2), ((1, 8),))
    p = op_program(OPS["relu"], OPS["relu"].attrs(), [source])
    s = default_schedule(create_loops(p), TARGET, {p.inputs[0].name: layout})
    assert s.fallback == ""
    x = numbers(source)
    blocks = packed_inputs([source], [x], {source.name: [layout]})
    (found,) = build(s.kernel, TARGET)(blocks, {})
    np.testing.assert_array_equal(found, np.maximum(x, 0))
    assert "// 8, " not in str(s.kernel), str(s.kernel)


# ---------------------------------------------------------------- recurrences

STEPS = """
    def f(x: f32[{t}, {b}, {h}], w: f32[{h}, {g}], start: f32[{b}, {h}]):
        old = tensor(f32[{b}, {h}])
        gates = tensor(f32[{b}, {g}])
        state = tensor(f32[{b}, {h}])
        y = tensor(f32[{t}, {b}, {h}])
        for t in scan({t}):
            define(old[b, j], select(t == 0, start[b, j], state[b, j]), b={b}, j={h})
            define(gates[a, g], reduce(add, f32(0.0), old[a, k] * w[k, g], k={h}), a={b}, g={g})
            define(state[b_2, j_1], {value}, b_2={b}, j_1={h})
            define(y[t, b_3, j_2], state[b_3, j_2], b_3={b}, j_2={h})
        return y
"""
STATE = "min(max(gates[b_2, j_1] - gates[b_2, j_1 + {h}] + x[t, b_2, j_1], f32(-3.0)), f32(3.0))"


def recurrence(t: int, b: int, h: int, g: int) -> TensorProgram:
    return program(STEPS.format(t=t, b=b, h=h, g=g, value=STATE.format(h=h)))


@settings(max_examples=40)
@given(t=st.integers(1, 3), b=st.integers(1, 7), h=st.integers(1, 70), more=st.integers(0, 40))
def test_steps_of_recurrences(t, b, h, more):
    p = recurrence(t, b, h, 2 * h + more)
    check(p)
    given = [numbers(x) for x in p.inputs]
    rows = default_schedule(create_loops(p), TARGET, {})  # of weights that are computed
    (found,) = build(rows.kernel, TARGET)(given, {})
    np.testing.assert_array_equal(found, evaluate_program(p, given)[0])


@pytest.mark.parametrize("b, h, g", [(1, 200, 600), (1, 96, 200), (5, 40, 83), (3, 33, 66)])
def test_sums_of_a_step_stay_in_registers(b: int, h: int, g: int):
    """A sum in memory would be loaded and stored for each product."""
    kernel = check(recurrence(2, b, h, g))
    sums = [x.buffer for x in walk_statements(kernel.body) if isinstance(x, Accumulate)]
    assert {x.memory for x in sums} == {"register"}


def test_a_long_step_is_shared_by_cores():
    two = replace(TARGET, cores=2)

    def shared(h: int) -> list[int]:
        p = recurrence(2, 1, h, 4 * h)
        s = default_schedule(create_loops(p), two, weights(p))
        loops = (x for x in walk_statements(s.kernel.body) if isinstance(x, For))
        return [x.extent for x in loops if x.kind is LoopKind.PARALLEL]

    assert shared(40) == []
    assert len(shared(256)) == 1


def test_rows_of_a_step_are_shared_where_its_tiles_overlap():
    """Of weights that are computed, which are not packed: 404 columns in tiles of whole vectors."""
    p = recurrence(2, 16, 101, 404)
    s = default_schedule(create_loops(p), replace(TARGET, cores=2), {})
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    (shared,) = (x for x in loops if x.kind is LoopKind.PARALLEL)
    assert "min(" in str(s.kernel)
    assert shared.var.name.startswith("a")


def test_a_state_that_is_kept_between_steps_is_allocated_before_them():
    kernel = create_loops(recurrence(2, 1, 8, 16))
    (loop,) = (x for x in kernel.body if isinstance(x, For))
    names = [[x.buffer.name for x in b if isinstance(x, Alloc)] for b in (kernel.body, loop.body)]
    assert names == [["state"], ["old", "gates"]]


def test_what_a_scan_leaves_behind_is_allocated_around_it():
    """A scan may have no steps: what is read behind it is what was there before."""
    p = program(
        """
        def f(x: f32[3, 4]):
            a = tensor(f32[4])
            b = tensor(f32[4])
            y = tensor(f32[3, 4])
            for t in scan(3):
                for u in scan(2):
                    define(b[i], x[t, i], i=4)
                    define(a[j], b[j] + f32(1.0), j=4)
                define(y[t, k], a[k], k=4)
            return y
        """
    )
    body, found = create_loops(p).body, []
    while body:
        found.append([x.buffer.name for x in body if isinstance(x, Alloc)])
        body = next((x.body for x in body if isinstance(x, For)), ())
    assert found == [["a"], [], ["b"], []]
    check(p)
