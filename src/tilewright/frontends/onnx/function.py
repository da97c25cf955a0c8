"""Operators that are defined by others: the model's own functions, and the bodies that ONNX gives
for some of its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, defs

from tilewright.base.errors import ModelError
from tilewright.frontends.names import shown
from tilewright.frontends.onnx.types import type_proto
from tilewright.ir.graph import Value

FunctionKey = tuple[str, str, str]  # domain, name, overload


def local_functions(model: onnx.ModelProto) -> dict[FunctionKey, FunctionProto]:
    """The model's own functions."""
    found: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        key = (standard_domain(function.domain), function.name, function.overload)
        if key in found:
            raise ModelError(
                f"the model defines the function {shown(function.name)!r} twice",
                hint="functions of one name must differ in domain or overload",
            )
        found[key] = function
    return found


def standard_domain(domain: str) -> str:
    """ONNX's own domain has two spellings."""
    return "" if domain == "ai.onnx" else domain


def schema_function(
    schema: defs.OpSchema,
    proto: onnx.NodeProto,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, AttributeProto],
    opset: int,
) -> FunctionProto | None:
    """The body that ONNX gives for the operator, written for an opset up to the model's. It may
    depend on the node's attributes and on the inputs' types."""
    known: Any = schema  # ONNX's annotations leave out what follows
    plain = [v for v in known.function_opset_versions if v <= opset]
    if plain:
        return _function(known.get_function_with_opset_version(max(plain)))
    dependent = [v for v in known.context_dependent_function_opset_versions if v <= opset]
    if not dependent:
        return None
    types = [b"" if v is None else type_proto(v.type).SerializeToString() for v in inputs]
    resolved = onnx.NodeProto()
    resolved.CopyFrom(proto)
    del resolved.attribute[:]
    resolved.attribute.extend(attributes.values())
    try:
        body = known.get_context_dependent_function_with_opset_version(
            max(dependent), resolved.SerializeToString(), types
        )
    except (RuntimeError, ValueError) as error:  # ONNX builds it from text with names in it
        reason = shown(str(error).partition("\n")[0])
        raise ModelError(f"ONNX cannot define it by other operators: {reason}") from None
    return _function(body) if body else None


def _function(data: bytes) -> FunctionProto:
    found: FunctionProto = FunctionProto.FromString(data)
    return found


def function_attributes(
    function: FunctionProto, schema: defs.OpSchema | None, given: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    """The function's attributes for a call: given ones, and defaults."""
    defaults = {a.name: a for a in function.attribute_proto}
    if schema is not None:
        known = schema.attributes.items()
        defaults |= {name: a.default_value for name, a in known if a.default_value.name}
    return defaults | dict(given)


def resolve_attributes(
    proto: onnx.NodeProto, arguments: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    """The node's attributes, with those that refer to the function's filled in or left out."""
    found: dict[str, AttributeProto] = {}
    for attribute in proto.attribute:
        if attribute.name in found:
            raise ModelError(f"it has the attribute {shown(attribute.name)!r} twice")
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
            continue
        argument = arguments.get(attribute.ref_attr_name)
        if argument is not None:
            named = AttributeProto()
            named.CopyFrom(argument)
            named.name = attribute.name
            found[attribute.name] = named
    return found
