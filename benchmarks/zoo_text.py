"""Sequence networks: BERT-base, a small GPT-2 and an LSTM classifier, as PyTorch exports them.

Sources: Devlin et al. 2018 (arXiv 1810.04805), the GPT-2 report (Radford et al. 2019) and the
graphs that the PyTorch exporter writes for the Hugging Face models in eager attention.
`LayerNormalization` is one node (opset 17). With a symbolic batch or sequence the shapes of
reshapes are computed from `Shape` nodes, with numbers they are constants: both are what the
exporter does.

Weights are Xavier-scaled (variance 1 / fan-in): queries and keys have a variance near 1, so
attention is neither uniform nor one-hot.
"""

import numpy as np
import onnx
from model_builder import ModelBuilder, Size
from onnx import TensorProto

LOWEST = float(np.finfo(np.float32).min)  # what a masked score becomes
BERT_POSITIONS = 512


def bert(
    *,
    batch: Size = 1,
    seed: int = 0,
    sequence: Size = 128,
    layers: int = 12,
    vocabulary: int = 30522,
) -> onnx.ModelProto:
    """BERT-base: 12 layers, 768 wide, 12 heads; 11.2 GMAC at 128 tokens, 109 M weights.

    int64 input_ids, attention_mask, token_type_ids [batch, sequence] ->
    last_hidden_state [batch, sequence, 768] and pooled [batch, 768].
    """
    width, heads = 768, 12
    b = ModelBuilder("bert", seed=seed)
    ids = b.input("input_ids", (batch, sequence), TensorProto.INT64)
    mask = b.input("attention_mask", (batch, sequence), TensorProto.INT64)
    types = b.input("token_type_ids", (batch, sequence), TensorProto.INT64)
    x = _bert_embeddings(b, ids, types, sequence, vocabulary, width)
    mask = _additive_mask(b, mask)
    for layer in range(layers):
        x = _bert_layer(b, x, mask, (batch, sequence), width, heads, f"encoder.{layer}")
    first = b.node("Gather", x, b.constant(np.array(0, np.int64)), axis=1)
    weight = b.normal("pooler.weight", (width, width), std=width**-0.5)
    bias = b.normal("pooler.bias", (width,), std=0.02)
    pooled = b.node("Tanh", b.node("Gemm", first, weight, bias, transB=1))
    b.output(x, "last_hidden_state", (batch, sequence, width))
    b.output(pooled, "pooled", (batch, width))
    return b.build()


def gpt2(
    *,
    batch: Size = 1,
    seed: int = 0,
    sequence: Size = 64,
    layers: int = 4,
    width: int = 256,
    heads: int = 8,
    vocabulary: int = 50257,
) -> onnx.ModelProto:
    """A small GPT-2: int64 input_ids [batch, sequence] -> logits [batch, sequence, vocabulary].

    Pre-normalized layers, one fused projection for queries, keys and values, tanh-GELU, a causal
    mask from Trilu and Where, and logits that share the token embedding. 1.0 GMAC at 64 tokens, 16
    M weights.
    """
    b = ModelBuilder("gpt2", seed=seed)
    ids = b.input("input_ids", (batch, sequence), TensorProto.INT64)
    tokens = b.normal("wte", (vocabulary, width), std=width**-0.5)
    places = b.normal("wpe", (1024, width), std=width**-0.5)
    positions = _gpt2_positions(b, ids, sequence)
    x = b.node("Add", b.node("Gather", tokens, ids), b.node("Gather", places, positions))
    causal = _causal_mask(b, ids, sequence)
    for layer in range(layers):
        x = _gpt2_layer(b, x, causal, (batch, sequence), width, heads, f"h.{layer}")
    x = _layer_norm(b, x, width, "ln_f")
    logits = b.node("MatMul", x, b.node("Transpose", tokens, perm=[1, 0]))
    b.output(logits, "logits", (batch, sequence, vocabulary))
    return b.build()


def lstm(
    *,
    batch: Size = 1,
    seed: int = 0,
    sequence: Size = 50,
    features: int = 40,
    hidden: int = 128,
    classes: int = 35,
) -> onnx.ModelProto:
    """A two-layer LSTM classifier: features [batch, sequence, 40] -> scores [batch, 35].

    An input projection, a bidirectional and a forward LSTM (both 128 wide), and a linear head on
    the output of the last step; the sizes are those of a small keyword spotter.
    """
    b = ModelBuilder("lstm", seed=seed)
    x = b.input("features", (batch, sequence, features))
    x = b.node("Relu", _linear(b, x, features, hidden, "projection"))
    x = b.node("Transpose", x, perm=[1, 0, 2])  # [sequence, batch, hidden]
    x = _lstm_layer(b, x, batch, hidden, hidden, 2, "lstm.0")
    x = _lstm_layer(b, x, batch, 2 * hidden, hidden, 1, "lstm.1")
    last = b.node("Gather", x, b.constant(np.array(-1, np.int64)), axis=0)
    weight = b.normal("head.weight", (classes, hidden), std=3.0 * hidden**-0.5)
    bias = b.normal("head.bias", (classes,), std=0.1)
    b.output(b.node("Gemm", last, weight, bias, transB=1), "scores", (batch, classes))
    return b.build()


# ---- BERT ----------------------------------------------------------------------------------------


def _bert_embeddings(
    b: ModelBuilder, ids: str, types: str, sequence: Size, vocabulary: int, width: int
) -> str:
    """Token, type and position embeddings, added and normalized: [batch, sequence, width]."""
    tokens = b.normal("embeddings.word", (vocabulary, width), std=0.05)
    places = b.normal("embeddings.position", (BERT_POSITIONS, width), std=0.05)
    kinds = b.normal("embeddings.token_type", (2, width), std=0.05)
    if isinstance(sequence, int):
        positions = b.constant(np.arange(sequence, dtype=np.int64)[None])
    else:
        end = b.node("Unsqueeze", b.size(ids, 1), b.constant([0]))
        every = b.weight("embeddings.position_ids", np.arange(BERT_POSITIONS)[None])
        positions = b.node("Slice", every, b.constant([0]), end, b.constant([1]), b.constant([1]))
    x = b.node("Add", b.node("Gather", tokens, ids), b.node("Gather", kinds, types))
    x = b.node("Add", x, b.node("Gather", places, positions))
    return _layer_norm(b, x, width, "embeddings.norm", epsilon=1e-12)


def _additive_mask(b: ModelBuilder, mask: str) -> str:
    """[batch, sequence] of 1 and 0 -> [batch, 1, 1, sequence] of 0 and the lowest float."""
    wide = b.node("Unsqueeze", b.node("Unsqueeze", mask, b.constant([1])), b.constant([2]))
    hidden = b.node("Sub", b.constant(1.0), b.node("Cast", wide, to=TensorProto.FLOAT))
    return b.node("Mul", hidden, b.constant(LOWEST))


def _bert_layer(
    b: ModelBuilder, x: str, mask: str, sizes: tuple[Size, Size], width: int, heads: int, name: str
) -> str:
    """Attention and a feed-forward part, each added to its input and then normalized."""
    inner = 4 * width
    mixed = _bert_attention(b, x, mask, sizes, width, heads, f"{name}.attention")
    x = _layer_norm(b, b.node("Add", mixed, x), width, f"{name}.norm1", epsilon=1e-12)
    hidden = _erf_gelu(b, _linear(b, x, width, inner, f"{name}.up"))
    down = _linear(b, hidden, inner, width, f"{name}.down")
    return _layer_norm(b, b.node("Add", down, x), width, f"{name}.norm2", epsilon=1e-12)


def _bert_attention(
    b: ModelBuilder, x: str, mask: str, sizes: tuple[Size, Size], width: int, heads: int, name: str
) -> str:
    """Eager attention; the exporter merges the two transposes of the keys into one."""
    parts = []
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        flat = _linear(b, x, width, width, f"{name}.{part}")
        split = b.node("Reshape", flat, b.sizes_like(flat, (*sizes, heads, width // heads)))
        parts.append(b.node("Transpose", split, perm=order))
    query, key, value = parts
    scores = b.node("Div", b.node("MatMul", query, key), b.constant((width / heads) ** 0.5))
    weights = b.node("Softmax", b.node("Add", scores, mask), axis=-1)
    return _merge_heads(b, b.node("MatMul", weights, value), sizes, width, name)


def _erf_gelu(b: ModelBuilder, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) * 0.5, in five nodes."""
    error = b.node("Erf", b.node("Div", x, b.constant(2.0**0.5)))
    product = b.node("Mul", x, b.node("Add", error, b.constant(1.0)))
    return b.node("Mul", product, b.constant(0.5))


# ---- GPT-2 ---------------------------------------------------------------------------------------


def _gpt2_positions(b: ModelBuilder, ids: str, sequence: Size) -> str:
    """0, 1, 2 ... as int64 [1, sequence]."""
    if isinstance(sequence, int):
        return b.constant(np.arange(sequence, dtype=np.int64)[None])
    zero, one = (b.constant(np.array(value, np.int64)) for value in (0, 1))
    return b.node("Unsqueeze", b.node("Range", zero, b.size(ids, 1), one), b.constant([0]))


def _causal_mask(b: ModelBuilder, ids: str, sequence: Size) -> str:
    """Booleans [sequence, sequence], true where the column is not after the row."""
    if isinstance(sequence, int):
        shape = b.constant([sequence, sequence])
    else:
        extent = b.node("Unsqueeze", b.size(ids, 1), b.constant([0]))
        shape = b.node("Concat", extent, extent, axis=0)
    one = onnx.helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    ones = b.node("ConstantOfShape", shape, value=one)
    return b.node("Cast", b.node("Trilu", ones, upper=0), to=TensorProto.BOOL)


def _gpt2_layer(
    b: ModelBuilder,
    x: str,
    causal: str,
    sizes: tuple[Size, Size],
    width: int,
    heads: int,
    name: str,
) -> str:
    """Attention and a feed-forward part, each on the normalized input and added to it."""
    y = _layer_norm(b, x, width, f"{name}.ln_1")
    fused = _flat_gemm(b, y, sizes, width, 3 * width, f"{name}.attn.c_attn")
    split = b.constant([width, width, width])
    parts = []
    for flat, order in zip(
        b.nodes("Split", fused, split, outputs=3, axis=2),
        ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]),
        strict=True,
    ):
        part = b.node("Reshape", flat, b.sizes_like(flat, (*sizes, heads, width // heads)))
        parts.append(b.node("Transpose", part, perm=order))
    query, key, value = parts
    scores = b.node("Div", b.node("MatMul", query, key), b.constant((width / heads) ** 0.5))
    weights = b.node("Softmax", b.node("Where", causal, scores, b.constant(LOWEST)), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    flat = b.node("Reshape", mixed, b.sizes_like(mixed, (*sizes, width)))
    x = b.node("Add", _flat_gemm(b, flat, sizes, width, width, f"{name}.attn.c_proj"), x)
    y = _layer_norm(b, x, width, f"{name}.ln_2")
    hidden = _tanh_gelu(b, _flat_gemm(b, y, sizes, width, 4 * width, f"{name}.mlp.c_fc"))
    return b.node("Add", x, _flat_gemm(b, hidden, sizes, 4 * width, width, f"{name}.mlp.c_proj"))


def _flat_gemm(
    b: ModelBuilder, x: str, sizes: tuple[Size, Size], inputs: int, outputs: int, name: str
) -> str:
    """[batch, sequence, inputs] -> [.., outputs] as Reshape, Gemm, Reshape: GPT-2's `Conv1D`."""
    rows = b.node("Reshape", x, b.constant([-1, inputs]))
    weight = b.normal(f"{name}.weight", (inputs, outputs), std=inputs**-0.5)
    bias = b.normal(f"{name}.bias", (outputs,), std=0.02)
    product = b.node("Gemm", rows, weight, bias)
    return b.node("Reshape", product, b.sizes_like(x, (*sizes, outputs)))


def _tanh_gelu(b: ModelBuilder, x: str) -> str:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))), in eight nodes."""
    cubic = b.node("Mul", b.node("Pow", x, b.constant(3.0)), b.constant(0.044715))
    inner = b.node("Mul", b.node("Add", x, cubic), b.constant(float(np.sqrt(2 / np.pi))))
    bent = b.node("Add", b.node("Tanh", inner), b.constant(1.0))
    return b.node("Mul", b.node("Mul", x, b.constant(0.5)), bent)


# ---- LSTM ----------------------------------------------------------------------------------------


def _lstm_layer(
    b: ModelBuilder, x: str, batch: Size, inputs: int, hidden: int, directions: int, name: str
) -> str:
    """[sequence, batch, inputs] -> [sequence, batch, directions * hidden], from a zero state."""
    bound = 2.0 * hidden**-0.5
    gates = 4 * hidden
    weight = b.uniform(f"{name}.W", (directions, gates, inputs), low=-bound, high=bound)
    recurrent = b.uniform(f"{name}.R", (directions, gates, hidden), low=-bound, high=bound)
    bias = b.uniform(f"{name}.B", (directions, 2 * gates), low=-bound, high=bound)
    state = _zero_state(b, x, batch, hidden, directions)
    steps, _, _ = b.nodes(
        "LSTM",
        x,
        weight,
        recurrent,
        bias,
        "",
        state,
        state,
        outputs=3,
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
    )
    if directions == 1:  # [sequence, 1, batch, hidden]
        return b.node("Squeeze", steps, b.constant([1]))
    swapped = b.node("Transpose", steps, perm=[0, 2, 1, 3])
    return b.node("Reshape", swapped, b.constant([0, 0, -1]))


def _zero_state(b: ModelBuilder, x: str, batch: Size, hidden: int, directions: int) -> str:
    """Zeros [directions, batch, hidden]; the batch is axis 1 of `x`."""
    if isinstance(batch, int):
        return b.constant(np.zeros((directions, batch, hidden), np.float32))
    shape = b.sizes_like(x, (directions, batch, hidden))
    zero = onnx.helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    return b.node("ConstantOfShape", shape, value=zero)


# ---- shared --------------------------------------------------------------------------------------


def _linear(b: ModelBuilder, x: str, inputs: int, outputs: int, name: str) -> str:
    """x [.., inputs] @ weight [inputs, outputs] + bias: `nn.Linear` on 3-D input."""
    weight = b.normal(f"{name}.weight", (inputs, outputs), std=inputs**-0.5)
    bias = b.normal(f"{name}.bias", (outputs,), std=0.02)
    return b.node("Add", bias, b.node("MatMul", x, weight))


def _layer_norm(b: ModelBuilder, x: str, width: int, name: str, *, epsilon: float = 1e-5) -> str:
    weight = b.normal(f"{name}.weight", (width,), std=0.1, mean=1.0)
    bias = b.normal(f"{name}.bias", (width,), std=0.1)
    return b.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)


def _merge_heads(b: ModelBuilder, x: str, sizes: tuple[Size, Size], width: int, name: str) -> str:
    """[batch, heads, sequence, width / heads] -> [batch, sequence, width], projected."""
    x = b.node("Transpose", x, perm=[0, 2, 1, 3])
    flat = b.node("Reshape", x, b.sizes_like(x, (*sizes, width)))
    return _linear(b, flat, width, width, f"{name}.output")
