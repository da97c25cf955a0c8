"""Pairs and triples of operators that occur most often in the breadth networks, as models of their
own.

    python benchmarks/operator_chains.py        how often each occurs, and where
    python benchmarks/operators.py --chains     each beside other engines

A chain is a path through a network: each operator reads a result of the one before. Of each chain
there are two models, cut out of the networks with their weights: the one that reads and writes
most, and the middle one. What they read from outside is given; what others read of the middle of a
chain is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import onnx
from breadth_networks import BREADTH
from onnx import TensorProto, helper, numpy_helper, shape_inference

LENGTHS = (2, 3)
MOST = 50  # chains, of all lengths together

Kind = tuple[str, ...]  # the types of a chain's operators


@dataclass(frozen=True)
class Chain:
    """A chain in a network: the numbers of its nodes, the types of its operators, and the elements
    of all float arrays that it reads and writes."""

    network: str
    nodes: tuple[int, ...]
    kind: Kind
    elements: int


class Network:
    """A network with the types of its values, and constants as initializers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model = shape_inference.infer_shapes(BREADTH[name]())
        graph = self.model.graph
        self.held = {x.name: x for x in graph.initializer}
        for node in (n for n in graph.node if n.op_type == "Constant"):
            value = helper.get_node_attr_value(node, "value")
            self.held[node.output[0]] = numpy_helper.from_array(
                numpy_helper.to_array(value), node.output[0]
            )
        self.nodes = [n for n in graph.node if n.op_type != "Constant"]
        self.types = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}

    def chains(self) -> Iterator[Chain]:
        """All chains whose arrays have known shapes, and which compute with floats."""
        readers: dict[str, list[int]] = {}
        for k, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.input):
                readers.setdefault(name, []).append(k)
        paths = [(k,) for k in range(len(self.nodes))]
        for _ in range(1, max(LENGTHS)):
            paths = [(*p, k) for p in paths for name in self.nodes[p[-1]].output
                     for k in readers.get(name, ())]  # fmt: skip
            for path in dict.fromkeys(paths):
                sizes = [self._elements(name) for name in self.read(path) if name not in self.held]
                made = self._elements(self.nodes[path[-1]].output[0])
                if sizes and made is not None and None not in sizes:
                    kind = tuple(self.nodes[k].op_type for k in path)
                    elements = sum(n for n in (*sizes, made) if n is not None)
                    yield Chain(self.name, path, kind, elements)

    def read(self, path: Sequence[int]) -> list[str]:
        """What a chain reads from outside."""
        own = {name for k in path for name in self.nodes[k].output}
        names = dict.fromkeys(n for k in path for n in self.nodes[k].input if n)
        return [name for name in names if name not in own]

    def _elements(self, name: str) -> int | None:
        """Of a float array; None where it holds something else, or its shape is not known."""
        if name not in self.types:
            return None
        kind = self.types[name].type.tensor_type
        if kind.elem_type != TensorProto.FLOAT or not kind.HasField("shape"):
            return None
        count = 1
        for dim in kind.shape.dim:
            count *= dim.dim_value  # 0 if it is not known
        return count or None

    def cut(self, chain: Chain) -> onnx.ModelProto:
        """A chain as a model of its own."""
        read = self.read(chain.nodes)
        given = [self.types[name] for name in read if name not in self.held]
        held = [self.held[name] for name in read if name in self.held]
        made = self.types[self.nodes[chain.nodes[-1]].output[0]]
        nodes = [self.nodes[k] for k in chain.nodes]
        graph = helper.make_graph(nodes, "chain", given, [made], initializer=held)
        versions = self.model.opset_import
        return helper.make_model(graph, opset_imports=versions, ir_version=self.model.ir_version)


def most_frequent() -> dict[Kind, list[Chain]]:
    """The chains that occur most often in all networks together, the most frequent kind first, and
    of each kind the smaller ones first."""
    found: dict[Kind, list[Chain]] = {}
    for name in BREADTH:
        for chain in Network(name).chains():
            found.setdefault(chain.kind, []).append(chain)
    counts = Counter({kind: len(chains) for kind, chains in found.items()})
    return {
        kind: sorted(found[kind], key=lambda c: (c.elements, c.network, c.nodes))
        for kind, _ in counts.most_common(MOST)
    }


def models() -> dict[str, Callable[[], onnx.ModelProto]]:
    """Two models of each chain, by name."""
    made: dict[str, Callable[[], onnx.ModelProto]] = {}
    for kind, chains in most_frequent().items():
        for which, chain in (("most", chains[-1]), ("middle", chains[len(chains) // 2])):
            name = f"{', '.join(kind)}: {which}, {chain.network}"
            made[name] = partial(_cut, chain)
    return made


def _cut(chain: Chain) -> onnx.ModelProto:
    return Network(chain.network).cut(chain)


def main() -> None:
    """Print how often each chain occurs, and in how many networks."""
    for kind, chains in most_frequent().items():
        networks = {c.network for c in chains}
        print(f"{len(chains):5}  {', '.join(kind):40} in {len(networks)} networks")


if __name__ == "__main__":
    main()
