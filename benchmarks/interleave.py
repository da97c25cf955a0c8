"""Measure several engines on one model in turn: A B C A B C ..., so that drift hits all alike.

Every engine is loaded into a worker process of its own, one after another (compile time, memory),
its outputs are compared with the reference's, and then the rounds begin. A turn is as many runs as
fit into `turn_s`, after one that warms the caches; the others sleep meanwhile.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import numpy as np
import onnx
from arithmetic import count_macs
from engines import ENGINES
from machine import busy_cores
from report import Case, Measurement, summarize
from worker import Loaded, Turn, Worker, WorkerError
from zoo import ZOO, sample_inputs

REFERENCE = "onnxruntime"
RTOL, ATOL = 1e-3, 1e-4
"""Allowed: RTOL of each value plus ATOL of the largest value."""

FEWEST_RUNS, MOST_RUNS = 2, 200
"""In one turn."""

Advance = Callable[[str], None]
"""Called with what is being done, once per step."""

Cases = Iterator[Case]


@dataclass(frozen=True)
class Settings:
    """What to measure, and how long."""

    models: tuple[str, ...]
    threads: tuple[int, ...]
    engines: tuple[str, ...]
    """In the order of the turns."""
    rounds: int = 10
    turn_s: float = 0.25
    batch: int = 1
    seed: int = 0

    @property
    def steps(self) -> int:
        """How often `advance` is called if nothing fails."""
        return len(self.models) * (1 + len(self.threads) * (len(self.engines) + self.rounds))


@dataclass
class Contestant:
    """One engine while it is being measured."""

    engine: str
    worker: Worker
    loaded: Loaded | None = None
    outputs: list[np.ndarray] = field(default_factory=list)
    estimate_s: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    failure: str | None = None


@dataclass(frozen=True)
class Subject:
    """A model on disk with inputs for it."""

    name: str
    model: Path
    inputs: Path
    macs: int


def measure_model(name: str, settings: Settings, peak_gflops: float, advance: Advance) -> Cases:
    """Measure one network with each number of threads; yields a case as soon as it is known."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        advance(f"{name}: build")
        subject = prepare(name, settings, Path(folder))
        for threads in settings.threads:
            busy = busy_cores()
            contestants = measure_case(subject, threads, settings, advance)
            bound_ms = 2e3 * subject.macs / (peak_gflops * 1e9 * threads)
            reference = next((one for one in contestants if one.engine == REFERENCE), None)
            measured = tuple(_measurement(one, reference) for one in contestants)
            yield summarize(subject.name, threads, subject.macs, bound_ms, busy, measured)


def prepare(name: str, settings: Settings, folder: Path) -> Subject:
    """Build a network and random inputs, and put both on disk. A file of the user's is taken as it
    is; where sizes in it are not known, nor are its multiply-accumulates (0)."""
    inputs = folder / "inputs.npz"
    if name in ZOO:
        model = ZOO[name](batch=settings.batch, seed=settings.seed)
        subject = Subject(name, folder / "model.onnx", inputs, count_macs(model))
        onnx.save(model, subject.model)
    else:
        model = onnx.load(name, load_external_data=False)
        try:
            macs = count_macs(model)
        except (KeyError, onnx.shape_inference.InferenceError):
            macs = 0
        subject = Subject(Path(name).stem, Path(name).resolve(), inputs, macs)
    with subject.inputs.open("wb") as file:
        np.savez(file, **sample_inputs(model, settings.seed))
    return subject


def measure_case(
    subject: Subject, threads: int, settings: Settings, advance: Advance
) -> list[Contestant]:
    """All engines on one model with one number of threads."""
    where = f"{subject.name}, {threads} thread" + ("s" if threads > 1 else "")
    with ExitStack() as stack:
        contestants = []
        for engine in settings.engines:
            advance(f"{where}: load {engine}")
            one = Contestant(engine, stack.enter_context(Worker(engine)))
            contestants.append(one)
            _attempt(_load, one, subject, threads)
        for index in range(settings.rounds):
            advance(f"{where}: round {index + 1} of {settings.rounds}")
            for one in contestants:
                _attempt(_take_turn, one, settings.turn_s)
        return contestants


def _attempt(step: Callable[..., None], one: Contestant, *arguments: object) -> None:
    """An engine that fails is out: its error is kept for the report and the others go on."""
    if one.failure is not None:
        return
    try:
        step(one, *arguments)
    except WorkerError as error:
        one.failure = str(error)


def _load(one: Contestant, subject: Subject, threads: int) -> None:
    one.loaded = one.worker.load(subject.model, subject.inputs, threads)
    one.outputs = one.worker.outputs(subject.model.with_name("outputs.npz"))
    one.estimate_s = min(one.worker.run(2).times_s)


def _take_turn(one: Contestant, turn_s: float) -> None:
    runs = min(max(ceil(turn_s / one.estimate_s), FEWEST_RUNS), MOST_RUNS)
    one.turns.append(one.worker.run(runs))


def _measurement(one: Contestant, reference: Contestant | None) -> Measurement:
    error, failure = None, one.failure
    if failure is None and reference is not None and reference.failure is None:
        error, failure = compare(one.outputs, reference.outputs)
    rounds = tuple(tuple(time_s * 1e3 for time_s in turn.times_s) for turn in one.turns)
    idle_s = sum(turn.idle_s for turn in one.turns)
    return Measurement(
        engine=one.engine,
        version=ENGINES[one.engine].installed_version() or "not installed",
        failure=failure,
        error=error,
        rounds_ms=rounds,
        idle_cpu=sum(turn.idle_cpu_s for turn in one.turns) / idle_s if idle_s else 0.0,
        loaded=one.loaded,
    )


def compare(
    outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> tuple[float | None, str | None]:
    """The largest difference by the largest expected value, and what is wrong, if anything is."""
    shapes, wanted = ([array.shape for array in arrays] for arrays in (outputs, expected))
    if shapes != wanted:
        return None, f"wrong result: shapes {shapes}, {REFERENCE} gives {wanted}"
    worst, wrong = 0.0, 0
    for got, want in zip(outputs, expected, strict=True):
        got, want = got.astype(np.float64), want.astype(np.float64)
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0.0)) or 1.0
        same = (got == want) | (np.isnan(got) & np.isnan(want))  # infinities and NaN as well
        got[same] = want[same] = 0.0
        difference = np.abs(got - want)
        worst = max(worst, float(difference.max(initial=0.0)) / largest)
        wrong += int((~(difference <= RTOL * np.abs(want) + ATOL * largest)).sum())  # NaN is wrong
    if wrong:
        return (
            worst,
            f"wrong result: {wrong} values differ from {REFERENCE}'s, by up to {worst:.1e}",
        )
    return worst, None
