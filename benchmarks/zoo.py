"""The networks that tilewright is measured and tested with, built in place: no downloads, no torch.

    python benchmarks/zoo.py                            list them
    python benchmarks/zoo.py resnet18 -o resnet18.onnx  write one
    python benchmarks/zoo.py bert -o bert.onnx --batch N  with a symbolic batch dimension N

Weights are random and seeded, scaled so that outputs vary: what is compared is arithmetic, not
accuracy. For a trained network see `examples/digits`.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from arithmetic import count_macs, count_weights, fix_dimensions
from model_builder import Size
from onnx import helper
from zoo_conv import mobilenetv2, resnet18, resnet50
from zoo_light import NAMES as LIGHT_NAMES
from zoo_light import light
from zoo_text import bert, gpt2, lstm


class Builder(Protocol):
    """Builds a network."""

    def __call__(self, *, batch: Size = 1, seed: int = 0) -> onnx.ModelProto:
        """`batch` may be the name of a symbolic dimension; `seed` sets every weight."""
        ...


ZOO: dict[str, Builder] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "bert": bert,
    "gpt2": gpt2,
    "lstm": lstm,
    **{name: partial(light, name) for name in LIGHT_NAMES},
}


def sample_inputs(model: onnx.ModelProto, seed: int = 0, **dims: int) -> dict[str, np.ndarray]:
    """Random inputs in the right ranges, by input name; `dims` sizes the symbolic dimensions.

    Floats are standard normal, as a normalized image is. Integers that index a table (the first
    input of a Gather) are drawn from its rows; other integers, such as attention masks, are ones.
    """
    random = np.random.default_rng(seed)
    given = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: _sample(model.graph, value, random, dims)
        for value in model.graph.input
        if value.name not in given
    }


def _sample(
    graph: onnx.GraphProto,
    value: onnx.ValueInfoProto,
    random: np.random.Generator,
    dims: dict[str, int],
) -> np.ndarray:
    shape = tuple(_extent(dim, value.name, dims) for dim in value.type.tensor_type.shape.dim)
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if dtype.kind == "f":
        return random.standard_normal(shape, np.float32).astype(dtype)
    rows = _table_rows(graph, value.name)
    return np.ones(shape, dtype) if rows is None else random.integers(rows, size=shape, dtype=dtype)


def _extent(dim: onnx.TensorShapeProto.Dimension, name: str, dims: dict[str, int]) -> int:
    if not dim.dim_param:
        return dim.dim_value
    if dim.dim_param not in dims:
        raise ValueError(
            f"input {name!r} has the symbolic dimension {dim.dim_param!r}: "
            f"say its size, as in sample_inputs(model, {dim.dim_param}=1)"
        )
    return dims[dim.dim_param]


def _table_rows(graph: onnx.GraphProto, name: str) -> int | None:
    """The rows of the smallest table that `name` indexes, or None."""
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    found = [
        rows[node.input[0]]
        for node in graph.node
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in rows
    ]
    return min(found, default=None)


# ---- command line --------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Write one network to a file, or list them all."""
    parser = argparse.ArgumentParser(prog="zoo.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of: {', '.join(ZOO)}")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.onnx", help="where to write it")
    parser.add_argument(
        "--batch", default="1", help="a number, or the name of a dimension (default 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default 0)")
    options = parser.parse_args(arguments)
    if options.name is None:
        print("\n".join(ZOO))
        return 0
    if options.name not in ZOO:
        parser.error(f"no network named {options.name!r}; there are {', '.join(ZOO)}")
    batch: Size = int(options.batch) if options.batch.lstrip("-").isdigit() else options.batch
    if isinstance(batch, int) and batch < 1:
        parser.error(f"--batch must be at least 1, got {batch}")
    try:
        model = ZOO[options.name](batch=batch, seed=options.seed)
    except ValueError as error:
        parser.error(str(error))
    output = options.output or Path(f"{options.name}.onnx")
    try:
        onnx.save(model, output)
    except OSError as error:
        parser.error(f"cannot write {output}: {error.strerror}; choose another place with -o")
    print(_summary(model, output, batch))
    return 0


def _summary(model: onnx.ModelProto, output: Path, batch: Size) -> str:
    counted = fix_dimensions(model, **({batch: 1} if isinstance(batch, str) else {}))
    return (
        f"{output}: {len(model.graph.node)} nodes, {count_weights(model) / 1e6:.1f} M weights, "
        f"{count_macs(counted) / 1e9:.2f} GMAC, {output.stat().st_size / 2**20:.1f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
