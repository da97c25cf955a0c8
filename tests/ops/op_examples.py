"""The examples of test_examples.py: one or more of every operator."""

import operator

import numpy as np
import op_cases as oc
from op_cases import case

from tilewright.base.dtype import bool_, f16, f32, i8, i32, u8
from tilewright.ir.expr import as_expr

X = (f32, ("n", 4))
Y = (f32, (1, 4))
INTS = (i32, ("n", 4))
BOOLS = (bool_, ("n", 4))
IMAGE = (f32, (2, 4, "n", 6))
PLACES = np.array([[0, 2], [-1, 1]])
WINDOW = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1)}
NO_PADS = {"pads_begin": (0, 0), "pads_end": (0, 0)}
GATES = {"alphas": (0.0,) * 3, "betas": (0.0,) * 3}

UNARY = {
    "neg": operator.neg,
    "abs": np.abs,
    "sign": np.sign,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "erf": oc.erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": oc.sigmoid,
}
INSIDE = {  # functions of 0 … 1, or of 1 and more
    "sqrt": (np.sqrt, 0.0),
    "log": (np.log, 0.5),
    "log1p": (np.log1p, 0.0),
    "expm1": (np.expm1, 0.0),
    "asin": (np.arcsin, 0.0),
    "acos": (np.arccos, 0.0),
    "atanh": (np.arctanh, 0.0),
    "acosh": (np.arccosh, 1.0),
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.mod,
    "rem": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}

ELEMENTWISE = [
    *(case(name, X, expected=f) for name, f in UNARY.items()),
    *(
        case(name, (np.linspace(0.05, 0.95, 20) + low).astype(np.float32), expected=f)
        for name, (f, low) in INSIDE.items()
    ),
    *(case(name, X, Y, expected=f) for name, f in BINARY.items()),
    *(case(name, INTS, (i32, (4,)), expected=f) for name, f in BITS.items()),
    *(case(name, BOOLS, BOOLS, expected=f) for name, f in BITS.items()),
    case("not", BOOLS, expected=np.logical_not),
    case("not", INTS, expected=np.invert),
    case("shl", INTS, (i32, (4,)), expected=np.left_shift),
    case("shr", INTS, (i32, (4,)), expected=np.right_shift),
    case("pow", (np.arange(1, 9) / 4).astype(np.float32), (f32, (1,)), expected=np.power),
    case("where", BOOLS, X, Y, expected=np.where),
    case("cast", X, to=i8, expected=lambda x: x.astype(np.int8)),
    case("cast", INTS, to=f16, expected=lambda x: x.astype(np.float16)),
    case("bitcast", X, to=i32, expected=lambda x: x.view(np.int32)),
    case("clip", X, low=-0.5, high=0.25, expected=lambda x: np.clip(x, -0.5, 0.25)),
    case("clip", INTS, low=3, expected=lambda x: np.maximum(x, 3)),
    case("leaky_relu", X, alpha=0.1, expected=lambda x: np.where(x < 0, x * 0.1, x)),
]

REDUCTIONS = [
    case("reduce_sum", IMAGE, axes=(1, -1), expected=lambda x: x.sum((1, 3), keepdims=True)),
    case("reduce_sum", INTS, axes=(0,), keepdims=False, expected=lambda x: x.sum(0, np.int32)),
    case("reduce_prod", X, axes=(0, 1), keepdims=False, expected=lambda x: x.prod()),
    case("reduce_max", IMAGE, axes=(2,), keepdims=False, expected=lambda x: x.max(2)),
    case("reduce_min", INTS, axes=(1,), keepdims=False, expected=lambda x: x.min(1)),
    case("reduce_mean", IMAGE, axes=(0, 2), expected=lambda x: x.mean((0, 2), keepdims=True)),
    case(
        "reduce_logsumexp",
        X,
        axes=(0,),
        keepdims=False,
        expected=lambda x: np.log(np.exp(x).sum(0)),
    ),
    case("argmax", IMAGE, axis=2, keepdims=False, expected=lambda x: x.argmax(2)),
    case("argmin", INTS, axis=-1, keepdims=False, expected=lambda x: x.argmin(1)),
    case(
        "argmax",
        INTS,
        axis=1,
        keepdims=False,
        last=True,
        expected=lambda x: 3 - x[:, ::-1].argmax(1),
    ),
    case("cumsum", X, axis=0, expected=lambda x: x.cumsum(0)),
    case("cumsum", X, axis=1, exclusive=True, expected=lambda x: x.cumsum(1) - x),
    case("cumprod", X, axis=0, reverse=True, expected=lambda x: x[::-1].cumprod(0)[::-1]),
    case("softmax", IMAGE, axis=2, expected=lambda x: oc.softmax(x, 2)),
    case("log_softmax", IMAGE, axis=-1, expected=lambda x: np.log(oc.softmax(x, -1))),
    case(
        "layer_norm",
        X,
        (f32, (4,)),
        (f32, (4,)),
        expected=lambda x, s, b: oc.standardize(x, (1,), 1e-5) * s + b,
    ),
    case(
        "layer_norm",
        X,
        (f32, (4,)),
        axis=0,
        statistics=True,
        expected=lambda x, s: (
            oc.standardize(x, (0, 1), 1e-5) * s,
            x.mean(keepdims=True),
            1 / np.sqrt(x.var(keepdims=True) + 1e-5),
        ),
    ),
    case(
        "rms_norm",
        X,
        (f32, (4,)),
        expected=lambda x, s: x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * s,
    ),
    case(
        "standardize",
        IMAGE,
        axes=(2, 3),
        epsilon=0.5,
        expected=lambda x: oc.standardize(x, (2, 3), 0.5),
    ),
    case(
        "lrn",
        IMAGE,
        size=3,
        alpha=0.5,
        beta=0.75,
        bias=2.0,
        expected=lambda x: oc.lrn(x, 3, 0.5, 0.75, 2.0),
    ),
]

MOVEMENTS = [
    case("transpose", IMAGE, perm=(2, 0, 3, 1), expected=lambda x: x.transpose(2, 0, 3, 1)),
    case("reshape", IMAGE, shape=(8, "n", 2, 3), expected=lambda x: x.reshape(8, 5, 2, 3)),
    case("reshape", IMAGE, shape=(lambda n: as_expr(n) * 48,), expected=lambda x: x.reshape(-1)),
    case(
        "slice",
        IMAGE,
        starts=(0, 3, 1, 5),
        sizes=(2, 2, lambda n: n - 1, 3),
        steps=(1, -1, 1, -2),
        expected=lambda x: x[:, 3:1:-1, 1:, 5::-2],
    ),
    case("concat", X, Y, X, axis=0, expected=lambda *xs: np.concatenate(xs)),
    case(
        "pad",
        X,
        before=(1, 0),
        after=(2, 3),
        value=7.0,
        expected=lambda x: np.pad(x, [(1, 2), (0, 3)], constant_values=7),
    ),
    case(
        "pad",
        X,
        (f32, ()),
        before=(0, 1),
        after=(0, 0),
        expected=lambda x, fill: np.pad(x, [(0, 0), (1, 0)], constant_values=fill),
    ),
    *(
        case(
            "pad",
            X,
            before=(2, 1),
            after=(1, 2),
            mode=mode,
            expected=lambda x, mode=mode: np.pad(x, [(2, 1), (1, 2)], mode=mode),
        )
        for mode in ("reflect", "edge", "wrap")
    ),
    case("expand", Y, shape=(2, "n", 4), expected=lambda x: np.broadcast_to(x, (2, 5, 4))),
    case("tile", X, repeats=(2, 3), expected=lambda x: np.tile(x, (2, 3))),
    case("dilate", X, strides=(1, 3), expected=lambda x: np.insert(x, [1, 1, 2, 2, 3, 3], 0, 1)),
    case("gather", X, PLACES, axis=0, expected=lambda x, p: x[p]),
    case(
        "gather_elements",
        (f32, (2, "n")),
        PLACES,
        axis=1,
        expected=lambda x, p: np.take_along_axis(x, p, 1),
    ),
    case("gather_nd", X, PLACES, expected=lambda x, p: x[p[:, 0], p[:, 1]]),
    case(
        "gather_nd",
        (f32, (2, "n", 3)),
        PLACES[..., None],
        batch_dims=1,
        expected=lambda x, p: np.stack([x[0, p[0, :, 0]], x[1, p[1, :, 0]]]),
    ),
    case(
        "scatter_elements",
        (f32, (2, "n")),
        PLACES,
        (f32, (2, 2)),
        axis=1,
        expected=lambda x, p, u: oc.scattered(x, p, u, 1),
    ),
    case(
        "scatter_elements",
        (f32, ("n", 2)),
        np.array([[0, 1], [0, 1], [2, 1]]),
        (f32, (3, 2)),
        axis=0,
        reduction="add",
        expected=lambda x, p, u: oc.scattered(x, p, u, 0, operator.add),
    ),
    case("scatter_nd", X, PLACES[:, :1], (f32, (2, 4)), expected=oc.scattered_nd),
    case("trilu", IMAGE, diagonal=1, expected=lambda x: np.triu(x, 1)),
    case("trilu", X, np.array(-1), upper=False, expected=np.tril),
    case("iota", length="n", dtype=f32, expected=lambda: np.arange(5, dtype=np.float32)),
    case("full", shape=("n", 2), dtype=u8, value=9, expected=lambda: np.full((5, 2), 9, np.uint8)),
    case("dims", values=(3, "n"), expected=lambda: np.array([3, 5])),
]

CONTRACTIONS = [
    case("matmul", (f32, (2, 1, "n", 3)), (f32, (4, 3, 6)), expected=np.matmul),
    case("matmul", INTS, (i32, (4, 3)), expected=np.matmul),
    case(
        "conv",
        IMAGE,
        (f32, (6, 2, 3, 3)),
        strides=(2, 2),
        pads_begin=(1, 1),
        pads_end=(1, 1),
        dilations=(1, 1),
        groups=2,
        expected=lambda x, w: oc.conv2d(x, w, stride=2, pad=1, groups=2),
    ),
    case(
        "conv",
        IMAGE,
        (f32, (4, 1, 2, 2)),
        strides=(1, 1),
        pads_begin=(0, 0),
        pads_end=(0, 0),
        dilations=(2, 2),
        groups=4,
        expected=lambda x, w: oc.conv2d(x, w, dilation=2, groups=4),
    ),
    case(
        "einsum",
        (f32, (2, "n", 3)),
        (f32, (3, "n")),
        terms=("bij", "ji"),
        result="jb",
        expected=lambda x, y: np.einsum("bij,ji->jb", x, y),
    ),
    case("einsum", (f32, (3, 3)), terms=("ii",), result="i", expected=np.diagonal),
    case(
        "max_pool",
        IMAGE,
        **WINDOW,
        **NO_PADS,
        expected=lambda x: oc.pool2d(x, 2, 2, lambda b: b.max(-1)),
    ),
    case(
        "max_pool",
        np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4),
        **WINDOW,
        **NO_PADS,
        indices=True,
        expected=lambda x: (x[..., 1::2, 1::2], x[..., 1::2, 1::2].astype(np.int64)),
    ),
    case(
        "average_pool",
        IMAGE,
        **WINDOW,
        **NO_PADS,
        expected=lambda x: oc.pool2d(x, 2, 2, lambda b: b.mean(-1)),
    ),
    case(
        "average_pool",
        np.ones((1, 1, 3, 3), np.float32),
        kernel=(2, 2),
        strides=(1, 1),
        dilations=(1, 1),
        pads_begin=(1, 1),
        pads_end=(0, 0),
        include_pad=True,
        expected=lambda x: np.array([[[[0.25, 0.5, 0.5], [0.5, 1, 1], [0.5, 1, 1]]]], np.float32),
    ),
    case(
        "lp_pool",
        IMAGE,
        **WINDOW,
        **NO_PADS,
        p=3,
        expected=lambda x: oc.pool2d(x, 2, 2, lambda b: (np.abs(b) ** 3).sum(-1) ** (1 / 3)),
    ),
    case(
        "fold",
        (f32, (2, 6, 4)),
        shape=(6,),
        kernel=(3,),
        strides=(1,),
        pads_begin=(0,),
        pads_end=(0,),
        dilations=(1,),
        expected=lambda x: oc.folded(x, 6, 3),
    ),
    case(
        "grid_sample",
        (f32, (2, 3, "n", 4)),
        (f32, (2, 3, 2, 2)),
        expected=oc.bilinear,
    ),
    case(
        "roi_align",
        np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4),
        np.array([[0, 0, 4, 4]], np.float32),
        np.array([0]),
        height=2,
        width=2,
        samples=2,
        half_pixel=True,
        expected=lambda x, r, b: x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)),
    ),
    case(
        "deform_columns",
        (f32, (1, 2, "n", 6)),
        np.zeros((1, 8, 4, 5), np.float32),
        kernel=(2, 2),
        strides=(1, 1),
        pads_begin=(0, 0),
        dilations=(1, 1),
        expected=lambda x, o: np.lib.stride_tricks.sliding_window_view(x, (4, 5), axis=(2, 3)),
    ),
    case(
        "lstm",
        (f32, ("n", 2, 12)),
        (f32, (3, 12)),
        (f32, (2, 3)),
        (f32, (2, 3)),
        activations=("sigmoid", "tanh", "tanh"),
        **GATES,
        expected=oc.lstm,
    ),
    case(
        "gru",
        (f32, ("n", 2, 9)),
        (f32, (3, 9)),
        (f32, (2, 3)),
        activations=("sigmoid", "tanh"),
        alphas=(0.0, 0.0),
        betas=(0.0, 0.0),
        expected=oc.gru,
    ),
    case(
        "rnn",
        (f32, ("n", 2, 3)),
        (f32, (3, 3)),
        (f32, (2, 3)),
        activations=("tanh",),
        alphas=(0.0,),
        betas=(0.0,),
        expected=oc.rnn,
    ),
]

HOST = [
    case(
        "top_k",
        np.array([[3, 1, 3, 2]], np.int32),
        k=3,
        expected=lambda x: (np.array([[3, 3, 2]], np.int32), np.array([[0, 2, 3]])),
    ),
    case(
        "nonzero",
        np.array([[0, 2], [3, 0]], np.int32),
        count=2,
        expected=lambda x: np.array([[0, 1], [1, 0]]),
    ),
    case(
        "compress",
        X,
        np.array([True, False, True]),
        count=2,
        axis=0,
        expected=lambda x, c: x[:3][c],
    ),
    case(
        "unique",
        np.array([3, 1, 3], np.int32),
        count=2,
        sorted=False,
        expected=lambda x: (
            np.array([3, 1], np.int32),
            np.array([0, 1]),
            np.array([0, 1, 0]),
            np.array([2, 1]),
        ),
    ),
    case(
        "suppress",
        np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]], np.float32),
        np.array([[[0.5, 0.9, 0.1]]], np.float32),
        count=2,
        most=3,
        overlap=0.5,
        expected=lambda b, s: np.array([[0, 0, 1], [0, 0, 2]]),
    ),
    case("det", (f32, (2, 3, 3)), expected=np.linalg.det),
]

CASES = [*ELEMENTWISE, *REDUCTIONS, *MOVEMENTS, *CONTRACTIONS, *HOST]
