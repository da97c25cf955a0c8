"""Giving symbolic dimensions their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.errors import CompileError, did_you_mean
from tilewright.base.node import Node
from tilewright.ir.expr import (
    Binary,
    Buffer,
    Compare,
    Expr,
    Select,
    Symbol,
    Unary,
    as_dim,
    binary,
    compare,
    const,
    select,
    unary,
)
from tilewright.ir.loop import For, Kernel, symbols


def bind_symbols(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The kernel for these values of some or all of its symbols; its statements stay the same, one
    by one."""
    known = {s.name: s for s in symbols(kernel)}
    for name, value in sizes.items():
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise CompileError(f"{kernel.name} has no dimension called {name!r}", hint=hint)
        check_size(known[name], value)
    return _with(kernel, {name: const(n) for name, n in sizes.items()}) if sizes else kernel


def replace_symbol(kernel: Kernel, old: Symbol, new: Symbol) -> Kernel:
    """The kernel with a symbol that has other bounds in the place of one."""
    return _with(kernel, {old.name: new})


def _with(kernel: Kernel, values: Mapping[str, Expr]) -> Kernel:
    memo: dict[int, tuple[Node, Node]] = {}  # by id; holding the node keeps it

    def visit(n: Any) -> Any:
        if id(n) not in memo:
            memo[id(n)] = (n, _rebuild(n, visit, values))
        return memo[id(n)][1]

    found: Kernel = visit(kernel)
    return found


def check_size(symbol: Symbol, value: int) -> None:
    """CompileError if a symbol cannot have this value."""
    if type(value) is not int:
        raise CompileError(f"{symbol.name} is {value!r}, and must be an integer")
    if value < symbol.lower:
        raise CompileError(f"{symbol.name} is {value}, and must be at least {symbol.lower}")
    if symbol.upper is not None and value > symbol.upper:
        raise CompileError(f"{symbol.name} is {value}, and must be at most {symbol.upper}")


def _rebuild(n: Node, visit: Any, values: Mapping[str, Expr]) -> Node:
    if isinstance(n, Symbol):
        return values.get(n.name, n)
    new = n.map(visit)
    if new is n:
        return n
    if isinstance(new, Buffer):
        return new.with_(shape=tuple(as_dim(d) for d in new.shape))
    if isinstance(new, For):
        extent = as_dim(new.extent)
        return new.with_(extent=max(0, extent) if isinstance(extent, int) else extent)
    return _folded(new) if isinstance(new, Expr) else new


def _folded(e: Expr) -> Expr:
    """The expression again, its constants folded."""
    if isinstance(e, Unary):
        return unary(e.op, e.a)
    if isinstance(e, Binary):
        return binary(e.op, e.a, e.b)
    if isinstance(e, Compare):
        return compare(e.op, e.a, e.b)
    return select(e.cond, e.a, e.b) if isinstance(e, Select) else e
