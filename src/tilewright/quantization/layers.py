"""Which operators are quantised, and where: a *layer* is an operator with what belongs to it, its
operands and its result being values that get a pair of QuantizeLinear and DequantizeLinear.

    products    convolutions and linear layers, always; a bias and limits behind them belong to them
    sums        additions, multiplications, limits, averages, concatenations: where all operands
                have pairs anyway, or are made of such by a function of one element
    moves       the greatest of windows, reshapes, transposes: likewise; the scale stays

All other operators compute in floats, from what pairs leave and into what pairs take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from onnx import NodeProto

from tilewright.quantization.network import Network, attribute
from tilewright.quantization.prepare import vector


class Kind(Enum):
    """What a layer is, and so how it is quantised."""

    PRODUCT = "product"
    SUM = "sum"
    MOVE = "move"


PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
ARITHMETIC = ("Add", "Sub", "Mul")
LIMITS = ("Relu", "Clip")
AVERAGES = ("AveragePool", "GlobalAveragePool")
MOVES = frozenset(
    {"MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice"}
    | {"Split", "Identity", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Dropout"}
)
# Of one element, or of those of a row: computed in floats, between pairs.
FUNCTIONS = frozenset(
    {"Sigmoid", "HardSigmoid", "Tanh", "HardSwish", "Swish", "Mish", "Gelu", "Elu", "Selu", "Celu"}
    | {"LeakyRelu", "PRelu", "Softplus", "Softsign", "Softmax"}
)


@dataclass(frozen=True, eq=False)
class Layer:
    """`node` with the `tail` behind it; `operands` and `results` are values with pairs. `weight`
    is the constant that a product multiplies by, or that an operator has as its other operand;
    `bias` the constant that is added to a product, by the `Add` in the tail where it has one."""

    kind: Kind
    node: NodeProto
    operands: tuple[str, ...]
    results: tuple[str, ...]
    tail: tuple[NodeProto, ...] = ()
    weight: str | None = None
    bias: str | None = None

    @property
    def nodes(self) -> tuple[NodeProto, ...]:
        return (self.node, *self.tail)

    @property
    def has_own_addition(self) -> bool:
        """Whether the bias is added by a node of its own."""
        return self.node.op_type == "MatMul" and self.bias is not None

    @property
    def sums(self) -> str:
        """The value that a product's bias was added to last."""
        name: str = (self.tail[0] if self.has_own_addition else self.node).output[0]
        return name


@dataclass
class Plan:
    """The layers in order, and why other nodes stay floats, by name."""

    layers: list[Layer] = field(default_factory=list)
    floats: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> list[str]:
        """The values with pairs, in the order in which they are needed."""
        names = (name for x in self.layers for name in (*x.operands, *x.results))
        return list(dict.fromkeys(names))

    @property
    def made(self) -> dict[str, Layer]:
        """The layer that makes each of its results."""
        return {name: x for x in self.layers for name in x.results}


def find_wide_sums(network: Network, plan: Plan) -> frozenset[str]:
    """The results of products that one addition alone reads, which can take the product's sums as
    they are: one for each addition, whose other operand is of 8 bits. Not where that is what the
    product itself reads: kernels of chips have an array arranged in one way."""
    readers, made = network.readers(), plan.made
    found: set[str] = set()
    for x in plan.layers:
        if x.node.op_type != "Add" or len(set(x.operands)) != 2:
            continue
        makers = [made[o] for o in x.operands if o in made]
        products = [p for p in makers if p.kind is Kind.PRODUCT and p.results[0] == p.sums]
        apart = [p.sums for p in products if not {*p.operands} & {*x.operands}]
        alone = [name for name in apart if readers[name] == [x.node]]
        found |= {*[name for name in alone if name not in network.outputs][:1]}
    return frozenset(found)


def find_layers(network: Network, excluded: Mapping[str, str]) -> Plan:
    """The layers of a network; `excluded` nodes stay floats, for the reasons that stand there."""
    return _Finder(network, excluded).run()


class _Finder:
    def __init__(self, network: Network, excluded: Mapping[str, str]) -> None:
        self.network, self.excluded = network, excluded
        self.makers, self.readers = network.makers(), network.readers()
        self.outputs = set(network.outputs)
        self.plan = Plan(floats=dict(excluded))
        self.points: set[str] = set()
        self.taken: set[int] = set()  # nodes that belong to a layer, by identity

    def run(self) -> Plan:
        for n in self.network.nodes:
            if n.op_type in PRODUCTS and n.name not in self.excluded:
                self.points |= set(self._product_operands(n) or ())
        for n in self.network.nodes:
            if id(n) in self.taken or n.name in self.excluded:
                continue
            found = self._layer(n)
            if isinstance(found, Layer):
                self.plan.layers.append(found)
                self.taken |= {id(m) for m in found.nodes}
                self.points |= {*found.operands, *found.results}
            else:
                self.plan.floats[n.name] = found
        self._drop_moves()
        return self.plan

    def _layer(self, n: NodeProto) -> Layer | str:
        """The layer that a node begins, or why there is none."""
        if n.domain not in ("", "ai.onnx"):
            return f"{n.domain}.{n.op_type} is computed in floats"
        if n.op_type in PRODUCTS:
            return self._product(n)
        if n.op_type in ARITHMETIC:
            return self._arithmetic(n)
        if n.op_type in MOVES or (n.op_type in ("Resize", "Pad") and self._copies(n)):
            return self._of_data(n, Kind.MOVE)
        if n.op_type in LIMITS and not all(i in self.network.constants for i in n.input[1:] if i):
            return "its limits are computed"
        if n.op_type in (*LIMITS, *AVERAGES, "Resize") or self._averages(n):
            return self._of_data(n, Kind.SUM)
        if n.op_type == "Concat":
            return self._available(n, n.input) or Layer(
                Kind.SUM, n, tuple(dict.fromkeys(n.input)), (n.output[0],)
            )
        return f"{n.op_type} is computed in floats"

    # ---------------------------------------------------------- products

    def _product_operands(self, n: NodeProto) -> tuple[str, ...] | None:
        """The computed operands of a product; None where it cannot be quantised."""
        known = self.network.constants
        both = tuple(n.input[:2])
        computed = tuple(dict.fromkeys(name for name in both if name not in known))
        fits = all(self.network.is_float(name) for name in (*both, n.output[0]))
        needs_weight = n.op_type in ("Conv", "ConvTranspose") and both[1] not in known
        return computed if computed and fits and not needs_weight else None

    def _product(self, n: NodeProto) -> Layer | str:
        known = self.network.constants
        operands = self._product_operands(n)
        if operands is None:
            if not all(self.network.is_float(name) for name in n.input[:2]):
                return "its operands are not known to be float32"
            return "its weights are computed"
        weight = next((name for name in n.input[:2] if name in known), None)
        bias = n.input[2] if len(n.input) > 2 and n.input[2] in known else None
        tail: list[NodeProto] = []
        if n.op_type == "MatMul" and n.input[1] == weight:
            addition, added = self._addition(n, known[weight].shape[-1])
            if addition is not None:
                tail, bias = [addition], added
        tail += self._limits_behind((tail or [n])[-1])
        return Layer(
            Kind.PRODUCT, n, operands, ((tail or [n])[-1].output[0],), tuple(tail), weight, bias
        )

    def _addition(self, n: NodeProto, count: int) -> tuple[NodeProto | None, str | None]:
        """The bias behind a product that has no place for it."""
        behind = self._only_reader(n)
        if behind is None or behind.op_type != "Add" or behind.name in self.excluded:
            return None, None
        others = [i for i in behind.input if i != n.output[0]]
        array = self.network.constants.get(others[0]) if others else None
        if array is None or array.dtype != np.float32 or array.ndim != 1:
            return None, None
        return (behind, others[0]) if vector(array, count, -1) is not None else (None, None)

    def _limits_behind(self, n: NodeProto) -> list[NodeProto]:
        """The Relu or Clip that a result passes through alone."""
        behind = self._only_reader(n)
        if behind is None or behind.op_type not in LIMITS or behind.name in self.excluded:
            return []
        fixed = all(i in self.network.constants for i in behind.input[1:] if i)
        return [behind] if fixed else []

    def _only_reader(self, n: NodeProto) -> NodeProto | None:
        name = n.output[0]
        behind = self.readers.get(name, [])
        if name in self.outputs or len(behind) != 1 or name not in behind[0].input:
            return None
        return behind[0]

    # ---------------------------------------------------------- sums and moves

    def _arithmetic(self, n: NodeProto) -> Layer | str:
        known = self.network.constants
        computed = tuple(dict.fromkeys(name for name in n.input if name not in known))
        if reason := self._available(n, computed):
            return reason
        weight = next((name for name in n.input if name in known), None)
        tail = tuple(self._limits_behind(n))
        return Layer(Kind.SUM, n, computed, ((tail or (n,))[-1].output[0],), tail, weight)

    def _of_data(self, n: NodeProto, kind: Kind) -> Layer | str:
        """An operator of one array; what else it reads are indices and sizes."""
        results = tuple(name for name in n.output if name)
        used = [r for r in results if r in self.readers or r in self.outputs]
        if not all(self.network.is_float(name) for name in used):
            return f"{n.op_type} gives more than floats"
        if reason := self._available(n, n.input[:1]):
            return reason
        tail = tuple(self._limits_behind(n)) if kind is Kind.SUM and len(results) == 1 else ()
        if tail:
            results = (tail[-1].output[0],)
        elif n.op_type != "Split":
            results = results[:1]
        return Layer(kind, n, (n.input[0],), results, tail)

    def _available(self, n: NodeProto, names: Collection[str]) -> str | None:
        """Why operands are not quantised; None where they are."""
        known = self.network.constants
        if not names or any(name in known for name in names):
            return "an operand is a constant" if names else "all its operands are constants"
        if not all(self.network.is_float(name) for name in (*names, n.output[0])):
            return "its operands are not known to be float32"
        lacking = next((name for name in names if not self._is_available(name)), None)
        return None if lacking is None else f"its operand {lacking!r} is not quantised"

    def _is_available(self, name: str) -> bool:
        if name in self.points:
            return True
        maker = self.makers.get(name)
        return (
            maker is not None
            and maker.op_type in FUNCTIONS
            and maker.name not in self.excluded
            and self._is_available(maker.input[0])
        )

    def _copies(self, n: NodeProto) -> bool:
        """Whether elements are only copied, or zeros added."""
        if n.op_type == "Resize":
            return attribute(n, "mode", b"nearest") == b"nearest"
        value = self.network.constants.get(n.input[2]) if len(n.input) > 2 and n.input[2] else None
        is_zero = len(n.input) < 3 or not n.input[2] or (value is not None and not value.any())
        return attribute(n, "mode", b"constant") != b"constant" or is_zero

    def _averages(self, n: NodeProto) -> bool:
        """Whether it is the mean of a picture for each channel."""
        if n.op_type != "ReduceMean":
            return False
        axes = attribute(n, "axes")
        if axes is None and len(n.input) > 1:
            axes = self.network.constants.get(n.input[1])
        return axes is not None and sorted(np.asarray(axes).tolist()) in ([2, 3], [-2, -1], [2])

    def _drop_moves(self) -> None:
        """Leaves moves to floats of which no layer needs the result."""
        needed: set[str] = set()
        kept = []
        for x in reversed(self.plan.layers):
            if x.kind is Kind.MOVE and not needed.intersection(x.results):
                self.plan.floats[x.node.name] = "nothing quantised reads what it makes"
                continue
            needed |= set(x.operands)
            kept.append(x)
        self.plan.layers = kept[::-1]
