"""A process that judges mutants: pytest, with the tests collected once and a fork for each mutant.

Started by tools/mutants.py, which asks in lines of JSON and is answered in lines of JSON. A fork
takes over the code of the mutated functions, wherever they are held, and runs tests until one
fails. What ran while modules were imported and tests collected cannot be changed afterwards: such
a mutant gets a process of its own (`fresh`), which imports the mutated module. No file is written,
so a test that looks at the sources sees nothing.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.abc
import importlib.machinery
import json
import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest
from mutants_record import PACKAGE, caches
from mutants_sites import Mutant, mutants, mutated_code

MEMORY = 4 << 30  # bytes that the tests of one mutant may take
PATIENCE, TIMES = 10.0, 10.0  # a test may take so many seconds, and so many times as long as before


@functools.cache
def mutant_of(file: str, number: int) -> Mutant:
    return mutants(file)[number]


class MutatedImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module as the mutant has it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        parts = ("tilewright", *mutant.file.removesuffix(".py").split("/"))
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        where = str(PACKAGE / self.mutant.file)
        found = importlib.machinery.ModuleSpec(name, self, origin=where, is_package=self.is_package)
        found.has_location = True
        return found

    def exec_module(self, module: Any) -> None:
        exec(mutated_code(self.mutant), module.__dict__)


def code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from code_objects(part)


def take_over(mutant: Mutant) -> bool:
    """Give the mutant's code to all functions that have the original's; False if that fails."""
    path = str(PACKAGE / mutant.file)
    new: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    for code in code_objects(mutated_code(mutant)):
        new[code.co_name, code.co_firstlineno].append(code)
    for f in gc.get_objects():
        if type(f) is not FunctionType or f.__code__.co_filename != path:
            continue
        found = new[f.__code__.co_name, f.__code__.co_firstlineno]
        if f.__code__ in found or not found:
            continue
        if len(found) > 1 or found[0].co_freevars != f.__code__.co_freevars:
            return False
        f.__code__ = found[0]
    return True


class Judge:
    """The plugin: in place of the tests, mutants as they are asked for."""

    def __init__(self, requests: Any, answers: Any, fresh: bool) -> None:
        self.requests, self.answers, self.fresh = requests, answers, fresh

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.caches = caches()
        self.say(ready=len(self.items), failed=session.testsfailed)
        for line in self.requests:
            request = json.loads(line)
            mutant = None
            if request["mutant"] is not None and not self.fresh:
                mutant = mutant_of(*request["mutant"])
            self.say(**self.judge(mutant, request["tests"], request["seconds"]))
        return True

    def say(self, **answer: Any) -> None:
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()

    def judge(
        self, mutant: Mutant | None, tests: list[tuple[str, float]], seconds: float
    ) -> dict[str, Any]:
        """Run the tests, given with what each took before, in a fork."""
        begin = time.monotonic()
        news, end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(news)
            os.setpgid(0, 0)  # so that what it starts ends with it
            self.run(mutant, [name for name, _ in tests], end)
        os.close(end)
        try:
            answer = self.watch(news, tests, begin + seconds)
        finally:
            os.close(news)
            for kill in (os.kill, os.killpg):
                with contextlib.suppress(ProcessLookupError):
                    kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return {**answer, "seconds": round(time.monotonic() - begin, 3)}

    def watch(self, news: int, tests: list[tuple[str, float]], limit: float) -> dict[str, Any]:
        """What the fork says, until it fails, ends or takes too long."""
        buffered, tried, deadline = b"", 0, min(limit, time.monotonic() + PATIENCE)
        while True:
            ready, _, _ = select.select([news], [], [], max(0.0, deadline - time.monotonic()))
            last = tests[tried - 1][0] if tried else None
            if not ready:
                kind = "budget" if deadline == limit else "timeout"
                return {"status": kind, "by": last, "tried": tried}
            part = os.read(news, 1 << 16)
            if not part:
                return {"status": "crash", "by": last, "tried": tried}
            *lines, buffered = (buffered + part).split(b"\n")
            for line in map(json.loads, lines):
                if "status" in line:
                    return {"tried": tried, **line}
                tried = line["test"] + 1
                patience = PATIENCE + TIMES * tests[line["test"]][1]
                deadline = min(limit, time.monotonic() + patience)

    def run(self, mutant: Mutant | None, names: list[str], end: int) -> NoReturn:
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))

        def tell(**what: Any) -> None:
            os.write(end, json.dumps(what).encode() + b"\n")

        class Stop:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    why = str(report.longrepr).strip().splitlines()[-1:]
                    tell(status="killed", by=report.nodeid, why=why[0][:200] if why else "")
                    os._exit(0)

        if mutant is not None and not take_over(mutant):
            tell(status="fresh", by=None)
            os._exit(0)
        for cached in self.caches:
            cached.cache_clear()
        items = [self.items[name] for name in names]
        items[0].config.pluginmanager.register(Stop())
        for i, item in enumerate(items):
            tell(test=i)
            following = items[i + 1] if i + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        tell(status="survived", by=None)
        os._exit(0)


def main() -> int:
    """With a mutant's file and number and test files: a fresh process for that mutant."""
    order = json.loads(sys.argv[1])
    requests, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    if order["mutant"] is not None:
        sys.meta_path.insert(0, MutatedImport(mutant_of(*order["mutant"])))
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    judge = Judge(requests, answers, order["mutant"] is not None)
    arguments = ["-q", "-pno:cacheprovider", "-pno:xdist", *order["files"]]
    return int(pytest.main(arguments, plugins=[judge]))


if __name__ == "__main__":
    sys.exit(main())
