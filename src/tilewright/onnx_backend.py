"""tilewright as a backend of ONNX's own interface, `onnx.backend.base`.

from tilewright import onnx_backend
outputs = onnx_backend.prepare(model).run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from tilewright.base.errors import ContentsError, InputError, ModelError
from tilewright.compiler import compile
from tilewright.frontends.onnx.load import import_model
from tilewright.targets import cpu


class Prepared(BackendRep):
    """A model ready to run."""

    def __init__(self, model: onnx.ModelProto, threads: int | None) -> None:
        given = {t.name for t in model.graph.initializer}
        self.inputs = [v.name for v in model.graph.input if v.name not in given]
        self.outputs = [v.name for v in model.graph.output]
        self.module = compile(model, target=cpu.host(threads=threads))

    def run(self, inputs: object, **kwargs: object) -> tuple[Any, ...]:
        """The outputs, by position and by name, for a list of inputs, a mapping, or the one."""
        given = self._by_name(inputs)
        results = self.module(*(given[n] for n in self.inputs))
        arrays = results if isinstance(results, tuple) else (results,)
        return namedtupledict("Outputs", self.outputs)(*arrays)

    def _by_name(self, inputs: object) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(values) != len(self.inputs):
                raise InputError(
                    f"the model takes {len(self.inputs)} inputs and was given {len(values)}",
                    hint=f"its inputs are {', '.join(self.inputs) or 'none'}",
                )
            given = dict(zip(self.inputs, values, strict=True))
        missing = [n for n in self.inputs if n not in given]
        if missing:
            raise InputError(f"missing input: {missing[0]!r}")
        return given


class TilewrightBackend(Backend):
    """Compiles for this machine's processor, the one device there is."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: object) -> bool:
        """Whether the model can be imported."""
        if not cls.supports_device(device):
            return False
        try:
            import_model(model)
        except ModelError as error:
            return isinstance(error, ContentsError) and bool(error.inputs)
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        threads: int | None = None,
        **kwargs: object,
    ) -> Prepared:
        """The model, compiled; ModelError if it cannot be."""
        _check_device(cls, device)
        return Prepared(model, threads)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node as a model of its own; `opset_version` says how to read it."""
        _check_device(cls, device)
        names = list(dict.fromkeys(n for n in node.input if n))
        values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(values) != len(names):
            raise InputError(f"{node.op_type} has {len(names)} inputs and was given {len(values)}")
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = dict(zip(names, map(np.asarray, values), strict=True))
        return cls.run_model(_model_of(node, arrays, opset), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False


def _check_device(backend: type[TilewrightBackend], device: str) -> None:
    if not backend.supports_device(device):
        raise InputError(
            f"there is no device {device!r} here",
            hint='models run on "CPU"; compile for other targets with tilewright.compile',
        )


def _model_of(
    node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int
) -> onnx.ModelProto:
    infos = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], node.op_type, infos, outputs)
    opsets = [onnx.helper.make_opsetid("", opset)]
    if node.domain not in ("", "ai.onnx"):
        opsets.append(onnx.helper.make_opsetid(node.domain, 1))
    return onnx.helper.make_model(graph, opset_imports=opsets)


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
