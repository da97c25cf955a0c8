"""Commands about no model: what is kept, the operators, the targets, and chips of one's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from tilewright.base.errors import ModelError, TargetError, did_you_mean
from tilewright.check.conformance import check_conformance
from tilewright.check.lint import is_sound, lint
from tilewright.check.manual import manual
from tilewright.check.problem import Severity
from tilewright.check.skeleton import write_skeleton
from tilewright.cli import show
from tilewright.cli import target as chips
from tilewright.cli.cache import cache_lines, cache_state
from tilewright.cli.find_target import find_description
from tilewright.cli.layout import make_console, wrap
from tilewright.cli.output import put, say
from tilewright.cli.progress import Progress
from tilewright.cli.session import onnx_operators
from tilewright.ops.table import OPS
from tilewright.targets.chips import CHIPS
from tilewright.targets.names import PROCESSORS, find_target

FAILED = 1  # exit code: a check that fails
DESCRIPTION = "a target, or a file with a description, which is run as any file of yours"
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print results and errors only")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, max=1024, envvar="TILEWRIGHT_THREADS", help="by default, all CPUs"
    ),
]

app = typer.Typer()


@app.command(epilog="Example: tilewright cache --keep 500M")
def cache(
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="SIZE", help="remove what was not used for longest: 500M"),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="remove everything")] = False,
    json: Json = False,
) -> None:
    """Show what was compiled before and is kept, or remove some of it.

    Models and kernels are kept in the folder that TILEWRIGHT_CACHE names (off: none), as many as
    TILEWRIGHT_CACHE_SIZE has room for."""
    found = cache_state("0" if clear else keep)
    if json:
        put(show.to_json(found))
    else:
        for line in cache_lines(found):
            say(line)


@app.command(epilog="Example: tilewright ops conv")
def ops(
    name: Annotated[str | None, typer.Argument(help="one operator, with its attributes")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="list ONNX's operators instead")] = False,
    json: Json = False,
) -> None:
    """List the compiler's operators, describe one, or list what is read of ONNX."""
    if onnx:
        names = onnx_operators()
        put(show.to_json(names) if json else "\n".join(show.onnx_lines(names)))
        return
    if name is not None and name not in OPS:
        hint = did_you_mean(name, sorted(OPS))
        raise ModelError(f"there is no operator called {name!r}", hint=hint)
    found = [OPS[name]] if name is not None else [OPS[n] for n in sorted(OPS)]
    if json:
        rows = [show.op_json(op) for op in found]
        put(show.to_json(rows[0] if name is not None else rows))
    elif name is not None:
        for part in show.op_tables(found[0]):
            put(part)
    else:
        put(show.ops_table(found))


@app.command(epilog="Example: tilewright targets tiny")
def targets(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE.py[:FUNCTION]]", help=DESCRIPTION)
    ] = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """List the targets there are, or print the manual of one.

    The manual follows from the description: memories, queues, instructions with their meaning,
    limits, time and bits."""
    if name is not None:
        target = find_description(name, threads)
        if json:
            put(show.to_json(manual(target)))
            return
        for part in chips.manual_parts(target):
            put(part)
        return
    found = {n: find_target(n, threads) for n in PROCESSORS}
    described = {n: make() for n, make in CHIPS.items()}
    if json:
        rows = {**found, **described}.items()
        put(show.to_json([chips.listed_json(n, t) for n, t in rows]))
    else:
        width = make_console().width
        for part in (show.targets_table(found, width), "", chips.chips_table(described, width)):
            put(part)


@app.command(name="check-target", epilog="Example: tilewright check-target tiny")
def check_target(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE.py[:FUNCTION]", help=DESCRIPTION)],
    seed: Annotated[int, typer.Option("--seed", min=0, help="of what is tried")] = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Lint the description of a chip, and try it: its instructions on its own simulator against
    the interpreter of their meaning, hazards between its queues, its encoding both ways."""
    target = find_description(name, None)
    if target.native is not None:
        raise TargetError(f"{name} is a processor", hint="check-target is for chips with queues")
    problems = lint(target)
    report = None
    if is_sound(target):
        progress, tried = Progress(quiet or json), itertools.count()
        total = len(target.instructions) + 1

        def on_trial(what: str) -> None:
            progress.count(f"tried, now {what}", next(tried), total)

        with progress.working("trying"):
            report = check_conformance(target, seed=seed, listener=on_trial)
    errors = any(p.severity is Severity.ERROR for p in problems)
    passes = report is not None and report.conforms and not errors
    if json:
        found = {"target": target.name, "passes": passes}
        found |= {"problems": [chips.problem_json(p) for p in problems]}
        put(show.to_json(found | {"report": report and chips.report_json(report)}))
    else:
        for part in chips.check_parts(problems, report):
            put(wrap(part, make_console().width) if isinstance(part, str) else part)
    if not passes:
        raise typer.Exit(FAILED)


@app.command(name="new-target", epilog="Example: tilewright new-target mychip")
def new_target(
    name: Annotated[str, typer.Argument(help="of the chip; a Python name")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write NAME.py: the description of a small chip that works, with a word on every part."""
    path = write_skeleton(name, Path())
    if json:
        put(show.to_json({"file": str(path)}))
    elif not quiet:
        put(f"wrote {path}; next: tilewright check-target {path}")
