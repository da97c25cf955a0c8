"""What `make mutants` changes, which tests a mutant meets, and a verdict."""

from __future__ import annotations

import ast
from pathlib import Path

import mutants
import pytest

CHANGES = [
    ("a < b <= c", ["pass", "a <= b <= c", "a < b < c"]),
    ("a not in b", ["pass", "a in b"]),
    ("a * b", ["pass", "a // b"]),
    ("a += 1", ["pass", "a -= 1", "a += 2"]),
    (
        "a(0, True, 'f32', 'two words')",
        [
            "pass",
            "a(1, True, 'f32', 'two words')",
            "a(0, False, 'f32', 'two words')",
            "a(0, True, 'f32_', 'two words')",
        ],
    ),
    ("a(b, c=d, strict=True)", ["pass", "a(b, strict=True)"]),
    ("a and b", ["pass", "a or b"]),
    ("a if b else c", ["pass", "a if True else c", "a if False else c", "a if not b else c"]),
    (
        "a = [b for b in c if d]",
        [
            "a = [b for b in c if True]",
            "a = [b for b in c if False]",
            "a = [b for b in c if not d]",
        ],
    ),
    ("while a: b", ["while True:", "while False:", "while not a:", "pass"]),
    ("for a in b: continue", ["pass"]),
    ("for a in b: break", ["pass"]),
    ("raise a('n + 1')", ["pass"]),
    ("a[b] = c.d = e", ["pass"]),
    ("a = b", []),
    ("return a", ["return None"]),
    ("return [a, *b]", ["return []"]),
]
LEFT_ALONE = '''
"""Says 1."""
@cached(size=3)
class C(Base[4]):
    """Says 2."""
    n: "Kind"
def f(a: list["Kind"]) -> dict["C", "d"]:
    """Says 3."""
    assert isinstance(a, list) and len(a) > 3, f"{a + 1}"
    for c, d in zip(a, a, strict=True):
        return None
'''


def every(path: Path, text: str) -> list[tuple]:
    path.write_text(text)
    found = enumerate(mutants.changes(ast.parse(text)))
    return [mutants.mutant(path, number) for number, _ in found]


@pytest.mark.parametrize("line,wanted", CHANGES)
def test_change(line: str, wanted: list[str], tmp_path: Path):
    found = every(tmp_path / "m.py", f"def f():\n    {line}\n")
    assert [after for (_, after), _, _ in found] == wanted


def test_left_alone(tmp_path: Path):
    assert every(tmp_path / "m.py", LEFT_ALONE) == []


def test_a_module_is_changed_in_one_line(tmp_path: Path):
    text = "def f(a, b):\n    if a < b:\n        return a + 1\n    return [b, a]"
    was = text.splitlines()
    for _, lines, new in every(tmp_path / "m.py", text):
        changed = [
            n for n, (a, b) in enumerate(zip(was, new.splitlines(), strict=True), 1) if a != b
        ]
        assert changed == list(lines[0])


def test_a_mutant_meets_tests_that_run_its_line_the_fastest_first(tmp_path: Path):
    ran = {"slow": [2, 3], "fast": [3], "other": [2], "fails": [3], "": [1]}
    data = mutants.CoverageData(str(tmp_path / "record"))
    for test, lines in ran.items():
        data.set_context(test)
        data.add_lines({"m.py": lines})
    data.write()
    rows = [("slow", 2, "passed"), ("fast", 1, "passed"), ("other", 3, "passed")]
    rows += [("fails", 0, "failed"), ("endless", mutants.SECONDS, "passed")]
    names = ("nodeid", "duration", "outcome")
    reports = [dict(zip(names, row, strict=True)) | {"when": "call"} for row in rows]
    (tmp_path / "record.log").write_text("\n".join(map(mutants.dumps, reports)))

    def tests(*lines: list[int]) -> list[str]:
        return [name for _, name in mutants.tests_of("m.py", lines, [tmp_path / "record"])]

    assert tests([3], [2]) == ["fast", "slow"]
    assert tests([9], [2]) == [
        "slow",
        "other",
    ]  # of the statement, where the line itself is not run
    assert tests([1], [1]) == ["fast", "slow", "other"]  # on import
    assert tests([9], [9]) == []


def test_a_mutant_that_cannot_be_imported_is_noticed(tmp_path: Path, monkeypatch):
    test = "tests/analyze/test_linear.py"
    monkeypatch.setattr(mutants, "VERDICTS", tmp_path / "verdicts.jsonl")
    monkeypatch.setattr(mutants, "mutant", lambda *_: (["a", "b"], [[7], [7]], "1 / 0\n"))
    monkeypatch.setattr(mutants, "tests_of", lambda *_: [(0.1, test)])
    verdict = mutants.judge([], ("noticed", "not noticed"), ("analyze/linear.py", 3))
    assert verdict["status"] == "killed"
    kept = mutants.loads((tmp_path / "verdicts.jsonl").read_text())
    assert (kept["mutant"], kept["line"], kept["holds"]) == (["analyze/linear.py", 3], 7, "noticed")
