"""Parts of the compiler, each asked about many inputs: what they say is what was written down, as
in decisions.py for whole programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from decisions import DRAWN, LEVELS, RARE, Corpus, Entry, draws, target
from hypothesis.errors import UnsatisfiedAssumption
from index_expressions import index_case
from schedule_kernels import CASES as KERNELS
from schedule_trials import Random
from strategies import COMMON_DTYPES
from strategies_graph import GENERATORS
from strategies_graph_maker import GRAPH_DTYPES, GraphMaker
from strategies_instructions import INSTRUCTIONS
from strategies_loop import random_kernel
from strategies_schedule import application, primitives

from tilewright.analyze.accesses import accesses
from tilewright.analyze.bounds import faults
from tilewright.analyze.dependence import conflict, meeting, possible
from tilewright.analyze.extremes import least, most
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.native import passes as backends
from tilewright.base.dtype import DTYPES, DType, f32
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.passes import Recorder
from tilewright.ir.dims import canonical
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Symbol,
    UnaryOp,
    Var,
    as_expr,
    binary,
    cast,
    const,
    maximum,
    unary,
)
from tilewright.ir.loop import (
    Accumulate,
    Block,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.check import lookups
from tilewright.ops.table import OPS
from tilewright.optimize.compare_sizes import is_at_least, larger_of, round_up
from tilewright.optimize.pack_slots import Lifetime, pack_slots
from tilewright.optimize.recompute import Costs
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.plan.normal_form import normal_form
from tilewright.plan.preferred_layouts import preferred_layouts
from tilewright.plan.register_tile import register_tile
from tilewright.schedule.primitives.padding import pad_buffer
from tilewright.schedule.schedule import Schedule
from tilewright.targets import cpu

# ---------------------------------------------------------------- operators

MADE = [op for name, op in OPS.items() if name not in ("call", "relayout") and op.compute]
NODES = 30  # of each operator


def node(i: int) -> Entry:
    """Random nodes of an operator: its program, what it reads how often, and what it looks up."""
    op, texts, refused = MADE[i], [], 0
    for k in range(NODES):
        maker = GraphMaker(draws(i * NODES + k), OPS, GRAPH_DTYPES, k % 2 == 0, GENERATORS)
        try:
            made = maker.apply(op)
        except UnsatisfiedAssumption:
            made = None
        if made is None:
            refused += 1
            continue
        n, costs = maker.nodes[-1], Costs()
        texts += [str(n), str(costs.program(n)), str(create_loops(costs.program(n)))]
        texts += [f"{costs.is_cheap(n)} {costs.mentions(n, p)} {costs.reads(n, p)}"
                  for p in range(len(n.inputs))]  # fmt: skip
        texts += [f"{x.kind} {x.operand} {x.at([a.var for a in x.axes])} {x.extent} {x.beside}"
                  for x in lookups(n)]  # fmt: skip
    return Entry(op.name, f"{NODES - refused} nodes, {refused} refused", "\n".join(texts))


WINDOWS = ("conv", "max_pool", "average_pool", "lp_pool")
POOLINGS = 24


def window(i: int) -> Entry:
    """Windows over one axis to four: strides, padding, dilations, a last window that reaches
    beyond, sizes that have no number."""
    name, rank = WINDOWS[i // 4], i % 4 + 1
    op, texts, refused = OPS[name], [], 0
    for k in range(POOLINGS):
        d = draws(100 * i + k)
        attrs = _window_attrs(d, name, rank)
        n = Symbol("n", 1, d.pick((None, 9)))
        sizes = [n if d.chance(4) else d.int(3, 9) for _ in range(rank)]
        types = [TensorType(f32, (2, 4, *sizes))]
        if name == "conv":
            window = [d.int(1, 3) for _ in range(rank)]
            types.append(TensorType(f32, (6, 4 // attrs["groups"], *window)))
        try:
            values = op.make_attrs(**attrs)
            texts += map(str, (attrs, *op.infer(values, types)))
            inputs = [Buffer(f"x{p}", t.dtype, t.shape) for p, t in enumerate(types)]
            texts.append(str(op_program(op, values, inputs)))
        except ModelError as error:
            texts.append(str(error))
            refused += 1
    return Entry(f"{name} {rank}", f"{POOLINGS} ways, {refused} refused", "\n".join(texts))


def _window_attrs(d: Random, name: str, rank: int) -> dict[str, object]:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(d.int(low, high) for _ in range(rank))

    found = {"strides": each(1, 3), "dilations": each(1, 2)}
    found |= {"pads_begin": each(0, 1), "pads_end": each(0, 1)}
    if name == "conv":
        return found | {"groups": d.pick((1, 2))}
    found |= {"kernel": each(1, 3), "ceil": d.chance(2)}
    own = {
        "max_pool": {"indices": d.chance(2), "column_major": d.chance(2)},
        "average_pool": {"include_pad": d.chance(2)},
        "lp_pool": {"p": d.int(1, 3)},
    }
    return found | own[name]


# ---------------------------------------------------------------- scalars

TYPES = tuple(DTYPES.values())


def scalar(i: int) -> Entry:
    """Every scalar operator and conversion of a type, one at a time and in vectors: the code."""
    level, lanes = (("avx2", 1), ("sse2", 8), ("avx512", 16), ("neon-dot", 4))[i % 4]
    dtype, where = TYPES[i // 4], cpu.cpu(level)
    texts, refused = [], 0
    for make in (*_operators(dtype), *_conversions(dtype)):
        try:
            made = _mapped(dtype, make, lanes)
            low = backends.lower(made, where, Recorder(), verify=False)
            texts.append(backends.to_llvm(low, where))
        except TilewrightError as error:
            texts.append(str(error))
            refused += 1
    summary = f"{len(texts)} functions, {refused} refused; {sum(map(len, texts)):,} characters"
    return Entry(f"{dtype} {where.name}", summary, "\n".join(texts))


def _operators(dtype: DType) -> Iterator[Callable[[Expr, Expr], Expr]]:
    for op in UnaryOp:
        yield lambda a, b, op=op: unary(op, a)
    for op in BinaryOp:
        yield lambda a, b, op=op: binary(op, a, b)


def _conversions(dtype: DType) -> Iterator[Callable[[Expr, Expr], Expr]]:
    for to in TYPES:
        yield lambda a, b, to=to: cast(to, a)


def _mapped(dtype: DType, make: Callable[[Expr, Expr], Expr], lanes: int) -> Kernel:
    x, y, lane, outer = Buffer("x", dtype, (16,)), Buffer("y", dtype, (16,)), Var("lane"), Var("i")
    at = outer * lanes + lane
    value = make(x[at], y[at])
    z = Buffer("z", value.dtype, (16,))
    inner = For(lane, lanes, (Store(z, (at,), value),), LoopKind.VECTORIZE)
    body = (For(outer, 16 // lanes, (inner,)),)
    return Kernel("mapped", (x, y), (z,), body)


# ---------------------------------------------------------------- tiles and layouts

EXTENTS = (None, 1, 2, 3, 5, 6, 7, 8, 12, 14, 16, 17, 31, 48, 64, 100)


def tile(i: int) -> Entry:
    """The register tiles of results of all sizes."""
    where, lanes = target(i // 2), (4, 8)[i % 2]
    found = [[register_tile(r, c, lanes, where.vector) for c in EXTENTS] for r in EXTENTS]
    text = "\n".join(" ".join(f"{t.rows}x{t.vectors}" for t in row) for row in found)
    largest = max((t.rows * t.vectors, t.rows, t.vectors) for row in found for t in row)
    return Entry(f"{where.name}, {lanes} lanes", f"at most {largest[1]}x{largest[2]}", text)


def layout(i: int) -> Entry:
    """How the operands of a kernel's contraction should lie, and schedules where they do."""
    name, case = tuple(KERNELS.items())[i]
    texts = []
    for level in range(len(LEVELS)):
        where = target(level)
        s = Schedule(case.kernel.bind(**case.larger).kernel)
        buffers = s.kernel.params
        blocked = {b.name: Layout(tuple(range(len(b.shape))), ((len(b.shape) - 1, 4),))
                   for b in buffers if b.shape}  # fmt: skip
        texts += [str(preferred_layouts(s.kernel, where, known)) for known in ({}, blocked)]
        ways = ({}, blocked, dict(list(blocked.items())[level % 2 :: 2]))
        for layouts in ways[level % 2 :: 2] if level else ways:
            try:
                texts.append(str(default_schedule(s.kernel, where, layouts).trace))
            except TilewrightError as error:
                texts.append(str(error))
    return Entry(name, texts[0][:60], "\n".join(texts))


# ---------------------------------------------------------------- memory and sizes


TRIES = 8


def _size(d: Random, symbols: Sequence[Symbol]) -> Dim:
    one, other = d.pick(symbols), d.pick(symbols)
    size = d.pick((
        as_expr(d.int(1, 5000)), one * d.int(1, 600), one * other * d.int(1, 8) + d.int(0, 64),
        (one + d.int(0, 5)) // d.int(2, 4) * d.int(1, 64), maximum(one * 4, other + d.int(0, 9)),
        one * d.int(1, 9) - d.int(0, 3), maximum(one, other) * d.int(3, 9) - maximum(one, 3) * 2,
        maximum(one - 20, other) * one, (one * d.int(1, 5) + 3) // 4 * other,
    ))  # fmt: skip
    return canonical(size)


def memory(i: int) -> Entry:
    """Random lifetimes, packed; which of two sizes is the larger."""
    d, texts, wasted = draws(i), [], 0
    symbols = [Symbol("n"), Symbol("m", 1, 40), Symbol("k", 16)]
    for _ in range(TRIES):
        lives = []
        for _ in range(d.int(0, 14)):
            size = d.int(0, 3000) if i % 2 else _size(d, symbols)
            first = d.int(0, 9)
            lives.append(Lifetime(size, first, first + d.int(0, 4)))
        found = pack_slots(lives)
        texts.append(f"{lives}: {found}")
        wasted += found.typical > found.least
    for _ in range(24):
        a, b = _size(d, symbols), _size(d, symbols)
        texts.append(f"{a} {b}: {is_at_least(a, b)} {larger_of(a, b)} {round_up(a, 64)}")
    return Entry(f"{i}", f"{wasted} of {TRIES} larger than what lives at once", "\n".join(texts))


# ---------------------------------------------------------------- loop programs


def extreme(i: int) -> Entry:
    """The least and the greatest of random subscripts."""
    d, texts = draws(i), []
    for _ in range(20):
        cases = [index_case(d) for _ in range(d.int(1, 3))]
        s = Simplifier({v: n for c in cases for v, n in c.extents.items()})
        parts = [c.expr for c in cases]
        parts += [parts[0] + d.int(-2, 2), binary(d.pick((BinaryOp.MIN, BinaryOp.MAX)), *parts[:1],
                  const(d.int(0, 9)))]  # fmt: skip
        texts += [str(least(s, parts)), str(most(s, parts))]
    return Entry(f"{i}", f"{sum(map(len, texts)) // len(texts)} characters", "\n".join(texts))


def fault(i: int) -> Entry:
    """Random kernels, one statement of each damaged: what is found to be wrong with it."""
    d, texts, count = draws(i), [], 0
    for _ in range(10):
        made = random_kernel(d, COMMON_DTYPES, symbolic=d.chance(2))
        for kernel in (made, _damaged(d, made)):
            found = list(faults(kernel))
            count += len(found)
            texts += [f"{x} {x.hint}" for x in found]
    return Entry(f"{i}", f"{count} faults", "\n".join(texts))


def _damaged(d: Random, made: Kernel) -> Kernel:
    """One statement gone, at another place, or in a longer loop."""
    victim = d.pick([s for s in walk_statements(made.body) if not isinstance(s, If)])
    way = d.int(0, 2)

    def change(stmt: Stmt) -> Stmt | Block | None:
        if stmt is not victim:
            return map_inner_blocks(stmt, lambda b: map_block(b, change))
        if isinstance(stmt, For) and way:
            return stmt.with_(extent=stmt.extent + way)
        if isinstance(stmt, (Store, Accumulate)) and way and stmt.indices:
            return stmt.with_(indices=(stmt.indices[0] + (3 - 2 * way), *stmt.indices[1:]))
        return stmt if way else None

    return made.with_(body=map_block(made.body, change))


def order(i: int) -> Entry:
    """Which accesses of random kernels meet, for which loops order matters, and why."""
    d, texts, met = draws(i), [], 0
    for k in range(4):
        made = random_kernel(d, RARE if k % 2 else COMMON_DTYPES, symbolic=k > 1)
        loops = [s for s in walk_statements(made.body) if isinstance(s, For)]
        s = Simplifier({x.var: x.extent for x in loops})
        found = list(accesses(made.body))
        for a in found[:9]:
            texts.append(f"{a} {possible(a, s, *(v.var.equals(1) for v in a.loops[:1]))}")
            others = [b for b in found[:9] if b.buffer == a.buffer and (a.writes or b.writes)]
            pairs = [str(meeting(a, b, s)) for b in others]
            met += sum(x != "None" for x in pairs)
            texts += pairs
        texts += [str(conflict(x.body, x.var, s, concurrent=c)) for x in loops for c in (0, 1)]
    return Entry(f"{i}", f"{met} pairs meet", "\n".join(texts))


# ---------------------------------------------------------------- primitives

WAYS = 60  # to apply a primitive
NAMES = (*DRAWN, *(name for name in primitives() if name not in DRAWN))  # new ones get new lines


def primitive(i: int) -> Entry:
    """A primitive on kernels that a few others were applied to: the program, or why not; and the
    steps as Python and as JSON."""
    name, texts, accepted, tried = NAMES[i], [], 0, 0
    cases = tuple(KERNELS.values())
    for k in range(WAYS):
        d = draws(1000 * i + k)
        case = d.pick(cases)
        s = Schedule(case.kernel.bind(**case.larger).kernel)
        names = [d.pick(DRAWN) for _ in range(d.int(0, 3))] + [name]
        for step in (application(d, s, x) for x in names):
            if step is None:
                continue
            tried += 1
            try:
                step(s)
                accepted += 1
            except TilewrightError as error:
                texts.append(f"{step}: {error}")
        texts += [str(s.kernel), s.trace.python(), s.trace.json()]
    return Entry(name, f"{accepted} of {tried} steps", "\n".join(texts))


def mapped(i: int) -> Entry:
    """Instructions of no chip in particular for the loops of a kernel, padded or not."""
    name, case = tuple(KERNELS.items())[i]
    d, texts, accepted = draws(i), [], 0
    for k in range(40):
        s = Schedule(normal_form(case.kernel.bind(**case.larger).kernel))
        types = {b.dtype for b in s.kernel.params}
        fitting = [x for x in INSTRUCTIONS if x.operands[0].dtype in types]
        inner = [x for x in s.loops() if not any(isinstance(y, For) for y in s.for_(x).body)]
        loop = d.pick(s.loops() if d.chance(3) else inner)
        instruction = d.pick(fitting or INSTRUCTIONS)
        try:
            if k % 4 == 0:
                s.pad(loop, d.pick((4, 16)))
            if k % 4 == 1:
                s.apply(pad_buffer, d.pick(s.kernel.params), 0, 8)
            s.tensorize(loop, instruction)
            accepted += 1
            texts.append(str(s.kernel))
        except TilewrightError as error:
            texts.append(f"{loop} {instruction.name}: {error}")
    return Entry(name, f"{accepted} of 40 accepted", "\n".join(texts))


CORPORA: dict[str, Corpus] = {
    "nodes": Corpus(node, len(MADE), 4),
    "windows": Corpus(window, 4 * len(WINDOWS), 1),
    "scalars": Corpus(scalar, 4 * len(TYPES), 1),
    "register_tiles": Corpus(tile, 2 * len(LEVELS), 8),
    "layouts": Corpus(layout, len(KERNELS), 4),
    "memory": Corpus(memory, 12, 1),
    "extremes": Corpus(extreme, 16, 2),
    "faults": Corpus(fault, 24, 2),
    "orders": Corpus(order, 32, 4),
    "primitives": Corpus(primitive, len(NAMES), 1),
    "mapped": Corpus(mapped, len(KERNELS), 4),
}
