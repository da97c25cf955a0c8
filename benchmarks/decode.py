"""Decode one token with weights of 32, 8 and 4 bits, beside other engines.

    python benchmarks/decode.py --threads 1 --json build/decode.json

For each kind of weights: the median of every engine, how many times faster than our own f32 it is,
the share of the rate at which memory can be read that the weights come to, and the error against
f32 (root mean square, by the logits' deviation; the weights are random).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from cpu import PEERS, check_writable, parse_counts
from decode_models import KINDS, decoder, models
from engines import ENGINES
from machine import describe
from operators import Result, measure, quantized_problem, show
from report import OURS
from rich.console import Console
from zoo import sample_inputs

import tilewright
from tilewright.report.limits import measure_limits

EMBEDDINGS = "wte"  # of which one row is read


def weight_bytes(model: onnx.ModelProto) -> int:
    """What every token needs of the weights."""
    return sum(len(t.raw_data) for t in model.graph.initializer if t.name != EMBEDDINGS)


def errors() -> dict[str, float]:
    """How far the logits are from those of f32."""
    found = {}
    for kind in KINDS:
        model = decoder(kind)
        found[kind] = tilewright.compile(model).run(sample_inputs(model))["logits"]
    exact = found["f32"]
    return {k: float(np.sqrt(np.mean((y - exact) ** 2)) / exact.std()) for k, y in found.items()}


def tell(results: Sequence[Result], out: Console) -> list[dict[str, object]]:
    """What the figures come to, for one number of threads."""
    rate = measure_limits(results[0].threads).levels[-1].bytes_per_second
    wrong, times = errors(), {r.name.split()[-1]: r.ours for r in results}
    found: list[dict[str, object]] = []
    for kind, us in times.items():
        if us is None or times["f32"] is None:
            continue
        size = weight_bytes(decoder(kind))
        share, faster = size / (us * 1e-6) / rate, times["f32"] / us
        found.append({"kind": kind, "share": share, "faster": faster, "error": wrong[kind]})
        out.print(
            f"{kind}: {us / 1e3:.2f} ms, {faster:.2f} times as fast as f32; weights of"
            f" {size / 1e6:.0f} MB, {share:.0%} of {rate / 1e9:.1f} GB/s; error {wrong[kind]:.1e}"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables and write the JSON file; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--threads", default="1", metavar="N,M", help="default 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    check_writable(parser, options.json)
    out = Console(width=140, highlight=False)
    out.print(str(describe()))
    engines = [n for n in (OURS, *PEERS) if ENGINES[n].installed_version() is not None]
    every, facts = [], []
    for threads in parse_counts(parser, options.threads):
        results = measure(models(), engines, threads, 0.3, quantized_problem)
        show(results, out)
        facts += tell(results, out)
        every += results
    if options.json is not None:
        found = {"results": [asdict(r) for r in every], "facts": facts}
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(r.problem for r in every))


if __name__ == "__main__":
    sys.exit(main())
