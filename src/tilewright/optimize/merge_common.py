"""Computing equal things once (common subexpressions)."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs, Category
from tilewright.optimize.edit import rebuild, resolve

# Operators whose two operands may trade places, to the bit.
COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "equal"})
SAMPLE = 256  # bytes looked at before a whole constant is


def merge_common(graph: Graph) -> Graph:
    """Of nodes with one operator, equal attributes and the same operands, and of constants with
    one content, only the first stays. Opaque nodes stay: some of them draw random numbers."""
    replaced = _equal_constants(graph)
    seen: dict[Hashable, GraphNode] = {}
    kept: list[GraphNode] = []
    for n in graph.nodes:
        if n.op.category is Category.OPAQUE:
            kept.append(n)
            continue
        first = seen.setdefault(_node_key(n, [resolve(v, replaced) for v in n.inputs]), n)
        if first is n:
            kept.append(n)
        else:
            replaced |= dict(zip(n.outputs, first.outputs, strict=True))
    return rebuild(graph, kept, replaced=replaced)


def _node_key(n: GraphNode, inputs: list[Value]) -> Hashable:
    operands = [id(v) for v in inputs]
    if n.op.name in COMMUTATIVE:
        operands.sort()
    return (n.op.name, n.device, attrs_key(n.attrs), tuple(operands))


def attrs_key(attrs: Attrs) -> Hashable:
    """Equal for attributes of equal meaning; unlike `==`, tells -0.0 from 0.0 and 1 from True."""
    return (type(attrs), *((name, _value_key(value)) for name, value in attrs.items()))


def _value_key(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        return tuple(_value_key(v) for v in value)
    if isinstance(value, (bool, int, float)):
        return (type(value), repr(value))
    plain: Hashable = value
    return plain


# ---------------------------------------------------------------- constants


def _equal_constants(graph: Graph) -> dict[Value, Value]:
    """For each constant with the content of an earlier one, that earlier one.

    Contents are read in full only where type and a sample agree: weights are large, and few equal.
    """
    similar: dict[Hashable, list[Value]] = {}
    for value, array in graph.constants.items():
        similar.setdefault((value.type, *_sample(array)), []).append(value)
    replaced: dict[Value, Value] = {}
    for values in similar.values():
        first: dict[bytes, Value] = {}
        for value in values if len(values) > 1 else ():
            found = first.setdefault(digest(graph.constants[value]), value)
            if found is not value:
                replaced[value] = found
    return replaced


def _sample(array: np.ndarray) -> tuple[Hashable, ...]:
    flat = array.reshape(-1)
    step = max(1, flat.size * array.itemsize // SAMPLE)
    return (array.dtype.str, array.shape, flat[::step][:SAMPLE].tobytes())


def digest(array: np.ndarray) -> bytes:
    """Equal for arrays of the same bytes in row-major order, whatever their type and shape."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.blake2b(data.data, digest_size=16).digest()
