"""Reading the statements of a kernel's source: loops, conditions, assignments, local buffers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.dtype import DType
from tilewright.ir.expr import (
    COMBINERS,
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Unary,
    UnaryOp,
    Var,
    as_dim,
    as_expr,
    ceil_div,
    unary,
)
from tilewright.ir.kernel_expr import BINARY_OPERATORS, KernelExprReader, Value, combine
from tilewright.ir.kernel_words import LOOPS
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    LoopKind,
    Stmt,
    Store,
    Write,
    walk_statements,
)
from tilewright.ir.verify_expr import BINARY_TAKES

SHORT = 16  # nodes of an expression that is written out wherever its name stands


class KernelStmtReader(KernelExprReader):
    """Reads blocks. `nodes` gives what each statement was read from."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.taken = {WORKER.name}  # every name of the program
        self.read_only: set[Buffer] = set()
        self.nodes: dict[int, tuple[Stmt, ast.AST]] = {}  # by id; holding the statement keeps it
        self.parallel = False  # in a parallel loop
        self._rest: Sequence[ast.stmt] = ()  # of the block, behind the statement being read

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
            self._rest = body[position + 1 :]
            read = _STATEMENTS.get(type(node))
            if read is None:
                raise self.refuse(node, *_refusal(node))
            for stmt in read(self, node):
                self.nodes.setdefault(id(stmt), (stmt, node))
                out.append(stmt)
        self.scalars, self.variables, self.buffers = scope
        return tuple(out)

    def node_of(self, stmt: Stmt) -> ast.AST:
        return self.nodes[id(stmt)][1]

    def defined(self, node: ast.Name) -> str | None:
        """What a name stands for here, if anything."""
        for kind, names in (("a name", self.scalars), ("a variable", self.variables)):
            if node.id in names:
                return kind
        return "an array" if node.id in self.buffers else None

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
            return Accumulate(buffer, indices, BinaryOp.ADD, unary(UnaryOp.NEG, e.b))
        return Store(buffer, indices, e)

    def define(self, node: ast.Name, value: Value, dtype: DType | None) -> Block:
        """t = value, where t is new: another name for the value if it cannot change and is not
        work to compute again, otherwise a buffer of one element."""
        count, reads, deeper = _uses(node.id, self._rest)
        if dtype is not None:
            value = self.convert(node, value, dtype)
        if not isinstance(value, Expr) and count == 0:
            self.scalars[node.id] = value
            return ()
        e = self.convert(node, value, None)
        again = reads > 1 or deeper
        if count == 0 and self._is_steady(e) and (_is_short(e) or not again):
            self.scalars[node.id] = e
            return ()
        buffer = Buffer(self.fresh(node.id), e.dtype, ())
        self.variables[node.id] = buffer
        return Alloc(buffer), Store(buffer, (), e)

    def _is_steady(self, e: Expr) -> bool:
        return all(x.buffer in self.read_only for x in e.walk() if isinstance(x, Load))


def _is_short(e: Expr) -> bool:
    """Few operations, none of them dear."""
    nodes = [x for x in e.walk() if isinstance(x, Expr)]
    dear = (BinaryOp.DIV, BinaryOp.POW, BinaryOp.ATAN2, BinaryOp.REM)
    plain = (UnaryOp.NEG, UnaryOp.NOT, UnaryOp.ABS)
    return len(nodes) <= SHORT and not any(
        (isinstance(x, Unary) and x.op not in plain) or (isinstance(x, Binary) and x.op in dear)
        for x in nodes
    )


def _uses(name: str, rest: Sequence[ast.stmt]) -> tuple[int, int, bool]:
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


# ---------------------------------------------------------------- loops

_FORMS = {
    "range": "for i in range(n)",
    "parallel": "for i in parallel(n)",
    "vectorize": "for i in vectorize(16)",
    "unroll": "for i in unroll(4)",
    "grid": "for i, j in grid(n, m)",
    "reduce": "for k in reduce(n)",
}
_KINDS = {kind.value: kind for kind in LoopKind}


def _read_for(r: KernelStmtReader, node: ast.For) -> Block:
    called = r.word(node.iter.func) if isinstance(node.iter, ast.Call) else None
    if called not in LOOPS:
        what = "a kernel's loops count"
        raise r.refuse(node.iter, what, "for i in " + ", ".join(f"{w}(…)" for w in LOOPS))
    if node.orelse:
        raise r.refuse(node.orelse[0], "a loop has no else", "the statements behind the loop")
    assert isinstance(node.iter, ast.Call)
    r.no_keywords(node.iter, _FORMS[called])
    targets = _targets(r, node.target)
    if called in ("grid", "reduce"):
        args = r.arguments(node.iter, _FORMS[called], len(targets), len(targets))
        ranges = [(as_expr(0), r.dim(arg), 1) for arg in args]
    else:
        if len(targets) != 1:
            raise r.refuse(node.target, f"{called} has one variable", "for i, j in grid(n, m)")
        ranges = [_range(r, node.iter, called)]
    return _nest(r, node, called, targets, ranges)


def _targets(r: KernelStmtReader, node: ast.AST) -> list[ast.Name]:
    """The loop variables; a name that is in use around stands for nothing else."""
    targets = node.elts if isinstance(node, ast.Tuple) else [node]
    names: set[str] = set()
    for target in targets:
        if not isinstance(target, ast.Name):
            raise r.refuse(target, "this is no loop variable", "a plain name")
        here = "a loop variable" if target.id in names else r.defined(target)
        if here is not None and target.id != "_":
            raise r.refuse(target, f"{target.id} is {here} already", "another name")
        names.add(target.id)
    return targets


Range = tuple[Expr, Dim, int]  # first value, number of values, step


def _range(r: KernelStmtReader, call: ast.Call, called: str) -> Range:
    """range(n), range(a, b) or range(a, b, step), as iterations from 0."""
    args = r.arguments(call, f"{called}(n) or {called}(a, b)", 1, 3)
    bounds = [r.dim(arg) for arg in args[:2]]
    step = r.value(args[2]) if len(args) == 3 else 1
    if type(step) is not int or step == 0:
        raise r.refuse(args[2], "a loop's step is a number that is not 0", "1, 2, -1, …")
    begin, end = (0, *bounds) if len(bounds) == 1 else bounds
    length = as_expr(end) - begin if step > 0 else as_expr(begin) - end
    extent = ceil_div(as_dim(length), abs(step)) if abs(step) > 1 else as_dim(length)
    if isinstance(extent, int):
        extent = max(0, extent)
    elif called in ("vectorize", "unroll"):
        what = f"{called} needs a constant number of iterations"
        raise r.refuse(call, what, "split the loop first: the inner loop's is constant")
    return as_expr(begin), extent, step


def _nest(
    r: KernelStmtReader,
    node: ast.For,
    called: str,
    targets: Sequence[ast.Name],
    ranges: Sequence[Range],
) -> Block:
    kind = _KINDS.get(called, LoopKind.SERIAL)
    if kind is LoopKind.PARALLEL and r.parallel:
        hint = "workers are shared out once: one parallel loop over all iterations"
        raise r.refuse(node, "a parallel loop stands in another one", hint)
    scalars, around = dict(r.scalars), r.parallel
    r.parallel |= kind is LoopKind.PARALLEL
    loops: list[tuple[Var, Dim]] = []
    for target, (begin, extent, step) in zip(targets, ranges, strict=True):
        var = Var(r.fresh(target.id))
        loops.append((var, extent))
        if target.id != "_":
            r.scalars[target.id] = var * step + begin
    body = r.block(node.body)
    r.scalars, r.parallel = scalars, around
    if called == "reduce":
        _check_reduction(r, body)
    if not body:
        return ()
    for var, extent in reversed(loops):
        stmt = For(var, extent, body, kind)
        r.nodes[id(stmt)] = (stmt, node)
        body = (stmt,)
    return body


def _check_reduction(r: KernelStmtReader, body: Block) -> None:
    """The iterations of a reduction may run in any order: from outside they only accumulate."""
    inside = {s.buffer for s in walk_statements(body) if isinstance(s, Alloc)}
    writes = [s for s in walk_statements(body) if isinstance(s, (Store, Accumulate))]
    outside = {w.buffer: w for w in writes if w.buffer not in inside}
    for w in writes:
        if isinstance(w, Store) and w.buffer not in inside:
            raise r.refuse(
                r.node_of(w),
                f"each iteration of reduce stores {w.buffer.name}, so their order matters",
                "accumulate (+=, max(…), …), or loop with range",
            )
    for s in walk_statements(body):
        for e in _own_expressions(s):
            for x in e.walk():
                if isinstance(x, Load) and x.buffer in outside:
                    raise r.refuse(
                        r.node_of(s),
                        f"{x.buffer.name} is read while reduce accumulates it, so the order of"
                        " iterations matters",
                        "loop with range, or read it behind the loop",
                    )


def _own_expressions(s: Stmt) -> tuple[Expr, ...]:
    if isinstance(s, (Store, Accumulate)):
        return (*s.indices, s.value)
    return (s.cond,) if isinstance(s, If) else ()


# ---------------------------------------------------------------- conditions


def _read_if(r: KernelStmtReader, node: ast.If) -> Block:
    """A condition on numbers is decided now: only the branch that it takes is read."""
    cond = r.condition(node.test)
    if isinstance(cond, bool):
        return r.block(node.body if cond else node.orelse)
    body, orelse = r.block(node.body), r.block(node.orelse)
    if not body and not orelse:
        return ()
    return (If(cond, body, orelse) if body else If(unary(UnaryOp.NOT, cond), orelse),)


# ---------------------------------------------------------------- assignments


def _read_assign(r: KernelStmtReader, node: ast.Assign) -> Block:
    if len(node.targets) > 1 or isinstance(node.targets[0], (ast.Tuple, ast.List)):
        raise r.refuse(node, "this assigns several values at once", "one assignment for each")
    (target,) = node.targets
    if isinstance(target, ast.Subscript):
        return (_write_element(r, target, r.value(node.value)),)
    name = _plain_target(r, target)
    if isinstance(node.value, ast.Call) and r.word(node.value.func) == "local":
        return _read_local(r, name, node.value)
    value = r.value(node.value)
    if name.id in r.variables:
        return (_write_variable(r, name, value),)
    _check_new(r, name)
    if not isinstance(value, Expr) and _uses(name.id, r._rest)[0]:
        what = f"{name.id} changes, and has no type"
        raise r.refuse(node, what, f"{name.id}: f32 = {ast.unparse(node.value)}")
    return r.define(name, value, None)


def _plain_target(r: KernelStmtReader, target: ast.AST) -> ast.Name:
    if isinstance(target, ast.Name):
        return target
    raise r.refuse(target, "this cannot be assigned", "an element A[i], or a plain name")


def _write_element(r: KernelStmtReader, target: ast.Subscript, value: Value) -> Write:
    return r.write(target, *r.place(target), value)


def _write_variable(r: KernelStmtReader, target: ast.Name, value: Value) -> Write:
    buffer = r.variables[target.id]
    if buffer in r.read_only:
        raise r.refuse(target, f"{target.id} is a parameter of one value", "another name")
    return r.write(target, buffer, (), value)


def _check_new(r: KernelStmtReader, name: ast.Name) -> None:
    here = r.defined(name)
    if here is not None:
        raise r.refuse(name, f"{name.id} is {here} already, and not assigned", "another name")


def _read_local(r: KernelStmtReader, name: ast.Name, call: ast.Call) -> Block:
    """t = local(f32[16]), or local(f32[16] @ "sram")"""
    form = "t = local(f32[16])"
    _check_new(r, name)
    if name.id in r.variables:
        raise r.refuse(name, f"{name.id} is a variable already", "another name")
    r.no_keywords(call, form)
    (kind,) = r.arguments(call, form, 1, 1)
    dtype, shape, memory = r.buffer_type(kind)
    for dim in shape:
        if any(isinstance(e, Var) for e in as_expr(dim).walk()):
            what = f"the size {dim} of {name.id} depends on a loop"
            raise r.refuse(kind, what, "its greatest value; allocations have one size")
    buffer = Buffer(r.fresh(name.id), dtype, shape, memory)
    r.buffers[name.id] = buffer
    return (Alloc(buffer),)


def _read_annotated(r: KernelStmtReader, node: ast.AnnAssign) -> Block:
    """t: f32 = value"""
    name = _plain_target(r, node.target)
    if isinstance(node.annotation, ast.Subscript):
        form = f"{name.id} = local({ast.unparse(node.annotation)}), and a loop that fills it"
        raise r.refuse(node, "an array is not assigned as a whole", form)
    dtype = r.dtype(node.annotation)
    if node.value is None:
        raise r.refuse(node, f"{name.id} has no value", f"{name.id}: {dtype} = …")
    here = r.defined(name)
    if here is not None:
        raise r.refuse(node, f"{name.id} is {here} already", "another name, or no type here")
    return r.define(name, r.convert(node.value, r.value(node.value), dtype), dtype)


def _read_increment(r: KernelStmtReader, node: ast.AugAssign) -> Block:
    """C[i] += v and its like: an accumulation where the operator allows that."""
    target = node.target
    if type(node.op) not in BINARY_OPERATORS:
        raise r.refuse(node, "kernels have no matrix product", "loops over its elements")
    op, plain = BINARY_OPERATORS[type(node.op)]
    if isinstance(target, ast.Subscript):
        buffer, indices = r.place(target)
    else:
        name = _plain_target(r, target)
        if name.id not in r.variables:
            if r.defined(name) is None:
                raise r.refuse(node, f"{name.id} has no value here", f"{name.id}: f32 = 0.0 before")
            _check_new(r, name)
        buffer, indices = r.variables[name.id], ()
        if buffer in r.read_only:
            raise r.refuse(target, f"{name.id} is a parameter of one value", "another name")
    value = r.value(node.value)
    if isinstance(value, Expr) and value.dtype != buffer.dtype:
        what = f"a value of {value.dtype} is combined with {buffer}"
        raise r.refuse(node, what, f"convert it: {buffer.dtype}(…)")
    if op in COMBINERS:
        r.takes(node, op.value, BINARY_TAKES[op], buffer.dtype)
        return (Accumulate(buffer, indices, op, r.convert(node, value, buffer.dtype)),)
    result = combine(r, node, op, plain, Load(buffer, indices), value)
    return (r.write(target, buffer, indices, result),)


def _read_expression(r: KernelStmtReader, node: ast.Expr) -> Block:
    first = r.function.body[0]
    if node is first and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return ()  # the docstring
    raise r.refuse(node, "this statement does nothing", "an assignment, a loop or an if")


_STATEMENTS: dict[type, Callable[[KernelStmtReader, Any], Block]] = {
    ast.For: _read_for,
    ast.If: _read_if,
    ast.Assign: _read_assign,
    ast.AnnAssign: _read_annotated,
    ast.AugAssign: _read_increment,
    ast.Expr: _read_expression,
    ast.Pass: lambda r, node: (),
}
_REFUSED: dict[str, tuple[str, str]] = {
    "While": ("a kernel has no while loops", "for i in range(n), with an `if` in its body"),
    "Break": ("a loop runs to its end", "an `if` around what must not be done any more"),
    "Continue": ("an iteration runs to its end", "an `if` around the rest of the body"),
    "Return": ("a kernel returns nothing", "write its results to a parameter: C[i, j] = …"),
    "Assert": ("a kernel cannot stop", "check the arrays before the call"),
    "Raise": ("a kernel cannot stop", "check the arrays before the call"),
    "FunctionDef": ("a kernel has no functions inside", "its statements themselves"),
    "Delete": ("nothing is deleted", "a name ends with the block that first assigns it"),
}


def _refusal(node: ast.stmt) -> tuple[str, str]:
    known = "loops, if, assignments and local(…) only"
    return _REFUSED.get(type(node).__name__, ("a kernel has no such statement", known))
