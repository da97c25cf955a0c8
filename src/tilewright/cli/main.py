"""The command line: `tilewright run`, `compile`, `bench`, `explain`, `dump`, `quantize`, `cache`,
`ops`, `targets`, `check-target`, `new-target`.

Results go to stdout, everything else to stderr. An error of ours is one paragraph there, and exit
code 2; a check that fails is exit code 1; Ctrl-C is 130. Only this module and runtime/cache.py read
the environment. What the commands print as JSON stands in docs/cli.md.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tilewright.base.errors import (
    InputError,
    ModelError,
    TilewrightError,
)
from tilewright.base.passes import PassRun
from tilewright.base.version import VERSION
from tilewright.check.load import is_file
from tilewright.cli import listing, quantize, show
from tilewright.cli.arrays import (
    drawn_inputs,
    make_inputs,
    output_files,
    parse_dims,
    parse_pins,
    parse_values,
    write_outputs,
)
from tilewright.cli.binary import binary_line, dump_binary
from tilewright.cli.check import check as check_results
from tilewright.cli.find_target import find_description
from tilewright.cli.interrupt import interrupts_kept
from tilewright.cli.kernel import explain_kernel
from tilewright.cli.layout import make_console
from tilewright.cli.listing import Json, Threads
from tilewright.cli.measure import costliest, measure, step_rows
from tilewright.cli.output import explain_output_error, fail, file_for, prepare_output, put, say
from tilewright.cli.placement import placement_json, placement_lines, sizes_of
from tilewright.cli.progress import Progress
from tilewright.cli.report import (
    Files,
    ReportFile,
    TraceFile,
    file_json,
    limits_of,
    time_and_write,
    write_files,
)
from tilewright.cli.session import (
    Request,
    module_for,
    open_module,
    save_module,
    stage_texts,
)
from tilewright.compiler import STAGES
from tilewright.options import F32, HALF_EVEN
from tilewright.runtime.module import Module
from tilewright.runtime.system import format_bytes, out_of_memory, require_memory
from tilewright.targets.chips import CHIPS
from tilewright.targets.names import HOST, PROCESSORS

FAILED, INTERRUPTED = 1, 130
COMMAND_BYTES = 24 << 20  # before any model is read


class _Commands(TyperGroup):
    """The commands; a model in the place of one is answered with the command that runs it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and Path(args[0]).suffix in (".onnx", ".tw"):
            ctx.fail(f"{args[0]} is no command. Run the model with: tilewright run {args[0]}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="tilewright",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which joins the lines of a paragraph
)

Model = Annotated[Path, typer.Argument(help="an .onnx model, or a compiled .tw")]
Source = Annotated[Path, typer.Argument(help="an .onnx model")]
TARGETS = f"one of {', '.join((*PROCESSORS, *CHIPS))}, or FILE.py[:FUNCTION]"
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME",
        envvar="TILEWRIGHT_TARGET",
        help=f"{TARGETS}; by default host. Repeated, a chip does what it can, the host the rest",
    ),
]
Rounding = Annotated[
    str,
    typer.Option(
        "--rounding",
        metavar="half_even|half_up",
        help="of halves, where the model is quantised: as ONNX does, or as chips do that shift",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="f32|bf16",
        help="of products by weights; sums stay f32, and what is less exact is faster",
    ),
]
Pins = Annotated[
    list[str] | None,
    typer.Option(
        "--pin", metavar="NODE=TARGET", help="runs a node's kernel on this target; repeatable"
    ),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--only", metavar="TARGET", help="fail unless this target runs every kernel, and say why"
    ),
]
Subgraphs = Annotated[
    bool,
    typer.Option(
        "--subgraphs/--no-subgraphs", help="neighbouring kernels of a chip as one stream, or not"
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=NUMBER", help="fixes a symbolic dimension; repeatable"),
]
Values = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="NAME=FILE.npy", help="fixes what an input holds; repeatable"),
]
Checks = Annotated[
    bool,
    typer.Option("--checks", help="stop at indices out of range and integers divided by zero"),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE.npy|random", help="by default, random; repeatable"),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="of random inputs")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print results and errors only")]


# ---------------------------------------------------------------- commands


def _print_version(wanted: bool) -> None:
    if wanted:
        put(f"tilewright {VERSION}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Compiles deep-learning models, runs them, and explains what they do."""


@app.command(epilog="Example: tilewright run examples/digits/digits.onnx --dim batch=4 --check")
def run(
    model: Model,
    inputs: Inputs = None,
    targets: Targets = None,
    threads: Threads = None,
    dims: Dims = None,
    values: Values = None,
    checks: Checks = False,
    rounding: Rounding = HALF_EVEN,
    precision: Precision = F32,
    pins: Pins = None,
    only: Only = None,
    subgraphs: Subgraphs = True,
    seed: Seed = 0,
    check: Annotated[
        bool, typer.Option("--check", help="compare with ONNX Runtime, or ONNX's reference")
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="FOLDER|NAME=FILE.npy", help="write outputs to files"),
    ] = None,
    report: ReportFile = None,
    trace: TraceFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a model once and show its outputs.

    With --report or --trace it is run some more times, and these are timed."""
    written = Files(report, trace)
    session = _Session(
        model, targets, threads, dims, quiet or json, values, checks, rounding, precision, pins,
        only, subgraphs,
    )  # fmt: skip
    module, arrays = session.open_with(inputs, seed)
    files = output_files(module.output_names, output or [])
    start = time.perf_counter_ns()
    results = module.run({t.name: arrays[t.name] for t in module.inputs})
    spent = time.perf_counter_ns() - start
    checked = None
    if check:
        with session.working("checking"):
            checked = check_results(session.request, arrays, results)
    write_outputs(files, results)
    if written.wanted:
        time_and_write(written, module, arrays, session)
    rows = [show.result_json(t, results[t.name], files.get(t.name)) for t in module.outputs]
    sizes = sizes_of(module, arrays)
    if json:
        found = {"model": str(model), **session.facts(module), "nanoseconds": spent}
        found |= placement_json(module, sizes)
        found |= {"outputs": rows, "report": file_json(report), "trace": file_json(trace)}
        put(show.to_json(found | ({"check": show.report_json(checked)} if checked else {})))
    else:
        put(show.results_table(rows, make_console().width))
        for line in show.report_lines(checked) if checked else []:
            say(line)
        for line in placement_lines(module, sizes, session.request):
            session.say(line)
    if checked is not None and not checked.agrees:
        raise typer.Exit(FAILED)


@app.command(
    name="compile", epilog="Example: tilewright compile examples/digits/digits.onnx -o digits.tw"
)
def compile_(
    model: Source,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="by default, the model's name with .tw; - is stdout"),
    ] = None,
    targets: Targets = None,
    threads: Threads = None,
    dims: Dims = None,
    values: Values = None,
    checks: Checks = False,
    rounding: Rounding = HALF_EVEN,
    precision: Precision = F32,
    pins: Pins = None,
    only: Only = None,
    subgraphs: Subgraphs = True,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compile a model to a file that loads in milliseconds."""
    session = _Session(
        model, targets, threads, dims, quiet or json, values, checks, rounding, precision, pins,
        only, subgraphs,
    )  # fmt: skip
    if session.request.is_compiled:
        raise ModelError(f"{model} is compiled already", hint="give an .onnx model")
    path = file_for(model, ".tw", output, "a compiled model")
    start = time.perf_counter()
    module = session.open()
    seconds = time.perf_counter() - start
    size = save_module(module, path)
    if json:
        found = show.module_json(module) | {"file": str(path), "bytes": size, "seconds": seconds}
        found |= {"from_cache": not session.has_compiled}
        put(show.to_json(found), beside=path)
    elif not quiet:
        how = "compiled" if session.has_compiled else "found in the cache"
        wrote = f"wrote {path}: {format_bytes(size)}, {how} in {seconds:.2f} s"
        say(show.module_line(module), beside=path)
        say(wrote, beside=path)


@app.command(epilog="Example: tilewright bench examples/digits/digits.onnx --threads 1 --seconds 1")
def bench(
    model: Model,
    inputs: Inputs = None,
    targets: Targets = None,
    threads: Threads = None,
    dims: Dims = None,
    values: Values = None,
    checks: Checks = False,
    rounding: Rounding = HALF_EVEN,
    precision: Precision = F32,
    pins: Pins = None,
    only: Only = None,
    subgraphs: Subgraphs = True,
    seed: Seed = 0,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="how long to time")] = 2.0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time a model."""
    session = _Session(
        model, targets, threads, dims, quiet or json, values, checks, rounding, precision, pins,
        only, subgraphs,
    )  # fmt: skip
    module, arrays = session.open_with(inputs, seed)
    with session.working("timing"):
        timing = measure(module, arrays, seconds, session.on_call)
    if json:
        found = {"model": str(model), **session.facts(module), "threads": module.threads}
        put(show.to_json(found | show.timing_json(timing)))
    else:
        say(show.timing_line(timing))


@app.command(epilog="Example: tilewright explain examples/digits/digits.onnx --dim batch=360")
def explain(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|KERNEL.py[:NAME]",
            help="an .onnx model, or a compiled .tw; or a file with a kernel, which is run as any"
            " file of yours",
        ),
    ],
    inputs: Inputs = None,
    targets: Targets = None,
    threads: Threads = None,
    dims: Dims = None,
    values: Values = None,
    checks: Checks = False,
    rounding: Rounding = HALF_EVEN,
    precision: Precision = F32,
    pins: Pins = None,
    only: Only = None,
    subgraphs: Subgraphs = True,
    seed: Seed = 0,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="calls to time")] = 20,
    worst: Annotated[
        int | None, typer.Option("--worst", min=1, help="only so many steps, the costliest first")
    ] = None,
    report: ReportFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show for every step where it runs, what it costs, and how near that is to the best possible.

    A step's bound is the longest of three times: its arithmetic at the peak of the instruction that
    it uses, its bytes from the nearest memory that can hold them all, and a step that does nothing.
    All are measured here. 100% is a step that cannot be faster.

    Of a kernel on a chip (--target NAME or FILE.py[:FUNCTION]): which queue or memory is the
    bottleneck, where the cycles go, what keeps better tiles out, and what would help."""
    written = Files(report)
    if is_file(model):
        if written.wanted:
            raise InputError("--report shows models, and this is a kernel", hint="leave it out")
        with Progress(quiet or json).working("explaining"):
            found = explain_kernel(model, targets or [HOST], parse_dims(dims or []), inputs or [])
        if json:
            put(show.to_json(found.json()))
        else:
            say(str(found))
        return
    session = _Session(
        Path(model), targets, threads, dims, quiet or json, values, checks, rounding, precision,
        pins, only, subgraphs,
    )  # fmt: skip
    module, arrays = session.open_with(inputs, seed)
    with session.working("measuring what this machine can do"):
        limits = limits_of(module)
    with session.working("timing"):
        given = [arrays[t.name] for t in module.inputs]
        profile = module.profile(*given, repeat=repeat, watch=session.on_call)
    rows = step_rows(profile, module.program, limits)
    write_files(written, profile, limits, session)
    if json:
        facts = {"model": model, **session.facts(module), "threads": module.threads}
        facts |= {"limits": show.limits_json(limits), "report": file_json(report)}
        shown = costliest(rows, worst)
        put(show.to_json(facts | {"steps": [show.step_json(r) for r in shown]}))
        return
    put(show.steps_table(rows, make_console().width, worst))
    lines = placement_lines(module, sizes_of(module, arrays), session.request)
    for line in [show.limits_line(limits), *show.host_lines(rows), *lines]:
        say(line)


@app.command(epilog="Example: tilewright dump examples/digits/digits.onnx --stage graph")
def dump(
    model: Source,
    stage: Annotated[str, typer.Option("--stage", help=f"one of {', '.join(STAGES)}")],
    kernel: Annotated[str | None, typer.Option("--kernel", help="only this kernel")] = None,
    binary: Annotated[
        bool,
        typer.Option("--binary", help="of --stage stream: bits for the chip itself, as a folder"),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="where --binary writes")
    ] = None,
    targets: Targets = None,
    threads: Threads = None,
    dims: Dims = None,
    values: Values = None,
    checks: Checks = False,
    rounding: Rounding = HALF_EVEN,
    precision: Precision = F32,
    pins: Pins = None,
    only: Only = None,
    subgraphs: Subgraphs = True,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Print the program as a stage of the compiler leaves it."""
    session = _Session(
        model, targets, threads, dims, quiet or json, values, checks, rounding, precision, pins,
        only, subgraphs,
    )  # fmt: skip
    if binary or output is not None:
        found = dump_binary(session.request, session, stage, kernel, output, binary=binary)
        if json:
            put(show.to_json(found))
        elif not quiet:
            say(binary_line(found))
        return
    with session.working("compiling"):
        texts = stage_texts(session.request, stage, kernel)
    if json:
        put(show.to_json({"model": str(model), "stage": stage, "programs": texts}))
    else:
        put("\n\n".join(texts.values()))


app.registered_commands += quantize.app.registered_commands
app.registered_commands += listing.app.registered_commands


# ---------------------------------------------------------------- what commands share


class _Session(Progress):
    """One command's model and target."""

    def __init__(
        self,
        model: Path,
        targets: list[str] | None,
        threads: int | None,
        dims: list[str] | None,
        quiet: bool,
        values: list[str] | None,
        checks: bool,
        rounding: str,
        precision: str,
        pins: list[str] | None,
        only: str | None,
        subgraphs: bool,
    ) -> None:
        super().__init__(quiet)
        self.dims = parse_dims(dims or [])
        self.has_compiled = False  # anything, that is: not what was found in the cache
        fixed = parse_values(values or [])
        self.request = Request(
            model,
            tuple(targets or (HOST,)),
            threads,
            self.dims,
            fixed,
            checks,
            rounding,
            precision,
            parse_pins(pins or []),
            only,
            subgraphs,
            self._on_step,
            self.count,
        )
        if self.request.is_compiled:
            _refuse_options(model, self.request, bool(values))
        else:
            for name in self.request.targets:
                self.say(f"target: {show.target_line(name, find_description(name, threads))}")

    def open(self) -> Module:
        with self.working("loading" if self.request.is_compiled else "compiling"):
            return open_module(self.request)

    def open_with(self, given: list[str] | None, seed: int) -> tuple[Module, dict[str, Any]]:
        """The module, and arrays for it: the one for these where shapes depend on them."""
        module = self.open()
        arrays = self.inputs(module, given or [], seed)
        with self.working("compiling"):
            return module_for(module, arrays, drawn_inputs(module.inputs, given or [])), arrays

    def inputs(self, module: Module, given: list[str], seed: int) -> dict[str, Any]:
        """Arrays for the module; dimensions that the compiler has fixed are no longer symbols."""
        symbols = module.symbols
        dims = self.dims
        if not self.request.is_compiled:
            dims = {k: v for k, v in dims.items() if k in {s.name for s in symbols}}
        return make_inputs(module.inputs, symbols, given, dims, seed)

    def facts(self, module: Module) -> dict[str, Any]:
        return {"target": module.target.name, "triple": module.target.triple}

    def _on_step(self, step: PassRun) -> None:
        self.has_compiled = True
        if not step.subject:  # of the whole model: kernels are counted
            self.tell(step.name)

    def on_call(self, done: int, total: int) -> None:
        self.count("calls", done, total)


def _refuse_options(model: Path, request: Request, has_values: bool) -> None:
    """ModelError for what can only be asked of the compiler, where there is nothing to compile."""
    is_default = " ".join(request.targets) in (HOST, os.environ.get("TILEWRIGHT_TARGET"))
    given = {
        "--target": not is_default,
        "--value": has_values,
        "--checks": request.checks,
        "--rounding": request.rounding != HALF_EVEN,
        "--precision": request.precision != F32,
        "--pin": bool(request.pins),
        "--only": request.only is not None,
        "--no-subgraphs": not request.subgraphs,
    }
    for name in (name for name, is_given in given.items() if is_given):
        raise ModelError(
            f"{model} is compiled already, and {name} says how to compile",
            hint="give the .onnx model that it was compiled from",
        )


def _run_command() -> None:
    prepare_output()
    with interrupts_kept():
        require_memory(COMMAND_BYTES, "this command")
        try:
            app()
        finally:
            sys.stdout.flush()


def main() -> None:
    """The entry point: exit codes, and errors in words."""
    try:
        _run_command()
    except TilewrightError as error:
        fail(str(error))
    except MemoryError:
        fail(str(out_of_memory("this command")))
    except OSError as error:
        problem = explain_output_error(error)
        if problem is None:
            raise
        if not problem:
            raise SystemExit(FAILED) from None
        fail(problem)
    except RecursionError:
        fail("the model is nested too deeply")
    except KeyboardInterrupt:  # outside of a command; inside, typer exits with this code
        raise SystemExit(INTERRUPTED) from None
