"""What the compiler decides for a corpus of programs, as text: `make decisions` writes it down.

Each line of tests/decisions/*.txt is one program: counts that say what was decided, and a checksum
of all the texts that led there, so that no decision changes unseen. A change of the compiler that
should change nothing changes no line; one that should shows what it did, in a few numbers. Nothing
is run or timed. The corpora are in decisions_*.py, all of them together in decisions_table.py.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schedule_trials import Random

from tilewright.backends.native import passes as backends
from tilewright.base.dtype import DTYPES
from tilewright.base.passes import Recorder
from tilewright.ir.loop import Kernel, walk_statements
from tilewright.ops.table import OPS
from tilewright.target.target import Target
from tilewright.targets import cpu

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "decisions"
LEVELS = ("sse2", "avx2", "avx512", "neon-dot")
RARE = [DTYPES[t] for t in ("f64", "bf16", "i4", "u16", "u64", "bool", "i64")]
MODELS = {name: op for name, op in OPS.items() if name not in ("call", "relayout")}  # of passes
# The primitives that random schedules are made of. A new one is not drawn here, so that what was
# written down stays; an entry of its own (`primitives`) and tools/fuzz_schedules.py apply it.
DRAWN = (
    "split", "reorder", "vectorize", "parallel", "bind", "fuse", "unroll", "compute_at",
    "reverse_compute_at", "inline", "split_init", "cache_write", "cache_read", "rfactor", "peel",
    "fold_init", "multi_buffer", "ring_buffer", "vthread", "pipeline", "sink", "split_value",
    "reuse", "hoist", "init_with", "tensorize", "pack_layout", "set_memory", "annotate",
    "keep_whole", "prefetch", "store_nontemporal", "pad", "pad_buffer",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One program: what was decided, in a few numbers, and the texts of everything."""

    name: str
    summary: str
    text: str

    @property
    def line(self) -> str:
        text = self.text.replace(f"{TESTS.parent}/", "")  # wherever the project is
        return f"{self.name}: {self.summary} [{zlib.crc32(text.encode()):08x}]"


@dataclass(frozen=True)
class Corpus:
    """Programs by number; `part` of them are one test: a change breaks few of them."""

    make: Callable[[int], Entry]
    count: int
    part: int


def target(i: int) -> Target:
    return cpu.cpu(LEVELS[i % len(LEVELS)], cores=8)


def draws(seed: int) -> Random:
    return Random(random.Random(seed))


def written(corpus: str) -> list[str]:
    """The lines that were written down."""
    return (FOLDER / f"{corpus}.txt").read_text(encoding="utf-8").splitlines()


def lowered(name: str, kernel: Kernel, where: Target, done: str, *before: object) -> Entry:
    """What code generation makes of a kernel as it is scheduled."""
    low = backends.lower(kernel, where, Recorder(), verify=False)
    llvm = backends.to_llvm(low, where)
    statements = sum(1 for _ in walk_statements(low.body))
    counts = [f"{len(re.findall(rf'{w} ', llvm))} {w}" for w in ("load", "store", "call")]
    summary = re.sub(" +", " ", f"{done}; {statements} statements; {', '.join(counts)}")
    return Entry(name, summary, "\n".join(map(str, (*before, kernel, low, llvm))))
