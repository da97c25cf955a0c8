"""Schemas of the operators that are read of ONNX Runtime's own domain: onnx has none of these."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import defs

CONTRIB = "com.microsoft"
_Schema = defs.OpSchema
_OPTIONS = ("bits", "accuracy_level", "weight_prepacked")
_INT, _OPTIONAL = _Schema.AttrType.INT, _Schema.FormalParameterOption.Optional


def _parameter(name: str, kind: str, *, optional: bool = False) -> _Schema.FormalParameter:
    option = _OPTIONAL if optional else _Schema.FormalParameterOption.Single
    return _Schema.FormalParameter(name, kind, "", param_option=option)


CONTRIB_SCHEMAS: Mapping[str, _Schema] = {
    "MatMulNBits": _Schema(
        "MatMulNBits",
        CONTRIB,
        1,
        inputs=[
            _parameter("A", "T1"),
            _parameter("B", "T2"),
            _parameter("scales", "T1"),
            _parameter("zero_points", "T3", optional=True),
            _parameter("g_idx", "T4", optional=True),
            _parameter("bias", "T1", optional=True),
        ],
        outputs=[_parameter("Y", "T1")],
        type_constraints=[
            ("T1", ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"], ""),
            ("T2", ["tensor(uint8)"], ""),
            (
                "T3",
                ["tensor(uint8)", "tensor(float16)", "tensor(float)", "tensor(bfloat16)"],
                "",
            ),
            ("T4", ["tensor(int32)"], ""),
        ],
        attributes=[
            *(_Schema.Attribute(n, _INT, required=True) for n in ("K", "N", "block_size")),
            *(
                _Schema.Attribute(n, _INT, required=False)
                for n in ("bits", "accuracy_level", "weight_prepacked")
            ),
        ],
    ),
}
