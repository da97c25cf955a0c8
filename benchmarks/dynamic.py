"""Models whose sizes are known at the call, beside the same specialised, and beside other engines.

    python benchmarks/dynamic.py bert resnet18 lstm --json build/dynamic.json

BERT has free batch and length, ResNet-18 free height and width, the LSTM a free length. Ours is
compiled once with free sizes, and once for each size; the others load the model with free sizes.
Each has a process of its own; they take turns at each size. One thread.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import onnx
from arithmetic import fix_dimensions
from cpu import PEERS, check_writable, parse_names
from engines import ENGINES
from interleave import compare
from machine import describe
from operators import take_turns
from report import OURS
from rich.console import Console
from rich.progress import track
from rich.table import Table
from worker import Worker
from zoo import ZOO, sample_inputs

Sizes = dict[str, int]
TURNS, TURN_S = 3, 0.12
SPECIALISED = f"{OURS}, specialised"


@dataclass(frozen=True)
class Row:
    """One model at one size: medians in microseconds, by engine; what is wrong with our results."""

    model: str
    sizes: Sizes
    times: dict[str, float]
    problem: str | None

    @property
    def by_specialised(self) -> float:
        """How many times as long as what is compiled for the size."""
        return self.times[OURS] / self.times[SPECIALISED]

    @property
    def by_peer(self) -> float | None:
        """The best peer's median by ours."""
        others = [t for name, t in self.times.items() if name not in (OURS, SPECIALISED)]
        return min(others) / self.times[OURS] if others else None


def _pictures() -> onnx.ModelProto:
    model = ZOO["resnet18"]()
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for dim, name in zip(dims[2:], ("height", "width"), strict=True):
        dim.dim_param = name
    return model


def _lengths(*lengths: int, batch: int = 1) -> list[Sizes]:
    return [{"batch": batch, "sequence": n} for n in lengths]


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], list[Sizes]]] = {
    "bert": (
        lambda: ZOO["bert"](batch="batch", sequence="sequence"),
        [
            *_lengths(1, 2, 3, 5, 7, 8, 12, 16, 23, 32, 48, 64, 77, 100, 128, 200),
            *_lengths(7, 32, batch=2),
            *_lengths(16, batch=4),
            *_lengths(10, batch=8),
        ],
    ),
    "resnet18": (
        _pictures,
        [
            {"height": h, "width": w}
            for h, w in (
                (224, 224), (192, 256), (256, 192), (160, 160), (97, 130),
                (64, 64), (300, 200), (32, 32), (229, 229), (384, 128),
            )
        ],
    ),
    "lstm": (
        lambda: ZOO["lstm"](sequence="sequence"),
        [{"sequence": n} for n in (1, 5, 13, 50, 100, 127, 300)],
    ),
}  # fmt: skip


def measure(name: str, engines: Sequence[str], folder: Path) -> list[Row]:
    """One model at all its sizes."""
    build, every = MODELS[name]
    free, found = build(), []
    onnx.save(free, folder / "free.onnx")
    for sizes in track(every, name, console=Console(stderr=True)):
        inputs = folder / "inputs.npz"
        np.savez(inputs, **sample_inputs(free, **sizes))
        onnx.save(fix_dimensions(free, **sizes), folder / "fixed.onnx")
        with ExitStack() as stack:
            workers = {e: stack.enter_context(Worker(e)) for e in engines}
            for worker in workers.values():
                worker.load(folder / "free.onnx", inputs, 1)
            workers[SPECIALISED] = stack.enter_context(Worker(OURS))
            workers[SPECIALISED].load(folder / "fixed.onnx", inputs, 1)
            outputs = {e: w.outputs(folder / "outputs.npz") for e, w in workers.items()}
            times = take_turns(workers, TURN_S, TURNS)
        others = [a for e, a in outputs.items() if e != OURS]
        wrong = next((p for a in others if (p := compare(outputs[OURS], a)[1])), None)
        found.append(Row(name, sizes, {e: median(t) * 1e6 for e, t in times.items()}, wrong))
    return found


def show(rows: Sequence[Row], out: Console) -> None:
    """A table, and what it comes to."""
    table = Table("model", "sizes", *rows[0].times, "by specialised", "peer / ours")
    for column in table.columns[2:]:
        column.justify = "right"
    for r in rows:
        peer = "-" if r.by_peer is None else f"{r.by_peer:.2f}"
        shown = ", ".join(str(n) for n in r.sizes.values())
        figures = (f"{t:,.0f}" for t in r.times.values())
        table.add_row(r.model, shown, *figures, f"{r.by_specialised:.2f}", peer)
    out.print(table)
    for name in dict.fromkeys(r.model for r in rows):
        own = [r for r in rows if r.model == name]
        ratios = [r.by_specialised for r in own]
        peers = [r.by_peer for r in own if r.by_peer is not None]
        told = f"{name}: {len(own)} sizes, {geometric_mean(ratios):.2f} times as long as"
        told += f" specialised, at most {max(ratios):.2f}"
        if peers:
            told += f"; best peer by ours {geometric_mean(peers):.2f}, least {min(peers):.2f}"
        out.print(told)
    for r in rows:
        if r.problem:
            out.print(f"{r.model} {r.sizes}: {r.problem}", soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and write the JSON file; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    check_writable(parser, options.json)
    names = parse_names(parser, "MODEL", ",".join(options.models), tuple(MODELS))
    engines = [n for n in (OURS, *PEERS) if ENGINES[n].installed_version() is not None]
    out = Console(width=140, highlight=False)
    out.print(str(describe()))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        for name in names:
            rows += measure(name, engines, Path(folder))
    show(rows, out)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    return int(any(r.problem for r in rows))


if __name__ == "__main__":
    sys.exit(main())
