"""Describing a chip: memories, queues, how they wait for each other, instructions.

    t = TargetBuilder("tiny", clock=500e6)
    t.memory("dram", bandwidth=16, latency=64)
    t.memory("spad", size=64 << 10)
    load, compute = t.queues("load", "compute", depth=8)
    t.tokens((load, compute))

    @t.instruction(load)
    def mvin(src: view(i8[64, 16] @ "dram", "stride"), dst: out(i8[64, 16] @ "spad"),
             rows: Range(1, 64), stride: Range(0, 65535)):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 16, latency=64)

    target = t.build()

An instruction is a function read from its source like a kernel (ir/kernel.py); its operands are
formal buffers, of the largest shape, in the memory where they must lie; its other parameters are
fields, and so are the dims() in shapes: an operand of such a shape is contiguous in that many
elements. `cost` gives its time in cycles as arithmetic on fields.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import BufferType
from tilewright.base.errors import TargetError
from tilewright.ir.expr import Buffer, Dim, Symbol, as_dim, as_expr
from tilewright.ir.instruction import Cost, Field, Instruction, MicroOps
from tilewright.ir.kernel_source import MISSING
from tilewright.ir.kernel_stmt import KernelStmtReader
from tilewright.ir.kernel_words import Output, Word
from tilewright.ir.loop import Block, walk_statements
from tilewright.target.target import Memory, Native, Queue, Target, VectorUnit


@dataclass(frozen=True)
class Range:
    """A field from `low` to `high`, a multiple of `multiple`."""

    low: int
    high: int
    multiple: int = 1


flag = Range(0, 1)
ANYWHERE = ""  # the memory of an operand that names none
cost = Word("cost", "cost(setup=16, busy=rows, latency=8, bytes=rows * 16)")


@dataclass(frozen=True)
class View:
    """An operand whose steps along axes are carried by fields, or by lists of micro-operations
    (None: contiguous)."""

    type: BufferType | Output
    strides: tuple[str | MicroOps | None, ...]


def view(kind: BufferType | Output, *strides: str | MicroOps | None) -> View:
    """An operand that is a view of a larger array: view(i8[64, 16] @ "dram", "stride") carries
    the step of its first axis in the field `stride`."""
    return View(kind, strides)


class TargetBuilder:
    """Collects the parts of a description; `build` checks it and gives the Target."""

    def __init__(
        self,
        name: str,
        *,
        clock: float,
        cores: int = 1,
        vector: VectorUnit | None = None,
        native: Native | None = None,
    ) -> None:
        """A chip at `clock` Hz; a processor says as well how many cores it has, what its vectors
        are, and what LLVM calls it."""
        self.name, self.clock, self.cores = name, clock, cores
        self.vector, self.native = vector, native
        self._memories: list[Memory] = []
        self._queues: list[Queue] = []
        self._tokens: list[tuple[str, str]] = []
        self._instructions: list[Instruction] = []
        self._interlock, self._barriers = False, False
        self._events, self._issue = 0, 1

    def memory(
        self,
        name: str,
        size: int | None = None,
        *,
        cached: bool = False,
        shared_by: int = 1,
        bandwidth: float | None = None,
        latency: int = 0,
        banks: int = 1,
    ) -> str:
        """A memory of `size` bytes (None: as much as there is) that the compiler manages, or with
        `cached` one that holds what was used last. `bandwidth` in bytes a cycle is shared by all
        that use it; `latency` in cycles; `shared_by` cores have one of these together. `banks` are
        equal consecutive parts: while an instruction of one queue uses a bank, those of other
        queues that need it wait."""
        self._memories.append(Memory(name, size, cached, shared_by, bandwidth, latency, banks))
        return name

    def queues(self, *names: str, depth: int) -> tuple[str, ...]:
        """In-order engines; each takes up to `depth` instructions in advance."""
        self._queues += [Queue(name, depth) for name in names]
        return names

    def tokens(self, *pairs: tuple[str, str]) -> None:
        """Pairs of queues that can make each other wait with tokens, both ways."""
        self._tokens += pairs

    def events(self, count: int) -> None:
        """Any queue can wait for an instruction of any other, through one of `count` numbered
        events: set when that one is done, and free again once it was waited for."""
        self._events = count

    def barriers(self) -> None:
        """All queues can be made to wait until all of them are done with what came before: the
        last resort, where nothing else links two queues."""
        self._barriers = True

    def interlock(self) -> None:
        """The chip itself lets an instruction begin only when all that it depends on is done:
        streams have no waits."""
        self._interlock = True

    def issue(self, cycles: int) -> None:
        """How long the issuer (the chip's instruction fetch, or the host's processor) takes for
        one instruction; 1 cycle unless said."""
        self._issue = cycles

    def micro_ops(self, memory: str, *, bytes: int) -> MicroOps:
        """Lists of micro-operations in a memory, `bytes` for each: in `view(…)` it stands for steps
        along an axis that come from such a list. Some instruction must load that memory."""
        return MicroOps(memory, bytes)

    def instruction(
        self, queue: str = "", *, name: str = "", native: str = ""
    ) -> Callable[[Callable[..., Any]], Instruction]:
        """Declares the function below as an instruction of a queue, or of a processor: `native` is
        the call of an LLVM intrinsic that does it (codegen/llvm_call.py). `name` is the function's
        unless one function describes several. One that does nothing (`pass`) lets two queues wait
        for each other that are not linked."""

        def declare(function: Callable[..., Any]) -> Instruction:
            found = read_instruction(function).with_(queue=queue, native=native)
            found = found.with_(name=name) if name else found
            self._instructions.append(found)
            return found

        return declare

    def build(self) -> Target:
        return Target(
            self.name,
            self.cores,
            self.clock,
            self.vector,
            tuple(self._memories),
            self.native,
            queues=tuple(self._queues),
            tokens=tuple(self._tokens),
            instructions=tuple(self._instructions),
            interlock=self._interlock,
            events=self._events,
            barriers=self._barriers,
            issue=self._issue,
        )


def read_instruction(function: Callable[..., Any]) -> Instruction:
    """The instruction that a Python function describes."""
    return _InstructionReader(function).instruction()


class _InstructionReader(KernelStmtReader):
    """Reads an instruction: like a kernel, but that some parameters are fields, operands may be
    read and written, and `cost(…)` says how long it takes."""

    def instruction(self) -> Instruction:
        operands: list[Buffer] = []
        fields: list[Field] = []
        strides: list[tuple[str, int, str]] = []
        listed: list[tuple[MicroOps, str, int]] = []
        for param in self.parameters(self.function):
            kind = self.annotation(param)
            if isinstance(kind, View):
                for axis, by in enumerate(kind.strides):
                    if isinstance(by, MicroOps):
                        listed.append((by, param.arg, axis))
                    elif by is not None:
                        strides.append((param.arg, axis, by))
                kind = kind.type
            if isinstance(kind, Range):
                fields.append(self._field(param, kind))
            else:
                operands.append(self._operand(param, kind))
        fields += self._extents(operands)
        body, cost = self._body()
        name = self.function.name
        doc = ast.get_docstring(self.function) or ""
        known = {f.name for f in fields}
        for operand, _, carrier in strides:
            if carrier not in known:
                raise TargetError(f"{name}: the stride of {operand} is in {carrier!r}, no field")
        return Instruction(
            name,
            tuple(operands),
            tuple(fields),
            body,
            cost=cost,
            strides=tuple(strides),
            doc=doc,
            micro_ops=_micro_ops(name, listed),
            file=self.file,
            lines=self._lines(body),
        )

    def _lines(self, body: Block) -> tuple[int, ...]:
        """In the file: of the function, and of every statement of its meaning."""
        nodes = [self.function, *(self.node_of(s) for s in walk_statements(body))]
        return tuple(n.lineno + self.first - 1 for n in nodes)

    def _extents(self, operands: Sequence[Buffer]) -> list[Field]:
        """The dims() in the operands' shapes: fields that make contiguous what has that shape."""
        found = (e for b in operands for n in b.shape for e in as_expr(n).walk())
        symbols = dict.fromkeys(e for e in found if isinstance(e, Symbol))
        for symbol in symbols:
            self.fresh(symbol.name)
            if symbol.upper is None:
                raise TargetError(
                    f"{self.function.name}: {symbol.name} has no end",
                    hint=f'dims("{symbol.name}", max=64) says how far a field goes',
                )
        return [Field(x, x.lower, x.upper) for x in symbols if x.upper is not None]

    def _field(self, param: ast.arg, kind: Range) -> Field:
        symbol = Symbol(self.fresh(param.arg), kind.low, kind.high)
        self.scalars[param.arg] = symbol
        return Field(symbol, kind.low, kind.high, kind.multiple)

    def _operand(self, param: ast.arg, kind: Any) -> Buffer:
        written = isinstance(kind, Output)
        kind = kind.type if written else kind
        if kind is MISSING or not isinstance(kind, BufferType):
            hint = f'{param.arg}: i8[16, 16] @ "spad" for an operand, Range(1, 16) for a field'
            raise self.refuse(param, f"{param.arg} has no type of an operand or field", hint)
        shape: tuple[Dim, ...] = tuple(as_dim(d) for d in kind.shape)
        buffer = Buffer(self.fresh(param.arg), kind.dtype, shape, kind.memory or ANYWHERE)
        self.buffers[param.arg] = buffer
        if not written:
            self.read_only.add(buffer)
        return buffer

    def _body(self) -> tuple[tuple[Any, ...], Cost]:
        """The meaning's statements, and what the `cost` statement says."""
        stmts = list(self.function.body)
        if stmts and isinstance(stmts[0], ast.Expr) and isinstance(stmts[0].value, ast.Constant):
            del stmts[0]  # the docstring
        costs = [s for s in stmts if _is_cost(s)]
        body = self.block([s for s in stmts if not _is_cost(s)])
        return body, self._cost(costs)

    def _cost(self, stmts: Sequence[ast.stmt]) -> Cost:
        terms: dict[str, Dim] = {}
        for stmt in stmts:
            assert isinstance(stmt, ast.Expr)
            assert isinstance(stmt.value, ast.Call)
            for keyword in stmt.value.keywords:
                if keyword.arg not in _TERMS:
                    hint = "cost(" + ", ".join(f"{t}=…" for t in _TERMS) + ")"
                    raise self.refuse(keyword, f"{keyword.arg} is no term of a cost", hint)
                terms[keyword.arg] = self.dim(keyword.value)
        return Cost(**terms)


_TERMS = ("setup", "busy", "latency", "bytes", "energy")


def _micro_ops(name: str, listed: Sequence[tuple[MicroOps, str, int]]) -> MicroOps | None:
    """The one kind of lists that an instruction takes, with the axes it is for."""
    kinds = {kind for kind, _, _ in listed}
    if len(kinds) > 1 or len({operand for _, operand, _ in listed}) < len(listed):
        raise TargetError(
            f"{name}: steps are listed twice",
            hint="an instruction has one kind of micro-operations, and an operand one axis of it",
        )
    axes = tuple((operand, axis) for _, operand, axis in listed)
    return kinds.pop().with_(axes=axes) if kinds else None


def _is_cost(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Name)
        and stmt.value.func.id == "cost"
    )
