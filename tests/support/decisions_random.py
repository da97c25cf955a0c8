"""More random programs than decisions.py has, asked for less of each: what is decided for them is
what was written down."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from decisions import DRAWN, MODELS, RARE, Corpus, Entry, draws, lowered, target
from hypothesis.errors import UnsatisfiedAssumption
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

from tilewright.base.dtype import f32, i32
from tilewright.base.errors import TilewrightError
from tilewright.base.passes import Recorder
from tilewright.compiler import compile
from tilewright.ir.loop import symbols
from tilewright.ops.table import OPS
from tilewright.optimize.check_contents import check_contents
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.schedule.schedule import Schedule

# ---------------------------------------------------------------- graphs


def graph(i: int) -> Entry:
    """Random graphs over all operators, larger ones: as they are optimized, with checks of what
    their inputs hold."""
    texts, nodes, left = [], 0, 0
    for k in range(6):
        d = draws(7000 + 10 * i + k)
        try:
            made = GraphMaker(d, MODELS, GRAPH_DTYPES, k % 2 == 0, GENERATORS).graph(14)
            texts.append(str(check_contents(made)))
            found = compile(made, target=target(k), until="optimized")
        except (TilewrightError, UnsatisfiedAssumption) as error:
            texts.append(str(error))
            continue
        texts.append(str(found))
        nodes, left = nodes + len(made.nodes), left + len(found.nodes)
    return Entry(f"{i}", f"{nodes} nodes, {left} afterwards", "\n".join(texts))


SIMPLE = {n: op for n, op in MODELS.items() if op.elementwise and op.arity[1] < 3}
SIMPLE |= {n: OPS[n] for n in ("expand", "transpose", "reshape", "slice", "concat", "where", "pad")}
SIMPLE |= {n: OPS[n] for n in ("reduce_sum", "reduce_max", "softmax", "matmul", "gather")}


def grouped(i: int) -> Entry:
    """Random graphs of simple operators: which of them become one kernel."""
    texts, nodes, left = [], 0, 0
    for k in range(4):
        d = draws(8000 + 10 * i + k)
        try:
            made = GraphMaker(d, SIMPLE, (f32, i32), k % 2 == 0, GENERATORS).graph(16)
            found = compile(made, target=target(k), until="optimized")
        except (TilewrightError, UnsatisfiedAssumption) as error:
            texts.append(str(error))
            continue
        texts.append(str(found))
        nodes, left = nodes + len(made.nodes), left + len(found.nodes)
    return Entry(f"{i}", f"{nodes} nodes, {left} afterwards", "\n".join(texts))


def layered(i: int) -> Entry:
    """Random networks: every pass that changes them."""
    made, recorder = network(draws(7000 + i)), Recorder()
    found = compile(made, target=target(i), recorder=recorder, until="optimized")
    texts = [f"{s.name}\n{s.text}" for s in recorder.steps if s.changed]
    return Entry(f"{i}", f"{len(made.nodes)} nodes, {len(found.nodes)} left", "\n".join(texts))


# ---------------------------------------------------------------- kernels


def scheduled(i: int) -> Entry:
    """Random tensor programs and kernels as models have them: their steps and what they cost."""
    texts, steps = [], 0
    for k in range(8):
        d = draws(7000 + 10 * i + k)
        made = (
            random_tensor_program(d, COMMON_DTYPES) if k % 2 else program(d, MODEL_DTYPES).program
        )
        where = target(i + k // 2)
        s = default_schedule(create_loops(made), where, {})
        steps += len(s.trace)
        texts += [str(s.trace), "" if symbols(s.kernel) else str(s.cost(where))]
    return Entry(f"{i}", f"{steps} steps", "\n".join(texts))


def code(i: int) -> Entry:
    """Random loop programs, and what code generation makes of them."""
    made = random_kernel(draws(7000 + i), RARE if i % 2 else COMMON_DTYPES)
    return lowered(f"{i}", made, target(i // 2), "as it is")


FOLLOWED = ("fuse", "reorder", "vectorize", "unroll", "parallel", "set_memory", "pack_layout")
FOLLOWED += ("cache_write", "cache_read", "compute_at", "inline", "split_init", "rfactor")
FOLLOWED += ("multi_buffer", "fold_init", "annotate", "keep_whole")  # by formulas (derive.py)


def traced(d: Random, i: int, steps: int) -> Schedule:
    """A kernel, split and rewritten so many times at most."""
    case = tuple(KERNELS.values())[i]
    s = Schedule(case.kernel.bind(**case.larger).kernel)
    for _ in range(steps):
        step = application(d, s, "split" if d.chance(2) else d.pick(FOLLOWED))
        with suppress(TilewrightError):
            if step is not None:
                step(s)
    return s


def space(i: int) -> Entry:
    """A few steps, and the same ones with each factor in turn decided anew: sizes by formulas, or
    why there are none."""
    texts, steps, refused = [], 0, 0
    for k in range(9):
        d = draws(7000 + 10 * i + k)
        s = traced(d, i, 6)
        steps += len(s.trace)
        texts.append(str(s.trace))
        known = s.trace.space(s.original)
        for x in s.trace.decisions():
            for n in (1, 2, 3, 4, 6, 8) if type(x.value) is int else ():
                try:
                    found = known.candidate({x.name: n}) if n > 1 else known.prove({x.name: n})
                    texts.append(f"{found.extents} {found.footprints} {found.trips} {found.memory}")
                except TilewrightError as error:
                    # One of several loops is named, whichever comes first in a set.
                    texts.append(re.sub(r"along \S+", "along a loop", str(error)))
                    refused += 1
    return Entry(f"{i}", f"{steps} steps, {refused} values refused", "\n".join(texts))


def saved(i: int) -> Entry:
    """Saved steps with one thing in the text changed: what reading them says, or what they are."""
    d, texts, refused = draws(7000 + i), [], 0
    s = traced(d, i, 8)
    for _ in range(24):
        record = json.loads(s.trace.json())
        _damage(d, record)
        try:
            texts.append(str(s.read_trace(json.dumps(record))))
        except TilewrightError as error:
            texts.append(str(error))
            refused += 1
    return Entry(f"{i}", f"{len(s.trace)} steps; {refused} of 24 texts refused", "\n".join(texts))


ODD = (None, True, -1, 0, 3, 1.5, "x", "acc", [], [0], [0, 1], {}, {"loop": "i"}, {"step": 1})


def _damage(d: Random, part: Any) -> None:
    """Something in it is gone, is something else, or is there twice."""
    keys = list(part) if isinstance(part, dict) else list(range(len(part)))
    if not keys:
        return
    key = d.pick(keys)
    inner = part[key]
    if isinstance(inner, dict | list) and inner and not d.chance(5):
        _damage(d, inner)
    elif d.chance(4):
        del part[key]
    elif d.chance(4):
        if isinstance(part, dict):
            part["more"] = 1
        else:
            part.append(inner)
    else:
        part[key] = d.pick(ODD)


def rewritten(i: int) -> Entry:
    """Random loop programs, with conditions and places that memory decides: a few primitives."""
    texts, steps, refused = [], 0, 0
    for k in range(8):
        d = draws(9000 + 10 * i + k)
        s = Schedule(random_kernel(d, COMMON_DTYPES, symbolic=k % 4 == 0, kinds=False))
        for _ in range(8):
            step = application(d, s, d.pick(DRAWN))
            try:
                if step is not None:
                    step(s)
            except TilewrightError as error:
                texts.append(f"{step}: {error}")
                refused += 1
        steps += len(s.trace)
        texts.append(str(s.kernel))
    return Entry(f"{i}", f"{steps} steps, {refused} refused", "\n".join(texts))


def padded(i: int) -> Entry:
    """Every loop of random programs with more iterations, every array with more elements."""
    texts, done, refused = [], 0, 0
    for k in range(6):
        d = draws(9000 + 10 * i + k)
        made = random_kernel(d, COMMON_DTYPES, symbolic=False, kinds=False)
        if k % 3 == 0:
            case = tuple(KERNELS.values())[(2 * i + k // 3) % len(KERNELS)]
            made = case.kernel.bind(**case.tiny).kernel
        first = Schedule(made)
        wanted = [(x.var.name, n) for x in first.loops() for n in (4, 5)]
        axes = [
            (b, axis) for b in (*made.params, *first.allocations()) for axis in range(len(b.shape))
        ]
        for name, n in wanted:
            s = Schedule(made)
            done, refused = _tried(texts, s, partial(s.pad, s.loop(name), n), done, refused)
        for b, axis in axes:
            s = Schedule(made)
            done, refused = _tried(texts, s, partial(s.pad_buffer, b, axis, 4), done, refused)
    return Entry(f"{i}", f"{done} padded, {refused} refused", "\n".join(texts))


def _tried(
    texts: list[str], s: Schedule, step: Callable[[], object], done: int, refused: int
) -> tuple[int, int]:
    try:
        step()
    except TilewrightError as error:
        texts.append(str(error))
        return done, refused + 1
    texts.append(str(s.kernel))
    return done + 1, refused


CORPORA: dict[str, Corpus] = {
    "large_graphs": Corpus(graph, 100, 5),
    "grouped": Corpus(grouped, 80, 5),
    "layered": Corpus(layered, 160, 10),
    "scheduled": Corpus(scheduled, 72, 3),
    "code": Corpus(code, 480, 40),
    "rewritten": Corpus(rewritten, 40, 2),
    "padded": Corpus(padded, 24, 1),
    "saved": Corpus(saved, len(KERNELS), 9),
    "spaces": Corpus(space, len(KERNELS), 1),
}
