"""What the kinds of damage share: numbers and texts that break things, and ways into a model."""

import random
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

Random = random.Random
OnModel = Callable[[Random, ModelProto], None]
T = TypeVar("T")

EXTREMES = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 4096, 65537, 10**6),
    *(2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)),
)
TEXTS = ("", " ", "/", "..", "a b", "\n", "\t\x1b[31m", "é", "数", "x" * 5000, "None", "0")


def choose(source: Random, items: Iterable[T]) -> T | None:
    """One of them, None if there are none."""
    found = list(items)
    return source.choice(found) if found else None


def constants(model: ModelProto) -> list[TensorProto]:
    """Tensors that are attributes."""
    found = [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    return [t for t in found if t.raw_data]


@cache
def operators() -> tuple[str, ...]:
    """The names of all ONNX operators."""
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}))


def untyped(name: str) -> onnx.ValueInfoProto:
    return helper.make_empty_tensor_value_info(name)


def copy_node(node: NodeProto) -> NodeProto:
    new = NodeProto()
    new.CopyFrom(node)
    return new


def append(model: ModelProto, op: str, *more: str, **attributes: object) -> str:
    """Puts a node behind the first output, whose value it takes; `more` are further inputs."""
    last = model.graph.output[0].name
    name = f"more{len(model.graph.node)}"
    model.graph.node.append(helper.make_node(op, [last, *more], [name], **attributes))
    model.graph.output[0].name = name
    return name


def constant(model: ModelProto, values: list[int], kind: int = TensorProto.INT64) -> str:
    """A new vector among the initializers; its name."""
    name = f"given{len(model.graph.initializer)}"
    model.graph.initializer.append(helper.make_tensor(name, kind, [len(values)], values))
    return name
