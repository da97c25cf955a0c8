"""VTA as its published facts have it (hardware 0.0.2, 16x16), running what `dump --binary` writes.

Written from the published layout of instructions and from docs/stream-binary.md, in numpy; it
imports nothing of the compiler and nothing of its description of the chip. Three queues fetch their
instructions in program order and run as far as dependence tokens let them, in any order that a
caller likes; what would go wrong on the chip is a `Fault`: a race that tokens do not forbid, a
deadlock, a token too many, what was never written, a border where the hardware makes none, an
accumulator that is written again before the adder is done with it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from vta_machine import (
    ACC,
    ACC_8BIT,
    ALU,
    ALU_CODE,
    BLOCK,
    FACTORS,
    FINISH,
    GEMM,
    HEAD,
    INP,
    LOAD,
    LOOPS,
    MAX,
    MIN,
    MOVE,
    MUL,
    OUT,
    SHR,
    SIZES,
    STORE,
    UOP,
    UOPS,
    WGT,
)

QUEUES = ("load", "compute", "store")
IN_LOAD, IN_COMPUTE, IN_STORE = range(3)
DEPTH = {"uop": 8192, "wgt": 1024, "inp": 2048, "acc": 2048, "out": 2048}  # elements
CELL = 16  # bytes of DRAM whose readers and writers are told apart
APART = 3  # micro-operations between two that write one accumulator
ELEMENT = {UOPS: 4, WGT: BLOCK * BLOCK, INP: BLOCK, ACC: 4 * BLOCK, ACC_8BIT: BLOCK, OUT: BLOCK}
HOME = {UOPS: "uop", WGT: "wgt", INP: "inp", ACC: "acc", ACC_8BIT: "acc"}


class Fault(Exception):
    """What would go wrong on the chip."""


def columns(layout: str, words: np.ndarray) -> dict[str, np.ndarray]:
    """What words of this layout say, all of them at once; the bits behind its parts are 0."""
    found, start = {}, 0
    names, widths = layout.split()[::2], map(int, layout.split()[1::2])
    for name, width in zip(names, widths, strict=True):
        mask = np.uint64((1 << width) - 1)
        found[name] = (words >> np.uint64(start) & mask).astype(np.int64)
        start += width
    if start < 64 and (words >> np.uint64(start)).any():
        raise Fault(f"bits from {start} on are not 0: {layout}")
    return found


@dataclass
class Use:
    """Who touched the elements of a memory last, by queue: numbers of instructions, or -1."""

    wrote: np.ndarray  # [queues, elements]
    read: np.ndarray

    @classmethod
    def of(cls, count: int) -> Use:
        return cls(*(np.full((len(QUEUES), count), -1, np.int32) for _ in range(2)))


@dataclass
class Report:
    """What programs did: how many instructions of each kind, rows that products and the ALU
    worked on, the longest shift, and the most that waited in queues and for tokens."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    shift: int = 0
    held: dict[str, int] = field(default_factory=dict)
    tokens: int = 0


class Chip:
    """One chip, with its DRAM (bytes). `order` is the queues' precedence: the first that can go on
    does. `commands` and `tokens` are how many the queues hold; None: any number."""

    def __init__(
        self, dram: np.ndarray, order: Sequence[int] = (0, 1, 2), commands: int | None = None,
        tokens: int | None = None, fill: int = 0xA5,
    ) -> None:  # fmt: skip
        room = -len(dram) % ELEMENT[WGT]
        self.size, self.dram = len(dram), np.concatenate([dram, np.zeros(room, np.uint8)])
        self.order, self.commands, self.limit = order, commands, tokens
        byte = np.uint8(fill)
        self.uop = np.full(4 * DEPTH["uop"], byte).view("<u4")
        self.wgt = np.full((DEPTH["wgt"], BLOCK, BLOCK), byte).view(np.int8)
        self.inp = np.full((DEPTH["inp"], BLOCK), byte).view(np.int8)
        self.acc = np.full((DEPTH["acc"], 4 * BLOCK), byte).view("<i4")
        self.out = np.full((DEPTH["out"], BLOCK), byte).view(np.int8)
        self.uses = {name: Use.of(n) for name, n in DEPTH.items()}
        self.uses["dram"] = Use.of(len(self.dram) // CELL)
        self.clock = np.full((len(QUEUES), len(QUEUES)), -1, np.int32)  # what each knows is done
        self.given = {pair: deque() for pair in ((0, 1), (1, 0), (1, 2), (2, 1))}
        self.report = Report()
        self.at, self.done = -1, 0  # an instruction's number, those of all programs counted

    # ---------------------------------------------------------- queues

    def run(self, words: np.ndarray) -> Report:
        """All instructions [n, 2], once those of earlier programs are done: memories keep what they
        hold."""
        self.clock[:] = self.done - 1
        code = words[:, 0].astype(np.uint64)
        self.opcode = (code & np.uint64(7)).astype(int)
        if not len(words) or self.opcode[-1] != FINISH or (self.opcode[:-1] == FINISH).any():
            raise Fault("a program ends with FINISH, and has one")
        head = columns(HEAD, code & np.uint64(127))
        kind = (code >> np.uint64(7) & np.uint64(7)).astype(int)
        queue = np.where(self.opcode == STORE, IN_STORE, IN_COMPUTE)
        loads = (self.opcode == LOAD) & np.isin(kind, (INP, WGT))
        self.queue = np.where(loads, IN_LOAD, queue).tolist()
        self.tokens = self._tokens(head)
        self._decode(words)
        fetched, n = 0, len(words)
        held = [deque() for _ in QUEUES]
        while True:
            while fetched < n and self._has_room(held[self.queue[fetched]]):
                held[self.queue[fetched]].append(fetched)
                fetched += 1
            for name, waiting in zip(QUEUES, held, strict=True):
                self.report.held[name] = max(self.report.held.get(name, 0), len(waiting))
            ready = [q for q in self.order if held[q] and self._is_ready(held[q][0])]
            if not ready:
                break
            self._step(held[ready[0]].popleft())
        left = [f"{QUEUES[q]} at {h[0]}" for q, h in enumerate(held) if h]
        if left or fetched < n:
            raise Fault(f"the program stops for good: {', '.join(left)}; {fetched} of {n} fetched")
        extra = [f"{QUEUES[p]} for {QUEUES[q]}" for (p, q), g in self.given.items() if g]
        if extra:
            raise Fault(f"tokens are left when the program ends: {', '.join(extra)}")
        self.done += n
        return self.report

    def _has_room(self, held: deque) -> bool:
        return self.commands is None or len(held) < self.commands

    def _tokens(self, head: dict[str, np.ndarray]) -> list[tuple[list, list]]:
        """For each instruction the pairs of queues that it takes tokens of, and gives them."""
        beside = {IN_LOAD: (None, 1), IN_COMPUTE: (0, 2), IN_STORE: (1, None)}
        bits = [head[k].tolist() for k in ("pop_prev", "pop_next", "push_prev", "push_next")]
        found = []
        for i, (q, *row) in enumerate(zip(self.queue, *bits, strict=True)):
            ends = beside[q] * 2
            if any(bit and end is None for bit, end in zip(row, ends, strict=True)):
                raise Fault(
                    f"instruction {i} of {QUEUES[q]} has a token of a queue it is not beside"
                )
            takes = [(p, q) for bit, p in zip(row[:2], ends[:2], strict=True) if bit]
            gives = [(q, p) for bit, p in zip(row[2:], ends[2:], strict=True) if bit]
            found.append((takes, gives))
        return found

    def _is_ready(self, i: int) -> bool:
        takes, gives = self.tokens[i]
        full = self.limit is not None and any(len(self.given[p]) >= self.limit for p in gives)
        return not full and all(self.given[p] for p in takes)

    def _step(self, i: int) -> None:
        q, (takes, gives) = self.queue[i], self.tokens[i]
        for pair in takes:
            np.maximum(self.clock[q], self.given[pair].popleft(), out=self.clock[q])
        self.at, self.now = self.done + i, q
        self._execute(i)
        self.clock[q, q] = self.at
        for pair in gives:
            self.given[pair].append(self.clock[q].copy())
            self.report.tokens = max(self.report.tokens, len(self.given[pair]))

    # ---------------------------------------------------------- who touches what

    def _reads(self, memory: str, at: np.ndarray) -> None:
        use, known = self.uses[memory], self.clock[self.now]
        if memory != "dram" and (use.wrote[:, at].max(axis=0) < 0).any():
            raise Fault(f"instruction {self.at} reads {memory}, where nothing was written")
        self._check(memory, use.wrote, at, known)
        use.read[self.now, at] = self.at

    def _writes(self, memory: str, at: np.ndarray) -> None:
        use, known = self.uses[memory], self.clock[self.now]
        self._check(memory, use.wrote, at, known)
        self._check(memory, use.read, at, known)
        use.wrote[self.now, at] = self.at

    def _check(self, memory: str, last: np.ndarray, at: np.ndarray, known: np.ndarray) -> None:
        for p in range(len(QUEUES)):
            if p == self.now:
                continue
            late = last[p, at].max(initial=-1)
            if late > known[p]:
                raise Fault(
                    f"instruction {self.at} of {QUEUES[self.now]} and {late} of {QUEUES[p]} touch"
                    f" the same bytes of {memory}, and no token orders them"
                )

    def _inside(self, memory: str, at: np.ndarray) -> np.ndarray:
        if at.size and at.max() >= DEPTH[memory]:
            raise Fault(f"instruction {self.at} reaches {memory}[{at.max()}]")
        return at

    def _elements(self, kind: int, at: np.ndarray) -> np.ndarray:
        """The cells of DRAM of elements of a kind of memory."""
        size = ELEMENT[kind]
        if at.size and (at.max() + 1) * size > self.size + -self.size % CELL:
            raise Fault(f"instruction {self.at} reaches byte {(at.max() + 1) * size} of DRAM")
        if size < CELL:
            return np.unique(at * size // CELL)
        each = size // CELL
        return (at[:, None] * each + np.arange(each)).reshape(-1)

    # ---------------------------------------------------------- instructions

    def _decode(self, words: np.ndarray) -> None:
        """The fields of every instruction, as numbers."""
        self.rows: list[dict[str, int]] = [{} for _ in words]
        kinds = (
            ((LOAD, STORE), MOVE, SIZES), ((GEMM,), LOOPS, FACTORS), ((ALU_CODE,), LOOPS, ALU),
        )  # fmt: skip
        for opcodes, first, second in kinds:
            ours = np.flatnonzero(np.isin(self.opcode, opcodes))
            found = columns(first, words[ours, 0]) | columns(second, words[ours, 1])
            names = list(found)
            table = zip(*(found[name].tolist() for name in names), strict=True)
            for i, row in zip(ours.tolist(), table, strict=True):
                self.rows[i] = dict(zip(names, row, strict=True))

    def _execute(self, i: int) -> None:
        opcode, row = self.opcode[i], self.rows[i]
        name = {LOAD: "load", STORE: "store", GEMM: "gemm", FINISH: "finish", ALU_CODE: "alu"}[
            opcode
        ]
        self.report.counts[name] = self.report.counts.get(name, 0) + 1
        if opcode == LOAD:
            self._load(row)
        elif opcode == STORE:
            self._store(row)
        elif opcode != FINISH:
            self._compute(name, row)

    def _load(self, m: dict[str, int]) -> None:
        kind = m["memory_type"]
        if kind not in HOME:
            raise Fault(f"instruction {self.at} loads into memory {kind}")
        up, down, left, right = (m[k] for k in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"))
        if (up or down or left or right) and kind != INP:
            raise Fault(f"instruction {self.at} makes a border in {HOME[kind]}")
        rows, wide = m["y_size"], m["x_size"]
        source = m["dram_base"] + np.arange(rows)[:, None] * m["x_stride"] + np.arange(wide)
        self._reads("dram", self._elements(kind, source.reshape(-1)))
        data = self.dram.reshape(-1, ELEMENT[kind])[source.reshape(-1)]
        name = HOME[kind]
        shape = (up + rows + down, left + wide + right)
        target = self._inside(name, m["sram_base"] + np.arange(shape[0] * shape[1]))
        self._writes(name, target)
        memory = getattr(self, name)
        memory[target] = 0
        inner = target.reshape(shape)[up : up + rows, left : left + wide].reshape(-1)
        if kind == UOPS:
            memory[inner] = data.view("<u4").reshape(-1)
        elif kind == ACC:
            memory[inner] = data.view("<i4")
        else:
            memory[inner] = data.view(np.int8).reshape(-1, *memory.shape[1:])

    def _store(self, m: dict[str, int]) -> None:
        """From the buffer that products and the ALU write beside the accumulators."""
        if m["memory_type"] != OUT or any(
            m[k] for k in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
        ):
            raise Fault(f"instruction {self.at} stores from memory {m['memory_type']}, or a border")
        rows, wide = m["y_size"], m["x_size"]
        there = m["dram_base"] + np.arange(rows)[:, None] * m["x_stride"] + np.arange(wide)
        here = self._inside("out", m["sram_base"] + np.arange(rows * wide))
        self._reads("out", here)
        self._writes("dram", self._elements(OUT, there.reshape(-1)))
        self.dram.reshape(-1, BLOCK)[there.reshape(-1)] = self.out[here].view(np.uint8)

    def _compute(self, name: str, m: dict[str, int]) -> None:
        listed = self._inside("uop", np.arange(m["uop_bgn"], m["uop_end"]))
        self._reads("uop", listed)
        entry = columns(UOP, self.uop[listed].astype(np.uint64))
        i, j = np.arange(m["iter_out"])[:, None, None], np.arange(m["iter_in"])[:, None]

        def places(operand: str, factor: str) -> np.ndarray:
            out, inner = m[f"{factor}_out"], m[f"{factor}_in"]
            return (entry[operand] + i * out + j * inner).reshape(-1)

        dst = self._inside("acc", places("dst", "dst"))
        self.report.rows[name] = self.report.rows.get(name, 0) + len(dst)
        for k in range(1, APART):
            if (dst[k:] == dst[:-k]).any():
                raise Fault(f"instruction {self.at} writes an accumulator twice within {APART}")
        if name == "gemm":
            self._gemm(m, dst, places("src", "src"), places("wgt", "wgt"))
        else:
            self._alu(m, dst, places("src", "src"))
        self._writes("acc", dst)
        self._writes("out", dst)
        self.out[dst] = self.acc[dst].astype(np.int8)  # the lowest 8 bits

    def _gemm(self, m: dict[str, int], dst: np.ndarray, src: np.ndarray, wgt: np.ndarray) -> None:
        if m["reset"]:
            self.acc[dst] = 0
            return
        for name, at in (("acc", dst), ("inp", src), ("wgt", wgt)):
            self._reads(name, self._inside(name, at))
        order = np.argsort(wgt, kind="stable")
        sums = np.empty((len(dst), BLOCK), np.int32)
        x = self.inp[src].astype(np.float32)  # sums of 16 products are exact
        cuts = np.flatnonzero(np.diff(wgt[order])) + 1
        for ours in np.split(order, cuts):
            w = self.wgt[wgt[ours[0]]].astype(np.float32)
            sums[ours] = x[ours] @ w.T
        order = np.argsort(dst, kind="stable")
        starts = np.flatnonzero(np.diff(dst[order], prepend=-1))
        self.acc[dst[order][starts]] += np.add.reduceat(sums[order], starts, axis=0)

    def _alu(self, m: dict[str, int], dst: np.ndarray, src: np.ndarray) -> None:
        self._reads("acc", dst)
        immediate = m["imm"] - ((m["imm"] >> 15) << 16) if m["use_imm"] else None
        if immediate is None:
            self._reads("acc", self._inside("acc", src))
        moved = immediate is None and (src != dst).any()
        if moved and np.isin(src, dst).any():  # what one writes, another may read: one by one
            for k in range(len(dst)):
                self._operate(m["op"], dst[k : k + 1], src[k : k + 1], immediate)
            return
        order = np.argsort(dst, kind="stable")
        first = np.flatnonzero(np.diff(dst[order], prepend=-1))
        turn = np.empty(len(dst), np.int64)  # how often the accumulator was written before
        turn[order] = np.arange(len(dst)) - np.repeat(first, np.diff(first, append=len(dst)))
        for t in range(int(turn.max(initial=-1)) + 1):
            ours = turn == t
            self._operate(m["op"], dst[ours], src[ours], immediate)

    def _operate(self, op: int, dst: np.ndarray, src: np.ndarray, immediate: int | None) -> None:
        a = self.acc[dst].astype(np.int64)
        b = np.int64(immediate) if immediate is not None else self.acc[src].astype(np.int64)
        if op == SHR:  # to the left by a negative amount
            self.report.shift = max(self.report.shift, int(np.abs(b).max()))
            right, left = np.clip(b, 0, 63), np.clip(-b, 0, 63)
            result = np.where(b >= 0, a >> right, a << left)
        elif op in (MIN, MAX):
            result = (np.minimum if op == MIN else np.maximum)(a, b)
        else:
            result = a * b if op == MUL else a + b
        self.acc[dst] = result.astype(np.int32)


class Dump:
    """A folder that `dump --stage stream --binary` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = json.loads((folder / "index.json").read_text())
        self.submits = self.index["submits"]

    def run(self, number: int, arguments: Sequence[np.ndarray], **chip) -> tuple[list, Report]:
        """The results of a submit, given all of its arguments (of which those that are constants
        are left alone: they are in the folder), and what the chip did."""
        submit = self.submits[number]
        (memory,) = submit["memories"]
        dram = np.fromfile(self.folder / memory["file"], np.uint8)
        for o in submit["operands"]:
            data = np.ascontiguousarray(arguments[o["argument"]]).reshape(-1).view(np.uint8)
            assert data.size == o["bytes"]
            dram[o["address"] : o["address"] + data.size] = data
        words = np.fromfile(self.folder / submit["instructions"]["file"], "<u8").reshape(-1, 2)
        assert len(words) == submit["instructions"]["count"]
        machine = Chip(dram, **chip)
        parts = submit["instructions"]["parts"]
        for part in np.split(words, np.cumsum(parts)[:-1]):
            report = machine.run(part)
        places = [(r["address"], r["bytes"]) for r in submit["results"]]
        return [machine.dram[a : a + n].view(np.int8) for a, n in places], report
