"""Random programs of small chips, and contractions on a signal processor: bundles, waits, cycles,
plans, and what is said of bundles with one thing changed, are what was written down
(decisions.py)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import dsp_kernels as k
import numpy as np
from bundle_programs import KEPT, LANES, M, V, small, whole
from decisions import Corpus, Entry

from tilewright.backends.bundles.assembly import assembly
from tilewright.backends.bundles.check import check, check_loops
from tilewright.backends.bundles.check_memory import check_instances
from tilewright.backends.bundles.choose import choose_plans
from tilewright.backends.bundles.code import Code, LoopControl, Repeat
from tilewright.backends.bundles.operations import Body
from tilewright.backends.bundles.program import make_program
from tilewright.backends.bundles.resource_bound import program_bound
from tilewright.backends.bundles.schedule_contraction import schedule_bundles
from tilewright.base.dtype import i8
from tilewright.base.errors import TilewrightError
from tilewright.ir.expr import Buffer, Expr, Var, as_expr, const
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import Alloc, Block, Call, For, Kernel
from tilewright.plan.control import Control
from tilewright.plan.fill_unit import fill_kernel
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.targets.dsp import dsp

CHIPS = (
    small(), small(ls=2, alu=2, ready=4, done=3), small(ls=2, busy=3, done=5),
    small(ready=1, done=1, loops=0), small(ls=2, busy=4, done=1, loops=0), small(alu=3, ready=6),
)  # fmt: skip
PROGRAMS, CHANGES = 96, 10


class Programs:
    """Loops over loads, stores and arithmetic on registers, of random numbers."""

    def __init__(self, target: Target, rng: np.random.Generator) -> None:
        self.by_name = {i.name: i for i in target.instructions}
        self.rng, self.count = rng, 0
        self.kept, self.spare = Buffer("A", i8, (KEPT * LANES,), V), Buffer("S", i8, (LANES,), V)

    def kernel(self, target: Target) -> Kernel:
        start = [self.call("ld", self.memory(const(LANES * j)), self.of(self.kept, j))
                 for j in range(KEPT)]  # fmt: skip
        start.append(self.call("ld", self.memory(const(0)), self.of(self.spare, 0)))
        middle: Block = ()
        for _ in range(self.rng.integers(1, 4)):
            if self.rng.random() < 0.3:
                outer = self.variable()
                inner = self.loop((outer,)) + (self.loop((outer,)) if self.few() else ())
                middle += (For(outer, int(self.rng.integers(1, 4)), inner),)
            else:
                middle += self.loop(())
        end = [self.call("st", self.of(self.kept, j), self.memory(const(64 * j)))
               for j in range(KEPT)]  # fmt: skip
        if self.few():
            end.append(self.call("st", self.of(self.spare, 0), self.memory(const(9))))
        return whole(target, (Alloc(self.kept), Alloc(self.spare), *start, *middle, *end))

    def few(self) -> bool:
        return bool(self.rng.random() < 0.4)

    def one(self, *values):
        return values[self.rng.integers(len(values))]

    def variable(self) -> Var:
        self.count += 1
        return Var(f"k{self.count}")

    def loop(self, around: tuple[Var, ...]) -> Block:
        var = self.variable()
        own = Buffer(f"P{self.count}", i8, (2 * LANES,), V)
        loops = (*around, var)
        body = [self.call("ld", self.memory(self.place(loops)), self.of(own, j)) for j in range(2)]
        body += [self.operation(own, loops) for _ in range(self.rng.integers(1, 7))]
        before = [self.operation(self.kept, around) for _ in range(self.rng.integers(0, 3))]
        return (*before, For(var, int(self.rng.integers(1, 15)), (Alloc(own), *body)))

    def operation(self, own: Buffer, loops: tuple[Var, ...]) -> Call:
        def register() -> Region:
            buffer = self.one(self.kept, own)
            return self.of(buffer, int(self.rng.integers(buffer.shape[0] // LANES)))

        name = self.one("ld", "st", "add", "mac", "window")
        if name == "ld":
            return self.call(name, self.memory(self.place(loops)), register())
        if name == "st":
            return self.call(name, register(), self.memory(self.place(loops)))
        if name == "window":
            first = int(self.rng.integers(LANES))
            other = self.spare if own == self.kept else self.kept
            to = self.of(other, int(self.rng.integers(other.shape[0] // LANES)))
            return self.call(name, Region(own, (axis(0) + first,)), to)
        return self.call(name, register(), register(), register())

    def place(self, loops: tuple[Var, ...]) -> Expr:
        found: Expr = const(int(self.rng.integers(11)) * 8)
        for var in loops:
            found = found + var * self.one(0, 8, 16, 24)
        return as_expr(found) % 128 if self.rng.random() < 0.2 else found

    def memory(self, place: Expr) -> Region:
        return Region(M, (place + axis(0),))

    def of(self, buffer: Buffer, j: int) -> Region:
        return Region(buffer, (axis(0) + LANES * j,))

    def call(self, name: str, *regions: Region) -> Call:
        return Call(self.by_name[name], regions)


def bundle(i: int) -> Entry:
    """A program in bundles; what the checks say of its bundles with one thing changed."""
    target, rng = CHIPS[i % len(CHIPS)], np.random.default_rng(7000 + i)
    kernel = Programs(target, rng).kernel(target)
    try:
        program = make_program(kernel, target)
    except TilewrightError as error:
        return Entry(f"{i}", f"{error.what}", str(error))
    t, texts, wrong = program.timeline, [], 0
    texts += [assembly(program), str(t), str(program_bound(program)), str(program.waits)]
    texts += [str(x.tolist()) for x in (program.boxes.touched.start, program.boxes.touched.extents)]
    for section, _ in itertools.product(program.sections, range(CHANGES)):
        code = changed(section.code, rng)
        said = [check_instances(section.body, code), check_loops(code, target.bundles)]
        said += judged(section.body, code, target)
        wrong += any(x is not None for x in said)
        texts += map(str, said)
    count = CHANGES * len(program.sections)
    return Entry(f"{i}", f"{t.cycles} cycles; {wrong} of {count} are wrong", "\n".join(texts))


def judged(body: Body, code: Code, target: Target) -> list[str | None]:
    """What the proof says; nothing of operations that it takes for those of no iteration."""
    try:
        return [check(body, code, target)]
    except KeyError:
        return []


def changed(code: Code, rng: np.random.Generator) -> Code:
    """One operation is gone, is issued again or elsewhere, or has another register; or a loop runs
    once more, or is never begun."""
    at = int(rng.integers(len(code)))
    item = code[at]
    if isinstance(item, Repeat):
        if rng.random() < 0.7:
            return (*code[:at], replace(item, code=changed(item.code, rng)), *code[at + 1 :])
        return (
            *code[:at],
            replace(item, count=max(1, item.count + one(rng, -1, 1))),
            *code[at + 1 :],
        )
    if not item:
        return (*code[:at], *code[at + 1 :])  # a cycle less
    k = int(rng.integers(len(item)))
    x, rest = item[k], (*item[:k], *item[k + 1 :])
    way = rng.integers(5)
    if isinstance(x, LoopControl) or way == 0:
        return (*code[:at], rest, *code[at + 1 :])
    if way == 1:
        return (*code[:at], (*item, x), *code[at + 1 :])
    if way == 2:
        return (*code[: at + 1], (), *code[at + 1 :])  # a cycle more
    if way == 3:
        registers = [r if r is None or rng.random() < 0.5 else (r + 1) % 16 for r in x.registers]
        x = replace(x, registers=tuple(registers))
        return (*code[:at], (*rest, x), *code[at + 1 :])
    bare = (*code[:at], rest, *code[at + 1 :])
    to = int(rng.integers(len(bare)))
    there = bare[to]
    return bare if isinstance(there, Repeat) else (*bare[:to], (*there, x), *bare[to + 1 :])


def one(rng: np.random.Generator, *values):
    return values[rng.integers(len(values))]


# ---------------------------------------------------------------- contractions

KERNELS = {
    "dots": k.dots.bind(M=8, N=32, K=32),
    "pairs": k.pairs.bind(N=32, K=64),
    "fir": k.fir.bind(T=512, K=16),
    "3x3": k.conv.bind(H=4, W=16, C=8, F=16, R=3),
    "1x1": k.conv.bind(H=4, W=16, C=16, F=32, R=1),
    "layer": k.layer.bind(H=4, W=16, C=8, F=64, R=3),
    "depthwise": k.depthwise.bind(H=6, W=6, C=64, R=3),
    "odd dots": k.dots.bind(M=5, N=17, K=12),
}
WHERE = {
    "small": lambda: dsp(local=4 << 10),
    "slow": lambda: dsp(local=16 << 10, bandwidth=2),
}
WAYS = [(n, w, o) for n in KERNELS for w in WHERE for o in (True, False)]
SHOWN, BUILT = 40, 2


def plan(i: int) -> Entry:
    """The plans, and how many cycles are expected of each; some of them as bundles."""
    name, where, overlap = WAYS[i]
    kernel, target = KERNELS[name].kernel, WHERE[where]()
    control = Control(overlap=overlap, rings=None if i % 3 else False)
    texts, cycles = [], []
    try:
        found = list(itertools.islice(choose_plans(kernel, target, control), SHOWN))
    except TilewrightError as error:
        return Entry(f"{name} {where} {overlap}", "refused", str(error))
    for c in found:
        p = c.plan
        shown = (dict(p.tile), dict(p.block), p.steady, p.order, dict(p.extents))
        texts.append(f"{shown} {c.cycles:.3f} {p.mapping.unit.instruction.name}")
    for c in found[1 :: max(1, len(found) // BUILT)][:BUILT]:
        s = Schedule(fill_kernel(kernel, c.plan.extents))
        try:
            layouts = schedule_bundles(s, target, c.plan, overlap=overlap)
            program = make_program(s.kernel, target)
        except TilewrightError as error:
            texts.append(str(error))
            continue
        texts += [str(layouts), str(s.kernel), assembly(program), str(program_bound(program))]
        cycles.append(program.timeline.cycles)
    best = f"{found[0].cycles:.0f} expected" if found else "none"
    return Entry(
        f"{name} {where} {overlap}", f"{len(found)} plans, {best}; {cycles}", "\n".join(texts)
    )


CORPORA: dict[str, Corpus] = {
    "bundles": Corpus(bundle, PROGRAMS, 4),
    "bundle_plans": Corpus(plan, len(WAYS), 1),
}
