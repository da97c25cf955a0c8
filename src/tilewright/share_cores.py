"""Kernels on chips of several cores: built for one core, which has its part of what the cores have
in common, and run by all of them at the same time, each on its part of the arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.backends.stream.addresses import bytes_of
from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.chip_kernel import ChipKernel, proven_stream
from tilewright.ir.expr import Buffer, Dim, Expr, Load, as_dim, const
from tilewright.ir.loop import Alloc, Kernel, walk_statements
from tilewright.ir.substitute import rewrite, substitute
from tilewright.ir.tensor import stages
from tilewright.ir.tensor_type import Layout
from tilewright.plan.bound import ContractionBound
from tilewright.plan.core_split import CoreSplit, core_splits
from tilewright.plan.unit_form import MadeArray, UnitForm, composed, made, sizes_of
from tilewright.target.cores import one_core
from tilewright.target.target import Target

Build = Callable[[Kernel, Target], ChipKernel]
Expect = Callable[[Kernel, Target], float]  # cycles, by the model that chooses tiles

BUILT = 2  # ways to share a kernel that are built
GAIN = 0.98  # of the cycles of the fastest, that another way has to be expected to take
ENOUGH = 0.9  # of what no schedule beats: other ways are not looked at
FEWER = 0.5  # the same, for ways in which some cores do nothing
REFUSALS = (CompileError, ScheduleError, TargetError)


def build_on_cores(
    kernel: Kernel,
    target: Target,
    build: Build,
    expect: Expect,
    bound: ContractionBound | None,
    parameters: Sequence[str],
) -> ChipKernel:
    """A kernel on all cores of a chip, in the fastest of the ways to share it; on one of them where
    it cannot be shared, or where that is as fast. `build` builds what a core does, `expect` says
    what that is expected to take, `bound` what all of the kernel takes at least on one core, where
    that is known."""
    of_all = None if bound is None else bound.shared(target.cores)
    best = _Ways(kernel, target, build, expect, tuple(parameters)).fastest(of_all)
    alone = expect(kernel, one_core(target)) if bound is None else bound.cycles
    if best is None or alone < GAIN * best.cycles:
        built = build(kernel, one_core(target))
        built = replace(built, target=target, parameters=tuple(parameters))
        best = built if best is None or built.cycles <= best.cycles else best
    return replace(best, bound=of_all)


@dataclass(frozen=True)
class _Ways:
    """The ways to share a kernel."""

    kernel: Kernel
    target: Target
    build: Build
    expect: Expect
    parameters: tuple[str, ...]

    def fastest(self, bound: ContractionBound | None) -> ChipKernel | None:
        """The kernel in the fastest of them, or one that is near the bound; None if there is
        none."""
        all_work, best = list(core_splits(self.kernel, self.target.cores)), None
        fewer = (w for n in range(2, self.target.cores) for w in core_splits(self.kernel, n))
        groups = (*_likely_first(all_work), (w for w in fewer if w.is_even))
        for ways, enough in zip(groups, (1.0, ENOUGH, FEWER), strict=True):
            if best and bound and bound.cycles >= enough * best.cycles:
                break
            best = self._fastest_of([*ways], best)
        return best

    def _fastest_of(self, ways: Sequence[CoreSplit], best: ChipKernel | None) -> ChipKernel | None:
        """The kernel in the fastest of some of them, or the best that is known."""
        count = 0
        for cycles, way in self._expected(ways):
            if count >= BUILT or (best is not None and cycles >= GAIN * _expected_of(best)):
                break
            try:
                part = self.build(way.part, one_core(self.target, way.cores))
                found = _on_all(part, way, self.kernel, self.target, self.parameters)
            except REFUSALS:
                continue
            count += 1
            best = found if best is None or found.cycles < best.cycles else best
        return best

    def _expected(self, ways: Sequence[CoreSplit]) -> list[tuple[float, CoreSplit]]:
        """Those of which a core does its part, with the cycles that are expected, fastest first."""
        found: list[tuple[float, CoreSplit]] = []
        for way in ways:
            try:
                found.append((self.expect(way.part, one_core(self.target, way.cores)), way))
            except REFUSALS:
                continue
        return sorted(found, key=lambda each: each[0])


def _expected_of(built: ChipKernel) -> float:
    """What was expected of what is built, if it is faster than that: so may others be."""
    return max(built.cycles, built.predicted or 0.0)


def _likely_first(ways: Sequence[CoreSplit]) -> Iterator[list[CoreSplit]]:
    """The ways to share a kernel than which none has both less work for a core and fewer bytes for
    all; then the others, which may suit a chip's units better."""
    cost = {w: (w.work, w.bytes) for w in ways}

    def is_beaten(way: CoreSplit) -> bool:
        mine = cost[way]
        return any(c != mine and c[0] <= mine[0] and c[1] <= mine[1] for c in cost.values())

    yield [w for w in ways if not is_beaten(w)]
    yield [w for w in ways if is_beaten(w)]


# ---------------------------------------------------------------- what a core does, on all of them


def _on_all(
    part: ChipKernel, split: CoreSplit, kernel: Kernel, target: Target, parameters: Sequence[str]
) -> ChipKernel:
    """What is built for one core as all run it, on arrays with axes for the cores."""
    along = _along(part.form, split)
    part = _with_addresses(part, along, target)
    scheduled = _with_axes(part.kernel, along, split)
    moved = {
        b: np.array(split.places(along[b.name]), np.int64) * bytes_of(old)
        for b, old in zip(scheduled.params, part.kernel.params, strict=True)
    }
    local = {s.buffer for s in walk_statements(scheduled.body) if isinstance(s, Alloc)}
    constants = {b: a for b, a in part.stream.constants.items() if b in local}
    made_stream = proven_stream(scheduled, target, constants, moved=moved)
    axes = {name: len(found) for name, found in along.items()}
    return ChipKernel(
        kernel,
        composed(split.form, _form_with_axes(part.form, along, split)),
        _with_axes(part.filled, along, split),
        scheduled,
        target,
        *made_stream,
        tuple(parameters),
        {name: _further_in(layout, axes[name]) for name, layout in part.layouts.items()},
        {n: replace(b, before=(0,) * axes[n] + b.before) for n, b in part.borders.items()},
        predicted=part.predicted,
        tile=part.tile,
        expect=_expect(part, split),
    )


def _with_addresses(
    part: ChipKernel, along: Mapping[str, tuple[int, ...]], target: Target
) -> ChipKernel:
    """What a core does, with room behind its parts of arrays, so that the next core's begins at an
    address of the chip's."""
    for held in (b for b in part.kernel.params if along[b.name]):
        filled = next(b for b in part.filled.params if b.name == held.name)
        layout = part.layouts.get(held.name, Layout((*range(len(filled.shape)),)))
        outermost, *inner = (int(as_dim(n)) for n in layout.physical_shape(filled.shape))
        step, unit = math.prod(inner) * held.dtype.bytes, target.alignment(held.memory)
        longer = outermost + -outermost % (unit // math.gcd(step, unit))
        if longer == outermost:
            continue
        if held.shape not in ((outermost, *inner), (math.prod(inner) * outermost,)):
            raise ScheduleError(f"{held.name} has no room for addresses of {unit} bytes")
        shape = list(filled.shape)
        shape[layout.order[0]] = longer * layout.factor(layout.order[0])
        flat = len(held.shape) == 1
        physical = (longer * math.prod(inner),) if flat else (longer, *inner)
        part = replace(
            part,
            filled=_with_shape(part.filled, filled, tuple(shape)),
            kernel=_with_shape(part.kernel, held, physical),
        )
    return part


def _with_shape(kernel: Kernel, old: Buffer, shape: tuple[Dim, ...]) -> Kernel:
    """A kernel with another shape of a parameter, of which it uses as much."""
    new = old.with_(shape=shape)
    inputs, outputs = (
        tuple(new if b == old else b for b in params) for params in (kernel.inputs, kernel.outputs)
    )
    body = rewrite_accesses(kernel.body, old, new, lambda at: at)
    return kernel.with_(inputs=inputs, outputs=outputs, body=body)


def _expect(part: ChipKernel, split: CoreSplit) -> Callable[[Target], float | None] | None:
    expect = part.expect
    if expect is None:
        return None
    return lambda chip: expect(one_core(chip, split.cores))


def _along(form: UnitForm, split: CoreSplit) -> dict[str, tuple[int, ...]]:
    """The shared loops of which a form's parameters have parts, by name."""
    found = {}
    for b in form.kernel.params:
        sources = form.made[b.name].sources if b.name in form.made else (b.name,)
        found[b.name] = tuple(sorted({k for n in sources for k in split.along[n]}))
    return found


def _shape(buffer: Buffer, along: Mapping[str, tuple[int, ...]], split: CoreSplit) -> Buffer:
    """A parameter with the axes of all cores' parts."""
    counts = (split.loops[k].count for k in along[buffer.name])
    return buffer.with_(shape=(*counts, *buffer.shape))


def _with_axes(kernel: Kernel, along: Mapping[str, tuple[int, ...]], split: CoreSplit) -> Kernel:
    """A kernel of a core, with all cores' arrays for its parameters, of which it has the first."""
    body = kernel.body
    inputs, outputs = (
        tuple(_shape(b, along, split) for b in params) for params in (kernel.inputs, kernel.outputs)
    )
    for old, new in zip(kernel.params, (*inputs, *outputs), strict=True):
        first = (const(0),) * len(along[old.name])
        body = rewrite_accesses(body, old, new, partial(_behind, first))
    return kernel.with_(inputs=inputs, outputs=outputs, body=body)


def _behind(first: tuple[Expr, ...], at: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (*first, *at)


def _form_with_axes(
    form: UnitForm, along: Mapping[str, tuple[int, ...]], split: CoreSplit
) -> UnitForm:
    """How all cores' arrays are made of those of `split.form`, and its result of theirs."""
    of_form = {b.name: b for b in split.form.kernel.params}
    inputs = {
        name: _made_for_all(array, along[name], of_form, split.along, split)
        for name, array in form.made.items()
    }
    held = {b.name: _shape(b, along, split) for b in form.kernel.outputs}
    results = {
        name: _made_for_all(array, split.along[name], held, along, split)
        for name, array in form.results.items()
    }
    return UnitForm(_with_axes(form.kernel, along, split), inputs, results)


def _made_for_all(
    array: MadeArray, along: tuple[int, ...], sources: Mapping[str, Buffer],
    of_sources: Mapping[str, tuple[int, ...]], split: CoreSplit,
) -> MadeArray:  # fmt: skip
    """An array with axes for cores, where one core's is made so of its arrays."""
    if array.program is None:
        return array
    (stage,) = stages(array.program.items)
    given = [sources[n] for n in array.sources]

    def value(*at: Expr) -> Expr:
        cores = dict(zip(along, at, strict=False))
        names: dict[Expr, Expr] = dict(
            zip((a.var for a in stage.axes), at[len(along) :], strict=True)
        )

        def read(e: Expr) -> Expr:
            if not isinstance(e, Load) or e.buffer.name not in sources:
                return e
            first = (cores[k] for k in of_sources[e.buffer.name])
            return Load(sources[e.buffer.name], (*first, *e.indices))

        return rewrite(substitute(stage.value, names), read)  # which are called alike

    (out,) = array.program.outputs
    counts = (split.loops[k].count for k in along)
    return made(out.name, (*counts, *sizes_of(out)), given, value)


def _further_in(layout: Layout, axes: int) -> Layout:
    """A layout behind so many axes."""
    return Layout(
        (*range(axes), *(d + axes for d in layout.order)),
        tuple((d + axes, n) for d, n in layout.blocks),
    )
