"""What must be true of every tensor program (the rules of tensor.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.identifiers import identifier
from tilewright.ir.dims import canonical
from tilewright.ir.expr import COMBINERS, Buffer, Expr, Load
from tilewright.ir.loop import INDENT, format_parameters
from tilewright.ir.tensor import (
    Axis,
    Item,
    Scan,
    Stage,
    TensorProgram,
    format_scan,
    format_stage,
    stages,
)
from tilewright.ir.verify.expr import BINARY_TAKES, ExprChecker


def verify_program(program: TensorProgram) -> None:
    """CompileError, with the place, where the program breaks a rule of tensor expressions."""
    _ProgramChecker(program).program_()


class _ProgramChecker(ExprChecker):
    def __init__(self, program: TensorProgram) -> None:
        super().__init__()
        self.program = program
        self.at: list[Item] = []  # the scans around, and the stage
        self.defined: set[Buffer] = set()  # by stages that are done
        self.open: set[Buffer] = set()  # that the scans around define

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        p = self.program
        lines = [f"def {identifier(p.name)}({', '.join(format_parameters(p.inputs, p.finite))}):"]
        heads = [_head(item) for item in self.at]
        heads += [] if heads and isinstance(self.at[-1], Stage) else ["..."]
        lines += [INDENT * (depth + 1) + text for depth, text in enumerate(heads)]
        return CompileError(what, program="\n".join(lines), hint=hint)

    def program_(self) -> None:
        for buffer in self.program.inputs:
            self.declare(buffer)
        self.finite(self.program.inputs, self.program.finite)
        self.items(self.program.items)
        for position, buffer in enumerate(self.program.outputs):
            made = buffer in self.defined and buffer not in self.program.outputs[:position]
            self.require(
                made,
                f"output {position}, {buffer.name}, is not the result of a stage of its own",
                "an input, or another output, must be copied by a stage",
            )

    def items(self, items: Sequence[Item]) -> None:
        for item in items:
            check = _ITEMS.get(type(item))
            if check is None:
                raise self.fail(f"{type(item).__name__} is not an item of a program")
            check(self, item)

    def axes(self, axes: Sequence[Axis]) -> None:
        for axis in axes:
            self.dim(axis.extent, f"the extent of {axis.var.name}")
        for axis in axes:
            self.bind(axis.var)

    def unbind(self, axes: Sequence[Axis]) -> None:
        for axis in axes:
            del self.scalars[axis.var.name]

    def reads(self, stage: Stage) -> None:
        """What is read must be defined, and not be what the same stage is defining."""
        roots = [*stage.indices, stage.value, *([] if stage.init is None else [stage.init])]
        for root in roots:
            for load in _loads(root):
                buffer = load.buffer
                ready = (
                    buffer in self.defined or buffer in self.open or buffer in self.program.inputs
                )
                self.require(
                    ready and (buffer != stage.buffer or buffer in self.open),
                    f"{buffer.name} is read before it is defined",
                    "a stage reads inputs and what stages before it define",
                )
                if buffer == stage.buffer:
                    self.own(stage, load)

    def own(self, stage: Stage, load: Load) -> None:
        """A stage of a scan may read what it writes: in the very element it replaces, or where
        only earlier steps wrote. Anything else would depend on the order of its axes."""
        pairs = list(zip(stage.indices, load.indices, strict=True))
        same = stage.op is None and all(canonical(a) == canonical(b) for a, b in pairs)
        earlier = any(_differ(a, b) for a, b in pairs)
        self.require(
            same or earlier,
            f"{load} is read while {stage.buffer.name} is being written",
            "read a copy, or an element that this step does not write",
        )


def _loads(root: Expr) -> list[Load]:
    """Every read below, each distinct part visited once."""
    found, todo, seen = [], [root], set()
    while todo:
        e = todo.pop()
        if id(e) not in seen:
            seen.add(id(e))
            found += [e] if isinstance(e, Load) else []
            todo += [c for c in e.children() if isinstance(c, Expr)]
    return found


def _differ(a: Expr, b: Expr) -> bool:
    """Whether two subscripts are certainly different."""
    gap = canonical(a - b)
    return isinstance(gap, int) and gap != 0


def _head(item: Item) -> str:
    if isinstance(item, Stage):
        return format_stage(item)
    return format_scan(item) if isinstance(item, Scan) else str(item)


def _check_stage(c: _ProgramChecker, s: Stage) -> None:
    c.at.append(s)
    if s.buffer.name not in c.buffers:
        c.declare(s.buffer)
    c.require(s.buffer not in c.program.inputs, f"input {s.buffer.name} is defined by a stage")
    c.axes(s.axes)
    c.element(s.buffer, s.indices)
    _check_place(c, s)
    if s.init is not None:
        c.expr(s.init)
    c.axes(s.reduce)
    c.expr(s.value)
    c.reads(s)
    c.require(
        s.value.dtype == s.buffer.dtype,
        f"a value of {s.value.dtype} is stored in {s.buffer}",
        f"cast({s.buffer.dtype}, …)",
    )
    _check_reduction(c, s)
    c.unbind(s.axes + s.reduce)
    c.defined.add(s.buffer)
    c.at.pop()


def _check_place(c: _ProgramChecker, s: Stage) -> None:
    """Outside scans the subscripts are the axes; inside, each axis is one of the subscripts."""
    variables = tuple(a.var for a in s.axes)
    if s.buffer not in c.open:
        c.require(s.buffer not in c.defined, f"{s.buffer.name} is defined by another stage too")
        whole = s.indices == variables and tuple(a.extent for a in s.axes) == s.buffer.shape
        c.require(
            whole,
            f"the stage does not define all of {s.buffer} by its axes",
            "only in a scan may a stage write a part of a buffer",
        )
        return
    for var in variables:
        c.require(
            s.indices.count(var) == 1,
            f"axis {var.name} is not a subscript of {s.buffer.name} by itself",
            "two of its iterations may write one element; make it the step of a scan",
        )


def _check_reduction(c: _ProgramChecker, s: Stage) -> None:
    if s.op is None:
        c.require(not s.reduce, f"{s.buffer.name} is reduced without an operator")
        c.require(s.init is None, f"{s.buffer.name} has a first value but no operator")
        return
    c.require(
        s.op in COMBINERS,
        f"{s.op.value} cannot combine a reduction: it is not commutative",
        "the operators are " + ", ".join(sorted(op.value for op in COMBINERS)),
    )
    c.require(s.value.dtype.kind in BINARY_TAKES[s.op], f"{s.op.value} of {s.value.dtype}")
    if s.init is None:
        raise c.fail(
            f"the reduction of {s.buffer.name} has no first value",
            f"neutral({s.op.value}, {s.value.dtype}) changes nothing",
        )
    c.require(
        s.init.dtype == s.value.dtype,
        f"the first value is {s.init.dtype}, the others are {s.value.dtype}",
    )


def _check_scan(c: _ProgramChecker, s: Scan) -> None:
    c.at.append(s)
    c.axes([s.step])
    before, inner = c.open, dict.fromkeys(stage.buffer for stage in stages(s.items))
    for buffer in inner:
        if buffer in before:
            continue
        c.require(buffer not in c.program.inputs, f"input {buffer.name} is defined by a stage")
        c.require(
            buffer not in c.defined,
            f"{buffer.name} is defined by another stage too",
            "all stages that define it must stand in one scan",
        )
        c.declare(buffer)
    c.open = before | set(inner)
    c.items(s.items)
    c.open = before
    c.unbind([s.step])
    c.at.pop()


_ITEMS: dict[type, Callable[[_ProgramChecker, Any], None]] = {
    Stage: _check_stage,
    Scan: _check_scan,
}
