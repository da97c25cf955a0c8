"""What a kernel computes that no instruction of a chip computes: why it has to run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.nests import without_casts
from tilewright.base.dtype import DType
from tilewright.ir.expr import Binary, BinaryOp, Expr, Load, Unary
from tilewright.ir.loop import Accumulate, Block, Kernel, Store, walk_statements
from tilewright.target.target import Target

LINEAR = {BinaryOp.ADD, BinaryOp.SUB}
WORDS = {BinaryOp.MAX: "the maximum", BinaryOp.MIN: "the minimum"}


def missing_operation(kernel: Kernel, target: Target) -> str | None:
    """A sentence that names a type in which no instruction of the target computes, an operation on
    two elements that none has, or a type of which none multiplies what was computed before; None
    where it is neither."""
    missing = missing_type(kernel, target)
    if missing is not None:
        return missing
    done = (x for i in target.instructions for x in _operations(i.body))
    pairs = {op for op, _ in done if op is not None}
    for op, _ in _operations(kernel.body):
        if op in WORDS and op not in pairs:
            return f"no instruction of {target.name} takes {WORDS[op]} of two elements"
    multiplied = {x.dtype for i in target.instructions for x in _multiplied(i.body)}
    for x in _multiplied(kernel.body):
        if not isinstance(x, Load) and _bends(x) and x.dtype not in multiplied:
            return f"no instruction of {target.name} multiplies numbers of {x.dtype}"
    return None


def _multiplied(body: Block) -> Iterator[Expr]:
    """What statements multiply, before it is converted."""
    for stmt in walk_statements(body):
        if isinstance(stmt, Accumulate) and stmt.op is BinaryOp.MUL:
            yield Load(stmt.buffer, stmt.indices)
        for e in stmt.value.walk() if isinstance(stmt, (Store, Accumulate)) else ():
            if isinstance(e, Binary) and e.op is BinaryOp.MUL:
                yield from (without_casts(x) for x in (e.a, e.b) if _reads(x))


def _bends(e: Expr) -> bool:
    """Whether a value is no sum of elements times numbers, so that a product of it is not one
    either."""
    inner = (x for x in e.walk() if isinstance(x, Binary) and x.op not in LINEAR)
    return any(x.op is not BinaryOp.MUL or (_reads(x.a) and _reads(x.b)) for x in inner)


def missing_type(kernel: Kernel, target: Target) -> str | None:
    """A sentence that names a type of floats in which no instruction of the target computes, and
    the kernel does."""
    types = {dtype for i in target.instructions for _, dtype in _operations(i.body)}
    for _, dtype in _operations(kernel.body):
        if dtype.is_float and dtype not in types:
            return f"no instruction of {target.name} computes with {dtype}"
    return None


def _operations(body: Block) -> Iterator[tuple[BinaryOp | None, DType]]:
    """What statements compute: the types of operations, and which of these are on two elements."""
    for stmt in walk_statements(body):
        if isinstance(stmt, Accumulate):
            yield stmt.op, stmt.buffer.dtype
        if isinstance(stmt, (Store, Accumulate)):
            for e in stmt.value.walk():
                if isinstance(e, Binary) and _reads(e.a) and _reads(e.b):
                    yield e.op, e.dtype
                elif isinstance(e, (Unary, Binary)):
                    yield None, e.dtype


def _reads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in e.walk())
