"""Where results go that cannot be written, or not in that encoding: exit codes, and whole texts."""

import json
import os
import subprocess
import sys

import pytest

from tilewright.cli.output import explain_output_error
from tilewright.ops.table import OPS

COMMAND = [sys.executable, "-m", "tilewright"]


def run(*arguments, closed=None, environment=None, **streams):
    """A command as a process of its own; `closed` is a stream that it does not have."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    command = [*COMMAND, *arguments]
    if closed is not None:
        command = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command]
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LC_", "LANG"))}
    plain |= {"PYTHONUTF8": "1"} | (environment or {})
    return subprocess.run(command, env=plain, check=False, **settings)


@pytest.mark.parametrize("arguments, unbuffered", [(("ops", "neg"), ""), (("--help",), "1")])
def test_a_full_disk(arguments, unbuffered):
    with open("/dev/full", "w") as full:
        done = run(*arguments, stdout=full, environment={"PYTHONUNBUFFERED": unbuffered})
    assert done.stderr.decode() == "error: cannot write to stdout: No space left on device\n"
    assert done.returncode == 2


def test_stdout_that_is_closed():
    done = run("ops", "neg", closed=1)
    assert done.stderr.decode() == "error: cannot write to stdout: it is closed\n"
    assert done.returncode == 2


def test_stderr_that_is_closed_or_full():
    """Errors are not heard, but they count."""
    assert run("ops", "cnov", closed=2).returncode == 2
    with open("/dev/full", "w") as full:
        assert run("ops", "cnov", stderr=full).returncode == 2


def test_nobody_reads_what_is_little():
    """It is written only when the command is over."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = run("--version", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_characters_that_the_encoding_does_not_have():
    done = run("targets", "tiny", environment={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert "dram        \\u2013 " in done.stdout.decode("ascii")


def test_json_in_any_encoding():
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("ops", "--json", environment=plain)
    assert (done.returncode, done.stderr) == (0, b"")
    found = {op["name"]: op["doc"] for op in json.loads(done.stdout.decode("ascii"))}
    assert found == {op.name: op.doc for op in OPS.values()}
    assert not "".join(found.values()).isascii()


def test_help_in_few_characters():
    done = run("--help", environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_errors_that_are_about_something_else():
    for error in (FileNotFoundError(2, "No such file", "x"), OSError(28, "full", "x")):
        assert explain_output_error(error) is None
    assert explain_output_error(OSError(12, "Cannot allocate memory")) is None
