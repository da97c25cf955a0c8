"""Instructions: what a target can do in one go, as a loop program over its operands.

The body is the meaning; everything else says where operands may lie, which integers the
instruction takes, which queue runs it and how long. A `Region` names the elements of a buffer that
an operand stands for: its subscripts are expressions of the operand's own axes `_0`, `_1`, …
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.base.node import Node, node
from tilewright.ir.expr import Buffer, Dim, Expr, Symbol, Var, as_dim, as_expr, product

BlackBox = Callable[[Mapping[str, int], Mapping[str, np.ndarray]], None]


@node
class Field(Node):
    """An integer that an instruction takes: low … high, a multiple of `multiple`. With `register`
    it is not in the instruction but in the chip's state: (the instruction that sets it, the field
    there)."""

    symbol: Symbol  # what stands for it in the meaning; its bounds are low and high
    low: int
    high: int
    multiple: int = 1
    register: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        return self.symbol.name

    def admits(self, value: int) -> bool:
        return self.low <= value <= self.high and value % self.multiple == 0


class Hazard(enum.IntEnum):
    """What a queue does when an instruction reads what an earlier one of the queue wrote: it stands
    still until the result is there, or until some cycles after that one began, or nothing."""

    STALL = 0
    FORWARD = 1
    EXPOSED = 2


COST_TERMS = ("setup", "busy", "latency", "bytes", "energy", "forward", "exposed")


@node
class Cost(Node):
    """Time in cycles of the target's clock, as expressions of the fields.

    An instruction occupies its queue for setup + max(busy, bytes / bandwidth of the slower memory).
    It moves `bytes` through every memory that it touches, or, where `through` has any, these bytes
    through these memories and none through others. Its results are there `latency` cycles after it
    has left the unit. `energy` is in picojoules.

    A later instruction of the same queue that reads these results stands still until they are
    there. With `forward` it stands still until so many cycles after this one began. With `exposed`
    the chip does not look: the compiler begins it so many cycles after this one began, or later.
    `alone` forwards results as soon as this one has been done by itself: setup + busy + latency
    after it began, whatever these are changed to.
    """

    setup: Dim = 0
    busy: Dim = 0
    latency: Dim = 0
    bytes: Dim = 0
    energy: Dim = 0
    through: tuple[tuple[str, Dim], ...] = ()
    forward: Dim | None = None
    exposed: Dim | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        if self.alone:
            object.__setattr__(self, "forward", as_dim(self.setup + self.busy + self.latency))

    def bytes_in(self, memory: str) -> Dim:
        """The bytes that it moves through a memory that it touches."""
        return dict(self.through).get(memory, 0) if self.through else self.bytes

    @property
    def hazard(self) -> Hazard:
        """What its queue does when a later instruction reads its results."""
        if self.exposed is not None:
            return Hazard.EXPOSED
        return Hazard.STALL if self.forward is None else Hazard.FORWARD

    @property
    def terms(self) -> tuple[Dim, ...]:
        """All that is arithmetic on fields."""
        given = (*(getattr(self, name) for name in COST_TERMS), *(n for _, n in self.through))
        return tuple(x for x in given if x is not None)

    def map_terms(self, change: Callable[[Dim], Dim], *names: str) -> Cost:
        """With the terms of these names changed; bytes of single memories go with `bytes`."""
        given = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {k: change(v) for k, v in given.items() if v is not None}
        if "bytes" in names:
            changed["through"] = tuple((m, change(n)) for m, n in self.through)
        return self.with_(**changed)


@node
class MicroOps(Node):
    """Lists of micro-operations: an instruction runs once for each of a range of entries, and an
    entry says where its operands are. The compiler makes the lists, loads them into `memory`, where
    an entry takes `bytes`, and gives the range to the instruction.

    `axes` gives (operand, axis): the axes whose steps come from a list.
    """

    memory: str
    bytes: int
    axes: tuple[tuple[str, int], ...] = ()


@node
class Instruction(Node):
    """One instruction. `operands` are formal buffers; their `memory` says where they must lie.

    `strides` gives (operand, axis, field): the field that carries how many elements of memory a
    step along that axis is; an axis without one must be contiguous, unless `micro_ops` lists its
    steps. `native` is LLVM's spelling (an intrinsic), for targets that run LLVM's code. `file` is
    where it was read from, `lines` are those of the function and of the meaning's statements, in
    program order, parents first. `limits` are conditions on the fields that hold in every call.

    `black_box` runs in the place of the body where that is not all known (Opaque): a function of
    the fields by name, and of an array for each operand by name, which it writes in place.

    `distances` gives (operand, n): iterations of its hardware loops (target/iterations.py) that
    touch the same element of the operand, and of which one writes it, are at least n apart.

    `pair` are two of which it stands for one: its last field, a flag, says which (pairs.py).
    """

    name: str
    operands: tuple[Buffer, ...]
    fields: tuple[Field, ...]
    body: tuple[Any, ...]
    queue: str = ""
    cost: Cost = Cost()
    strides: tuple[tuple[str, int, str], ...] = ()
    native: str = ""
    doc: str = ""
    micro_ops: MicroOps | None = None
    limits: tuple[Expr, ...] = ()
    file: str = ""
    lines: tuple[int, ...] = ()
    black_box: BlackBox | None = None
    distances: tuple[tuple[str, int], ...] = ()
    pair: tuple[Instruction, Instruction] | None = None

    @property
    def is_sequence(self) -> bool:
        """Whether LLVM spells it as several operations, one in the arguments of another."""
        return self.native.count("(") > 1

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing: there to wait, and to let others wait for it."""
        return not self.body and not self.fields

    @property
    def sets_state(self) -> bool:
        """Whether it does nothing but set registers: its fields are their values."""
        return not self.body and bool(self.fields)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def shapes(self, fields: Mapping[str, object]) -> tuple[tuple[Any, ...], ...]:
        """The shapes of the operands for these values of the fields (numbers, or columns)."""
        return tuple(
            tuple(n if isinstance(n, int) else fields[str(n)] for n in operand.shape)
            for operand in self.operands
        )

    def field(self, name: str) -> Field:
        return next(f for f in self.fields if f.symbol.name == name)

    def carrier(self, operand: Buffer, d: int) -> Field | None:
        """The field that carries how far apart an operand's elements are along axis d."""
        for name, axis_, field_name in self.strides:
            if (name, axis_) == (operand.name, d):
                return self.field(field_name)
        return None

    def step(self, operand: Buffer, d: int) -> Dim:
        """How many elements of memory a step along an operand's axis d is, in the fields; 0 for an
        axis whose steps are listed."""
        if d == self.listed(operand):
            return 0
        carrier = self.carrier(operand, d)
        return product(operand.shape[d + 1 :]) if carrier is None else carrier.symbol

    def listed(self, operand: Buffer) -> int | None:
        """The axis of an operand whose steps come from a list of micro-operations."""
        axes = self.micro_ops.axes if self.micro_ops is not None else ()
        return next((d for name, d in axes if name == operand.name), None)


@node
class Region(Node):
    """Elements of a buffer: `indices` at the operand's axes `_0`, `_1`, …"""

    buffer: Buffer
    indices: tuple[Expr, ...]

    def at(self, place: tuple[Expr, ...], replace: Any) -> tuple[Expr, ...]:
        """The buffer's subscripts for the operand's element at `place`; `replace` substitutes."""
        values = {axis(k): as_expr(p) for k, p in enumerate(place)}
        return tuple(replace(i, values) for i in self.indices)

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.indices)) or '()'}]"


def axis(k: int) -> Var:
    """The variable that stands for an operand's k-th axis in a region."""
    return _AXES[k] if k < len(_AXES) else Var(f"_{k}")


_AXES = tuple(Var(f"_{k}") for k in range(8))
