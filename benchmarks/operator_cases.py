"""Models of one operator, at the sizes that networks have: more than three hundred of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from operator_builder import (
    chosen,
    convolution,
    joined,
    parted,
    pool,
    product,
    product_of_inputs,
    random,
    recurrent,
    reduced,
    resized,
    rms_norm,
    single,
    transposed,
    whole,
)

CASES: dict[str, Callable[[], onnx.ModelProto]] = {}


def add(name: str, build: Callable[..., onnx.ModelProto], *given: Any, **named: Any) -> None:
    """Enters a case; its model is built when it is wanted."""
    assert name not in CASES, name
    CASES[name] = partial(build, *given, **named)


# ---- convolutions --------------------------------------------------------------------------------


def _add_convolutions() -> None:
    plain = [
        (3, 64, 112, 7, 2),
        (3, 32, 112, 3, 2),
        (64, 64, 56, 3, 1),
        (64, 64, 56, 1, 1),
        (64, 256, 56, 1, 1),
        (128, 128, 28, 3, 1),
        (256, 256, 14, 3, 1),
        (512, 512, 7, 3, 1),
        (128, 256, 28, 3, 2),
        (256, 512, 28, 1, 2),
        (1024, 256, 14, 1, 1),
        (960, 160, 7, 1, 1),
        (17, 29, 31, 3, 1),
        (100, 50, 25, 1, 1),
        (32, 1, 64, 1, 1),
        (64, 21, 33, 1, 1),
        (48, 48, 40, 5, 1),
        (3, 16, 64, 9, 1),
        (1, 8, 28, 5, 1),
    ]
    for c, o, n, k, s in plain:
        add(f"conv {c}-{o} {n}² {k}×{k}/{s}", convolution, c, o, (n, n), k, stride=s)
    for width, groups, n in [
        (1, 144, 56),
        (1, 384, 14),
        (2, 32, 28),
        (3, 40, 28),
        (4, 32, 56),
        (8, 32, 28),
        (11, 16, 20),
        (16, 32, 14),
        (24, 10, 28),
        (32, 32, 7),
        (40, 6, 14),
        (48, 4, 14),
        (56, 4, 28),
        (64, 8, 14),
    ]:
        c = width * groups
        add(
            f"grouped conv width {width} ×{groups} {n}²", convolution, c, c, (n, n), 3, group=groups
        )
        add(
            f"grouped conv width {width} ×{groups} {n}²/2",
            *(convolution, c, c, (n, n), 3),
            group=groups,
            stride=2,
        )
    for k, c, n in [(5, 120, 28), (7, 96, 56), (9, 64, 28), (13, 128, 28), (31, 64, 28)]:
        add(f"depthwise conv {c} {n}² {k}×{k}", convolution, c, c, (n, n), k, group=c)
    add("depthwise conv ×2 32-64 56²", convolution, 32, 64, (56, 56), 3, group=32)
    add("grouped 1×1 conv 240/3 28²", convolution, 240, 240, (28, 28), 1, group=3)
    for d in (2, 4, 12):
        add(f"conv 64-64 56² dilated {d}", convolution, 64, 64, (56, 56), 3, dilation=d)
    add("depthwise conv 96 28² dilated 2", convolution, 96, 96, (28, 28), 3, group=96, dilation=2)
    add("conv 64-64 28² pads 0,1,2,1", convolution, 64, 64, (28, 28), 3, pads=(0, 1, 2, 1))
    add("conv 64-64 28² valid", convolution, 64, 64, (28, 28), 3, pads=(0, 0, 0, 0))
    add("conv 64-64 28² 1×7", convolution, 64, 64, (28, 28), (1, 7))
    add("conv 64-64 28² 7×1", convolution, 64, 64, (28, 28), (7, 1))


def _add_other_convolutions() -> None:
    for c, o, n, k, s, g in [
        (1, 512, 16000, 10, 5, 1),
        (512, 512, 3199, 3, 2, 1),
        (256, 256, 500, 3, 1, 1),
        (80, 256, 300, 5, 1, 1),
        (768, 768, 249, 127, 1, 16),
        (256, 256, 250, 31, 1, 256),
        (64, 64, 1000, 7, 1, 64),
        (24, 24, 999, 3, 1, 8),
        (9, 9, 300, 3, 1, 3),
    ]:
        add(
            f"1-D conv {c}-{o} {n} ×{k}/{s} groups {g}",
            convolution,
            c,
            o,
            (n,),
            k,
            stride=s,
            group=g,
        )
    for c, o, n, k, s, g in [
        (3, 32, (8, 56, 56), 3, 1, 1),
        (32, 64, (8, 28, 28), 3, 1, 1),
        (64, 64, (4, 14, 14), 3, 2, 1),
        (64, 128, (8, 14, 14), 1, 1, 1),
        (32, 32, (8, 28, 28), 3, 1, 32),
        (48, 48, (4, 14, 14), 3, 1, 4),
    ]:
        size = "×".join(map(str, n))
        add(
            f"3-D conv {c}-{o} {size} {k}/{s} groups {g}",
            convolution,
            c,
            o,
            n,
            k,
            stride=s,
            group=g,
        )
    for c, o, n, k, s, g in [
        (64, 64, (32, 32), 4, 2, 1),
        (128, 64, (28, 28), 2, 2, 1),
        (32, 16, (56, 56), 3, 1, 1),
        (21, 21, (16, 16), 4, 2, 21),
        (64, 32, (250,), 4, 2, 1),
        (256, 128, (14, 14), 2, 2, 1),
        (16, 8, (4, 14, 14), 2, 2, 1),
    ]:
        size = "×".join(map(str, n))
        add(f"transposed conv {c}-{o} {size} {k}/{s} groups {g}", transposed, c, o, n, k, s, g)


# ---- products ------------------------------------------------------------------------------------


def _add_products() -> None:
    for m, k, n in [
        (1, 768, 768),
        (1, 2048, 1000),
        (1, 4096, 4096),
        (2, 512, 512),
        (7, 300, 100),
        (16, 768, 3072),
        (64, 64, 64),
        (128, 768, 768),
        (128, 768, 3072),
        (128, 3072, 768),
        (197, 384, 1152),
        (197, 197, 64),
        (1000, 1, 1000),
        (4096, 64, 13),
        (13, 4096, 7),
        (4096, 32, 2),
        (33, 129, 65),
        (1024, 1024, 1),
        (256, 256, 8000),
        (512, 2, 512),
    ]:
        add(f"product {m}×{k}×{n}", product, (m, k), (k, n))
    for b, m, k, n in [
        (12, 128, 64, 128),
        (12, 128, 128, 64),
        (64, 49, 32, 49),
        (8, 1, 64, 512),
        (4, 197, 64, 197),
        (3, 77, 50, 33),
        (100, 5, 5, 5),
    ]:
        add(f"batched product {b}×{m}×{k}×{n}", product_of_inputs, (b, m, k), (b, k, n))
    for name, a, b in [("A", 1, 0), ("B", 0, 1), ("A and B", 1, 1)]:
        shape, other = ((300, 200) if a else (200, 300)), ((250, 300) if b else (300, 250))
        add(
            f"gemm 200×300×250, {name} transposed",
            single,
            "Gemm",
            shape,
            [random(*other), random(250)],
            transA=a,
            transB=b,
        )


# ---- along axes ----------------------------------------------------------------------------------


def _add_reductions() -> None:
    for op in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"):
        add(f"reduce {op} 512×1000 last", reduced, f"Reduce{op}", (512, 1000), (1,))
    for shape, axes in [
        ((512, 1000), (0,)),
        ((1, 512, 28, 28), (1,)),
        ((1, 512, 28, 28), (2, 3)),
        ((1, 1280, 7, 7), (2, 3)),
        ((8, 512, 100), (1,)),
        ((8, 100, 512), (1, 2)),
        ((16, 16, 16, 16, 16), (1, 3)),
        ((100000,), (0,)),
        ((3, 100000), (1,)),
        ((4000, 7), (1,)),
        ((7, 4000), (0,)),
    ]:
        text = "×".join(map(str, shape))
        add(f"reduce Mean {text} {axes}", reduced, "ReduceMean", shape, axes)
        add(f"reduce Max {text} {axes}", reduced, "ReduceMax", shape, axes)
    for axis, shape in [(1, (512, 1000)), (0, (512, 1000)), (1, (1, 21, 65, 65)), (2, (8, 30, 40))]:
        text = "×".join(map(str, shape))
        add(
            f"argmax {text} axis {axis}",
            single,
            "ArgMax",
            shape,
            result=TensorProto.INT64,
            axis=axis,
            keepdims=0,
        )
    for axis, shape in [
        (-1, (128, 1000)),
        (-1, (12, 128, 128)),
        (1, (8, 128, 64)),
        (0, (64, 500)),
        (1, (1, 21, 65, 65)),
        (-1, (1, 50257)),
        (-1, (4096, 7)),
        (2, (2, 3, 40, 50)),
    ]:
        text = "×".join(map(str, shape))
        add(f"softmax {text} axis {axis}", single, "Softmax", shape, axis=axis)
    add("log-softmax 128×1000", single, "LogSoftmax", (128, 1000), axis=-1)
    for axis, shape in [(1, (64, 1000)), (0, (1000, 64)), (2, (4, 16, 300)), (1, (2, 1000, 30))]:
        text = "×".join(map(str, shape))
        add(
            f"cumulative sum {text} axis {axis}",
            single,
            "CumSum",
            shape,
            [np.array(axis, np.int64)],
        )
    for k, shape in [
        (1, (64, 1000)),
        (10, (64, 1000)),
        (5, (1, 1000)),
        (100, (1, 8400)),
        (300, (4, 2000)),
    ]:
        text = "×".join(map(str, shape))
        add(f"top {k} of {text}", single, "TopK", shape, [whole(k)], outputs=2)


def _add_normalizations() -> None:
    for n, d in [(128, 768), (197, 192), (1, 4096), (3136, 96), (1000, 30)]:
        scale, bias = random(d), random(d)
        add(f"layer norm {n}×{d}", single, "LayerNormalization", (n, d), [scale, bias], axis=-1)
    add(
        "layer norm 64×(12×40)",
        single,
        "LayerNormalization",
        (64, 12, 40),
        [random(12, 40), random(12, 40)],
        axis=1,
    )
    for c, n in [(256, 28), (64, 56), (32, 9)]:
        given = [random(c), random(c)]
        add(f"instance norm {c} {n}²", single, "InstanceNormalization", (1, c, n, n), given)
        for groups in (32, 8):
            add(
                f"group norm {c}/{groups} {n}²",
                single,
                "GroupNormalization",
                (1, c, n, n),
                given,
                num_groups=groups,
            )
        four = [np.abs(random(c)) + 1, random(c), random(c), np.abs(random(c)) + 1]
        add(f"batch norm {c} {n}²", single, "BatchNormalization", (1, c, n, n), four)
    add("lrn 64 55²", single, "LRN", (1, 64, 55, 55), size=5)
    add("lp norm 512×1000", single, "LpNormalization", (512, 1000), axis=-1, p=2)
    add("mean-variance norm 64 28²", single, "MeanVarianceNormalization", (4, 64, 28, 28))
    add("rms norm 128×768", rms_norm, 128, 768)
    add("rms norm 64×4096", rms_norm, 64, 4096)


# ---- windows and pictures ------------------------------------------------------------------------


def _add_pictures() -> None:
    for op in ("MaxPool", "AveragePool"):
        for shape, k, s, p in [
            ((1, 64, 112, 112), 3, 2, 1),
            ((1, 64, 112, 112), 2, 2, 0),
            ((1, 64, 56, 56), 3, 1, 1),
            ((1, 256, 20, 20), 5, 1, 2),
            ((1, 256, 13, 13), 13, 1, 6),
            ((1, 192, 35, 35), 3, 2, 0),
            ((1, 512, 7, 7), 7, 1, 0),
            ((1, 16, 16, 28, 28), 3, 1, 1),
            ((1, 32, 8, 28, 28), 2, 2, 0),
            ((1, 64, 1000), 3, 2, 1),
            ((1, 64, 1000), 9, 1, 4),
        ]:
            add(f"{op} {'×'.join(map(str, shape))} {k}/{s}", pool, op, shape, k, s, p)
    add("MaxPool 1×64×55×55 3/2 ceil", pool, "MaxPool", (1, 64, 55, 55), 3, 2, 0, ceil_mode=1)
    add(
        "AveragePool 1×64×28×28 3/1 counting pads",
        pool,
        "AveragePool",
        (1, 64, 28, 28),
        3,
        1,
        1,
        count_include_pad=1,
    )
    for c, n in [(512, 7), (1280, 7), (64, 56)]:
        add(f"global average pool {c} {n}²", single, "GlobalAveragePool", (1, c, n, n))
        add(f"global max pool {c} {n}²", single, "GlobalMaxPool", (1, c, n, n))
    for mode in ("nearest", "linear", "cubic"):
        for shape, scales in [
            ((1, 64, 28, 28), (1, 1, 2, 2)),
            ((1, 21, 33, 33), (1, 1, 8, 8)),
            ((1, 3, 224, 224), (1, 1, 0.5, 0.5)),
        ]:
            text = "×".join(map(str, shape[1:]))
            add(f"resize {mode} {text} ×{scales[-1]:g}", resized, shape, scales, mode=mode)
    add(
        "resize linear 64×28×28 ×2 align corners",
        resized,
        (1, 64, 28, 28),
        (1, 1, 2, 2),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    for mode in ("constant", "reflect", "edge"):
        pads = whole(0, 0, 1, 1, 0, 0, 1, 1)
        add(f"pad {mode} 64×56×56", single, "Pad", (1, 64, 56, 56), [pads], mode=mode)
    add("depth to space 256×28×28", single, "DepthToSpace", (1, 256, 28, 28), blocksize=2)
    add(
        "depth to space CRD 36×56×56",
        single,
        "DepthToSpace",
        (1, 36, 56, 56),
        blocksize=2,
        mode="CRD",
    )
    add("space to depth 64×56×56", single, "SpaceToDepth", (1, 64, 56, 56), blocksize=2)


# ---- movement ------------------------------------------------------------------------------------


def _add_movement() -> None:
    for shape, perm in [
        ((1, 64, 56, 56), (0, 2, 3, 1)),
        ((1, 56, 56, 64), (0, 3, 1, 2)),
        ((8, 512, 512), (0, 2, 1)),
        ((1, 128, 12, 64), (0, 2, 1, 3)),
        ((1, 12, 64, 128), (0, 1, 3, 2)),
        ((1, 2, 116, 28, 28), (0, 2, 1, 3, 4)),
        ((1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
        ((1000, 3), (1, 0)),
        ((3, 224, 224), (1, 2, 0)),
        ((17, 19, 23, 29), (3, 2, 1, 0)),
    ]:
        text = f"{'×'.join(map(str, shape))} {''.join(map(str, perm))}"
        add(f"transpose {text}", single, "Transpose", shape, perm=perm)
    add("concat 64+64 56² channels", joined, [(1, 64, 56, 56)] * 2, 1)
    add("concat 4×(64×7) last", joined, [(1, 512, 7)] * 4, 2)
    add("split 3 of 197×1152", parted, (1, 197, 1152), 2, 3)
    add("split 2 of 116×28×28", parted, (1, 116, 28, 28), 1, 2)
    for axis, step in [(3, 2), (2, 2), (1, 1), (3, 1)]:
        bounds = [whole(1), whole(55), whole(axis), whole(step)]
        add(f"slice 64×56×56 axis {axis} step {step}", single, "Slice", (1, 64, 56, 56), bounds)
    add(
        "slice 64×56×56 backwards",
        single,
        "Slice",
        (1, 64, 56, 56),
        [whole(55), whole(-57), whole(3), whole(-1)],
    )
    rows = np.random.default_rng(0).integers(0, 5000, 128)
    add("gather 128 rows of 5000×768", single, "Gather", (5000, 768), [rows], axis=0)
    add("gather 64 columns of 1000×500", single, "Gather", (1000, 500), [rows[:64] % 500], axis=1)
    places = np.random.default_rng(1).integers(0, 500, (300, 200))
    add("gather elements 500×200", single, "GatherElements", (500, 200), [places], axis=0)
    at = np.random.default_rng(2).permutation(1000)[:300, None]
    add("scatter nd 300 of 1000×64", single, "ScatterND", (1000, 64), [at, random(300, 64)])
    add(
        "scatter elements 500×200",
        single,
        "ScatterElements",
        (500, 200),
        [np.argsort(random(300, 200), axis=0), random(300, 200)],
        axis=0,
    )
    add("expand 1×768 to 128×768", single, "Expand", (1, 768), [whole(128, 768)])
    add("tile 64×64 ×(4,8)", single, "Tile", (64, 64), [whole(4, 8)])
    add("where 128×128×12", chosen, (12, 128, 128))
    add("triangle 512×512", single, "Trilu", (512, 512), [np.array(0, np.int64)], upper=0)
    add("one times reshape 128×12×64", single, "Mul", (128, 768), [random(768)])


# ---- element by element --------------------------------------------------------------------------

UNARY = (
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Log",
    "Sqrt",
    "Erf",
    "Gelu",
    "HardSwish",
    "HardSigmoid",
    "Elu",
    "Selu",
    "Celu",
    "Softplus",
    "Softsign",
    "Mish",
    "Sin",
    "Cos",
    "Atan",
    "Abs",
    "Neg",
    "Floor",
    "Round",
    "Reciprocal",
    "Sign",
    "ThresholdedRelu",
    "Tan",
    "Sinh",
    "Asinh",
)


def _add_elementwise() -> None:
    for op in UNARY:
        add(f"{op} 64×1024", single, op, (64, 1024))
    for op in ("Add", "Mul", "Div", "Max", "Pow"):
        add(f"{op} 64×1024 by a row", single, op, (64, 1024), [np.abs(random(1024)) + 0.5])
    add("PRelu 64×56×56", single, "PRelu", (1, 64, 56, 56), [random(64, 1, 1)])
    add("Add 64×56×56 by channel", single, "Add", (1, 64, 56, 56), [random(64, 1, 1)])
    add("Mul 256×28×28 by channel", single, "Mul", (1, 256, 28, 28), [random(1, 256, 1, 1)])
    add("Pow 64×1024 by 2", single, "Pow", (64, 1024), [np.array(2, np.float32)])
    add("Pow 64×1024 by 3", single, "Pow", (64, 1024), [np.array(3, np.float32)])
    add("Pow 64×1024 by 0.5", single, "Pow", (64, 1024), [np.array(0.5, np.float32)])
    add(
        "Clip 64×1024",
        single,
        "Clip",
        (64, 1024),
        [np.array(0, np.float32), np.array(6, np.float32)],
    )
    for kind in ("UINT8", "INT8", "INT32", "INT64", "FLOAT16", "BFLOAT16", "DOUBLE", "BOOL"):
        to = TensorProto.DataType.Value(kind)
        add(f"cast to {kind.lower()} 64×1024", single, "Cast", (64, 1024), result=to, to=to)
    zero = np.array(0, np.uint8)
    add(
        "quantize 64×1024",
        single,
        "QuantizeLinear",
        (64, 1024),
        [np.array(0.05, np.float32), zero],
        result=TensorProto.UINT8,
    )


def _add_recurrent() -> None:
    for op in ("LSTM", "GRU", "RNN"):
        add(f"{op} 50×128-128", recurrent, op, 50, 128, 128, "forward")
        add(f"{op} 50×64-96 both ways", recurrent, op, 50, 64, 96, "bidirectional")
    add("LSTM 20×256-512", recurrent, "LSTM", 20, 256, 512, "forward")
    add("GRU 100×40-200", recurrent, "GRU", 100, 40, 200, "forward")


_add_convolutions()
_add_other_convolutions()
_add_products()
_add_reductions()
_add_normalizations()
_add_pictures()
_add_movement()
_add_elementwise()
_add_recurrent()
