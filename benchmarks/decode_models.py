"""A GPT-2 of 124 M parameters that decodes one token, with weights of 32, 8 and 4 bits.

    python benchmarks/decode_models.py int4 -o decode-int4.onnx

input_ids [1, 1] and the keys and values of 64 tokens before -> logits and new keys and values. Of
the weights, those of matrices are i8 with a scale for each column (`DequantizeLinear`), or have 4
bits with a scale for blocks of 32 (`MatMulNBits`); the output layer, a transposed copy of the
embeddings, is i8 in both. Every weight is read once for a token: memory bounds how fast that is.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from model_builder import ModelBuilder
from onnx import TensorProto, helper

LAYERS, WIDTH, HEADS, VOCABULARY, PAST = 12, 768, 12, 50257, 64
BLOCK = 32  # codes of 4 bits that share a scale
KINDS = ("f32", "int8", "int4")
Product = Callable[[ModelBuilder, str, np.ndarray, str], str]


def decoder(kind: str, *, seed: int = 0, layers: int = LAYERS) -> onnx.ModelProto:
    """The model with weights of one of the KINDS."""
    b = ModelBuilder(f"gpt2_decode_{kind}", seed=seed)
    product = {"f32": _plain, "int8": _bytes, "int4": _nibbles}[kind]
    ids = b.input("input_ids", (1, 1), TensorProto.INT64)
    tokens = b.random.standard_normal((VOCABULARY, WIDTH), np.float32) * WIDTH**-0.5
    x = b.node("Gather", b.weight("wte", tokens), ids)
    x = b.node("Add", x, b.normal("wpe", (1, 1, WIDTH), std=WIDTH**-0.5))
    presents = []
    for layer in range(layers):
        x, key, value = _layer(b, x, product, f"h.{layer}")
        presents += [(key, f"key.{layer}"), (value, f"value.{layer}")]
    x = _normalized(b, x, "ln_f")
    last = _plain if kind == "f32" else _bytes
    b.output(last(b, x, np.ascontiguousarray(tokens.T), "lm_head"), "logits", (1, 1, VOCABULARY))
    for value, name in presents:
        b.output(value, name, (1, HEADS, PAST + 1, WIDTH // HEADS))
    model = b.build()
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def models() -> dict[str, Callable[[], onnx.ModelProto]]:
    """The decoder with weights of each kind."""
    return {f"decode {kind}": (lambda kind=kind: decoder(kind)) for kind in KINDS}


def _layer(b: ModelBuilder, x: str, product: Product, name: str) -> tuple[str, str, str]:
    """Attention to what came before and a feed-forward part, each added to its input."""

    def linear(x: str, inputs: int, outputs: int, part: str) -> str:
        weight = b.random.standard_normal((inputs, outputs), np.float32) * inputs**-0.5
        bias = b.normal(f"{name}.{part}.bias", (outputs,), std=0.02)
        return b.node("Add", product(b, x, weight, f"{name}.{part}"), bias)

    depth = WIDTH // HEADS
    fused = linear(_normalized(b, x, f"{name}.ln_1"), WIDTH, 3 * WIDTH, "attn")
    split = b.constant([WIDTH, WIDTH, WIDTH])
    query, key, value = (
        b.node("Reshape", part, b.constant([1, HEADS, 1, depth]))
        for part in b.nodes("Split", fused, split, outputs=3, axis=2)
    )
    before = [b.input(f"{name}.{part}", (1, HEADS, PAST, depth)) for part in ("keys", "values")]
    key, value = (
        b.node("Concat", old, new, axis=2) for old, new in zip(before, (key, value), strict=True)
    )
    scores = b.node("MatMul", query, b.node("Transpose", key, perm=[0, 1, 3, 2]))
    weights = b.node("Softmax", b.node("Div", scores, b.constant(depth**0.5)), axis=-1)
    mixed = b.node("Reshape", b.node("MatMul", weights, value), b.constant([1, 1, WIDTH]))
    x = b.node("Add", x, linear(mixed, WIDTH, WIDTH, "proj"))
    hidden = linear(_normalized(b, x, f"{name}.ln_2"), WIDTH, 4 * WIDTH, "fc")
    error = b.node("Erf", b.node("Div", hidden, b.constant(2.0**0.5)))
    bent = b.node(
        "Mul", b.node("Mul", hidden, b.node("Add", error, b.constant(1.0))), b.constant(0.5)
    )
    return b.node("Add", x, linear(bent, 4 * WIDTH, WIDTH, "mlp")), key, value


def _normalized(b: ModelBuilder, x: str, name: str) -> str:
    scale = b.normal(f"{name}.weight", (WIDTH,), std=0.1, mean=1.0)
    shift = b.normal(f"{name}.bias", (WIDTH,), std=0.1)
    return b.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)


def _plain(b: ModelBuilder, x: str, weight: np.ndarray, name: str) -> str:
    return b.node("MatMul", x, b.weight(f"{name}.weight", weight))


def _bytes(b: ModelBuilder, x: str, weight: np.ndarray, name: str) -> str:
    """i8 with a scale for each column."""
    scale = np.abs(weight).max(0) / 127
    codes = np.rint(weight / scale).astype(np.int8)
    names = (b.weight(f"{name}.codes", codes), b.weight(f"{name}.scale", scale))
    return b.node("MatMul", x, b.node("DequantizeLinear", *names, axis=1))


def _nibbles(b: ModelBuilder, x: str, weight: np.ndarray, name: str) -> str:
    """4 bits with a scale for each block of a column."""
    depth, columns = weight.shape
    blocks = weight.T.reshape(columns, depth // BLOCK, BLOCK)
    scale = np.abs(blocks).max(-1, keepdims=True) / 7
    codes = (np.rint(blocks / scale) + 8).astype(np.uint8)
    packed = codes[..., ::2] | codes[..., 1::2] << 4
    names = (b.weight(f"{name}.codes", packed), b.weight(f"{name}.scale", scale.reshape(-1)))
    sizes = {"K": depth, "N": columns, "bits": 4, "block_size": BLOCK}
    return b.node("MatMulNBits", x, *names, domain="com.microsoft", **sizes)


def main() -> None:
    """Write one of them to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    onnx.save(decoder(options.kind), options.output)


if __name__ == "__main__":
    main()
