"""Bundles run cycle by cycle, on data: slow, and the definition.

All operations of a bundle read when it is issued, and then write; results are in registers or
memory `latency` cycles later. Reading or writing what a result is on its way to is an error, and
so is a slot that is used twice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.bundles.code import Bundle, Code, Issue, LoopControl, Repeat
from tilewright.backends.bundles.operations import Operand
from tilewright.backends.bundles.program import BundleProgram
from tilewright.backends.stream.addresses import Place
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Var, as_expr
from tilewright.sim.data import fresh_memory, get_outputs, lists_of, put_inputs
from tilewright.sim.meaning import site_code
from tilewright.target.target import Target

Env = Mapping[Expr, np.int64]


@dataclass(frozen=True, eq=False)
class _Pending:
    """A result on its way: when it is there, where, and whose it is."""

    landing: int
    memory: str
    first: int
    data: np.ndarray
    issue: Issue


class Machine:
    """Slots, registers and memories of a chip; memories are bytes by name, changed in place."""

    def __init__(
        self,
        target: Target,
        host: Target,
        memories: Mapping[str, np.ndarray],
        places: Mapping[Buffer, Place],
    ) -> None:
        assert target.bundles is not None
        self.host, self.places = host, places
        self.slots, self.control = dict(target.bundles.slots), target.bundles.control
        sizes = {m.name: m.size for m in target.memories if m.row and m.size is not None}
        files = {name: fresh_memory(size) for name, size in sizes.items()}
        self.memories: dict[str, np.ndarray] = {**memories, **files}
        self.pending: list[_Pending] = []
        self.now = 0

    def run(self, code: Code, env: Env) -> None:
        """Issues the code's bundles; `env` has the variables of the loops around it."""
        for item in code:
            if isinstance(item, Repeat):
                for i in range(item.count):
                    self.run(item.code, {**env, item.var: np.int64(i)})
            else:
                self._issue(item, env)

    def drain(self) -> None:
        """Waits for what is on its way."""
        self.now = max([self.now, *(p.landing for p in self.pending)])
        self._land()

    def _issue(self, bundle: Bundle, env: Env) -> None:
        self._land()
        self._check_slots(bundle)
        done = [self._execute(x, env) for x in bundle if isinstance(x, Issue)]
        for results in done:
            for result in results:
                self._check(result.memory, result.first, len(result.data), result.issue, "writes")
                self.pending.append(result)
        self.now += 1

    def _land(self) -> None:
        for p in self.pending:
            if p.landing <= self.now:
                self.memories[p.memory][p.first : p.first + len(p.data)] = p.data
        self.pending = [p for p in self.pending if p.landing > self.now]

    def _check_slots(self, bundle: Bundle) -> None:
        used = [self.control if isinstance(x, LoopControl) else x.operation.slot for x in bundle]
        for slot in used:
            if used.count(slot) > self.slots[slot]:
                raise CompileError(
                    f"the bundle of cycle {self.now} has {used.count(slot)} operations in slot"
                    f" {slot}, and there are {self.slots[slot]}"
                )

    def _check(self, memory: str, first: int, size: int, issue: Issue, does: str) -> None:
        """No result may be on its way to what is touched."""
        for p in self.pending:
            if p.memory == memory and p.first < first + size and first < p.first + len(p.data):
                raise CompileError(
                    f"{issue.operation} {does} byte {max(first, p.first)} of {memory} at cycle"
                    f" {self.now}, and the result of {p.issue.operation} is there at cycle"
                    f" {p.landing}"
                )

    def _execute(self, x: Issue, env: Env) -> list[_Pending]:
        """What an operation makes of what there is now."""
        values: Env = {v: np.int64(evaluate_expr(e, env, {})) for v, e in x.values.items()}
        here: Env = {**env, **values}
        call, operation = x.operation.call, x.operation
        steps = tuple(o.steps for o in operation.operands)
        code = site_code(call.instruction, self.host, steps)
        fields = np.array([int(evaluate_expr(as_expr(f), here, {})) for f in call.fields], np.int64)
        results: list[_Pending] = []
        pointers = (ctypes.c_void_p * max(len(steps), 1))()
        held = []
        for k, (operand, register) in enumerate(zip(operation.operands, x.registers, strict=True)):
            memory, first = self._place(operand, register, here)
            if operand.reads:
                self._check(memory, first, operand.span, x, "reads")
            data = self.memories[memory][first : first + operand.span].copy()
            held.append(data)
            pointers[k] = data.ctypes.data + operand.lead
            if operand.writes:
                landing = self.now + operation.latency
                results.append(_Pending(landing, memory, first, data, x))
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address)
        function(fields.ctypes.data, ctypes.cast(pointers, ctypes.c_void_p), None)
        return results

    def _place(self, operand: Operand, register: int | None, env: Env) -> tuple[str, int]:
        """The memory of an operand, and its first byte there."""
        if register is not None:
            return operand.buffer.memory, register * operand.row + operand.first % operand.row
        place = self.places[operand.buffer]
        first = place.offset
        for atom, k in operand.start.items():
            first += k if atom is None else k * int(evaluate_expr(atom, env, {}))
        return place.memory, first


def run_cycles(
    program: BundleProgram,
    target: Target,
    host: Target,
    inputs: Mapping[Buffer, np.ndarray],
    outputs: Sequence[Buffer],
) -> tuple[list[np.ndarray], int]:
    """The outputs of a program for these inputs, and the cycles that its sections took: bundle by
    bundle, and each transfer at once, where it is started."""
    stream = program.stream
    memories = put_inputs(stream, inputs)
    machine = Machine(target, host, memories, stream.places)
    sections = {s.instruction.name: s for s in program.sections}
    for i, k in enumerate(stream.site):
        site = stream.sites[k]
        section = sections.get(site.instruction.name)
        if section is None:
            _transfer(program, i, host, memories)
            continue
        names = [f.name for f in site.instruction.fields]
        values = stream.fields[i, : len(names)]
        machine.run(section.code, {Var(n): np.int64(v) for n, v in zip(names, values, strict=True)})
        machine.drain()
    return get_outputs(stream, machine.memories, outputs), machine.now


def _transfer(
    program: BundleProgram, i: int, host: Target, memories: Mapping[str, np.ndarray]
) -> None:
    """What instruction i of the stream does."""
    stream = program.stream
    site = stream.sites[stream.site[i]]
    code = site_code(site.instruction, host)
    addresses = stream.addresses[i, : len(site.memories)].tolist()
    pointers = (ctypes.c_void_p * max(len(addresses), 1))(
        *(memories[m].ctypes.data + a for m, a in zip(site.memories, addresses, strict=True))
    )
    fields = np.ascontiguousarray(stream.fields[i], np.int64)
    entries = lists_of(site)
    lists = np.array([0 if x is None else x.ctypes.data for x in (*entries, None)], np.int64)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address)
    function(fields.ctypes.data, ctypes.cast(pointers, ctypes.c_void_p), lists.ctypes.data)
