"""Streams as a person reads them: one line for each instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.codegen.encode import Tokens
from tilewright.codegen.stream import Site, Stream


def disassemble(stream: Stream, waits: Tokens | None = None) -> Iterator[str]:
    """Lines under one with the columns' names: an instruction's number, its queue, the queues that
    it takes tokens from and gives them to, where its operands lie (in bytes), its fields."""
    memories, queues = stream.target.memories, [q.name for q in stream.target.queues]
    none = np.zeros(len(stream), np.uint32)
    pops, pushes = (none, none) if waits is None else (waits.pops, waits.pushes)
    texts = {int(m): _names(int(m), queues) for m in np.unique([pops, pushes])}
    number = max(1, len(str(len(stream) - 1)))
    queue = max(map(len, [*queues, "queue"]))
    mask = max(map(len, [*texts.values(), "takes"]))
    name = max((len(s.instruction.name) for s in stream.sites), default=0)
    form = f"{{:>{number}}}  {{:<{queue}}}  {{:<{mask}}}  {{:<{mask}}}  {{:<{name}}}  {{}}"
    yield form.format("#", "queue", "takes", "gives", "instruction", "").rstrip()
    digits = {m.name: _digits(m.size or stream.sizes.get(m.name, 1)) for m in memories}
    rows = zip(
        stream.site.tolist(), stream.fields.tolist(), stream.addresses.tolist(),
        stream.lists.tolist(), pops.tolist(), pushes.tolist(), strict=True,
    )  # fmt: skip
    for i, (k, fields, addresses, first, pop, push) in enumerate(rows):
        site = stream.sites[k]
        what = site.instruction
        parts = [*_places(site, addresses, digits), *_list(site, first), *_fields(site, fields)]
        line = (i, what.queue, texts[pop], texts[push], what.name, " ".join(parts))
        yield form.format(*line).rstrip()


def _names(mask: int, queues: Sequence[str]) -> str:
    return ",".join(q for k, q in enumerate(queues) if mask >> k & 1)


def _digits(size: int) -> int:
    return len(f"{max(size - 1, 0):x}")


def _places(site: Site, addresses: Sequence[int], digits: dict[str, int]) -> list[str]:
    """ "src=dram[0x1f40]", by operand."""
    operands = zip(site.instruction.operands, site.memories, addresses, strict=False)
    return [f"{o.name}={memory}[0x{at:0{digits[memory]}x}]" for o, memory, at in operands]


def _fields(site: Site, values: Sequence[int]) -> list[str]:
    return [f"{f.name}={v}" for f, v in zip(site.instruction.fields, values, strict=False)]


def _list(site: Site, first: int) -> list[str]:
    """ "uop[12:20]", the entries of its list of micro-operations."""
    kind = site.instruction.micro_ops
    return [] if kind is None else [f"{kind.memory}[{first}:{first + site.entries}]"]
