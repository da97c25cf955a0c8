"""Streams with one thing changed: a wait, a buffer's size, a base, a step, another field, the order
of two instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.backends.stream.addresses import Place, bytes_of
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer, Compare, CompareOp, Select, Symbol, as_expr, const
from tilewright.ir.instruction import Instruction, axis


@dataclass(frozen=True)
class Mutant:
    """A stream with its waits, and what was done to it."""

    kind: str
    what: str
    stream: Stream
    waits: Waits


def mutant(chip: ChipKernel, kind: str, rng: np.random.Generator) -> Mutant | None:
    """One of this kind at random; None if the stream has nothing to change so."""
    return KINDS[kind](chip, rng)


def _pick(rng: np.random.Generator, items: list) -> object:
    return items[rng.integers(len(items))]


# ---------------------------------------------------------------- waits


def _wait(chip: ChipKernel, rng: np.random.Generator) -> Mutant | None:
    """A wait is taken out: what gives and what takes, or one of the two."""
    w, n = chip.waits, len(chip.stream)
    arrays = {k: getattr(w, k).copy() for k in ("pops", "pushes", "awaits", "sets", "barriers")}
    names = [q.name for q in chip.target.queues]
    queue = [names.index(chip.stream.sites[s].instruction.queue) for s in chip.stream.site]
    found = [
        ("token", i, p) for i in range(n) for p in range(len(names)) if int(w.pops[i]) >> p & 1
    ]
    found += [("event", i, e) for i in range(n) for e in range(64) if int(w.awaits[i]) >> e & 1]
    found += [("barrier", i, 0) for i in range(n) if w.barriers[i]]
    if not found:
        return None
    kind, i, number = _pick(rng, found)
    half = _pick(rng, ["both", "taking", "giving"])
    if kind == "barrier":
        arrays["barriers"][i] = 0
        return Mutant("wait", f"no barrier before {i}", chip.stream, Waits(**arrays))
    if kind == "token":
        takers = [r for r in range(n) if queue[r] == queue[i] and int(w.pops[r]) >> number & 1]
        givers = [r for r in range(n) if queue[r] == number and int(w.pushes[r]) >> queue[i] & 1]
        taking, giving = ("pops", number), ("pushes", queue[i])
    else:
        takers = [r for r in range(n) if int(w.awaits[r]) >> number & 1]
        givers = [r for r in range(n) if int(w.sets[r]) >> number & 1]
        taking, giving = ("awaits", number), ("sets", number)
    giver = givers[takers.index(i)]
    for row, (name, bit), part in ((i, taking, "taking"), (giver, giving, "giving")):
        if half in ("both", part):
            arrays[name][row] &= ~arrays[name].dtype.type(1 << bit)
    return Mutant("wait", f"{i} waits no more for {giver} ({half})", chip.stream, Waits(**arrays))


# ---------------------------------------------------------------- buffers


def _slot(chip: ChipKernel, rng: np.random.Generator) -> Mutant | None:
    """A buffer of several slots has one less: its last slot is the first one, or lies where the
    next buffer begins."""
    s = chip.stream
    inside = {r.buffer for site in s.sites for r in site.call.regions} & set(s.places)
    held = [b for b in inside if b not in chip.kernel.params and b.shape and b.shape[0] > 1]
    held = sorted((b for b in held if b not in s.constants), key=lambda b: b.name)
    if not held:
        return None
    buffer = _pick(rng, held)
    slots = _pick(rng, [n for n in _slots(buffer) if n > 1])
    size = bytes_of(buffer) // slots
    if rng.random() < 0.5:
        return _moved_up(s, chip.waits, buffer, size)
    addresses = s.addresses.copy()
    begin = s.places[buffer].offset
    for k, o in _operands(s, buffer):
        rows = s.rows(k)
        at = addresses[rows, o] - begin
        addresses[rows, o] = begin + at // size % (slots - 1) * size + at % size
    what = f"{buffer.name} has {slots - 1} slots"
    return _changed("slot", what, s, replace(s, addresses=addresses), chip.waits)


def _slots(buffer: Buffer) -> list[int]:
    """In how many equal slots a buffer may be: products of its first axes."""
    return [int(np.prod(buffer.shape[:d])) for d in range(1, len(buffer.shape))] or [
        buffer.shape[0]
    ]


def _moved_up(s: Stream, waits: Waits, buffer: Buffer, size: int) -> Mutant | None:
    place = s.places[buffer]
    behind = [
        b for b, p in s.places.items() if p.memory == place.memory and p.offset > place.offset
    ]
    addresses, places = s.addresses.copy(), dict(s.places)
    for b in behind:
        places[b] = Place(place.memory, s.places[b].offset - size)
        for k, o in _operands(s, b):
            addresses[s.rows(k), o] -= size
    changed = replace(s, addresses=addresses, places=places)
    return _changed("slot", f"{size} bytes of {buffer.name} are taken", s, changed, waits)


def _operands(s: Stream, buffer: Buffer) -> list[tuple[int, int]]:
    regions = [(k, o, r) for k, site in enumerate(s.sites) for o, r in enumerate(site.call.regions)]
    return [(k, o) for k, o, r in regions if r.buffer == buffer]


# ---------------------------------------------------------------- addresses and fields


def _base(chip: ChipKernel, rng: np.random.Generator) -> Mutant | None:
    """An operand begins elsewhere: of one instruction, or of all of a site."""
    s = chip.stream
    row = int(rng.integers(len(s)))
    site = s.sites[s.site[row]]
    if not site.memories:
        return None
    o = int(rng.integers(len(site.memories)))
    size = site.instruction.operands[o].dtype.bytes
    by = int(_pick(rng, [1, -1])) * size * int(_pick(rng, [1, 4, 16, 64, 256]))
    rows = [row] if rng.random() < 0.5 else s.rows(int(s.site[row]))
    addresses = s.addresses.copy()
    addresses[rows, o] += by
    what = f"operand {o} of {site.instruction.name} moved by {by}: {len(rows)} of it, at {row}"
    return _changed("base", what, s, replace(s, addresses=addresses), chip.waits)


def _step(chip: ChipKernel, rng: np.random.Generator) -> Mutant | None:
    """A step is another: a field that carries one, or an entry of a list of micro-operations."""
    s = chip.stream
    row = int(rng.integers(len(s)))
    number = int(s.site[row])
    site = s.sites[number]
    carriers = {f for _, _, f in site.instruction.strides}
    names = [f.name for f in site.instruction.fields]
    listed = [o for o, offsets in enumerate(site.offsets) if offsets is not None]
    if listed and (not carriers or rng.random() < 0.5):
        o = _pick(rng, listed)
        entry, by = int(rng.integers(site.entries)), int(_pick(rng, [1, -1])) * 16
        at, old = axis(site.instruction.listed(site.instruction.operands[o])), site.listed[o]
        moved = Select(Compare(CompareOp.EQ, at, const(entry)), old + by, old)
        listed = (*site.listed[:o], moved, *site.listed[o + 1 :])
        sites = (*s.sites[:number], replace(site, listed=listed), *s.sites[number + 1 :])
        return _changed("step", f"entry {entry} of site {number}", s, replace(s, sites=sites),
                        chip.waits)  # fmt: skip
    return _field(chip, rng, "step", row, [c for c, n in enumerate(names) if n in carriers])


def _other(chip: ChipKernel, rng: np.random.Generator) -> Mutant | None:
    """Another field has another value: how many rows, whether to accumulate."""
    s = chip.stream
    row = int(rng.integers(len(s)))
    instruction = s.sites[s.site[row]].instruction
    carriers = {f for _, _, f in instruction.strides}
    kept = carriers | _list_lengths(instruction)
    columns = [c for c, f in enumerate(instruction.fields) if f.name not in kept]
    return _field(chip, rng, "field", row, columns)


def _list_lengths(instruction: Instruction) -> set[str]:
    """The fields that say how long a list of micro-operations is: that stays as it is."""
    pairs = ((b, instruction.listed(b)) for b in instruction.operands)
    extents = (as_expr(b.shape[d]) for b, d in pairs if d is not None)
    return {e.name for extent in extents for e in extent.walk() if isinstance(e, Symbol)}


def _field(
    chip: ChipKernel, rng: np.random.Generator, kind: str, row: int, columns: list[int]
) -> Mutant | None:
    if not columns:
        return None
    s = chip.stream
    c = _pick(rng, columns)
    f = s.sites[s.site[row]].instruction.fields[c]
    by = int(_pick(rng, [1, -1])) * f.multiple * int(_pick(rng, [1, 1, 16]))
    value = int(s.fields[row, c]) + by
    if not f.admits(value):
        return None
    rows = [row] if rng.random() < 0.5 else s.rows(int(s.site[row]))
    fields = s.fields.copy()
    fields[rows, c] = value
    what = f"{f.name} is {value} in {len(rows)} instructions, at {row}"
    return _changed(kind, what, s, replace(s, fields=fields), chip.waits)


# ---------------------------------------------------------------- order


def _order(chip: ChipKernel, rng: np.random.Generator) -> Mutant | None:
    """Two instructions change places: neighbours, or neighbours in a queue; with their waits, or
    the waits stay."""
    s = chip.stream
    i = int(rng.integers(len(s) - 1))
    j = i + 1
    if rng.random() < 0.5:
        names = [site.instruction.queue for site in s.sites]
        rows = [r for r in range(i + 1, len(s)) if names[s.site[r]] == names[s.site[i]]]
        if not rows:
            return None
        j = rows[0]
    order = np.arange(len(s))
    order[[i, j]] = order[[j, i]]
    changed = replace(s, site=s.site[order], fields=s.fields[order], addresses=s.addresses[order],
                      lists=s.lists[order])  # fmt: skip
    waits, along = chip.waits, bool(rng.random() < 0.5)
    if along:
        waits = Waits(waits.pops[order], waits.pushes[order], waits.awaits[order],
                      waits.sets[order], waits.barriers)  # fmt: skip
    elif s.sites[s.site[i]].instruction.queue != s.sites[s.site[j]].instruction.queue:
        return None  # waits are for queues
    return _changed("order", f"{i} and {j} swapped, waits {'too' if along else 'stay'}", s, changed,
                    waits)  # fmt: skip


def _changed(kind: str, what: str, old: Stream, new: Stream, waits: Waits) -> Mutant | None:
    """The mutant, if it is another stream."""
    same = all(
        np.array_equal(getattr(old, name), getattr(new, name))
        for name in ("site", "fields", "addresses", "lists")
    )
    return None if same and old.sites == new.sites else Mutant(kind, what, new, waits)


KINDS: dict[str, Callable[[ChipKernel, np.random.Generator], Mutant | None]] = {
    "wait": _wait,
    "slot": _slot,
    "base": _base,
    "step": _step,
    "field": _other,
    "order": _order,
}
