"""The import of one model: inputs, constants, then node after node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import defs

from tilewright.base.errors import CompileError, ContentsError, ModelError, did_you_mean
from tilewright.frontends.builder import GraphBuilder
from tilewright.frontends.names import shown
from tilewright.frontends.onnx.check import check_node, find_schema, no_such_operator
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.function import (
    FunctionKey,
    function_attributes,
    local_functions,
    resolve_attributes,
    schema_function,
    standard_domain,
)
from tilewright.frontends.onnx.node import DEEPEST, OnnxNode, Scope
from tilewright.frontends.onnx.table import find_importer, not_supported
from tilewright.frontends.onnx.tensor import Files, sparse_to_array, to_array
from tilewright.frontends.onnx.types import Dimensions, element_type
from tilewright.ir.dims import tensor_type
from tilewright.ir.graph import Graph, Value
from tilewright.ir.tensor_type import TensorType

OLDEST = 1
NEWEST = defs.onnx_opset_version()
MOST_NODES = 1 << 16  # with everything inlined and unrolled


class ModelImporter:
    """The import of one model."""

    def __init__(
        self,
        model: onnx.ModelProto,
        files: Files,
        dims: Mapping[str, int],
        constants: Mapping[str, np.ndarray],
        least: int = 0,
        *,
        half_up: bool = False,
    ) -> None:
        self.model, self.files, self.graph = model, files, model.graph
        self.constants = constants
        if not model.HasField("graph"):
            raise ModelError("the file holds no graph", hint="is it an ONNX model?")
        self.builder = GraphBuilder(self.graph.name)
        self.dims = Dimensions(dims, self.builder.names, least)
        self.functions = local_functions(model)
        self.context = NodeContext(self.builder, files, self.run_graph, half_up=half_up)
        self.nodes = 0
        self.refusal: ModelError | None = None

    def run(self) -> Graph:
        """The whole model."""
        scope = Scope({}, _opsets(self.model.opset_import, "the model"))
        _check_opset(scope.opsets)
        names, results = self._add_inputs(scope)
        for name in self.constants:
            if name not in scope.values and name not in names:
                raise ModelError(
                    f"the model has no input called {shown(name)!r}",
                    hint=did_you_mean(shown(name), names),
                )
        outputs = self._run_body(self.graph, scope)
        for value, declared in zip(outputs, self.graph.output, strict=True):
            _check_output(value, declared)
        graph = self.builder.finish(dict(zip(results, outputs, strict=True)))
        return graph.with_(source=f"opset {scope.opsets.get('', NEWEST)}")

    def inputs(self) -> tuple[Value, ...]:
        """The model's inputs alone, as its graph has them."""
        self._add_inputs(Scope({}, {}))
        return tuple(self.builder.inputs)

    def _add_inputs(self, scope: Scope) -> tuple[list[str], list[str]]:
        """The names that the graph has for inputs and outputs. `constants` go by these, or by the
        model's."""
        given = {t.name for t in self.graph.initializer}
        given |= {s.values.name for s in self.graph.sparse_initializer}
        inputs = [v for v in self.graph.input if v.name not in given]
        names = [self.builder.names.fresh(v.name, "input") for v in inputs]
        results = [self.builder.names.fresh(v.name, "output") for v in self.graph.output]
        for value, name in zip(inputs, names, strict=True):
            if value.name in scope.values:
                raise ModelError(f"the graph has two inputs called {shown(value.name)!r}")
            of = self._input_type(value)
            fixed = self.constants.get(value.name, self.constants.get(name))
            scope.values[value.name] = (
                self.builder.input(name, of) if fixed is None else self._frozen(name, of, fixed)
            )
        self.dims.check_all_used()
        return names, results

    def _input_type(self, value: onnx.ValueInfoProto) -> TensorType:
        what = f"input {shown(value.name)!r}"
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            described = (kind or "nothing").removesuffix("_type")
            raise ModelError(
                f"{what} is of type {described}", hint="inputs must be tensors: change the model"
            )
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise ModelError(
                f"{what} has no shape, not even its number of dimensions",
                hint="declare the input's shape; unknown dimensions may stay symbolic",
            )
        try:
            dtype = element_type(tensor.elem_type)
        except ModelError as error:
            raise ModelError(f"{what}: {error.what}", hint=error.hint) from None
        shape = [self.dims.of(d, value.name, i) for i, d in enumerate(tensor.shape.dim)]
        return tensor_type(dtype, shape)

    def _frozen(self, name: str, of: TensorType, array: np.ndarray) -> Value:
        """An input whose contents the caller gave."""
        array = np.asarray(array)
        same = array.dtype == of.dtype.numpy and array.ndim == of.rank
        if not same or any(
            isinstance(d, int) and d != n for d, n in zip(of.shape, array.shape, strict=True)
        ):
            raise ModelError(
                f"input {name!r} is {of}, but was given as {array.dtype}{list(array.shape)}"
            )
        return self.builder.constant(array, name)

    # ------------------------------------------------------------ graphs

    def run_graph(
        self, graph: onnx.GraphProto, outer: Scope, inputs: Sequence[Value]
    ) -> list[Value]:
        """Inlines a nested graph."""
        if outer.depth >= DEEPEST:
            raise ModelError(f"graphs are nested more than {DEEPEST} deep")
        scope = Scope({}, outer.opsets, outer.attributes, outer, outer.depth + 1)
        if len(inputs) != len(graph.input):
            raise ModelError(
                f"the graph {shown(graph.name)!r} has {len(graph.input)} inputs, not {len(inputs)}"
            )
        scope.values.update(zip((v.name for v in graph.input), inputs, strict=True))
        return self._run_body(graph, scope)

    def _run_body(self, graph: onnx.GraphProto, scope: Scope) -> list[Value]:
        self._add_constants(graph, scope)
        later = _first_definitions(graph.node)
        for index, node in enumerate(graph.node):
            self._run_node(node, index, scope, later)
        outputs = []
        for declared in graph.output:
            value = scope.find(declared.name)
            if value is None:
                raise ModelError(
                    f"the output {shown(declared.name)!r} of the graph is never computed",
                    hint=did_you_mean(shown(declared.name), list(scope.values)),
                )
            outputs.append(value)
        return outputs

    def _add_constants(self, graph: onnx.GraphProto, scope: Scope) -> None:
        dense = [(t.name, t, to_array) for t in graph.initializer]
        sparse = [(t.values.name, t, sparse_to_array) for t in graph.sparse_initializer]
        for name, tensor, read in [*dense, *sparse]:
            what = f"the initializer {shown(name)!r}"
            if not name:
                raise ModelError("an initializer has no name")
            if name in scope.values:
                raise ModelError(f"{what} is defined twice")
            array = read(tensor, self.files, what)
            scope.values[name] = self.builder.constant(array, name)

    # ------------------------------------------------------------ nodes

    def _run_node(
        self, proto: onnx.NodeProto, index: int, scope: Scope, later: Mapping[str, int]
    ) -> None:
        label = proto.name or f"{proto.op_type}_{index}"
        if scope.depth == 0:
            self.context.node_name = label
        domain = standard_domain(proto.domain)
        node = OnnxNode(
            proto, proto.op_type, domain, label, scope.opsets.get(domain, 0), (), {}, scope
        )
        try:
            self._import_node(node, later)
        except (ModelError, CompileError) as error:  # CompileError: numbers beyond 64 bits
            if error is self.refusal:  # it names the node inside this one
                error.add_context(f"importing {node.shown}")
                raise
            self.refusal = _refusal(node, error)
            raise self.refusal from error

    def _import_node(self, node: OnnxNode, later: Mapping[str, int]) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise ModelError(f"the model has more than {MOST_NODES} nodes once all is inlined")
        if node.opset == 0:
            raise ModelError(
                f"the model imports no opset of the domain {shown(node.domain)!r}",
                hint="opset_import must name every domain that is used",
            )
        inputs = tuple(_find_input(name, node.scope, later) for name in node.proto.input)
        attributes = resolve_attributes(node.proto, node.scope.attributes)
        node = OnnxNode(
            node.proto,
            node.op_type,
            node.domain,
            node.label,
            node.opset,
            inputs,
            attributes,
            node.scope,
        )
        results = self._results(node)
        _bind(node, results, self.builder)

    def _results(self, node: OnnxNode) -> Sequence[Value | None]:
        """The values of the node's outputs: by the model's function, a table, or ONNX's body."""
        key: FunctionKey = (node.domain, node.op_type, node.proto.overload)
        if key in self.functions:
            return self._call(node, self.functions[key], None)
        schema = find_schema(node.op_type, node.opset, node.domain)
        if schema is None:
            raise no_such_operator(node.op_type, node.domain)
        check_node(node.proto, schema, node.inputs, dict(node.attributes))
        importer = find_importer(node, schema)
        if importer is not None:
            result = importer(self.context, node)
            return (result,) if isinstance(result, Value) else result
        body = schema_function(schema, node.proto, node.inputs, node.attributes, node.opset)
        if body is None:
            raise not_supported(node)
        return self._call(node, body, schema)

    def _call(
        self, node: OnnxNode, function: onnx.FunctionProto, schema: defs.OpSchema | None
    ) -> list[Value | None]:
        """The function's body in place of the node."""
        if node.scope.depth >= DEEPEST:
            raise ModelError(
                f"functions are nested more than {DEEPEST} deep",
                hint="a function that calls itself cannot be inlined",
            )
        if len(node.inputs) > len(function.input) or len(node.outputs) > len(function.output):
            raise ModelError(
                f"it has {len(node.inputs)} inputs and {len(node.outputs)} outputs, but the "
                f"function has {len(function.input)} and {len(function.output)}"
            )
        opsets = dict(node.scope.opsets) | _opsets(function.opset_import, "a function")
        attributes = function_attributes(function, schema, node.attributes)
        scope = Scope({}, opsets, attributes, None, node.scope.depth + 1)
        given = [*node.inputs, *[None] * (len(function.input) - len(node.inputs))]
        scope.values.update(zip(function.input, given, strict=True))
        later = _first_definitions(function.node)
        for index, inner in enumerate(function.node):
            self._run_node(inner, index, scope, later)
        return [scope.values.get(name) for name in function.output]


def _refusal(node: OnnxNode, error: ModelError | CompileError) -> ModelError:
    """The error, with the node that it is about."""
    what = f"{node.shown}: {error.what}"
    if isinstance(error, ContentsError):
        return ContentsError(what, inputs=error.inputs, symbols=error.symbols, hint=error.hint)
    hint = error.hint or "check the model with onnx.checker.check_model(full_check=True)"
    return ModelError(what, hint=hint)


def _opsets(imports: Sequence[onnx.OperatorSetIdProto], what: str) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for item in imports:
        domain = standard_domain(item.domain)
        if opsets.get(domain, item.version) != item.version:
            raise ModelError(f"{what} imports two opsets of the domain {shown(domain)!r}")
        opsets[domain] = item.version
    return opsets


def _check_opset(opsets: Mapping[str, int]) -> None:
    version = opsets.get("")
    if version is not None and not OLDEST <= version <= NEWEST:
        age = "older than what we read" if version < OLDEST else "newer than the installed onnx"
        raise ModelError(
            f"the model is written for opset {version}, which is {age}",
            hint=f"convert it to opset {OLDEST} … {NEWEST} with onnx.version_converter",
        )


def _check_output(value: Value, declared: onnx.ValueInfoProto) -> None:
    """What the model says about an output must agree with what its nodes compute."""
    if declared.type.WhichOneof("value") != "tensor_type":
        return
    tensor = declared.type.tensor_type
    if tensor.elem_type and element_type(tensor.elem_type) != value.dtype:
        raise ModelError(
            f"the output {shown(declared.name)!r} is declared as "
            f"{element_type(tensor.elem_type)}, but computed as {value.dtype}",
            hint="the model is inconsistent: export it again",
        )


def _first_definitions(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """For each value the first node that computes it."""
    found: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            found.setdefault(name, index)
    return found


def _find_input(name: str, scope: Scope, later: Mapping[str, int]) -> Value | None:
    if not name:
        return None
    if scope.knows(name):
        return scope.find(name)
    if name in later:
        raise ModelError(
            f"it reads {shown(name)!r}, which only a later node computes",
            hint="nodes must stand in the order in which they can run, and form no cycle",
        )
    raise ModelError(
        f"it reads {shown(name)!r}, which nothing computes",
        hint=did_you_mean(shown(name), list(scope.values)),
    )


def _bind(node: OnnxNode, results: Sequence[Value | None], builder: GraphBuilder) -> None:
    """Names the results as the model does."""
    for position, name in enumerate(node.outputs):
        if not name:
            continue
        if name in node.scope.values:
            raise ModelError(
                f"it computes {shown(name)!r}, which is defined already",
                hint="every value of a graph has one definition",
            )
        value = results[position] if position < len(results) else None
        if value is None:
            raise ModelError(f"its output {position} ({shown(name)!r}) is not supported")
        node.scope.values[name] = value
        if node.scope.depth == 0:
            builder.wish(value, name)
