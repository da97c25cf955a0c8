"""Descriptions with one fault each: what the linter says, in full, and where."""

import re
from pathlib import Path

import pytest
from spoiled_chips import ACC, DRAM, SPAD, Chip, code

from tilewright import cast, grid, i8, i32, reduce
from tilewright.check.lint import RULES, STRUCTURE, lint
from tilewright.check.problem import Severity
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, limit, state, view
from tilewright.target.encoding import (
    address,
    awaits,
    barrier,
    bits,
    constant,
    field,
    first_entry,
    pop,
    sets,
)
from tilewright.target.target import Target
from tilewright.targets.chips import CHIPS

OUT, X, LISTS, TYPO = "out", "x", "lists", "spda"


def problems(target: Target) -> list[str]:
    """The linter's words; of places the file's name, and whether there is a line."""
    texts = [str(p) for p in lint(target)]
    return [re.sub(r"^\S*?(\w+\.py):\d+: ", r"\1: ", text) for text in texts]


@pytest.mark.parametrize("name", CHIPS)
def test_nothing_to_say(name: str):
    assert problems(CHIPS[name]()) == []
    assert problems(Chip().build()) == []


# ---------------------------------------------------------------- parts


class TwoSpads(Chip):
    memories = (*Chip.memories, ("spad", 64))


class NoDram(Chip):
    memories = (("DRAM", None), ("spad", 4096), ("acc", 4096))


class Stopped(Chip):
    def build(self) -> Target:
        t = TargetBuilder("chip", clock=0)
        t.memory("dram")
        return t.build()


class SpareQueue(Chip):
    queues = (*Chip.queues, "vector")


class NoQueues(Chip):
    def build(self) -> Target:
        t = TargetBuilder("chip", clock=1e9)
        t.memory("dram", bandwidth=1)

        @t.instruction()
        def move(a: i8[4] @ DRAM, c: out(i8[4] @ DRAM)):
            for i in grid(4):
                c[i] = a[i]
            cost(busy=1)

        return t.build()


class Registers(Chip):
    """One that another queue sets, and one that nothing takes."""

    encoded = False

    def load(self, t: TargetBuilder) -> None:
        super().load(t)

        @t.instruction("load")
        def config(by: Range(0, 31), spare: Range(0, 31)):
            cost(busy=1)

        @t.instruction("compute")
        def shift(c: out(i32[4] @ ACC), by: state(config, "by")):
            for i in grid(4):
                c[i] = c[i] >> cast(i32, by)
            cost(busy=1)


class UnusedTokens(Chip):
    """load and store would share dram, if store wrote there."""

    tokens = (*Chip.tokens, ("load", "store"))
    encoded = False

    def store(self, t: TargetBuilder) -> None:
        t.memory("out", 4096)
        t.tokens(("load", "other"), ("compute", "other"))
        t.queues("other", depth=4)

        @t.instruction("store")
        def narrow(a: i32[4] @ ACC, c: out(i8[4] @ OUT)):
            for i in grid(4):
                c[i] = cast(i8, a[i])
            cost(busy=1)

        @t.instruction("other")
        def mvout(a: i8[4] @ OUT, c: out(i8[4] @ DRAM)):
            for i in grid(4):
                c[i] = a[i]
            cost(bytes=4)


class Unordered(Chip):
    tokens = (("load", "compute"),)
    encoded = False


# ---------------------------------------------------------------- data


class Nowhere(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        @t.instruction("compute")
        def gemm(a: i8[4, 4] @ TYPO, b: i8[4, 4], c: out(i32[4, 4] @ ACC), unused: i8[4] @ SPAD):
            for i, j in grid(4, 4):
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=4)


class Beyond(Chip):
    encoded = False

    def load(self, t: TargetBuilder) -> None:
        @t.instruction("load")
        def mvin(src: i8[64, 4] @ DRAM, dst: out(i8[64, 4] @ SPAD), rows: Range(1, 65)):
            for i, j in grid(rows, 4):
                dst[i, j] = src[i, j]
            cost(bytes=4 * rows)


class NoLists(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        n = dims("n", max=16)
        listed = t.micro_ops("lists", bytes=4)

        @t.instruction("compute")
        def gemm(
            a: view(i8[n, 4, 4] @ SPAD, listed),
            b: view(i8[n, 4, 4] @ SPAD, listed),
            c: view(out(i32[n, 4, 4] @ ACC), listed),
        ):
            for u, i, j in grid(n, 4, 4):
                for k in reduce(4):
                    c[u, i, j] += cast(i32, a[u, i, k]) * cast(i32, b[u, k, j])
            cost(busy=4 * n)


class NoListLoads(NoLists):
    memories = (*Chip.memories, ("lists", 64))


class Small(Chip):
    memories = (("dram", None), ("spad", 16), ("acc", 32))
    encoded = False


class Spare(Chip):
    memories = (*Chip.memories, ("rom", 64))


class NotWritten(Chip):
    encoded = False

    def load(self, t: TargetBuilder) -> None:
        @t.instruction("load")
        def mvin(src: i8[4] @ DRAM, dst: out(i8[4] @ DRAM)):
            for i in grid(4):
                dst[i] = src[i]
            cost(bytes=4)


class NotRead(Chip):
    encoded = False

    def store(self, t: TargetBuilder) -> None:
        @t.instruction("store")
        def mvout(src: i8[4] @ SPAD, dst: out(i8[4] @ DRAM)):
            for i in grid(4):
                dst[i] = src[i]
            cost(bytes=4)


class Island(Chip):
    """Data goes round between two memories, and neither in nor out."""

    encoded = False
    memories = (*Chip.memories, ("x", 64), ("y", 64))

    def compute(self, t: TargetBuilder) -> None:
        super().compute(t)
        for a, c in (("x", "y"), ("y", "x")):

            @t.instruction("compute", name=f"to_{c}")
            def move(src: i8[4] @ a, dst: out(i8[4] @ c)):
                for i in grid(4):
                    dst[i] = src[i]
                cost(busy=1)


class Inwards(Island):
    def load(self, t: TargetBuilder) -> None:
        super().load(t)

        @t.instruction("load")
        def fill(src: i8[4] @ DRAM, dst: out(i8[4] @ X)):
            for i in grid(4):
                dst[i] = src[i]
            cost(bytes=4)


class NoProducts(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        @t.instruction("compute")
        def widen(a: i8[4] @ SPAD, c: out(i32[4] @ ACC)):
            for i in grid(4):
                c[i] = cast(i32, a[i])
            cost(busy=1)


# ---------------------------------------------------------------- time and fields


class NoTime(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        @t.instruction("compute")
        def gemm(a: i8[4, 4] @ SPAD, b: i8[4, 4] @ SPAD, c: out(i32[4, 4] @ ACC)):
            for i, j in grid(4, 4):
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])


class OddCosts(NoTime):
    def compute(self, t: TargetBuilder) -> None:
        Chip.compute(self, t)

        @t.instruction("compute")
        def clear(c: out(i32[4, 4] @ ACC)):
            for i, j in grid(4, 4):
                c[i, j] = 0
            cost(latency=4)

        @t.instruction("compute")
        def copy(a: i32[64] @ ACC, c: out(i32[64] @ ACC), n: Range(1, 64)):
            for i in grid(n):
                c[i] = a[i]
            cost(busy=40 - n, bytes=4 * n)


class OddFields(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        super().compute(t)

        @t.instruction("compute")
        def never(c: out(i32[4] @ ACC), by: Range(5, 7, multiple=4), spare: Range(0, 3)):
            for i in grid(4):
                c[i] = cast(i32, by)
            cost(busy=1)


class Elsewhere(Chip):
    """A dimension of other instructions."""

    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        super().compute(t)
        n, m = dims("n m", max=16)

        @t.instruction("compute")
        def clear(c: out(i32[n] @ ACC)):
            for i in grid(n):
                c[i] = 0
            cost(busy=m)


class NoValues(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        super().compute(t)

        @t.instruction("compute")
        def clear(c: out(i32[8, 8] @ ACC), n: Range(1, 8), m: Range(1, 8)):
            limit(n * m > 64)
            for i, j in grid(n, m):
                c[i, j] = 0
            cost(busy=1)


class Limited(Chip):
    """Limits keep it in its operand, and its cost from falling."""

    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        super().compute(t)

        @t.instruction("compute")
        def clear(c: out(i32[8] @ ACC), n: Range(1, 8), first: Range(0, 8)):
            limit(first + n <= 8)
            for i in grid(n):
                c[first + i] = 0
            cost(setup=8 - n - first, busy=2 * n)


# ---------------------------------------------------------------- encodings


class Partly(Chip):
    def compute(self, t: TargetBuilder) -> None:
        self.encoded = False
        super().compute(t)
        self.encoded = True


class Narrow(Chip):
    memories = (("dram", None), ("spad", 8192), ("acc", 4096))


class Alike(Chip):
    def encoding(self, queue: str, opcode: int, *parts):
        return code(queue, 0 if opcode == 2 else opcode, *parts)


class Implied(Chip):
    def compute(self, t: TargetBuilder) -> None:
        @t.instruction("compute", encoding=code("compute", 1, address("a", 12)))
        def gemm(a: i8[4, 4] @ SPAD, b: i8[4, 4] @ SPAD, c: out(i32[4, 4] @ ACC)):
            for i, j in grid(4, 4):
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=4)


class Waitless(Chip):
    def encoding(self, queue: str, opcode: int, *parts):
        if queue != "store":
            return code(queue, opcode, *parts)
        return bits(64, constant(2, 4), pop("load"), parts)


class Events(Chip):
    tokens = ()

    def encoding(self, queue: str, opcode: int, *parts):
        waits = {0: (), 1: (awaits(4), sets(4)), 2: (awaits(4), sets(4), barrier())}[opcode]
        return bits(64, constant(opcode, 4), waits, parts) if opcode else code("load", 0, *parts)

    def load(self, t: TargetBuilder) -> None:
        super().load(t)
        t.events(4)
        t.barriers()


class PlainLists(NoLists):
    memories = (*Chip.memories, ("lists", 64))
    encoded = True

    def load(self, t: TargetBuilder) -> None:
        super().load(t)
        n = dims("n", max=16)
        moved = address("src", 20), address("dst", 6), field("n", 5)

        @t.instruction("load", encoding=code("load", 3, moved))
        def fill(src: i32[n] @ DRAM, dst: out(i32[n] @ LISTS)):
            for i in grid(n):
                dst[i] = src[i]
            cost(bytes=4 * n)

    def compute(self, t: TargetBuilder) -> None:
        n = dims("n", max=16)
        listed = t.micro_ops("lists", bytes=4)
        encoding = code("compute", 1, first_entry(4), field("n", 5))

        @t.instruction("compute", encoding=encoding)
        def gemm(
            a: view(i8[n, 4, 4] @ SPAD, listed),
            b: view(i8[n, 4, 4] @ SPAD, listed),
            c: view(out(i32[n, 4, 4] @ ACC), listed),
        ):
            for u, i, j in grid(n, 4, 4):
                for k in reduce(4):
                    c[u, i, j] += cast(i32, a[u, i, k]) * cast(i32, b[u, k, j])
            cost(busy=4 * n)


# ---------------------------------------------------------------- what is said

SPOILED = [c for c in vars().values() if isinstance(c, type) and issubclass(c, Chip)]
SPOILED.remove(Chip)
TEXTS = Path(__file__).with_name("lint.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("chip", SPOILED)
def test_what_is_said(chip: type[Chip]):
    wanted = TEXTS.split(f"## {chip.__name__}\n")[1].split("\n## ")[0].strip()
    assert "\n".join(problems(chip().build())) == wanted


def test_every_rule_is_spoken_of():
    targets = [chip().build() for chip in SPOILED]
    broken = {rule.__name__: [t for t in targets if _applies(rule, t)] for rule in RULES}
    assert [name for name, found in broken.items() if not found] == []


def _applies(rule, target: Target) -> bool:
    is_deep = rule not in STRUCTURE
    if is_deep and any(p.severity is Severity.ERROR for r in STRUCTURE for p in r(target)):
        return False
    return any(True for _ in rule(target))


def test_where_it_stands(monkeypatch):
    """The line of the description, as seen from here."""
    here = Path(__file__).parents[1] / "support"
    monkeypatch.chdir("/")
    (found,) = lint(Spare().build())
    path, line = found.where.rsplit(":", 1)
    assert f"/{path}" == str(here / "spoiled_chips.py")
    assert (
        "t.memory(name, size" in (here / "spoiled_chips.py").read_text().splitlines()[int(line) - 1]
    )
    monkeypatch.chdir(here)
    (found,) = lint(Spare().build())
    assert found.where == f"spoiled_chips.py:{line}"
    line = int(lint(NoTime().build())[0].where.split(":")[1])
    assert Path(__file__).read_text().splitlines()[line - 1].strip().startswith("def gemm(")


def test_a_fault_of_structure_is_told_alone():
    """What follows from it is not."""
    names = {rule.__name__ for rule in RULES if _applies(rule, Nowhere().build())}
    assert names == {"operands", "tokens"}
