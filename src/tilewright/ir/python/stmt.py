"""Reading the statements of a kernel's source: one function for each kind of Python statement."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dims import canonical
from tilewright.ir.expr import (
    COMBINERS,
    Buffer,
    Const,
    Dim,
    Expr,
    Load,
    Symbol,
    UnaryOp,
    Var,
    as_dim,
    as_expr,
    ceil_div,
    unary,
)
from tilewright.ir.loop import Accumulate, Alloc, Block, For, If, LoopKind
from tilewright.ir.python.block import BlockReader, uses
from tilewright.ir.python.check import check_reduction
from tilewright.ir.python.expr import BINARY_OPERATORS, combine
from tilewright.ir.python.words import LOOPS
from tilewright.ir.verify.expr import BINARY_TAKES

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


def _read_for(r: BlockReader, node: ast.For) -> Block:
    called = r.word(node.iter.func) if isinstance(node.iter, ast.Call) else None
    if called not in LOOPS:
        what = "a kernel's loops count"
        raise r.refuse(node.iter, what, "write for i in " + ", ".join(f"{w}(…)" for w in LOOPS))
    if node.orelse:
        raise r.refuse(node.orelse[0], "a loop has no else", "put the statements behind the loop")
    assert isinstance(node.iter, ast.Call)
    r.no_keywords(node.iter, _FORMS[called])
    targets = _targets(r, node.target)
    if called in ("grid", "reduce"):
        args = r.arguments(node.iter, _FORMS[called], len(targets), len(targets))
        ranges = [(as_expr(0), r.dim(arg), 1) for arg in args]
    else:
        if len(targets) != 1:
            raise r.refuse(
                node.target, f"{called} has one variable", "write for i, j in grid(n, m)"
            )
        ranges = [_range(r, node.iter, called)]
    return _nest(r, node, called, targets, ranges)


def _targets(r: BlockReader, node: ast.expr) -> list[ast.Name]:
    """The loop variables; a name that is in use around stands for nothing else."""
    targets: list[ast.Name] = []
    names: set[str] = set()
    for target in node.elts if isinstance(node, ast.Tuple) else [node]:
        if not isinstance(target, ast.Name):
            raise r.refuse(target, "this is no loop variable", "a plain name")
        targets.append(target)
        if target.id == "_":  # not read
            continue
        if target.id in names:
            raise r.refuse(target, f"{target.id} is a loop variable already", "take another name")
        r.require_new(target)
        names.add(target.id)
    return targets


Range = tuple[Expr, Dim, int]  # first value, number of values, step


def _range(r: BlockReader, call: ast.Call, called: str) -> Range:
    """range(n), range(a, b) or range(a, b, step), as iterations from 0."""
    args = r.arguments(call, f"{called}(n) or {called}(a, b)", 1, 3)
    bounds = [r.dim(arg) for arg in args[:2]]
    step = r.value(args[2]) if len(args) == 3 else 1
    if type(step) is not int or step == 0:
        raise r.refuse(args[2], "a loop's step is a number that is not 0", "write 1, 2, -1, …")
    begin, end = (0, *bounds) if len(bounds) == 1 else bounds
    length = as_expr(end) - begin if step > 0 else as_expr(begin) - end
    extent = ceil_div(as_dim(length), abs(step)) if abs(step) > 1 else as_dim(length)
    if isinstance(canonical(extent), (int, Symbol)):  # otherwise as the user wrote it
        extent = canonical(extent)
    if isinstance(extent, int):
        extent = max(0, extent)
    elif called in ("vectorize", "unroll"):
        what = f"{called} needs a constant number of iterations"
        raise r.refuse(call, what, "write a loop of constant extent in another one")
    return as_expr(begin), extent, step


def _value_at(var: Var, begin: Expr, step: int) -> Expr:
    """What the user's loop variable is in the iteration counted by `var`."""
    if step < 0:
        return begin - var * -step
    negative = isinstance(begin, Const) and begin.value < 0
    return var * step - -begin if negative else var * step + begin


def _nest(
    r: BlockReader,
    node: ast.For,
    called: str,
    targets: Sequence[ast.Name],
    ranges: Sequence[Range],
) -> Block:
    kind = _KINDS.get(called, LoopKind.SERIAL)
    if kind is LoopKind.PARALLEL and r.parallel:
        hint = "workers are shared out once: one parallel loop over all iterations"
        raise r.refuse(node, "a parallel loop stands in another one", hint)
    scope = dict(r.scalars), set(r.counting), r.parallel
    r.parallel |= kind is LoopKind.PARALLEL
    loops: list[tuple[Var, Dim]] = []
    for target, (begin, extent, step) in zip(targets, ranges, strict=True):
        var = Var(r.fresh(target.id))
        loops.append((var, extent))
        if target.id != "_":
            r.scalars[target.id] = _value_at(var, begin, step)
            r.counting.add(target.id)
    body = r.block(node.body)
    r.scalars, r.counting, r.parallel = scope
    if called == "reduce":
        check_reduction(r, body)
    if not body:
        return ()
    for var, extent in reversed(loops):
        stmt = For(var, extent, body, kind)
        r.nodes[id(stmt)] = (stmt, node)
        body = (stmt,)
    return body


# ---------------------------------------------------------------- conditions


def _read_if(r: BlockReader, node: ast.If) -> Block:
    """A condition on numbers is decided now: only the branch that it takes is read."""
    cond = r.condition(node.test)
    if isinstance(cond, bool):
        return r.block(node.body if cond else node.orelse)
    body, orelse = r.block(node.body), r.block(node.orelse)
    if not body and not orelse:
        return ()
    return (If(cond, body, orelse) if body else If(unary(UnaryOp.NOT, cond), orelse),)


# ---------------------------------------------------------------- assignments


def _read_assign(r: BlockReader, node: ast.Assign) -> Block:
    if len(node.targets) > 1 or isinstance(node.targets[0], (ast.Tuple, ast.List)):
        raise r.refuse(node, "this assigns several values at once", "write one assignment for each")
    (target,) = node.targets
    if isinstance(target, ast.Subscript):
        place = r.place(target)
        return (r.write(target, *place, r.value(node.value)),)
    name = _plain_target(r, target)
    if isinstance(node.value, ast.Call) and r.word(node.value.func) == "local":
        return _read_local(r, name, node.value)
    value = r.value(node.value)
    if _is_variable(r, name):
        return (r.write(name, r.variables[name.id], (), value),)
    if not isinstance(value, Expr) and uses(name.id, r.rest)[0]:
        form = f"{name.id}: f32 = {ast.unparse(node.value)}"
        raise r.refuse(name, f"{name.id} changes, and has no type", f"give it one: {form}")
    return r.define(name, value, None)


def _plain_target(r: BlockReader, target: ast.AST) -> ast.Name:
    if isinstance(target, ast.Name):
        return target
    raise r.refuse(target, "this cannot be assigned", "assign an element A[i], or a plain name")


def _is_variable(r: BlockReader, name: ast.Name) -> bool:
    """Whether the name is a variable to assign; False for a new one. Nothing else is assigned."""
    if name.id in r.variables and r.variables[name.id] not in r.read_only:
        return True
    if name.id in r.buffers:
        raise r.refuse(
            name, f"{name.id} is an array", f"assign its elements, one by one: {name.id}[…]"
        )
    r.require_new(name)
    return False


def _read_local(r: BlockReader, name: ast.Name, call: ast.Call) -> Block:
    """t = local(f32[16]), or local(f32[16] @ "sram")"""
    form = "t = local(f32[16])"
    r.require_new(name)
    r.no_keywords(call, form)
    (kind,) = r.arguments(call, form, 1, 1)
    dtype, shape, memory = r.buffer_type(kind)
    for dim in shape:
        if any(isinstance(e, Var) for e in as_expr(dim).walk()):
            what = f"the size {dim} of {name.id} depends on a loop"
            raise r.refuse(kind, what, "take its greatest value: an allocation has one size")
    buffer = Buffer(r.fresh(name.id), dtype, shape, memory)
    r.buffers[name.id] = buffer
    return (Alloc(buffer),)


def _read_annotated(r: BlockReader, node: ast.AnnAssign) -> Block:
    """t: f32 = value"""
    name = _plain_target(r, node.target)
    r.require_new(name)
    if isinstance(node.annotation, (ast.Subscript, ast.BinOp)):
        form = f"write {name.id} = local({ast.unparse(node.annotation)}), and fill it in a loop"
        raise r.refuse(node, "an array is not assigned as a whole", form)
    dtype = r.dtype(node.annotation)
    if node.value is None:
        raise r.refuse(node, f"{name.id} has no value", f"give it one: {name.id}: {dtype} = …")
    return r.define(name, r.convert(node.value, r.value(node.value), dtype), dtype)


def _read_increment(r: BlockReader, node: ast.AugAssign) -> Block:
    """C[i] += v and its like: an accumulation where the operator allows that."""
    target = node.target
    if type(node.op) not in BINARY_OPERATORS:
        raise r.refuse(node, "kernels have no matrix product", "write loops over its elements")
    op, plain = BINARY_OPERATORS[type(node.op)]
    if isinstance(target, ast.Subscript):
        buffer, indices = r.place(target)
    else:
        name = _plain_target(r, target)
        if not _is_variable(r, name):
            raise r.refuse(
                name, f"{name.id} has no value here", f"give it one before: {name.id}: f32 = 0.0"
            )
        buffer, indices = r.variables[name.id], ()
    value = r.value(node.value)
    if isinstance(value, Expr) and value.dtype != buffer.dtype:
        what = f"a value of {value.dtype} is combined with {buffer}"
        raise r.refuse(node, what, f"convert it: {buffer.dtype}(…)")
    if op in COMBINERS:
        r.takes(node, op.value, BINARY_TAKES[op], buffer.dtype)
        return (Accumulate(buffer, indices, op, r.convert(node, value, buffer.dtype)),)
    result = combine(r, node, op, plain, Load(buffer, indices), value)
    return (r.write(target, buffer, indices, result),)


def _read_expression(r: BlockReader, node: ast.Expr) -> Block:
    first = r.function.body[0]
    if node is first and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return ()  # the docstring
    hint = "write an assignment, a loop or an `if`"
    raise r.refuse(node, "an expression by itself does nothing in a kernel", hint)


_READERS: dict[type, Callable[[Any, Any], Block]] = {
    ast.For: _read_for,
    ast.If: _read_if,
    ast.Assign: _read_assign,
    ast.AnnAssign: _read_annotated,
    ast.AugAssign: _read_increment,
    ast.Expr: _read_expression,
    ast.Pass: lambda r, node: (),
}


class KernelStmtReader(BlockReader):
    """Reads the statements of a kernel."""

    statements = _READERS
