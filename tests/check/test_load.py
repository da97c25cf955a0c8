"""Descriptions in files: which function is meant, and what can be wrong with a file."""

import sys
from pathlib import Path

import pytest

from tilewright.base.errors import TargetError, TilewrightError
from tilewright.check.load import is_file, load_target

ONE = """
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Target

def {name}({parameters}){result}:
    return TargetBuilder("{name}", clock=1e9).build()
"""


def written(folder: Path, text: str, name: str = "chip.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def one(name: str, parameters: str = "", result: str = "") -> str:
    return ONE.format(name=name, parameters=parameters, result=result)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_names_of_files():
    assert [is_file(n) for n in ("a.py", "a/b.py:f", "a.py:")] == [True] * 3
    assert [is_file(n) for n in ("tiny", "a.pyc", "a.py:f:g", "a.txt")] == [False] * 4


@pytest.mark.parametrize(
    "text, function, wanted",
    [
        (one("any"), "", "any"),
        (one("chip") + one("other"), "", "chip"),
        (one("other") + one("chip"), ":other", "other"),
        (one("helper") + one("made", result=" -> Target"), "", "made"),
        (one("helper") + one("made", result=' -> "Target"'), "", "made"),
        (one("_helper") + one("made", "mesh=16, *more, **others"), "", "made"),
    ],
)
def test_the_function_that_is_meant(tmp_path, text: str, function: str, wanted: str):
    written(tmp_path, text)
    assert load_target(f"chip.py{function}").name == wanted


def test_what_is_beside_it_can_be_imported(tmp_path):
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", "NAME = 'beside'", "parts_of_it.py")
    text = "import parts_of_it\n" + one("chip").replace('"chip"', "parts_of_it.NAME")
    path = list(sys.path)
    assert load_target(written(tmp_path / "sub", text)).name == "beside"
    assert sys.path == path


def test_a_file_that_changes(tmp_path):
    """The text of the second version is read, not what Python remembers of the first."""
    first = """
from tilewright import i8, grid
from tilewright.ir.python.words import out
from tilewright.target.describe import TargetBuilder, cost

def chip():
    t = TargetBuilder("chip", clock=1e9)
    t.queues("q", depth=4)
    @t.instruction("q")
    def move(a: i8[4] @ "dram", c: out(i8[4] @ "dram")):
        for i in grid(4):
            c[i] = a[i]
        cost(busy=1)
    return t.build()
"""
    written(tmp_path, first)
    assert str(load_target("chip.py").instructions[0].cost.busy) == "1"
    written(tmp_path, first.replace("busy=1", "busy=23"))
    assert str(load_target("chip.py").instructions[0].cost.busy) == "23"


LIST = one("a") + one("b")
WRONG = [
    ("", "", ("chip.py has no function\n  hint: a description is a function that returns a Target; "
     "tilewright new-target NAME writes one")),
    (LIST, "", "chip.py has 2 functions, and none is called chip\n  hint: say which: chip.py:a"),
    (LIST, ":aa", "chip.py has no function called 'aa'\n  hint: did you mean 'a'?"),
    (one("chip", "mesh, size, other=3"), "", ("chip.py:chip cannot be called without mesh, size\n"
     "  hint: give its parameters defaults, or add a function without any that calls it")),
    ("def chip():\n    return 3", "", ("chip.py:chip returned a value of type int, not a Target\n"
     "  hint: end it with: return t.build()")),
    ("x = 1\nif x:\n  y =", "", "chip.py:3: invalid syntax\n  in: y ="),
    ("import no_such_module", "", ("chip.py:1: ModuleNotFoundError: No module named "
     "'no_such_module'\n  in: import no_such_module")),
    ("def chip():\n    return helper()\n\ndef helper():\n    return 1 // 0", ":chip",
     "chip.py:5: ZeroDivisionError: integer division or modulo by zero\n  in: return 1 // 0"),
    ("import json\ndef chip():\n    json.loads('{')", "", ("chip.py:3: JSONDecodeError: Expecting "
     "property name enclosed in double quotes: line 1 column 2 (char 1)\n  in: json.loads('{')")),
    ("raise SystemExit(3)", "", "chip.py:1: SystemExit: 3\n  in: raise SystemExit(3)"),
]  # fmt: skip


@pytest.mark.parametrize("text, function, error", WRONG)
def test_what_can_be_wrong(tmp_path, text: str, function: str, error: str):
    written(tmp_path, text)
    with pytest.raises(TargetError) as refused:
        load_target(f"chip.py{function}")
    assert str(refused.value) == error


def test_our_own_errors_name_the_line(tmp_path):
    text = """
from tilewright.target.describe import TargetBuilder
from tilewright.target.encoding import bits, constant

def code(opcode):
    return bits(8, constant(opcode, 1))

def chip():
    return code(3)
"""
    written(tmp_path, text)
    with pytest.raises(TilewrightError) as refused:
        load_target("chip.py:chip")
    assert str(refused.value) == (
        "constant(3, 1): 1 bits hold 0 … 1\n"
        "  while running chip.py:6: return bits(8, constant(opcode, 1))\n"
        "  hint: give it 2 bits"
    )


def test_files_that_cannot_be_read(tmp_path):
    for name, error in (
        ("none.py", "cannot read none.py: No such file or directory"),
        ("folder.py", "cannot read folder.py: Is a directory"),
        ("bytes.py", "cannot read bytes.py: it is not UTF-8"),
    ):
        (tmp_path / "folder.py").mkdir(exist_ok=True)
        (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
        with pytest.raises(TargetError) as refused:
            load_target(name)
        assert str(refused.value) == error
    with pytest.raises(TargetError) as refused:
        load_target("chip.txt")
    assert str(refused.value) == (
        "chip.txt is no description\n  hint: name it FILE.py or FILE.py:FUNCTION"
    )
