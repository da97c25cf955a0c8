"""What `make mutants` changes, and that a change reaches the functions that others hold."""

from __future__ import annotations

import ast
import itertools
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import mutants_record
import mutants_sites
import mutants_worker

CHANGES = [
    ("compare", "a < b <= c", ["a <= b <= c"]),
    ("compare", "a not in b", ["a in b"]),
    ("calculate", "a * b", ["a // b"]),
    ("calculate", "a + [b]", ["a"]),
    ("calculate", "a += 1", ["a -= 1"]),
    ("calculate", "a += [b]", ["pass"]),
    ("calculate", "'%d' % a", []),
    ("constant", "a(0, True, 'f32', 'two words')", ["1", "False", "'f32_'"]),
    ("constant", "f'{a:>4} b'", []),
    ("boolean", "a and not b", ["a or not b", "b"]),
    ("always", "a = [b for b in c if d]", ["True"]),
    ("never", "while a: b", ["False"]),
    ("remove", "a(b)", ["pass"]),
    ("remove", "a[b] = c", ["pass"]),
    ("remove", "a = b", []),
    ("remove", "a = a | b", ["pass"]),
    ("remove", "for a in b: continue", ["break"]),
    ("remove", "raise a('n + 1')", ["pass"]),
    ("swap", "a(b, c, d)", ["a(c, b, d)"]),
    ("swap", "a(b, b), a(*b, c), min(b, c)", []),
    ("nothing", "return a", ["return None"]),
    ("nothing", "return [a for a in b]", ["return []"]),
    ("nothing", "return None", []),
    ("shift", "range(a), range(a, b)", ["range(a - 1)", "range(a, b - 1)"]),
    ("shift", "a[b:], a[:b]", ["b + 1:", ":b - 1"]),
    ("drop", "a = [b, c, d]", ["[c, d]"]),
    ("drop", "a = {1: b, 2: c}", ["{2: c}"]),
    ("drop", "a, b = b, a", []),
]
LEFT_ALONE = '''
"""Says 1."""
from typing import TYPE_CHECKING
Kind = A | B
Table = dict[str, A]
if TYPE_CHECKING:
    from c import d
@cached(size=3)
class C(Base[4]):
    """Says 2."""
    n: "Kind"
    def __repr__(self) -> str:
        return "C" + str(self.n + 1)
def f(a: list["Kind"]) -> dict["C", "d"]:
    """Says 3."""
    assert isinstance(a, list) and len(a) > 3
    b = cast("C", a)
    for c, d in zip(a, a, strict=True):
        pass
'''


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a module where the package's are; its mutants."""
    monkeypatch.setattr(mutants_sites, "PACKAGE", tmp_path)
    monkeypatch.setattr(mutants_worker, "PACKAGE", tmp_path)
    mutants_sites.source_of.cache_clear()

    def put(text: str) -> list[mutants_sites.Mutant]:
        (tmp_path / "m.py").write_text(textwrap.dedent(text))
        return mutants_sites.mutants("m.py")

    yield put
    mutants_sites.source_of.cache_clear()


@pytest.mark.parametrize("operator,line,wanted", CHANGES)
def test_operator(operator: str, line: str, wanted: list[str], source):
    found = source(f"def f():\n    {line}\n")
    assert [m.mutated for m in found if m.operator == operator] == wanted


def test_left_alone(source):
    kept = [(m.original, m.mutated) for m in source(LEFT_ALONE)]
    assert kept == []


def test_the_module_is_changed_in_one_place(source):
    text = """
    def f(a, b):
        if a < b and a < b:
            return a + 1
        return b
    """
    was = ast.unparse(ast.parse(textwrap.dedent(text))).split("\n")
    for m in source(text):
        now = ast.unparse(mutants_sites.mutated_tree(m)).split("\n")
        assert sum(a != b for a, b in itertools.zip_longest(was, now)) == 1, m


def test_equal_mutants_of_a_function_are_told_apart(source):
    found = source("def f(a):\n    return g(a < 1, a < 1)\n")
    keys = [m.key for m in found]
    assert len(set(keys)) == len(keys)
    assert ("m.py", "f", "a < 1", "a <= 1", "1") in keys


def test_what_runs_on_import(source):
    found = source("N = 1 + 2\ndef f(a=3):\n    return a + 4\n")
    assert {m.original for m in found if m.imported} == {"1", "2", "1 + 2", "3"}


def test_functions_that_others_hold_are_taken_over(source, tmp_path: Path):
    text = "def f(a):\n    return a + 1\ndef g(b):\n    return lambda: b * 2\n"
    found = {m.mutated: m for m in source(text)}
    space: dict = {}
    exec(compile(text, str(tmp_path / "m.py"), "exec"), space)
    held, made = space["f"], space["g"](5)
    assert mutants_worker.take_over(found["a - 1"])
    assert (held(3), made()) == (2, 10)
    assert mutants_worker.take_over(found["b // 2"])
    assert (held(3), made()) == (4, 2)


def test_keys_of_the_compiler_are_distinct():
    found = mutants_sites.mutants("schedule/cost.py")
    assert len({m.key for m in found}) == len(found) > 100


def test_a_record_depends_on_what_a_test_imports():
    here = Path(__file__)
    assert mutants_record.imported(here) >= {Path(mutants_worker.__file__)}
    assert mutants_record.digest(here) != mutants_record.digest(None)
