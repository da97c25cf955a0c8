"""What a value of a graph is: its element type, its shape, and how it lies in memory."""

from __future__ import annotations

from tilewright.base.dtype import DType
from tilewright.base.node import Node, node
from tilewright.ir.expr import Dim, ceil_div, format_type, product


@node
class Layout(Node):
    """How a value's elements are arranged in memory.

    `order` permutes the axes; then each block (axis, factor) cuts `factor` off its axis and puts
    it innermost, in the order given. NCHW16c is Layout((0, 1, 2, 3), ((1, 16),)). An axis that
    its factors do not divide is padded; the padding is never read.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    def physical_shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape in memory of a value whose logical shape is `shape`."""
        outer = [ceil_div(shape[axis], self.factor(axis)) for axis in self.order]
        return (*outer, *(factor for _, factor in self.blocks))

    def factor(self, axis: int) -> int:
        """The product of the blocks cut off `axis`."""
        return int(product(tuple(f for a, f in self.blocks if a == axis)))

    def __str__(self) -> str:
        blocks = [f"{axis}:{factor}" for axis, factor in self.blocks]
        return f"layout[{', '.join([*map(str, self.order), *blocks]) or '()'}]"

    __repr__ = __str__


@node
class TensorType(Node):
    """What a value is: element type, logical shape, and its layout (None is row-major)."""

    dtype: DType
    shape: tuple[Dim, ...]
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def physical_shape(self) -> tuple[Dim, ...]:
        return self.shape if self.layout is None else self.layout.physical_shape(self.shape)

    @property
    def bytes(self) -> Dim:
        """Bytes in memory, layout padding included."""
        return product((*self.physical_shape, self.dtype.bytes))

    def __str__(self) -> str:
        layout = f" @ {self.layout}" if self.layout is not None else ""
        return f"{format_type(self.dtype, self.shape)}{layout}"

    __repr__ = __str__
