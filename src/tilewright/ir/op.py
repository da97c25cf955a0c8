"""What an operator is: one record from which shapes, loops, reference results and docs follow."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.ir.expr import Buffer
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType


class Category(enum.Enum):
    """How an operator takes part in fusion (the four of Relay's fusion, TVM OSDI'18 section 3)."""

    INJECTIVE = "injective"  # each output element from at most one element of each input
    REDUCTION = "reduction"  # takes injective producers
    COMPLEX = "complex-out-fusable"  # takes element-wise consumers on its output
    OPAQUE = "opaque"  # a call to the host, or a kernel that fuses with nothing


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of every operator's attributes: a frozen record whose fields are typed and documented
    (`attr(default, doc=…)`)."""

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The attributes' names."""
        return tuple(f.name for f in fields(cls))

    def items(self) -> Iterator[tuple[str, Any]]:
        for key in self.keys():
            yield key, getattr(self, key)


def attr(
    default: object = ...,
    *,
    doc: str,
    choices: tuple[object, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Declares one attribute: default (none: required), meaning, and its legal values."""
    metadata = {"doc": doc, "choices": choices, "low": low, "high": high}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


Infer = Callable[[Any, Sequence[TensorType]], Sequence[TensorType]]
Compute = Callable[[Builder, Any, Sequence[Buffer]], Sequence[Buffer]]
Evaluate = Callable[[Any, Sequence[np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True, eq=False)
class Op:
    """One operator.

    infer(attrs, input types) gives the output types or raises ModelError; compute(builder, attrs,
    input buffers) writes the tensor expression and returns the output buffers; an op without one
    is opaque and has `evaluate`, a numpy function run on the host. `elementwise` says that every
    input is either read at the output's own index or broadcast along whole axes.
    """

    name: str
    attrs: type[Attrs]
    infer: Infer
    category: Category
    doc: str
    arity: tuple[int, int]  # fewest and most inputs
    types: str = "any"  # the element types it takes, in words
    compute: Compute | None = None
    evaluate: Evaluate | None = None
    elementwise: bool = False

    def __post_init__(self) -> None:
        assert (self.compute is None) != (self.evaluate is None), self.name
        assert (self.category is Category.OPAQUE) == (self.compute is None), self.name

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def make_attrs(self, **values: object) -> Attrs:
        """The attribute record, checked against its declared choices and ranges."""
        attrs = self.attrs(**values)
        for f in fields(attrs):
            check_attr(self.name, f.name, getattr(attrs, f.name), f.metadata)
        return attrs


def check_attr(op: str, name: str, value: Any, rule: Any) -> None:
    """Raises ModelError when a value is outside what the attribute's declaration allows."""
    choices, low, high = rule["choices"], rule["low"], rule["high"]
    if choices is not None and value not in choices:
        known = ", ".join(repr(c) for c in choices)
        raise ModelError(f"{op}: attribute {name} is {value!r}", hint=f"it must be one of {known}")
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, (int, float)) and (
            (low is not None and item < low) or (high is not None and item > high)
        ):
            limits = f"{'-∞' if low is None else low} … {'∞' if high is None else high}"
            raise ModelError(f"{op}: attribute {name} is {value!r}", hint=f"it must be in {limits}")


def attr_rows(op: Op) -> list[dict[str, Any]]:
    """Each attribute's name, type, default, limits and doc, for `tilewright ops NAME`."""
    return [
        {
            "name": f.name,
            "type": f.type if isinstance(f.type, str) else f.type.__name__,
            "default": "required" if f.default is MISSING else f.default,
            **{k: f.metadata[k] for k in ("choices", "low", "high", "doc")},
        }
        for f in fields(op.attrs)
    ]
