"""Networks of many families over sequences: attention, audio, recurrent and state-space networks.

Attention over images is here too, since its blocks are those of text. Each network has the blocks
and the proportions that its paper describes, in the form in which the PyTorch exporter writes them,
at a size of tens to hundreds of millions of multiply-accumulates; shapes are fixed.
"""

import numpy as np
import onnx
from breadth_vision import LINEAR, NetworkBuilder, _inverted, _scores
from onnx import TensorProto
from zoo_conv import _classifier
from zoo_text import LOWEST, _additive_mask, _causal_mask, _merge_heads

HEAD = 32  # channels per head, of Swin and of Mamba-2
WINDOW = 7  # the side of an attention window of Swin
CHUNK = 32  # tokens that Mamba-2 computes together
STATES = 32  # that Mamba-2 keeps for each channel

# ---- attention over images -----------------------------------------------------------------------


def vit(*, seed: int = 0) -> onnx.ModelProto:
    """ViT-Tiny/16 (Dosovitskiy et al. 2020, arXiv 2010.11929; Touvron et al. 2020, 2012.12877)."""
    b = NetworkBuilder("vit", seed=seed, activation="Gelu")
    side, width, heads = 128, 192, 3
    x, length = _patches(b, side, 16, width), (side // 16) ** 2 + 1
    first = b.normal("class_token", (1, 1, width), std=1.0)
    x = b.node("Add", b.concat(first, x), b.normal("places", (1, length, width), std=0.2))
    for _ in range(12):
        y = _fused_attention(b, b.layer_norm(x, width), (1, length), width, heads)
        x = b.node("Add", x, y)
        x = b.node("Add", x, _feed_forward(b, b.layer_norm(x, width), width, 4 * width))
    first = b.node("Gather", b.layer_norm(x, width), b.constant(np.array(0)), axis=1)
    return _scores(b, first, width, 1000)


def mlp_mixer(*, seed: int = 0) -> onnx.ModelProto:
    """MLP-Mixer (Tolstikhin et al. 2021, arXiv 2105.01601): linear layers along both axes."""
    b = NetworkBuilder("mlp_mixer", seed=seed, activation="Gelu")
    side, width = 128, 256
    x, length = _patches(b, side, 16, width), (side // 16) ** 2
    for _ in range(8):
        y = b.node("Transpose", b.layer_norm(x, width), perm=[0, 2, 1])
        y = _feed_forward(b, y, length, width // 2)
        x = b.node("Add", x, b.node("Transpose", y, perm=[0, 2, 1]))
        x = b.node("Add", x, _feed_forward(b, b.layer_norm(x, width), width, 4 * width))
    x = b.node("ReduceMean", b.layer_norm(x, width), axes=[1], keepdims=0)
    return _scores(b, x, width, 1000)


def swin(*, seed: int = 0) -> onnx.ModelProto:
    """Swin Transformer (Liu et al. 2021, arXiv 2103.14030): attention in shifted 7x7 windows."""
    b = NetworkBuilder("swin", seed=seed, activation="Gelu")
    side, width = 28, 64
    x = b.layer_norm(_patches(b, 4 * side, 4, width), width)
    for stage, blocks in enumerate((2, 2, 4)):
        if stage:
            x = _merge_patches(b, x, side, width)
            side, width = side // 2, 2 * width
        for block in range(blocks):
            shift = 3 if block % 2 and side > WINDOW else 0
            x = _swin_block(b, x, side, width, shift)
    x = b.node("Transpose", b.layer_norm(x, width), perm=[0, 2, 1])
    x = b.node("Flatten", b.node("GlobalAveragePool", x), axis=1)
    return _scores(b, x, width, 1000)


def _swin_block(b: NetworkBuilder, x: str, side: int, width: int, shift: int) -> str:
    """Attention in windows, after a cyclic shift of the image if there is one, and a perceptron."""
    many, heads = side // WINDOW, width // HEAD
    y = b.reshape(b.layer_norm(x, width), 1, side, side, width)
    y = _roll(b, y, side, shift)
    y = b.reshape(y, 1, many, WINDOW, many, WINDOW, width)
    y = b.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    y = b.reshape(y, many * many, WINDOW * WINDOW, width)
    mask = _window_mask(side, shift) if shift else None
    sizes = (many * many, WINDOW * WINDOW)
    y = _fused_attention(b, y, sizes, width, heads, bias=_place_bias(b, heads), mask=mask)
    y = b.reshape(y, 1, many, many, WINDOW, WINDOW, width)
    y = b.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5])
    y = _roll(b, b.reshape(y, 1, side, side, width), side, -shift % side)
    x = b.node("Add", x, b.reshape(y, 1, side * side, width))
    return b.node("Add", x, _feed_forward(b, b.layer_norm(x, width), width, 4 * width))


def _roll(b: NetworkBuilder, x: str, side: int, shift: int) -> str:
    """Both image axes rotated by `shift`: two slices and their concatenation for each."""
    for axis in (1, 2) if shift else ():
        x = b.concat(b.slice(x, axis, shift, side), b.slice(x, axis, 0, shift), axis=axis)
    return x


def _place_bias(b: NetworkBuilder, heads: int) -> str:
    """What is added to the scores of two places in a window, by their distance along both axes."""
    span, area = 2 * WINDOW - 1, WINDOW * WINDOW
    places = np.stack(np.meshgrid(np.arange(WINDOW), np.arange(WINDOW), indexing="ij"))
    places = places.reshape(2, -1)
    rows, columns = places[:, :, None] - places[:, None, :] + WINDOW - 1
    table = b.normal(b.fresh("place_bias"), (span * span, heads), std=0.5)
    chosen = b.node("Gather", table, b.constant((rows * span + columns).reshape(-1)), axis=0)
    bias = b.node("Transpose", b.reshape(chosen, area, area, heads), perm=[2, 0, 1])
    return b.node("Unsqueeze", bias, b.constant([0]))


def _window_mask(side: int, shift: int) -> np.ndarray:
    """[windows, 1, area, area]: -100 for places that only the cyclic shift made neighbours."""
    part = np.zeros(side, np.int64)
    part[side - WINDOW :], part[side - shift :] = 1, 2
    region = 3 * part[:, None] + part[None, :]
    many = side // WINDOW
    windows = region.reshape(many, WINDOW, many, WINDOW).swapaxes(1, 2).reshape(many * many, -1)
    apart = windows[:, None, :, None] != windows[:, None, None, :]
    mask: np.ndarray = np.where(apart, np.float32(-100), np.float32(0))
    return mask


def _merge_patches(b: NetworkBuilder, x: str, side: int, width: int) -> str:
    """Each 2x2 patches become one of twice the width."""
    x = b.reshape(x, 1, side, side, width)
    corners = [
        b.slice(b.slice(x, 1, row, side, 2), 2, column, side, 2)
        for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    merged = b.reshape(b.concat(*corners, axis=3), 1, side * side // 4, 4 * width)
    return b.project(b.layer_norm(merged, 4 * width), 4 * width, 2 * width)


def efficientvit(*, seed: int = 0) -> onnx.ModelProto:
    """EfficientViT-B1 (Cai et al. 2022, arXiv 2205.14756): attention linear in the pixels."""
    b = NetworkBuilder("efficientvit", seed=seed, activation="HardSwish")
    x, channels, side = b.conv_act(b.image(160), 3, 16, 3, stride=2), 16, 80
    table = ((32, 2, False), (64, 3, False), (128, 2, True), (256, 2, True))
    for outputs, blocks, attends in table:
        side = side // 2
        x = _inverted(b, x, channels, 4 * channels, outputs, 2, (3,))
        channels = outputs
        for _ in range(blocks):
            if attends:
                x = b.node("Add", x, _linear_attention(b, x, channels, side))
            x = _inverted(b, x, channels, 4 * channels, channels, 1, (3,))
    return _classifier(b, b.conv_act(x, channels, 1024, 1), 1024, 1)


def _linear_attention(b: NetworkBuilder, x: str, channels: int, side: int) -> str:
    """Attention with rectified queries and keys, at two scales; a column of ones sums weights."""
    size, pixels = 16, side * side
    fused = b.convolve(x, channels, 3 * channels, 1, scale=LINEAR, bias=False)
    wide = b.convolve(fused, 3 * channels, 3 * channels, 5, groups=3 * channels, bias=False)
    wide = b.convolve(wide, 3 * channels, 3 * channels, 1, groups=3 * channels // size, bias=False)
    heads = 2 * channels // size
    parts = b.node(
        "Transpose", b.reshape(b.concat(fused, wide), 1, heads, 3 * size, pixels), perm=[0, 1, 3, 2]
    )
    query, key, value = b.nodes("Split", parts, b.constant([size] * 3), outputs=3, axis=3)
    query, key = b.node("Relu", query), b.node("Relu", key)
    value = b.node("Pad", value, b.constant([0] * 7 + [1]), b.constant(1.0), mode="constant")
    summary = b.node("MatMul", b.node("Transpose", key, perm=[0, 1, 3, 2]), value)
    mixed = b.node("MatMul", query, summary)
    total = b.node("Add", b.slice(mixed, 3, size, size + 1), b.constant(1e-6))
    mixed = b.node("Div", b.slice(mixed, 3, 0, size), total)
    mixed = b.reshape(b.node("Transpose", mixed, perm=[0, 1, 3, 2]), 1, 2 * channels, side, side)
    return b.conv(mixed, 2 * channels, channels, 1, scale=LINEAR)


# ---- text ----------------------------------------------------------------------------------------


def llama(*, seed: int = 0) -> onnx.ModelProto:
    """Llama (Touvron et al. 2023, arXiv 2302.13971 and 2307.09288), with grouped queries."""
    b = NetworkBuilder("llama", seed=seed, activation="Silu")
    length, width, inner, vocabulary = 96, 256, 688, 4096
    ids = b.input("input_ids", (1, length), TensorProto.INT64)
    x = b.node("Gather", b.normal("tokens", (vocabulary, width), std=1.0), ids)
    causal = _causal_mask(b, ids, length)
    mask = b.node("Where", causal, b.constant(0.0), b.constant(LOWEST))
    for _ in range(6):
        x = b.node("Add", x, _llama_attention(b, _root_norm(b, x, width), mask, length, width))
        y = _root_norm(b, x, width)
        gate = b.activate(b.project(y, width, inner))
        y = b.node("Mul", gate, b.project(y, width, inner))
        x = b.node("Add", x, b.project(y, inner, width))
    logits = b.project(_root_norm(b, x, width), width, vocabulary)
    b.output(logits, "logits", (1, length, vocabulary))
    return b.build()


def _llama_attention(b: NetworkBuilder, x: str, mask: str, length: int, width: int) -> str:
    """Eight heads of queries that share two heads of keys and values; rotary positions."""
    heads, shared, size = 8, 2, width // 8
    query = _heads(b, b.project(x, width, width), length, heads, size)
    key = _heads(b, b.project(x, width, shared * size), length, shared, size)
    value = _heads(b, b.project(x, width, shared * size), length, shared, size)
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = np.concatenate([angles, angles], axis=1)[None, None]
    turns = (
        b.constant(np.cos(angles).astype(np.float32)),
        b.constant(np.sin(angles).astype(np.float32)),
    )
    query, key = _rotate(b, query, turns, size), _rotate(b, key, turns, size)
    key, value = (_repeat_heads(b, y, heads // shared, shared, length, size) for y in (key, value))
    mixed = _attend(b, query, key, value, mask, divisor=size**0.5)
    mixed = b.node("Transpose", mixed, perm=[0, 2, 1, 3])
    return b.project(b.reshape(mixed, 1, length, width), width, width)


def _rotate(b: NetworkBuilder, x: str, turns: tuple[str, str], size: int) -> str:
    """Rotary position embedding (Su et al. 2021, arXiv 2104.09864): x cos + rotated x sin."""
    cosine, sine = turns
    low, high = b.slice(x, 3, 0, size // 2), b.slice(x, 3, size // 2, size)
    turned = b.concat(b.node("Neg", high), low, axis=3)
    return b.node("Add", b.node("Mul", x, cosine), b.node("Mul", turned, sine))


def _repeat_heads(b: NetworkBuilder, x: str, times: int, heads: int, length: int, size: int) -> str:
    """Each head `times` times, one after the other."""
    x = b.node("Unsqueeze", x, b.constant([2]))
    x = b.node("Expand", x, b.constant([1, heads, times, length, size]))
    return b.reshape(x, 1, times * heads, length, size)


def _root_norm(b: NetworkBuilder, x: str, width: int) -> str:
    """Division by the root of the mean square, and a scale for each channel."""
    square = b.node("ReduceMean", b.node("Pow", x, b.constant(2.0)), axes=[-1], keepdims=1)
    root = b.node("Sqrt", b.node("Add", square, b.constant(1e-6)))
    scaled = b.node("Mul", x, b.node("Reciprocal", root))
    return b.node("Mul", b.normal(b.fresh("root_norm"), (width,), std=0.1, mean=1.0), scaled)


def t5(*, seed: int = 0) -> onnx.ModelProto:
    """T5 (Raffel et al. 2019, arXiv 1910.10683): an encoder, and a decoder that attends to it.

    Distances between tokens add a learned bias to the scores, and a mask hides padding.
    """
    b = NetworkBuilder("t5", seed=seed)
    source, target, width, vocabulary = 64, 32, 256, 4096
    ids = b.input("input_ids", (1, source), TensorProto.INT64)
    padding = _additive_mask(b, b.input("attention_mask", (1, source), TensorProto.INT64))
    decoder_ids = b.input("decoder_input_ids", (1, target), TensorProto.INT64)
    tokens = b.normal("tokens", (vocabulary, width), std=1.0)
    bias = b.node("Add", _distance_bias(b, source, both_ways=True), padding)
    x = b.node("Gather", tokens, ids)
    for _ in range(4):
        x = _t5_attention(b, x, None, bias, (source, source), width)
        x = _t5_feed_forward(b, x, width)
    memory, x = _root_norm(b, x, width), b.node("Gather", tokens, decoder_ids)
    causal = _causal_mask(b, decoder_ids, target)
    future = b.node("Where", causal, b.constant(0.0), b.constant(LOWEST))
    bias = b.node("Add", _distance_bias(b, target, both_ways=False), future)
    for _ in range(4):
        x = _t5_attention(b, x, None, bias, (target, target), width)
        x = _t5_attention(b, x, memory, padding, (target, source), width)
        x = _t5_feed_forward(b, x, width)
    x = b.node("Mul", _root_norm(b, x, width), b.constant(width**-0.5))
    logits = b.node("MatMul", x, b.node("Transpose", tokens, perm=[1, 0]))
    b.output(logits, "logits", (1, target, vocabulary))
    return b.build()


def _t5_attention(
    b: NetworkBuilder,
    x: str,
    memory: str | None,
    bias: str,
    lengths: tuple[int, int],
    width: int,
) -> str:
    """Attention to the memory, or to itself without one, added to `x`; scores are not divided."""
    heads, size = 8, width // 8
    y = _root_norm(b, x, width)
    query = b.project(y, width, width, scale=size**-0.5)
    key, value = (b.project(memory or y, width, width) for _ in range(2))
    query = _heads(b, query, lengths[0], heads, size)
    key, value = (_heads(b, part, lengths[1], heads, size) for part in (key, value))
    mixed = b.node("Transpose", _attend(b, query, key, value, bias), perm=[0, 2, 1, 3])
    mixed = b.reshape(mixed, 1, lengths[0], width)
    return b.node("Add", x, b.project(mixed, width, width))


def _t5_feed_forward(b: NetworkBuilder, x: str, width: int) -> str:
    """Two linear layers without bias on the normalized input, added to it."""
    hidden = b.project(_root_norm(b, x, width), width, 4 * width)
    return b.node("Add", x, b.project(b.node("Relu", hidden), 4 * width, width))


def _distance_bias(b: NetworkBuilder, length: int, *, both_ways: bool) -> str:
    """[1, 8, length, length]: a weight for each head and each of 32 buckets of distances."""
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    buckets = 16 if both_ways else 32
    offset = buckets * (distance > 0) if both_ways else 0
    distance = np.abs(distance) if both_ways else np.maximum(-distance, 0)
    exact = buckets // 2
    growth = np.log(np.maximum(distance, 1) / exact) / np.log(128 / exact)
    far = np.minimum(exact + (growth * (buckets - exact)).astype(np.int64), buckets - 1)
    chosen = b.constant(offset + np.where(distance < exact, distance, far))
    bias = b.node("Gather", b.normal(b.fresh("distance_bias"), (32, 8), std=0.5), chosen)
    return b.node("Unsqueeze", b.node("Transpose", bias, perm=[2, 0, 1]), b.constant([0]))


def gru_tagger(*, seed: int = 0) -> onnx.ModelProto:
    """A tagger of words: two bidirectional GRU layers (Cho et al. 2014, arXiv 1406.1078)."""
    b = NetworkBuilder("gru_tagger", seed=seed)
    length, width, hidden, tags = 64, 128, 192, 24
    ids = b.input("input_ids", (1, length), TensorProto.INT64)
    x = b.node("Gather", b.normal("words", (4096, width), std=1.0), ids)
    x = b.node("Transpose", x, perm=[1, 0, 2])  # [length, 1, width]
    for inputs in (width, 2 * hidden):
        x = _gru_layer(b, x, inputs, hidden)
    x = b.node("Transpose", x, perm=[1, 0, 2])
    b.output(b.linear(x, 2 * hidden, tags), "scores", (1, length, tags))
    return b.build()


def _gru_layer(b: NetworkBuilder, x: str, inputs: int, hidden: int) -> str:
    """[length, 1, inputs] -> [length, 1, 2 * hidden], both directions, as PyTorch defines a GRU."""
    bound, name = 2.0 * hidden**-0.5, b.fresh("gru")
    shapes = {"W": (2, 3 * hidden, inputs), "R": (2, 3 * hidden, hidden), "B": (2, 6 * hidden)}
    weights = [
        b.uniform(f"{name}.{part}", shape, low=-bound, high=bound) for part, shape in shapes.items()
    ]
    state = b.constant(np.zeros((2, 1, hidden), np.float32))
    steps, _ = b.nodes(
        "GRU",
        x,
        *weights,
        "",
        state,
        outputs=2,
        hidden_size=hidden,
        direction="bidirectional",
        linear_before_reset=1,
    )
    return b.reshape(b.node("Transpose", steps, perm=[0, 2, 1, 3]), 0, 0, -1)


def mamba(*, seed: int = 0) -> onnx.ModelProto:
    """Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): a selective state space, in chunks."""
    b = NetworkBuilder("mamba", seed=seed, activation="Silu")
    chunks, width, vocabulary = 4, 256, 4096
    length = chunks * CHUNK
    ids = b.input("input_ids", (1, length), TensorProto.INT64)
    x = b.node("Gather", b.normal("tokens", (vocabulary, width), std=1.0), ids)
    for _ in range(4):
        x = b.node("Add", x, _mamba_block(b, _root_norm(b, x, width), chunks, width))
    logits = b.project(_root_norm(b, x, width), width, vocabulary)
    b.output(logits, "logits", (1, length, vocabulary))
    return b.build()


def _mamba_block(b: NetworkBuilder, x: str, chunks: int, width: int) -> str:
    """Projection, a short causal convolution, the state space, a gate and another projection."""
    inner, length = 2 * width, chunks * CHUNK
    heads = inner // HEAD
    mixed = inner + 2 * STATES
    sizes = b.constant([inner, mixed, heads])
    fused = b.project(x, width, inner + mixed + heads)
    gate, y, pace = b.nodes("Split", fused, sizes, outputs=3, axis=2)
    y = b.node("Transpose", y, perm=[0, 2, 1])
    y = b.slice(b.convolve(y, mixed, mixed, (4,), groups=mixed, padding=3), 2, 0, length)
    y = b.activate(b.node("Transpose", y, perm=[0, 2, 1]))
    parts = b.constant([inner, STATES, STATES])
    y, write, read = b.nodes("Split", y, parts, outputs=3, axis=2)
    pace = b.node("Add", pace, b.normal(b.fresh("pace"), (heads,), std=0.5, mean=-2.0))
    y = _state_space(b, y, b.node("Softplus", pace), write, read, chunks, heads)
    y = _root_norm(b, b.node("Mul", y, b.activate(gate)), inner)
    return b.project(y, inner, width)


def _state_space(
    b: NetworkBuilder, x: str, pace: str, write: str, read: str, chunks: int, heads: int
) -> str:
    """x [1, length, heads * HEAD]: each state decays at a pace, is written to and read.

    Within a chunk this is a masked product of matrices; states go from chunk to chunk. Below,
    values are [heads, chunks, CHUNK, ..], and `write` and `read` [chunks, CHUNK, STATES].
    """
    length = chunks * CHUNK
    decay = b.node("Neg", b.node("Exp", b.uniform(b.fresh("decay"), (heads,), low=0.0, high=2.0)))
    values = b.reshape(x, chunks, CHUNK, heads, HEAD)
    paced = b.node("Mul", values, b.reshape(pace, chunks, CHUNK, heads, 1))
    paced = b.node("Transpose", paced, perm=[2, 0, 1, 3])
    steps = b.reshape(b.node("Mul", pace, decay), chunks, CHUNK, heads)
    total = b.node("CumSum", b.node("Transpose", steps, perm=[2, 0, 1]), b.constant(np.array(2)))
    write, read = (b.reshape(part, chunks, CHUNK, STATES) for part in (write, read))
    scores = b.node("MatMul", read, b.node("Transpose", write, perm=[0, 2, 1]))
    scores = b.node("Mul", scores, _decay_between(b, total, CHUNK))
    near = b.node("MatMul", scores, paced)
    states = _chunk_states(b, paced, total, write, chunks, heads)
    far = b.node("MatMul", read, b.node("Transpose", states, perm=[0, 1, 3, 2]))
    far = b.node("Mul", far, b.node("Unsqueeze", b.node("Exp", total), b.constant([3])))
    mixed = b.node("Transpose", b.node("Add", near, far), perm=[1, 2, 0, 3])
    skipped = b.node("Mul", values, b.normal(b.fresh("skip"), (heads, 1), std=0.1, mean=1.0))
    return b.reshape(b.node("Add", mixed, skipped), 1, length, heads * HEAD)


def _decay_between(b: NetworkBuilder, total: str, length: int) -> str:
    """[.., length] sums -> [.., length, length] factors from an earlier step to a later one."""
    later, earlier = (b.node("Unsqueeze", total, b.constant([axis])) for axis in (-1, -2))
    causal = b.constant(np.tri(length, dtype=bool))
    ever = b.node("Where", causal, b.node("Sub", later, earlier), b.constant(-np.inf))
    return b.node("Exp", ever)


def _chunk_states(
    b: NetworkBuilder, paced: str, total: str, write: str, chunks: int, heads: int
) -> str:
    """[heads, chunks, HEAD, STATES]: the states in which each chunk begins."""
    last = b.slice(total, 2, CHUNK - 1, CHUNK)
    left = b.node("Unsqueeze", b.node("Exp", b.node("Sub", last, total)), b.constant([3]))
    kept = b.node("Transpose", b.node("Mul", paced, left), perm=[0, 1, 3, 2])
    written = b.reshape(b.node("MatMul", kept, write), heads, chunks, HEAD * STATES)
    start = b.constant(np.zeros((heads, 1, HEAD * STATES), np.float32))
    zero = b.constant(np.zeros((heads, 1), np.float32))
    sums = b.concat(zero, b.reshape(last, heads, chunks))
    sums = b.node("CumSum", sums, b.constant(np.array(1)))
    states = b.node("MatMul", _decay_between(b, sums, chunks + 1), b.concat(start, written))
    return b.reshape(b.slice(states, 1, 0, chunks), heads, chunks, HEAD, STATES)


# ---- speech --------------------------------------------------------------------------------------


def conformer(*, seed: int = 0) -> onnx.ModelProto:
    """Conformer-S (Gulati et al. 2020, arXiv 2005.08100): attention and depthwise convolution."""
    b = NetworkBuilder("conformer", seed=seed, normalized=True, activation="Silu")
    width, tokens, length = 144, 128, 64
    x = b.node("Unsqueeze", b.input("features", (1, 259, 80)), b.constant([1]))
    for inputs in (1, width):
        x = b.node("Relu", b.convolve(x, inputs, width, 3, stride=2, padding=0))
    x = b.reshape(b.node("Transpose", x, perm=[0, 2, 1, 3]), 1, length, 19 * width)
    x = b.linear(x, 19 * width, width)
    for _ in range(4):
        x = _half_step(b, x, width)
        x = b.node("Add", x, _relative_attention(b, b.layer_norm(x, width), length, width))
        x = b.node("Add", x, _conformer_convolution(b, b.layer_norm(x, width), width))
        x = b.layer_norm(_half_step(b, x, width), width)
    b.output(b.linear(x, width, tokens), "scores", (1, length, tokens))
    return b.build()


def _half_step(b: NetworkBuilder, x: str, width: int) -> str:
    """Half of what a feed-forward part gives, added."""
    y = _feed_forward(b, b.layer_norm(x, width), width, 4 * width)
    return b.node("Add", x, b.node("Mul", y, b.constant(0.5)))


def _conformer_convolution(b: NetworkBuilder, x: str, width: int) -> str:
    """A gated linear unit, a depthwise convolution of 31 steps and a linear layer."""
    x = b.convolve(b.node("Transpose", x, perm=[0, 2, 1]), width, 2 * width, (1,), scale=LINEAR)
    value, gate = b.nodes("Split", x, b.constant([width, width]), outputs=2, axis=1)
    x = b.node("Mul", value, b.node("Sigmoid", gate))
    x = b.conv_act(x, width, width, (31,), groups=width)
    return b.node("Transpose", b.convolve(x, width, width, (1,)), perm=[0, 2, 1])


def _relative_attention(b: NetworkBuilder, x: str, length: int, width: int) -> str:
    """Attention with relative positions (Dai et al. 2019, arXiv 1901.02860), four heads."""
    heads, span = 4, 2 * length - 1
    size = width // heads
    split = b.reshape(b.linear(x, width, width), 1, length, heads, size)
    content, place = (
        b.node(
            "Transpose",
            b.node("Add", split, b.normal(b.fresh("bias"), (heads, size), std=0.2)),
            perm=[0, 2, 1, 3],
        )
        for _ in range(2)
    )
    key, value = (_heads(b, b.linear(x, width, width), length, heads, size) for _ in range(2))
    places = b.project(b.constant(_waves(length, width)), width, width, scale=2.0**0.5)
    places = _heads(b, places, span, heads, size)
    shifted = b.node("MatMul", place, b.node("Transpose", places, perm=[0, 1, 3, 2]))
    zeros = b.constant(np.zeros((1, heads, length, 1), np.float32))
    shifted = b.reshape(b.concat(zeros, shifted, axis=3), 1, heads, span + 1, length)
    shifted = b.reshape(b.slice(shifted, 2, 1, span + 1), 1, heads, length, span)
    shifted = b.slice(shifted, 3, 0, length)
    scores = b.node("MatMul", content, b.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = b.node("Div", b.node("Add", scores, shifted), b.constant(size**0.5))
    mixed = b.node("MatMul", b.node("Softmax", scores, axis=-1), value)
    return _merge_heads(b, mixed, (1, length), width, b.fresh("attention"))


def _waves(length: int, width: int) -> np.ndarray:
    """Sines and cosines of every distance from length - 1 down to 1 - length."""
    distance = np.arange(length - 1, -length, -1)[:, None]
    angles = distance * 10000.0 ** (-np.arange(0, width, 2) / width)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return waves.reshape(1, 2 * length - 1, width).astype(np.float32)


def wav2vec(*, seed: int = 0) -> onnx.ModelProto:
    """wav2vec 2.0 (Baevski et al. 2020, arXiv 2006.11477): convolutions over samples, attention."""
    b = NetworkBuilder("wav2vec", seed=seed, activation="Gelu")
    samples, width, heads, tokens = 12000, 256, 8, 32
    x, inputs, length = b.input("audio", (1, 1, samples)), 1, samples
    for kernel, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)):
        x = b.convolve(x, inputs, width, (kernel,), stride=stride, padding=0, bias=False)
        length = (length - kernel) // stride + 1
        x = _group_norm(b, x, width, width, length) if inputs == 1 else x
        x, inputs = b.activate(x), width
    x = b.layer_norm(b.node("Transpose", x, perm=[0, 2, 1]), width)
    x = b.linear(x, width, width)
    y = b.node("Transpose", x, perm=[0, 2, 1])
    y = b.convolve(y, width, width, (128,), groups=16, padding=64)
    y = b.node("Transpose", b.activate(b.slice(y, 2, 0, length)), perm=[0, 2, 1])
    x = b.layer_norm(b.node("Add", x, y), width)
    for _ in range(3):
        x = b.node("Add", x, _fused_attention(b, x, (1, length), width, heads))
        x = b.layer_norm(x, width)
        x = b.layer_norm(b.node("Add", x, _feed_forward(b, x, width, 4 * width)), width)
    b.output(b.linear(x, width, tokens), "scores", (1, length, tokens))
    return b.build()


def _group_norm(b: NetworkBuilder, x: str, channels: int, groups: int, length: int) -> str:
    """GroupNorm of [1, channels, length] by InstanceNormalization of the groups."""
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    grouped = b.reshape(x, 0, groups, -1)
    x = b.node("InstanceNormalization", grouped, b.constant(ones), b.constant(zeros), epsilon=1e-5)
    x, name = b.reshape(x, 1, channels, length), b.fresh("group_norm")
    x = b.node("Mul", x, b.normal(f"{name}.weight", (channels, 1), std=0.1, mean=1.0))
    return b.node("Add", x, b.normal(f"{name}.bias", (channels, 1), std=0.1))


# ---- shared --------------------------------------------------------------------------------------


def _patches(b: NetworkBuilder, side: int, patch: int, width: int) -> str:
    """An image in square patches: [1, patches, width]."""
    count = (side // patch) ** 2
    x = b.convolve(b.image(side), 3, width, patch, stride=patch, padding=0, scale=LINEAR)
    return b.node("Transpose", b.reshape(x, 1, width, count), perm=[0, 2, 1])


def _feed_forward(b: NetworkBuilder, x: str, width: int, inner: int) -> str:
    """Two linear layers with the network's activation between them."""
    return b.linear(b.activate(b.linear(x, width, inner)), inner, width)


def _heads(b: NetworkBuilder, x: str, length: int, heads: int, size: int) -> str:
    """[1, length, heads * size] -> [1, heads, length, size]."""
    return b.node("Transpose", b.reshape(x, 1, length, heads, size), perm=[0, 2, 1, 3])


def _attend(
    b: NetworkBuilder, query: str, key: str, value: str, bias: str, divisor: float | None = None
) -> str:
    """Values weighted by the softmax of scores, which are divided if asked for and get a bias."""
    scores = b.node("MatMul", query, b.node("Transpose", key, perm=[0, 1, 3, 2]))
    if divisor is not None:
        scores = b.node("Div", scores, b.constant(divisor))
    weights = b.node("Softmax", b.node("Add", scores, bias), axis=-1)
    return b.node("MatMul", weights, value)


def _fused_attention(
    b: NetworkBuilder,
    x: str,
    sizes: tuple[int, int],
    width: int,
    heads: int,
    *,
    bias: str | None = None,
    mask: np.ndarray | None = None,
) -> str:
    """Attention whose queries, keys and values are one projection; `sizes` are batch and length.

    The scores get a bias that all of the batch share, and a mask for each window of the batch.
    """
    batch, length = sizes
    fused = b.reshape(b.linear(x, width, 3 * width), batch, length, 3, heads, width // heads)
    fused = b.node("Transpose", fused, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        b.node("Gather", fused, b.constant(np.array(part)), axis=0) for part in range(3)
    )
    query = b.node("Mul", query, b.constant((width // heads) ** -0.5))
    scores = b.node("MatMul", query, b.node("Transpose", key, perm=[0, 1, 3, 2]))
    if bias is not None:
        scores = b.node("Add", scores, bias)
    if mask is not None:
        scores = b.reshape(scores, 1, batch, heads, length, length)
        scores = b.node("Add", scores, b.constant(mask[None]))
        scores = b.reshape(scores, batch, heads, length, length)
    mixed = b.node("MatMul", b.node("Softmax", scores, axis=-1), value)
    return _merge_heads(b, mixed, sizes, width, b.fresh("attention"))
