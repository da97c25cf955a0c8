"""Random descriptions of chips with a unit that multiplies, as files that a chip's team would
write: what the unit takes and from which memories, how sums begin, what loads and stores do on the
way, which instructions there are beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.check.load import load_target
from tilewright.target.target import Target

MOST = 16  # rows of one instruction, where they are not fixed
VECTOR = ("add", "add_imm", "mul_imm", "shr_imm", "max_imm", "min_imm", "relu", "maximum")
HEAD = """\
from tilewright import f32, i8, i32
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view

FAR, BYTE, SHIFT = Range(0, 65535), Range(-128, 127), Range(0, 31)


def chip():
    t = TargetBuilder("drawn", clock=1e9)
"""


@dataclass(frozen=True)
class Facts:
    """What is drawn. Axes m, n, k are rows and columns of the unit's result and what it adds up;
    an operand has those of its `orders` that the unit runs along more than once."""

    kind: str  # of factors: i8 or f32
    rows: int  # of the result; 0: as many as an instruction says, up to MOST
    columns: int
    depth: int
    orders: tuple[str, str, str]  # of the left factor, the right one, the result
    memories: tuple[str, str, str]  # where the unit has them
    chain: bool  # the right factor comes to its memory by way of the left one's
    begins: str  # flag, clear, two (one instruction writes sums, another adds to them), load
    loads: str  # strided, packed (rows in a row), tiles (of one size)
    turns: bool  # whether a load can turn rows and columns as well
    stores: str  # plain, narrow (shifted and limited), cast, limited
    apart: bool  # results are moved to a memory from which they are stored
    vector: tuple[str, ...]  # of VECTOR, on sums
    in_place: bool  # those overwrite what they take
    bias: str  # none, rows (a load repeats it), row (an instruction adds one to each row)
    waits: str
    queues: tuple[str, str, str]  # of loads, of the unit, of stores

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "i32" if self.kind == "i8" else "f32"


def draw_facts(rng: np.random.Generator) -> Facts:
    def one(*values):
        return values[rng.integers(len(values))]

    kind = one("i8", "i8", "i8", "f32")
    rows, columns, depth = one(0, 0, 4, 1), one(4, 8, 4, 1), one(4, 8, 4, 1)
    if rows == 1 and columns == 1:
        columns = 4
    apart = bool(rng.random() < 0.25)
    stores = one("plain", "plain", "narrow", "narrow", "cast", "limited")
    left = one("spad", "spad", "spad", "dram")
    right = one("spad", "wgt", "wgt", "dram")
    share = one(0.2, 0.6, 0.9)
    chosen = tuple(x for x in VECTOR if rng.random() < share and (kind == "i8" or "imm" not in x))
    return Facts(
        kind, rows, columns, depth, (one("mk", "mk", "km"), one("kn", "nk"), one("mn", "mn", "nm")),
        (left, right, "acc"), right == "wgt" and bool(rng.random() < 0.4),
        one("flag", "clear", "two", "flag", "clear", "two", "load"),
        one("strided", "strided", "packed", "tiles"), bool(rng.random() < 0.2),
        stores if kind == "i8" else "plain", apart, chosen, bool(rng.random() < 0.5),
        one("none", "rows", "row"), one("tokens", "events", "interlock", "barriers"),
        one(("load", "unit", "store"), ("move", "unit", "move"), ("all", "all", "all")),
    )  # fmt: skip


def target_of(facts: Facts, folder: Path) -> Target:
    """The chip with these facts, by way of a file."""
    path = folder / "drawn.py"
    path.write_text(text_of(facts))
    return load_target(f"{path}:chip")


def text_of(f: Facts) -> str:
    """The description."""
    return HEAD + "\n".join(_Text(f).lines()) + "\n    return t.build()\n"


class _Text:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.extents = {"m": facts.rows or "M", "n": facts.columns, "k": facts.depth}

    def lines(self) -> list[str]:
        f = self.facts
        load, unit, store = f.queues
        names = list(dict.fromkeys(f.queues))
        memories = {"spad": 16384, "wgt": 16384, "acc": 16384} | ({"out": 8192} if f.apart else {})
        found = ['    t.memory("dram", bandwidth=8, latency=20)']
        found += [f'    t.memory("{name}", {size})' for name, size in memories.items()]
        found += [f"    t.queues({', '.join(map(repr, names))}, depth=16)"]
        found += [f"    {self.waits(names)}"]
        found += [f"    M, R = dims('M R', max={MOST})"]
        left, right, _ = f.memories
        for which, memory in ((0, left), (1, "spad" if f.chain else right)):
            if memory != "dram":
                found += self.load(load, f"load_{'left' if which == 0 else 'right'}", which, memory)
        if f.chain:
            found += self.moved(load, "weigh", 1, "spad", "wgt")
        if f.bias == "rows" or f.begins == "load":
            found += self.load_sums(load)
        found += self.unit(unit)
        for name in f.vector:
            found += self.vector(unit, name)
        if f.bias == "row":
            found += self.add_row(load, unit)
        found += self.store(unit, store)
        return found

    def waits(self, names: list[str]) -> str:
        pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
        if self.facts.waits == "tokens" and pairs:
            return f"t.tokens({', '.join(map(str, pairs))})"
        return {"events": "t.events(32)", "barriers": "t.barriers()"}.get(
            self.facts.waits, "t.interlock()"
        )

    # ---------------------------------------------------------- operands

    def axes(self, which: int) -> list[str]:
        """The axes of an operand of the unit: those that run more than once."""
        order = self.facts.orders[which]
        return [a for a in order if self.extents[a] != 1] or [order[-1]]

    def shape(self, which: int) -> list[str]:
        return [str(self.extents[a]) for a in self.axes(which)]

    def at(self, which: int) -> str:
        return ", ".join(a if self.extents[a] != 1 else "0" for a in self.axes(which))

    def instruction(
        self, queue: str, name: str, operands: list[str], body: list[str], spent: str
    ) -> list[str]:
        head = [f'    @t.instruction("{queue}")', f"    def {name}({', '.join(operands)}):"]
        return ["", *head, *(f"        {x}" for x in [*body, f"cost({spent})"])]

    # ---------------------------------------------------------- moves

    def load(self, queue: str, name: str, which: int, memory: str) -> list[str]:
        f, shape = self.facts, self.shape(which)
        rows, width = [*shape[:-1], shape[-1]] if len(shape) > 1 else ["R", shape[0]]
        rows = rows if f.loads == "tiles" else "R"
        kind, strided = f"{f.kind}[{rows}, {width}]", f.loads != "packed"
        source = f'view({kind} @ "dram", "far")' if strided else f'{kind} @ "dram"'
        far = ["far: FAR"] if strided else []
        size = 1 if f.kind == "i8" else 4
        spent = f"setup=8, bytes={rows} * {width} * {size}"
        loop = [f"for i, j in grid({rows}, {width}):", "    dst[i, j] = src[i, j]"]
        operands = [f"src: {source}", f'dst: out({kind} @ "{memory}")', *far]
        found = self.instruction(queue, name, operands, loop, spent)
        if f.turns and len(shape) > 1:
            turned = f'{f.kind}[{width}, {rows}] @ "dram"'
            source = f'view({turned}, "far")' if strided else turned
            loop = [f"for i, j in grid({rows}, {width}):", "    dst[i, j] = src[j, i]"]
            operands = [f"src: {source}", f'dst: out({kind} @ "{memory}")', *far]
            found += self.instruction(queue, f"{name}_turned", operands, loop, spent)
        return found

    def moved(self, queue: str, name: str, which: int, source: str, memory: str) -> list[str]:
        """A move of a whole operand between memories of the chip."""
        f, shape = self.facts, ", ".join(self.shape(which))
        at = ", ".join("ij"[: len(self.shape(which))])
        loops = f"grid({shape})" if "," in at else f"range({shape})"
        body = [f"for {at} in {loops}:", f"    dst[{at}] = src[{at}]"]
        operands = [
            f'src: {f.kind}[{shape}] @ "{source}"', f'dst: out({f.kind}[{shape}] @ "{memory}")'
        ]  # fmt: skip
        return self.instruction(queue, name, operands, body, "busy=4")

    def load_sums(self, queue: str) -> list[str]:
        """What sums begin with: rows of them, or one row again and again."""
        f, width = self.facts, self.shape(2)[-1]
        found: list[str] = []
        if f.begins == "load":
            source = f'view({f.sums}[R, {width}] @ "dram", "far")'
            operands = [f"src: {source}", f'dst: out({f.sums}[R, {width}] @ "acc")', "far: FAR"]
            body = [f"for i, j in grid(R, {width}):", "    dst[i, j] = src[i, j]"]
            spent = f"setup=8, bytes=4 * R * {width}"
            found += self.instruction(queue, "load_sums", operands, body, spent)
        if f.bias == "rows" and width != "M":
            row = f'src: {f.sums}[{width}] @ "dram"'
            operands = [row, f'dst: out({f.sums}[R, {width}] @ "acc")']
            body = [f"for i, j in grid(R, {width}):", "    dst[i, j] = src[j]"]
            spent = f"setup=8, bytes=4 * {width}"
            found += self.instruction(queue, "load_bias", operands, body, spent)
        return found

    # ---------------------------------------------------------- what computes

    def unit(self, queue: str) -> list[str]:
        f = self.facts
        operands = [
            f'a: {f.kind}[{", ".join(self.shape(0))}] @ "{f.memories[0]}"',
            f'b: {f.kind}[{", ".join(self.shape(1))}] @ "{f.memories[1]}"',
            f'c: out({f.sums}[{", ".join(self.shape(2))}] @ "acc")',
        ]
        spent = f"busy={self.extents['m']}, latency=4"
        if f.begins == "two":
            return [
                *self.instruction(queue, "multiply", operands, self.sum("= 0"), spent),
                *self.instruction(queue, "multiply_add", operands, self.sum(""), spent),
            ]
        if f.begins == "flag":
            body = self.sum("if more == 0")
            return self.instruction(queue, "multiply", [*operands, "more: flag"], body, spent)
        found = self.instruction(queue, "multiply_add", operands, self.sum(""), spent)
        if f.begins == "clear":
            shape = self.shape(2)
            at = ", ".join("ij"[: len(shape)])
            loops = f"grid({', '.join(shape)})" if len(shape) > 1 else f"range({shape[0]})"
            body = [f"for {at} in {loops}:", f"    c[{at}] = 0"]
            operands = [operands[-1]]
            found += self.instruction(queue, "clear", operands, body, f"busy={self.extents['m']}")
        return found

    def sum(self, begins: str) -> list[str]:
        f = self.facts
        axes = [a for a in "mn" if self.extents[a] != 1]
        extents = [str(self.extents[a]) for a in axes]
        loops = f"grid({', '.join(extents)})" if len(axes) > 1 else f"range({extents[0]})"
        c = f"c[{self.at(2)}]"
        a, b = (f"{x}[{self.at(w)}]" for x, w in (("a", 0), ("b", 1)))
        factors = f"cast(i32, {a}) * cast(i32, {b})" if f.kind == "i8" else f"{a} * {b}"
        body = [f"for {', '.join(axes)} in {loops}:"]
        zero = "0" if f.kind == "i8" else "0.0"
        if begins == "= 0":
            body += [f"    {c} = {zero}"]
        elif begins:
            body += [f"    {begins}:", f"        {c} = {zero}"]
        if self.extents["k"] != 1:
            return [*body, f"    for k in reduce({f.depth}):", f"        {c} += {factors}"]
        return [*body, f"    {c} += {factors}"]

    def rows_of_sums(self, name: str = "acc") -> tuple[str, str, str]:
        """The type of rows of sums, the loops over them, and their subscripts."""
        *_, width = self.shape(2)
        rows = "R" if width != "R" else "M"
        return f'{self.facts.sums}[{rows}, {width}] @ "{name}"', f"grid({rows}, {width})", "i, j"

    def vector(self, queue: str, name: str) -> list[str]:
        f = self.facts
        kind, loops, at = self.rows_of_sums()
        operand = {"shr_imm": ["by: SHIFT"]}.get(name, ["by: BYTE"] if "imm" in name else [])
        if f.in_place:
            first, operands = "z", [f"z: out({kind})"]
        else:
            first, operands = "x", [f"x: {kind}", f"z: out({kind})"]
        if name in ("add", "maximum"):
            operands.insert(1, f"y: {kind}")
        x, y, by = f"{first}[{at}]", f"y[{at}]", "cast(i32, by)"
        zero = "0" if f.kind == "i8" else "0.0"
        value = {
            "add": f"{x} + {y}", "add_imm": f"{x} + {by}", "mul_imm": f"{x} * {by}",
            "shr_imm": f"{x} >> {by}", "max_imm": f"max({x}, {by})", "min_imm": f"min({x}, {by})",
            "relu": f"max({x}, {zero})", "maximum": f"max({x}, {y})",
        }[name]  # fmt: skip
        body = [f"for {at} in {loops}:", f"    z[{at}] = {value}"]
        rows = loops[5:].split(",")[0]
        return self.instruction(queue, name, [*operands, *operand], body, f"busy={rows}, latency=4")

    def add_row(self, load: str, queue: str) -> list[str]:
        """An instruction that adds a row, from a memory of its own, to each of several."""
        f, (*_, width) = self.facts, self.shape(2)
        if width == "M":
            return []
        kind, loops, at = self.rows_of_sums()
        row = f'{f.sums}[{width}] @ "wgt"'
        operands = [f'src: {f.sums}[{width}] @ "dram"', f"dst: out({row})"]
        body = [f"for j in range({width}):", "    dst[j] = src[j]"]
        found = self.instruction(load, "load_row", operands, body, f"setup=8, bytes=4*{width}")
        operands = [f"z: out({kind})", f"y: {row}"]
        body = [f"for {at} in {loops}:", f"    z[{at}] = z[{at}] + y[j]"]
        return found + self.instruction(queue, "add_row", operands, body, "busy=R, latency=4")

    def store(self, unit: str, queue: str) -> list[str]:
        f = self.facts
        kind, loops, at = self.rows_of_sums()
        shape = kind[kind.index("[") : kind.index("]") + 1]
        narrow = "i8" if f.stores != "plain" else f.sums
        value, fields = {
            "plain": (f"src[{at}]", []),
            "cast": (f"cast(i8, src[{at}])", []),
            "limited": (f"cast(i8, max(min(src[{at}], 127), -128))", []),
            "narrow": (
                f"cast(i8, max(min(src[{at}] >> cast(i32, by), cast(i32, high)), cast(i32, low)))",
                ["by: SHIFT", "low: BYTE", "high: BYTE"],
            ),
        }[f.stores]
        body = [f"for {at} in {loops}:", f"    dst[{at}] = {value}"]
        spent = f"setup=8, bytes=4 * {' * '.join(shape[1:-1].split(', '))}"
        from_ = "acc"
        found: list[str] = []
        if f.apart:
            operands = [f"src: {kind}", f'dst: out({narrow}{shape} @ "out")', *fields]
            found = self.instruction(unit, "finish", operands, body, "busy=R")
            body, fields, from_ = [body[0], f"    dst[{at}] = src[{at}]"], [], "out"
        source = f'{narrow if f.apart else f.sums}{shape} @ "{from_}"'
        stored = f'dst: view(out({narrow}{shape} @ "dram"), "far")'
        operands = [f"src: {source}", stored, *fields, "far: FAR"]
        return found + self.instruction(queue, "store", operands, body, spent)
