"""The manual of a chip, from its description: plain data, which the command line prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tilewright.ir.expr import Buffer, Dim
from tilewright.ir.instruction import COST_TERMS, Cost, Instruction
from tilewright.ir.loop import buffers_written, format_block, format_buffer_type
from tilewright.target.encoding import Carries, Encoding, EncodingPart
from tilewright.target.target import Memory, Target


def manual(target: Target) -> dict[str, Any]:
    """Everything that the description says, as values that JSON knows."""
    return {
        "name": target.name,
        "clock": target.clock,
        "cores": target.cores,
        "memories": [memory_facts(m) for m in target.memories],
        "queues": [
            {
                "name": q.name,
                "depth": q.depth,
                "instructions": [i.name for i in target.instructions if i.queue == q.name],
            }
            for q in target.queues
        ],
        "tokens": [list(pair) for pair in target.tokens],
        "token_depth": target.token_depth,
        "events": target.events,
        "barriers": target.barriers,
        "interlock": target.interlock,
        "issue": target.issue,
        "fetch": None if target.fetch is None else asdict(target.fetch),
        "end": target.ends_with,
        "most_submitted": target.most_submitted,
        "slots": None if target.bundles is None else dict(target.bundles.slots),
        "instructions": [instruction_facts(target, i) for i in target.instructions],
    }


def memory_facts(m: Memory) -> dict[str, Any]:
    return {
        "name": m.name,
        "bytes": m.size,
        "capacity": m.capacity,
        "cached": m.cached,
        "banks": m.banks,
        "bandwidth": m.bandwidth,
        "latency": m.latency,
        "unit": m.unit,
    }


def instruction_facts(target: Target, i: Instruction) -> dict[str, Any]:
    """An instruction: what it takes, means, costs, and how its bits lie."""
    written = buffers_written(i.body)
    encoding, entry = target.encoding(i), target.entry(i)
    return {
        "name": i.name,
        "doc": i.doc,
        "queue": i.queue,
        "native": i.native,
        "operands": [operand_facts(i, o, o in written) for o in i.operands],
        "fields": [
            {
                "name": f.name,
                "low": f.low,
                "high": f.high,
                "multiple": f.multiple,
                "register": f.register and ".".join(f.register),
            }
            for f in i.fields
        ],
        "limits": [str(condition) for condition in i.limits],
        "distances": [{"operand": name, "iterations": n} for name, n in i.distances],
        "meaning": [line[4:] for line in format_block(i.body)] if i.body else [],
        "cost": cost_facts(i.cost),
        "encoding": None if encoding is None else encoding_facts(encoding),
        "micro_operations": None
        if i.micro_ops is None
        else {
            "memory": i.micro_ops.memory,
            "bytes": i.micro_ops.bytes,
            "encoding": None if entry is None else encoding_facts(entry),
        },
    }


def operand_facts(i: Instruction, o: Buffer, written: bool) -> dict[str, Any]:
    """An operand; `strides` says for each axis what carries its step: a field, "listed" for
    micro-operations, or null for none, where elements lie side by side."""
    carriers = [i.carrier(o, d) for d in range(len(o.shape))]
    strides = ["listed" if i.listed(o) == d else c and c.name for d, c in enumerate(carriers)]
    return {
        "name": o.name,
        "type": format_buffer_type(o.with_(memory="dram")),
        "memory": o.memory,
        "written": written,
        "strides": strides,
    }


def cost_facts(cost: Cost) -> dict[str, Any]:
    """The terms that are not 0: numbers, or arithmetic on fields as text."""
    terms: dict[str, Dim | None] = {name: getattr(cost, name) for name in COST_TERMS}
    terms |= {f"bytes of {memory}": n for memory, n in cost.through}
    given = {name: v for name, v in terms.items() if v is not None}
    return {
        name: v if isinstance(v, int) else str(v)
        for name, v in given.items()
        if v != 0 or name in ("forward", "exposed")
    }


def encoding_facts(encoding: Encoding) -> dict[str, Any]:
    parts = [part_facts(p) for p in encoding.parts]
    return {"bits": encoding.width, "parts": parts}


def part_facts(p: EncodingPart) -> dict[str, Any]:
    """A part of an encoding. What is stored is (value - minus) / unit."""
    return {
        "first": p.start,
        "last": p.start + p.width - 1,
        "carries": p.carries.value,
        "name": p.name,
        "value": p.value if p.carries is Carries.CONSTANT else None,
        "unit": max(1, p.unit),
        "minus": p.minus,
        "signed": p.signed,
    }


def stored(p: Mapping[str, Any]) -> str:
    """What stands in a part's bits, as arithmetic: "(rows - 1) / 16"."""
    words = {
        "constant": f"constant {p['value']}",
        "padding": "unused, 0",
        "pop": f"takes a token of {p['name']}",
        "push": f"gives {p['name']} a token",
        "awaits": "waits for events, a bit each",
        "sets": "sets events, a bit each",
        "barrier": "all before it is done first",
        "address": f"address of {p['name']}",
        "first_entry": "first micro-operation",
        "end_entry": "end of the micro-operations",
    }
    text: str = words.get(p["carries"], p["name"])
    if p["minus"]:
        text = f"{text} {'-' if p['minus'] > 0 else '+'} {abs(p['minus'])}"
        text = f"({text})" if p["unit"] > 1 else text
    text += f" / {p['unit']}" if p["unit"] > 1 else ""
    return text + (", signed" if p["signed"] else "")
