"""What passes between kernels of one stream: where each element of it lies, and whether those that
read it look there.

Whether they do is not argued but compared, element by element: where a piece's result puts each
element of an array, and where the next piece looks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.expr import Buffer
from tilewright.plan.borders import Border
from tilewright.plan.unit_form import sizes_of


class MadeOtherwise(ScheduleError):
    """A piece does not take an array as it was made."""


class OtherOrder(MadeOtherwise):
    """A piece takes an array in another order than it was made in."""


class PassedArrays:
    """Arrays that pass between pieces, by their names: each in `buffers` as it lies in memory. Of
    some, readers want more `room` than there are elements, for what fills their loops up."""

    def __init__(
        self, borders: Mapping[str, Border], room: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.borders, self.room = borders, room
        self.buffers: dict[str, Buffer] = {}
        self.places: dict[str, np.ndarray] = {}  # of its elements: numbers in memory
        self.constants: dict[Buffer, np.ndarray] = {}  # what borders hold

    def add(self, chip: ChipKernel, name: str) -> Buffer:
        """What a piece makes for others: a row of all that lies in memory, since what reads it may
        have other axes."""
        (result,) = chip.kernel.outputs
        size = math.prod(sizes_of(result))
        memory = np.arange(1, size + 1).reshape(sizes_of(result))
        self.places[name] = _traced(memory, result, lambda a: chip.read(result, a)) - 1
        return self._with_room(name, result, size)

    def _with_room(self, name: str, made: Buffer, size: int) -> Buffer:
        room = max(size, self.room.get(name, 0))
        new = self.buffers[name] = made.with_(name=name, shape=(room,))
        border = self.borders.get(name)
        if border is not None or room > size:
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
        wide = found.shape > new.shape and outside  # what is behind holds one number
        fits = found.shape == new.shape or wide
        if not fits or not np.array_equal(found[places], numbers):
            raise OtherOrder(
                f"{name} is taken as {held}, and was made in another order",
                program=chip.source,
                hint="make two kernels of it: the host can rearrange what passes between them",
            )


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
