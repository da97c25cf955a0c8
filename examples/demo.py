"""Two models compiled and run on this machine: a trained network that reads handwritten digits,
also with a simulated accelerator, and ResNet-18. `make demo` runs this; it takes well under two
minutes.

    python examples/demo.py            for people; plain lines where the output is not a terminal
    python examples/demo.py --json     the same figures for programs
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from drawing import draw_digits
from reference import Reference
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from arithmetic import count_macs, count_weights  # noqa: E402  (the path above)
from zoo import resnet18, sample_inputs  # noqa: E402

import tilewright  # noqa: E402
from tilewright.base.passes import PassRun  # noqa: E402
from tilewright.options import Options  # noqa: E402
from tilewright.program.host_program import name_of_step, nodes_of  # noqa: E402
from tilewright.report.limits import measure_limits  # noqa: E402
from tilewright.runtime.program import Program  # noqa: E402
from tilewright.targets import cpu  # noqa: E402
from tilewright.targets.vta import vta  # noqa: E402

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
HELD_OUT = ROOT / "examples" / "digits" / "held_out.npz"
REPORT = ROOT / "build" / "digits_on_a_chip.html"
SHOWN = 8  # digits that are drawn
CALIBRATION = ROOT / "examples" / "digits" / "calibration.npz"
SECONDS = 2.0  # of timing, each
WARM_UP = 0.3
STEPS = 6  # of a model that a table shows
BAR = 24  # characters


@dataclass(frozen=True)
class Latency:
    """Milliseconds of a call, over `calls` of them."""

    median: float
    fastest: float
    calls: int


@dataclass(frozen=True)
class StepShare:
    """One step of a model and its part of the time."""

    kernel: str
    nodes: tuple[str, ...]
    microseconds: float
    share: float


@dataclass(frozen=True)
class Agreement:
    """How our outputs compare with another implementation's."""

    reference: str
    same_class: int
    of: int
    largest_difference: float


@dataclass(frozen=True)
class DigitsResult:
    compile_seconds: float
    file_bytes: int
    load_milliseconds: float
    right: int
    of: int
    agreement: Agreement
    one: Latency
    all: Latency
    steps: tuple[StepShare, ...]


@dataclass(frozen=True)
class DeviceStep:
    """A step of a model: which device ran it, and on a chip for how many cycles."""

    kernel: str
    nodes: tuple[str, ...]
    device: str
    cycles: int | None
    microseconds: float | None  # on the chip


@dataclass(frozen=True)
class ChipResult:
    """The digits in int8, with a chip. `exact`: as the host computes the same model, to the bit.
    `report` is a page that shows one call."""

    chip: str
    compile_seconds: float
    right: int
    of: int
    exact: bool
    cycles: int
    steps: tuple[DeviceStep, ...]
    report: str


@dataclass(frozen=True)
class ResNetRun:
    threads: int
    compile_seconds: float
    kernels: int
    latency: Latency
    gflops: float
    peak_gflops: float
    share_of_peak: float


@dataclass(frozen=True)
class ResNetResult:
    weights: int
    macs: int
    agreement: Agreement | None
    runs: tuple[ResNetRun, ...]
    steps: tuple[StepShare, ...]


# ---------------------------------------------------------------- the two models


def run_digits(talk: Talk) -> DigitsResult:
    """The network of examples/digits on the digits that it has never seen."""
    with np.load(HELD_OUT) as data:
        images, labels = data["images"], data["labels"]
    module, seconds, _ = compile_model("digits.onnx", DIGITS, cpu.host(), talk)
    size, load = save_and_load(module)
    scores = module(images)
    found = scores.argmax(axis=1)
    right = int((found == labels).sum())
    chosen = choose_shown(found, labels)
    talk.say("")
    for line in draw_digits(images[chosen, 0], found[chosen], labels[chosen], talk.colours):
        talk.say(line)
    talk.say(f"{right} of {len(labels)} held-out digits are read right: {right / len(labels):.1%}")
    with talk.working("comparing with another implementation"):
        agreement = compare(Reference(DIGITS), {"image": images}, scores)
    with talk.working("timing"):
        one, every = time_calls(module, images[:1]), time_calls(module, images)
    steps = where_time_goes(module, images)
    return DigitsResult(
        seconds, size, load, right, len(labels), agreement, one, every, steps
    )  # fmt: skip


def choose_shown(found: np.ndarray, labels: np.ndarray) -> list[int]:
    """The first of each class that is read right, and one that is not."""
    right = [int(np.flatnonzero((labels == c) & (found == c))[0]) for c in range(SHOWN - 1)]
    return right + np.flatnonzero(found != labels)[:1].tolist()


def run_chip(talk: Talk) -> ChipResult:
    """The same network in int8: convolutions and the linear layer on a simulated chip."""
    with np.load(HELD_OUT) as data:
        images, labels = data["images"], data["labels"]
    with np.load(CALIBRATION) as data:
        samples = dict(data)
    with talk.working("quantising the network"):
        model = tilewright.quantize(DIGITS, samples, scheme="pow2").model
    chip = vta()
    options = Options(dims={"batch": 1}, rounding="half_up")
    with talk.working(f"compiling it for {chip.name} and the host"):
        start = time.perf_counter()
        module = tilewright.compile(model, target={"chip": chip, "host": "host"}, options=options)
        seconds = time.perf_counter() - start
        host = tilewright.compile(model, options=options)
    with talk.working(f"running {len(images)} digits on the simulator"):
        scores = np.concatenate([module(image[None]) for image in images])
        exact = all(
            np.array_equal(host(x[None])[0], s) for x, s in zip(images, scores, strict=True)
        )
    with talk.working("writing a page that shows where the time goes"):
        REPORT.parent.mkdir(exist_ok=True)
        tilewright.write_report(module.profile(images[:1]), REPORT)
    steps = device_steps(module.program)
    right = int((scores.argmax(axis=1) == labels).sum())
    cycles = sum(s.cycles or 0 for s in steps)
    return ChipResult(chip.name, seconds, right, len(labels), exact, cycles, steps, str(REPORT))


def device_steps(program: Program) -> tuple[DeviceStep, ...]:
    """The steps that compute; of a step that is several kernels, these."""
    found = []
    for step, facts in zip(program.host.steps, program.steps, strict=True):
        device = program.host.device_of(step)
        cycle = (facts.picoseconds or 0) / 1e6 / (facts.cycles or 1)
        kernels = [(p.kernel, p.nodes, p.cycles) for p in facts.pieces]
        for kernel, nodes, cycles in kernels or [
            (name_of_step(step), nodes_of(step), facts.cycles)
        ]:
            spent = None if cycles is None else cycles * cycle
            if nodes:
                found.append(DeviceStep(kernel, nodes, device, cycles, spent))
    return tuple(found)


def run_resnet(talk: Talk) -> ResNetResult:
    """ResNet-18 with seeded weights, on one thread and on all."""
    with talk.working("building ResNet-18"):
        model = resnet18()
        inputs = sample_inputs(model)
    image = inputs["image"]
    macs, runs, steps, agreement = count_macs(model), [], (), None
    for threads in sorted({1, cpu.host().cores}):
        target = cpu.host(threads=threads)
        what = f"ResNet-18 for {threads} thread{'s' if threads > 1 else ''}"
        module, seconds, kernels = compile_model(what, model, target, talk)
        with talk.working(f"timing {what}"):
            latency = time_calls(module, image)
        with talk.working("measuring what this machine can do"):
            peak = measure_limits(threads).operations_per_second / 1e9
        gflops = 2 * macs / latency.median / 1e6
        runs.append(ResNetRun(threads, seconds, kernels, latency, gflops, peak, gflops / peak))
        steps = where_time_goes(module, image)
        if agreement is None:
            with talk.working("comparing with another implementation"):
                agreement = compare(Reference(model), inputs, module(image))
        module.close()
    return ResNetResult(count_weights(model), macs, agreement, tuple(runs), steps)


# ---------------------------------------------------------------- what is done with a model


def compile_model(
    what: str, model: Path | onnx.ModelProto, target: tilewright.Target, talk: Talk
) -> tuple[tilewright.Module, float, int]:
    """The module, the seconds that it took and the number of distinct kernels."""
    kernels: set[str] = set()

    def listen(step: PassRun) -> None:
        if step.stage == "llvm":
            kernels.add(step.subject)
            talk.update(f"compiling {what}: {len(kernels)} kernels so far")

    with talk.working(f"compiling {what}"):
        start = time.perf_counter()
        recorder = tilewright.Recorder(listener=listen)
        module = tilewright.compile(model, target=target, recorder=recorder)
        seconds = time.perf_counter() - start
    talk.say(f"compiled {what} in {seconds:.1f} s: {len(kernels)} kernels of machine code")
    return module, seconds, len(kernels)


def save_and_load(module: tilewright.Module) -> tuple[int, float]:
    """Bytes of the compiled file, and the milliseconds that it takes to load."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tw"
        module.save(path)
        start = time.perf_counter()
        with tilewright.load(path):
            return path.stat().st_size, (time.perf_counter() - start) * 1e3


def compare(reference: Reference, inputs: dict[str, np.ndarray], ours: np.ndarray) -> Agreement:
    """Ours and the reference's outputs, class by class and number by number."""
    theirs = reference.run(inputs)
    same = int((theirs.argmax(axis=1) == ours.argmax(axis=1)).sum())
    difference = float(np.abs(theirs - ours).max())
    return Agreement(reference.name, same, len(ours), difference)


def time_calls(module: tilewright.Module, array: np.ndarray) -> Latency:
    """Calls for some seconds, after a warm-up."""
    end = time.perf_counter() + WARM_UP
    while time.perf_counter() < end:
        module(array)
    spent: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(spent) < 3:
        start = time.perf_counter_ns()
        module(array)
        spent.append((time.perf_counter_ns() - start) / 1e6)
    return Latency(median(spent), min(spent), len(spent))


def where_time_goes(module: tilewright.Module, array: np.ndarray) -> tuple[StepShare, ...]:
    """The steps that take longest."""
    steps = module.profile(array, repeat=20).steps
    total = sum(s.nanoseconds for s in steps)
    longest = sorted(steps, key=lambda s: -s.nanoseconds)[:STEPS]
    return tuple(
        StepShare(s.name, tuple(dict.fromkeys(s.nodes)), s.nanoseconds / 1e3, s.nanoseconds / total)
        for s in longest
    )


# ---------------------------------------------------------------- words


class Talk:
    """What people are told: results on stdout, what is being done on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self.out = Console(highlight=False, markup=False, quiet=quiet)
        self.err = Console(highlight=False, markup=False, quiet=quiet, stderr=True)
        if not self.out.is_terminal:
            self.out.width = 100
        self.colours = self.out.is_terminal and self.out.color_system is not None
        self.update: Callable[[str], None] = lambda text: None

    def say(self, what: object) -> None:
        self.out.print(what, soft_wrap=isinstance(what, str))

    def title(self, text: str) -> None:
        self.say("")
        self.say(Rule(text, align="left", style="bold") if self.out.is_terminal else f"== {text}")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A spinner where somebody sees it, else a line."""
        if not self.err.is_terminal:
            self.err.print(f"… {what}", soft_wrap=True)
            yield
            return
        with self.err.status(f"{what} …") as status:
            self.update = lambda text: status.update(f"{text} …")
            yield
            self.update = lambda text: None


def milliseconds(count: float) -> str:
    """Three digits, in the unit that suits them."""
    return f"{count:.3g} ms" if count >= 1 else f"{count * 1e3:.3g} µs"


def say_agreement(a: Agreement, talk: Talk) -> None:
    talk.say(
        f"{a.reference}: the same class for {a.same_class} of {a.of},"
        f" largest difference of a score {a.largest_difference:.1g}"
    )


def say_digits(r: DigitsResult, talk: Talk) -> None:
    say_agreement(r.agreement, talk)
    talk.say(
        f"one digit takes {milliseconds(r.one.median)};"
        f" {r.of} at once {milliseconds(r.all.median)}, {r.of / r.all.median / 1e3:.2f} million"
        " digits a second"
    )
    talk.say(
        f"saved, the compiled model is a file of {r.file_bytes / 1024:.0f} KiB that loads in"
        f" {milliseconds(r.load_milliseconds)}"
    )
    talk.say("")
    talk.say(f"where the time goes, {r.of} digits at once:")
    talk.say(steps_table(r.steps))


def say_chip(r: ChipResult, talk: Talk) -> None:
    told = "as on the host, to the bit" if r.exact else "NOT as on the host"
    read = f"{r.right} of {r.of} held-out digits are read right, {told}"
    talk.say(f"compiled in {r.compile_seconds:.1f} s; {read}")
    table = new_table("kernel", "device", ">cycles", ">time there", "computes")
    for s in r.steps:
        cycles = "" if s.cycles is None else f"{s.cycles:,}"
        spent = "" if s.microseconds is None else milliseconds(s.microseconds / 1e3)
        table.add_row(s.kernel, s.device, cycles, spent, ", ".join(s.nodes))
    talk.say(table)
    talk.say(f"{r.cycles:,} cycles a digit, by the timed simulator of {r.chip}")
    talk.say(f"see it: open {os.path.relpath(r.report)} in a browser")


def say_resnet(r: ResNetResult, talk: Talk) -> None:
    talk.say("")
    talk.say(
        f"ResNet-18, batch 1: {r.macs / 1e9:.2f} billion multiply-adds,"
        f" {r.weights / 1e6:.1f} million weights"
    )
    table = new_table(
        ">threads", ">compiled in", ">a call takes", ">fastest", ">GFLOP/s", ">peak", ">of peak",
    )  # fmt: skip
    for run in r.runs:
        table.add_row(
            str(run.threads),
            f"{run.compile_seconds:.1f} s",
            milliseconds(run.latency.median),
            milliseconds(run.latency.fastest),
            f"{run.gflops:.0f}",
            f"{run.peak_gflops:.0f}",
            f"{run.share_of_peak:.0%}",
        )
    talk.say(table)
    if r.agreement is not None:
        say_agreement(r.agreement, talk)
    talk.say("")
    talk.say(f"the {len(r.steps)} steps that take longest, on all threads:")
    talk.say(steps_table(r.steps))


def steps_table(steps: Sequence[StepShare]) -> Table:
    table = new_table("kernel", ">time", ">share", "", "computes")
    longest = max(s.share for s in steps)
    for s in steps:
        bar = "█" * max(1, round(BAR * s.share / longest))
        ends = f"{s.nodes[0]} … {s.nodes[-1]}" if len(s.nodes) > 1 else s.nodes[0]
        table.add_row(s.kernel, milliseconds(s.microseconds / 1e3), f"{s.share:.0%}", bar, ends)
    return table


def new_table(*columns: str) -> Table:
    """Columns that begin with ">" are numbers."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="demo.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args(arguments)
    talk = Talk(quiet=options.json)
    start = time.perf_counter()
    target = cpu.host()
    cores = f"{target.cores} core{'s' if target.cores > 1 else ''}"
    version = importlib.metadata.version("tilewright")
    talk.say(
        f"tilewright {version} on {target.native.processor}, {cores},"
        f" vectors of {target.vector.bytes} bytes at {target.clock / 1e9:.1f} GHz"
    )
    talk.title("Handwritten digits: a convolutional network, trained on real images")
    digits = run_digits(talk)
    say_digits(digits, talk)
    talk.title("The same digits in int8, on a simulated accelerator beside the host")
    chip = run_chip(talk)
    say_chip(chip, talk)
    talk.title("ResNet-18: how near the machine's peak?")
    resnet = run_resnet(talk)
    say_resnet(resnet, talk)
    spent = time.perf_counter() - start
    talk.say("")
    talk.say(f"all of this took {spent:.0f} s; `tilewright --help` says how to go on")
    if options.json:
        found = {
            "digits": asdict(digits),
            "chip": asdict(chip),
            "resnet18": asdict(resnet),
            "seconds": spent,
        }
        print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
