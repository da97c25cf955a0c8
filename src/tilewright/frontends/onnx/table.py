"""Who imports which operator. The tables are literals; each entry is a small function."""

from __future__ import annotations

from onnx import defs

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx import activation as onnx_activation
from tilewright.frontends.onnx import constant as onnx_constant
from tilewright.frontends.onnx import contract as onnx_contract
from tilewright.frontends.onnx import contrib as onnx_contrib
from tilewright.frontends.onnx import control as onnx_control
from tilewright.frontends.onnx import image as onnx_image
from tilewright.frontends.onnx import index as onnx_index
from tilewright.frontends.onnx import legacy as onnx_legacy
from tilewright.frontends.onnx import math as onnx_math
from tilewright.frontends.onnx import neural as onnx_neural
from tilewright.frontends.onnx import normalize as onnx_normalize
from tilewright.frontends.onnx import quantize as onnx_quantize
from tilewright.frontends.onnx import recurrent as onnx_recurrent
from tilewright.frontends.onnx import reduce as onnx_reduce
from tilewright.frontends.onnx import select as onnx_select
from tilewright.frontends.onnx import shape as onnx_shape
from tilewright.frontends.onnx import signal as onnx_signal
from tilewright.frontends.onnx import slice as onnx_slice
from tilewright.frontends.onnx.check import find_schema
from tilewright.frontends.onnx.context import Importer
from tilewright.frontends.onnx.node import OnnxNode

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
    "com.microsoft": onnx_contrib.IMPORTERS,
}


def not_supported(node: OnnxNode) -> ModelError:
    """The error for an operator that has neither an importer nor a body."""
    reason = REFUSED.get(node.op_type) if node.domain == "" else None
    return ModelError(
        reason or "this operator is not supported",
        hint="export the model without it, or define it in the model as a function of operators "
        "that are supported",
    )


def find_importer(node: OnnxNode, schema: defs.OpSchema) -> Importer | None:
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
