"""A node against the operator's ONNX schema: counts, attributes and element types.

We check this ourselves, and before any importer looks at the node, so that importers need not
expect nonsense.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, defs

from tilewright.base.errors import ModelError, did_you_mean
from tilewright.frontends.names import shown
from tilewright.frontends.onnx.contrib_schemas import CONTRIB, CONTRIB_SCHEMAS
from tilewright.frontends.onnx.types import ONNX_DTYPES
from tilewright.ir.graph import Value

VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
OPTIONAL = defs.OpSchema.FormalParameterOption.Optional

# How schemas spell our element types.
_SPELLED = {
    t: f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"
    for t, number in ONNX_DTYPES.items()
}


@functools.cache
def find_schema(op_type: str, opset: int, domain: str) -> defs.OpSchema | None:
    """The operator's schema in this opset; None if there is none."""
    if domain == CONTRIB:
        return CONTRIB_SCHEMAS.get(op_type)
    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None


@functools.cache
def operator_names(domain: str) -> tuple[str, ...]:
    """All operators of a domain, in any opset."""
    if domain == CONTRIB:
        return tuple(sorted(CONTRIB_SCHEMAS))
    return tuple(
        sorted({s.name for s in defs.get_all_schemas_with_history() if s.domain == domain})
    )


def no_such_operator(op_type: str, domain: str) -> ModelError:
    """The error for an operator that no schema and no function of the model defines."""
    names = operator_names(domain)
    if op_type in names:
        return ModelError(
            "this opset does not have the operator",
            hint="the model was written for another opset: convert it with onnx.version_converter",
        )
    if not names:
        return ModelError(
            f"the domain {shown(domain)!r} is unknown, and the model has no function of that name",
            hint="export the model with standard ONNX operators only",
        )
    return ModelError("there is no such operator", hint=did_you_mean(shown(op_type), list(names)))


def check_texts(model: onnx.ModelProto) -> None:
    """ModelError when a name is not UTF-8 text: protobuf hands such a name out as bytes."""
    for graph in _graphs(model):
        named = [*graph.input, *graph.output, *graph.initializer]
        texts = [graph.name, *(v.name for v in named)]
        texts += [s.values.name for s in graph.sparse_initializer]
        texts += [d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim]
        texts += [e.key for t in graph.initializer for e in t.external_data]
        texts += [e.value for t in graph.initializer for e in t.external_data]
        _check_all_text([*texts, *_node_texts(graph.node)])
    for function in model.functions:
        texts = [function.name, function.domain, function.overload]
        texts += [*function.input, *function.output, *function.attribute]
        texts += [a.name for a in function.attribute_proto]
        texts += [o.domain for o in function.opset_import]
        _check_all_text([*texts, *_node_texts(function.node)])
    _check_all_text([o.domain for o in model.opset_import])


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The model's graph, and all graphs nested in nodes."""
    pending = [model.graph]
    nodes = [n for f in model.functions for n in f.node]
    while pending or nodes:
        if pending:
            graph = pending.pop()
            yield graph
            nodes.extend(graph.node)
        else:
            pending.extend(a.g for a in nodes.pop().attribute if a.HasField("g"))


def _node_texts(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, node.overload)
        yield from node.input
        yield from node.output
        for attribute in node.attribute:
            yield attribute.name
            yield attribute.ref_attr_name


def _check_all_text(texts: Iterable[str]) -> None:
    if not all(isinstance(text, str) for text in texts):
        raise ModelError(
            "a name in the model is not UTF-8 text", hint="the file is damaged: get it again"
        )


def check_node(
    proto: onnx.NodeProto,
    schema: defs.OpSchema,
    inputs: Sequence[Value | None],
    attributes: dict[str, AttributeProto],
) -> None:
    """ModelError when the node does not fit the schema."""
    _check_count("inputs", len(proto.input), schema.min_input, schema.max_input)
    _check_count("outputs", len(proto.output), schema.min_output, schema.max_output)
    _check_inputs(schema, inputs)
    _check_attributes(schema, attributes)


def _check_count(what: str, n: int, least: int, most: int) -> None:
    if not least <= n <= most:
        wanted = f"{least}" if least == most else f"{least} … {'∞' if most > 1 << 20 else most}"
        raise ModelError(f"it has {n} {what}, where the operator takes {wanted}")


def _check_inputs(schema: defs.OpSchema, inputs: Sequence[Value | None]) -> None:
    formal = schema.inputs
    for position, value in enumerate(inputs):
        parameter = formal[min(position, len(formal) - 1)]
        if value is None:
            if parameter.option != OPTIONAL and parameter.option != VARIADIC:
                raise ModelError(f"input {position} ({parameter.name}) is missing")
            continue
        spelled = _SPELLED[value.dtype]
        if spelled not in parameter.types and any("tensor(" in t for t in parameter.types):
            known = sorted(t[7:-1] for t in parameter.types if t.startswith("tensor("))
            raise ModelError(
                f"input {position} ({parameter.name}) is of type {spelled[7:-1]}",
                hint="it must be one of " + ", ".join(known),
            )


def _check_attributes(schema: defs.OpSchema, attributes: dict[str, AttributeProto]) -> None:
    for name, attribute in attributes.items():
        formal = schema.attributes.get(name)
        if formal is None:
            raise ModelError(
                f"it has an attribute {shown(name)!r}, which the operator does not know",
                hint=did_you_mean(shown(name), sorted(schema.attributes)),
            )
        kind: Any = formal.type  # an enumeration, which ONNX's annotations do not say
        if attribute.type != int(kind.value):
            names = AttributeProto.AttributeType
            known = attribute.type in names.values()
            has = names.Name(attribute.type) if known else f"number {attribute.type}"
            raise ModelError(
                f"the attribute {name} is of type {has}, not {names.Name(int(kind.value))}"
            )
    for name, formal in schema.attributes.items():
        if formal.required and name not in attributes:
            raise ModelError(f"the attribute {name} is missing")
