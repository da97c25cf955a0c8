"""Loop programs: what every kernel is, from the first loops to the last step before code.

    stmt = For(var, extent, body, kind) | If(cond, body, orelse) | Alloc(buffer)
         | Store(buffer, indices, value) | Accumulate(buffer, indices, op, value)
         | Call(instruction, regions, fields) | Barrier(axis) | Prefetch(buffer, indices, level)

Loops count from 0 to extent - 1. A block is a tuple of statements; an allocation lives from its
`Alloc` to the end of its block, and starts undefined. `Accumulate` combines with an associative,
commutative operator: the order of a reduction may be changed, and nothing else may. Bound loops and
barriers are explained in docs/semantics.md ("Workers"). A `Prefetch` and a store that is
`nontemporal` are hints: they change how fast a program is, not what it computes. The text form is
Python syntax (ir/text/loop.py parses it back).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.base.identifiers import identifier, quote
from tilewright.base.node import Node, node
from tilewright.ir.expr import (
    DRAM,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Symbol,
    Var,
    as_dim,
    format_type,
)
from tilewright.ir.instruction import Instruction, Region
from tilewright.ir.shared_parts import name_parts

# The number of the worker that runs an iteration of a parallel loop; 0 elsewhere. Bound everywhere.
WORKER = Var("worker")


class LoopKind(enum.Enum):
    """How a loop's iterations run."""

    SERIAL = "range"
    PARALLEL = "parallel"  # by workers, in any order, at the same time
    VECTORIZE = "vectorize"  # as the lanes of vector instructions
    UNROLL = "unroll"  # as copies of the body


@dataclass(frozen=True)
class Bound:
    """The kind of a loop whose iterations are the workers of an axis of the target: worker i runs
    iteration i of every loop bound to the axis, and goes on without waiting for the others."""

    axis: str

    @property
    def value(self) -> str:
        return "bind"


@dataclass(frozen=True)
class Pieces:
    """The kind of a parallel loop whose iterations are handed out in so many pieces."""

    count: int

    @property
    def value(self) -> str:
        return "parallel"


class Stmt(Node):
    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(format_stmt(self))

    __repr__ = __str__


Block = tuple[Stmt, ...]


@node
class For(Stmt):
    var: Var
    extent: Dim
    body: Block
    kind: LoopKind | Bound | Pieces = LoopKind.SERIAL

    @property
    def axis(self) -> str | None:
        """The axis that the loop is bound to."""
        return self.kind.axis if isinstance(self.kind, Bound) else None


@node
class If(Stmt):
    cond: Expr
    body: Block
    orelse: Block = ()


@node
class Alloc(Stmt):
    buffer: Buffer


@node
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    nontemporal: bool = False  # past the caches, where whole lines are written
    mask: Expr | None = None  # the lanes that store (lanes.py); all, where there is none


@node
class Accumulate(Stmt):
    """buffer[indices] = op(buffer[indices], value)."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    op: BinaryOp
    value: Expr


@node
class Call(Stmt):
    """One instruction, on these regions, with these values of its fields."""

    instruction: Instruction
    regions: tuple[Region, ...]
    fields: tuple[Expr, ...] = ()


@node
class Barrier(Stmt):
    """No worker of the axis goes on before all of them are here."""

    axis: str


@node
class Prefetch(Stmt):
    """Brings the line of an element into a cache (1: the nearest), if there is such an element."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 1


Write = Store | Accumulate


@node
class Kernel(Node):
    """One function: reads `inputs`, writes all of `outputs`; neither overlaps any other buffer.

    Symbols that occur in shapes and extents are further parameters (`symbols(kernel)`).
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Block
    scratch: tuple[Buffer, ...] = ()  # working memory that the caller provides (lowered kernels)
    finite: tuple[str, ...] = ()  # inputs, by name, that hold neither infinities nor NaN

    @property
    def params(self) -> tuple[Buffer, ...]:
        return self.inputs + self.outputs + self.scratch

    def __str__(self) -> str:
        return format_kernel(self)

    __repr__ = __str__


# ---------------------------------------------------------------- reading programs


def walk_statements(block: Block) -> Iterator[Stmt]:
    """Every statement in program order, parents first."""
    order: list[Stmt] = []
    pending = list(block[::-1])
    while pending:
        stmt = pending.pop()
        order.append(stmt)
        if isinstance(stmt, For):
            pending += stmt.body[::-1]
        elif isinstance(stmt, If):
            pending += stmt.orelse[::-1]
            pending += stmt.body[::-1]
    return iter(order)


def sub_blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    if isinstance(stmt, For):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.body, stmt.orelse) if stmt.orelse else (stmt.body,)
    return ()


def map_block(block: Block, function: Callable[[Stmt], Stmt | Block | None]) -> Block:
    """Rebuilds a block: `function` gives one statement, several, or none (None or empty)."""
    out: list[Stmt] = []
    for stmt in block:
        new = function(stmt)
        if isinstance(new, tuple):
            out.extend(new)
        elif new is not None:
            out.append(new)
    same = len(out) == len(block) and all(a is b for a, b in zip(block, out, strict=True))
    return block if same else tuple(out)


def map_inner_blocks(stmt: Stmt, function: Callable[[Block], Block]) -> Stmt:
    """The statement with its inner blocks replaced by function(block)."""
    if isinstance(stmt, For):
        body = function(stmt.body)
        return stmt if body is stmt.body else stmt.with_(body=body)
    if isinstance(stmt, If):
        body, orelse = function(stmt.body), function(stmt.orelse)
        same = body is stmt.body and orelse is stmt.orelse
        return stmt if same else stmt.with_(body=body, orelse=orelse)
    return stmt


def map_exprs(stmt: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `function` applied to each whole expression in it, inner blocks too."""
    if isinstance(stmt, For):
        extent = as_dim(function(stmt.extent)) if isinstance(stmt.extent, Expr) else stmt.extent
        body = map_block(stmt.body, lambda s: map_exprs(s, function))
        same = extent is stmt.extent and body is stmt.body
        return stmt if same else stmt.with_(extent=extent, body=body)
    if isinstance(stmt, If):
        inner = map_inner_blocks(stmt, lambda b: map_block(b, lambda s: map_exprs(s, function)))
        cond = function(stmt.cond)
        return inner if cond is stmt.cond else inner.with_(cond=cond)
    if isinstance(stmt, Store) and stmt.mask is not None:
        return stmt.map(lambda child: function(child) if isinstance(child, Expr) else child)
    if isinstance(stmt, (Store, Accumulate)):
        indices = tuple(function(i) for i in stmt.indices)
        value = function(stmt.value)
        if value is stmt.value and all(a is b for a, b in zip(indices, stmt.indices, strict=True)):
            return stmt
        return stmt.with_(indices=indices, value=value)
    if isinstance(stmt, Prefetch):
        indices = tuple(map(function, stmt.indices))
        return stmt if indices == stmt.indices else stmt.with_(indices=indices)
    if isinstance(stmt, Call):
        regions = tuple(r.with_(indices=tuple(map(function, r.indices))) for r in stmt.regions)
        fields = tuple(map(function, stmt.fields))
        same = regions == stmt.regions and fields == stmt.fields
        return stmt if same else stmt.with_(regions=regions, fields=fields)
    return stmt


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The whole expressions of a statement itself, inner blocks left out."""
    if isinstance(stmt, For) and isinstance(stmt.extent, Expr):
        yield stmt.extent
    elif isinstance(stmt, If):
        yield stmt.cond
    elif isinstance(stmt, (Store, Accumulate)):
        yield from stmt.indices
        yield stmt.value
        if isinstance(stmt, Store) and stmt.mask is not None:
            yield stmt.mask
    elif isinstance(stmt, Prefetch):
        yield from stmt.indices
    elif isinstance(stmt, Call):
        yield from (i for r in stmt.regions for i in r.indices)
        yield from stmt.fields


def loads(root: Node) -> Iterator[Load]:
    """Every read below an expression or statement, reads inside subscripts included."""
    for item in root.walk():
        if isinstance(item, Load):
            yield item


def symbols(root: Node) -> tuple[Symbol, ...]:
    """The symbolic dimensions that occur below, by name."""
    found: set[Symbol] = set()
    seen: set[int] = set()  # expressions share parts: each is looked at once

    def visit(item: Node) -> None:
        if id(item) not in seen and not isinstance(item, Instruction):  # its own are fields
            seen.add(id(item))
            if isinstance(item, Symbol):
                found.add(item)
            for child in item.children():
                visit(child)

    visit(root)
    return tuple(sorted(found, key=lambda s: s.name))


def buffers_written(block: Block) -> set[Buffer]:
    """The buffers that stores, accumulations and instructions change."""
    found: set[Buffer] = set()
    for s in walk_statements(block):
        if isinstance(s, (Store, Accumulate)):
            found.add(s.buffer)
        elif isinstance(s, Call):
            changed = buffers_written(s.instruction.body)
            pairs = zip(s.instruction.operands, s.regions, strict=True)
            found |= {region.buffer for operand, region in pairs if operand in changed}
    return found


# ---------------------------------------------------------------- printing

INDENT = "    "


def format_buffer_type(buffer: Buffer) -> str:
    """f32[4, n], and in another memory than DRAM f32[4, n] @ "sram"."""
    where = "" if buffer.memory == DRAM else f" @ {quote(buffer.memory)}"
    return f"{format_type(buffer.dtype, buffer.shape)}{where}"


def format_parameters(buffers: Sequence[Buffer], finite: Sequence[str] = ()) -> list[str]:
    """Inputs with their types, those that are `finite` marked."""
    kinds = [(b, format_buffer_type(b)) for b in buffers]
    return [
        f"{identifier(b.name)}: {f'finite({kind})' if b.name in finite else kind}"
        for b, kind in kinds
    ]


def format_stmt(stmt: Stmt) -> list[str]:
    """The statement's lines, not indented: first those that name parts of its expressions."""
    lines: list[str] = []
    if isinstance(stmt, (Store, Accumulate)):
        mask = stmt.mask if isinstance(stmt, Store) else None
        parts, short = name_parts(stmt.value, *(() if mask is None else (mask,)))
        lines = [f"{name} = let({part})" for name, part in parts]
        if parts:
            stmt = stmt.with_(**dict(zip(("value", "mask"), short, strict=False)))
    return [*lines, *_FORMAT[type(stmt)](stmt)]


def format_block(block: Block) -> list[str]:
    lines = [INDENT + line for stmt in block for line in format_stmt(stmt)]
    return lines or [INDENT + "pass"]


def format_place(buffer: Buffer, indices: Sequence[Expr]) -> str:
    """One element, as it stands on either side of an assignment."""
    return f"{identifier(buffer.name)}[{', '.join(map(str, indices)) or '()'}]"


def _place(stmt: Write | Prefetch) -> str:
    return format_place(stmt.buffer, stmt.indices)


def _format_for(s: For) -> list[str]:
    more = "" if s.axis is None else f", {quote(s.axis)}"
    more = f", {s.kind.count}" if isinstance(s.kind, Pieces) else more
    head = f"for {identifier(s.var.name)} in {s.kind.value}({s.extent}{more}):"
    return [head, *format_block(s.body)]


def _format_if(s: If) -> list[str]:
    lines = [f"if {s.cond}:", *format_block(s.body)]
    return [*lines, "else:", *format_block(s.orelse)] if s.orelse else lines


def _format_alloc(s: Alloc) -> list[str]:
    return [f"{identifier(s.buffer.name)} = alloc({format_buffer_type(s.buffer)})"]


def _format_store(s: Store) -> list[str]:
    if s.mask is not None:
        return [f"masked({s.mask}, {_place(s)}, {s.value})"]
    return [f"nontemporal({_place(s)}, {s.value})" if s.nontemporal else f"{_place(s)} = {s.value}"]


def _format_accumulate(s: Accumulate) -> list[str]:
    if s.op is BinaryOp.ADD:
        return [f"{_place(s)} += {s.value}"]
    return [f"accumulate({identifier(s.op.value)}, {_place(s)}, {s.value})"]


def _format_call(s: Call) -> list[str]:
    fields = zip(s.instruction.fields, s.fields, strict=False)  # errors print what is wrong, too
    regions = [format_place(r.buffer, r.indices) for r in s.regions]
    arguments = [*regions, *(f"{identifier(f.name)}={value}" for f, value in fields)]
    return [f"{identifier(s.instruction.name)}({', '.join(arguments)})"]


_FORMAT: dict[type, Callable[..., list[str]]] = {
    Call: _format_call,
    For: _format_for,
    If: _format_if,
    Alloc: _format_alloc,
    Store: _format_store,
    Accumulate: _format_accumulate,
    Barrier: lambda s: [f"barrier({quote(s.axis)})"],
    Prefetch: lambda s: [f"prefetch({_place(s)}, {s.level})"],
}


def format_kernel(kernel: Kernel) -> str:
    return "\n".join([format_signature(kernel), *format_block(kernel.body)])


def format_signature(kernel: Kernel) -> str:
    """The text's first lines: parameters and symbolic dimensions."""
    outputs = [f"{identifier(b.name)}: out({format_buffer_type(b)})" for b in kernel.outputs]
    scratch = [f"{identifier(b.name)}: scratch({format_buffer_type(b)})" for b in kernel.scratch]
    inputs = format_parameters(kernel.inputs, kernel.finite)
    params = ", ".join([*inputs, *outputs, *scratch])
    head = f"def {identifier(kernel.name)}({params}):"
    return "\n".join([head, *format_symbols(symbols(kernel))])


def format_symbols(found: Sequence[Symbol]) -> list[str]:
    """One line for each symbolic dimension, with its bounds."""
    bounds = [(s, f", {s.upper}" if s.upper is not None else "") for s in found]
    return [f"{INDENT}{identifier(s.name)} = symbol({s.lower}{upper})" for s, upper in bounds]
