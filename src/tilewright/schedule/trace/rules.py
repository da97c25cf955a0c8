"""What each primitive does to the formulas of extents and shapes.

derive.py says for which decisions they hold, and why. A rule that cannot follow a step says False:
then all decisions so far are pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Var
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    Kernel,
    Stmt,
    buffers_written,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.schedule.trace.derive import (
    Derivation,
    Divides,
    Event,
    Root,
    SplitLoop,
    blocked_axes,
    loop_of,
    loops_in,
)
from tilewright.schedule.trace.formulas import Formula


def follow(d: Derivation, event: Event) -> None:
    """Brings what is known from before a step to after it. A step without a rule pins all
    decisions so far."""
    rule = RULES.get(event.step.primitive)
    what = f"{event.step.primitive} was proven for it"
    if event.step.primitive not in KEEPS_ORDER:
        d.pin_formulas(what, *d.depths)
    if rule is None or not rule(d, event) or not d.agrees(event.after):
        d.pin(event.number, what)
        d.adopt(event.after)
        d.pieces.clear()  # what was known of their iterations need not hold any more
        d.blocked = blocked_axes(event.after)


# ---------------------------------------------------------------- loops


def _split(d: Derivation, event: Event) -> bool:
    name = event.arguments["loop"].var.name
    extent, factor = d.extents[name], d.decided[event.number, "factor"]
    before = loop_of(event.before.body, name)
    piece = d.pieces.get(name)
    outer, inner = (x.var.name for x in event.result)
    if d.now(extent) % d.now(factor):
        if event.arguments["tail"].value == "cut" or piece is not None:
            return False
        d.pin_formulas("its tiles leave a rest", extent, factor)
        d.set_extent(outer, d.formulas.const(-(-d.now(extent) // d.now(factor))))
        d.set_extent(inner, d.formulas.const(d.now(factor)))
        return True
    if _is_blocked(d, event.before, before.var):
        d.pin_formulas(f"a layout has blocks along {name}", extent, factor)
    if piece is not None and piece.root.name in d.carried:
        d.pin_formulas(f"iterations of {piece.root.name} depend on each other", factor)
    if piece is None:
        strong = _in_one_iteration(event.before, before, strong=True)
        if not strong and not _in_one_iteration(event.before, before, strong=False):
            return False
        piece = SplitLoop(Root(name, strong), d.formulas.const(1))
    d.conditions.append(Divides(factor, extent, name))
    stride = d.formulas.mul(piece.stride, factor)
    d.set_extent(outer, d.formulas.div(extent, factor), SplitLoop(piece.root, stride))
    d.set_extent(inner, factor, piece)
    return True


def _fuse(d: Derivation, event: Event) -> bool:
    first, second = (event.arguments[x].var.name for x in ("outer", "inner"))
    for name in (first, second):
        if _is_blocked(d, event.before, Var(name)):
            _settle(d, name, f"a layout has blocks along {name}")
    if not d.is_fixed(d.extents[first], d.extents[second]):
        pieces = [d.pieces.get(x) for x in (first, second)]
        fixed = [d.is_fixed(d.extents[x]) for x in (first, second)]
        if any(p is None and not f for p, f in zip(pieces, fixed, strict=True)):
            return False
        fused = loop_of(event.after.body, event.result.var.name)
        strong = all(p is not None and p.root.strong for p in pieces)
        if any(p is None for p in pieces):
            loop = loop_of(event.before.body, first if pieces[0] is None else second)
            strong = _in_one_iteration(event.before, loop, strong=True)
            if not strong and not _in_one_iteration(event.before, loop, strong=False):
                return False
        piece = SplitLoop(Root(fused.var.name, strong, plain=False), d.formulas.const(1))
    else:
        piece = None
    extent = d.formulas.mul(d.extents[first], d.extents[second])
    d.set_extent(event.result.var.name, extent, piece)
    if any(p is not None and p.root.name in d.carried for p in map(d.pieces.get, (first, second))):
        d.carry([event.result.var.name], "iterations depend on each other")
    return True


def _ordering(d: Derivation, event: Event) -> bool:
    """reorder, vectorize: pairs of accesses stay in order, whatever the factors."""
    return True


def _parallel(d: Derivation, event: Event) -> bool:
    piece = d.pieces.get(event.arguments["loop"].var.name)
    return piece is None or piece.root.strong


def _marking(d: Derivation, event: Event) -> bool:
    """Changes nothing that has an extent, and needs none."""
    return True


# ---------------------------------------------------------------- buffers


def _set_memory(d: Derivation, event: Event) -> bool:
    return True


def _cache_write(d: Derivation, event: Event) -> bool:
    buffer = event.arguments["buffer"]
    shape = d.shapes[buffer.name]
    d.set_shape(event.result.name, shape)
    if buffer.name in d.blocked:
        d.blocked[event.result.name] = set(d.blocked[buffer.name])
    return _new_axes(d, event, shape)


def _new_axes(d: Derivation, event: Event, shape: Sequence[Formula]) -> bool:
    """The new loops run along the axes of a buffer, one each."""
    if len(event.fresh) != len(shape):
        return False
    return all(_new_root(d, event, x, n) for x, n in zip(event.fresh, shape, strict=True))


def _new_root(d: Derivation, event: Event, loop: For, extent: Formula) -> bool:
    """A loop that is no piece of another; false if its iterations are not independent."""
    d.set_extent(loop.var.name, extent)
    if d.is_fixed(extent):
        return True
    strong = _in_one_iteration(event.after, loop, strong=True)
    if not strong and not _in_one_iteration(event.after, loop, strong=False):
        return False
    d.pieces[loop.var.name] = SplitLoop(Root(loop.var.name, strong), d.formulas.const(1))
    return True


def _pack_layout(d: Derivation, event: Event) -> bool:
    buffer, layout = event.arguments["buffer"], event.arguments["layout"]
    shape, f = d.shapes[buffer.name], d.formulas
    outer = []
    for axis in layout.order:
        by = layout.factor(axis)
        outer.append(f.div(f.add(shape[axis], f.const(by - 1)), f.const(by)))
    d.set_shape(event.result.name, [*outer, *(f.const(n) for _, n in layout.blocks)])
    old = d.blocked.pop(buffer.name, set())
    cut = {axis for axis, _ in layout.blocks}
    for access in accesses(event.before.body):
        if access.buffer == buffer:
            for v in (v for axis in cut for v in variables(access.indices[axis])):
                _settle(d, v.name, f"a layout has blocks along {v.name}")
    outside = {p for p, axis in enumerate(layout.order) if axis in old | cut}
    inside = set(range(len(outer), len(outer) + len(layout.blocks)))
    if outside or inside:
        d.blocked[event.result.name] = outside | inside
    return True


def _settle(d: Derivation, name: str, what: str) -> None:
    """Pins what a loop depends on; one of an instruction was, when it was called."""
    if name not in d.extents:
        return
    piece = d.pieces.get(name)
    d.pin_formulas(what, d.extents[name], *([] if piece is None else [piece.stride]))


def _is_blocked(d: Derivation, kernel: Kernel, var: Var) -> bool:
    """Whether a loop occurs in a subscript along an axis that is cut into blocks."""
    return any(
        var in variables(access.indices[axis])
        for access in accesses(kernel.body)
        for axis in d.blocked.get(access.buffer.name, ())
    )


def _inline(d: Derivation, event: Event) -> bool:
    buffer = event.arguments["buffer"]
    if buffer.name in d.blocked:
        return False
    return _is_defined_plainly(d, event.before, buffer) and not event.fresh


def _is_defined_plainly(d: Derivation, kernel: Kernel, buffer: Buffer) -> bool:
    """Whether the loops that define a buffer run as far as its axes, whatever the factors."""
    writes = [a for a in accesses(kernel.body) if a.writes and a.buffer == buffer]
    pairs = zip(writes[0].indices, d.shapes[buffer.name], strict=True)
    lengths = [(d.extents[i.name], n) for i, n in pairs if isinstance(i, Var)]
    return all(x == n or d.is_fixed(x, n) for x, n in lengths)


def _split_init(d: Derivation, event: Event) -> bool:
    """The initialisation's loops run as the loops of the update behind it do."""
    loops = event.result
    home = next(b for b in _blocks(event.after.body) if any(_is_loop(s, loops[0]) for s in b))
    at = next(i for i, s in enumerate(home) if _is_loop(s, loops[0]))
    update: Stmt = home[at + 1]
    for loop in loops:
        if not isinstance(update, For):
            return False
        name = update.var.name
        d.set_extent(loop.var.name, d.extents[name], d.pieces.get(name))
        update = update.body[0]
    return True


def _is_loop(stmt: Stmt, loop: Any) -> bool:
    return isinstance(stmt, For) and stmt.var == loop.var


def _blocks(block: Block) -> list[Block]:
    return [block, *(b for stmt in block for inner in sub_blocks(stmt) for b in _blocks(inner))]


def _rfactor(d: Derivation, event: Event) -> bool:
    """New loops combine the parts: over the axes, then over the loop that made them."""
    target = event.arguments["loop"].var.name
    *axes, last = event.fresh
    chain = loop_of(event.after.body, target)
    for new in axes:
        inner = chain.body[0]
        if not isinstance(inner, For):
            return False
        chain, name = inner, inner.var.name
        d.set_extent(new.var.name, d.extents[name], d.pieces.get(name))
    d.set_extent(last.var.name, d.extents[target], d.pieces.get(target))
    buffer = event.arguments["buffer"]
    d.set_shape(event.result.name, (d.extents[target], *d.shapes[buffer.name]))
    if buffer.name in d.blocked:
        d.blocked[event.result.name] = {axis + 1 for axis in d.blocked[buffer.name]}
    return True


def _multi_buffer(d: Derivation, event: Event) -> bool:
    """Places in turn: a later use of one depends on how many there are."""
    depth = d.decided[event.number, "depth"]
    buffer = event.arguments["buffer"]
    d.set_shape(event.result.name, (depth, *d.shapes[buffer.name]))
    d.blocked[buffer.name] = {0, *(axis + 1 for axis in d.blocked.get(buffer.name, ()))}
    d.depths.append(depth)
    loops = [x.var.name for x in event.arguments["loops"]]
    d.carry(loops, "places are used in turn")
    return True


def _fold_init(d: Derivation, event: Event) -> bool:
    d.carry([event.arguments["loop"].var.name], "the first iteration is another")
    return not event.fresh


# ---------------------------------------------------------------- boxes


def _keep_whole(d: Derivation, event: Event) -> bool:
    d.keeps = True
    return True


def _compute_at(d: Derivation, event: Event) -> bool:
    buffer = event.arguments["buffer"]
    found = _box(d, event, buffer)
    if found is None:
        return False
    box, lows = found
    if d.keeps and not d.is_fixed(*box):
        return False  # whether a loop runs as often as before is asked
    if not _is_defined_plainly(d, event.before, buffer):
        return False
    writes = [a for a in accesses(event.before.body) if a.writes and a.buffer == buffer]
    for index, n, low in zip(writes[0].indices, box, lows, strict=True):
        if isinstance(index, Var):
            if _is_blocked(d, event.before, index):
                what = f"a layout has blocks along {index.name}"
                d.pin_formulas(what, n)
                for around in low:
                    _settle(d, around.name, what)
            loop = loop_of(event.after.body, index.name)
            is_fixed = _is_settled(d, index.name) and d.is_fixed(n)
            if not (_is_whole(d, index.name) or is_fixed) or not _new_root(d, event, loop, n):
                return False
    d.set_shape(event.result.name, box)
    return True


def _cache_read(d: Derivation, event: Event) -> bool:
    found = _box(d, event, event.arguments["buffer"])
    if found is None:
        return False
    box, _ = found
    d.set_shape(event.result.name, box)
    if event.arguments["buffer"].name in d.blocked:
        d.blocked[event.result.name] = set(d.blocked[event.arguments["buffer"].name])
    return _new_axes(d, event, box)


def _box(
    d: Derivation, event: Event, buffer: Buffer
) -> tuple[list[Formula], list[set[Var]]] | None:
    """How large the box is that one iteration of the loop reads, and the loops that its lowest
    corner depends on, for each axis; None where that is not known."""
    extents = {x.var: x.extent for x in loops_in(event.before.body)}
    s = Simplifier(extents)
    target = loop_of(event.before.body, event.arguments["loop"].var.name)
    inner = {x.var for x in loops_in(target.body)}
    reads = [a for a in accesses(target.body) if a.buffer == buffer and not a.writes]
    if not all(s.in_bounds(buffer, a.indices) for a in reads):
        return None
    sizes: list[Formula] = []
    corners: list[set[Var]] = []
    for axis, whole in enumerate(d.shapes[buffer.name]):
        is_blocked = axis in d.blocked.get(buffer.name, ())
        spans = [_span(d, s, a.indices[axis], inner, is_blocked) for a in reads]
        if not spans or any(span is None for span in spans):
            return None
        if len(spans) > 1 and not all(span[3] for span in spans if span is not None):
            return None
        outside = [span[0] for span in spans if span is not None]
        if any(x != outside[0] for x in outside):
            sizes.append(whole)  # places that move apart: all of the axis
            corners.append(set())
            continue
        f = d.formulas
        low = f.smallest(span[1] for span in spans if span is not None)
        high = f.largest(span[2] for span in spans if span is not None)
        sizes.append(f.add(f.sub(high, low), f.const(1)))
        corners.append({v for atom in outside[0] for v in variables(atom)})
    return sizes, corners


# Terms of loops outside; the least and greatest rest; whether the terms are the same expressions in
# the whole class, so that those of two subscripts can be compared.
Span = tuple[dict[Expr, int], Formula, Formula, bool]


def _span(
    d: Derivation, s: Simplifier, index: Expr, inner: set[Var], is_blocked: bool
) -> Span | None:
    """What a subscript covers; None if that is not linear in loops whose extents may change."""
    f = d.formulas
    if is_blocked and not all(_is_settled(d, v.name) for v in variables(index)):
        return None
    outside: dict[Expr, int] = {}
    same = True
    low = high = f.const(s.linear(index).get(None, 0))
    for atom, k in s.linear(index).items():
        if atom is None:
            continue
        if not isinstance(atom, Var):
            unsettled = {v for v in variables(atom) if not _is_settled(d, v.name)}
            if unsettled & inner or not all(_is_whole(d, v.name) for v in unsettled):
                return None
            same = same and not unsettled
            if variables(atom) & inner:
                if unsettled:
                    return None
                least, most = s.range({atom: k})
                if least is None or most is None:
                    return None
                low, high = f.add(low, f.const(least)), f.add(high, f.const(most))
                continue
            outside[atom] = k
            continue
        step = _coefficient(d, atom.name, k)
        if atom not in inner and (step is not None or _is_whole(d, atom.name)):
            same = same and step is not None
            outside[atom] = k
            continue
        if step is None:
            return None
        reach = f.mul(step, f.sub(d.extents[atom.name], f.const(1)))
        low, high = (f.add(low, reach), high) if k < 0 else (low, f.add(high, reach))
    return outside, low, high, same


def _is_whole(d: Derivation, name: str) -> bool:
    """Whether a loop is no piece of another."""
    piece = d.pieces.get(name)
    return piece is None or piece.root.name == name


def _is_settled(d: Derivation, name: str) -> bool:
    """Whether a loop is the same one in the whole class, as an instruction's own are."""
    if name not in d.extents:
        return True
    piece = d.pieces.get(name)
    return d.is_fixed(d.extents[name]) and (piece is None or d.is_fixed(piece.stride))


def _coefficient(d: Derivation, name: str, k: int) -> Formula | None:
    """A coefficient as a formula: a constant times the piece's stride in its root."""
    piece = d.pieces.get(name)
    if piece is None or _is_settled(d, name):
        return d.formulas.const(k)
    stride = d.now(piece.stride)
    if not piece.root.plain or k % stride:
        return None
    return d.formulas.mul(d.formulas.const(k // stride), piece.stride)


# ---------------------------------------------------------------- independence


def _in_one_iteration(kernel: Kernel, loop: For, *, strong: bool) -> bool:
    """Whether any two accesses to one element inside a loop, that may not change their order, have
    one subscript in common that is the loop's variable, times and plus a constant."""
    if loop.extent == 1:
        return True
    s = Simplifier({x.var: x.extent for x in loops_in(kernel.body)})
    own = {x.buffer for x in walk_statements(loop.body) if isinstance(x, Alloc)}
    for buffer in buffers_written(loop.body) - own:
        found = [a for a in accesses(loop.body) if a.buffer == buffer]
        for a in found:
            for b in found:
                if not (a.writes or b.writes):
                    continue
                commute = a.op is not None and a.op is b.op
                if (strong or not commute) and not _plain(a, loop, s) & _plain(b, loop, s):
                    return False
    return True


Place = tuple[int, ...]


def _plain(access: Access, loop: For, s: Simplifier) -> set[Place]:
    """(axis, coefficient, constant) of the subscripts that are this loop's variable; and
    (axis, axis, coefficient, constant, factor) of those that are its quotient and remainder."""
    found: set[Place] = set()
    parts: dict[BinaryOp, set[Place]] = {BinaryOp.FLOORDIV: set(), BinaryOp.MOD: set()}
    for axis, index in enumerate(access.indices):
        form = dict(s.linear(index))
        plain = _multiple(form, loop.var)
        if plain is not None:
            found.add((axis, *plain))
        (atom, k), *more = form.items() or [(None, 0)]
        if isinstance(atom, Binary) and k == 1 and not more and atom.op in parts:
            inner = _multiple(dict(s.linear(atom.a)), loop.var)
            if inner is not None and isinstance(atom.b, Const):
                parts[atom.op].add((axis, *inner, int(atom.b.value)))
    for one in parts[BinaryOp.FLOORDIV]:
        found |= {(one[0], *other) for other in parts[BinaryOp.MOD] if one[1:] == other[1:]}
    return found


def _multiple(form: dict[Expr | None, int], var: Var) -> tuple[int, int] | None:
    """(coefficient, constant) of a variable and nothing else."""
    offset = form.pop(None, 0)
    return (form[var], offset) if list(form) == [var] else None


Rule = Callable[[Derivation, Event], bool]

RULES: dict[str, Rule] = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _ordering,
    "vectorize": _ordering,
    "unroll": _marking,
    "parallel": _parallel,
    "set_memory": _set_memory,
    "pack_layout": _pack_layout,
    "cache_write": _cache_write,
    "cache_read": _cache_read,
    "compute_at": _compute_at,
    "inline": _inline,
    "split_init": _split_init,
    "rfactor": _rfactor,
    "multi_buffer": _multi_buffer,
    "fold_init": _fold_init,
    "annotate": _marking,
    "keep_whole": _keep_whole,
}

# Primitives that are legal in whatever order accesses come. Any other compares accesses to the
# places of multi-buffers, of which there are as many as was decided: their depths are pinned.
KEEPS_ORDER = {"split", "unroll", "annotate", "set_memory", "pack_layout"}

# Primitives that pin all decisions before them, and why they have no rule.
UNUSED = "a rule could follow it, and nobody has needed one"
WITHOUT_RULE: dict[str, str] = {
    "bind": UNUSED,
    "hoist": UNUSED,
    "init_with": UNUSED,
    "pad": "how much it adds is what a division leaves, and conditions go where nothing is left",
    "pad_buffer": "how much it adds is what a division leaves",
    "peel": "it makes loops as long as an extent less a count, which no factor need divide",
    "pipeline": "how many copies of statements it makes before and behind the loop is decided",
    "prefetch": "how many lines an iteration brings is a quotient rounded up",
    "reuse": UNUSED,
    "reverse_compute_at": "which iterations of the user belong to a piece follows from extents",
    "ring_buffer": "which places iterations have in common follows from extents",
    "sink": "it adds conditions on the first and the last iteration",
    "skip_zeros": "its condition is about the element that an iteration reads",
    "split_value": UNUSED,
    "store_nontemporal": UNUSED,
    "tensorize": "which instruction fits, and its fields, follow from extents",
    "vthread": "threads do consecutive iterations, in an order that the factors decide",
}
