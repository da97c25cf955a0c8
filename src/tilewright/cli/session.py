"""What the commands do with the compiler: get a module, a graph, or a stage's text.

This is all that the command line uses of the compiler; the commands themselves parse and print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np

from tilewright.base.errors import InputError, ModelError
from tilewright.base.passes import PassRun, Recorder, Watch
from tilewright.cli.find_target import find_description
from tilewright.compiled import load
from tilewright.compiler import STAGES, GraphStage, Left, compile
from tilewright.frontends.onnx.table import IMPORTERS
from tilewright.ir.graph import Graph
from tilewright.options import F32, HALF_EVEN, Options
from tilewright.runtime.container import is_program
from tilewright.runtime.module import Module
from tilewright.runtime.specialized import SpecializedModule
from tilewright.schedule.schedule import Schedule
from tilewright.submissions import Submissions
from tilewright.targets.names import HOST

Listener = Callable[[PassRun], None]


@dataclass(frozen=True)
class Request:
    """A model, and how it is to be compiled. A compiled model (.tw) keeps its target."""

    model: Path
    targets: tuple[str, ...] = (HOST,)
    threads: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    checks: bool = False
    rounding: str = HALF_EVEN
    precision: str = F32
    pins: Mapping[str, str] = field(default_factory=dict)
    only: str | None = None
    subgraphs: bool = True
    listener: Listener | None = None  # of steps of the compiler
    watch: Watch | None = None  # what is done of how many while it is compiled

    @property
    def is_compiled(self) -> bool:
        """By its name, or by how it begins."""
        return self.model.suffix == ".tw" or is_program(self.model)


def open_module(request: Request) -> Module:
    """The model, compiled or loaded, ready to be called."""
    if request.is_compiled:
        return load(request.model, threads=request.threads)
    return _compile(request, request.model)


def module_for(module: Module, arrays: Mapping[str, np.ndarray], drawn: Sequence[str]) -> Module:
    """The Module for these inputs where shapes depend on what they hold; `drawn` ones are random,
    which is mostly why the model does not compile for them."""
    if not isinstance(module, SpecializedModule):
        return module
    try:
        return module.specialize(*arrays.values())
    except ModelError as error:
        guessed = [n for n in drawn if n in module.specialized_on]
        if guessed:
            shown = ", ".join(f"{n!r} was random, {arrays[n].tolist()}" for n in guessed)
            options = " ".join(f"--input {n}=FILE.npy" for n in guessed)
            error.hint = f"the model's shapes depend on its inputs, and {shown}: give {options}"
        raise


def save_module(module: Module, path: Path) -> int:
    """Writes the compiled model, and returns its size in bytes."""
    if not isinstance(module, SpecializedModule):
        return module.save(path)
    inputs, dims = ({t.name for t in module.inputs}, {s.name for s in module.symbols})
    values = [f"--value {n}=FILE.npy" for n in module.specialized_on if n in inputs]
    sizes = [f"--dim {n}=NUMBER" for n in sorted(dims)]
    also = f"; add {' '.join(sizes)} if it fits certain sizes only" if values and sizes else ""
    try:
        return module.save(path)
    except InputError as error:  # its hint is for Python
        error.hint = f"fix what it depends on: {' '.join(values or sizes)}{also}"
        raise


def import_graph(request: Request) -> Graph:
    """The model as imported."""
    return _compile(request, _model_file(request), until="graph")


def optimized_graph(request: Request, graph: Graph) -> Graph:
    """The graph as the kernels are made from it."""
    return _compile(request, graph, until="optimized")


def compile_graph(request: Request, graph: Graph) -> Module:
    return _compile(request, graph)


def stage_texts(request: Request, stage: str, kernel: str | None) -> dict[str, str]:
    """What a stage leaves, as text: by kernel, or under "" where it is the whole model."""
    if stage not in STAGES:
        raise InputError(f"there is no stage called {stage!r}", hint=f"stages: {', '.join(STAGES)}")
    found = _compile(request, _model_file(request), until=stage)
    if isinstance(found, Submissions):
        texts = found.texts
    elif isinstance(found, dict):
        texts = {k: _text(v) for k, v in found.items()}
    else:
        texts = {"": str(found)}
    if kernel is None:
        return texts
    if kernel not in texts:
        known = ", ".join(texts) if "" not in texts else "it is one program for the whole model"
        raise InputError(f"stage {stage!r} has no kernel {kernel!r}", hint=f"kernels: {known}")
    return {kernel: texts[kernel]}


def submissions(request: Request) -> Submissions:
    """What the model's devices are handed."""
    found = _compile(request, _model_file(request), until="stream")
    assert isinstance(found, Submissions)
    return found


def onnx_operators() -> dict[str, list[str]]:
    """The ONNX operators that models may use, by domain. Those that ONNX defines by others, and
    the model's own functions, need no entry."""
    return {domain or "ai.onnx": sorted(table) for domain, table in IMPORTERS.items()}


@overload
def _compile(request: Request, model: Path | Graph) -> Module: ...
@overload
def _compile(request: Request, model: Path | Graph, until: GraphStage) -> Graph: ...
@overload
def _compile(request: Request, model: Path | Graph, until: str) -> Left: ...
def _compile(request: Request, model: Path | Graph, until: str | None = None) -> Left:
    options = Options(
        dims=dict(request.dims),
        values=request.values,
        checks=request.checks,
        rounding=request.rounding,
        precision=request.precision,
        pins=request.pins,
        only=request.only,
        subgraphs=request.subgraphs,
    )
    return compile(
        model,
        target={name: find_description(name, request.threads) for name in request.targets},
        options=options,
        recorder=Recorder(listener=request.listener, watch=request.watch, keeps=False),
        until=until,
    )


def _model_file(request: Request) -> Path:
    if request.is_compiled:
        raise ModelError(
            f"{request.model} is compiled: what it was compiled from is not in it",
            hint="give the model that it was compiled from",
        )
    return request.model


def _text(program: object) -> str:
    return str(program.kernel) if isinstance(program, Schedule) else str(program)
