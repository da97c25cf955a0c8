"""Kernels as functions of arrays: machine code for one kernel, and schedules that can be tried.

s = Schedule(gemm.bind(M=1024, N=1024, K=1024))
…
s.check()
f = s.build(target)
f(a, b, c)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from tilewright.analyze.bounds import faults
from tilewright.backends.native import passes as backends
from tilewright.backends.native.object_code import compile_assembly
from tilewright.base.dtype import from_numpy
from tilewright.base.errors import CompileError, InputError, ScheduleError, TilewrightError
from tilewright.base.identifiers import identifier
from tilewright.base.node import cached_property
from tilewright.base.passes import Recorder
from tilewright.chip import build_controlled
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.arguments import check_arguments
from tilewright.ir.bind_symbols import bind_symbols
from tilewright.ir.evaluate import evaluate_dim, poisoned
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import (
    Bound,
    Call,
    For,
    Kernel,
    LoopKind,
    Pieces,
    Stmt,
    map_block,
    map_inner_blocks,
    symbols,
    walk_statements,
)
from tilewright.ir.python import kernel as front_end
from tilewright.ir.samples import (
    count_statements,
    first_difference,
    has_gathers,
    sample_arrays,
    sample_sizes,
)
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.verify.loop import verify_kernel
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.default import default_schedule
from tilewright.runtime import _native
from tilewright.runtime.array import address_of
from tilewright.runtime.loader import LoadedCode, load_code
from tilewright.runtime.pool import shared_pool
from tilewright.runtime.processor import check_machine
from tilewright.runtime.program import TargetFacts
from tilewright.schedule import schedule
from tilewright.schedule.core.state import State
from tilewright.schedule.primitives import loops
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target
from tilewright.targets import cpu

ALIGN = 64  # bytes: of working memory
INTERPRETED = 100_000  # statements that the interpreter is asked to run at most


class KernelFunction(front_end.KernelFunction):
    """A kernel that was written in Python, with the ways to compile it."""

    def build(
        self,
        target: Target,
        *,
        tile: Mapping[str, int] | None = None,
        whole: Sequence[str] | bool = (),
        overlap: bool = True,
        rings: bool | None = None,
        serial: bool = False,
    ) -> BuiltKernel | ChipKernel:
        """Machine code, scheduled by default (a kernel that has parallel, vector or unrolled loops
        of its own is built as it is written); or a chip's stream of instructions.

        For a chip, `tile` has how many iterations of loops of the contraction a tile holds, by
        their names, and `whole` the loops that tiles do not cut (True: none); the rest is chosen.
        Without `overlap` one tile is done after another; with `serial` one instruction after
        another; with `rings` what a tile has in common with the next stays in local memory.
        ScheduleError for what is no loop or no size of one, TargetError if no tile is left."""
        return build(self, target, control=Control(tile or {}, whole, overlap, rings, serial))


def kernel(function: Callable[..., object]) -> KernelFunction:
    """Reads a kernel from the source of a Python function; CompileError at what it may not say."""
    found = KernelFunction(*front_end.read_kernel(function))
    _check_elements(found)
    _check_kinds(found)
    return found


def _check_elements(found: KernelFunction) -> None:
    """Subscripts stay in their arrays, nothing is read before it is written, and outputs are
    written whole, as far as that follows from loops and sizes."""
    for fault in faults(found.kernel):
        raise found.lines.error_at(found.kernel, fault.stmt, str(fault), fault.hint)


def _check_kinds(found: KernelFunction) -> None:
    """Parallel and vector loops that the user wrote must be ones that a schedule could make."""
    marked = [s for s in walk_statements(found.kernel.body) if _is_marked(s)]
    if not marked:
        return
    state = State(found.kernel.with_(body=map_block(found.kernel.body, _as_serial)))
    check: dict[LoopKind | Bound | Pieces, Callable[[State, Loop], object]]
    check = {LoopKind.PARALLEL: loops.parallel, LoopKind.VECTORIZE: loops.vectorize}
    for s in reversed(marked):  # inner loops first: a vector loop has none inside
        try:
            check.get(s.kind, loops.unroll)(state, Loop(s.var))
        except ScheduleError as error:
            hint = "for … in range(…) keeps iterations in order"
            raise found.lines.error_at(found.kernel, s, error.what, hint) from None


def _is_marked(s: Stmt) -> TypeGuard[For]:
    return isinstance(s, For) and s.kind is not LoopKind.SERIAL


def _as_serial(stmt: Stmt) -> Stmt:
    s = map_inner_blocks(stmt, lambda b: map_block(b, _as_serial))
    return s.with_(kind=LoopKind.SERIAL) if _is_marked(s) else s


# ---------------------------------------------------------------- machine code


@dataclass(eq=False)
class BuiltKernel:
    """Machine code of one kernel. Called with its arrays, in the order of its parameters: outputs
    are written in place, and returned (a tuple of several)."""

    kernel: Kernel  # as scheduled
    lowered: Kernel
    target: Target
    llvm: str
    parameters: tuple[str, ...] = field(default=())
    _spare: list[tuple[dict[str, int], list[np.ndarray]]] = field(default_factory=list, repr=False)

    @cached_property
    def object(self) -> bytes:
        """The machine code, as an object file."""
        return backends.to_object(self.llvm, self.target)

    @cached_property
    def asm(self) -> str:
        """The machine code, as a person reads it."""
        return compile_assembly(self.llvm, self.target.llvm)

    @cached_property
    def _order(self) -> list[Buffer]:
        by_name = {b.name: b for b in self.kernel.inputs + self.kernel.outputs}
        return [by_name[name] for name in self.parameters]

    @cached_property
    def _code(self) -> LoadedCode:
        native = self.target.llvm
        facts = TargetFacts(self.target.name, native.triple, native.processor, native.features)
        check_machine(facts)
        return load_code([(self.lowered.name, self.object)], [self.lowered.name])

    @cached_property
    def _function(self) -> Any:
        kinds: list[Any] = [ctypes.c_void_p] * (1 + len(self.lowered.params))
        kinds += [ctypes.c_int64] * len(self._symbols)
        return ctypes.CFUNCTYPE(None, *kinds)(self._code.addresses[self.lowered.name])

    @cached_property
    def _symbols(self) -> tuple[Symbol, ...]:
        return symbols(self.lowered)

    @cached_property
    def _shares(self) -> bool:
        loops = (s for s in walk_statements(self.lowered.body) if isinstance(s, For))
        return any(isinstance(s.kind, Pieces) for s in loops)

    def __call__(self, *arrays: Any) -> Any:
        """The outputs, which are written in place: one array, or a tuple of several. InputError for
        arrays that do not fit."""
        found, sizes = check_arguments(self.kernel.name, self._order, arrays)
        self._check_memory(found)
        given = {b.name: a for b, a in zip(self._order, found, strict=True)}
        scratch = self._take_scratch(sizes)
        params = self.lowered.inputs + self.lowered.outputs
        memory = [*(given[b.name] for b in params), *scratch]
        pool = 0
        if self._shares:
            pool = _native.pool_address(shared_pool(self.target.cores).handle)
        dims = [sizes[s.name] for s in self._symbols]
        self._function(pool, *map(address_of, memory), *dims)
        self._spare[:] = [(sizes, scratch)]
        results = [given[b.name] for b in self.kernel.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    def _take_scratch(self, sizes: dict[str, int]) -> list[np.ndarray]:
        """Working memory for a call: the last one's, if its sizes were the same and no other call
        has it. New memory costs as much as filling it: the system maps and clears each page."""
        try:
            known, scratch = self._spare.pop()
        except IndexError:
            known, scratch = {}, None
        if scratch is None or known != sizes:
            scratch = [_aligned(b, sizes) for b in self.lowered.scratch]
        return scratch

    def _check_memory(self, arrays: list[np.ndarray]) -> None:
        """Arrays must lie as the code expects them, and outputs apart from everything."""
        name = self.kernel.name
        written = [b in self.kernel.outputs for b in self._order]
        for i, (buffer, a) in enumerate(zip(self._order, arrays, strict=True)):
            if not (a.flags.c_contiguous and a.flags.aligned):
                hint = "copy it first: np.ascontiguousarray(…)"
                raise InputError(f"{buffer.name} of {name} is not a row-major array", hint=hint)
            if not written[i]:
                continue
            if not a.flags.writeable:
                raise InputError(f"{buffer.name} of {name} is written, and the array is read-only")
            for other, b in zip(self._order, arrays, strict=True):
                if other is not buffer and np.may_share_memory(a, b):
                    what = f"{buffer.name} and {other.name} of {name} share memory"
                    raise InputError(what, hint=f"{buffer.name} is written: pass a copy")

    def __repr__(self) -> str:
        return f"BuiltKernel({', '.join(map(str, self._order))})"


def _aligned(buffer: Buffer, sizes: dict[str, int]) -> np.ndarray:
    """Working memory for one call."""
    shape = tuple(evaluate_dim(d, sizes) for d in buffer.shape)
    count = int(np.prod(shape)) * buffer.dtype.bytes
    room = np.empty(count + ALIGN, np.uint8)
    start = -address_of(room) % ALIGN
    return room[start : start + count].view(buffer.dtype.numpy).reshape(shape)


def build(
    program: Kernel | front_end.KernelFunction | State,
    target: Target,
    recorder: Recorder | None = None,
    *,
    control: Control = CHOSEN,
) -> BuiltKernel | ChipKernel:
    """Machine code for a schedule as it stands; a kernel is scheduled by default first, unless it
    has parallel, vector or unrolled loops of its own. For a chip with queues, a stream of its
    instructions, which runs on its simulators; `control` is what is decided of its schedule."""
    source = program.source if isinstance(program, Schedule) else None
    if isinstance(program, front_end.KernelFunction):
        source = program
    try:
        if target.native is None:
            return _on_chip(program, target, source, control)
        if control != CHOSEN:
            raise ScheduleError(
                f"{target.name} is a processor: tile, whole, overlap, rings, serial are for chips",
                hint="Schedule(kernel) has primitives for all of it",
            )
        scheduled = _scheduled(program, target)
        verify_kernel(scheduled)
        return _compiled(scheduled, target, source, recorder)
    except TilewrightError as error:
        where = source.locate(error) if source is not None else None
        error.add_context(f"building {where or 'a kernel'}")
        raise


def _on_chip(
    program: Kernel | front_end.KernelFunction | State,
    target: Target,
    source: front_end.KernelFunction | None,
    control: Control,
) -> ChipKernel:
    names = source.parameters if source is not None else ()
    if not isinstance(program, State):
        found = program if isinstance(program, Kernel) else program.kernel
        return build_controlled(found, target, control, names)
    for before, after in zip(program.original.params, program.kernel.params, strict=True):
        if before.shape != after.shape:
            raise CompileError(
                f"the schedule arranges {before.name} as {after}, and callers have {before}",
                hint="let a local copy have the arrangement: cache_read, then pack_layout of that",
            )
    return stream_kernel(program, target, names, serial=control.serial)


def _scheduled(program: Kernel | front_end.KernelFunction | State, target: Target) -> Kernel:
    if isinstance(program, State):
        return program.kernel
    found = program.kernel if isinstance(program, front_end.KernelFunction) else program
    if any(_is_marked(s) for s in walk_statements(found.body)):
        return found
    return default_schedule(found, target).kernel


def _compiled(
    program: Kernel,
    target: Target,
    source: front_end.KernelFunction | None = None,
    recorder: Recorder | None = None,
) -> BuiltKernel:
    """Machine code for loops as they stand."""
    named = program.with_(name=f"kernel_{identifier(program.name)}")  # apart from C's functions
    lowered = backends.lower(named, target, recorder, verify=True)
    text = backends.to_llvm(lowered, target)
    buffers = program.inputs + program.outputs
    names = source.parameters if source is not None else tuple(b.name for b in buffers)
    return BuiltKernel(program, lowered, target, text, names)


# ---------------------------------------------------------------- schedules


class Schedule(schedule.Schedule):
    """A schedule that can be built, called and checked."""

    def __init__(self, program: Kernel | front_end.KernelFunction) -> None:
        self.source = None if isinstance(program, Kernel) else program
        super().__init__(program if isinstance(program, Kernel) else program.kernel)

    def build(self, target: Target, *, serial: bool = False) -> BuiltKernel | ChipKernel:
        """Machine code for the current program; or a chip's stream of instructions, with `serial`
        one after another."""
        return build(self, target, control=Control(serial=serial))

    def check(self, seed: int = 0, *, target: Target | None = None, **sizes: int) -> None:
        """Runs the original program and the current one on random arrays: by the interpreter, or as
        machine code what would take that too long; with a target, the current one as machine code
        in any case. ScheduleError where they differ. Symbols get small values but for those in
        `sizes`."""
        compare(self, seed, target=target, sizes=sizes)


def compare(
    s: State,
    seed: int = 0,
    *,
    target: Target | None = None,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """ScheduleError if the program of a schedule and the one that it began with give different
    outputs for random arrays (of small integers: no order of a reduction matters)."""
    bind_symbols(s.original, sizes or {})  # refuses what is no size of it
    known = sample_sizes(s.original, sizes or {}, seed)
    arrays = sample_arrays(s.original, known, seed)
    few = count_statements(s.original.body, known) <= INTERPRETED
    if not few and has_gathers(s.original):
        raise CompileError(
            f"{s.original.name} is too large for the interpreter",
            hint="subscripts come from memory, which only the interpreter checks: "
            "make the sizes symbolic, and check small ones",
        )
    scheduled = s.kernel
    if not few and target is None:
        target = cpu.host(threads=1)  # nothing else runs machine code here
        scheduled = _without_instructions(scheduled)
    expected = _outputs(s.original, arrays, known, None if few else target)
    packed = [_pack(s, b.name, a) for b, a in zip(s.original.inputs, arrays, strict=True)]
    found = _outputs(scheduled, packed, known, target)
    for buffer, a, b in zip(s.original.outputs, expected, found, strict=True):
        b = _unpack(s, buffer.name, b, a.shape)
        place = first_difference(a, b)
        if place is not None:
            where = f"{buffer.name}[{', '.join(map(str, place)) or '()'}]"
            shown = ", ".join(f"{k} = {v}" for k, v in known.items())
            error = ScheduleError(
                f"the schedule gives {where} = {b[place]}, where the original has {a[place]}",
                program=s.kernel,
                hint=f"a step of it is wrong: {', '.join(map(str, s.trace))}",
            )
            error.add_context(f"checking {s.original.name} with seed {seed}, {shown or 'no sizes'}")
            raise error


def _without_instructions(program: Kernel) -> Kernel:
    """The program with loops in the place of instructions, so that any processor runs it."""
    taken = State(program).names()

    def expanded(s: Any) -> Any:
        if isinstance(s, Call):
            return loops.copy_block(expand_call(s), taken)
        return map_inner_blocks(s, lambda b: map_block(b, expanded))

    return program.with_(body=map_block(program.body, expanded))


def _outputs(
    program: Kernel, arrays: list[np.ndarray], sizes: Mapping[str, int], target: Target | None
) -> list[np.ndarray]:
    """What a program computes, by the interpreter or as machine code."""
    if target is None:
        return interpret(program, arrays, sizes)
    shapes = [tuple(evaluate_dim(d, sizes) for d in b.shape) for b in program.outputs]
    made = [poisoned(n, b.dtype) for n, b in zip(shapes, program.outputs, strict=True)]
    _compiled(program, target)(*arrays, *made)
    return made


def _layouts(s: State, name: str) -> list[Layout]:
    """How the schedule packed a parameter, step by step."""
    steps = [dict(step.arguments) for step in s.trace if step.primitive == "pack_layout"]
    return [step["layout"] for step in steps if step["buffer"].name == name]


def _pack(s: State, name: str, array: np.ndarray) -> np.ndarray:
    for layout in _layouts(s, name):
        array = arrange(array, TensorType(from_numpy(array.dtype), array.shape, layout))
    return array


def _unpack(s: State, name: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    layouts, shapes = _layouts(s, name), [shape]
    for layout in layouts:
        shapes.append(tuple(map(int, layout.physical_shape(shapes[-1]))))
    for layout, n in zip(reversed(layouts), reversed(shapes[:-1]), strict=True):
        array = read_arranged(array, TensorType(from_numpy(array.dtype), n, layout), n)
    return array
