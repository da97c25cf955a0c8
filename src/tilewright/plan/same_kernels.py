"""Kernels that differ in names alone, as one: what is built for one of them serves all."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.analyze.rewrite import rewrite_accesses, substitute_block
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.loop import Alloc, Block, For, Kernel, Stmt, map_block, walk_statements


def with_plain_names(kernel: Kernel) -> tuple[Kernel, dict[str, str]]:
    """A kernel with names that say nothing, and that no one else gives: p.0, p.1, … for its
    parameters. Returns it with what each of these is called in the kernel."""
    plain, names = _renamed(kernel)
    return plain, {b.name: names[b.name] for b in plain.params}


def told_in_names(text: str, kernel: Kernel) -> str:
    """What is said of a kernel with plain names, in those that the kernel has."""
    _, names = _renamed(kernel)

    def own(found: re.Match[str]) -> str:
        return names.get(f"{found[1]}.{found[2]}", found[0])

    return re.sub(r"\b([pti])(?:\.|_x2e_)(\d+)", own, text)  # as they are, or as programs have them


def _renamed(kernel: Kernel) -> tuple[Kernel, dict[str, str]]:
    """A kernel with plain names; and what its parameters, local buffers and loops with these are
    called in the kernel."""
    body: Block = kernel.body
    named: dict[Buffer, Buffer] = {}
    for k, old in enumerate(kernel.params):
        named[old] = old.with_(name=f"p.{k}")
    local = (x.buffer for x in walk_statements(body) if isinstance(x, Alloc))
    for k, old in enumerate(dict.fromkeys(local)):
        named[old] = old.with_(name=f"t.{k}")
    for old, new in named.items():
        body = rewrite_accesses(body, old, new, lambda at: at)
    loops = dict.fromkeys(x.var for x in walk_statements(body) if isinstance(x, For))
    numbered: dict[Expr, Var] = {v: Var(f"i.{k}") for k, v in enumerate(loops)}

    def renamed(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            return stmt
        return stmt.with_(var=numbered[stmt.var], body=map_block(stmt.body, renamed))

    body = map_block(substitute_block(body, numbered), renamed)
    plain = kernel.with_(
        name="kernel",
        inputs=tuple(named[b] for b in kernel.inputs),
        outputs=tuple(named[b] for b in kernel.outputs),
        finite=(),
        body=body,
    )
    names = {new.name: old.name for old, new in named.items()}
    names |= {numbered[v].name: v.name for v in loops}
    return plain, names


def with_param_names(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """A kernel whose parameters have other names."""
    named = {b: b.with_(name=names.get(b.name, b.name)) for b in kernel.params}
    body = kernel.body
    # Names may change places: first all get names that no parameter has.
    for between in (True, False):
        for k, (old, new) in enumerate(named.items()):
            free = old.with_(name=f"free?{k}")
            body = rewrite_accesses(body, *((old, free) if between else (free, new)), lambda at: at)
    return kernel.with_(
        inputs=tuple(named[b] for b in kernel.inputs),
        outputs=tuple(named[b] for b in kernel.outputs),
        body=body,
    )
