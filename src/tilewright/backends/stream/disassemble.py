"""Streams as a person reads them: one line for each instruction."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.backends.stream.encode import Tokens
from tilewright.backends.stream.stream import Site, Stream


def disassemble(stream: Stream, waits: Tokens | None = None) -> Iterator[str]:
    """Lines under one with the columns' names: an instruction's number and its queue; what it waits
    for (a token of a queue, an event "e3", or "all" before it) and what it gives; where its
    operands lie (in bytes), its list of micro-operations, its fields."""
    takes, gives = _waits(stream, waits)
    number = max(1, len(str(len(stream) - 1)))
    queue = max(map(len, [*(q.name for q in stream.target.queues), "queue"]))
    mask = max(map(len, {*takes, *gives, "takes"}))
    name = max((len(s.instruction.name) for s in stream.sites), default=0)
    form = f"{{:>{number}}}  {{:<{queue}}}  {{:<{mask}}}  {{:<{mask}}}  {{:<{name}}}  {{}}"
    yield form.format("#", "queue", "takes", "gives", "instruction", "").rstrip()
    memories = stream.target.memories
    digits = {m.name: _digits(m.size or stream.sizes.get(m.name, 1)) for m in memories}
    columns = (stream.site, stream.fields, stream.addresses, stream.lists)
    rows = zip(*(c.tolist() for c in columns), takes, gives, strict=True)
    for i, (k, fields, addresses, first, taken, given) in enumerate(rows):
        site = stream.sites[k]
        what = site.instruction
        parts = [*_places(site, addresses, digits), *_list(site, first), *_fields(site, fields)]
        line = (i, what.queue, taken, given, what.name, " ".join(parts))
        yield form.format(*line).rstrip()


def _waits(stream: Stream, waits: Tokens | None) -> tuple[list[str], list[str]]:
    """What every instruction takes, and what it gives, in words."""
    n, queues = len(stream), [q.name for q in stream.target.queues]
    if waits is None:
        return [""] * n, [""] * n

    @functools.cache
    def text(mask: int, events: int, barrier: int) -> str:
        parts = [name for q, name in enumerate(queues) if mask >> q & 1]
        parts += [f"e{e}" for e in range(stream.target.events) if events >> e & 1]
        return ",".join([*parts, *["all"] * barrier])

    taken = zip(waits.pops.tolist(), waits.awaits.tolist(), waits.barriers.tolist(), strict=True)
    given = zip(waits.pushes.tolist(), waits.sets.tolist(), np.zeros(n, int).tolist(), strict=True)
    return [text(*row) for row in taken], [text(*row) for row in given]


def _digits(size: int) -> int:
    return len(f"{max(size - 1, 0):x}")


def _places(site: Site, addresses: Sequence[int], digits: dict[str, int]) -> list[str]:
    """ "src=dram[0x1f40]", by operand."""
    operands = zip(site.instruction.operands, site.memories, addresses, strict=False)
    return [f"{o.name}={memory}[0x{at:0{digits[memory]}x}]" for o, memory, at in operands]


def _fields(site: Site, values: Sequence[int]) -> list[str]:
    """Those in the instruction itself; what is in registers stands where it is set."""
    pairs = zip(site.instruction.fields, values, strict=False)
    return [f"{f.name}={v}" for f, v in pairs if f.register is None]


def _list(site: Site, first: int) -> list[str]:
    """ "uop[12:20]", the entries of its list of micro-operations."""
    kind = site.instruction.micro_ops
    return [] if kind is None else [f"{kind.memory}[{first}:{first + site.entries}]"]
