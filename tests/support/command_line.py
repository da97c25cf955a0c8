"""The command line in this process: running a command, and reading how it failed."""

import sys

import pytest

from tilewright.cli import main as cli


@pytest.fixture(name="tilewright")
def run_commands(capsys, monkeypatch):
    """Runs a command in this process: exit code, stdout, stderr."""

    def run(*arguments, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["tilewright", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return run


def failure(result):
    """The words of an error, which is all that a failed command prints."""
    code, out, err = result
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    return "".join(s for s in err.splitlines(keepends=True) if not s.startswith("target: "))
