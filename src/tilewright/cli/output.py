"""Where results go: stdout, whatever that is. What its encoding has no character for is written as
JSON writes it, \\uXXXX; that nothing can be written is an error as any other."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import sys
from pathlib import Path
from typing import NoReturn, TextIO

from tilewright.base.errors import InputError
from tilewright.cli.layout import make_console, wrap
from tilewright.runtime.atomic import is_same_file

BROKEN = 2  # exit code: an error
ESCAPE = "tilewright.escape"  # how characters are written that the encoding does not have

_OF_WRITING = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)
)


def prepare_output() -> None:
    """Before anything is printed. Who closed stdout gets an error if there are results; who closed
    stderr wants to hear nothing."""
    codecs.register_error(ESCAPE, _escape)
    if sys.stdout is None:
        sys.stdout = open(os.devnull)  # noqa: SIM115 (for the process; it takes nothing)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPE)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def file_for(model: Path, suffix: str, output: Path | None, what: str) -> Path:
    """Where the file that is made of a model goes: what `-o` says, where - is stdout, or beside the
    model, with another suffix. InputError for a terminal, and for the model itself."""
    if output is None and not model.name:
        raise InputError(f"{str(model)!r} is no file of a model")
    path = model.with_suffix(suffix) if output is None else output
    path = Path("/dev/stdout") if str(path) == "-" else path
    if is_same_file(path, sys.stdout) and sys.stdout.isatty():
        raise InputError(
            f"{what} is not for a terminal to show", hint=f"give a file: -o model{suffix}"
        )
    if model.exists() and path.exists() and path.samefile(model):
        raise InputError(
            f"{what} would take the place of {model}", hint=f"another file: -o model{suffix}"
        )
    return path


def put(what: object, *, beside: Path | None = None) -> None:
    """To stdout: a table, or text as it is; to stderr if a file, `beside`, went to stdout."""
    if not isinstance(what, str):
        console = make_console()
        with console.capture() as captured:
            console.print(what)
        what = "\n".join(line.rstrip() for line in captured.get().splitlines())
    aside = beside is not None and is_same_file(beside, sys.stdout)
    (sys.stderr if aside else sys.stdout).write(what + "\n")


def say(text: str, *, beside: Path | None = None) -> None:
    """Sentences, to stdout (or as `put`): as wide as a terminal is."""
    put(wrap(text, make_console().width), beside=beside)


def fail(text: str) -> NoReturn:
    """Ends the command with an error on stderr."""
    try:
        make_console(stderr=True).print(f"error: {text}", soft_wrap=True)
    except OSError as error:
        explain_output_error(error)  # but nobody hears it
    raise SystemExit(BROKEN) from None


def explain_output_error(error: OSError) -> str | None:
    """What to say if an error is about writing to stdout; None if it is not: such errors name no
    file. Where nobody is left to read there is nothing to say: "". What still waits to be written
    is dropped, since Python would try again at the end of the process."""
    closed = isinstance(error, io.UnsupportedOperation)
    if not closed and (error.filename is not None or error.errno not in _OF_WRITING):
        return None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _drop(stream)
    if isinstance(error, BrokenPipeError):
        return ""
    return f"cannot write to stdout: {'it is closed' if closed else error.strerror}"


def _drop(stream: TextIO) -> None:
    with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
