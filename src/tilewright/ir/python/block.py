"""Reading blocks of a kernel's source: what names stand for, and what an assignment becomes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.base.dtype import DType
from tilewright.ir.expr import (
    COMBINERS,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Unary,
    UnaryOp,
    const,
    unary,
)
from tilewright.ir.loop import WORKER, Accumulate, Alloc, Block, Stmt, Store, Write
from tilewright.ir.python.expr import KernelExprReader
from tilewright.ir.python.value import Value

SHORT = 16  # nodes of an expression that is written out wherever its name stands


class BlockReader(KernelExprReader):
    """Reads blocks. `nodes` gives what each statement was read from."""

    statements: ClassVar[dict[type, Callable[[Any, Any], Block]]]  # by kind of Python statement

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self.taken = {WORKER.name}  # every name of the program
        self.read_only: set[Buffer] = set()
        self.nodes: dict[int, tuple[Stmt, ast.stmt]] = {}  # by id; holding the statement keeps it
        self.parallel = False  # in a parallel loop
        self.counting: set[str] = set()  # the names that are loop variables here
        self.rest: Sequence[ast.stmt] = ()  # of the block, behind the statement being read

    def fresh(self, name: str) -> str:
        """`name`, with a number behind it if it is taken."""
        unique, n = name, 1
        while unique in self.taken:
            unique, n = f"{name}_{n}", n + 1
        self.taken.add(unique)
        return unique

    def block(self, body: Sequence[ast.stmt]) -> Block:
        """Statements in order; the names that they define end with the block."""
        scope = dict(self.scalars), dict(self.variables), dict(self.buffers)
        out: list[Stmt] = []
        for position, node in enumerate(body):
            self.rest = body[position + 1 :]
            read = self.statements.get(type(node))
            if read is None:
                raise self.refuse(node, *_refusal(node))
            for stmt in read(self, node):
                self.nodes.setdefault(id(stmt), (stmt, node))
                out.append(stmt)
        self.scalars, self.variables, self.buffers = scope
        return tuple(out)

    def node_of(self, stmt: Stmt) -> ast.stmt:
        return self.nodes[id(stmt)][1]

    def defined(self, name: str) -> str | None:
        """What a name stands for here, if anything."""
        if name in self.counting:
            return "a loop variable"
        if name in self.variables:
            fixed = self.variables[name] in self.read_only
            return "a parameter of one value" if fixed else "a variable"
        return "an array" if name in self.buffers else "a name" if name in self.scalars else None

    def require_new(self, name: ast.Name) -> None:
        here = self.defined(name.id)
        if here is not None:
            raise self.refuse(name, f"{name.id} is {here} already", "take another name")

    # ---------------------------------------------------------- writes

    def write(self, at: ast.AST, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> Write:
        """A store; an accumulation where it combines with what the element holds."""
        if isinstance(value, Expr) and value.dtype != buffer.dtype:
            what = f"a value of {value.dtype} is stored in {buffer}"
            raise self.refuse(at, what, f"convert it: {buffer.dtype}(…)")
        e = self.convert(at, value, buffer.dtype)
        old = Load(buffer, indices)
        if isinstance(e, Binary) and e.op in COMBINERS and old in (e.a, e.b):
            return Accumulate(buffer, indices, e.op, e.b if e.a == old else e.a)
        if isinstance(e, Binary) and e.op is BinaryOp.SUB and e.a == old:
            return Accumulate(buffer, indices, BinaryOp.ADD, _negated(e.b))
        return Store(buffer, indices, e)

    def define(self, node: ast.Name, value: Value, dtype: DType | None) -> Block:
        """t = value, where t is new: another name for the value if that stays what it is and is
        not much to write out, otherwise a buffer of one element."""
        assigned, reads, deeper = uses(node.id, self.rest)
        if dtype is not None:
            value = self.convert(node, value, dtype)
        if not isinstance(value, Expr) and not assigned:
            self.scalars[node.id] = value
            return ()
        e = self.convert(node, value, None)
        again = reads > 1 or deeper
        if not assigned and self._is_steady(e) and (not again or _is_short(e, deeper)):
            self.scalars[node.id] = e
            return ()
        buffer = Buffer(self.fresh(node.id), e.dtype, ())
        self.variables[node.id] = buffer
        return Alloc(buffer), Store(buffer, (), e)

    def _is_steady(self, e: Expr) -> bool:
        """Whether nothing that the expression reads is written by the rest of the block."""
        written = {n for stmt in self.rest for n in written_names(stmt)}
        known = {**self.buffers, **self.variables}
        changed = {known[n] for n in written if n in known}
        return not any(x.buffer in changed for x in e.walk() if isinstance(x, Load))


def _negated(e: Expr) -> Expr:
    if isinstance(e, Const) and e.dtype.is_signed and e.value != e.dtype.min:
        return const(-e.value, e.dtype)
    return unary(UnaryOp.NEG, e)


def _is_short(e: Expr, deeper: bool) -> bool:
    """Whether an expression may be written out several times; `deeper`: in a loop inside, so that
    no operation in it should be dear."""
    nodes = [x for x in e.walk() if isinstance(x, Expr)]
    dear = (BinaryOp.DIV, BinaryOp.POW, BinaryOp.ATAN2, BinaryOp.REM)
    plain = (UnaryOp.NEG, UnaryOp.NOT, UnaryOp.ABS)
    return len(nodes) <= SHORT and not any(
        (isinstance(x, Unary) and x.op not in plain) or (isinstance(x, Binary) and x.op in dear)
        for x in (nodes if deeper else ())
    )


def written_names(node: ast.AST) -> set[str]:
    """The names that a part of the source assigns, or assigns elements of."""
    found = set()
    for n in ast.walk(node):
        target = n.value if isinstance(n, ast.Subscript) else n
        if isinstance(target, ast.Name) and isinstance(getattr(n, "ctx", None), ast.Store):
            found.add(target.id)
    return found


def uses(name: str, rest: Sequence[ast.stmt]) -> tuple[int, int, bool]:
    """How often the statements assign a name, read it, and whether one in a loop of theirs does."""
    assigned = reads = 0
    deeper = False
    todo: list[tuple[ast.AST, bool]] = [(stmt, False) for stmt in rest]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, ast.Name) and node.id == name:
            assigned += isinstance(node.ctx, ast.Store)
            reads += isinstance(node.ctx, ast.Load)
            deeper |= inside
        inside |= isinstance(node, ast.For)
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    return assigned, reads, deeper


_REFUSED: dict[str, tuple[str, str]] = {
    "While": ("a kernel has no while loops", "write for i in range(n), with an `if` in its body"),
    "Break": ("a loop runs to its end", "put an `if` around what must not be done any more"),
    "Continue": ("an iteration runs to its end", "put an `if` around the rest of the body"),
    "Return": ("a kernel returns nothing", "write results to a parameter: C[i, j] = …"),
    "Assert": ("a kernel cannot stop", "check the arrays before the call"),
    "Raise": ("a kernel cannot stop", "check the arrays before the call"),
    "FunctionDef": ("a kernel has no functions inside", "write its statements where it is called"),
    "Delete": ("nothing is deleted", "a name ends with the block that first assigns it"),
}


def _refusal(node: ast.stmt) -> tuple[str, str]:
    known = "write loops, if, assignments and local(…) arrays only"
    return _REFUSED.get(type(node).__name__, ("a kernel has no such statement", known))
