"""Loop programs as Python source, compiled once and run: what ir/interpret.py does, many times
faster, on values of any algebra.

An algebra says what values are: `Numbers` are numpy scalars, as in the interpreter; oracle.py has
one whose values are terms. Buffers are dictionaries from subscripts to values, so that a place
outside of one is no key of it. Vector loops run as lanes in step; parallel and bound loops run in
order, and tell a `Watch` what their iterations touch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from tilewright.base.dtype import DType, bool_, index
from tilewright.ir.evaluate import evaluate_dim, poisoned
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
)
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    walk_statements,
)
from tilewright.ir.scalar import apply_binary, apply_bitcast, apply_cast, apply_compare, apply_unary

Memory = dict[Any, Any]  # subscripts (an int, or a tuple of several) to values
INDENT = " "


class OutsideError(Exception):
    """A subscript outside of its buffer."""


class Algebra(Protocol):
    """What values are. Each method gives a function of values, or a value."""

    plain: str  # a value's number, as Python: "{}" where values are numbers

    def const(self, value: Any, dtype: DType) -> Any: ...
    def undefined(self, dtype: DType) -> Any: ...
    def unary(self, op: UnaryOp, dtype: DType) -> Callable[[Any], Any]: ...
    def binary(self, op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]: ...
    def compare(self, op: CompareOp) -> Callable[[Any, Any], Any]: ...
    def cast(self, dtype: DType) -> Callable[[Any], Any]: ...
    def bitcast(self, dtype: DType) -> Callable[[Any], Any]: ...
    def accumulate(self, op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]: ...
    def infix(self, op: BinaryOp, dtype: DType) -> str | None: ...


class Numbers:
    """Numpy scalars: the interpreter's values."""

    plain = "{}"

    def const(self, value: Any, dtype: DType) -> Any:
        return dtype.numpy.type(value)

    def undefined(self, dtype: DType) -> Any:
        return poisoned((), dtype)[()]

    def unary(self, op: UnaryOp, dtype: DType) -> Callable[[Any], Any]:
        return lambda a: apply_unary(op, np.asarray(a))[()]

    def binary(self, op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]:
        def apply(a: Any, b: Any) -> Any:
            value = apply_binary(op, a, b)
            return value[()] if isinstance(value, np.ndarray) else value

        return apply

    def compare(self, op: CompareOp) -> Callable[[Any, Any], Any]:
        return partial(apply_compare, op)

    def cast(self, dtype: DType) -> Callable[[Any], Any]:
        return lambda a: apply_cast(a, dtype)[()]

    def bitcast(self, dtype: DType) -> Callable[[Any], Any]:
        return lambda a: apply_bitcast(a, dtype)[()]

    def accumulate(self, op: BinaryOp, dtype: DType) -> Callable[[Any, Any], Any]:
        return self.binary(op, dtype)

    def infix(self, op: BinaryOp, dtype: DType) -> str | None:
        signs = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*"}
        wide = dtype.bits >= (32 if dtype.is_float else 8)
        return signs.get(op) if wide and dtype != bool_ else None


SEVERAL = -1


class Run:
    """One run of a loop whose iterations happen at the same time: who touched what."""

    def __init__(self) -> None:
        self.at = 0  # the iteration
        self.written: dict[Any, int] = {}
        self.seen: dict[Any, int] = {}


class Watch:
    """What the iterations of parallel and bound loops touch; `races` says where two conflict."""

    def __init__(self) -> None:
        self.races: list[str] = []
        self.runs: list[Run] = []  # of the loops around, outermost first
        self.kept: list[Memory] = []  # alive, so that no two have one id

    def iterations(self, extent: int) -> Iterator[int]:
        run = Run()
        self.runs.append(run)
        for run.at in range(extent):
            yield run.at
        self.runs.pop()

    def made(self, memory: Memory) -> Memory:
        self.kept.append(memory)
        return memory

    def read(self, memory: Memory, place: Any, name: str) -> Any:
        key = (id(memory), place)
        for run in self.runs:
            if run.written.get(key, run.at) != run.at:
                self.races.append(f"{name}[{place}] is read where another iteration writes it")
            if run.seen.setdefault(key, run.at) != run.at:
                run.seen[key] = SEVERAL
        return memory[place]

    def write(self, memory: Memory, place: Any, name: str) -> Any:
        key = (id(memory), place)
        for run in self.runs:
            if run.written.setdefault(key, run.at) != run.at:
                self.races.append(f"{name}[{place}] is written by two iterations")
            if run.seen.get(key, run.at) != run.at:
                self.races.append(f"{name}[{place}] is written where another iteration reads it")
        return place


class Program:
    """A kernel, for sizes, as a Python function of the memories of its inputs."""

    def __init__(
        self, kernel: Kernel, symbols: Mapping[str, int], algebra: Algebra, watch: bool = False
    ) -> None:
        self.kernel, self.symbols, self.algebra = kernel, symbols, algebra
        loops = (s for s in walk_statements(kernel.body) if isinstance(s, For))
        self.watching = watch and any(map(_is_concurrent, loops))
        self.names: dict[Any, str] = {}
        self.values: dict[str, Any] = {}  # what the source refers to by name
        self.lines: list[str] = []
        self.depth = 1
        self.lanes: tuple[str, str] | None = None  # the list of active lanes, the lane's variable
        self.function = self.compile()

    def __call__(self, inputs: Sequence[Memory]) -> list[Memory]:
        """The memories of the outputs; OutsideError where a subscript is outside. The races are
        those of the last call."""
        self.watch = Watch()
        try:
            with np.errstate(all="ignore"):
                return self.function([dict(m) for m in inputs], self.watch)
        except KeyError as error:
            raise OutsideError(f"a read at {error}") from error

    def compile(self) -> Callable[..., list[Memory]]:
        inputs = ", ".join(self.name(b, "b") for b in self.kernel.inputs)
        self.emit(f"[{inputs}] = inputs")
        for b in (*self.kernel.outputs, *self.kernel.scratch):
            self.allocate(b)
        self.block(self.kernel.body)
        for b in self.kernel.params:
            self.check(b)
        outputs = ", ".join(self.name(b, "b") for b in self.kernel.outputs)
        self.emit(f"return [{outputs}]")
        self.source = "\n".join(["def run(inputs, W):", *self.lines])
        scope = dict(self.values)
        exec(compile(self.source, "<loops>", "exec"), scope)
        return scope["run"]

    # ---------------------------------------------------------- names

    def name(self, item: Any, letter: str) -> str:
        return self.names.setdefault(item, f"{letter}{len(self.names)}")

    def value_name(self, value: Any) -> str:
        name = f"k{len(self.values)}"
        self.values[name] = value
        return name

    def function_name(self, key: tuple[Any, ...], made: Callable[[], Any]) -> str:
        if key not in self.names:
            self.names[key] = self.value_name(made())
        return self.names[key]

    # ---------------------------------------------------------- statements

    def emit(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def block(self, block: Block) -> None:
        before = len(self.lines)
        for stmt in block:
            self.statement(stmt)
        for stmt in block:
            if isinstance(stmt, Alloc):
                self.check(stmt.buffer)
        if len(self.lines) == before:
            self.emit("pass")

    def inner(self, head: str, block: Block) -> None:
        self.emit(head)
        self.depth += 1
        self.block(block)
        self.depth -= 1

    def statement(self, s: Stmt) -> None:
        if isinstance(s, For):
            self.loop(s)
        elif isinstance(s, If):
            self.conditional(s)
        elif isinstance(s, Alloc):
            assert self.lanes is None, "lanes have no memory of their own"
            self.allocate(s.buffer)
        elif isinstance(s, (Barrier, Prefetch)):
            pass  # one after the other, nobody has to wait
        elif isinstance(s, Call):
            for inner in expand_call(s):
                self.statement(inner)
        else:
            assert isinstance(s, (Store, Accumulate))
            self.write(s)

    def allocate(self, buffer: Buffer) -> None:
        shape = [evaluate_dim(d, self.symbols) for d in buffer.shape]
        fill = self.algebra.undefined(buffer.dtype)
        template = dict.fromkeys(places(shape), fill)
        made = f"{self.value_name(template)}.copy()"
        self.emit(f"{self.name(buffer, 'b')} = " + (f"W.made({made})" if self.watching else made))

    def check(self, buffer: Buffer) -> None:
        """A store outside of a buffer makes it larger."""
        shape = [evaluate_dim(d, self.symbols) for d in buffer.shape]
        outside = self.function_name(("outside",), lambda: OutsideError)
        name = self.name(buffer, "b")
        self.emit(f"if len({name}) != {int(np.prod(shape, dtype=np.int64))}:")
        self.emit(f"{INDENT}raise {outside}('a write to {buffer.name}')")

    def loop(self, s: For) -> None:
        extent = self.index(as_expr(s.extent))
        var = self.name(s.var, "v")
        if self.lanes is not None:
            lanes, lane = self.lanes
            assert s.kind in (LoopKind.SERIAL, LoopKind.UNROLL), "a loop in a vector loop"
            self.emit(f"{lane} = {lanes}[0]")
            self.emit(f"[{var}_n] = {{{extent} for {lane} in {lanes}}}")  # lanes run in step
            self.inner(f"for {var} in range({var}_n):", s.body)
        elif s.kind is LoopKind.VECTORIZE:
            self.emit(f"{var}_lanes = list(range({extent}))")
            self.lanes = (f"{var}_lanes", var)
            self.inner(f"if {var}_lanes:", s.body)
            self.lanes = None
        elif self.watching and _is_concurrent(s):
            self.inner(f"for {var} in W.iterations({extent}):", s.body)
        else:
            self.inner(f"for {var} in range({extent}):", s.body)

    def conditional(self, s: If) -> None:
        if self.lanes is None:
            self.inner(f"if {self.condition(s.cond)}:", s.body)
            if s.orelse:
                self.inner("else:", s.orelse)
            return
        lanes, lane = self.lanes
        number = len(self.lines)
        yes, no = f"yes{number}", f"no{number}"
        self.emit(f"{yes} = []; {no} = []")
        self.emit(f"for {lane} in {lanes}: ({yes} if {self.condition(s.cond)} else {no})"
                  f".append({lane})")  # fmt: skip
        for active, body in ((yes, s.body), (no, s.orelse)):
            if body:
                self.lanes = (active, lane)
                self.inner(f"if {active}:", body)
        self.lanes = (lanes, lane)

    def write(self, s: Store | Accumulate) -> None:
        buffer, place = self.name(s.buffer, "b"), self.place(s.indices)
        value = self.value(s.value)
        if self.lanes is not None:
            lanes, lane = self.lanes
            self.emit(f"w = [({place}, {value}) for {lane} in {lanes}]")
            self.emit("for p, x in w:")
            self.depth += 1
            place, value = "p", "x"
        if self.watching:
            self.emit(f"q = W.write({buffer}, {place}, {s.buffer.name!r})")
            place = "q"
        if isinstance(s, Accumulate):
            if place not in ("p", "q"):
                self.emit(f"p = {place}")
                place = "p"
            value = self.combined(s.op, s.buffer.dtype, f"{buffer}[{place}]", value)
        self.emit(f"{buffer}[{place}] = {value}")
        self.depth -= self.lanes is not None

    def combined(self, op: BinaryOp, dtype: DType, old: str, value: str) -> str:
        sign = self.algebra.infix(op, dtype)
        if sign is not None:
            return f"{old} {sign} {value}"
        made = partial(self.algebra.accumulate, op, dtype)
        return f"{self.function_name(('accumulate', op, dtype), made)}({old}, {value})"

    # ---------------------------------------------------------- expressions

    def place(self, indices: Sequence[Expr]) -> str:
        """The key of an element."""
        parts = [self.index(i) for i in indices]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def index(self, e: Expr) -> str:
        """A number of type index, as Python."""
        if isinstance(e, Const):
            return repr(int(e.value))
        if isinstance(e, Var) and e.dtype == index:
            return "0" if e == WORKER else self.name(e, "v")
        if isinstance(e, Symbol):
            return str(self.symbols[e.name])
        if isinstance(e, Select):
            return f"({self.index(e.a)} if {self.condition(e.cond)} else {self.index(e.b)})"
        if isinstance(e, Binary) and e.op in _INDEX:
            return _INDEX[e.op].format(self.index(e.a), self.index(e.b))
        by = e.b.value if isinstance(e, Binary) and isinstance(e.b, Const) else 0
        if isinstance(e, Binary) and e.op in _DIVIDE and by > 0:
            return _DIVIDE[e.op].format(self.index(e.a), by)
        return f"int({self.algebra.plain.format(self.value(e, whole=True))})"

    def condition(self, e: Expr) -> str:
        """A truth, as Python."""
        if isinstance(e, Const):
            return repr(bool(e.value))
        if isinstance(e, Compare) and e.a.dtype == index:
            return f"({self.index(e.a)} {e.op.value} {self.index(e.b)})"
        if isinstance(e, Unary) and e.op is UnaryOp.NOT:
            return f"(not {self.condition(e.a)})"
        if isinstance(e, Binary) and e.op in (BinaryOp.AND, BinaryOp.OR):
            sign = "&" if e.op is BinaryOp.AND else "|"
            return f"({self.condition(e.a)} {sign} {self.condition(e.b)})"
        return f"bool({self.algebra.plain.format(self.value(e))})"

    def value(self, e: Expr, *, whole: bool = False) -> str:
        """A value of the algebra. Index arithmetic without reads is done on Python's numbers,
        unless the operator is wanted as a whole."""
        a = self.algebra
        if isinstance(e, Const):
            return self.function_name(
                ("const", repr(e.value), e.dtype), lambda: a.const(e.value, e.dtype)
            )
        if e.dtype == index and not whole and not any(isinstance(x, Load) for x in e.walk()):
            made = self.function_name(("index",), lambda: lambda n: a.const(n, index))
            return f"{made}({self.index(e)})"
        if isinstance(e, Load):
            buffer, place = self.name(e.buffer, "b"), self.place(e.indices)
            read = f"W.read({buffer}, {place}, {e.buffer.name!r})"
            return read if self.watching else f"{buffer}[{place}]"
        if isinstance(e, Select):
            return f"({self.value(e.a)} if {self.condition(e.cond)} else {self.value(e.b)})"
        if isinstance(e, Binary):
            sign = a.infix(e.op, e.dtype)
            if sign is not None:
                return f"({self.value(e.a)} {sign} {self.value(e.b)})"
        name = self.function_name(*self.operator(e))
        operands = [x for x in e.children() if isinstance(x, Expr)]
        return f"{name}({', '.join(map(self.value, operands))})"

    def operator(self, e: Expr) -> tuple[tuple[Any, ...], Callable[[], Any]]:
        """A key for an operator, and how to make its function."""
        a = self.algebra
        if isinstance(e, Unary):
            return ("unary", e.op, e.a.dtype), lambda: a.unary(e.op, e.a.dtype)
        if isinstance(e, Binary):
            return ("binary", e.op, e.dtype), lambda: a.binary(e.op, e.dtype)
        if isinstance(e, Compare):
            return ("compare", e.op, e.a.dtype), lambda: a.compare(e.op)
        if isinstance(e, Cast):
            return ("cast", e.dtype), lambda: a.cast(e.dtype)
        assert isinstance(e, Bitcast), f"{type(e).__name__} is no operator"
        return ("bitcast", e.dtype), lambda: a.bitcast(e.dtype)


def _is_concurrent(s: For) -> bool:
    """Whether workers run its iterations at the same time."""
    return s.kind is LoopKind.PARALLEL or s.axis is not None


_INDEX = {
    BinaryOp.ADD: "({} + {})",
    BinaryOp.SUB: "({} - {})",
    BinaryOp.MUL: "({} * {})",
    BinaryOp.MIN: "min({}, {})",
    BinaryOp.MAX: "max({}, {})",
}
_DIVIDE = {BinaryOp.FLOORDIV: "({} // {})", BinaryOp.MOD: "({} % {})"}  # by a positive constant


def places(shape: Sequence[int]) -> list[Any]:
    """The keys of all elements, row by row."""
    if len(shape) == 1:
        return list(range(shape[0]))
    return list(itertools.product(*map(range, shape)))


def to_memory(array: np.ndarray) -> Memory:
    return dict(zip(places(array.shape), array.reshape(-1), strict=True))


def to_array(memory: Memory, shape: Sequence[int], dtype: Any) -> np.ndarray:
    found = np.empty(int(np.prod(shape, dtype=np.int64)), dtype)
    for i, value in enumerate(memory.values()):
        found[i] = value
    return found.reshape(shape)


def fast_interpret(
    kernel: Kernel, inputs: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The kernel's outputs for these inputs."""
    symbols = symbols or {}
    found = Program(kernel, symbols, Numbers())([to_memory(a) for a in inputs])
    shapes = [[evaluate_dim(d, symbols) for d in b.shape] for b in kernel.outputs]
    return [
        to_array(m, n, b.dtype.numpy) for m, n, b in zip(found, shapes, kernel.outputs, strict=True)
    ]
