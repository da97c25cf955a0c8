"""A chip with one fact changed: what would be, if it were so. Descriptions are not run again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tilewright.base.node import Node
from tilewright.ir.expr import Const, Dim, Expr, as_expr
from tilewright.ir.instruction import Instruction
from tilewright.ir.substitute import rewrite
from tilewright.target.target import Target


def with_memory(target: Target, name: str, **facts: Any) -> Target:
    """With other facts of a memory: with_memory(target, "dram", latency=128)."""
    target.memory(name)  # refuses one that is not there
    memories = [replace(m, **facts) if m.name == name else m for m in target.memories]
    return replace(target, memories=tuple(memories))


def with_costs(
    target: Target, term: str, change: Callable[[Dim], Dim], names: Collection[str] | None = None
) -> Target:
    """With one term of the instructions' cost changed ("setup", "busy", "latency", "bytes"), of
    those with these names or of all."""

    def changed(i: Instruction) -> Instruction:
        if names is not None and i.name not in names:
            return i
        return i.with_(cost=i.cost.map_terms(change, term))

    return replace(target, instructions=tuple(map(changed, target.instructions)))


def with_depths(target: Target, commands: int, tokens: int | None) -> Target:
    """With queues that hold so many commands, and tokens for each other."""
    queues = tuple(replace(q, depth=commands) for q in target.queues)
    return replace(target, queues=queues, token_depth=tokens)


def half(term: Dim) -> Dim:
    """Half as much, rounded up."""
    return -(-term // 2)


def twice(term: Dim) -> Dim:
    return term * 2


def with_bursts(target: Target, before: int, after: int) -> Target:
    """With another number of bytes that a memory moves at least: the constant in the costs."""

    def changed(term: Dim) -> Dim:
        if isinstance(term, int):
            return term
        return rewrite(term, lambda e: as_expr(after) if _is(e, before) else e)

    return with_costs(target, "bytes", changed)


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def with_range(target: Target, instruction: str, name: str, high: int) -> Target:
    """With a field of an instruction that goes up to `high`."""
    found = target.instruction(instruction)
    field = found.field(name)
    symbol = field.symbol.with_(upper=None if field.symbol.upper is None else high)
    wider = field.with_(symbol=symbol, high=high)
    memo: dict[int, Any] = {}

    def visit(x: object) -> Any:
        if x is field or x == field.symbol:
            return wider if x is field else symbol
        if id(x) not in memo:
            memo[id(x)] = x.map(visit) if isinstance(x, Node) else x
        return memo[id(x)]

    changed = found.map(visit)
    instructions = [changed if i is found else i for i in target.instructions]
    return replace(target, instructions=tuple(instructions))


def with_slots(target: Target, slot: str, count: int) -> Target:
    """With so many slots of a kind in a bundle."""
    assert target.bundles is not None
    slots = tuple((name, count if name == slot else n) for name, n in target.bundles.slots)
    return replace(target, bundles=replace(target.bundles, slots=slots))
