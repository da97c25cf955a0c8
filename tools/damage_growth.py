"""Parts put behind a model's first output: long, deep, or far larger than the file."""

from damage_common import EXTREMES, OnModel, Random, append, constant, untyped
from onnx import ModelProto, TensorProto, helper

LONG_CHAIN = 300  # nodes
DEEP = (3, 20, 60, 90, 200)  # graphs in graphs
LARGE = (1, 1, 10, 1000, 10**6, 2**31 - 1, 2**40)
CHAINED = (
    *("Relu", "Neg", "Sigmoid", "Identity", "Exp", "Softmax", "HardSwish", "Elu", "Sign", "Floor"),
    *("Tanh", "Gelu", "Mish", "Celu", "Erf", "Round", "Softplus", "LogSoftmax", "Hardmax"),
)
REARRANGEMENTS = (
    *("Reshape", "Transpose", "Slice", "Gather", "Unsqueeze", "Squeeze", "Split", "ReduceSum"),
    *("TopK", "CumSum", "Trilu", "Flatten", "Concat"),
)


def append_chain(source: Random, model: ModelProto) -> None:
    """A long chain of small operators, of one kind or of many."""
    kinds = (source.choice(CHAINED),) if source.random() < 0.5 else CHAINED
    for _ in range(source.choice((10, 64, LONG_CHAIN))):
        append(model, source.choice(kinds))


def append_squares(source: Random, model: ModelProto) -> None:
    """Every value is used twice by the next: written out, there would be 2**n of them."""
    for _ in range(source.choice((5, 40))):
        append(model, source.choice(("Mul", "Add", "Concat", "Max")), model.graph.output[0].name)
        if model.graph.node[-1].op_type == "Concat":
            model.graph.node[-1].attribute.append(helper.make_attribute("axis", 0))


def append_growth(source: Random, model: ModelProto) -> None:
    """A value that is far larger than the file."""
    sizes = [source.choice(LARGE) for _ in range(source.randint(1, 3))]
    kind = source.choice(("ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "OneHot"))
    if kind == "ConstantOfShape":
        append(model, kind)
        model.graph.node[-1].input[:] = [constant(model, sizes)]
    elif kind == "Range":
        ends = [helper.make_tensor(f"end{i}", TensorProto.INT64, [], [v]) for i, v in
                enumerate((0, source.choice(LARGE), source.choice((1, -1, 2))))]  # fmt: skip
        model.graph.initializer.extend(ends)
        append(model, kind)
        model.graph.node[-1].input[:] = [e.name for e in ends]
    elif kind == "Pad":
        append(model, kind, constant(model, [0, 0, *sizes[:2]][:4]))
    elif kind == "Resize":
        append(model, kind, "", "", constant(model, [1, *sizes]))
    elif kind == "OneHot":
        index = append(model, "Cast", to=TensorProto.INT64)
        append(model, kind, constant(model, sizes[:1]), constant(model, [0, 1]))
        model.graph.node[-1].input[0] = index
    else:
        append(model, kind, constant(model, sizes))


def append_rearrangement(source: Random, model: ModelProto) -> None:
    """Operators that move elements, with numbers that fit or nearly fit."""
    small = [source.choice((0, 0, 1, -1, 2, 3, source.choice(EXTREMES))) for _ in range(4)]
    kind = source.choice(REARRANGEMENTS)
    if kind == "Transpose":
        append(model, kind, perm=small[: source.randint(1, 4)])
    elif kind == "Slice":
        parts = [constant(model, [n]) for n in small]
        append(model, kind, *parts)
    elif kind in ("Flatten", "Concat"):
        append(model, kind, axis=small[0])
    elif kind == "Trilu":
        append(model, kind)
    elif kind == "Split":
        append(model, kind, num_outputs=abs(small[0]) % 2**31)
    else:
        append(model, kind, constant(model, small[: source.randint(1, 3)]))


def append_window(source: Random, model: ModelProto) -> None:
    """Pooling over what was made four-dimensional, with windows of any size."""
    append(model, "Reshape", constant(model, [1, 1, 1, -1]))
    sides = [source.choice((1, 2, 3, 5, source.choice(EXTREMES))) for _ in range(4)]
    attributes = {"kernel_shape": [1, sides[0]], "strides": [1, sides[1]]}
    if source.random() < 0.5:
        attributes["pads"] = [0, sides[2] - 1, 0, sides[2] - 1]
    append(model, source.choice(("MaxPool", "AveragePool")), **attributes)


def append_nested_graphs(source: Random, model: ModelProto) -> None:
    """Branches in branches."""
    relu = helper.make_node("Relu", [model.graph.output[0].name], ["y0"])
    graph = helper.make_graph([relu], "g", [], [untyped("y0")])
    for i in range(1, source.choice(DEEP)):
        names = ["true"], [f"y{i}"]
        inner = helper.make_node("If", *names, then_branch=graph, else_branch=graph)
        graph = helper.make_graph([inner], "g", [], [untyped(f"y{i}")])
        if graph.ByteSize() > 1 << 20:
            break
    model.graph.initializer.append(helper.make_tensor("true", TensorProto.BOOL, [], [True]))
    model.graph.node.extend(graph.node)
    model.graph.output[0].name = graph.output[0].name


def append_functions(source: Random, model: ModelProto) -> None:
    """Functions that call each other twice: 2**n calls, or without end."""
    count = source.choice((2, 10, 18, 40))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for i in range(count):
        callee = f"f{i - 1}" if i else source.choice(("Relu", f"f{count - 1}"))
        domain = "own" if callee.startswith("f") else ""
        body = [
            helper.make_node(callee, ["x"], ["t"], domain=domain),
            helper.make_node(callee, ["t"], ["y"], domain=domain),
        ]
        model.functions.append(helper.make_function("own", f"f{i}", ["x"], ["y"], body, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    append(model, f"f{count - 1}", domain="own")


def append_loop(source: Random, model: ModelProto) -> None:
    """A loop that runs as often as a number in the file says."""
    body = helper.make_graph(
        [helper.make_node("Neg", ["v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [untyped("i"), untyped("c"), untyped("v")],
        [untyped("d"), untyped("w")],
    )
    trips = [source.choice((0, 3, 1000, 10**5, 10**9, 2**62))]
    model.graph.initializer.append(helper.make_tensor("trips", TensorProto.INT64, [], trips))
    model.graph.initializer.append(helper.make_tensor("go", TensorProto.BOOL, [], [True]))
    append(model, "Loop", body=body)
    node = model.graph.node[-1]
    node.input[:] = ["trips", "go", node.input[0]]


ON_GROWTH: tuple[OnModel, ...] = (
    *(append_chain, append_chain, append_squares, append_growth, append_growth),
    *(append_rearrangement, append_rearrangement, append_rearrangement, append_window),
    *(append_nested_graphs, append_functions, append_loop),
)
