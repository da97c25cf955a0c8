"""The proof that bundles do what their piece of the program says. It knows nothing of how they were
made.

Slots and registers: the operations are followed twice, in the order of the program, noting whose
result each one reads, and as they are issued, cycle by cycle, with the registers that they name.
Both must agree, every result must be there when it is read, no register may be taken while a result
is on its way to it, and no slot may be used twice. A loop that repeats is the same each time it
does: it is followed for as many rounds as results are under way, which stand for all others.

Memory: see check_memory.py, which looks at all iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.backends.bundles.check_memory import check_instances
from tilewright.backends.bundles.code import (
    Bundle,
    Code,
    Issue,
    LoopControl,
    Repeat,
    cycles,
    issues,
    loops,
)
from tilewright.backends.bundles.operations import Body, Operand, Operation, OperationLoop
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Var, constant_value
from tilewright.target.target import Bundles, Target

ROUNDS = 2  # of a loop that is not pipelined: one, and one behind another

Instance = tuple[int, tuple[tuple[str, int], ...]]  # the operation, and its loops' variables
Register = tuple[str, int]  # file and number
Env = Mapping[Var, int]  # the iteration of each loop


def check(body: Body, code: Code, target: Target) -> str | None:
    """What is wrong with the code of a piece of a program; None if nothing is."""
    bundles = target.bundles
    assert bundles is not None
    fault = check_loops(code, bundles) or check_instances(body, code)
    if fault is not None:
        return fault
    rounds = _rounds(code)
    followed = _Program(body, rounds)
    return _Issued(followed, bundles, rounds).run(code)


@dataclass(frozen=True)
class _Rounds:
    """How often loops are followed: `windows` of the repeating part of pipelined ones, by variable,
    and `counts` iterations of all."""

    windows: Mapping[Var, int]
    counts: Mapping[Var, int]


def _rounds(code: Code) -> _Rounds:
    windows: dict[Var, int] = {}
    counts: dict[Var, int] = {}
    longest = max((x.operation.latency for x, _ in issues(code)), default=1)
    for loop in loops(code):
        if loop.pipelined is None:
            counts[loop.var] = min(loop.count, ROUNDS)
            continue
        period = cycles(loop.code)
        windows[loop.var] = min(loop.count, 2 + -(-longest // period))
        left_out = loop.count - windows[loop.var]
        counts[loop.var] = loop.pipelined.count - left_out * loop.pipelined.copies
    return _Rounds(windows, counts)


# ---------------------------------------------------------------- in the program's order


class _Program:
    """The operations in the order of the program: whose results each reads in registers."""

    def __init__(self, body: Body, rounds: _Rounds) -> None:
        self.rounds = rounds
        self.operations = {o.number: o for o in body.walk()}
        self.expected: dict[Instance, dict[tuple[int, int], Instance | None]] = {}
        self._writers: dict[tuple[Buffer, int], Instance] = {}
        self._body(body, {})

    def _body(self, body: Body, env: Env) -> None:
        for cell in [c for c in self._writers if c[0] in body.buffers]:
            del self._writers[cell]
        for item in body.items:
            if isinstance(item, OperationLoop):
                for i in range(self.rounds.counts.get(item.var, item.count)):
                    self._body(item.body, {**env, item.var: i})
            else:
                self._operation(item, env)

    def _operation(self, operation: Operation, env: Env) -> None:
        me = _instance(operation, env)
        held = [(k, o) for k, o in enumerate(operation.operands) if o.row]
        self.expected[me] = {
            (k, n): self._writers.get((o.buffer, cell))
            for k, o in held
            if o.reads
            for n, cell in enumerate(o.cells)
        }
        for _, o in held:
            if o.writes:
                self._writers.update({(o.buffer, cell): me for cell in o.cells})

    def name(self, x: Instance) -> str:
        number, values = x
        where = ", ".join(f"{name}={i}" for name, i in values)
        return f"{self.operations[number]}" + (f" at {where}" if where else "")


def _instance(operation: Operation, env: Env) -> Instance:
    """One operation of one iteration of its loops."""
    return operation.number, tuple(sorted((v.name, i) for v, i in env.items()))


# ---------------------------------------------------------------- as issued


@dataclass(frozen=True)
class _Held:
    """Who wrote a register last, and from when on that is there."""

    writer: Instance
    landing: int


class _Issued:
    """The operations as bundles issue them."""

    def __init__(self, program: _Program, bundles: Bundles, rounds: _Rounds) -> None:
        self.program, self.rounds = program, rounds
        self.slots, self.control = dict(bundles.slots), bundles.control
        self.held: dict[Register, _Held] = {}
        self.used: dict[tuple[str, int], int] = {}
        self.now = 0
        self.last = 0  # when everything is there

    def run(self, code: Code) -> str | None:
        fault = self._code(code, {})
        if fault is None and self.last > self.now:
            return f"the code ends at cycle {self.now}, and a result is there at cycle {self.last}"
        return fault

    def _code(self, code: Code, env: Env) -> str | None:
        left_out: dict[Var, int] = {}  # iterations that are not followed, once they are behind
        for item in code:
            fault = (
                self._repeat(item, env, left_out)
                if isinstance(item, Repeat)
                else self._bundle(item, env, left_out)
            )
            if fault is not None:
                return fault
        return None

    def _repeat(self, loop: Repeat, env: Env, left_out: dict[Var, int]) -> str | None:
        pipelined = loop.pipelined
        count = (self.rounds.windows if pipelined else self.rounds.counts)[loop.var]
        for i in range(count):
            fault = self._code(loop.code, {**env, loop.var: i})
            if fault is not None:
                return fault
        if pipelined is not None:
            left_out[loop.var] = (loop.count - count) * pipelined.copies
        return None

    def _bundle(self, bundle: Bundle, env: Env, left_out: Mapping[Var, int]) -> str | None:
        for x in bundle:
            fault = self._take_slot(x)
            if fault is not None:
                return fault
        issued = [(x, self._env(x, env, left_out)) for x in bundle if isinstance(x, Issue)]
        for step in (self._read, self._write):
            for x, mine in issued:
                fault = step(x, _instance(x.operation, mine))
                if fault is not None:
                    return fault
        self.now += 1
        return None

    def _take_slot(self, x: Issue | LoopControl) -> str | None:
        slot, busy = self.control, 1
        if isinstance(x, Issue):
            slot, busy = x.operation.slot, x.operation.busy
        for cycle in range(self.now, self.now + busy):
            count = self.used[slot, cycle] = self.used.get((slot, cycle), 0) + 1
            if count > self.slots[slot]:
                return f"cycle {cycle} has {count} operations in slot {slot}"
        return None

    def _env(self, x: Issue, env: Env, left_out: Mapping[Var, int]) -> Env:
        """The variables of the loops around an operation."""
        found = dict(env)
        for var, value in x.values.items():
            number = constant_value(value)
            if number is None:
                known: Mapping[Expr, np.int64] = {v: np.int64(i) for v, i in env.items()}
                number = int(evaluate_expr(value, known, {}))
            found[var] = int(number) - left_out.get(var, 0)
        return found

    def _registers(self, x: Issue) -> Iterator[tuple[int, Operand, int, Register]]:
        """The registers of an operation: the operand's number, the operand, which of its registers
        it is, and where that is."""
        for k, (o, register) in enumerate(zip(x.operation.operands, x.registers, strict=True)):
            if register is not None:
                for n in range(len(o.cells)):
                    yield k, o, n, (o.buffer.memory, register + n)

    def _read(self, x: Issue, me: Instance) -> str | None:
        self.last = max(self.last, self.now + x.operation.latency)
        for k, operand, n, where in self._registers(x):
            wanted = self.program.expected[me][k, n] if operand.reads else None
            if wanted is None:
                continue
            held = self.held.get(where)
            if held is None or held.writer != wanted:
                found = self.program.name(held.writer) if held is not None else "nothing"
                return (
                    f"{self.program.name(me)} reads {where[0]}{where[1]} at cycle {self.now}, which"
                    f" has the result of {found}, not of {self.program.name(wanted)}"
                )
            if held.landing > self.now:
                return (
                    f"{self.program.name(me)} reads {where[0]}{where[1]} at cycle {self.now}, and"
                    f" the result of {self.program.name(wanted)} is there at cycle {held.landing}"
                )
        return None

    def _write(self, x: Issue, me: Instance) -> str | None:
        for _, operand, _, where in self._registers(x):
            if not operand.writes:
                continue
            held = self.held.get(where)
            if held is not None and held.landing > self.now and held.writer != me:
                return (
                    f"{self.program.name(me)} writes {where[0]}{where[1]} at cycle {self.now},"
                    f" while the result of {self.program.name(held.writer)} is on its way there"
                )
            self.held[where] = _Held(me, self.now + x.operation.latency)
        return None


# ---------------------------------------------------------------- loops


def check_loops(code: Code, bundles: Bundles) -> str | None:
    """What is wrong with how loops are begun and ended; None if nothing is."""
    begun: list[int] = []
    for item in code:
        if not isinstance(item, Repeat):
            begun += [x.count for x in item if isinstance(x, LoopControl) and x.name == "loop"]
            continue
        depth = _hardware_depth((item,))
        if item.hardware and depth > bundles.loops:
            return f"loop {item.var} makes {depth} hardware loops in one another"
        if item.hardware and item.count not in begun:
            return f"nothing begins loop {item.var} of {item.count}"
        if item.hardware:
            begun.remove(item.count)
        elif not _ends_with_branch(item.code, bundles.branch):
            return f"loop {item.var} has no branch {bundles.branch} bundles before its end"
        fault = check_loops(item.code, bundles)
        if fault is not None:
            return fault
    return None


def _hardware_depth(code: Code) -> int:
    inner = (_hardware_depth(x.code) + x.hardware for x in code if isinstance(x, Repeat))
    return max(inner, default=0)


def _ends_with_branch(code: Code, late: int) -> bool:
    if len(code) <= late or any(isinstance(x, Repeat) for x in code[len(code) - late - 1 :]):
        return False
    bundle = code[len(code) - late - 1]
    assert not isinstance(bundle, Repeat)
    return any(isinstance(x, LoopControl) and x.name == "branch" for x in bundle)
