"""What the compiler decides for whole programs: operators, kernels, networks, kernels on chips."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import coarse
import op_cases
import stream_cases
from decisions import DRAWN, LEVELS, MODELS, RARE, Corpus, Entry, draws, lowered, target
from hypothesis.errors import UnsatisfiedAssumption
from index_expressions import index_case
from op_examples import CASES as OPERATORS
from schedule_kernels import CASES as KERNELS
from schedule_trials import Random
from strategies import COMMON_DTYPES
from strategies_graph import GENERATORS
from strategies_graph_maker import GRAPH_DTYPES, GraphMaker
from strategies_loop import random_kernel
from strategies_networks import network
from strategies_programs import DTYPES as MODEL_DTYPES
from strategies_programs import program
from strategies_schedule import application
from strategies_tensor import random_tensor_program

from tilewright.analyze.dependence import conflict
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.host.cost import kernel_cost
from tilewright.backends.host.llvm import KernelSignature, emit_host
from tilewright.backends.native import passes as backends
from tilewright.backends.stream.disassemble import disassemble
from tilewright.base.dtype import bool_, f64, i32, u8
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.passes import Recorder
from tilewright.compiler import compile
from tilewright.ir.expr import Symbol
from tilewright.ir.loop import For, Kernel, symbols, walk_statements
from tilewright.ir.op import attr_rows
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.function import CALL
from tilewright.ops.table import OPS
from tilewright.optimize.call_program import call_program
from tilewright.optimize.plan_memory import KernelUse, plan_memory
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.plan.normal_form import normal_form
from tilewright.runtime.records import to_json
from tilewright.schedule.schedule import Schedule
from tilewright.sim import timeline as timelines
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.target.target import Target

COMPUTED = [c for c in OPERATORS if OPS[c.op].evaluate is None]  # others are functions of numpy
CHIPS = tuple(stream_cases.CASES.items())[::2]
SERIES, STEPS = 3, 16  # of primitives, for each kernel
EXPRESSIONS, COARSE, GRAPHS = 30, 8, 10  # in one entry


# ---- a loop program, from its schedule to LLVM --------------------------------------------------


def native_entry(name: str, kernel: Kernel, where: Target, *before: object) -> Entry:
    s = default_schedule(kernel, where, {})
    cost = "" if symbols(kernel) else str(s.cost(where))
    done = f"{len(s.trace)} steps, {cost.splitlines()[-1] if cost else 'any size'}"
    return lowered(name, s.kernel, where, done, *before, s.trace, cost)


def operator(i: int) -> Entry:
    """Every operator, with numbers and with a symbol for sizes."""
    case = COMPUTED[i // 2]
    op, attrs, types, _ = op_cases.prepare(case, Symbol("n") if i % 2 else op_cases.N)
    made = op_cases.program_of(op, attrs, types)
    return native_entry(f"{i} {op.name}", create_loops(made), target(i), made)


def types(i: int) -> Entry:
    """What every operator says of itself, and of operands that are nearly those of its example."""
    op, attrs, given, _ = op_cases.prepare(OPERATORS[i], Symbol("n"))
    low, high = op.arity
    texts = [f"{op.name} {op.category} {op.types} {op.elementwise} {attrs}"]
    texts += [str(row) for row in attr_rows(op)]
    asked, refused = [given, *changed(given, high)], 0
    for operands in asked:
        try:
            texts.append(" ".join(map(str, op.infer(attrs, operands))))
        except ModelError as error:
            texts.append(str(error))
            refused += 1
    summary = f"{low} to {high} operands, {op.category.value}; {len(asked)} ways, {refused} refused"
    return Entry(f"{i} {op.name}", summary, "\n".join(texts))


def changed(given: Sequence[TensorType], most: int) -> Iterator[list[TensorType]]:
    """Operands of which one has another type or shape, or one more, as far as there may be."""
    for k, kind in enumerate(given):
        shapes = [(*kind.shape[:d], 3, *kind.shape[d + 1 :]) for d in range(kind.rank)]
        others = [TensorType(kind.dtype, shape) for shape in (*shapes, (2, *kind.shape))]
        others += [TensorType(dtype, kind.shape) for dtype in (f64, i32, u8, bool_)]
        others += [TensorType(kind.dtype, kind.shape[1:])] if kind.rank else []
        yield from ([*given[:k], other, *given[k + 1 :]] for other in others)
    if len(given) < most:
        yield from ([*given, other] for other in given)


def kernel(i: int) -> Entry:
    """The kernels that schedules are tried on, at sizes that are worth tiling."""
    name, case = tuple(KERNELS.items())[i // len(LEVELS)]
    where, scale = target(i), (7, 11, 16, 4)[i % len(LEVELS)]
    bound = case.kernel.bind(**{n: size * scale for n, size in case.larger.items()})
    return native_entry(f"{name} {where.name}", bound.kernel, where)


def tensor(i: int) -> Entry:
    """Random tensor programs: stages and scans."""
    made = random_tensor_program(draws(i), COMMON_DTYPES)
    return native_entry(f"{i} {target(i).name}", create_loops(made), target(i), made)


def model(i: int) -> Entry:
    """Random kernels as models have them."""
    made = program(draws(i), MODEL_DTYPES).program
    return native_entry(f"{i} {made.name} {target(i).name}", create_loops(made), target(i))


def loop(i: int) -> Entry:
    """Random loop programs as they are: what lowering and code generation make of them; every
    other one of element types that are rare."""
    made = random_kernel(draws(i), RARE if i % 2 else COMMON_DTYPES)
    where = target(i // 2)
    return lowered(f"{i} {where.name}", made, where, "as it is", *conflicts(made))


def conflicts(made: Kernel) -> Iterator[str]:
    """What keeps loops from running in any order, and at the same time."""
    loops = [s for s in walk_statements(made.body) if isinstance(s, For)]
    simplifier = Simplifier({s.var: s.extent for s in loops})
    for s in loops:
        for concurrent in (False, True):
            yield f"{s.var}: {conflict(s.body, s.var, simplifier, concurrent=concurrent)}"


def expression(i: int) -> Entry:
    """Random subscripts: what they are simplified to, their bounds, and how two of them compare."""
    d, texts = draws(i), []
    for _ in range(EXPRESSIONS):
        one, other = index_case(d), index_case(d)
        s = Simplifier({**other.extents, **one.extents})
        texts += [
            str(s(one.expr)),
            str(s.bounds(one.expr)),
            str(s.difference(one.expr, other.expr)),
        ]
        texts += [str(s(one.expr < other.expr)), str(s(one.expr.equals(other.expr)))]
    return Entry(f"{i}", f"{sum(map(len, texts)) // len(texts)} characters", "\n".join(texts))


# ---- schedules, graphs, chips -------------------------------------------------------------------


def series(i: int) -> Entry:
    """Random primitives: which are refused, in what words, and what the others make."""
    name, case = tuple(KERNELS.items())[i]
    d, texts, refused, accepted = draws(i), [], 0, 0
    for _ in range(SERIES):
        s = Schedule(case.kernel.bind(**case.larger).kernel)
        for _ in range(STEPS):
            step = application(d, s, d.pick(DRAWN))
            if step is None:
                continue
            try:
                step(s)
                accepted += 1
            except TilewrightError as error:
                texts.append(f"{step}: {error}")
                refused += 1
        texts += [str(s.trace), str(s.kernel), *anew(s, d)]
    return Entry(name, f"{accepted} steps, {refused} refused", "\n".join(texts))


def anew(s: Schedule, d: Random) -> Iterator[str]:
    """A trace with other factors: sizes of loops and buffers by formulas, or why there are none."""
    space = s.trace.space(s.original)
    factors = [x.name for x in s.trace.decisions() if type(x.value) is int]
    for way in (space.prove, *[space.candidate] * 4):
        try:
            found = way({name: d.int(1, 6) for name in factors if d.chance(2)})
        except TilewrightError as error:
            yield str(error)
        else:
            yield f"{found.extents} {found.footprints} {found.trips} {found.memory}"


def coarse_step(i: int) -> Entry:
    """Kernels that are nearly convolutions, and an instruction that is one."""
    d, texts, accepted = draws(i), [], 0
    for _ in range(COARSE):
        s = coarse.almost(d.int(0, 1 << 40))
        loop = d.pick(s.loops()[:3])
        try:
            s.tensorize(loop, coarse.conv, d.int(0, 1))
            accepted += 1
            texts.append(str(s.kernel))
        except TilewrightError as error:
            texts.append(str(error))
    return Entry(f"{i}", f"{accepted} of {COARSE} accepted", "\n".join(texts))


def operator_graph(i: int) -> Entry:
    """Random graphs over the whole table of operators."""
    texts, nodes, kernels = [], 0, 0
    for k in range(GRAPHS):
        d = draws(i * GRAPHS + k)
        try:
            made = GraphMaker(d, MODELS, GRAPH_DTYPES, True, GENERATORS).graph(6)
            found = compile(made, target=target(k), until="optimized")
            texts.append(f"{made}\n{found}")
        except (TilewrightError, UnsatisfiedAssumption) as error:  # sizes that depend on data
            texts.append(str(error))
            continue
        nodes, kernels = nodes + len(made.nodes), kernels + len(found.nodes)
    return Entry(f"{i}", f"{nodes} nodes, {kernels} afterwards", "\n".join(texts))


def graph(i: int) -> Entry:
    """Random networks: operators merged and grouped, layouts, the plan of memory, the host."""
    made, where, recorder = network(draws(i)), target(i), Recorder()
    optimized = compile(made, target=where, recorder=recorder, until="optimized")
    texts = [f"{s.name}\n{s.text}" for s in recorder.steps if s.changed]
    uses, signatures = {}, {}
    for k, n in enumerate(n for n in optimized.nodes if n.op is CALL):
        called, layouts = call_program(n, optimized.constants)
        s = default_schedule(create_loops(called), where, layouts)
        low = backends.lower(s.kernel, where, Recorder(), verify=False)
        uses[n] = KernelUse(f"k{k}", low.scratch, symbols(low))
        signatures[f"k{k}"] = KernelSignature(f"k{k}", len(low.params), len(symbols(low)))
        texts += [str(s.trace), str(low), str(kernel_cost(called))]
    plan = plan_memory(optimized, uses, {})
    texts += [str(plan.program), json.dumps(to_json(plan.program))]
    texts.append(emit_host(plan.program, signatures, triple="x86_64"))
    summary = f"{len(made.nodes)} nodes, {len(uses)} kernels, {len(optimized.nodes) - len(uses)}"
    summary += f" others; {plan.arena} bytes, {plan.least_arena} at once"
    return Entry(f"{i} {where.name}", summary, "\n".join(texts))


def chip(i: int) -> Entry:
    """Kernels on chips: tiles, what the model expects, the stream with its waits, cycles."""
    name, case = CHIPS[i]
    built = case.build()
    tile = " ".join(f"{v}={n}" for v, n in built.tile.items())
    bound = built.bound.cycles if built.bound is not None else None
    cycles = f"{built.cycles} cycles, {built.predicted} expected, at least {bound}"
    summary = f"{tile}; {len(built.stream)} instructions, {built.waits.count} waits; {cycles}"
    texts = [str(built.kernel), *disassemble(built.stream, built.waits), str(built.timeline)]
    texts.append(json.dumps(list(timelines.events(built.timeline))))
    return Entry(name, summary, "\n".join(texts))


def choice(i: int) -> Entry:
    """All tiles that fit, and how many cycles the model expects of each."""
    name, case = CHIPS[3 * i]
    model = analytic_model(normal_form(case.source), case.target())
    found = choose_tiles(model, run_pipelines, overlap=case.overlap)
    texts = []
    for c in found:
        tile = " ".join(f"{v.name}={n}" for v, n in c.plan.tile.items())
        order = " ".join(v.name for v in c.plan.order)
        distances = f"{c.plan.prefetch_distance} {c.plan.result_buffers}"
        texts.append(f"{tile}; {order}; {distances}: {c.cycles}")
    summary = f"{len(found)} choices, the best {texts[0]}"
    return Entry(name, summary, "\n".join(texts))


CORPORA: dict[str, Corpus] = {
    "operators": Corpus(operator, 2 * len(COMPUTED), 7),
    "types": Corpus(types, len(OPERATORS), 8),
    "kernels": Corpus(kernel, len(LEVELS) * len(KERNELS), 6),
    "models": Corpus(model, 120, 3),
    "tensors": Corpus(tensor, 80, 5),
    "loops": Corpus(loop, 160, 10),
    "expressions": Corpus(expression, 20, 2),
    "series": Corpus(series, len(KERNELS), 1),
    "coarse": Corpus(coarse_step, 5, 1),
    "graphs": Corpus(graph, 40, 1),
    "operator_graphs": Corpus(operator_graph, 20, 2),
    "chips": Corpus(chip, len(CHIPS), 1),
    "choices": Corpus(choice, len(CHIPS[::3]), 1),
}
