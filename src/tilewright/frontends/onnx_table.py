"""Who imports which operator. The tables are literals; each entry is a small function."""

from __future__ import annotations

from onnx import defs

from tilewright.base.errors import ModelError
from tilewright.frontends import (
    onnx_activation,
    onnx_constant,
    onnx_contract,
    onnx_control,
    onnx_image,
    onnx_index,
    onnx_legacy,
    onnx_math,
    onnx_neural,
    onnx_normalize,
    onnx_quantize,
    onnx_recurrent,
    onnx_reduce,
    onnx_select,
    onnx_shape,
    onnx_signal,
    onnx_slice,
)
from tilewright.frontends.onnx_check import find_schema
from tilewright.frontends.onnx_context import Importer
from tilewright.frontends.onnx_node import Node

# What there will be no importer for, and why.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("ConcatFromSequence", "Optional", "SequenceAt", "SequenceConstruct", "SequenceEmpty"),
            *("SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap"),
            "SplitToSequence",
        ),
        "sequences and optional values are not supported",
    ),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
        "strings are not supported",
    ),
    **dict.fromkeys(
        ("Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "random numbers are not supported",
    ),
    "ImageDecoder": "image files are not decoded",
}

MODERN = 7  # before this opset, an operator must still be the same, or be in onnx_legacy

# By domain, then by operator.
IMPORTERS: dict[str, dict[str, Importer]] = {
    "": {
        **onnx_math.IMPORTERS,
        **onnx_activation.IMPORTERS,
        **onnx_reduce.IMPORTERS,
        **onnx_constant.IMPORTERS,
        **onnx_shape.IMPORTERS,
        **onnx_slice.IMPORTERS,
        **onnx_index.IMPORTERS,
        **onnx_neural.IMPORTERS,
        **onnx_normalize.IMPORTERS,
        **onnx_contract.IMPORTERS,
        **onnx_recurrent.IMPORTERS,
        **onnx_quantize.IMPORTERS,
        **onnx_image.IMPORTERS,
        **onnx_signal.IMPORTERS,
        **onnx_select.IMPORTERS,
        **onnx_control.IMPORTERS,
    },
    "ai.onnx.ml": onnx_select.ML_IMPORTERS,
}


def not_supported(node: Node) -> ModelError:
    """The error for an operator that has neither an importer nor a body."""
    reason = REFUSED.get(node.op_type) if node.domain == "" else None
    return ModelError(
        reason or "this operator is not supported",
        hint="export the model without it, or define it in the model as a function of operators "
        "that are supported",
    )


def find_importer(node: Node, schema: defs.OpSchema) -> Importer | None:
    """The table's entry; for operators that changed with opset 7, the older form's."""
    if node.domain == "" and node.opset < MODERN:
        modern = find_schema(node.op_type, MODERN, "")
        if modern is None or modern.since_version != schema.since_version:
            older = onnx_legacy.IMPORTERS.get((node.op_type, schema.since_version))
            if older is None:
                raise ModelError(
                    f"its form of opset {schema.since_version} is not supported",
                    hint=f"convert the model to opset {MODERN} or later",
                )
            return older
    return IMPORTERS.get(node.domain, {}).get(node.op_type)
