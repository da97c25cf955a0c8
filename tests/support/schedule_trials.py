"""Series of random primitives on the kernels of schedule_kernels.py, each judged and run.

A trial at tiny sizes asks the oracle about every proposal, also about those that were refused; one
at larger sizes, or at sizes that the schedule does not know, runs what was accepted. What goes
wrong is raised as `Finding`, with all that led to it.
"""

from __future__ import annotations

import enum
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from executor import run_concurrently
from fast_interpret import fast_interpret
from oracle import Edit, Oracle, edit
from schedule_kernels import CASES
from strategies import array, same
from strategies_expr import Draws
from strategies_schedule import (
    Application,
    application,
    packed_inputs,
    primitives,
    unpacked_outputs,
)

from tilewright.base.errors import ScheduleError, TilewrightError
from tilewright.ir.evaluate import evaluate_dim, poisoned
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Block, Call, For, LoopKind, sub_blocks, walk_statements
from tilewright.ir.tensor_type import Layout
from tilewright.ir.verify.loop import verify_kernel
from tilewright.kernels import build
from tilewright.lower.place_barriers import place_barriers
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

DATA = (3, 4, 9)  # seeds of what an oracle tries, where the program's order hangs on memory
LOOSE = ("reuse",)  # primitives that make accumulations of sums
LONGEST = 150  # statements of a program that is rewritten further
DEEPEST = 14  # loops in each other: Python nests twenty


class Finding(Exception):
    """Something that must not be."""


class Random(Draws):
    """Draws from a generator of random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def int(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)


class Kind(enum.Enum):
    """How a trial's kernel gets its sizes."""

    TINY = "tiny"  # judged by the oracle
    LARGER = "larger"
    SYMBOLIC = "symbolic"  # only when it is called


class Outcome(enum.Enum):
    """What became of a proposal."""

    ACCEPTED = "accepted"  # legal, if the oracle was asked
    LOST = "lost"  # refused, and the oracle would have had it
    ILLEGAL = "illegal"  # refused, and rightly
    PRECONDITION = "precondition"  # no edit to judge, whatever the dependences
    REFUSED = "refused"  # the oracle was not asked


@dataclass(frozen=True)
class Result:
    primitive: str
    outcome: Outcome
    reason: str = ""  # of a refusal


class Trial:
    """One kernel, and a schedule for it."""

    def __init__(self, name: str, kind: Kind, seed: int) -> None:
        case = CASES[name]
        values = case.larger if kind is Kind.LARGER else case.tiny
        bound = case.kernel if kind is Kind.SYMBOLIC else case.kernel.bind(**values)
        self.kind, self.kernel = kind, bound.kernel
        self.sizes = values if kind is Kind.SYMBOLIC else {}
        self.schedule = Schedule(self.kernel)
        self.inputs = [
            array(seed + i, b.dtype, [evaluate_dim(d, self.sizes) for d in b.shape])
            for i, b in enumerate(self.kernel.inputs)
        ]
        self.wanted = interpret(self.kernel, self.inputs, self.sizes)
        self.oracle = Oracle(self.kernel, {}, DATA) if kind is Kind.TINY else None
        self.is_loose = False
        self.layouts: dict[str, list[Layout]] = {}
        self.story = [f"{name}, {kind.value}, seed {seed}", str(self.kernel)]

    # ---------------------------------------------------------- proposals

    def propose(self, step: Application) -> Result:
        """Applies a step if it is accepted, and checks that this was right."""
        before, traced = self.schedule.kernel, len(self.schedule.trace)
        if self.oracle is not None and step.primitive in LOOSE and not self.is_loose:
            self.oracle, self.is_loose = Oracle(self.kernel, {}, DATA, loose=True), True
        judged = None if self.oracle is None else edit(self.schedule, step)
        self.story.append(f"\n{step}")
        try:
            step(self.schedule)
        except ScheduleError as error:
            self.story.pop()
            self.require(self.schedule.kernel is before, f"{step} was refused, and changed it")
            self.require(len(self.schedule.trace) == traced, f"{step} was refused, and traced")
            return self.refused(step, error.what, judged)
        except Exception as error:
            raise self.finding(f"{type(error).__name__}: {error}") from error
        if step.primitive == "pack_layout":
            buffer, layout = step.arguments
            self.layouts.setdefault(buffer.name, []).append(layout)
        self.story.append(str(self.schedule.kernel))
        try:
            verify_kernel(self.schedule.kernel)
        except TilewrightError as error:
            raise self.finding(f"no program was made: {error.what}") from error
        if self.oracle is not None:
            try:
                verdict = self.oracle.judge(self.schedule.kernel, self.layouts)
            except AssertionError as error:
                raise self.finding(f"no program was made: {error}") from error
            what = f"an illegal rewrite was accepted: {step.primitive}: {verdict.why}"
            self.require(verdict.legal, what)
        return Result(step.primitive, Outcome.ACCEPTED)

    def refused(self, step: Application, why: str, judged: Edit | None) -> Result:
        if self.oracle is None or judged is None:
            return Result(step.primitive, Outcome.REFUSED, self.general(why))
        if judged.kernel is None:
            return Result(step.primitive, Outcome.PRECONDITION, self.general(judged.refused))
        try:
            verify_kernel(judged.kernel)
            legal = self.oracle.judge(judged.kernel, self.layouts).legal
        except (TilewrightError, AssertionError):
            legal = False  # no program at all
        outcome = Outcome.LOST if legal else Outcome.ILLEGAL
        return Result(step.primitive, outcome, self.general(why))

    def general(self, why: str) -> str:
        """A refusal without the names and numbers of this program."""
        names = self.schedule.names() - {"a", "at", "place"}  # words of the refusals, too
        words = re.sub(r"[A-Za-z_]\w*", lambda m: "_" if m[0] in names else m[0], why)
        return re.sub(r"\d+", "n", words.split(":")[0].split(", for example")[0])

    # ---------------------------------------------------------- checks

    def check(self, *, slowly: bool) -> None:
        """The current program gives what the original did: in order, and where it has parallel or
        vector loops, at the same time; `slowly` by the definition as well."""
        kernel = self.schedule.kernel
        inputs = packed_inputs(self.kernel.inputs, self.inputs, self.layouts)
        self.compare(lambda: fast_interpret(kernel, inputs, self.sizes), "in order")
        loops = [s for s in walk_statements(kernel.body) if isinstance(s, For)]
        if slowly:
            self.compare(lambda: interpret(kernel, inputs, self.sizes), "by the definition")
        if any(s.kind not in (LoopKind.SERIAL, LoopKind.UNROLL) for s in loops):
            ready = place_barriers(kernel)
            self.compare(lambda: run_concurrently(ready, inputs, self.sizes), "at the same time")

    def check_native(self, target: Target) -> None:
        """The current program as machine code. There is none of another chip's instructions, nor
        for sizes that arrays do not tell."""
        calls = any(isinstance(s, Call) for s in walk_statements(self.schedule.kernel.body))
        if calls or (self.kind is Kind.SYMBOLIC and self.layouts):
            return
        try:
            built = build(self.schedule, target)
        except Exception as error:
            raise self.finding(f"no machine code: {error}") from error
        kernel = self.schedule.kernel
        inputs = packed_inputs(self.kernel.inputs, self.inputs, self.layouts)
        given = dict(zip([b.name for b in kernel.inputs], inputs, strict=True))
        for b in kernel.outputs:
            given[b.name] = poisoned([evaluate_dim(d, self.sizes) for d in b.shape], b.dtype)
        arrays = [np.ascontiguousarray(given[name]) for name in built.parameters]

        def run() -> list[np.ndarray]:
            found = built(*arrays)
            return list(found) if isinstance(found, tuple) else [found]

        self.compare(run, "as machine code")

    def compare(self, run: Callable[[], list[np.ndarray]], how: str) -> None:
        shapes = [a.shape for a in self.wanted]
        try:
            outputs = run()
        except Exception as error:
            raise self.finding(f"{how}: {type(error).__name__}: {error}") from error
        found = unpacked_outputs(self.kernel.outputs, outputs, self.layouts, shapes)
        for a, b, buffer in zip(self.wanted, found, self.kernel.outputs, strict=True):
            self.require(same(a, b), f"{buffer.name} {how}:\n{b}\nand not\n{a}")

    def require(self, truth: bool, what: str) -> None:
        if not truth:
            raise self.finding(what)

    def finding(self, what: str) -> Finding:
        return Finding("\n".join([what, "after", *self.story]))

    @property
    def is_large(self) -> bool:
        stmts = list(walk_statements(self.schedule.kernel.body))
        return len(stmts) > LONGEST or _depth(self.schedule.kernel.body) > DEEPEST


def _depth(block: Block) -> int:
    inner = [(isinstance(s, For), b) for s in block for b in sub_blocks(s)]
    return max([0, *(deeper + _depth(b) for deeper, b in inner)])


class Chooser:
    """Draws kernels and primitives: more often those of which little was accepted so far."""

    def __init__(self, rng: random.Random, quota: int) -> None:
        self.rng, self.quota = rng, quota
        self.hurries = False  # most steps are for primitives that are behind
        self.accepted: Counter[str] = Counter()  # by primitive
        self.kernels: defaultdict[str, Counter[str]] = defaultdict(Counter)  # for each primitive

    def note(self, kernel: str, result: Result) -> None:
        if result.outcome is Outcome.ACCEPTED:
            self.accepted[result.primitive] += 1
            self.kernels[result.primitive][kernel] += 1

    def kernel(self) -> str:
        """Any kernel; or one that the primitive which is furthest behind was accepted on."""
        rarest = min(primitives(), key=lambda p: self.accepted[p])
        known = self.kernels[rarest]
        if self.accepted[rarest] >= self.quota or not known or self.rng.random() < 0.5:
            return self.rng.choice(list(CASES))
        return self.rng.choices(list(known), list(known.values()))[0]

    def step(self, schedule: Schedule) -> Application | None:
        """A primitive with arguments; None if it finds nothing to apply to."""
        behind = [max(0.0, 1 - self.accepted[p] / self.quota) for p in primitives()]
        weights = [1 + (60 * (b > 0) if self.hurries else 12 * b) for b in behind]
        (name,) = self.rng.choices(primitives(), weights)
        return application(Random(self.rng), schedule, name)

    @property
    def is_content(self) -> bool:
        return all(self.accepted[p] >= self.quota for p in primitives())
