"""Mutation of the compiler: how many small changes of its code do the tests notice?

    python tools/mutants.py --seed 2 --jobs 2                         300 mutants, two at a time
    python tools/mutants.py --files analyze/ --tests tests/analyze    only these

A mutant meets the tests that run its line (on import: any line of its module), fast ones first, a
minute of them. It is killed if one fails, crashes or is gone, or an import fails, and unseen if no
test runs it. Tests that do not pass without a mutant are left out. What tests run and verdicts are
kept in build/mutants while sources and what tests share stay, and, for survivors, tests. Exit code
1: less than 90 % are noticed, or more than 10 % are equivalent (tools/mutants_equivalent.py).
"""

import argparse
import ast
import gc
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import _lru_cache_wrapper, partial
from hashlib import sha256
from itertools import accumulate, islice
from json import dumps, loads
from pathlib import Path
from tempfile import TemporaryDirectory

import rich.table
from coverage import Coverage, CoverageData
from mutants_equivalent import EQUIVALENT
from tqdm.contrib.concurrent import thread_map

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, VERDICTS = ROOT / "src/tilewright", ROOT / "build/mutants/verdicts.jsonl"
SCOPE = ("lower/", "backends/", "optimize/", "ops/", "analyze/", "schedule/", "plan/", "sim/")
OPTIONS = {"count": 300, "seed": 0, "jobs": 1, "files": "", "tests": "tests", "json": "/dev/null"}
NOTICED, SECONDS = ("killed", "timeout"), 120  # of tests as recorded, which slows them down
LIMITED = ("prlimit", f"--as={8 << 30}", "timeout")
SWAP = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
SWAP |= {ast.Add: ast.Sub, ast.Mult: ast.FloorDiv, ast.LShift: ast.RShift, ast.And: ast.Or}
SWAP |= {ast.BitOr: ast.BitAnd} | {new: old for old, new in SWAP.items()}
SWAP |= {ast.Mod: ast.FloorDiv, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr}
DROPPED = ast.Expr | ast.AugAssign | ast.Raise | ast.Delete | ast.Break | ast.Continue
EMPTY = {ast.List: "[]", ast.ListComp: "[]", ast.Tuple: "()"}  # returned instead; else None is
UNSEEN = ("annotation", "returns", "decorator_list", "bases", "exc")  # by tests, as texts are


def replacements(field: str, node: ast.AST) -> Iterator[ast.AST | None]:
    """What may stand in the place of a node; None drops it."""
    if type(node) in SWAP:
        yield SWAP[type(node)]()
    if isinstance(node, DROPPED):
        yield ast.Pass()
    if field in ("test", "ifs", "guard"):
        yield from (ast.Constant(True), ast.Constant(False), ast.UnaryOp(ast.Not(), node))
    match node:
        case ast.keyword():
            yield None
        case ast.Assign([ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.parse(EMPTY.get(type(value), "None"), mode="eval").body)
        case ast.Constant(bool() | int() | float() as value) if value + 1 != value:
            yield ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.Constant(str() as value) if " " not in value:
            yield ast.Constant(value + "_")


def changes(node: ast.AST, statement: ast.AST | None = None) -> Iterator[tuple]:
    """Each change inside of a node: its statement, and whose field gets, at which place, what."""
    for field, value in ast.iter_fields(node):
        for i, child in enumerate(value if isinstance(value, list) else [value]):
            match child:
                case ast.Assert() | ast.JoinedStr() | ast.Expr(ast.Constant()):
                    continue
                case ast.keyword("strict" | "doc") | ast.If(ast.Name("TYPE_CHECKING")):
                    continue
                case ast.AST() if field not in UNSEEN:
                    stated = child if isinstance(child, ast.stmt) else statement
                    yield from ((stated, node, field, i, n) for n in replacements(field, child))
                    yield from changes(child, stated)


def mutant(path: Path, number: int) -> tuple[list[str], list, str]:
    """A change of a module: what was and is there; its lines, or its statement's; the new text."""
    tree = ast.parse(path.read_bytes())
    statement, parent, field, i, new = next(islice(changes(tree), number, None))
    held, unit = getattr(parent, field), parent if isinstance(parent, ast.expr) else statement
    old, before = held[i] if isinstance(held, list) else held, ast.unparse(unit).split("\n")[0]
    spans = [range(n.lineno, n.end_lineno + 1) for n in (old, parent) if hasattr(n, "lineno")]
    put = [*held[:i], *filter(None, [new]), *held[i + 1 :]] if isinstance(held, list) else new
    setattr(parent, field, put)
    after = ast.unparse(new if isinstance(new, ast.stmt) else unit).split("\n")[0]
    return [before, after], [spans[0], [statement.lineno]], ast.unparse(tree)


def pytest_runtest_setup(item) -> None:
    """Tells coverage.py which test runs, and empties caches: it does not see what they hide."""
    Coverage.current().switch_context(item.nodeid)
    for cache in (o for o in gc.get_objects() if type(o) is _lru_cache_wrapper):
        cache.cache_clear()


def record(tests: Path, target: Path) -> None:
    """Write which lines each test of a file runs (not the imports of the first), and how long."""
    command = ["env", f"PYTHONPATH={ROOT / 'tools'}", sys.executable, "-mcoverage", "run"]
    command += [f"--source={PACKAGE}", f"--data-file={target}.part", "-m", "pytest", "-pmutants"]
    command += ["-ptilewright.cli.main", "-pno:cacheprovider", f"--report-log={target}.log", tests]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1, 5):  # all passed, some failed, there are none
        raise SystemExit(f"{tests} cannot be recorded:\n{done.stdout}{done.stderr}")
    Path(f"{target}.part").rename(target)


def tests_of(path: Path, lines: list, records: Iterable[Path]) -> list[tuple[float, str]]:
    """Seconds and names of the tests that run the first of `lines` that any runs."""
    ran, seconds = defaultdict(set), {}
    for target in records:
        for report in map(loads, Path(f"{target}.log").read_text().splitlines()):
            if report.get("when") == "call" and report["outcome"] == "passed":
                seconds[report["nodeid"]] = report["duration"]
        (data := CoverageData(str(target))).read()
        for line, contexts in data.contexts_by_lineno(str(path)).items():
            ran[line].update(contexts)
    found = next(filter(None, (set().union(*(ran[n] for n in some)) for some in lines)), set())
    if "" in found:  # on import
        found = set().union(*ran.values())
    order = sorted((seconds[test], test) for test in found & seconds.keys())
    ends = accumulate(took for took, _ in order)
    return [test for test, end in zip(order, ends, strict=True) if end < SECONDS]


def judge(records: Iterable[Path], holds: tuple[str, str], drawn: tuple[str, int]) -> dict:
    """The verdict on a mutant, whose tests import a copy of the sources; it is kept, too."""
    change, lines, text = mutant(PACKAGE / drawn[0], drawn[1])
    tests, status = tests_of(PACKAGE / drawn[0], lines, records), "unseen"
    with TemporaryDirectory() as copy:
        shutil.copytree(PACKAGE.parent, copy, dirs_exist_ok=True)
        Path(copy, PACKAGE.name, drawn[0]).write_text(text)
        for some in filter(None, (tests[:20], tests[20:])):
            if status not in NOTICED:
                seconds, names = zip(*some, strict=True)
                command = ["env", f"PYTHONPATH={copy}", *LIMITED, str(20 + 5 * sum(seconds))]
                command += [sys.executable, "-mpytest", "-x", "-pno:cacheprovider", *names]
                done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
                status = {0: "survived", 124: "timeout"}.get(done.returncode, "killed")
    verdict = {"mutant": drawn, "line": lines[0][0], "change": change, "status": status}
    with VERDICTS.open("a") as file:
        file.write(dumps(verdict | {"holds": holds[status not in NOTICED]}) + "\n")
    return verdict


def digest(paths: Iterable[Path]) -> str:
    return sha256(b"".join(bytes(p) + p.read_bytes() for p in sorted(paths))).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in OPTIONS.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    options = parser.parse_args()
    VERDICTS.parent.mkdir(parents=True, exist_ok=True)
    VERDICTS.touch()
    code = [p for f in ("src", "tests", "benchmarks") for p in (ROOT / f).rglob("*.[pch]*")]
    shared = digest(p for p in code if p.suffix != ".pyc" and not p.name.startswith("test_"))
    tests = [p for p in (ROOT / options.tests).rglob("test_*.py") if p.stem != "test_structure"]
    records = {p: VERDICTS.with_name(f"{shared}-{digest([p])}") for p in tests}
    missing = {p: target for p, target in records.items() if not target.exists()}
    thread_map(record, missing.keys(), missing.values(), max_workers=options.jobs, desc="records")
    paths = sorted(str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py"))
    modules = [p for p in paths if p.startswith(options.files or SCOPE)]
    trees = {m: ast.parse((PACKAGE / m).read_bytes()) for m in modules}
    every = [(m, n) for m in modules for n, _ in enumerate(changes(trees[m]))]
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    tool = Path(__file__)  # which numbers the mutants
    holds = (shared + digest([tool]), shared + digest([tool, *tests]))  # if noticed, and if not
    kept = [v for v in map(loads, VERDICTS.read_text().splitlines()) if v["holds"] in holds]
    known = {tuple(v["mutant"]): v for v in kept}
    left = [m for m in drawn if m not in known]
    work = partial(judge, records.values(), holds)
    found = thread_map(work, left, max_workers=options.jobs, desc="mutants")
    known |= zip(left, found, strict=True)
    for v in (verdicts := [known[m] for m in drawn]):
        file, before, after = change = (v["mutant"][0], *v["change"])
        if v["status"] not in NOTICED:
            v["status"] = "equivalent" if change in EQUIVALENT else v["status"]
            print(f"{file}:{v['line']}: {v['status']}\n  - {before}\n  + {after}")
    counts = Counter(v["status"] for v in verdicts)
    shown = rich.table.Table(*counts)
    shown.add_row(*map(str, counts.values()))
    rich.print(shown)
    Path(options.json).write_text(dumps(verdicts, indent=1))
    others, noticed = len(verdicts) - counts["equivalent"], sum(counts[s] for s in NOTICED)
    return int(noticed < 0.9 * others or counts["equivalent"] > 0.1 * len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
