"""Operations into bundles: loops without inner ones are modulo-scheduled, what stands between them
is placed one operation after another as early as its slots and operands allow.

A pipelined loop becomes three pieces: what happens before all its iterations' stages are busy, the
part that repeats, and the rest. The first overlaps what stands before the loop, the last what
stands behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.backends.bundles.code import Bundle, Code, Issue, LoopControl, Pipelined, Repeat
from tilewright.backends.bundles.code import issues as issues_of
from tilewright.backends.bundles.line import Line
from tilewright.backends.bundles.modulo import (
    Modulo,
    modulo_schedule,
    recurrence_bound,
    resource_bound,
)
from tilewright.backends.bundles.operation_graph import dependences
from tilewright.backends.bundles.operations import Body, Operation, OperationLoop
from tilewright.backends.bundles.rotate_registers import (
    Allocation,
    Span,
    allocate,
    first_free,
    spans,
)
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Buffer, Expr, Var, const
from tilewright.target.target import Bundles, Target

ZERO = const(0)
LONGER = 6  # more cycles between iterations are tried, or a part of the least number as large


class OutOfRegisters(CompileError):
    """The register files do not hold what is in use at the same time."""


def place(body: Body, target: Target) -> Code:
    """The bundles of a piece of a kernel; OutOfRegisters if the files are too small."""
    bundles = target.bundles
    assert bundles is not None
    files = [m for m in target.memories if m.row and m.size]
    free = {m.name: np.ones((m.size or 0) // m.row, bool) for m in files}
    return _Placer(bundles).body(body, {}, free)


Registers = Mapping[tuple[Buffer, int], int]  # where the registers of buffers are
Free = Mapping[str, np.ndarray]  # of each register of a file, whether it is


class _Placer:
    def __init__(self, bundles: Bundles) -> None:
        self.bundles = bundles

    def body(self, body: Body, registers: Registers, free: Free) -> Code:
        """The code of a body, at the end of which all results are there."""
        code: list[Bundle | Repeat] = []
        line = Line(self.bundles)
        for item, (held, left) in zip(body.items, _reserved(body, registers, free), strict=True):
            if isinstance(item, Operation):
                line.put(Issue(item, _registers_of(item, held), {}))
            elif item.body.is_straight and item.body.items:
                line = self._pipelined(item, held, left, code, line)
            elif item.body.items:
                line.drain()
                inner = self.body(item.body, held, left)
                code += [*line.begin_loop(item.count, self._is_hardware(item))]
                code.append(self._repeat(item, inner))
                line = Line(self.bundles)
        line.drain()
        return (*code, *line.bundles())

    # ---------------------------------------------------------- loops

    def _is_hardware(self, loop: OperationLoop) -> bool:
        return _height(loop) <= self.bundles.loops

    def _repeat(self, loop: OperationLoop, inner: Code) -> Repeat:
        """The loop around its code, which ends with a branch if no hardware does it."""
        hardware = self._is_hardware(loop)
        return Repeat(loop.var, loop.count, self._closed(inner, hardware), hardware)

    def _closed(self, inner: Code, hardware: bool) -> Code:
        """The code of a loop with its branch, if it needs one: so many bundles before the end."""
        if hardware:
            return inner
        late = self.bundles.branch
        straight = list(itertools.takewhile(lambda x: not isinstance(x, Repeat), inner[::-1]))
        at = len(inner) - late - 1
        if len(straight) > late and self._control_free(inner, at):
            bundle = inner[at]
            assert not isinstance(bundle, Repeat)
            return (*inner[:at], (*bundle, LoopControl("branch", 0)), *inner[at + 1 :])
        waiting = [()] * self._longest(inner)  # until nothing before takes the slot
        return (*inner, *waiting, (LoopControl("branch", 0),), *([()] * late))

    def _control_free(self, inner: Code, at: int) -> bool:
        """Whether the control slot has room in a bundle of a loop's code, whatever was issued
        before it, also in the round before."""
        slot, used = self.bundles.control, 0
        for k in range(self._longest(inner) + 1):
            bundle = inner[(at - k) % len(inner)]
            if isinstance(bundle, Repeat):
                return False  # not known
            for x in bundle:
                if isinstance(x, LoopControl):
                    used += k == 0
                else:
                    used += x.operation.slot == slot and x.operation.busy > k
        return used < self.bundles.count(slot)

    def _longest(self, inner: Code) -> int:
        """Cycles for which an operation takes the control slot beyond its own."""
        found = [x.operation for x, _ in issues_of(inner)]
        return max((o.busy - 1 for o in found if o.slot == self.bundles.control), default=0)

    def _pipelined(
        self,
        loop: OperationLoop,
        registers: Registers,
        free: Free,
        code: list[Bundle | Repeat],
        line: Line,
    ) -> Line:
        """Places a loop of operations; what stands before it goes to the code, what is under way
        at its end is the beginning of the line that is returned."""
        plan = self._plan(loop, registers, free)
        interval, copies = plan.schedule.interval, plan.allocation.copies
        before = plan.schedule.stages - 1 + max(o.special for o in plan.operations)  # iterations
        windows = (loop.count - before) // copies
        if windows < 2:
            line.overlay(plan.issues(0, plan.end))
            return line
        begin, period = before * interval, copies * interval
        hardware, turn = self.bundles.loops > 0, Var(loop.var.name)
        steady = plan.issues(begin, begin + period, turn * copies)
        inner = self._closed(
            tuple(
                tuple(x for at, x in steady if at == cycle)
                for cycle in range(begin, begin + period)
            ),
            hardware,
        )
        rounds = -(-max(period, line.hazards.last) // period)  # then what stands before is there
        waits = len(inner) - period  # for the branch, at the end of each round
        issues = plan.issues(0, begin + rounds * period)
        line.overlay(
            [(at + waits * max(0, (at - begin) // period), x) for at, x in issues],
            begin,
            [begin + r * len(inner) + k for r in range(rounds) for k in _branches(inner)],
        )
        code += line.begin_loop(windows, hardware)
        code.append(Repeat(turn, windows, inner, hardware, plan.summary))
        end = begin + windows * period
        last = plan.issues(end - plan.longest, plan.end)
        return Line.after(self.bundles, [(at - end, x) for at, x in last])

    def _plan(self, loop: OperationLoop, registers: Registers, free: Free) -> _Plan:
        """The schedule with the least interval for which there are registers."""
        operations = [x for x in loop.body.items if isinstance(x, Operation)]
        private = set(loop.body.buffers)
        edges = dependences(operations, private, loop.var, loop.count)
        slots = dict(self.bundles.slots)
        needed = resource_bound(operations, slots)
        chain = recurrence_bound(len(operations), edges)
        least = max(needed, chain, 1)
        most = least + max(LONGER, least // LONGER)
        for interval in range(least, most + 1):
            schedule = modulo_schedule(operations, edges, slots, interval=interval)
            if schedule is None:
                continue
            allocation = allocate(operations, schedule, private, free)
            if allocation is not None:
                summary = Pipelined(
                    loop.var, loop.count, interval, needed, chain, schedule.stages,
                    allocation.copies,
                )  # fmt: skip
                return _Plan(loop, operations, schedule, allocation, summary, registers)
        raise OutOfRegisters(
            f"no schedule of loop {loop.var} with {least} to {most} cycles between"
            " iterations fits the registers",
            hint="let an iteration do less",
        )


@dataclass(frozen=True, eq=False)
class _Plan:
    """How a loop is pipelined."""

    loop: OperationLoop
    operations: list[Operation]
    schedule: Modulo
    allocation: Allocation
    summary: Pipelined
    registers: Registers  # of buffers that are not an iteration's own

    @property
    def end(self) -> int:
        """A cycle at which everything has been issued."""
        return (self.loop.count + self.schedule.stages) * self.schedule.interval

    @property
    def longest(self) -> int:
        """Cycles that an operation is under way, or in its slot."""
        return max(max(o.latency, o.busy) for o in self.operations)

    def issues(self, low: int, high: int, turn: Expr = ZERO) -> list[tuple[int, Issue]]:
        """What is issued from one cycle to another; iteration i is named i + turn."""
        interval, found = self.schedule.interval, []
        first = max(0, low // interval - self.schedule.stages)
        for i in range(first, min(self.loop.count, high // interval + 1)):
            for o, t in zip(self.operations, self.schedule.times, strict=True):
                if low <= i * interval + t < high:
                    held = _registers_of(o, self.registers, self.allocation, i)
                    issue = Issue(o, held, {self.loop.var: turn + i})
                    found.append((i * interval + t, issue))
        return sorted(found, key=lambda x: x[0])


def _registers_of(
    operation: Operation,
    registers: Registers,
    allocation: Allocation | None = None,
    iteration: int = 0,
) -> tuple[int | None, ...]:
    """The first register of each operand."""
    found: list[int | None] = []
    for o in operation.operands:
        if not o.row:
            found.append(None)
        elif (o.buffer, o.cells.start) in registers:
            found.append(registers[o.buffer, o.cells.start])
        else:
            assert allocation is not None, f"{o.buffer} is no buffer of the piece"
            found.append(allocation.register(o.buffer, o.cells.start, iteration))
    return tuple(found)


def _branches(code: Code) -> list[int]:
    """The bundles that have a branch."""
    controls = (any(isinstance(x, LoopControl) for x in b) if isinstance(b, tuple) else False
                for b in code)  # fmt: skip
    return [k for k, found in enumerate(controls) if found]


def _reserved(body: Body, registers: Registers, free: Free) -> Iterator[tuple[Registers, Free]]:
    """For each item of a body, where its buffers are, and which registers nobody needs then."""
    registers, free = dict(registers), {name: f.copy() for name, f in free.items()}
    waiting = spans(body)
    used: list[Span] = []
    for k in range(len(body.items)):
        for span in [s for s in used if s.last < k or (s.last == k and s.read_last)]:
            used.remove(span)
            held = registers[span.run.buffer, span.run.first]
            free[span.run.buffer.memory][held : held + span.run.size] = True
        while waiting and waiting[0].first <= k:
            span = waiting.pop(0)
            run, file = span.run, free[span.run.buffer.memory]
            at = first_free(file, run.size)
            if at is None:
                needed = "a register" if run.size == 1 else f"{run.size} registers side by side"
                raise OutOfRegisters(
                    f"{run.buffer} needs {needed}, and of the {len(file)} of {run.buffer.memory}"
                    f" {file.sum()} are free",
                    hint="let a block do less",
                )
            file[at : at + run.size] = False
            registers |= {(run.buffer, run.first + c): at + c for c in range(run.size)}
            used.append(span)
        yield registers, free


def _height(loop: OperationLoop) -> int:
    """Loops from this one inwards."""
    inner = [_height(x) for x in loop.body.items if isinstance(x, OperationLoop)]
    return 1 + max(inner, default=0)
