"""Damaged models through the command line: each must compile and run, or be refused in words.

    python tools/mutate.py                        500 models; what `make mutate-models` runs
    python tools/mutate.py --case 17 --keep out   one of them, its file kept, its words shown

Each model is run or compiled in a process of its own, forked from one that has everything
imported, with a limit on its address space and on its processor time. A refusal is exit code 2, one
paragraph that begins with "error: " and no new file; one that shows a program of the compiler's is
a defect of ours, not of the model. All but success and refusal are findings, and exit code 1.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from damage import damage
from rich.console import Console
from rich.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from zoo_light import light  # noqa: E402  (the path above)
from zoo_text import gpt2, lstm  # noqa: E402

from tilewright.cli import main as cli  # noqa: E402

COUNT, SEED, JOBS = 500, 0, os.cpu_count() or 1
ADDRESS_SPACE = 4 << 30  # bytes
SECONDS = 30  # of processor time, so that a busy machine changes no verdict
PATIENCE = 5 * SECONDS  # seconds on the clock, for what waits and does nothing
OK, REFUSED, DEFECT, CRASHED, TIMED_OUT = "ok", "refused", "defect", "crashed", "timed out"
LONGEST = 5000  # characters of a refusal: one paragraph
SHOWN = 600  # characters of it in the list of findings


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    case: int
    base: str
    command: str
    kind: str
    seconds: float
    words: str


# ---------------------------------------------------------------- the models


def bases() -> dict[str, onnx.ModelProto]:
    """Models that are small enough to be compiled hundreds of times."""
    text = {"batch": 1, "sequence": 8, "layers": 1, "vocabulary": 50}
    return {
        "digits": onnx.load(ROOT / "examples" / "digits" / "digits.onnx"),
        "block": gpt2(**text, width=32, heads=4),
        "symbolic block": gpt2(**text | {"batch": "n", "sequence": "s"}, width=32, heads=4),
        "lstm": lstm(sequence=5, features=8, hidden=16, classes=4),
        "squeezenet": light("light_squeezenet"),
    }


def one_case(models: dict[str, onnx.ModelProto], seed: int, case: int) -> tuple[str, bytes]:
    """Which model it comes from, and the damaged file."""
    names = tuple(models)
    name = names[case % len(names)]
    number = seed * 1_000_003 + case
    return name, damage(number, models[name])


# ---------------------------------------------------------------- one model in a process


def try_model(data: bytes, case: int, base: str, keep: Path | None) -> Outcome:
    """Runs (or compiles) a model in a forked process and judges what comes of it."""
    command = "compile" if case % 3 == 2 else "run"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = place / "model.onnx"
        model.write_bytes(data)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{case}.onnx").write_bytes(data)
        status, seconds = _forked(place, command)
        words = (place / "stderr").read_text(errors="replace")
        files = {p.name for p in place.iterdir()} - {"model.onnx", "stdout", "stderr"}
        kind = _judge(status, words, files, command)
    return Outcome(case, base, command, kind, seconds, words.strip() or f"status {status}")


def _judge(status: int, words: str, files: set[str], command: str) -> str:
    wanted = {"model.tw"} if command == "compile" and status == 0 else set()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF):
        return TIMED_OUT
    if files != wanted or "Traceback" in words:
        return CRASHED
    if status == 0:
        return OK
    text = words.strip()
    is_paragraph = text.startswith("error: ") and "\n\n" not in text and len(text) < LONGEST
    if os.waitstatus_to_exitcode(status) != 2 or not is_paragraph:
        return CRASHED
    return DEFECT if "\n  in: " in text else REFUSED


def _forked(place: Path, command: str) -> tuple[int, float]:
    """How the process ended, and the processor time that it took."""
    child = os.fork()
    if child == 0:
        try:
            _limit()
            os.chdir(place)
            for name, stream in (("stdout", 1), ("stderr", 2)):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
            sys.argv = ["tilewright", command, "model.onnx", "--quiet"]
            cli.main()
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        except BaseException as error:  # noqa: BLE001  (the border of the process)
            os.write(2, f"Traceback: {type(error).__name__}: {error}".encode())
            os._exit(70)
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    return status, used.ru_utime + used.ru_stime


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(PATIENCE)


# ---------------------------------------------------------------- all models


def work(options: argparse.Namespace, cases: range) -> None:
    """A worker's share of the cases: a line of JSON for each."""
    models = bases()
    for case in cases:
        base, data = one_case(models, options.seed, case)
        line = json.dumps(asdict(try_model(data, case, base, options.keep)))
        os.write(1, line.encode() + b"\n")


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """From all workers, as they come. They share a pipe: a line is written at one stroke."""
    command = [sys.executable, __file__, "--seed", str(options.seed), "--jobs", str(options.jobs)]
    command += ["--count", str(options.count)]
    command += ["--keep", str(options.keep)] if options.keep else []
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ours, theirs = os.pipe()
    workers = [
        subprocess.Popen([*command, "--worker", str(i)], stdout=theirs, env=environment)
        for i in range(options.jobs)
    ]
    os.close(theirs)
    with open(ours) as lines:
        for line in lines:
            yield Outcome(**json.loads(line))
    for worker in workers:
        worker.wait()


def judge_all(options: argparse.Namespace) -> int:
    """All cases, with progress; the exit code."""
    console = Console(stderr=True, highlight=False, markup=False)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    counts, texts, longest, start = Counter[str](), Counter[str](), 0.0, time.perf_counter()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("models", total=options.count)
        for done, one in enumerate(outcomes(options), 1):
            progress.advance(task)
            if done % 100 == 0 and not console.is_terminal:
                console.print(f"… {done} of {options.count}")
            counts[one.kind] += 1
            longest = max(longest, one.seconds)
            texts[one.words] += one.kind == REFUSED
            if one.kind not in (OK, REFUSED):
                words = one.words[:SHOWN]
                out.print(f"case {one.case} ({one.base}, {one.command}) {one.kind}: {words}")
    if options.texts:
        for words, count in texts.most_common():
            out.print(f"{count} times: {words}")
    out.print(
        f"{sum(counts.values())} of {options.count} damaged models: {counts[OK]} ran,"
        f" {counts[REFUSED]} refused in words; {counts[DEFECT]} defects, {counts[CRASHED]} crashes,"
        f" {counts[TIMED_OUT]} longer than {SECONDS} s; the longest took {longest:.1f} s of"
        f" processor time, all {time.perf_counter() - start:.0f} s"
    )
    return int(counts[OK] + counts[REFUSED] != options.count)


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutate.py", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--count", type=int, default=COUNT, help=f"models (default {COUNT})")
    add("--seed", type=int, default=SEED, help=f"of all of them (default {SEED})")
    add("--jobs", type=int, default=JOBS, help="processes (default: one for each CPU)")
    add("--case", type=int, help="only this one")
    add("--keep", type=Path, metavar="FOLDER", help="where to keep the damaged files")
    add("--texts", action="store_true", help="print what the refused models were told")
    add("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options, range(options.worker, options.count, options.jobs))
        return 0
    if options.case is not None:
        base, data = one_case(bases(), options.seed, options.case)
        one = try_model(data, options.case, base, options.keep)
        print(f"{one.base}, {one.command}: {one.kind} after {one.seconds:.2f} s\n{one.words}")
        return int(one.kind not in (OK, REFUSED))
    return judge_all(options)


if __name__ == "__main__":
    sys.exit(main())
