"""docs/cli.md against the command line: its examples run, and its JSON keys are all there are."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import schemas
import typer

from tilewright.cli import main as cli
from tilewright.targets.chips import CHIPS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
DIGITS = "examples/digits/digits.onnx"
SAMPLES = "examples/digits/calibration.npz"
COMMANDS = ("run", "compile", "bench", "explain", "dump", "quantize", "cache", "ops", "targets")
COMMANDS += ("check-target", "new-target")
FREE = (
    "programs.",
    "memories.",
    "instructions[].cost.",
    "tile.",
    "parts.",
    "queues[].waits.",
)  # names of the model's or the target's


@pytest.fixture
def tilewright(capsys, monkeypatch, tmp_path):
    """Runs a command where the examples are, and nothing else."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "spare.py").write_text(SPARE)
    (tmp_path / "product.py").write_text(PRODUCT)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tilewright", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def examples_in_help(text):
    plain = [line.strip() for line in text.splitlines() if line.strip()[:1] not in ("│", "╭", "╰")]
    return re.findall(r"Example: tilewright (.*?)\s*$", " ".join(plain))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_each_help_works(tilewright, command):
    (example,) = examples_in_help(tilewright(command, "--help")[1])
    assert example.split()[0] == command
    code, out, err = tilewright(*shlex.split(example))
    assert code == 0
    assert out
    assert "Traceback" not in err


def test_the_examples_of_the_page_work(tilewright):
    block = PAGE.split("```")[1]
    found = [line.split()[1:] for line in block.strip().splitlines()]
    assert [arguments[0] for arguments in found] == list(COMMANDS)
    for arguments in found:
        assert tilewright(*arguments)[0] == 0


def options(command):
    """All options of a command, and of those under it."""
    named = (name for parameter in command.params for name in parameter.opts)
    found = {name for name in named if name.startswith("--")}
    return found.union(*(options(c) for c in getattr(command, "commands", {}).values()))


PAGES = ("cli.md", "pytorch.md", "unsupported.md", "new-chip.md", "quantize.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_options_that_pages_name_are_there(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = {
        option
        for line in text.splitlines()
        if "tf2onnx" not in line
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)
    }
    assert named - {"--help"} <= options(typer.main.get_command(cli.app))


def test_every_option_is_in_the_help_of_its_command(tilewright):
    for name, command in typer.main.get_command(cli.app).commands.items():
        shown = tilewright(name, "--help")[1]
        assert command.help.split(".")[0].split()[0] in shown
        for option in options(command):
            assert option in shown, (name, option)


def test_a_model_is_no_command(tilewright):
    code, out, err = tilewright("model.onnx")
    assert (code, out) == (2, "")
    words = " ".join(err.replace("│", " ").split())
    assert "model.onnx is no command. Run the model with: tilewright run model.onnx" in words


# ---------------------------------------------------------------- keys


def documented(command):
    """The keys in the section's table."""
    section = re.search(rf"\n### {command}\n(.*?)(?=\n##|\Z)", PAGE, re.S).group(1)
    rows = re.findall(r"^\| (`.*?) \|", section, re.M)
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


def keys(value, path=""):
    """The paths to all values that are no containers, or empty ones; of a list of several, empty
    lists say nothing of what others have there."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            free = path in FREE
            yield from keys(inner, f"{path}*" if free else f"{path}{name}" + "." * is_table(inner))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        filled = {name for inner in value for name, v in inner.items() if v != []}
        for inner in value:
            kept = {name: v for name, v in inner.items() if v != [] or name not in filled}
            yield from keys(kept, f"{path}[]." if path else "")
    else:
        yield path.rstrip(".")


def is_table(value):
    return isinstance(value, dict) and bool(value)


ARGUMENTS = {
    "run": ["run", DIGITS, "--check", "--json"],
    "compile": ["compile", DIGITS, "--json"],
    "bench": ["bench", DIGITS, "--seconds", "0", "--json"],
    "explain": ["explain", DIGITS, "--repeat", "2", "--json"],
    "explain KERNEL": ["explain", "product.py", "--target", "spare.py:cramped", "--json"],
    "dump": ["dump", DIGITS, "--stage", "tensor", "--json"],
    "quantize": ["quantize", DIGITS, "--calibrate", SAMPLES, "--keep-float", "value1", "--json"],
    "cache": ["cache", "--json"],
    "ops": ["ops", "conv", "--json"],
    "targets": ["targets", "--json"],
    "targets NAME": ["targets", "vta", "--json"],
    "check-target": ["check-target", "spare.py", "--json"],
    "new-target": ["new-target", "other", "--json"],
}
SPARE = """
import dataclasses
from tilewright.target.target import Queue
from tilewright.targets import tiny

def spare():
    target = tiny.tiny()
    return dataclasses.replace(target, queues=(*target.queues, Queue("spare", 4)))

def cramped():
    return tiny.tiny(spad=4 << 10)
"""
PRODUCT = """
from tilewright import cast, grid, i8, i32, kernel, reduce

@kernel
def product(A: i8[256, 256], B: i8[256, 256], C: i32[256, 256]):
    for i, j in grid(256, 256):
        C[i, j] = 0
        for k in reduce(256):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
"""


def schema_of(command):
    """ "explain KERNEL": explain-kernel."""
    return command.lower().replace(" ", "-")


@pytest.mark.parametrize("command", ARGUMENTS)
def test_the_keys_of_schemas_are_documented(command):
    wanted = documented(command)
    found = set(schemas.keys(schemas.read_schema(schema_of(command))))
    found = {k.removesuffix(".*") if k.removesuffix(".*") in wanted else k for k in found}
    assert found == {k for k in wanted if not any(other.startswith(f"{k}.") for other in wanted)}


def test_there_is_a_schema_for_each_and_no_other():
    found = {path.stem for path in schemas.FOLDER.glob("*.json")}
    assert found == {*map(schema_of, ARGUMENTS), "ops-onnx"}


@pytest.mark.parametrize("name", [*CHIPS, "host"])
def test_every_manual_has_that_schema(tilewright, name):
    schemas.validate("targets-name", json.loads(tilewright("targets", name, "--json")[1]))


def test_a_schema_that_does_not_fit_is_noticed():
    with pytest.raises(AssertionError) as caught:
        schemas.validate("new-target", {"files": 1})
    assert "'file' is a required property" in str(caught.value)
    assert "Additional properties are not allowed ('files' was unexpected)" in str(caught.value)


@pytest.mark.parametrize("command", ARGUMENTS)
def test_the_keys_of_json_are_documented(tilewright, command):
    code, out, err = tilewright(*ARGUMENTS[command])
    assert (code, err) == (0, "")
    wanted = documented(command)
    inner = {k for k in wanted if k.startswith(("check.first_difference.", "steps[].pieces[]."))}
    if command == "dump":  # of a stream
        inner = {"folder", "bytes", "submits", "instructions"}
    empty = {"steps[].pieces"} if command == "explain" else set()  # no device has pieces here
    assert set(keys(json.loads(out))) == wanted - inner | empty
    schemas.validate(schema_of(command), json.loads(out))


def test_a_list_of_operators_has_the_same_keys(tilewright):
    assert set(keys(json.loads(tilewright("ops", "--json")[1]))) >= documented("ops")
    found = json.loads(tilewright("ops", "--onnx", "--json")[1])
    assert {"Conv", "LSTM"} <= set(found["ai.onnx"])
    schemas.validate("ops-onnx", found)
    schemas.validate("ops", json.loads(tilewright("ops", "--json")[1]))
    lines = tilewright("ops", "--onnx")[1].splitlines()
    assert "ai.onnx.Conv" in lines


def test_the_module_is_the_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tilewright", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert re.fullmatch(r"tilewright \d+\.\d+\.\d+\n", capsys.readouterr().out)
