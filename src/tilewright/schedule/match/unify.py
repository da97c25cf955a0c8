"""Matching, first step: the statements of a piece of program with an instruction's, and what they
compute, up to commutativity.

Loops are only paired nest by nest; which one is which is found afterwards (assign_axes.py). What
an instruction can leave out (under a flag, or by a field's value) the program need not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.analyze.conditions import is_place
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import index
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import (
    COMMUTATIVE,
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
    Opaque,
    Select,
    Symbol,
    Var,
    const,
    select,
)
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Stmt,
    Store,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.schedule.match.binding import (
    Binding,
    MatchStage,
    NestPair,
    Obstacles,
    allocated,
    guarded_nests,
    perfect_nest,
    statements,
)
from tilewright.schedule.match.neutral import as_number, clamped, neutral_value


class Unifier:
    """One attempt; `obstacles` is why it failed."""

    def __init__(self, instruction: Instruction, simplifier: Simplifier) -> None:
        self.instruction, self.simplifier = instruction, simplifier
        self.obstacles = Obstacles()
        self._symbols = {f.symbol for f in instruction.fields}
        self._operands = set(instruction.operands)

    def structures(self, block: Block) -> Iterator[Binding]:
        """Every way to pair statements and values, whatever the loops."""
        yield from self._block(self.instruction.body, block, Binding())
        yield from self._without_parts(block)

    def makes(self, value: Expr, sums: Buffer) -> bool:
        """Whether what the instruction stores in an operand, be it where a flag says so, can be
        this value of `sums`, which it keeps to itself, whatever the loops."""
        inner = list(walk_statements(self.instruction.body))
        own = [x.buffer for x in inner if isinstance(x, Alloc)]
        stored = [x.value for x in inner if isinstance(x, Store) and x.buffer in self._operands]
        b = Binding().with_scope(own, frozenset((sums,)))
        return any(True for pattern in stored for _ in self._value(pattern, value, b))

    def _without_parts(self, block: Block) -> Iterator[Binding]:
        """Likewise, of an instruction without what a flag switches off: that no longer stands
        between two loops."""
        conditions = [x.cond for x in walk_statements(self.instruction.body) if isinstance(x, If)]
        for cond in dict.fromkeys(conditions):
            flag, when = self._flag(cond)
            off = None if flag is None else Binding().bind_field(flag, const(1 - when))
            if off is not None:
                yield from self._block(_without(self.instruction.body, cond), block, off)

    def no(self, stage: MatchStage, b: Binding, reason: str) -> None:
        self.obstacles.add(stage, b.progress, reason)

    def _differs(self, b: Binding, reason: str) -> None:
        self.no(MatchStage.VALUES, b, reason)

    # ---------------------------------------------------------- statements

    def _block(self, pattern: Block, block: Block, b: Binding) -> Iterator[Binding]:
        own = allocated(block)
        b = b.with_scope(_own(pattern), own)
        yield from self._statements(meant(pattern), statements(block), b, own)

    def _statements(
        self, pattern: Block, block: Block, b: Binding, own: frozenset[Buffer]
    ) -> Iterator[Binding]:
        """Statements one by one; `own` is what the program's block allocates."""
        if not pattern:
            if block:
                self._differs(b, f"the program does more: {_first_line(block[0])}")
            else:
                yield b
            return
        head, *rest = pattern
        if isinstance(head, If):
            yield from self._condition(head, tuple(rest), block, b, own)
            return
        if not block:
            self._differs(b, f"the instruction does more: {_first_line(head)}")
            return
        for found in self._stmt(head, block[0], b):
            yield from self._statements(tuple(rest), block[1:], found, own)
        if isinstance(head, For):
            yield from self._single_step(head, tuple(rest), block, b, own)

    def _single_step(
        self, head: For, rest: Block, block: Block, b: Binding, own: frozenset[Buffer]
    ) -> Iterator[Binding]:
        """A nest of which the program does a single step: what is in it stands in the block."""
        axes, body = perfect_nest(head)
        mine = meant(body)
        count = len(mine) if rest else len(block)
        if len(mine) < 2:
            return  # one statement is a nest without loops
        b = replace(b, nests=(*b.nests, NestPair(tuple(axes), (), ())))
        b = b.with_scope(_own(body), own)
        for found in self._statements(mine, block[:count], b, own):
            yield from self._statements(rest, block[count:], found, own)

    def _condition(
        self, head: If, rest: Block, block: Block, b: Binding, own: frozenset[Buffer]
    ) -> Iterator[Binding]:
        """A part that a flag switches: done always, never, or under the program's condition."""
        flag, when = self._flag(head.cond)
        if flag is None:
            self._differs(b, f"the instruction's condition {head.cond} is not a flag")
            return
        always, never = b.bind_field(flag, const(when)), b.bind_field(flag, const(1 - when))
        body, first = meant(head.body), block[0] if block else None
        if isinstance(first, If) and not first.orelse and not head.orelse:
            value = select(first.cond, const(when), const(1 - when))
            under = b.bind_field(flag, value)
            if under is not None:
                for found in self._statements(body, statements(first.body), under, own):
                    yield from self._statements(rest, block[1:], found, own)
        if always is not None and block:
            for found in self._statements(body, block[: len(body)], always, own):
                yield from self._statements(rest, block[len(body) :], found, own)
        if never is not None:
            yield from self._statements((*meant(head.orelse), *rest), block, never, own)

    def _stmt(self, pattern: Stmt, stmt: Stmt, b: Binding) -> Iterator[Binding]:
        if isinstance(pattern, For):
            yield from self._nest(pattern, stmt, b)
        elif type(pattern) is not type(stmt):
            what = f"{_first_line(stmt)} stands where the instruction has {_first_line(pattern)}"
            self._differs(b, what)
        elif isinstance(pattern, (Store, Accumulate)):
            assert isinstance(stmt, (Store, Accumulate))
            yield from self._write(pattern, stmt, b)

    def _nest(self, pattern: For, stmt: Stmt, b: Binding) -> Iterator[Binding]:
        axes, body = perfect_nest(pattern)
        for loops, conditions, inner in guarded_nests(stmt):
            pair = NestPair(tuple(axes), tuple(loops), tuple(conditions))
            yield from self._block(body, inner, replace(b, nests=(*b.nests, pair)))

    def _write(
        self, pattern: Store | Accumulate, stmt: Store | Accumulate, b: Binding
    ) -> Iterator[Binding]:
        if isinstance(pattern, Accumulate) and pattern.op is not getattr(stmt, "op", None):
            self._differs(b, f"the program accumulates otherwise than with {pattern.op.value}")
            return
        for found in self._element(Load(pattern.buffer, pattern.indices), stmt, b):
            yield from self._value(pattern.value, stmt.value, found)

    def _element(
        self, pattern: Load, at: Load | Store | Accumulate, b: Binding
    ) -> Iterator[Binding]:
        """The instruction's element is one of an operand or of a buffer of its own."""
        found: Binding | None = b
        if pattern.buffer not in self._operands:
            found = b.bind_local(pattern.buffer, at.buffer)
        if found is not None:
            yield found.with_element((pattern.buffer, pattern.indices, at.buffer, at.indices))
        else:
            self._differs(
                b,
                f"{self.instruction} keeps {pattern.buffer.name} to itself, and {at.buffer.name} "
                "is not allocated in the same loops (compute_at puts it there)",
            )

    # ---------------------------------------------------------- values

    def _value(self, pattern: Expr, e: Expr, b: Binding) -> Iterator[Binding]:
        if isinstance(pattern, Load) and pattern.buffer in self._operands:
            yield from self._operand(pattern, e, b)
        elif self._is_field(pattern) or (isinstance(pattern, Cast) and self._is_field(pattern.a)):
            yield from self._field(pattern, e, b)
        elif isinstance(pattern, Bitcast) and isinstance(e, Const) and pattern.dtype == e.dtype:
            kind = pattern.a.dtype  # a field has the bits of a number
            bits = int(evaluate_expr(Bitcast(kind, e), {}, {}))
            yield from self._value(pattern.a, const(bits, kind), b)
        elif isinstance(pattern, Select) and self._flag(pattern.cond)[0] is not None:
            yield from self._optional(pattern, e, b)
        elif isinstance(pattern, Select) and self._is_known(pattern.cond):
            yield from self._chosen(pattern, e, b)
        elif isinstance(pattern, Select) and is_place(pattern.cond):
            yield from self._guarded(pattern, e, b)
        elif pattern.dtype == index and e.dtype == index and not (_reads(pattern) or _reads(e)):
            yield replace(b, equal=(*b.equal, (pattern, e)))
        elif isinstance(e, Const) and pattern.dtype.is_integer and self._is_known(pattern):
            yield replace(b, equal=(*b.equal, (_as_index(pattern), const(int(e.value)))))
        else:
            yield from self._operator(pattern, e, b)

    def _operator(self, pattern: Expr, e: Expr, b: Binding) -> Iterator[Binding]:
        e = as_number(e) if isinstance(pattern, Const) else clamped(pattern, e)
        if type(pattern) is not type(e) or pattern.dtype != e.dtype or _kind(pattern) != _kind(e):
            if not isinstance(pattern, Binary) or not self._extra(pattern):
                self._differs(b, f"the program computes {e} where the instruction has {pattern}")
        elif isinstance(pattern, Const):
            if pattern == e:
                yield b
            else:
                self._differs(b, f"the instruction has the constant {pattern}, the program {e}")
        elif isinstance(pattern, Load):
            assert isinstance(e, Load)
            yield from self._element(pattern, e, b)
        else:
            yield from self._children(pattern, e, b)
        if isinstance(pattern, Binary):
            yield from self._without(pattern, e, b)

    def _is_field(self, e: Expr) -> bool:
        return isinstance(e, Symbol) and e in self._symbols

    def _is_known(self, e: Expr) -> bool:
        """Whether the fields alone decide it."""
        atoms = [x for x in e.walk() if isinstance(x, (Load, Var, Symbol))]
        return bool(atoms) and all(x in self._symbols for x in atoms)

    def _flag(self, cond: Expr) -> tuple[Symbol | None, int]:
        """(field, value) for a condition `field == value` with value 0 or 1."""
        if not isinstance(cond, Compare) or cond.op is not CompareOp.EQ:
            return None, 0
        a, b = cond.a, cond.b
        if isinstance(a, Symbol) and a in self._symbols and isinstance(b, Const):
            return (a, int(b.value)) if b.value in (0, 1) else (None, 0)
        return None, 0

    def _field(self, pattern: Expr, e: Expr, b: Binding) -> Iterator[Binding]:
        """A value that a field has, as it is or converted."""
        symbol, value = pattern, e
        if isinstance(pattern, Cast):
            symbol = pattern.a
            if isinstance(e, Const) and e.dtype == pattern.dtype and e.dtype.is_integer:
                value = const(int(e.value))
            elif isinstance(e, Cast) and e.dtype == pattern.dtype and e.a.dtype == index:
                value = e.a
            else:
                what = f"{symbol} would be {e}, which is no number that is known when it runs"
                self._differs(b, what)
                return
        assert isinstance(symbol, Symbol)
        found = b.bind_field(symbol, value)
        if found is not None:
            yield found
        else:
            self._differs(b, f"{symbol} would be {dict(b.fields)[symbol]} and {value}")

    def _operand(self, pattern: Load, e: Expr, b: Binding) -> Iterator[Binding]:
        if isinstance(e, Load):
            yield from self._element(pattern, e, b)
        elif isinstance(e, Select) and isinstance(e.a, Load) and is_place(e.cond):
            what = f"{e.a} is read under a condition, and operand {pattern.buffer.name} without"
            self._differs(b, f"{what} (pad makes room for what lies outside)")
        else:
            self._differs(b, f"operand {pattern.buffer.name} would be {e}, which is not in memory")

    def _optional(self, pattern: Select, e: Expr, b: Binding) -> Iterator[Binding]:
        """What a flag chooses: one or the other."""
        flag, when = self._flag(pattern.cond)
        assert flag is not None
        for value, part in ((when, pattern.a), (1 - when, pattern.b)):
            found = b.bind_field(flag, const(value))
            if found is not None:
                yield from self._value(part, e, found)

    def _chosen(self, pattern: Select, e: Expr, b: Binding) -> Iterator[Binding]:
        """What a condition on fields chooses: one, if they keep it, or the other."""
        cond = _as_index(pattern.cond)
        yield from self._value(pattern.a, e, b.with_limit(cond))
        yield from self._value(pattern.b, e, b.with_limit(~cond))

    def _guarded(self, pattern: Select, e: Expr, b: Binding) -> Iterator[Binding]:
        """A read under a condition: the program's condition is the same, or it needs none."""
        if isinstance(e, Select) and is_place(e.cond):
            for found in self._value(pattern.b, e.b, b.with_guard(pattern.cond, e.cond)):
                yield from self._value(pattern.a, e.a, found)
        else:
            yield from self._value(pattern.a, e, b.with_guard(pattern.cond, None))

    def _without(self, pattern: Binary, e: Expr, b: Binding) -> Iterator[Binding]:
        """What the instruction computes once an operand of an operator is chosen so that it
        changes nothing: a shift by 0, a flag that is not set."""
        for kept, extra in self._extra(pattern):
            found = self._nothing(pattern.op, extra, e, b)
            if found is not None:
                yield from self._value(kept, e, found)

    def _extra(self, pattern: Binary) -> list[tuple[Expr, Expr]]:
        """(one operand, the other) for operands that a field chooses."""
        sides = [(pattern.a, pattern.b)]
        if pattern.op in COMMUTATIVE:
            sides.append((pattern.b, pattern.a))
        return [
            (kept, extra)
            for kept, extra in sides
            if self._is_field(extra.a if isinstance(extra, Cast) else extra)
            or (isinstance(extra, Select) and self._flag(extra.cond)[0] is not None)
        ]

    def _nothing(self, op: BinaryOp, extra: Expr, e: Expr, b: Binding) -> Binding | None:
        """The right operand of `op` made so that e `op` extra is e."""
        if isinstance(extra, Select):
            flag, when = self._flag(extra.cond)
            for value, part in ((when, extra.a), (1 - when, extra.b)):
                if flag is not None and isinstance(part, Const) and _changes_nothing(op, part, e):
                    return b.bind_field(flag, const(value))
            return None
        symbol = extra.a if isinstance(extra, Cast) else extra
        assert isinstance(symbol, Symbol)
        field = self.instruction.field(symbol.name)
        neutral = neutral_value(op, e, (field.low, field.high))
        if neutral is not None and extra.dtype.is_integer and field.admits(neutral):
            return b.bind_field(symbol, const(neutral))
        what = f"the program computes {e} without {op.value}, which {symbol} cannot leave out"
        self._differs(b, f"{what}: it goes from {field.low} to {field.high}")
        return None

    def _children(self, pattern: Expr, e: Expr, b: Binding) -> Iterator[Binding]:
        ours = [c for c in pattern.children() if isinstance(c, Expr)]
        theirs = [c for c in e.children() if isinstance(c, Expr)]
        orders = [theirs]
        if isinstance(pattern, Binary) and pattern.op in COMMUTATIVE:
            orders.append(theirs[::-1])
        for order in orders:
            yield from self._all(ours, order, b)

    def _all(self, ours: Sequence[Expr], theirs: Sequence[Expr], b: Binding) -> Iterator[Binding]:
        if not ours:
            yield b
            return
        for found in self._value(ours[0], theirs[0], b):
            yield from self._all(ours[1:], theirs[1:], found)


def _as_index(e: Expr) -> Expr:
    """Arithmetic on fields without conversions, which leave their values as they are."""
    if isinstance(e, Cast):
        return _as_index(e.a)
    if isinstance(e, Const) and e.dtype.is_integer:
        return const(int(e.value))
    return e.map(lambda x: _as_index(x) if isinstance(x, Expr) else x)


def meant(pattern: Block) -> Block:
    """What an instruction's block does, without its allocations."""
    return tuple(s for s in pattern if not isinstance(s, Alloc))


def _own(pattern: Block) -> list[Buffer]:
    return [s.buffer for s in pattern if isinstance(s, Alloc)]


def _changes_nothing(op: BinaryOp, number: Const, e: Expr) -> bool:
    """Whether e `op` number is e."""
    if not e.dtype.is_integer:
        return False
    return neutral_value(op, e, (int(number.value), int(number.value))) is not None


def _kind(e: Expr) -> object:
    """What an expression does, apart from its operands."""
    return (e.name, len(e.args)) if isinstance(e, Opaque) else getattr(e, "op", None)


def _without(body: Block, cond: Expr) -> Block:
    """A meaning without what a condition guards."""

    def visit(stmt: Stmt) -> Stmt | Block | None:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return stmt.orelse if isinstance(stmt, If) and stmt.cond == cond else stmt

    return map_block(body, visit)


def _reads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in e.walk())


def _first_line(stmt: Stmt) -> str:
    return str(stmt).split("\n", 1)[0]
