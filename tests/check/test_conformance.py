"""The conformance suite: what it passes, and that it catches devices that are another chip."""

import dataclasses
import re

import numpy as np
import pytest
from spoiled_chips import ACC, DRAM, SPAD, Chip, code

from tilewright import cast, f32, grid, i8, i32, opaque, reduce
from tilewright.backends.stream.decode import decode
from tilewright.backends.stream.encode import encode
from tilewright.base.errors import CompileError
from tilewright.check.conformance import check_conformance
from tilewright.check.engine import simulator
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, flag, state, view
from tilewright.target.encoding import address, bits, end_entry, field, first_entry

LISTS = "lists"


class Listed(Chip):
    """Its products go by lists of micro-operations."""

    memories = (*Chip.memories, ("lists", 64))

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
        u = t.micro_ops("lists", encoding=bits(32, address("a b", 10, unit=4), address("c", 12)))
        encoding = code("compute", 1, first_entry(4), end_entry(5), field("step", 6, unit=16))

        @t.instruction("compute", encoding=encoding)
        def gemm(
            a: view(i8[2, n, 4, 4] @ SPAD, "step", u),
            b: view(i8[n, 4, 4] @ SPAD, u),
            c: view(out(i32[n, 4, 4] @ ACC), u),
            step: Range(0, 1008, multiple=16),
        ):
            for v, w, i, j in grid(2, n, 4, 4):
                for k in reduce(4):
                    c[w, i, j] += cast(i32, a[v, w, i, k]) * cast(i32, b[w, k, j])
            cost(busy=4 * n)


class Floats(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        @t.instruction("compute")
        def sums(a: f32[4, 4] @ SPAD, c: out(f32[4] @ ACC), more: flag):
            for i in grid(4):
                if more == 0:
                    c[i] = 0.0
                for j in reduce(4):
                    c[i] += a[i, j] * 0.5
            cost(busy=4)


def sharpen(fields: dict[str, int], arrays: dict[str, np.ndarray]) -> None:
    """What the author says of a box that nobody can look into."""
    a = arrays["a"].astype(np.int32)
    arrays["c"][...] = 2 * a - np.roll(a, fields["by"], axis=1)


class BlackBox(Chip):
    encoded = False

    def compute(self, t: TargetBuilder) -> None:
        super().compute(t)
        n = dims("n", max=16)

        @t.instruction("compute", black_box=sharpen)
        def sharp(a: i8[n, 4] @ SPAD, c: out(i32[n, 4] @ ACC), by: Range(0, 3)):
            for i, j in grid(n, 4):
                c[i, j] = opaque("sharpen", i32, a[i, j], cast(i32, by))
            cost(busy=n)


class Registered(Chip):
    """The step of its loads is in a register; the chip makes queues wait by itself."""

    tokens = ()
    encoded = False

    def load(self, t: TargetBuilder) -> None:
        t.interlock()

        @t.instruction("load")
        def config(step: Range(0, 255)):
            cost(busy=1)

        @t.instruction("load")
        def mvin(
            src: view(i8[64, 4] @ DRAM, "step"),
            dst: out(i8[64, 4] @ SPAD),
            rows: Range(1, 64),
            step: state(config, "step"),
        ):
            for i, j in grid(rows, 4):
                dst[i, j] = src[i, j]
            cost(setup=4, bytes=4 * rows)


class ByEvents(Chip):
    tokens = ()
    encoded = False

    def load(self, t: TargetBuilder) -> None:
        super().load(t)
        t.events(4)


class ByBarriers(Chip):
    tokens = ()
    encoded = False

    def load(self, t: TargetBuilder) -> None:
        super().load(t)
        t.barriers()


CONFORMING = [Chip, Listed, Floats, BlackBox, Registered, ByEvents, ByBarriers]


@pytest.mark.parametrize("chip", CONFORMING)
def test_a_chip_conforms_to_its_own_description(chip: type[Chip]):
    report = check_conformance(chip().build())
    assert [i.failure for i in report.instructions if i.failure] == []
    assert report.conforms
    assert all(i.cases == i.passed >= 4 for i in report.instructions if i.name != "config")
    assert report.hazards.caught == report.hazards.left_out
    assert (report.hazards.left_out == 0) == report.hazards.interlock == (chip is Registered)
    assert report.hazards.ordered >= 4
    assert report.hazards.filled >= 4


def test_what_is_reported():
    report = check_conformance(Chip().build())
    assert [(i.name, i.queue, i.encoding) for i in report.instructions] == [
        ("mvin", "load", "64 bits"),
        ("gemm", "compute", "64 bits"),
        ("mvout", "store", "64 bits"),
    ]
    # mvin → gemm twice (a, b), gemm → mvout, and each the other way round
    assert (report.hazards.ordered, report.hazards.filled) == (6, 4)
    assert report.hazards.unordered == ("mvin then mvout on dram", "mvout then mvin on dram")
    assert report.missing == ()
    bare = dataclasses.replace(Chip().build(), encodings=())
    report = check_conformance(bare)
    assert report.conforms
    assert report.missing == ("no encoding: all instructions",)
    assert {i.encoding for i in report.instructions} == {"none"}


def test_equal_seeds_try_the_same():
    seen: list[list[int]] = []

    def watch(stream, waits, memories):
        seen[-1].append(hash((stream.fields.tobytes(), stream.addresses.tobytes())))
        simulator(stream, waits, memories)

    for seed in (1, 1, 2):
        seen.append([])
        check_conformance(Chip().build(), watch, seed=seed)
    assert seen[0] == seen[1] != seen[2]


# ---------------------------------------------------------------- devices that are another chip


def device(chip: type[Chip]):
    """A device that takes our words, and does what another description says."""
    target = chip().build()

    def engine(stream, waits, memories):
        words = encode(stream, waits)
        found = decode(target, words, sizes=stream.sizes, memories=memories)
        simulator(found.stream, waits, memories)

    return engine


class Forgetful(Chip):
    """Its products always begin anew."""

    def compute(self, t: TargetBuilder) -> None:
        places = address("a b c", 12), field("more", 1)

        @t.instruction("compute", encoding=self.encoding("compute", 1, places))
        def gemm(a: i8[4, 4] @ SPAD, b: i8[4, 4] @ SPAD, c: out(i32[4, 4] @ ACC), more: flag):
            for i, j in grid(4, 4):
                c[i, j] = 0
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])


class Unsigned(Chip):
    """Its second operand has no sign: right for half of all values."""

    def compute(self, t: TargetBuilder) -> None:
        places = address("a b c", 12), field("more", 1)

        @t.instruction("compute", encoding=self.encoding("compute", 1, places))
        def gemm(a: i8[4, 4] @ SPAD, b: i8[4, 4] @ SPAD, c: out(i32[4, 4] @ ACC), more: flag):
            for i, j in grid(4, 4):
                if more == 0:
                    c[i, j] = 0
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * (cast(i32, b[k, j]) & 255)


class Long(Chip):
    """Its loads write a column more than they should."""

    def load(self, t: TargetBuilder) -> None:
        moved = address("src", 20), address("dst", 12), field("rows", 6, minus=1), field("step", 8)

        @t.instruction("load", encoding=self.encoding("load", 0, moved))
        def mvin(
            src: view(i8[64, 4] @ DRAM, "step"),
            dst: out(i8[65, 4] @ SPAD),
            rows: Range(1, 64),
            step: Range(0, 255),
        ):
            for i, j in grid(rows, 4):
                dst[i, j] = src[i, j]
            dst[rows, 0] = src[0, 0]


class Swapped(Chip):
    """Other bits than ours say where the operands are."""

    def compute(self, t: TargetBuilder) -> None:
        places = address("b a c", 12), field("more", 1)

        @t.instruction("compute", encoding=self.encoding("compute", 1, places))
        def gemm(a: i8[4, 4] @ SPAD, b: i8[4, 4] @ SPAD, c: out(i32[4, 4] @ ACC), more: flag):
            for i, j in grid(4, 4):
                if more == 0:
                    c[i, j] = 0
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])


@pytest.mark.parametrize(
    "chip, wrong",
    [(Forgetful, "gemm"), (Unsigned, "gemm"), (Swapped, "gemm"), (Long, "mvin")],
)
def test_another_chip_is_caught(chip: type[Chip], wrong: str):
    report = check_conformance(Chip().build(), device(chip))
    assert not report.conforms
    passed = {i.name: i.conforms for i in report.instructions}
    assert passed == {name: name != wrong for name in ("mvin", "gemm", "mvout")}
    (found,) = [i for i in report.instructions if i.name == wrong]
    assert found.failure.startswith(f"{wrong}(")


def test_a_failure_says_where():
    report = check_conformance(Chip().build(), device(Forgetful))
    gemm = report.instructions[1]
    assert 0 < gemm.passed < gemm.cases
    assert re.fullmatch(
        r"gemm\(a=spad\[0x\w+\], b=spad\[0x\w+\], c=acc\[0x\w+\], more=1\): "
        r"acc\[0x\w+\] is \d+ and should be \d+",
        gemm.failure,
    )


def test_a_device_that_refuses():
    def engine(stream, waits, memories):
        raise CompileError("no link")

    report = check_conformance(Chip().build(), engine)
    assert [i.passed for i in report.instructions] == [0, 0, 0]
    assert {i.failure for i in report.instructions} == {"the device refuses it: no link"}
    assert len(report.hazards.failures) == 10


def test_a_device_without_waits():
    """What other queues do is done first: every pair comes out wrong, and nothing else."""

    def engine(stream, waits, memories):
        names = [q.name for q in stream.target.queues]
        queue = np.array([names.index(s.instruction.queue) for s in stream.sites])[stream.site]
        last = queue == queue[0]
        order = np.concatenate([np.flatnonzero(~last), np.flatnonzero(last)])
        changed = {n: getattr(stream, n)[order] for n in ("site", "fields", "addresses", "lists")}
        simulator(dataclasses.replace(stream, **changed), waits, memories)

    report = check_conformance(Chip().build(), engine)
    assert all(i.conforms for i in report.instructions)
    assert report.hazards.ordered == 0
    assert len(report.hazards.failures) == 10
    assert report.hazards.failures[0].startswith("RAW, mvin then gemm on spad: ")


def test_an_instruction_that_never_fits():
    class Large(Chip):
        memories = (("dram", None), ("spad", 16), ("acc", 4096))
        encoded = False

    report = check_conformance(Large().build())
    gemm = report.instructions[1]
    assert (gemm.cases, gemm.failure) == (0, "no case fits its memories")
    assert not report.conforms


def test_an_encoding_that_loses_something():
    """Two instructions that a decoder takes for one."""
    target = Chip().build()
    names = dict(target.encodings)
    names["mvout"] = dataclasses.replace(names["mvin"])
    report = check_conformance(dataclasses.replace(target, encodings=tuple(names.items())))
    assert not report.conforms
    assert {i.encoding for i in report.instructions} == {
        "mvin and mvout of chip cannot be told apart"
    }
