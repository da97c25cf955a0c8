"""Compare tilewright with other engines on this machine's processor, in float32.

    python benchmarks/cpu.py --models resnet18,bert --threads 1,2 --json results.json
    python benchmarks/cpu.py --models my/model.onnx

For each model and number of threads: times of every engine, measured in turn; ours by the best
peer's; compile time; peak memory; the error against onnxruntime; and a lower bound, the arithmetic
alone at the machine's peak. Absolute times drift with the machine: compare ratios.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from engines import ENGINES
from google.protobuf.message import DecodeError
from interleave import Advance, Settings, measure_model
from machine import describe
from peak import measure_peak
from report import OURS, Case, Report, make_table, problems
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from zoo import ZOO, sample_inputs

MODELS = "resnet18,resnet50,mobilenetv2,bert"
PEERS = tuple(name for name in ENGINES if name != OURS)
FAILED, INTERRUPTED = 1, 130  # exit status: an engine failed; Ctrl-C


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table and write the JSON file; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    wanted = (OURS, *parse_names(parser, "--peers", options.peers, PEERS))
    missing = [name for name in wanted if ENGINES[name].installed_version() is None]
    settings = Settings(
        models=parse_models(parser, options.models, options.batch),
        threads=parse_counts(parser, options.threads),
        engines=tuple(name for name in wanted if name not in missing),
        rounds=options.repeat,
        batch=options.batch,
        seed=options.seed,
    )
    out = Console(quiet=options.quiet, soft_wrap=True)
    notes = tuple(f"{name} is not installed: left out" for name in missing)
    for line in notes:
        out.print(line)
    if not settings.engines:
        parser.error("no engine is installed; install one, as in: pip install onnxruntime")
    check_writable(parser, options.json)
    report, status = measure(settings, notes, out)
    if options.json is not None:
        options.json.write_text(report.to_json())
    return status


def measure(settings: Settings, notes: tuple[str, ...], out: Console) -> tuple[Report, int]:
    """Measure everything and print it; when interrupted, what was measured so far."""
    machine, peak = describe(), measure_peak()
    out.print(str(machine), highlight=False)
    too_many = [str(n) for n in settings.threads if n > machine.cores]
    if too_many:
        note = f"threads={','.join(too_many)}: more than the {machine.cores} cores there are"
        notes = (*notes, note)
        out.print(note)
    cases: list[Case] = []
    status = 0
    try:
        with _progress(settings.steps, quiet=out.quiet) as advance:
            for model in settings.models:
                cases.extend(measure_model(model, settings, peak, advance))
    except KeyboardInterrupt:
        notes, status = (*notes, "interrupted"), INTERRUPTED
    out.print(make_table(cases, peak))
    for line in problems(cases):
        out.print(line, style="red", highlight=False)
    if any(one.failure is not None for case in cases for one in case.measurements):
        status = status or FAILED
    return Report(machine, peak, notes, tuple(cases)), status


@contextmanager
def _progress(steps: int, *, quiet: bool) -> Iterator[Advance]:
    """A progress bar on the standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("start", total=steps)

        def advance(doing: str) -> None:
            progress.update(task, advance=1, description=doing)

        yield advance


# ---- options -------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cpu.py", description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    known = f"files of ONNX, or of {', '.join(ZOO)}"
    add("--models", default=MODELS, metavar="A,B", help=f"{known} (default {MODELS})")
    add("--threads", default="1", metavar="N,M", help="numbers of threads (default 1)")
    add("--peers", default=",".join(PEERS), metavar="A,B", help="default: all there are")
    add("--repeat", type=_positive, default=10, metavar="N", help="rounds (default 10)")
    add("--batch", type=_positive, default=1, metavar="N", help="default 1")
    add("--seed", type=int, default=0, metavar="N", help="of weights and inputs (default 0)")
    add("--json", type=Path, metavar="FILE", help="write everything measured, every run's time too")
    add("--quiet", action="store_true", help="print nothing")
    return parser


def check_writable(parser: argparse.ArgumentParser, path: Path | None) -> None:
    """Better said now than after the measurements."""
    if path is None:
        return
    try:
        path.touch()
    except OSError as error:
        parser.error(f"--json: cannot write {path}: {error.strerror}")


def parse_names(
    parser: argparse.ArgumentParser, option: str, text: str, known: tuple[str, ...]
) -> tuple[str, ...]:
    """Reads a list of names from `known`, each once; an empty text is an empty list."""
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in known:
            parser.error(f"{option}: no {name!r}; there are {', '.join(known)}")
    return names


def parse_models(parser: argparse.ArgumentParser, text: str, batch: int) -> tuple[str, ...]:
    """Reads a list of networks: names of the zoo, and files whose inputs have known sizes, which
    have the batch that they have."""
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    for name in names:
        if name not in ZOO and not name.endswith(".onnx"):
            parser.error(f"--models: no {name!r}; there are files FILE.onnx and {', '.join(ZOO)}")
        if name not in ZOO:
            if batch != 1:
                parser.error(f"--batch: {name} has a batch of its own; {batch} is for the zoo")
            try:
                sample_inputs(onnx.load(name, load_external_data=False))
            except (OSError, ValueError, DecodeError) as error:
                parser.error(f"--models: {name}: {error}")
    return names


def parse_counts(
    parser: argparse.ArgumentParser, text: str, option: str = "--threads"
) -> tuple[int, ...]:
    """Reads numbers of threads or cores, each once."""
    try:
        return tuple(dict.fromkeys(_positive(part) for part in text.split(",")))
    except argparse.ArgumentTypeError:
        parser.error(f"{option}: must be positive numbers, as in 1,2: got {text!r}")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
