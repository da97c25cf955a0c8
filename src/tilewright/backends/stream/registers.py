"""Registers of a chip's state: set before they are used, and only when another value is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.backends.stream.stream import Site, Stream
from tilewright.base.errors import TargetError
from tilewright.ir.expr import as_expr
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call


def place_settings(stream: Stream) -> Stream:
    """The stream with the instructions that set registers; as it is if it needs none."""
    for setter in (i for i in stream.target.instructions if i.sets_state):
        stream = _place(stream, setter)
    return stream


def _place(stream: Stream, setter: Instruction) -> Stream:
    values = np.full((len(stream), len(setter.fields)), UNKNOWN)
    for k, site in enumerate(stream.sites):
        for column, own in _registers(site.instruction, setter):
            _check_queue(stream, site.instruction, setter)
            rows = stream.rows(k)
            values[rows, own] = stream.fields[rows, column]
    held = _carried(values)
    before = np.concatenate([np.full((1, held.shape[1]), UNKNOWN), held[:-1]])
    rows = np.flatnonzero((held != before).any(1))
    return _insert(stream, setter, rows, held[rows]) if len(rows) else stream


UNKNOWN = np.iinfo(np.int64).min  # of a register that nothing has needed so far


def _registers(instruction: Instruction, setter: Instruction) -> list[tuple[int, int]]:
    """The fields of an instruction that the setter sets: (its number, the setter's)."""
    names = [f.name for f in setter.fields]
    return [
        (k, names.index(f.register[1]))
        for k, f in enumerate(instruction.fields)
        if f.register is not None and f.register[0] == setter.name
    ]


def _check_queue(stream: Stream, instruction: Instruction, setter: Instruction) -> None:
    """Only a queue's own order makes a register hold the right value."""
    if instruction.queue != setter.queue:
        raise TargetError(
            f"{setter} is run by {setter.queue}, and {instruction}, whose registers it sets, by "
            f"{instruction.queue}",
            hint="registers belong to one queue: give both the same",
        )


def _carried(values: np.ndarray) -> np.ndarray:
    """What the registers hold from row to row: the last value that was needed."""
    known = np.where(values != UNKNOWN, np.arange(len(values))[:, None], -1)
    last = np.maximum.accumulate(known, axis=0)
    taken = np.take_along_axis(values, np.maximum(last, 0), 0)
    return np.where(last < 0, UNKNOWN, taken)


def _insert(stream: Stream, setter: Instruction, rows: np.ndarray, values: np.ndarray) -> Stream:
    """Settings before these instructions."""
    fields = tuple(as_expr(f.symbol) for f in setter.fields)
    site = Site(Call(setter, (), fields), (), ())
    low = np.array([f.low for f in setter.fields])
    values = np.where(values == UNKNOWN, low, values)
    width = max(stream.fields.shape[1], values.shape[1])
    before = np.asarray(rows)
    return replace(
        stream,
        sites=(*stream.sites, site),
        site=np.insert(stream.site, before, len(stream.sites)),
        fields=np.insert(_wide(stream.fields, width), before, _wide(values, width), axis=0),
        addresses=np.insert(stream.addresses, before, 0, axis=0),
        lists=np.insert(stream.lists, before, -1),
    )


def _wide(rows: np.ndarray, width: int) -> np.ndarray:
    out = np.zeros((len(rows), width), np.int64)
    out[:, : rows.shape[1]] = rows
    return out
