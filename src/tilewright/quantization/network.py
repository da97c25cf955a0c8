"""An ONNX model while it is rewritten: nodes in order, constants as arrays, and who makes and reads
each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


@dataclass
class Network:
    """`header` is the model without nodes and constants; `kinds` are the element types of values,
    as far as they could be inferred."""

    header: onnx.ModelProto
    nodes: list[NodeProto]
    constants: dict[str, np.ndarray]
    kinds: Mapping[str, int] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.header.graph.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(o.name for o in self.header.graph.output)

    def is_float(self, name: str) -> bool:
        """Whether a value is known to be of f32."""
        return self.kinds.get(name) == FLOAT

    def makers(self) -> dict[str, NodeProto]:
        return {name: n for n in self.nodes for name in n.output if name}

    def readers(self) -> dict[str, list[NodeProto]]:
        """The nodes that read each value, those whose subgraphs do included."""
        found: dict[str, list[NodeProto]] = {}
        for n in self.nodes:
            for name in dict.fromkeys(names_read(n)):
                found.setdefault(name, []).append(n)
        return found

    def drop_unread(self) -> None:
        """Removes constants that nothing reads any more."""
        used = {name for n in self.nodes for name in names_read(n)} | set(self.outputs)
        self.constants = {name: a for name, a in self.constants.items() if name in used}

    def proto(self, watched: Iterable[str] = ()) -> onnx.ModelProto:
        """The model; with `watched` values, these are its outputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.header)
        model.graph.node.extend(self.nodes)
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(a, order="C"), name)
            for name, a in self.constants.items()
        )
        names = list(watched)
        if names:
            del model.graph.output[:]
            infos = (helper.make_tensor_value_info(name, FLOAT, None) for name in names)
            model.graph.output.extend(infos)
        return model


class Taken:
    """Names that there are, and new ones."""

    def __init__(self, names: Iterable[str]) -> None:
        self.taken = set(names)

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name


class Names(Taken):
    """Names for new values and nodes that no other has."""

    def __init__(self, network: Network) -> None:
        super().__init__({*network.inputs, *network.outputs, *network.constants})
        for n in network.nodes:
            self.taken |= {n.name, *n.output, *names_read(n), *_names_made_inside(n)}


def _graphs(node: NodeProto) -> Iterator[onnx.GraphProto]:
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield a.g
        yield from a.graphs


def names_read(node: NodeProto) -> Iterator[str]:
    """What a node reads; of its subgraphs also what they make themselves."""
    yield from (name for name in node.input if name)
    for graph in _graphs(node):
        yield from (o.name for o in graph.output)
        for inner in graph.node:
            yield from names_read(inner)


def _names_made_inside(node: NodeProto) -> Iterator[str]:
    for graph in _graphs(node):
        yield from (t.name for t in graph.initializer)
        yield from (i.name for i in graph.input)
        for inner in graph.node:
            yield from inner.output
            yield inner.name
            yield from _names_made_inside(inner)


def attribute(node: NodeProto, name: str, default: object = None) -> object:
    """An attribute's value, or the default."""
    for a in node.attribute:
        if a.name == name:
            found: object = helper.get_attribute_value(a)
            return found
    return default


def float_attribute(node: NodeProto, name: str, default: float) -> float:
    """An attribute that is a number."""
    return next((a.f for a in node.attribute if a.name == name), default)


def int_attribute(node: NodeProto, name: str, default: int) -> int:
    """An attribute that is a whole number."""
    return next((a.i for a in node.attribute if a.name == name), default)


def set_attribute(node: NodeProto, name: str, value: object) -> None:
    """Replaces an attribute."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def copy_of(node: NodeProto) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    return made
