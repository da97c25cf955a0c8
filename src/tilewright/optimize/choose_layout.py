"""How every value lies in memory: what the kernels like best, and copies where they disagree.

Contractions say what they prefer (plan/contraction.py): constants are packed as they like
while compiling, results are blocked so that vectors are stored whole. Kernels without a contraction
take the blocked layout of an operand over for their results, so it spreads through a network and
is undone only where something needs rows: a change of shape, a call to the host, the model's
outputs. Operands with a result's shape are copied to its layout first: element by element from
elsewhere, sixteen rows at a time, they would take longer than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.analyze.nests import nests
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.loop import Kernel, loads
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.function import CALL, RELAYOUT, CallAttrs, RelayoutAttrs
from tilewright.plan.compose_stages import compose_stages
from tilewright.plan.create_loops import create_loops
from tilewright.plan.preferred_layouts import Preference, preferred_layouts
from tilewright.target.target import Target


def choose_layout(graph: Graph, targets: Mapping[str, Target]) -> Graph:
    """The graph of calls with layouts on values; `targets` by the names of devices that read what
    others leave in memory. The other devices take rows, and arrange them themselves."""
    return _Chooser(graph, targets).run()


@dataclass
class _Chooser:
    graph: Graph
    targets: Mapping[str, Target]
    now: dict[Value, Value] = field(default_factory=dict)  # old values to the ones with layouts
    nodes: list[GraphNode] = field(default_factory=list)
    # Copies made so far, by their layouts; None is row-major.
    copies: dict[tuple[Value, Layout | None], Value] = field(default_factory=dict)
    packed: dict[tuple[Value, Layout], Value] = field(default_factory=dict)
    constants: dict[Value, object] = field(default_factory=dict)

    def run(self) -> Graph:
        for v in self.graph.inputs:
            self.now[v] = v
        for v, array in self.graph.constants.items():
            self.now[v] = v
            self.constants[v] = array
        for n in self.graph.nodes:
            if n.op is CALL and n.device in self.targets:
                self._call(n)
            else:
                self._row_major(n)
        outputs = tuple(self._as_plain(self.now[v], "") for v in self.graph.outputs)
        used = {v for n in self.nodes for v in n.inputs} | set(outputs)
        constants = {v: a for v, a in self.constants.items() if v in used}
        return self.graph.with_(nodes=tuple(self.nodes), outputs=outputs, constants=constants)

    def _row_major(self, n: GraphNode) -> None:
        """A view, a call to the host, or what a device is given: takes and gives rows."""
        device = n.device if n.device in self.targets else ""
        inputs = tuple(self._as_plain(self.now[v], device) for v in n.inputs)
        for v in n.outputs:
            self.now[v] = v
        self.nodes.append(GraphNode(n.op, n.attrs, inputs, n.outputs, n.name, n.device))

    def _call(self, n: GraphNode) -> None:
        inputs = [self.now[v] for v in n.inputs]
        layouts = {f"x{i}": v.type.layout for i, v in enumerate(inputs) if v.type.layout}
        kernel, result = _logical_kernel(n), n.outputs[0]
        preference = preferred_layouts(kernel, self.targets[n.device], layouts)
        if preference is None:
            inputs = [
                self._as_plain(x, n.device) if _slides_along_blocks(kernel, f"x{i}", x) else x
                for i, x in enumerate(inputs)
            ]
            wanted = _inherited(n, inputs, kernel)
        else:
            inputs = self._operands(n, inputs, preference)
            wanted = {result: preference.result[1]}
        factors = {preference.data[0], preference.weight[0]} if preference else set()
        for i, x in enumerate(inputs):
            if f"x{i}" not in factors:
                inputs[i] = self._beside(x, result, wanted.get(result), n.device)
        self._emit(n, inputs, [wanted.get(v) for v in n.outputs])

    def _operands(self, n: GraphNode, inputs: list[Value], p: Preference) -> list[Value]:
        """Weights that are constants are packed; data that must run along vectors is copied."""
        out = list(inputs)
        for name, layout in (p.data, p.weight):
            position = next((i for i in range(len(inputs)) if name == f"x{i}"), None)
            if position is not None and name == p.data[0] and p.rows:
                out[position] = self._as_plain(inputs[position], n.device)
            if position is None or layout is None:
                continue
            value = inputs[position]
            if value in self.graph.constants:
                out[position] = self._packed_constant(value, layout)
            elif name == p.data[0] and value.type.layout != layout:
                out[position] = self._copied(value, layout, n.device)
        return out

    def _beside(self, x: Value, result: Value, layout: Layout | None, device: str) -> Value:
        """An operand as it is best beside a result with this layout."""
        if layout is None or x.type.layout is not None or x.shape != result.shape:
            return x
        return x if x in self.constants else self._copied(x, layout, device)

    def _packed_constant(self, value: Value, layout: Layout) -> Value:
        key = (value, layout)
        if key not in self.packed:
            name = f"{value.name}_packed" + (f"{len(self.packed)}" if self.packed else "")
            new = Value(name, value.type.with_(layout=layout))
            self.packed[key] = new
            self.constants[new] = self.graph.constants[value]
        return self.packed[key]

    def _as_plain(self, value: Value, device: str) -> Value:
        return self._copied(value, None, device)

    def _copied(self, value: Value, layout: Layout | None, device: str) -> Value:
        """A value with this layout; without a `device` the one that made it copies it."""
        if value.type.layout == layout:
            return value
        if (value, layout) not in self.copies:
            device = device or self._device_of(value)
            self.copies[value, layout] = self._relayout(value, layout, device)
        return self.copies[value, layout]

    def _device_of(self, value: Value) -> str:
        return next((n.device for n in self.nodes if value in n.outputs), "")

    def _relayout(self, value: Value, layout: Layout | None, device: str) -> Value:
        """A call that copies a value into another layout."""
        x = Value("x0", value.type)
        y = Value("v0", value.type.with_(layout=layout))
        body = Graph(
            "body", (x,), (y,), (GraphNode(RELAYOUT, RelayoutAttrs(layout), (x,), (y,)),), {}
        )
        suffix = "rows" if layout is None else "blocked"
        out = Value(f"{value.name}_{suffix}{len(self.nodes)}", y.type)
        self.nodes.append(
            GraphNode(CALL, CallAttrs(body), (value,), (out,), f"relayout_{value.name}", device)
        )
        return out

    def _emit(self, n: GraphNode, inputs: list[Value], layouts: list[Layout | None]) -> None:
        outputs = []
        for v, layout in zip(n.outputs, layouts, strict=True):
            new = (
                v
                if layout is None
                else Value(v.name, v.type.with_(layout=simplest(v.type, layout)))
            )
            self.now[v] = new
            outputs.append(new)
        attrs = n.attrs
        assert isinstance(attrs, CallAttrs)
        body = with_layouts(attrs.body, [v.type for v in inputs], [v.type for v in outputs])
        self.nodes.append(
            GraphNode(
                CALL,
                CallAttrs(body, attrs.origins),
                tuple(inputs),
                tuple(outputs),
                n.name,
                n.device,
            )
        )


def _logical_kernel(n: GraphNode) -> Kernel:
    """The call's kernel with row-major buffers."""
    buffers = [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]
    return create_loops(compose_stages(op_program(CALL, n.attrs, buffers)))


def _inherited(n: GraphNode, inputs: list[Value], kernel: Kernel) -> dict[Value, Layout | None]:
    """The layout of the largest operand that has one and whose blocked axes a result shares."""
    out: dict[Value, Layout | None] = {}
    names = {x: f"x{i}" for i, x in enumerate(inputs)}
    for v in n.outputs:
        for x in sorted(inputs, key=lambda x: -x.type.rank):
            layout = x.type.layout
            if layout is None or x.type.rank != v.type.rank:
                continue
            blocked = [a for a, _ in layout.blocks]
            alike = all(x.shape[a] == v.shape[a] or v.shape[a] != 1 for a in blocked)
            if alike and not any(_becomes_another(kernel, names[x], a) for a in blocked):
                out[v] = layout
                break
    return out


def _slides_along_blocks(kernel: Kernel, name: str, x: Value) -> bool:
    """Whether windows move along an axis of a parameter that lies in blocks (a normalisation over
    neighbouring channels): vectors would go over the ends of blocks."""
    blocked = () if x.type.layout is None else [axis for axis, _ in x.type.layout.blocks]
    for nest in nests(kernel.body):
        window = {loop.var for loop in nest.reduce}
        for read in (y for w in nest.writes for y in loads(w.value) if y.buffer.name == name):
            for used in (variables(read.indices[axis]) for axis in blocked):
                if used & window and used - window:
                    return True
    return False


def _becomes_another(kernel: Kernel, name: str, axis: int) -> bool:
    """Whether an axis of a parameter is another one of what is made of it, as in a transpose."""
    for nest in nests(kernel.body):
        stores = nest.store.indices
        for read in (x for w in nest.writes for x in loads(w.value) if x.buffer.name == name):
            along = variables(read.indices[axis])
            if any(along & variables(i) for p, i in enumerate(stores) if p != axis):
                return True
    return False


def simplest(kind: TensorType, layout: Layout) -> Layout | None:
    """None where the layout arranges this shape just as rows do."""
    if len(layout.blocks) != 1 or layout.order != tuple(range(kind.rank)):
        return layout
    ((axis, factor),) = layout.blocks
    extent = kind.shape[axis]
    behind = kind.shape[axis + 1 :]
    whole = isinstance(extent, int) and extent % factor == 0
    return None if whole and all(d == 1 for d in behind) else layout


def with_layouts(body: Graph, inputs: list[TensorType], outputs: list[TensorType]) -> Graph:
    """The body with these types at its border."""
    renamed = {
        v: Value(v.name, t)
        for v, t in zip((*body.inputs, *body.outputs), (*inputs, *outputs), strict=True)
        if v.type != t
    }
    if not renamed:
        return body
    nodes = [
        GraphNode(
            n.op,
            n.attrs,
            tuple(renamed.get(v, v) for v in n.inputs),
            tuple(renamed.get(v, v) for v in n.outputs),
            n.name,
            n.device,
        )
        for n in body.nodes
    ]
    return body.with_(
        inputs=tuple(renamed.get(v, v) for v in body.inputs),
        outputs=tuple(renamed.get(v, v) for v in body.outputs),
        nodes=tuple(nodes),
    )
