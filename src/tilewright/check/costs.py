"""Costs and fields: whether time is there, positive, and grows with the work; what fields do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.check.problem import Problems, error, extent_fields, warning
from tilewright.ir.evaluate import Env
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.instruction import COST_TERMS, Cost, Field, Instruction
from tilewright.ir.loop import symbols
from tilewright.target.target import MOST_CYCLES, Target

SAMPLES = 17  # values of a field that are tried
TRIED = 200  # rows of them
TAKES = ("setup", "busy", "bytes")  # that keep a queue


def costs(target: Target) -> Problems:
    """Every instruction takes time, and never less than none."""
    for i in target.instructions:
        part = f"instruction {i.name}"
        if i.cost == Cost() and i.operands:
            yield warning(
                target, part, f"{i.name} says no time",
                "it is simulated as done at once: tiles are chosen, and cycles told, without it",
                "add cost(setup=…, busy=…, latency=…, bytes=…) to it",
            )  # fmt: skip
            continue
        found = dict(_terms(i))
        for name, values in found.items():
            if values.min() < 0:
                yield error(
                    target, part, f"{name} of {i.name} is {values.min()} for some of its fields",
                    "time does not run backwards", "correct the cost",
                )  # fmt: skip
            if values.max() > MOST_CYCLES:
                yield warning(
                    target, part, f"{name} of {i.name} is {values.max():,} for some of its fields",
                    f"costs up to {MOST_CYCLES:,} are simulated: such an instruction is refused",
                    "correct the cost, or the ranges of the fields",
                )  # fmt: skip
        if not _in_bundles(target, i) and i.operands and all(found[t].max() <= 0 for t in TAKES):
            yield warning(
                target, part, f"{i.name} takes 0 cycles of its queue",
                "any number of them is done at once",
                "say how long it keeps the unit: cost(busy=…), or the bytes it moves",
            )  # fmt: skip
        homes = [target.memory(o.memory) for o in i.operands]
        if found["bytes"].max() > 0 and all(m.bandwidth is None for m in homes):
            moved = ", ".join(dict.fromkeys(m.name for m in homes))
            yield warning(
                target, part, f"the bytes of {i.name} take no time",
                f"no memory that it touches ({moved}) has a bandwidth",
                "give one: t.memory(…, bandwidth=16) bytes a cycle",
            )  # fmt: skip


def _in_bundles(target: Target, i: Instruction) -> bool:
    """Whether it is an operation of a bundle: these take a cycle each."""
    return target.bundles is not None and i.queue in dict(target.bundles.slots)


def monotone(target: Target) -> Problems:
    """More work takes no less time."""
    for i in target.instructions:
        for f in extent_fields(i):
            for term in (("setup", "busy"), ("bytes",)):
                fall = _fall(i, f, term)
                if fall is not None:
                    (a, x), (b, y) = fall
                    yield warning(
                        target, f"instruction {i.name}",
                        f"{' + '.join(term)} of {i.name} is {x} for {f.name} = {a}, "
                        f"and {y} for {f.name} = {b}",
                        "more work takes less time: the choice of tiles is led astray",
                        "correct the cost, if it is not the chip that does so",
                    )  # fmt: skip


def fields(target: Target) -> Problems:
    """Every field has a part in the meaning, the cost or a stride; all that has one is a field."""
    for i in target.instructions:
        used = {s.name for stmt in i.body for s in symbols(stmt)} | {n for _, _, n in i.strides}
        used |= {s.name for o in i.operands for n in o.shape for s in symbols(as_expr(n))}
        used |= {s.name for term in i.cost.terms for s in symbols(as_expr(term))}
        used |= {s.name for condition in i.limits for s in symbols(condition)}
        for name in sorted(used - {f.name for f in i.fields}):
            yield error(
                target, f"instruction {i.name}", f"{name} is no field of {i.name}",
                "its value is not known when the instruction runs",
                f"make it one: {name}: Range(1, 64), or the extent of an operand",
            )  # fmt: skip
        for f in i.fields:
            if f.low > f.high or not any(f.admits(v) for v in _values(f)):
                yield error(
                    target, f"instruction {i.name}",
                    f"field {f.name} of {i.name} goes from {f.low} to {f.high}",
                    "no value is within its limits", "Range(low, high, multiple=…)",
                )  # fmt: skip
            elif f.name not in used and not i.sets_state:
                yield warning(
                    target, f"instruction {i.name}", f"field {f.name} of {i.name} does nothing",
                    "it is not in the meaning, the cost or a stride: any value is as good",
                    "use it, or take it out",
                )  # fmt: skip


def limits(target: Target) -> Problems:
    """Some values of the fields are within an instruction's limits."""
    for i in target.instructions:
        if i.limits and not len(samples(i)):
            yield error(
                target, f"instruction {i.name}",
                f"no values of the fields of {i.name} are within its limits",
                f"of {TRIED} that were tried, each breaks one of "
                + ", ".join(map(str, i.limits)),
                "correct limit(…), or the ranges of the fields",
            )  # fmt: skip


# ---------------------------------------------------------------- values


def _values(f: Field) -> np.ndarray:
    """Values from the least to the greatest that a field admits."""
    low = -(-f.low // f.multiple) * f.multiple
    high = f.high // f.multiple * f.multiple
    steps = np.linspace(0, max(0, (high - low) // f.multiple), SAMPLES).astype(np.int64)
    return np.unique(low + steps * f.multiple)


def samples(i: Instruction) -> np.ndarray:
    """Values of the fields that keep the limits [n, fields]: all at their lowest, in the middle, at
    their highest; each of them varied alone; and any."""
    values = [_values(f) for f in i.fields]
    rng = np.random.default_rng(0)
    drawn = [v[np.minimum(rng.geometric(0.3, TRIED) - 1, len(v) - 1)] for v in values]
    tables = [np.stack(_corners(i)), np.array(drawn, np.int64).reshape(len(values), TRIED).T]
    for c, column in enumerate(values):
        varied = np.stack([_corners(i)[0]] * len(column))
        varied[:, c] = column
        tables.append(varied)
    rows: np.ndarray = np.concatenate(tables)
    kept: np.ndarray = rows[_allowed(i, rows)]
    return kept


def _allowed(i: Instruction, rows: np.ndarray) -> np.ndarray:
    """Which rows keep the limits [n]."""
    allowed = np.ones(len(rows), bool)
    for condition in i.limits:
        allowed &= evaluated(i, condition, rows).astype(bool)
    return allowed


def _terms(i: Instruction) -> Iterator[tuple[str, np.ndarray]]:
    """The terms of the cost, for all samples."""
    rows = samples(i)
    for name in COST_TERMS:
        values = [evaluated(i, x, rows) for x in _parts(i, name)]
        if values:
            yield name, np.concatenate(values)


def _parts(i: Instruction, name: str) -> list[Dim]:
    """A term of the cost; of bytes, those of each memory."""
    if name == "bytes" and i.cost.through:
        return [n for _, n in i.cost.through]
    term = getattr(i.cost, name)
    return [] if term is None else [term]


def _corners(i: Instruction) -> list[np.ndarray]:
    """Rows of fields: all at their lowest, in the middle, at their highest."""
    values = [_values(f) for f in i.fields]
    return [np.array([v[k * (len(v) - 1) // 2] for v in values], np.int64) for k in range(3)]


def evaluated(i: Instruction, term: Dim, rows: np.ndarray) -> np.ndarray:
    """A term of the cost, or a limit, for n rows of fields [n, fields]."""
    env: Env = {f.symbol: rows[:, c] for c, f in enumerate(i.fields)}
    return np.broadcast_to(evaluate_exactly(term, env), (len(rows),))


def _fall(
    i: Instruction, f: Field, terms: tuple[str, ...]
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Two values of a field, growing, and what the terms are together for them, falling."""
    values = _values(f)
    for corner in _corners(i):
        rows = np.stack([corner] * len(values))
        rows[:, i.fields.index(f)] = values
        rows = rows[_allowed(i, rows)]
        cycles = sum(
            (evaluated(i, x, rows) for t in terms for x in _parts(i, t)), np.zeros(len(rows), int)
        )
        kept = rows[:, i.fields.index(f)]
        falls = np.flatnonzero(np.diff(cycles) < 0)
        if len(falls):
            k = int(falls[0])
            pair = [(int(kept[n]), int(cycles[n])) for n in (k, k + 1)]
            return pair[0], pair[1]
    return None
