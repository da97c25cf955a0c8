"""A process that runs one model in one engine, commanded over a pipe: both ends of the pipe.

A process of its own gives each engine its own thread pool, its own compile time and its own peak
memory. It replies once its threads have come to rest, and between commands it sleeps in a read, so
engines can be measured in turn without disturbing each other; how much processor time it used
meanwhile is reported with each run, as proof.

Commands and replies are JSON, one a line. The engine's own output goes to the standard error.
"""

import contextlib
import json
import os
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from engines import ENGINES, Engine

TIMEOUT_S = 900.0
Reply = dict[str, Any]


class WorkerError(Exception):
    """The engine raised, or its process died or did not answer; the text says which."""


@dataclass(frozen=True)
class Loaded:
    """What it took to get a model ready."""

    import_s: float
    compile_s: float
    first_run_s: float
    base_mib: float
    """Peak resident memory before loading: the interpreter and the engine's libraries."""
    peak_mib: float
    """Peak resident memory after loading and one run, libraries included."""


@dataclass(frozen=True)
class Turn:
    """Some runs in a row."""

    times_s: tuple[float, ...]
    ready_s: tuple[float, ...]
    """For how much of each the calling thread was ready to run and had no CPU; if asked for."""
    idle_s: float
    """Since the end of the previous command, while told to do nothing."""
    idle_cpu_s: float
    """Processor time used meanwhile: next to none, or this engine disturbed the others."""


class Worker:
    """The commanding end. A context manager: leaving it ends the process."""

    def __init__(self, engine: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.engine = engine
        self._timeout_s = timeout_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in __exit__)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    @property
    def process(self) -> int:
        """Its number."""
        return self._process.pid

    def __enter__(self) -> "Worker":
        """The worker itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, kindly at first."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()  # the other end of the loop in `serve`
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def load(self, model: Path, inputs: Path, threads: int) -> Loaded:
        """Import the engine, load the model, run it once; `inputs` is an npz file by name."""
        return Loaded(**self._ask("load", model=str(model), inputs=str(inputs), threads=threads))

    def run(self, iterations: int, *, ready: bool = False) -> Turn:
        """One run that is not timed, as others had the caches, then `iterations` timed ones."""
        reply = self._ask("run", iterations=iterations, ready=ready)
        times = {name: tuple(reply[name]) for name in ("times_s", "ready_s")}
        return Turn(**reply | times)

    def outputs(self, path: Path) -> list[np.ndarray]:
        """The model's outputs, in order; `path` is where they may be put in between."""
        count = self._ask("outputs", path=str(path))["count"]
        with np.load(path) as arrays:
            return [arrays[str(index)] for index in range(count)]

    def _ask(self, command: str, **fields: object) -> Reply:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"command": command, **fields}).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._obituary(command)) from None
        reply = self._read_reply(command)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def _read_reply(self, command: str) -> Reply:
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(self._timeout_s):
                self._process.kill()
                raise WorkerError(f"no answer to '{command}' in {self._timeout_s:.0f} s")
        line = stdout.readline()
        if not line:
            raise WorkerError(self._obituary(command))
        answer: Reply = json.loads(line)
        return answer

    def _obituary(self, command: str) -> str:
        """How the process ended, and the last line it said."""
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the process was {how} in '{command}'" + (f": {said[-1]}" if said else "")


# ---- the commanded end ---------------------------------------------------------------------------


class Server:
    """Carries out commands for one engine."""

    def __init__(self, engine: str) -> None:
        self._kind = ENGINES[engine]
        self._mark_idle()

    def load(self, model: str, inputs: str, threads: int) -> Reply:
        """Import, load and run once, each timed."""
        with np.load(inputs) as arrays:
            self._inputs = {name: arrays[name] for name in arrays.files}
        started = time.perf_counter()
        self._engine: Engine = self._kind()
        imported, base_mib = time.perf_counter(), peak_memory_mib()
        self._engine.load(Path(model), threads)
        compiled = time.perf_counter()
        self._engine.run(self._inputs)
        return {
            "import_s": imported - started,
            "compile_s": compiled - imported,
            "first_run_s": time.perf_counter() - compiled,
            "base_mib": base_mib,
            "peak_mib": peak_memory_mib(),
        }

    def run(self, iterations: int, ready: bool) -> Reply:
        """Time each of some runs."""
        idle_s = time.perf_counter() - self._idle_since
        idle_cpu_s = time.process_time() - self._idle_cpu_since
        self._engine.run(self._inputs)
        times, delays = [], []
        with ReadyTime(ready) as waited:
            for _ in range(iterations):
                before, started = waited(), time.perf_counter()
                self._engine.run(self._inputs)
                times.append(time.perf_counter() - started)
                delays.append(waited() - before)
        found = {"times_s": times, "ready_s": delays if ready else []}
        return {**found, "idle_s": idle_s, "idle_cpu_s": idle_cpu_s}

    def outputs(self, path: str) -> Reply:
        """Save what one run gives."""
        results = [
            x.astype(np.float32) if x.dtype.name == "bfloat16" else x  # files do not know it
            for x in self._engine.run(self._inputs)
        ]
        with open(path, "wb") as file:
            np.savez(file, **{str(index): result for index, result in enumerate(results)})
        return {"count": len(results)}

    def answer(self, command: str, fields: Reply) -> Reply:
        """Carry out one command; whatever the engine raises becomes an error reply."""
        handlers: dict[str, Callable[..., Reply]] = {
            "load": self.load,
            "run": self.run,
            "outputs": self.outputs,
        }
        try:
            reply = handlers[command](**fields)
        except Exception as error:  # noqa: BLE001  (a border: the caller reports it)
            reply = {"error": f"{type(error).__name__}: {error}"}
        sleep_until_idle()
        self._mark_idle()
        return reply

    def _mark_idle(self) -> None:
        self._idle_since, self._idle_cpu_since = time.perf_counter(), time.process_time()


class ReadyTime:
    """Seconds that this thread was ready to run while others had the CPU, as Linux counts them; a
    function. 0 where that is not wanted, or not known."""

    def __init__(self, wanted: bool) -> None:
        self._file = None
        if wanted:
            with contextlib.suppress(OSError):
                self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def __enter__(self) -> Callable[[], float]:
        """The function."""
        file = self._file
        return (
            (lambda: 0.0) if file is None else lambda: int(os.pread(file, 64, 0).split()[1]) / 1e9
        )

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)


def serve(engine: str) -> None:
    """Answer commands until the pipe is closed."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints must not look like a reply
    server = Server(engine)
    for line in sys.stdin:
        request = json.loads(line)
        command = request.pop("command")
        print(json.dumps(server.answer(command, request)), file=replies, flush=True)


def sleep_until_idle(step_s: float = 0.01, patience_s: float = 1.0) -> None:
    """Return when the engine's threads sleep too: a pool may spin for a while after its work."""
    end = time.perf_counter() + patience_s
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(step_s)
        if time.process_time() - before < 0.2 * step_s:
            return


def peak_memory_mib() -> float:
    """Peak resident memory of this process.

    Linux's VmHWM starts anew with the program; `ru_maxrss`, used elsewhere, may count the parent.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    serve(sys.argv[1])
