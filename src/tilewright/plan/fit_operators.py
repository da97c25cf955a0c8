"""Values written with the operators that a chip's element-wise instructions have.

    y: i8 = max(min(x, 96), 0)    ->   cast(i8, max(min(cast(i32, x), 96), 0))     rows are of i32
    a - b                         ->   a + b * -1                                  no subtraction
    a >> 16                       ->   a >> 15 >> 1                      shifts by 15 at the most
    a + 65525                     ->   a + 32767 + 32758                 numbers of 16 bits
    a * 1365 + 136843             ->   (a + 100) * 1365 + 343
    abs(a)                        ->   max(a, a * -1)

Each gives the same, to the bit: of integers that are cut off, of floats as multiplying by -1 is
exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tilewright.base.dtype import DType
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    UnaryOp,
    binary,
    cast,
    const,
)
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Accumulate,
    For,
    Kernel,
    Stmt,
    Write,
    loads,
    map_block,
    map_exprs,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, variables
from tilewright.plan.element_writes import write_of
from tilewright.schedule.primitives.padding import folded
from tilewright.target.target import Target

KEEP_RANGE = (BinaryOp.MIN, BinaryOp.MAX)  # results are one of the operands
PARTS = 4  # at most, of a number that is added
WRAP = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)  # the same once cut off, whatever the width


@dataclass(frozen=True)
class RowOperators:
    """What a target's instructions compute on rows of its own memories, by how much they shift to
    the right at most, and the numbers that they add."""

    types: frozenset[DType]
    operators: frozenset[object]
    shift: int
    addends: range


def row_instructions(target: Target) -> list[Instruction]:
    """The target's element-wise instructions whose operands all lie in memories of its own, in rows
    along the same axis: a transposition has none."""
    return [
        i
        for i in target.instructions
        if (write := write_of(i)) is not None
        and i.operands
        and all(target.memory(b.memory).size is not None for b in i.operands)
        and _keeps_order(write)
    ]


def _keeps_order(write: Write) -> bool:
    """Whether axes of what is read follow each other as in what is written."""
    order = [v for i in write.indices for v in variables(i)]
    reads = [[v for i in x.indices for v in variables(i)] for x in loads(write)]
    return all(sorted(r, key=order.index) == r for r in reads)


def row_size(instruction: Instruction) -> int:
    """How many elements a row of an instruction has."""
    loops = (x.extent for x in walk_statements(instruction.body) if isinstance(x, For))
    return math.prod(n for n in loops if isinstance(n, int))


def row_operators(target: Target) -> RowOperators:
    """The types and operators of those instructions."""
    types: set[DType] = set()
    operators: set[object] = set()
    for instruction in row_instructions(target):
        write = write_of(instruction)
        assert write is not None
        types |= {b.dtype for b in instruction.operands}
        operators |= {x.op for x in write.value.walk() if isinstance(x, (Binary, Unary))}
        operators |= {write.op} if isinstance(write, Accumulate) else set()
    shifts, addends = (list(_numbers(target, op)) for op in (BinaryOp.SHR, BinaryOp.ADD))
    return RowOperators(
        frozenset(types),
        frozenset(operators),
        max((n.stop - 1 for n in shifts), default=0),
        max(addends, key=len, default=range(0)),
    )


def _numbers(target: Target, op: BinaryOp) -> Iterator[range]:
    """The numbers by which an operator's right operand is given to each of those instructions."""
    for instruction in row_instructions(target):
        write = write_of(instruction)
        assert write is not None
        found = [x for x in write.value.walk() if isinstance(x, Binary) and x.op is op]
        given = [x.b for x in found] + [write.value] * (_operator(write) is op)
        for number in (x for x in given if not list(loads(x))):
            parts = set(number.walk())
            fields = (f for f in instruction.fields if f.symbol in parts)
            yield from (range(f.low, f.high + 1, f.multiple) for f in fields)


def _operator(write: Write) -> BinaryOp | None:
    return write.op if isinstance(write, Accumulate) else None


def fit_value(value: Expr, rows: RowOperators) -> Expr:
    """A stored value with these operators, in these types, as far as it can be."""
    value = rewrite(rewrite(value, folded), lambda e: folded(_replaced(e, rows.operators)))
    if value.dtype in rows.types or not value.dtype.is_integer:
        return value
    wider = [t for t in rows.types if t.is_signed and t.is_integer and t.bits > value.dtype.bits]
    if not wider or (isinstance(value, Cast) and value.a.dtype in rows.types):
        return value
    found = widened(value, min(wider, key=lambda t: t.bits))
    return value if found is None else Cast(value.dtype, found[0])


def with_small_numbers(kernel: Kernel, target: Target) -> Kernel:
    """A kernel that shifts by no more, and adds no more, than the target's instructions do at
    once."""
    rows = row_operators(target)

    def smaller(e: Expr) -> Expr:
        if not (isinstance(e, Binary) and isinstance(e.b, Const) and e.dtype.is_integer):
            return e
        number = int(e.b.value)
        inside = _added_inside(e, number, rows)
        if inside is not None:
            return inside
        part = _first_part(e.op, number, rows, e.dtype)
        if part is None:
            return e
        first = binary(e.op, e.a, const(part, e.dtype))
        return smaller(binary(e.op, first, const(number - part, e.dtype)))

    def visit(stmt: Stmt) -> Stmt:
        found = map_exprs(stmt, lambda e: rewrite(e, smaller))
        return map_inner_blocks(found, lambda b: map_block(b, visit))

    return kernel.with_(body=map_block(kernel.body, visit))


def _added_inside(e: Binary, number: int, rows: RowOperators) -> Expr | None:
    """What adds most of a number that no instruction takes to what is multiplied before."""
    product = e.a
    if not (
        e.op is BinaryOp.ADD
        and rows.addends
        and number not in rows.addends
        and isinstance(product, Binary)
        and product.op is BinaryOp.MUL
        and isinstance(product.b, Const)
        and product.b.value
    ):
        return None
    inner, rest = divmod(number, int(product.b.value))
    if inner not in rows.addends or rest not in rows.addends:
        return None
    total = (product.a + const(inner, e.dtype)) * product.b
    return total + const(rest, e.dtype) if rest else total


def _first_part(op: BinaryOp, number: int, rows: RowOperators, dtype: DType) -> int | None:
    """What is shifted by or added first of a number that no instruction takes whole; None where one
    does, or where it would be too many parts."""
    if op is BinaryOp.SHR and 0 < rows.shift < number < dtype.bits:
        return rows.shift
    if op is BinaryOp.ADD and rows.addends and number not in rows.addends:
        most = rows.addends[-1] if number > 0 else rows.addends[0]
        if most and 0 < number // most < PARTS:
            return most
    return None


def _replaced(e: Expr, operators: Collection[object]) -> Expr:
    has_product = BinaryOp.MUL in operators and e.dtype.is_signed
    if isinstance(e, Binary) and e.op is BinaryOp.SUB and e.op not in operators:
        if BinaryOp.ADD not in operators:
            return e
        if isinstance(e.b, Const) and e.b.value != e.dtype.min:
            return e.a + const(-e.b.value, e.dtype)
        return e.a + e.b * const(-1, e.dtype) if has_product else e
    if isinstance(e, Unary) and e.op not in operators and has_product:
        negative = e.a * const(-1, e.dtype)
        if e.op is UnaryOp.NEG:
            return negative
        if e.op is UnaryOp.ABS and BinaryOp.MAX in operators:
            return binary(BinaryOp.MAX, e.a, negative)
    return e


def widened(e: Expr, dtype: DType) -> tuple[Expr, bool] | None:
    """The value in a wider type, the same once it is cut off, and whether it is the same before;
    None where it might not be."""
    if isinstance(e, Const):
        return const(e.value, dtype), True
    if isinstance(e, Load):
        return cast(dtype, e), True
    if isinstance(e, Cast):
        return (cast(dtype, e), True) if isinstance(e.a, Load) else None
    if not isinstance(e, Binary):
        return None
    a, b = widened(e.a, dtype), widened(e.b, dtype)
    if a is None or b is None:
        return None
    exact = a[1] and b[1]
    if e.op in WRAP:
        return binary(e.op, a[0], b[0]), False
    if e.op is BinaryOp.SHR and exact and isinstance(e.b, Const) and 0 <= e.b.value < e.dtype.bits:
        return binary(e.op, a[0], b[0]), True
    return (binary(e.op, a[0], b[0]), True) if e.op in KEEP_RANGE and exact else None
