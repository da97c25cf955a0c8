"""What passes between kernels of one stream: where each element of it lies, and whether those that
read it look there.

Whether they do is not argued but compared, element by element: where a piece's result puts each
element of an array, and where the next piece looks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer, Dim, Expr, const
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.movement import flatten_index, split_index
from tilewright.optimize.arrange import read_arranged
from tilewright.plan.borders import Border
from tilewright.plan.split_kernel import Join
from tilewright.plan.unit_form import sizes_of


class MadeOtherwise(ScheduleError):
    """A piece does not take an array as it was made."""


class OtherOrder(MadeOtherwise):
    """A piece takes an array in another order than it was made in."""


class PartsApart(MadeOtherwise):
    """Parts of an array do not lie in memory so that they can be side by side."""


@dataclass(frozen=True)
class PartPlace:
    """Where an array lies in another, as both lie in memory: from `begin` on along an axis."""

    whole: str
    axis: int
    begin: int


class PassedArrays:
    """Arrays that pass between pieces, by their names: each in `buffers` as it lies in memory,
    parts of others (`joins`) as if they were alone. Of some, readers want more `room` than there
    are elements, for what fills their loops up."""

    def __init__(
        self,
        borders: Mapping[str, Border],
        room: Mapping[str, int] = MappingProxyType({}),
        joins: Sequence[Join] = (),
    ) -> None:
        self.borders, self.room, self.joins = borders, room, joins
        self.parts = {name for join in joins for name in join.parts}
        self.buffers: dict[str, Buffer] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}  # in memory
        self.layouts: dict[str, Layout | None] = {}  # where elements are only arranged
        self.part_places: dict[str, PartPlace] = {}
        self.places: dict[str, np.ndarray] = {}  # of its elements: numbers in memory
        self.constants: dict[Buffer, np.ndarray] = {}  # what borders hold

    def add(self, chip: ChipKernel, name: str) -> Buffer:
        """What a piece makes for others: a row of all that lies in memory, since what reads it may
        have other axes."""
        (result,) = chip.kernel.outputs
        size = math.prod(sizes_of(result))
        memory = np.arange(1, size + 1).reshape(sizes_of(result))
        self.places[name] = _traced(memory, result, lambda a: chip.read(result, a)) - 1
        self.shapes[name] = sizes_of(result)
        if result.name not in chip.form.results:
            self.layouts[name] = chip.layouts.get(result.name)
        made = self._with_room(name, result, size)
        for join in self.joins:
            if join.result.name not in self.buffers and all(p in self.buffers for p in join.parts):
                self._join(join)
        return made

    def _join(self, join: Join) -> None:
        """An array of which all parts are made. ScheduleError if they cannot lie side by side."""
        name, shapes = join.result.name, [self.shapes[p] for p in join.parts]
        axes = self._axes(join)
        pairs = list(zip(shapes, axes, strict=False))
        beside = {(math.prod(s[:a]), math.prod(s[a + 1 :])) for s, a in pairs}
        memories = {self.buffers[p].memory for p in join.parts}
        if len(pairs) < len(shapes) or len(beside) > 1 or len(memories) > 1:
            raise PartsApart(
                f"the parts of {name} lie in memory as {' and '.join(map(str, shapes))}, which"
                " cannot be side by side",
                hint="make kernels of them: the host can put them into one array",
            )
        outer, axis, inner = shapes[0][: axes[0]], axes[0], shapes[0][axes[0] + 1 :]
        placed, begin, extent = [], 0, 0
        for part, shape, along, size in zip(join.parts, shapes, axes, join.sizes, strict=True):
            # As many axes as the first has; behind its own places there may be room for others.
            held = self.shapes[part] = (*outer, shape[along], *inner)
            at = list(np.unravel_index(np.take(self.places[part], range(size), join.axis), held))
            self.part_places[part] = PartPlace(name, axis, begin)
            end = begin + int(at[axis].max()) + 1
            at[axis] = at[axis] + begin
            placed.append(at)
            begin, extent = end, max(end, shape[along])
        whole = (*outer, extent, *inner)
        if math.prod(outer) > 1 and any(self.shapes[p] != whole for p in join.parts):
            raise PartsApart(  # instructions have fields for the steps from row to row
                f"between the rows of the parts of {name} is no room for those of the others"
            )
        self.shapes[name] = whole
        self.places[name] = np.concatenate(
            [np.ravel_multi_index(at, whole) for at in placed], join.axis
        )
        if join.parts[0] in self.layouts:
            self.layouts[name] = self.layouts[join.parts[0]]
        self._with_room(name, self.buffers[join.parts[0]], math.prod(whole))

    def _axes(self, join: Join) -> list[int]:
        """The axis of each part in memory along which they are to be side by side; fewer where that
        is not known."""
        found = {p: self._axis(p, join.axis) for p in join.parts}
        behind = {p: math.prod(self.shapes[p][a + 1 :]) for p, a in found.items() if a is not None}
        axes = []
        for part, axis in found.items():
            shape = self.shapes[part]
            if behind.get(part) != max(behind.values(), default=0):  # it has one block, or place
                sizes = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
                ones = (d for d, n in enumerate(sizes) if n == max(behind.values(), default=0))
                axis = next((d for d in ones if shape[d] == 1), None)
            axes += [] if axis is None else [axis]
        return axes

    def type_of(self, join: Join) -> TensorType:
        """An array of parts as it lies in memory. ScheduleError where no layout says that."""
        name = join.result.name
        layout = self.layouts.get(name)
        shape, held = list(sizes_of(join.result)), self.shapes[name]
        for k, axis in enumerate(range(len(shape)) if layout is None else layout.order):
            shape[axis] = held[k] * (1 if layout is None else layout.factor(axis))
        kind = TensorType(join.result.dtype, tuple(shape), layout)
        inside = tuple(slice(0, n) for n in sizes_of(join.result))
        if kind.physical_shape == held and name in self.layouts:
            memory = np.arange(math.prod(held)).reshape(held)
            if np.array_equal(read_arranged(memory, kind, tuple(shape))[inside], self.places[name]):
                return kind
        raise MadeOtherwise(f"{name} does not lie in memory as the host could read it")

    def _axis(self, part: str, axis: int) -> int | None:
        """The outermost axis in memory along which an axis of an array goes, as its layout says;
        where elements are moved besides, as they lie: None if there is one place."""
        if part in self.layouts:
            layout = self.layouts[part]
            return axis if layout is None else layout.order.index(axis)
        first = np.moveaxis(self.places[part], axis, 0).reshape(self.places[part].shape[axis], -1)
        along = np.unravel_index(first[:, 0], self.shapes[part])
        return next((d for d, at in enumerate(along) if len(set(at.tolist())) > 1), None)

    def row(self, name: str) -> Buffer:
        """What an array lies in: one that is no part of others."""
        while name in self.part_places:
            name = self.part_places[name].whole
        return self.buffers[name]

    def place(self, name: str, at: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
        """Where in that an element lies that is at this place of a buffer of this shape."""
        if name in self.part_places:
            at, shape = _reshaped(at, shape, self.shapes[name]), self.shapes[name]
        while name in self.part_places:
            part = self.part_places[name]
            at = tuple(i + part.begin if d == part.axis else i for d, i in enumerate(at))
            name, shape = part.whole, self.shapes[part.whole]
        return flatten_index(at, shape)

    def _with_room(self, name: str, made: Buffer, size: int) -> Buffer:
        room = size if name in self.parts else max(size, self.room.get(name, 0))
        new = self.buffers[name] = made.with_(name=name, shape=(room,))
        border = self.borders.get(name)
        if name not in self.parts and (border is not None or room > size):
            fill = 0 if border is None else border.fill
            self.constants[new] = np.full((room,), fill, new.dtype.numpy)
        return new

    def copy(self, made: str, name: str, memory: str) -> Buffer:
        """An array in another memory that lies there as one that was made before."""
        self.places[name] = self.places[made]
        inside = self.buffers[made]
        return self._with_room(name, inside.with_(memory=memory), math.prod(sizes_of(inside)))

    def places_of(self, names: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Where the elements lie of those parameters, which have these names in the whole kernel,
        that pass between pieces."""
        return {p: self.places[name] for p, name in names.items() if name in self.places}

    def check(self, chip: ChipKernel, names: Mapping[str, str]) -> None:
        """ScheduleError for a piece, whose parameters have these names in the whole kernel, that
        looks elsewhere for what another made."""
        for held in chip.kernel.inputs:
            array = chip.form.made.get(held.name)
            sources = (held.name,) if array is None else array.sources
            for source in sources:
                if names.get(source) in self.buffers:
                    self._check(chip, held, names[source])

    def _check(self, chip: ChipKernel, held: Buffer, name: str) -> None:
        new, places = self.buffers[name], self.places[name].reshape(-1)
        array = chip.form.made.get(held.name)
        if held.memory != new.memory:
            raise MadeOtherwise(
                f"{name} lies in {new.memory}, and {chip.target.name} would take it from"
                f" {held.memory}",
                program=chip.source,
            )
        if array is not None and len(array.sources) > 1:
            raise MadeOtherwise(
                f"{name} would have to lie in one array with others, as {chip.target.name} brings"
                " several of them at once",
                hint="make two kernels of it: the host can make one array of several",
            )
        sources = chip.form.kernel.inputs
        if array is not None and array.program is not None:
            sources = array.program.inputs
        wanted = next(
            b for b in sources if b.name in (held.name, *(array.sources if array else ()))
        )
        numbers = np.arange(1, places.size + 1)
        found = _traced(
            numbers.reshape(sizes_of(wanted)), held, lambda a: chip.arranged(held, {held.name: a})
        ).reshape(-1)
        outside = chip.target.memory(new.memory).size is None
        # What is behind holds one number, where no other part does.
        wide = found.shape > new.shape and outside and name not in self.parts
        fits = found.shape == new.shape or wide
        if not fits or not np.array_equal(found[places], numbers):
            raise OtherOrder(
                f"{name} is taken as {held}, and was made in another order",
                program=chip.source,
                hint="make two kernels of it: the host can rearrange what passes between them",
            )


def _reshaped(at: Sequence[Expr], shape: Sequence[Dim], to: Sequence[int]) -> Sequence[Expr]:
    """The place in an array of another shape with the same elements in a row."""
    if [n for n in shape if n != 1] != [n for n in to if n != 1]:
        return split_index(flatten_index(at, shape), to)
    left = iter([i for i, n in zip(at, shape, strict=True) if n != 1])
    return [const(0) if n == 1 else next(left) for n in to]


def _traced(
    numbers: np.ndarray, held: Buffer, move: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Numbers from 1 on as they are after what only moves elements of a buffer's type, and puts 0
    beside them."""
    step = min(100, int(held.dtype.max)) if held.dtype.is_integer else _whole_numbers(held.dtype)
    found: np.ndarray = np.zeros((), np.int64)
    for digit in range(math.ceil(math.log(numbers.size + 1, step)) or 1):
        part = move((numbers // step**digit % step).astype(held.dtype.numpy))
        found = found + part.astype(np.int64) * step**digit
    return found


def _whole_numbers(dtype: DType) -> int:
    """How many whole numbers from 0 on a type of floats has, up to 100."""
    return next(n for n in range(100, 0, -1) if all(dtype.round(k) == k for k in range(n)))
