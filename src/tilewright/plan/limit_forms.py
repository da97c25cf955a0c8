"""Limits that no instruction has, as sums that are cut off where the type ends, for chips that
multiply and add element by element:

    z: i8 = max(min(v, 96), 0)  ->  n: i8 = limited(v)
                                    t: i8 = limited(up + n * one)        up: 31
                                    z: i8 = limited(down + t * one, 0)   down: -31

limited(x) is x between the limits of the type, as instructions have them that narrow: n + 31 is at
most 127, so that t - 31 is at most 96. A lower limit is met likewise, by a sum that is cut off
below. `one`, `up` and `down` are arrays, which instructions take. Behind a contraction, limits are
a kernel of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.analyze.nests import Nest, factors, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.base.dtype import DType, i32
from tilewright.ir.expr import (
    DRAM,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Expr,
    Load,
    Symbol,
    Var,
    binary,
    cast,
    const,
)
from tilewright.ir.loop import Accumulate, Kernel
from tilewright.plan.element_writes import write_of
from tilewright.plan.fit_operators import widened
from tilewright.plan.narrowing_limits import between, limits
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, made
from tilewright.plan.units import has_contraction
from tilewright.target.target import Target

Limits = tuple[int, int]
SUMS = i32  # of products of elements with fewer bits


def limits_apart(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """A kernel in normal form that makes sums of products with its one result between the limits of
    its type, and one that has the other limits of the result; None where it has none."""
    result = _result(kernel)
    found = _limited_value(result, SUMS) if result is not None else None
    if result is None or found is None or not has_contraction(kernel):
        return None
    value, (low, high) = found
    store, dtype = result.store, result.buffer.dtype
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    array = result.buffer.with_(name=fresh(f"{result.buffer.name}_narrowed", names), memory=DRAM)
    narrowed = between(value, int(dtype.min), int(dtype.max), dtype)
    body = replace_in(kernel.body, store, store.with_(buffer=array, value=narrowed))
    limited = between(cast(SUMS, Load(array, store.indices)), low, high, dtype)
    after = replace_in((result.stmt,), store, store.with_(value=limited))
    return (
        kernel.with_(name=f"{kernel.name}_1", outputs=(array,), body=body),
        kernel.with_(name=f"{kernel.name}_2", inputs=(array,), scratch=(), body=after),
    )


def _result(kernel: Kernel) -> Nest | None:
    """The nest of a kernel's only result, which is no reduction."""
    found = [n for n in nests(kernel.body) if n.buffer in kernel.outputs]
    return found[0] if len(found) == 1 and found[0].update is None else None


def limit_form(kernel: Kernel, target: Target) -> UnitForm | None:
    """A kernel in normal form with those limits of its one result by sums that are cut off which
    instructions that narrow do not have. None where these have all, where no instruction multiplies
    and adds element by element, or behind a contraction: its sums may lie otherwise than arrays."""
    result = _result(kernel)
    if result is None or has_contraction(kernel):
        return None
    sums = next((t for kind, t in _multiply_and_add(target) if kind == result.buffer.dtype), None)
    found = _limited_value(result, sums) if sums is not None else None
    if sums is None or found is None:
        return None
    value, (low, high) = found
    dtype = result.buffer.dtype
    of_type = int(dtype.min), int(dtype.max)
    chosen = {op for e in _narrowed(target, dtype) for op in _chosen(e)}
    of_sums = (of_type[0] if BinaryOp.MAX in chosen else low,
               of_type[1] if BinaryOp.MIN in chosen else high)  # fmt: skip
    if of_sums == of_type:
        return None
    steps = list(_steps(of_sums, (low, high), of_type))
    return _Limited(kernel, result, sums).form(value, steps)


def _narrowed(target: Target, dtype: DType) -> Iterator[Expr]:
    """What instructions narrow to a type."""
    for instruction in target.instructions:
        write = write_of(instruction)
        if write is not None and isinstance(write.value, Cast) and write.value.dtype == dtype:
            yield write.value.a


def _chosen(e: Expr) -> Iterator[BinaryOp]:
    """The limits, of those around a value, that a field of an instruction says."""
    while isinstance(e, Binary) and e.op in (BinaryOp.MIN, BinaryOp.MAX):
        if any(isinstance(x, Symbol) for x in e.b.walk()):
            yield e.op
        e = e.a


def _multiply_and_add(target: Target) -> Iterator[tuple[DType, DType]]:
    """The types of elements that instructions multiply element by element, and of their sums."""
    for instruction in target.instructions:
        write = write_of(instruction)
        pair = factors(write.value) if isinstance(write, Accumulate) else None
        if write is not None and pair is not None and pair[0].dtype == pair[1].dtype:
            yield pair[0].dtype, write.buffer.dtype


def _limited_value(result: Nest, sums: DType) -> tuple[Expr, Limits] | None:
    """What a result is between limits of its own, in the type of sums, and these; None where it has
    none."""
    value, dtype = result.store.value, result.buffer.dtype
    if not dtype.is_integer or dtype.bits >= sums.bits:
        return None
    wide: Expr | None = value.a if isinstance(value, Cast) else None
    if wide is None:
        found = widened(value, sums)
        wide = found[0] if found is not None and found[1] else None
    if wide is None or wide.dtype != sums:
        return None
    x, low, high = limits(wide)
    least, most = int(dtype.min), int(dtype.max)
    low, high = least if low is None else low, most if high is None else high
    own = least <= low <= high <= most and (low, high) != (least, most)
    return (x, (low, high)) if own else None


@dataclass(frozen=True)
class _Step:
    """A sum with a number, between limits."""

    added: int
    low: int
    high: int


def _steps(of_sums: Limits, wanted: Limits, of_type: Limits) -> Iterator[_Step]:
    """Sums, one after the other, of which those ends that are `of_sums` are cut off where the type
    ends; the last one has the other limits that are `wanted`."""
    (low, high), (least, most) = of_sums, of_type
    up, down = most - high, low - least
    if up:
        yield _Step(up, least, most)
    if down:
        yield _Step(-up - down, least, most)
    last = (least if down else wanted[0], most if up else wanted[1])
    yield _Step(down or -up, *last)


@dataclass
class _Limited:
    """A kernel with sums in the place of limits, of arrays of one number."""

    kernel: Kernel
    result: Nest
    sums: DType
    arrays: dict[str, MadeArray] = field(default_factory=dict)
    inputs: list[Buffer] = field(default_factory=list)

    def form(self, value: Expr, steps: Sequence[_Step]) -> UnitForm:
        """The form of a kernel whose result is of a value. A sum of products that is still to be
        found takes the first number with it."""
        kind = self.result.buffer.dtype
        names = {x.name for x in self.kernel.walk() if isinstance(x, (Var, Buffer))}
        is_element = isinstance(value, Cast) and value.a.dtype == kind
        one = self._array("one", 1, kind, names)
        if not is_element:
            value = cast(self.sums, between(value, int(kind.min), int(kind.max), kind))
        for k, step in enumerate(steps):
            if k == 0 and is_element:
                total: Expr = value + const(step.added, self.sums)
            else:
                moved = self._array("moved", step.added, self.sums, names)
                total = binary(BinaryOp.ADD, moved, value * cast(self.sums, one))
            narrow = between(total, step.low, step.high, kind)
            value = cast(self.sums, narrow)
        store = self.result.store
        body = replace_in(self.kernel.body, store, store.with_(value=narrow))
        kernel = self.kernel.with_(inputs=(*self.kernel.inputs, *self.inputs), body=body)
        return UnitForm(kernel, self.arrays)

    def _array(self, name: str, number: int, dtype: DType, names: set[str]) -> Load:
        """An array of one number."""
        array = Buffer(fresh(name, names), dtype, (1,))
        self.inputs.append(array)
        values = made(f"{array.name}_values", (1,), [], lambda _: const(number, dtype))
        self.arrays[array.name] = values
        return Load(array, (const(0),))
