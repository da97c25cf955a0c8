"""Which lines each test runs: a pytest plugin that records it, and the reader of what it recorded.

    python tools/mutants.py --record        runs pytest with this plugin where a record is stale

One file of build/mutants/record/ holds what one test file's tests did, a line of JSON for each
test. Its name is a digest of the sources, of the test file and of what that imports, so that a new
test costs a run of its own file only. Caches of tilewright and of the tests are emptied before
each test: a line that a cache hides would seem to belong to the first test that came along. What a
fixture of a module or a session does belongs to every test that asks for it.
"""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tilewright"
RECORD = ROOT / "build" / "mutants" / "record"
SCOPE = ("lower", "codegen", "optimize", "ops", "analyze", "schedule", "sim")
COLLECTION = "collection"  # the record of what runs while modules are imported and tests collected

Lines = dict[str, list[int]]  # by file, relative to the package


def test_files() -> list[Path]:
    """All test files but those about the text of the project, which runs no line of it."""
    return sorted(p for p in (ROOT / "tests").rglob("test_*.py") if p.name != "test_structure.py")


def hash_of(paths: Iterable[Path], *more: str) -> str:
    """A digest of files, where they are, and more."""
    found = hashlib.sha256(" ".join(more).encode())
    for path in sorted(paths):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:20]


@functools.cache
def sources_digest() -> str:
    """Of the sources, which every record depends on."""
    return hash_of(p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".c", ".h"))


@functools.cache
def helpers() -> dict[str, list[Path]]:
    """What tests may import beside tilewright, by name; a conftest is imported for them."""
    found: dict[str, list[Path]] = defaultdict(list)
    for folder in ("tests", "benchmarks", "examples", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            if not path.name.startswith("test_"):
                found[path.stem].append(path)
    return found


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """The helpers that a file imports by name."""
    names = {"conftest"}
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return frozenset(p for name in names for p in helpers().get(name.split(".")[0], ()))


@functools.cache
def digest(path: Path | None) -> str:
    """Names the record of one test file; of None, the record of the collection of all of them."""
    used, new = set[Path](), {path} if path is not None else set()
    while new:
        used |= new
        new = {p for file in new for p in imported(file)} - used
    return hash_of(used, sources_digest(), COLLECTION if path is None else "")


def record_of(path: Path | None) -> Path:
    return RECORD / f"{digest(path)}.jsonl"


def stale() -> list[Path]:
    return [p for p in test_files() if not record_of(p).exists()]


def read_record() -> dict[str, dict[str, Any]]:
    """By test: `seconds`, whether it `passed`, and the `lines` that it ran."""
    paths = [record_of(p) for p in (None, *test_files())]
    rows = [json.loads(row) for p in paths for row in p.read_text().splitlines()]
    return {row["test"]: row for row in rows}


def caches() -> list[Any]:
    """Every function of the project's that has a cache, wherever it is held."""
    found = [f for f in gc.get_objects() if type(f) is functools._lru_cache_wrapper]
    ours = tuple(str(ROOT / name) for name in ("src", "tests", "benchmarks", "examples"))
    files = [getattr(f.__wrapped__, "__code__", None) for f in found]
    return [f for f, c in zip(found, files, strict=True) if c and c.co_filename.startswith(ours)]


def seconds() -> float:
    """Of processors, by this process and those that it waited for: others may share the machine."""
    return sum(os.times()[:4])


class Recorder:
    """The plugin: one context of coverage.py for each test and each wide fixture."""

    def __init__(self) -> None:
        folders = [str(PACKAGE / name / "*") for name in SCOPE]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=folders)
        self.coverage.start()
        self.coverage.switch_context(COLLECTION)
        self.expected: dict[Path, int] = defaultdict(int)
        self.rows: dict[Path, list[dict[str, Any]]] = defaultdict(list)
        self.context = COLLECTION
        self.row: dict[str, Any] = {}
        self.wide: dict[str, float] = {}  # what fixtures of a module or a session took

    def lines(self, *contexts: str) -> Lines:
        data, found = self.coverage.get_data(), defaultdict(set)
        for context in contexts:
            data.set_query_context(context)
            for name in data.measured_files():
                found[name].update(data.lines(name) or ())
        return {str(Path(n).relative_to(PACKAGE)): sorted(v) for n, v in found.items() if v}

    def write(self, path: Path | None, rows: list[dict[str, Any]]) -> None:
        RECORD.mkdir(parents=True, exist_ok=True)
        part = record_of(path).with_suffix(f".{os.getpid()}")
        part.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
        part.replace(record_of(path))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self.expected[item.path] += 1
        lines = self.lines(COLLECTION)
        self.caches = caches()
        if session.config.option.collectonly:  # of all files: what runs when they are imported
            self.write(None, [{"test": COLLECTION, "seconds": 0, "passed": True, "lines": lines}])

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        name = f"fixture {fixturedef.baseid} {fixturedef.argname}"
        before, self.context, begin = self.context, name, seconds()
        self.coverage.switch_context(name)
        try:
            return (yield)
        finally:
            self.wide[name] = seconds() - begin
            self.context = before
            self.coverage.switch_context(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.row = {"test": item.nodeid, "seconds": 0.0, "passed": True}
        begin, known = seconds(), set(self.wide)
        for cached in self.caches:
            cached.cache_clear()
        self.context = item.nodeid
        self.coverage.switch_context(self.context)
        result = yield
        took = seconds() - begin
        self.coverage.switch_context("between tests")
        wide = [d[-1] for d in item._fixtureinfo.name2fixturedefs.values() if d]
        names = [f"fixture {d.baseid} {d.argname}" for d in wide if d.scope != "function"]
        took += sum(self.wide[name] for name in names if name in known)  # when it is run alone
        self.row |= {"seconds": round(took, 3), "lines": self.lines(item.nodeid, *names)}
        rows = self.rows[item.path]
        rows.append(self.row)
        if len(rows) == self.expected[item.path]:
            self.write(item.path, self.rows.pop(item.path))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self.row:
            return  # of a worker's test, told to the process that started it
        passed = report.outcome == "passed" and not hasattr(report, "wasxfail")
        self.row["passed"] = self.row["passed"] and passed


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begins before anything of the project is imported."""
    early_config.pluginmanager.register(Recorder(), "recorder of mutants")
