"""What `--report` and `--trace` write: a page and a trace of the calls that a command times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.base.errors import InputError
from tilewright.cli.progress import Progress
from tilewright.report.limits import Limits, measure_limits
from tilewright.report.page import write_report
from tilewright.runtime.atomic import check_place
from tilewright.runtime.module import Module
from tilewright.runtime.profile import Profile
from tilewright.runtime.system import format_bytes

CALLS = 10  # that `run` times

ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="write a page that shows what runs where and when, and how near that is to the best",
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE.json",
        help="write a trace for ui.perfetto.dev: steps as timed, and chips' queues",
    ),
]


@dataclass(frozen=True)
class Files:
    """Where a page and a trace go, if they are wanted. Places where nothing can be written are
    refused at once, before a model is compiled."""

    report: Path | None
    trace: Path | None = None

    def __post_init__(self) -> None:
        for path in (self.report, self.trace):
            if path is not None:
                check_place(path)
        if self.report is not None and self.report == self.trace:
            raise InputError(f"--report and --trace are both to be {self.report}")

    @property
    def wanted(self) -> bool:
        return self.report is not None or self.trace is not None


def file_json(path: Path | None) -> str | None:
    return None if path is None else str(path)


def limits_of(module: Module) -> Limits:
    """What this machine can do at best, with the instructions that a module uses."""
    used = (s.instruction for s in module.program.steps if s.instruction is not None)
    return measure_limits(module.threads, used)


def write_files(files: Files, profile: Profile, limits: Limits | None, say: Progress) -> None:
    """Writes the page and the trace of a profile, and says where they are."""
    if files.report is not None:
        size = write_report(profile, files.report, limits)
        say.say(f"wrote {files.report}: {format_bytes(size)}, for a browser")
    if files.trace is not None:
        profile.save(files.trace)
        say.say(f"wrote {files.trace}: for https://ui.perfetto.dev")


def time_and_write(files: Files, module: Module, arrays: dict[str, Any], session: Progress) -> None:
    """Times some calls, and writes what is wanted of them."""
    given = [arrays[t.name] for t in module.inputs]

    def watch(done: int, total: int) -> None:
        session.count("calls", done, total)

    with session.working("timing"):
        profile = module.profile(*given, repeat=CALLS, watch=watch)
    limits = None
    if files.report is not None:
        with session.working("measuring what this machine can do"):
            limits = limits_of(module)
    write_files(files, profile, limits, session)
