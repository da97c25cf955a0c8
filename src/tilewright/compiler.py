"""The spine: a model in, a Module out, one line per stage.

    graph      the model as imported
    optimized  after the graph passes: calls of kernels, layouts chosen
    tensor     each kernel as a tensor expression
    loops      as plain loops
    scheduled  tiled, vectorized, shared among cores
    lowered    ready for code generation
    llvm, asm  as LLVM IR, as machine code
    host       the program that calls the kernels
    stream     what it hands to other devices: instructions, and what they find in memory

`until` stops after a stage and returns what is there; a Recorder keeps every step.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, overload

from tilewright.analyze.emptiness import never_empty
from tilewright.assemble import CompiledKernel, SubmittedKernel, assemble, target_facts
from tilewright.backends.devices import Devices, find_devices
from tilewright.backends.host.functions import host_table
from tilewright.backends.native import passes as backends
from tilewright.backends.native.object_code import compile_assembly
from tilewright.backends.table import DeviceSpec
from tilewright.base.dtype import DTYPES
from tilewright.base.errors import CompileError, ContentsError, MemoryShortage, did_you_mean
from tilewright.base.node import cached_property
from tilewright.base.passes import PassRun, Recorder, run_passes
from tilewright.compile_cache import CachedModel, cached_model, file_state, kept_kernel
from tilewright.frontends.onnx.load import LoadedModel, ModelSource, import_model, load_model
from tilewright.ir.graph import Graph, GraphNode
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import Layout
from tilewright.ir.verify.graph import verify_graph
from tilewright.offers import Offers
from tilewright.ops.function import CALL
from tilewright.ops.table import OPS
from tilewright.optimize.assign_devices import place
from tilewright.optimize.call_program import call_program
from tilewright.optimize.check_contents import check_contents
from tilewright.optimize.choose_layout import choose_layout
from tilewright.optimize.compact_weights import compact_weights
from tilewright.optimize.contract_bytes import contract_bytes
from tilewright.optimize.edit import remove_dead
from tilewright.optimize.fold_constants import fold_constants
from tilewright.optimize.fold_rescaling import fold_rescaling
from tilewright.optimize.fold_scales import fold_scales
from tilewright.optimize.fuse import fuse
from tilewright.optimize.keep_bytes import keep_bytes
from tilewright.optimize.merge_common import merge_common
from tilewright.optimize.merge_subgraphs import JOINED, members
from tilewright.optimize.move_arrays import Held, packing, unpacking
from tilewright.optimize.move_reshapes import move_reshapes
from tilewright.optimize.narrow_moves import narrow_moves
from tilewright.optimize.place_kernels import Placement
from tilewright.optimize.plan_memory import KernelUse, MemoryPlan, plan_memory
from tilewright.optimize.share_kernels import share_kernels
from tilewright.optimize.shorten_floats import shorten_floats
from tilewright.optimize.simplify_nodes import simplify_nodes
from tilewright.optimize.turn_factors import turn_factors
from tilewright.optimize.use_integers import use_integers
from tilewright.options import F32, HALF_UP, Options, check_options
from tilewright.plan.compose_stages import compose_stages
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import fused_schedule, multiplying
from tilewright.plan.separate_windows import separate_windows
from tilewright.program.host_program import HostProgram
from tilewright.runtime.cache import Cache, find_cache
from tilewright.runtime.module import Module
from tilewright.runtime.processes import in_processes
from tilewright.runtime.program import Program
from tilewright.runtime.specialized import SpecializedModule
from tilewright.runtime.system import out_of_memory, require_memory
from tilewright.schedule.schedule import Schedule
from tilewright.side_by_side import Job, side_by_side
from tilewright.specialize import specialize
from tilewright.submissions import Submissions, find_submissions
from tilewright.target.target import Target
from tilewright.targets.names import HOST

_KERNELS = ("tensor", "loops", "scheduled", "lowered", "llvm", "asm")
STAGES = ("graph", "optimized", *_KERNELS, "host", "stream")
WHOLE = (None, "host", "stream")  # where all kernels are made to their end

SHOWN = 4  # kernels that an error names

Model = ModelSource | Graph
Targets = Target | DeviceSpec | str | Mapping[str, Target | DeviceSpec | str]

GraphStage = Literal["graph", "optimized"]
LoopStage = Literal["loops", "lowered"]
TextStage = Literal["llvm", "asm"]
Left = (
    Module
    | Graph
    | dict[str, TensorProgram]
    | dict[str, Kernel]
    | dict[str, Schedule]
    | dict[str, str]
    | HostProgram
    | Submissions
)


@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: None = None,
) -> Module: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: GraphStage,
) -> Graph: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: Literal["tensor"],
) -> dict[str, TensorProgram]: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: LoopStage,
) -> dict[str, Kernel]: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: Literal["scheduled"],
) -> dict[str, Schedule]: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: TextStage,
) -> dict[str, str]: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: Literal["host"],
) -> HostProgram: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: Literal["stream"],
) -> Submissions: ...
@overload
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: str | None,
) -> Left: ...
def compile(
    model: Model,
    *,
    target: Targets = HOST,
    options: Options | None = None,
    recorder: Recorder | None = None,
    until: str | None = None,
) -> Left | SpecializedModule:
    """Compiles a model, which is an ONNX file, its bytes, an onnx.ModelProto, or a Graph.

    Without a `target` it is compiled for the machine this runs on, with all its cores, and the
    module says so when it is printed. Others are given by name (`target="avx2"`, the names that
    `tilewright targets` lists), as a Target (`cpu.host(threads=2)`), or several by device name
    (`target={"npu": vta(), "host": "host"}`): the first that can run a kernel does, those whose
    kernels the host calls last, and `options.assign` says where nodes of the host's are run.

    Returns a Module, or with `until` what that stage leaves: a Graph ("graph", "optimized"), a
    program for each kernel by its name ("tensor", "loops", "scheduled", "lowered", "llvm", "asm"),
    the program that calls them ("host"), or what devices are handed ("stream"). A `recorder` keeps
    what every step leaves.

    Where shapes depend on what small inputs hold, a SpecializedModule is returned, which is called
    in the same way; `options.values` fixes such inputs.

    Raises ModelError if the model cannot be read or uses what is not supported, CompileError or
    TargetError if what is asked for is not there.
    """
    if until is not None and until not in STAGES:
        hint = did_you_mean(str(until), STAGES)
        raise CompileError(f"there is no stage called {until!r}", hint=hint)
    options = check_options(options)
    recorder = Recorder(keeps=False) if recorder is None else recorder
    seen = until is not None or options.verify or recorder.keeps
    cache = None if seen else find_cache(options.cache)
    devices = find_devices(target)
    if isinstance(model, Graph):
        return _Compilation(devices, options, recorder, model, cache).run(model, until)
    place = None if cache is None else cached_model(cache, model, devices, options)
    if place is not None and (program := place.read()) is not None:
        return _Compilation(devices, options, recorder, model, cache).module(program)
    read = load_model(model, require_memory)
    try:
        given = model if isinstance(model, (str, os.PathLike)) and os.path.isfile(model) else read
        work = _Compilation(devices, options, recorder, given, cache, place)
        return work.run(read, until)
    except MemoryShortage:
        raise
    except MemoryError:
        raise out_of_memory("compiling the model") from None
    except ContentsError as error:
        if until is not None:
            raise

        # It is compiled again when it is called, whatever has become of its file by then.
        read = load_model(model, require_memory, whole=True)

        def compile_for(known: Options) -> Module:
            return _Compilation(devices, known, recorder, read, cache).run(read, None)

        return specialize(read, options, target_facts(devices.host_target), compile_for, error)


@dataclass
class _Compilation:
    devices: Devices
    options: Options
    recorder: Recorder
    given: Model  # what the caller wants compiled
    cache: Cache | None = None  # of what was compiled before
    place: CachedModel | None = None  # where the cache keeps it
    placement: Placement | None = None
    keys: dict[Any, str] = field(default_factory=dict)  # what makes kernels equal, to their names
    outputs: tuple[str, ...] = ()  # the model's names for them
    arrangements: dict[tuple[Held, bool], str] = field(default_factory=dict)  # to devices or back

    @cached_property
    def offers(self) -> Offers:
        """What devices say of kernels."""
        return Offers(self.devices, self.options, in_processes, self.recorder.tell)

    @overload
    def run(self, model: LoadedModel | Graph, until: None) -> Module: ...
    @overload
    def run(self, model: LoadedModel | Graph, until: str | None) -> Left: ...
    def run(self, model: LoadedModel | Graph, until: str | None) -> Left:
        graph = self.load(model)
        if until == "graph":
            return graph
        if not self.devices.called:
            raise self.no_host(graph)
        graph = self.optimize(graph)
        graph = self.lay_out(self.place_kernels(graph))
        if until == "optimized":
            return graph
        kernels, used = self.kernels(graph, until)
        if until not in WHOLE:
            return kernels
        plan = self.plan(graph, kernels, used)
        if until == "host":
            return plan.program
        if until == "stream":
            return find_submissions(plan, kernels, self.devices)
        return self.module(self.assemble(plan, kernels))

    # ---------------------------------------------------------- graph

    def load(self, model: LoadedModel | Graph) -> Graph:
        if isinstance(model, Graph):
            graph = model
        else:
            fixed = self.options.values
            graph = import_model(
                model,
                dims=self.options.dims,
                constants=fixed,
                half_up=self.options.rounding == HALF_UP,
            )
        self.recorder.add(PassRun("graph", "", "import", 0.0, True, graph))
        self.outputs = tuple(v.name for v in graph.outputs)
        return graph

    def optimize(self, graph: Graph) -> Graph:
        alone, once = not self.devices.others, (merge_common, remove_dead)
        passes = (
            narrow_moves,
            *((keep_bytes, self.contract_bytes, compact_weights, turn_factors) if alone else ()),
            *((self.shorten_floats,) if self.options.precision != F32 else ()),
            fold_constants,
            simplify_nodes,
            remove_dead,
            fold_scales,
            fold_rescaling,
            fold_constants,  # again: scales leave arithmetic on constants behind
            simplify_nodes,  # again: what folding made constant may now be neutral
            *once,
            move_reshapes,
            simplify_nodes,  # again: reshapes that met cancel
            fold_constants,  # again: reshapes moved onto constants
            *once,
            *(() if alone else (use_integers, *once)),
            *((check_contents,) if self.options.checks else ()),  # of what is left
            partial(
                place,
                devices=self.devices.targets,
                assign=self.options.assign,
                default=self.devices.host,
            ),
            fuse if alone else partial(fuse, apart=JOINED),
        )
        return self.run_passes(graph, passes)

    def contract_bytes(self, graph: Graph) -> Graph:
        """With products of bytes as the host's processor has them."""
        return contract_bytes(graph, self.devices.host_target)

    def shorten_floats(self, graph: Graph) -> Graph:
        """With products as short as the options say."""
        return shorten_floats(graph, self.devices.host_target, DTYPES[self.options.precision])

    def run_passes(self, graph: Graph, passes: Sequence[Callable[[Graph], Graph]]) -> Graph:
        check = verify_graph if self.options.verify else None
        return run_passes(graph, passes, stage="optimized", recorder=self.recorder, check=check)

    def place_kernels(self, graph: Graph) -> Graph:
        """Kernels that other devices can run are theirs."""
        if not self.devices.others and not self.options.pins and self.options.only is None:
            return graph
        self.placement = self.offers.place(graph)
        placed = self.placement.graph
        self.recorder.add(PassRun("optimized", "", "place_kernels", 0.0, True, placed))
        return placed

    def lay_out(self, graph: Graph) -> Graph:
        """Layouts are a matter of the kernels that the host calls: it asks what they prefer."""
        targets = self.devices.called
        passes = (
            partial(share_kernels, devices=targets),
            partial(choose_layout, targets=targets),
        )
        return self.run_passes(graph, passes)

    def no_host(self, graph: Graph) -> CompileError:
        """What the devices cannot do by themselves."""
        names = list(self.devices.specs)
        helped = replace(self, devices=self.devices.with_host())
        placed = helped.place_kernels(helped.optimize(graph))
        left = [n for n in placed.nodes if n.op is CALL and n.device == HOST]
        shown = ", ".join(n.name for n in left[:SHOWN]) + (", …" if len(left) > SHOWN else "")
        kernels = sum(len(members(n)) for n in placed.nodes if n.op is CALL)
        given = ", ".join(f'"{n}": {self.devices.specs[n].target.name}()' for n in names)
        return CompileError(
            f"{' and '.join(names)} can run {kernels - len(left)} of {kernels}"
            f" kernel{'s' if kernels != 1 else ''} of {graph.name}; a host has to do the rest"
            f" ({shown}) and call them",
            hint=f'target={{"host": "host", {given}}}; on the command line, --target host'
            f" --target {names[0]}",
        )

    # ---------------------------------------------------------- kernels

    def kernels(
        self, graph: Graph, until: str | None
    ) -> tuple[dict[str, Any], dict[GraphNode, str]]:
        """Every distinct kernel, compiled (or up to `until`), and which one each call uses."""
        used: dict[GraphNode, str] = {}
        jobs: dict[str, Job] = {}
        submitted: dict[str, SubmittedKernel] = {}
        for n in graph.nodes:
            if n.op is not CALL:
                continue
            program, layouts = call_program(n, graph.constants)
            key = (program, tuple(sorted(layouts.items(), key=str)), n.device)
            if key not in self.keys:
                name = self.keys[key] = f"k{len(self.keys)}_{program.name}"
                spec = self.devices.specs[n.device]
                if spec.is_host:
                    jobs[name] = (program, layouts, spec.target)
                else:
                    option = self.offers.offer(n, n.device)
                    submitted[name] = SubmittedKernel(name, n.device, program, option)
            used[n] = self.keys[key]
        return {**self._compiled(jobs, until), **self._submitted(submitted, until)}, used

    def _submitted(
        self, kernels: Mapping[str, SubmittedKernel], until: str | None
    ) -> dict[str, Any]:
        """Kernels of devices, with the host's kernels that arrange their operands and results."""
        if until not in WHOLE:
            return {}
        found: dict[str, Any] = dict(kernels)
        arrangements: dict[tuple[Held, bool], str] = {}
        programs: dict[Any, str] = {}  # which do the same would be one symbol in the cache
        for kernel in kernels.values():
            count = kernel.given
            for k, held in enumerate(kernel.option.held):
                key = (held.arrangement, k < count)
                if held.is_same or key in arrangements:
                    continue
                word = "pack" if k < count else "unpack"
                kind = held.type.layout
                layouts = {} if kind is None else {"y" if k < count else "x0": kind}
                program = (packing if k < count else unpacking)(held, word)
                name = f"{word}{len(arrangements)}"
                name = arrangements[key] = programs.setdefault((program, kind), name)
                if name in found:
                    continue
                target = self.devices.host_target
                found[name] = self.kernel(name, program, layouts, target, None)
        self.arrangements = arrangements
        return found

    def _compiled(self, jobs: Mapping[str, Job], until: str | None) -> dict[str, Any]:
        """What `kernel` gives for each: many at a time, where nobody wants to see them made."""
        found: dict[str, Any] = {}

        def tell() -> None:
            self.recorder.tell("kernels compiled", len(found), len(jobs))

        tell()
        if until in WHOLE and not self.recorder.keeps:
            quiet = replace(self, recorder=Recorder(keeps=False))
            for name, kernel in side_by_side(jobs, quiet.kernel, self.cache):
                found[name] = kernel
                tell()
        for name, job in jobs.items():
            if name not in found:
                found[name] = self.kernel(name, *job, until)
                tell()
        return {name: found[name] for name in jobs}

    def kernel(
        self,
        name: str,
        program: TensorProgram,
        layouts: dict[str, Layout],
        target: Target,
        until: str | None = None,
    ) -> Any:
        """What a stage leaves of a kernel; at the end a CompiledKernel, which may be kept."""

        def make(symbol: str) -> Any:
            return self.make_kernel(name, symbol, program, layouts, target, until)

        if self.cache is None:
            return make(name)
        return kept_kernel(self.cache, name, program, layouts, target, make)

    def make_kernel(
        self,
        name: str,
        symbol: str,
        program: TensorProgram,
        layouts: dict[str, Layout],
        target: Target,
        until: str | None,
    ) -> Any:
        program = program.with_(name=name)
        self.record("tensor", name, program)
        if until == "tensor":
            return program
        loops = create_loops(compose_stages(separate_windows(program)))
        self.record("loops", name, loops)
        if until == "loops":
            return loops
        schedule = fused_schedule(loops, target, layouts)
        self.record("scheduled", name, schedule.kernel)
        if until == "scheduled":
            return schedule
        lowered = backends.lower(schedule.kernel, target, self.recorder, verify=self.options.verify)
        if until == "lowered":
            return lowered
        text = backends.to_llvm(lowered.with_(name=symbol), target)
        self.record("llvm", name, text)
        if until == "llvm":
            return text
        if until == "asm":
            return compile_assembly(text, target.llvm)
        made = lowered.with_(body=()), symbols(lowered), backends.to_object(text, target)
        told = never_empty(loops), schedule.fallback
        instruction = multiplying(schedule.kernel, target)
        return CompiledKernel(name, target, program, symbol, *made, *told, instruction)

    def record(self, stage: str, subject: str, program: object) -> None:
        self.recorder.add(PassRun(stage, subject, stage, 0.0, True, program))

    # ---------------------------------------------------------- host program and module

    def plan(
        self, graph: Graph, kernels: dict[str, CompiledKernel], used: dict[GraphNode, str]
    ) -> MemoryPlan:
        spaces = {name: name for name in (*self.options.separate, *self.devices.others)}
        uses = {n: self._use_of(kernels[name]) for n, name in used.items()}
        plan = plan_memory(graph, uses, spaces, self.devices.host)
        self.recorder.add(PassRun("host", "", "plan_memory", 0.0, True, plan.program))
        return plan

    def assemble(self, plan: MemoryPlan, kernels: dict[str, Any]) -> Program:
        program = assemble(plan, kernels, self.devices, self.outputs, self.obstacles(plan))
        if self.place is not None:
            program = self.place.write(program)
        if self.cache is not None:
            self.cache.trim()
        return program

    def module(self, program: Program) -> Module:
        return Module(
            program,
            threads=self.devices.host_target.cores,
            host=host_table(OPS),
            devices=self.devices.makers,
            source=self.source(),
        )

    def source(self) -> Callable[[str, str | None], str]:
        """The text of a stage, of all kernels or one. Where steps were not kept, as that takes much
        memory, or found in the cache, the model is compiled again to see them."""
        if self.recorder.keeps:
            return partial(_source, self.recorder)
        given, devices, options = self.given, self.devices, self.options
        if isinstance(given, (str, os.PathLike)):
            given = os.path.abspath(given)
        before = file_state(given)

        @functools.cache
        def again() -> Recorder:
            if file_state(given) != before:
                what = f"{given!s} was changed or removed since it was compiled"
                raise CompileError(what, hint="compile it again to see its steps")
            recorder = Recorder()
            read = given if isinstance(given, Graph) else load_model(given)
            _Compilation(devices, options, recorder, given).run(read, "host")
            return recorder

        return lambda stage, kernel: _source(again(), stage, kernel)

    def obstacles(self, plan: MemoryPlan) -> dict[int, list[str]]:
        """Why steps are the host's, by their numbers. Layouts have made new nodes, whose results
        have the old names."""
        found = {} if self.placement is None else self.placement.obstacles
        by_result = {n.outputs[0].name: why for n, why in found.items()}
        reasons = {}
        for number, n in enumerate(plan.nodes):
            why = by_result.get(n.outputs[0].name) if n is not None and n.outputs else None
            if why:
                reasons[number] = [
                    f"{device}: {text.splitlines()[0]}" for device, text in why.items()
                ]
        return reasons

    def _use_of(self, kernel: CompiledKernel | SubmittedKernel) -> KernelUse:
        if isinstance(kernel, CompiledKernel):
            return KernelUse(kernel.name, kernel.signature.scratch, kernel.symbols)
        count = kernel.given
        held = tuple(
            replace(h, kernel=self.arrangements.get((h.arrangement, k < count), ""))
            for k, h in enumerate(kernel.option.held)
        )
        return KernelUse(kernel.name, held=held)


def _source(recorder: Recorder, stage: str, kernel: str | None) -> str:
    steps = recorder.of(stage, kernel)
    if not steps:
        raise CompileError(f"nothing was recorded for stage {stage!r}", hint=", ".join(STAGES))
    last = {s.subject: s for s in steps}
    return "\n\n".join(s.text for s in last.values())
