"""What the compiler decides for a corpus of programs, as text: `make decisions` writes it down.

    python tests/decisions.py                   write tests/decisions/*.txt
    python tests/decisions.py --show kernels 2  all texts of one of them, as they are now

Each line is one program: counts that say what was decided, and a checksum of all the texts that
led there, so that no decision changes unseen. A change of the compiler that should change nothing
changes no line; one that should shows what it did, in a few numbers. Nothing is run or timed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(TESTS / "ops"), str(TESTS.parent / "benchmarks")]
sys.path.insert(0, str(TESTS / "ops"))

import op_cases  # noqa: E402  (the paths above)
import stream_cases  # noqa: E402
from op_examples import CASES as OPERATORS  # noqa: E402
from schedule_kernels import CASES as KERNELS  # noqa: E402
from schedule_trials import Random  # noqa: E402
from strategies import COMMON_DTYPES  # noqa: E402
from strategies_loop import random_kernel  # noqa: E402
from strategies_networks import network  # noqa: E402
from strategies_programs import DTYPES, program  # noqa: E402
from strategies_schedule import application, primitives  # noqa: E402

from tilewright import backends  # noqa: E402
from tilewright.base.errors import TilewrightError  # noqa: E402
from tilewright.base.passes import Recorder  # noqa: E402
from tilewright.codegen.disassemble import disassemble  # noqa: E402
from tilewright.codegen.host_cost import kernel_cost  # noqa: E402
from tilewright.codegen.host_llvm import KernelSignature, emit_host  # noqa: E402
from tilewright.compile import call_program, compile  # noqa: E402
from tilewright.ir.expr import Symbol  # noqa: E402
from tilewright.ir.loop import Kernel, symbols, walk_statements  # noqa: E402
from tilewright.ops.function import CALL  # noqa: E402
from tilewright.ops.table import OPS  # noqa: E402
from tilewright.optimize.plan_memory import KernelUse, plan_memory  # noqa: E402
from tilewright.schedule.create_loops import create_loops  # noqa: E402
from tilewright.schedule.default import default_schedule  # noqa: E402
from tilewright.schedule.schedule import Schedule  # noqa: E402
from tilewright.target.target import Target  # noqa: E402
from tilewright.targets import cpu  # noqa: E402

FOLDER = TESTS / "decisions"
LEVELS = ("sse2", "avx2", "avx512", "neon-dot")
COMPUTED = [c for c in OPERATORS if OPS[c.op].evaluate is None]  # others are functions of numpy
SERIES, STEPS = 3, 16  # of primitives, for each kernel


@dataclass(frozen=True)
class Entry:
    """One program: what was decided, in a few numbers, and the texts of everything."""

    name: str
    summary: str
    text: str

    @property
    def line(self) -> str:
        return f"{self.name}: {self.summary} [{zlib.crc32(self.text.encode()):08x}]"


def target(i: int) -> Target:
    return cpu.cpu(LEVELS[i % len(LEVELS)], cores=8)


def draws(seed: int) -> Random:
    return Random(random.Random(seed))


# ---- a loop program, from its schedule to LLVM --------------------------------------------------


def native_entry(name: str, kernel: Kernel, where: Target, *before: object) -> Entry:
    s = default_schedule(kernel, where, {})
    cost = "" if symbols(kernel) else str(s.cost(where))
    done = f"{len(s.trace)} steps, {cost.splitlines()[-1] if cost else 'any size'}"
    return lowered(name, s.kernel, where, done, *before, s.trace, cost)


def lowered(name: str, kernel: Kernel, where: Target, done: str, *before: object) -> Entry:
    """What code generation makes of a kernel as it is scheduled."""
    low = backends.lower(kernel, where, Recorder(), verify=False)
    llvm = backends.to_llvm(low, where)
    statements = sum(1 for _ in walk_statements(low.body))
    counts = [f"{len(re.findall(rf'{w} ', llvm))} {w}" for w in ("load", "store", "call")]
    summary = re.sub(" +", " ", f"{done}; {statements} statements; {', '.join(counts)}")
    return Entry(name, summary, "\n".join(map(str, (*before, kernel, low, llvm))))


def operator(i: int) -> Entry:
    """Every operator, with numbers and with a symbol for sizes."""
    case = COMPUTED[i // 2]
    op, attrs, types, _ = op_cases.prepare(case, Symbol("n") if i % 2 else op_cases.N)
    made = op_cases.program_of(op, attrs, types)
    return native_entry(f"{i} {op.name}", create_loops(made), target(i), made)


def kernel(i: int) -> Entry:
    """The kernels that schedules are tried on, at sizes that are worth tiling."""
    name, case = tuple(KERNELS.items())[i // len(LEVELS)]
    where, scale = target(i), (7, 11, 16, 4)[i % len(LEVELS)]
    bound = case.kernel.bind(**{n: size * scale for n, size in case.larger.items()})
    return native_entry(f"{name} {where.name}", bound.kernel, where)


def model(i: int) -> Entry:
    """Random kernels as models have them."""
    made = program(draws(i), DTYPES).program
    return native_entry(f"{i} {made.name} {target(i).name}", create_loops(made), target(i))


def loop(i: int) -> Entry:
    """Random loop programs as they are: what lowering and code generation make of them."""
    made = random_kernel(draws(i), COMMON_DTYPES)
    return lowered(f"{i} {target(i).name}", made, target(i), "as it is")


# ---- schedules, graphs, chips -------------------------------------------------------------------


def series(i: int) -> Entry:
    """Random primitives: which are refused, in what words, and what the others make."""
    name, case = tuple(KERNELS.items())[i]
    d, texts, refused, accepted = draws(i), [], 0, 0
    for _ in range(SERIES):
        s = Schedule(case.kernel.bind(**case.larger).kernel)
        for _ in range(STEPS):
            step = application(d, s, d.pick(primitives()))
            if step is None:
                continue
            try:
                step(s)
                accepted += 1
            except TilewrightError as error:
                texts.append(f"{step}: {error}")
                refused += 1
        texts += [str(s.trace), str(s.kernel)]
    return Entry(name, f"{accepted} steps, {refused} refused", "\n".join(texts))


def graph(i: int) -> Entry:
    """Random networks: operators merged and grouped, layouts, the plan of memory, the host."""
    made, where, recorder = network(draws(i)), target(i), Recorder()
    optimized = compile(made, target=where, recorder=recorder, until="optimized")
    texts = [f"{s.name}\n{s.text}" for s in recorder.steps if s.changed]
    uses, signatures = {}, {}
    for k, n in enumerate(n for n in optimized.nodes if n.op is CALL):
        called, layouts = call_program(n)
        s = default_schedule(create_loops(called), where, layouts)
        low = backends.lower(s.kernel, where, Recorder(), verify=False)
        uses[n] = KernelUse(f"k{k}", low.scratch, symbols(low))
        signatures[f"k{k}"] = KernelSignature(f"k{k}", len(low.params), len(symbols(low)))
        texts += [str(s.trace), str(low), str(kernel_cost(called))]
    plan = plan_memory(optimized, uses, {})
    texts += [str(plan.program), emit_host(plan.program, signatures, triple="x86_64")]
    summary = f"{len(made.nodes)} nodes, {len(uses)} kernels, {len(optimized.nodes) - len(uses)}"
    summary += f" others; {plan.arena} bytes, {plan.least_arena} at once"
    return Entry(f"{i} {where.name}", summary, "\n".join(texts))


def chip(i: int) -> Entry:
    """Kernels on chips: tiles, what the model expects, the stream with its waits, cycles."""
    name, case = tuple(stream_cases.CASES.items())[i]
    built = case.build()
    tile = " ".join(f"{v}={n}" for v, n in built.tile.items())
    bound = built.bound.cycles if built.bound is not None else None
    cycles = f"{built.cycles} cycles, {built.predicted} expected, at least {bound}"
    summary = f"{tile}; {len(built.stream)} instructions, {built.waits.count} waits; {cycles}"
    listed = "\n".join(disassemble(built.stream, built.waits))
    return Entry(name, summary, f"{built.kernel}\n{listed}\n{built.timeline.busy}")


CORPORA: dict[str, tuple[Callable[[int], Entry], int]] = {
    "operators": (operator, 2 * len(COMPUTED)),
    "kernels": (kernel, len(LEVELS) * len(KERNELS)),
    "models": (model, 120),
    "loops": (loop, 160),
    "series": (series, len(KERNELS)),
    "graphs": (graph, 40),
    "chips": (chip, len(stream_cases.CASES)),
}


def written(corpus: str) -> list[str]:
    return (FOLDER / f"{corpus}.txt").read_text(encoding="utf-8").splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--show", nargs=2, metavar=("CORPUS", "NUMBER"), help="print an entry")
    options = parser.parse_args()
    if options.show is not None:
        entry = CORPORA[options.show[0]][0](int(options.show[1]))
        print(f"{entry.line}\n{entry.text}")
        return 0
    for name, (make, count) in CORPORA.items():
        lines = "".join(f"{make(i).line}\n" for i in range(count))
        (FOLDER / f"{name}.txt").write_text(lines, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
