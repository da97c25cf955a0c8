"""What stands beside an instruction's meaning: cost(…), limit(…) and distance(…), read from its
source. Each function takes the reader of the instruction, for values and for errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.base.errors import TargetError
from tilewright.ir.expr import Buffer, Dim, Expr, Load, Var
from tilewright.ir.instruction import COST_TERMS, Cost, MicroOps
from tilewright.ir.loop import Block, buffers_written
from tilewright.ir.python.source import MISSING
from tilewright.ir.python.stmt import KernelStmtReader
from tilewright.ir.python.words import Word
from tilewright.target.iterations import MOST_APART, find_nests

cost = Word("cost", "cost(setup=16, busy=rows, latency=8, bytes=rows * 16)")
limit = Word("limit", "limit(rows * columns <= 4096)")
distance = Word("distance", "distance(c=3)")

EXAMPLE = 'bytes={"dram": 64, "spad": 16}'


def says(stmt: ast.stmt, word: Word) -> bool:
    """Whether a statement is one of a word: cost(…), limit(…)."""
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Name)
        and stmt.value.func.id == word.name
    )


def _call(stmt: ast.stmt) -> ast.Call:
    assert isinstance(stmt, ast.Expr)
    assert isinstance(stmt.value, ast.Call)
    return stmt.value


def _named(
    r: KernelStmtReader, stmts: Sequence[ast.stmt], word: Word
) -> dict[str, tuple[ast.keyword, ast.expr]]:
    """What the statements of a word say, by name: each once."""
    found: dict[str, tuple[ast.keyword, ast.expr]] = {}
    for call in map(_call, stmts):
        for node in call.args:
            raise r.refuse(node, f"{ast.unparse(node)} is said of nothing", word.form)
        if not call.keywords:
            raise r.refuse(call, f"{word.name}() says nothing", f"{word.form}, or leave it out")
        for keyword in call.keywords:
            if keyword.arg is None:
                what = f"{ast.unparse(keyword.value)} is no name and value"
                raise r.refuse(keyword, what, f"write it out: {word.form}")
            if keyword.arg in found:
                what = f"{keyword.arg} is said twice"
                raise r.refuse(keyword, what, f"say it once: {word.form}")
            found[keyword.arg] = keyword, keyword.value
    return found


def read_limits(r: KernelStmtReader, stmts: Sequence[ast.stmt]) -> Iterator[Expr]:
    """The conditions of all `limit` statements: on fields, and on nothing else."""
    for call in map(_call, stmts):
        r.no_keywords(call, limit.form)
        for node in r.arguments(call, limit.form, 1, len(call.args)):
            condition = r.condition(node)
            if isinstance(condition, bool):
                always = "always" if condition else "never"
                raise r.refuse(node, f"this limit {always} holds", "a condition on fields")
            if any(isinstance(x, (Load, Var)) for x in condition.walk()):
                what = f"the limit {condition} is not about fields alone"
                raise r.refuse(node, what, "it must be known before the instruction runs")
            yield condition


def read_cost(r: KernelStmtReader, stmts: Sequence[ast.stmt]) -> Cost:
    """The terms of all `cost` statements."""
    terms: dict[str, Any] = {}
    for name, (keyword, value) in _named(r, stmts, cost).items():
        if name not in COST_TERMS:
            hint = "cost(" + ", ".join(f"{t}=…" for t in COST_TERMS) + ")"
            raise r.refuse(keyword, f"{name} is no term of a cost", hint)
        if name == "bytes" and isinstance(value, ast.Dict):
            terms["through"] = tuple(_through(r, value).items())
        else:
            terms[name] = r.dim(value)
    if "forward" in terms and "exposed" in terms:
        raise r.refuse(
            stmts[-1], "a result is forwarded and exposed",
            "forward=… if the chip makes others wait for it, exposed=… if the compiler does",
        )  # fmt: skip
    return Cost(**terms)


def _through(r: KernelStmtReader, node: ast.Dict) -> dict[str, Dim]:
    """Bytes by memory: {dram: 64, spad: 16}."""
    found: dict[str, Dim] = {}
    if not node.keys:
        raise r.refuse(node, "bytes of no memory", EXAMPLE)
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise r.refuse(value, f"{ast.unparse(value)} is no memory and bytes", EXAMPLE)
        name = key.value if isinstance(key, ast.Constant) else r.captured(key)
        if not isinstance(name, str):
            unknown = name is MISSING and isinstance(key, ast.Name)
            which = "is the name of nothing here" if unknown else "is no memory's name"
            raise r.refuse(key, f"{ast.unparse(key)} {which}", EXAMPLE)
        if name in found:
            raise r.refuse(key, f"bytes of {name!r} are said twice", EXAMPLE)
        found[name] = r.dim(value)
    return found


def read_distances(
    r: KernelStmtReader,
    stmts: Sequence[ast.stmt],
    body: Block,
    operands: Sequence[Buffer],
    listed: MicroOps | None,
) -> Iterator[tuple[str, int]]:
    """The operands of all `distance` statements, which are written, in loops that can be judged."""
    written = {b.name for b in buffers_written(body)}
    by_name = {b.name: b for b in operands}
    axes = dict(listed.axes) if listed is not None else {}
    for name, (keyword, value) in _named(r, stmts, distance).items():
        if name not in written:
            hint = f"{r.function.name} writes {', '.join(sorted(written)) or 'nothing'}"
            raise r.refuse(keyword, f"{name} is no operand that is written", hint)
        n = r.value(value)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            hint = "a number of iterations: " + distance.form
            raise r.refuse(keyword, f"{ast.unparse(value)} is no distance", hint)
        if n > MOST_APART:
            hint = f"distances from 1 to {MOST_APART:,} are judged"
            raise r.refuse(keyword, f"a distance of {n:,} iterations", hint)
        try:
            find_nests(body, by_name[name], axes.get(name))
        except TargetError as error:
            raise r.refuse(keyword, error.what, error.hint) from None
        yield name, n
