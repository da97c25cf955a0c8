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

An instruction is a function read from its source like a kernel (ir/python); its operands are
formal buffers, of the largest shape, in the memory where they must lie; its other parameters are
fields, and so are the dims() in shapes: an operand of such a shape is contiguous in that many
elements. `cost` gives its time in cycles as arithmetic on fields, `limit` says what must hold of
them together: limit(pad < kh, kh * kw <= 64). `distance(c=3)` says that its hardware loops come
back to an element of c after 3 iterations at the soonest (target/iterations.py).

What one instruction moves may differ from memory to memory: cost(bytes={flash: 64, spad: 16}). A
result that the same queue can use `n` cycles after the instruction began has cost(forward=n) if the
chip makes sure of that, cost(exposed=n) if the compiler has to.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import BufferType
from tilewright.base.errors import TargetError
from tilewright.ir.expr import Buffer, Dim, Opaque, Symbol, as_dim, as_expr
from tilewright.ir.instruction import BlackBox, Field, Instruction, MicroOps
from tilewright.ir.loop import Block, walk_statements
from tilewright.ir.python.source import MISSING
from tilewright.ir.python.stmt import KernelStmtReader
from tilewright.ir.python.words import Output, Word
from tilewright.target.clauses import cost as cost  # descriptions take these words from here
from tilewright.target.clauses import distance as distance
from tilewright.target.clauses import limit as limit
from tilewright.target.clauses import read_cost, read_distances, read_limits, says
from tilewright.target.encoding import Encoding
from tilewright.target.encoding_faults import name_faults
from tilewright.target.packed import packed_encoding
from tilewright.target.target import (
    ANYWHERE,
    Bundles,
    Fetch,
    Memory,
    Native,
    Queue,
    Target,
    VectorUnit,
)


@dataclass(frozen=True)
class Range:
    """A field from `low` to `high`, a multiple of `multiple`."""

    low: int
    high: int
    multiple: int = 1


flag = Range(0, 1)


@dataclass(frozen=True)
class OperandView:
    """An operand whose steps along axes are carried by fields, or by lists of micro-operations
    (None: contiguous)."""

    type: BufferType | Output
    strides: tuple[str | MicroOps | None, ...]


def view(kind: BufferType | Output, *strides: str | MicroOps | None) -> OperandView:
    """An operand that is a view of a larger array: view(i8[64, 16] @ "dram", "stride") carries
    the step of its first axis in the field `stride`."""
    return OperandView(kind, strides)


@dataclass(frozen=True)
class StateRegister:
    """A field that is not in the instruction but in a register of the chip."""

    setter: Instruction
    name: str


def state(setter: Instruction, name: str) -> StateRegister:
    """A field in a register that another instruction sets: stride: state(config, "stride"). The
    compiler sets it before the first use, and when another value is needed. That instruction does
    nothing else (`pass`), and its fields are registers."""
    return StateRegister(setter, name)


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
        """A chip at `clock` Hz, of so many equal cores: each has the queues, and those memories
        that are not said to be shared. A processor says as well what its vectors are, and what LLVM
        calls it."""
        self.name, self.clock, self.cores = name, clock, cores
        self.vector, self.native = vector, native
        self._memories: list[Memory] = []
        self._queues: list[Queue] = []
        self._tokens: list[tuple[str, str]] = []
        self._token_depth: int | None = None
        self._instructions: list[Instruction] = []
        self._interlock, self._barriers = False, False
        self._events, self._issue = 0, 1
        self._encodings: dict[str, Encoding] = {}
        self._entries: dict[str, Encoding] = {}
        self._origins: dict[str, str] = {"target": _caller()}
        self._bundles: Bundles | None = None
        self._fetch: Fetch | None = None
        self._ends_with: str | None = None
        self._most_submitted: int | None = None

    @classmethod
    def extend(cls, target: Target, name: str) -> TargetBuilder:
        """A description that begins with all of another one: for a chip that has more."""
        t = cls(
            name, clock=target.clock, cores=target.cores, vector=target.vector, native=target.native
        )
        t._memories, t._queues = list(target.memories), list(target.queues)
        t._tokens, t._instructions = list(target.tokens), list(target.instructions)
        t._token_depth, t._most_submitted = target.token_depth, target.most_submitted
        t._interlock, t._barriers = target.interlock, target.barriers
        t._events, t._issue = target.events, target.issue
        t._encodings, t._entries = dict(target.encodings), dict(target.entries)
        t._bundles, t._fetch, t._ends_with = target.bundles, target.fetch, target.ends_with
        t._origins |= dict(target.origins)
        return t

    def memory(
        self,
        name: str,
        size: int | None = None,
        *,
        cached: bool = False,
        shared_by: int | None = None,
        bandwidth: float | None = None,
        latency: int = 0,
        banks: int = 1,
        unit: int = 1,
        line: int = 64,
        capacity: int | None = None,
    ) -> str:
        """A memory of `size` bytes (None: as much as there is) that the compiler manages, or with
        `cached` one that holds what was used last. One without a size has `capacity` bytes for the
        arrays of what is submitted at a time (None: enough). `bandwidth` in bytes a cycle is shared
        by all that use it; `latency` in cycles; `shared_by` cores have one of these together. Not
        said, all cores have one together of what has no size, and each has its own of the others.
        `banks` are equal consecutive parts: while an instruction of one queue uses a bank, those of
        other queues that need it wait. Addresses are encoded in units of so many bytes. A `line` is
        what the memory gives at a time: fewer bytes that lie apart are moved no faster."""
        if shared_by is None:
            shared_by = self.cores if size is None else 1
        shared = (cached, shared_by, bandwidth, latency, banks, unit)
        self._memories.append(Memory(name, size, *shared, line=line, capacity=capacity))
        self._origins[f"memory {name}"] = _caller()
        return name

    def register_file(self, name: str, count: int, bytes: int) -> str:
        """A file of `count` registers. An operand that fills whole registers begins where one
        does; any other may begin at any of its elements, and reach into the next register."""
        self._memories.append(Memory(name, count * bytes, False, row=bytes))
        self._origins[f"memory {name}"] = _caller()
        return name

    def bundles(
        self, *, control: str, loops: int = 0, branch: int = 1, **slots: int
    ) -> tuple[str, ...]:
        """Operations that are issued together, so many of each kind: what instructions say in the
        place of a queue. The `control` slot starts transfers of queues and waits for them, begins
        the `loops` innermost loops, which then cost nothing, and ends others by a branch, after
        which `branch` cycles pass."""
        self._bundles = Bundles(tuple(slots.items()), control, loops, branch)
        return tuple(slots)

    def queues(self, *names: str, depth: int) -> tuple[str, ...]:
        """In-order engines; each takes up to `depth` instructions in advance."""
        self._queues += [Queue(name, depth) for name in names]
        self._origins |= dict.fromkeys([f"queue {name}" for name in names], _caller())
        return names

    def submits(self, most: int) -> None:
        """The host hands over at most so many instructions at a time, and waits until they are
        done; longer streams are handed over in parts, each of which ends as a stream does."""
        self._most_submitted = most

    def tokens(self, *pairs: tuple[str, str], depth: int | None = None) -> None:
        """Pairs of queues that can make each other wait with tokens, both ways. With a `depth`, a
        queue that has so many untaken ones for another stands still until one is taken."""
        self._tokens += pairs
        self._token_depth = self._token_depth if depth is None else depth
        self._origins |= dict.fromkeys([f"tokens {a} {b}" for a, b in pairs], _caller())

    def micro_ops(
        self, memory: str, *, bytes: int = 0, encoding: Encoding | None = None
    ) -> MicroOps:
        """Lists of micro-operations in a memory, `bytes` for each, or as many as their encoding
        has: in `view(…)` it stands for steps along an axis that come from such a list. Some
        instruction must load that memory."""
        if encoding is not None:
            self._entries[memory] = encoding
        return MicroOps(memory, bytes if encoding is None else encoding.width // 8)

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

    def fetch(self, memory: str, *, bytes: int, burst: int = 1, ahead: int = 64) -> None:
        """Where instructions come from: `bytes` each through a memory, whose bandwidth they take a
        part of, `burst` of them at a time, as soon as there is room among the `ahead` that wait to
        enter their queues. Not said: they are there, and take no bandwidth."""
        self._fetch = Fetch(memory, bytes, burst, ahead)

    def end(self, instruction: Instruction) -> None:
        """The instruction that ends a program: it does nothing, and stands last in every stream,
        once all queues are done."""
        if not any(instruction is i for i in self._instructions):
            known = ", ".join(i.name for i in self._instructions) or "none"
            raise TargetError(
                f"{_caller()}: {instruction!r} is no instruction of {self.name}",
                hint=f"t.end(…) takes one that is declared above it: {known}",
            )
        self._ends_with = instruction.name

    def instruction(
        self,
        queue: str = "",
        *,
        name: str = "",
        native: str = "",
        encoding: Encoding | None = None,
        black_box: BlackBox | None = None,
    ) -> Callable[[Callable[..., Any]], Instruction]:
        """Declares the function below as an instruction of a queue, or of a processor: `native` is
        the call of an LLVM intrinsic that does it (native/call.py). `name` is the function's
        unless one function describes several; `encoding` is the instruction's bits
        (target/encoding.py). One that does nothing (`pass`) lets two queues wait for each other
        that are not linked. `black_box(fields, arrays)` simulates what is opaque in it: it gets the
        fields' values and an array for each operand, by name."""

        def declare(function: Callable[..., object]) -> Instruction:
            found = read_instruction(function, black_box).with_(queue=queue, native=native)
            found = found.with_(name=name) if name else found
            place = f"{found.file}:{found.lines[0]}"
            if f"instruction {found.name}" in self._origins:
                raise TargetError(
                    f"{place}: there is an instruction called {found.name} already",
                    hint='give it another name: @t.instruction(…, name="…")',
                )
            self._origins[f"instruction {found.name}"] = place
            self._instructions.append(found)
            if encoding is not None:
                self._encodings[found.name] = encoding
            return found

        return declare

    def build(self, *, packed: int = 0) -> Target:
        """The description; TargetError where its parts do not fit together. With `packed`,
        instructions without an encoding get one (target/packed.py), with so many bits for
        addresses in memories without an end."""
        found = Target(
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
            encodings=tuple(self._encodings.items()),
            entries=tuple(self._entries.items()),
            origins=tuple(self._origins.items()),
            bundles=self._bundles,
            fetch=self._fetch,
            ends_with=self._ends_with,
            token_depth=self._token_depth,
            most_submitted=self._most_submitted,
        )
        for instruction in self._instructions:
            faults = name_faults(found, instruction)
            if faults:
                where = self._origins[f"instruction {instruction.name}"]
                texts = "; ".join(f.what for f in faults)
                raise TargetError(
                    f"{where}: the encoding of {instruction.name}: {texts}",
                    hint="; ".join(f.hint for f in faults),
                )
        if not packed:
            return found
        given = dict(found.encodings)
        rest = [i for i in found.instructions if i.name not in given]
        more = tuple((i.name, packed_encoding(found, i, packed)) for i in rest)
        return dataclasses.replace(found, encodings=(*found.encodings, *more))


def _caller() -> str:
    """The line of the description that calls the builder: "chip.py:12"."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def read_instruction(
    function: Callable[..., object], black_box: BlackBox | None = None
) -> Instruction:
    """The instruction that a Python function describes."""
    return _InstructionReader(function).instruction(black_box)


class _InstructionReader(KernelStmtReader):
    """Reads an instruction: like a kernel, but that some parameters are fields, operands may be
    read and written, `cost(…)` says how long it takes and `limit(…)` what it does not do."""

    def instruction(self, black_box: BlackBox | None) -> Instruction:
        operands: list[Buffer] = []
        fields: list[Field] = []
        strides: list[tuple[str, int, str]] = []
        listed: list[tuple[MicroOps, str, int]] = []
        for param in self.parameters(self.function):
            kind = self.annotation(param)
            if isinstance(kind, OperandView):
                for axis, by in enumerate(kind.strides):
                    if isinstance(by, MicroOps):
                        listed.append((by, param.arg, axis))
                    elif by is not None:
                        strides.append((param.arg, axis, by))
                kind = kind.type
            if isinstance(kind, StateRegister):
                fields.append(self._register(param, kind))
            elif isinstance(kind, Range):
                fields.append(self._field(param, kind))
            else:
                operands.append(self._operand(param, kind))
        fields += self._extents(operands)
        name = self.function.name
        stmts, said = self._statements()
        body, time = self.block(stmts), read_cost(self, said[cost])
        if not body and fields and time.forward is None and time.exposed is None:
            time = time.with_(alone=True)
        micro_ops = _micro_ops(name, listed)
        apart = read_distances(self, said[distance], body, operands, micro_ops)
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
            cost=time,
            strides=tuple(strides),
            doc=doc,
            micro_ops=micro_ops,
            limits=tuple(read_limits(self, said[limit])),
            file=self.file,
            lines=self._lines(body),
            black_box=self._check_black_box(black_box, body, operands, listed=bool(listed)),
            distances=tuple(apart),
        )

    def _statements(self) -> tuple[list[ast.stmt], dict[Word, list[ast.stmt]]]:
        """Those of the meaning; those that say something beside it, by their word."""
        stmts = list(self.function.body)
        if stmts and isinstance(stmts[0], ast.Expr) and isinstance(stmts[0].value, ast.Constant):
            del stmts[0]  # the docstring
        said = {word: [s for s in stmts if says(s, word)] for word in (cost, limit, distance)}
        beside = [s for found in said.values() for s in found]
        return [s for s in stmts if s not in beside], said

    def _check_black_box(
        self,
        black_box: BlackBox | None,
        body: Block,
        operands: Sequence[Buffer],
        *,
        listed: bool,
    ) -> BlackBox | None:
        """What is opaque needs a function that simulates it, which needs arrays of known shapes."""
        opaque = [x for s in body for x in s.walk() if isinstance(x, Opaque)]
        name = self.function.name
        if opaque and black_box is None:
            raise TargetError(
                f"{name} computes {opaque[0].name}, which is opaque",
                hint="black_box=function says what simulates it: function(fields, arrays)",
            )
        if black_box is not None and listed:
            raise TargetError(f"{name}: a black box has no micro-operations")
        for operand in operands if black_box is not None else ():
            if not all(isinstance(n, (int, Symbol)) for n in operand.shape):
                raise TargetError(
                    f"{name}: a black box has operands of numbers and dims(), not {operand}"
                )
        return black_box

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

    def _register(self, param: ast.arg, kind: StateRegister) -> Field:
        setter = kind.setter
        if not setter.sets_state or all(f.name != kind.name for f in setter.fields):
            hint = "the body of an instruction that sets registers is `pass`; its fields are them"
            what = f"{setter} sets no register called {kind.name}"
            raise self.refuse(param, what, hint)
        field = setter.field(kind.name)
        plain = self._field(param, Range(field.low, field.high, field.multiple))
        return plain.with_(register=(setter.name, kind.name))

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
