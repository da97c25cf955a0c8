"""Random applications of schedule primitives, and parameters packed as a schedule wants them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_expr import Draws
from strategies_instructions import INSTRUCTIONS

from tilewright.analyze.accesses import accesses
from tilewright.base.errors import ScheduleError
from tilewright.ir.evaluate import poisoned
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Accumulate, Alloc, For, Store, walk_statements
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.core.state import Loop
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule

TRIED = 12  # arguments of one primitive, to find some that it takes


@dataclass(frozen=True)
class Application:
    """One primitive with its arguments; `str` says it as a trace would."""

    primitive: str
    arguments: tuple[Any, ...]

    def __call__(self, s: Schedule) -> Any:
        return getattr(s, self.primitive)(*self.arguments)

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join(map(str, self.arguments))})"


@st.composite
def applications(draw: Callable[..., Any], s: Schedule) -> Application | None:
    """A primitive applied to what the program has now; None where there is nothing to apply it to.
    Many are legal, some are not."""
    d = Draws(draw)
    return application(d, s, d.pick(primitives()))


def primitives() -> tuple[str, ...]:
    """The names of what is applied."""
    return tuple(_ARGUMENTS)


def application(d: Draws, s: Schedule, name: str) -> Application | None:
    """One primitive, with arguments drawn."""
    arguments = _ARGUMENTS[name](d, s)
    return None if arguments is None else Application(name, arguments)


Arguments = tuple[Any, ...] | None


def _loop(d: Draws, s: Schedule) -> Loop | None:
    loops = s.loops()
    return d.pick(loops) if loops else None


def _one_loop(d: Draws, s: Schedule) -> Arguments:
    loop = _loop(d, s)
    return None if loop is None else (loop,)


def _bind(d: Draws, s: Schedule) -> Arguments:
    loop = _loop(d, s)
    return None if loop is None else (loop, "thread")


def _split(d: Draws, s: Schedule) -> Arguments:
    loop = _loop(d, s)
    return None if loop is None else (loop, d.int(1, 5), d.pick(tuple(Tail)))


def _inner(d: Draws, s: Schedule, loop: Loop) -> list[Loop]:
    """The loops inside of a loop."""
    return [Loop(x.var) for x in walk_statements(s.for_(loop).body) if isinstance(x, For)]


def _fuse(d: Draws, s: Schedule) -> Arguments:
    outer = _loop(d, s)
    inner = _inner(d, s, outer) if outer is not None else []
    return (outer, inner[0] if d.int(0, 3) else d.pick(s.loops())) if inner else None


def _reorder(d: Draws, s: Schedule) -> Arguments:
    outer = _loop(d, s)
    inner = _inner(d, s, outer) if outer is not None else []
    chosen = [outer, *inner[: d.int(0, len(inner))]]
    if not inner or len(chosen) < 2:
        return None
    for last in range(len(chosen) - 1, 0, -1):
        other = last - d.int(0, last)
        chosen[last], chosen[other] = chosen[other], chosen[last]
    return tuple(chosen)


def _allocated(d: Draws, s: Schedule) -> Buffer | None:
    found = list(s.allocations())
    return d.pick(found) if found else None


def _any_buffer(d: Draws, s: Schedule) -> Buffer:
    return d.pick([*s.allocations(), *s.kernel.outputs, *s.kernel.inputs])


def _written(d: Draws, s: Schedule) -> Buffer:
    return d.pick([*s.allocations(), *s.kernel.outputs])


def _inline(d: Draws, s: Schedule) -> Arguments:
    buffer = _allocated(d, s)
    return None if buffer is None else (buffer,)


def _reading(d: Draws, s: Schedule, buffers: Sequence[Buffer]) -> Arguments:
    """One of some buffers, and a loop, usually one around a read of it."""
    found = [
        (a.buffer, Loop(around.var))
        for a in accesses(s.kernel.body)
        if a.buffer in buffers and not a.writes
        for around in s.loops_around(a.stmt)
    ]
    loop = _loop(d, s)
    if not buffers or loop is None:
        return None
    return (d.pick(buffers), loop) if d.chance(6) or not found else d.pick(found)


def _compute_at(d: Draws, s: Schedule) -> Arguments:
    found = _reading(d, s, list(s.allocations()))
    return None if found is None else (*found, d.pick((False, True)))


def _reverse_compute_at(d: Draws, s: Schedule) -> Arguments:
    """An allocated buffer, and a loop around what writes it."""
    found = [
        (a.buffer, Loop(around.var))
        for a in accesses(s.kernel.body)
        if a.writes and a.buffer not in s.kernel.params
        for around in s.loops_around(a.stmt)
    ]
    return _mostly_accepted(d, s, "reverse_compute_at", found)


def _cache_read(d: Draws, s: Schedule) -> Arguments:
    found = _reading(d, s, [*s.kernel.inputs, *s.allocations(), *s.kernel.outputs])
    return None if found is None else (*found, "dram", (), d.pick((0, 0, 64)))


def _reduction(d: Draws, s: Schedule) -> Arguments:
    """A buffer that is accumulated, and a loop around that."""
    found = [
        (x.buffer, Loop(around.var))
        for x in walk_statements(s.kernel.body)
        if isinstance(x, Accumulate)
        for around in s.loops_around(x)
    ]
    return d.pick(found) if found else None


def _reduced(d: Draws, s: Schedule) -> Arguments:
    found = _reduction(d, s)
    return None if found is None else found[:1]


def _peel(d: Draws, s: Schedule) -> Arguments:
    loop = _loop(d, s)
    return None if loop is None else (loop, d.pick((1, -1, 2, -2)))


def _multi_buffer(d: Draws, s: Schedule) -> Arguments:
    allocs = [x for x in walk_statements(s.kernel.body) if isinstance(x, Alloc)]
    if not allocs:
        return None
    alloc = d.pick(allocs)
    around = [Loop(x.var) for x in s.loops_around(alloc)]
    return (alloc.buffer, around[-d.int(1, 2) :], d.int(1, 3)) if around else None


def _mostly_accepted(d: Draws, s: Schedule, name: str, found: list[tuple]) -> Arguments:
    """One of `found`; usually one that the primitive takes, if there is any."""
    if d.chance(3):
        return d.pick(found) if found else None
    return next(
        (x for x in _rotated(d, found) if _accepts(s, name, x)), found[0] if found else None
    )


def _rotated(d: Draws, found: list[tuple]) -> list[tuple]:
    start = d.int(0, len(found) - 1) if found else 0
    return found[start:] + found[:start]


def _accepts(s: Schedule, name: str, arguments: tuple[Any, ...]) -> bool:
    try:
        Application(name, arguments)(Schedule(s.kernel))
    except ScheduleError:
        return False
    return True


def _ring_buffer(d: Draws, s: Schedule) -> Arguments:
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    depth, at_once = d.pick((None, 4)), d.pick((False, True))
    found = [
        (x.buffer, Loop(loop.var), depth, at_once)
        for loop in loops
        for x in loop.body
        if isinstance(x, Alloc)
    ]
    return _mostly_accepted(d, s, "ring_buffer", found)


def _vthread(d: Draws, s: Schedule) -> Arguments:
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    loops = [x for x in loops if len(x.body) > 1] or loops
    if not loops:
        return None
    loop = d.pick(loops)
    inner = [x for x in loop.body if isinstance(x, For)]
    through = (Loop(d.pick(inner).var),) if inner and d.chance(2) else ()
    return (Loop(loop.var), d.int(1, 4), through)


def _sink(d: Draws, s: Schedule) -> Arguments:
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    found = [(Loop(x.var), Loop(y.var)) for x in loops for y in x.body if isinstance(y, For)]
    return _mostly_accepted(d, s, "sink", found)


def _split_value(d: Draws, s: Schedule) -> Arguments:
    path = tuple(d.int(0, 1) for _ in range(d.int(0, 2)))
    found = [(loop, path) for loop in s.loops()]
    return _mostly_accepted(d, s, "split_value", found)


def _hoist(d: Draws, s: Schedule) -> Arguments:
    """A buffer that a loop allocates, and the loop."""
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    found = [(a.buffer, Loop(x.var)) for x in loops for a in x.body if isinstance(a, Alloc)]
    return _mostly_accepted(d, s, "hoist", found)


def _init_with(d: Draws, s: Schedule) -> Arguments:
    return _mostly_accepted(d, s, "init_with", [(b,) for b in s.allocations()])


def _skip_zeros(d: Draws, s: Schedule) -> Arguments:
    return _mostly_accepted(d, s, "skip_zeros", [(loop,) for loop in s.loops()])


def _reuse(d: Draws, s: Schedule) -> Arguments:
    buffers = list(s.allocations())
    found = [(a, b) for a in buffers for b in buffers if a != b]
    return _mostly_accepted(d, s, "reuse", found)


def _tensorize(d: Draws, s: Schedule) -> Arguments:
    """An innermost loop, and an instruction for elements of the type that it writes."""
    found = []
    for loop in (x for x in walk_statements(s.kernel.body) if isinstance(x, For)):
        last = loop.body[-1] if loop.body else None
        if isinstance(last, Store | Accumulate):
            fits = [x for x in INSTRUCTIONS if x.operands[-1].dtype == last.buffer.dtype]
            found += [(Loop(loop.var), x) for x in fits]
    return _mostly_accepted(d, s, "tensorize", found[:TRIED])


def _pipeline(d: Draws, s: Schedule) -> Arguments:
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    loops = [x for x in loops if len(x.body) > 1] or loops
    if not loops:
        return None
    loop = d.pick(loops)
    count = sum(not isinstance(x, Alloc) for x in loop.body)
    stages = [0] * count
    for position in range(1, count):
        stages[position] = stages[position - 1] + d.int(0, 1)
    if d.chance(4) and count > 1:
        stages.reverse()
    return (Loop(loop.var), tuple(stages))


@st.composite
def layouts(draw: Callable[..., Any], rank: int) -> Layout:
    """Any order of the axes, perhaps with blocks."""
    return _layout(Draws(draw), rank)


def _layout(d: Draws, rank: int) -> Layout:
    order = list(range(rank))
    for last in range(rank - 1, 0, -1):
        other = last - d.int(0, last)
        order[last], order[other] = order[other], order[last]
    count = d.int(0, 2) if rank else 0
    blocks = tuple((d.int(0, rank - 1), d.int(2, 4)) for _ in range(count))
    return Layout(tuple(order), blocks)


def _pack_layout(d: Draws, s: Schedule) -> Arguments:
    buffer = _any_buffer(d, s)
    rank = len(buffer.shape)
    return None if rank > 3 else (buffer, _layout(d, rank))


def _pad(d: Draws, s: Schedule) -> Arguments:
    loops = [(loop, d.int(2, 4)) for loop in s.loops()]
    return _mostly_accepted(d, s, "pad", loops)


def _pad_buffer(d: Draws, s: Schedule) -> Arguments:
    buffer = _allocated(d, s)
    if buffer is None:
        return None
    return (buffer, d.int(0, max(0, len(buffer.shape) - 1)), d.int(1, 4))


def _annotate(d: Draws, s: Schedule) -> Arguments:
    loop = _loop(d, s)
    return None if loop is None else (loop, d.pick(("unit", "unroll")), d.pick(("dma", 4, True)))


def _set_memory(d: Draws, s: Schedule) -> Arguments:
    buffer = _allocated(d, s)
    return None if buffer is None else (buffer, d.pick(("sram", "register")))


def _prefetch(d: Draws, s: Schedule) -> Arguments:
    """A parameter that is read in a loop, and a loop inside of that."""
    found = [
        (a.buffer, Loop(outer.var), Loop(inner.var), d.int(1, 3))
        for a in accesses(s.kernel.body)
        if not a.writes and a.buffer in s.kernel.params
        for around in [s.loops_around(a.stmt)]
        for k, outer in enumerate(around)
        for inner in around[k:]
    ]
    return _mostly_accepted(d, s, "prefetch", found[:TRIED])


def _store_nontemporal(d: Draws, s: Schedule) -> Arguments:
    return (d.pick(s.kernel.outputs),)


def _cache_write(d: Draws, s: Schedule) -> Arguments:
    return (_written(d, s),)


_ARGUMENTS: dict[str, Callable[[Draws, Schedule], Arguments]] = {
    "split": _split,
    "reorder": _reorder,
    "vectorize": _one_loop,
    "parallel": _one_loop,
    "bind": _bind,
    "fuse": _fuse,
    "unroll": _one_loop,
    "compute_at": _compute_at,
    "reverse_compute_at": _reverse_compute_at,
    "inline": _inline,
    "split_init": _reduced,
    "cache_write": _cache_write,
    "cache_read": _cache_read,
    "rfactor": _reduction,
    "peel": _peel,
    "fold_init": _reduction,
    "multi_buffer": _multi_buffer,
    "ring_buffer": _ring_buffer,
    "vthread": _vthread,
    "pipeline": _pipeline,
    "sink": _sink,
    "split_value": _split_value,
    "reuse": _reuse,
    "hoist": _hoist,
    "init_with": _init_with,
    "skip_zeros": _skip_zeros,
    "tensorize": _tensorize,
    "pack_layout": _pack_layout,
    "set_memory": _set_memory,
    "annotate": _annotate,
    "keep_whole": _one_loop,
    "prefetch": _prefetch,
    "store_nontemporal": _store_nontemporal,
    "pad": _pad,
    "pad_buffer": _pad_buffer,
}


# ---------------------------------------------------------------- arrangements in memory


def packed(layout: Layout, array: np.ndarray, dtype: Any) -> np.ndarray:
    """The array as it lies in memory; what pads it is poisoned."""
    extents = [-(-n // layout.factor(a)) * layout.factor(a) for a, n in enumerate(array.shape)]
    padded = poisoned(tuple(extents), dtype)
    padded[tuple(map(slice, array.shape))] = array
    return _blocked(layout, padded)


def unpacked(layout: Layout, memory: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The logical array that `memory` holds."""
    extents = [-(-n // layout.factor(a)) * layout.factor(a) for a, n in enumerate(shape)]
    places = _blocked(layout, np.arange(math.prod(extents)).reshape(extents))
    whole = np.empty(math.prod(extents), memory.dtype)
    whole[places.reshape(-1)] = memory.reshape(-1)
    return whole.reshape(extents)[tuple(map(slice, shape))]


def _blocked(layout: Layout, array: np.ndarray) -> np.ndarray:
    """A permutation of the elements: blocks cut off their axes and put innermost."""
    parts: list[tuple[int, list[int]]] = []  # for each axis: its extents, outermost first
    for axis, n in enumerate(array.shape):
        factors = [f for a, f in layout.blocks if a == axis]
        parts.append((axis, [n // layout.factor(axis), *factors]))
    split = array.reshape([n for _, sizes in parts for n in sizes])
    first, at = {}, 0
    for axis, sizes in parts:
        first[axis], at = at, at + len(sizes)
    used = dict.fromkeys(first, 0)
    order = [first[axis] for axis in layout.order]
    for axis, _ in layout.blocks:
        used[axis] += 1
        order.append(first[axis] + used[axis])
    return split.transpose(order).copy()


Layouts = Mapping[str, Sequence[Layout]]


def packed_inputs(
    buffers: Sequence[Buffer], arrays: Sequence[np.ndarray], applied: Layouts
) -> list[np.ndarray]:
    """Arrays for the inputs of a schedule that packed them, layout after layout."""
    found = []
    for buffer, array in zip(buffers, arrays, strict=True):
        for layout in applied.get(buffer.name, ()):
            array = packed(layout, array, buffer.dtype)
        found.append(array)
    return found


def unpacked_outputs(
    buffers: Sequence[Buffer],
    arrays: Sequence[np.ndarray],
    applied: Layouts,
    shapes: Sequence[tuple[int, ...]],
) -> list[np.ndarray]:
    """The logical arrays (of `shapes`) in the outputs of a schedule that packed them."""
    found = []
    for buffer, array, shape in zip(buffers, arrays, shapes, strict=True):
        steps = [(layout, shape) for layout in applied.get(buffer.name, ())[:1]]
        for layout in applied.get(buffer.name, ())[1:]:
            before, extents = steps[-1]
            steps.append((layout, before.physical_shape(extents)))
        for layout, extents in reversed(steps):
            array = unpacked(layout, array, [int(n) for n in extents])
        found.append(array)
    return found
