"""Programs of bundles as text: one line for each bundle.

    { vld_i8 v8, [W_local + 128*k] | lds s0, [X_local + 4*k] | vdots v0, v9, s1, more=1 }

Results stand before what is read. v4:7 is registers 4 to 7, v3+16 what begins at byte 16 of v3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tilewright.analyze.linear import to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.bundles.code import (
    Bundle,
    Code,
    Issue,
    LoopControl,
    Pipelined,
    Repeat,
    cycles,
)
from tilewright.backends.bundles.operations import Operand
from tilewright.backends.bundles.program import BundleProgram
from tilewright.backends.bundles.sections import CORE, Section
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr, constant_value
from tilewright.ir.loop import Alloc, Block, Call, For, If
from tilewright.ir.substitute import Values, substitute

INDENT = "    "


def assembly(program: BundleProgram) -> str:
    """The whole program: transfers, waits and bundles."""
    return "\n".join(_Writer(program).lines())


class _Writer:
    def __init__(self, program: BundleProgram) -> None:
        self.program = program
        self.sections = {s.instruction.name: s for s in program.sections}
        sites = zip(program.stream.sites, program.waits, strict=True)
        self.waits = {id(site.call): waits for site, waits in sites}

    def lines(self) -> Iterator[str]:
        stream, kernel = self.program.stream, self.program.kernel
        yield f"; {kernel.name} on {stream.target.name}: {self.program.timeline.cycles} cycles"
        for buffer, place in stream.places.items():
            yield f"; {buffer} at {place.offset} of {place.memory}"
        yield from self._block(kernel.body, "")

    def _block(self, block: Block, indent: str) -> Iterator[str]:
        for stmt in block:
            if isinstance(stmt, For):
                yield f"{indent}for {stmt.var} in {stmt.extent}:"
                yield from self._block(stmt.body, indent + INDENT)
            elif isinstance(stmt, If):
                yield f"{indent}if {stmt.cond}:"
                yield from self._block(stmt.body, indent + INDENT)
                if stmt.orelse:
                    yield f"{indent}else:"
                    yield from self._block(stmt.orelse, indent + INDENT)
            elif isinstance(stmt, Call):
                for wait in self.waits[id(stmt)]:
                    yield f"{indent}{{ wait {wait.queue}, {wait.left} }}"
                yield from self._call(stmt, indent)
            else:
                assert isinstance(stmt, Alloc)

    def _call(self, call: Call, indent: str) -> Iterator[str]:
        section = self.sections.get(call.instruction.name)
        if section is not None:
            yield from section_lines(section, indent)
        elif call.instruction.queue == CORE:
            yield f"{indent}{{ {call.instruction.name} }}"
        else:
            yield f"{indent}{{ start {call.instruction.queue}: {call} }}"


def section_lines(section: Section, indent: str = "") -> Iterator[str]:
    """The bundles of a section."""
    yield f"{indent}; {section.instruction.name}: {cycles(section.code)} cycles"
    yield from _code(section.code, indent)


def _code(code: Code, indent: str) -> Iterator[str]:
    for item in code:
        if isinstance(item, Repeat):
            ends = "" if item.hardware else " ; by a branch"
            yield f"{indent}{item.var} in {item.count}:{ends}{_note(item.pipelined)}"
            yield from _code(item.code, indent + INDENT)
        else:
            yield f"{indent}{bundle_text(item)}"


def _note(p: Pipelined | None) -> str:
    if p is None:
        return ""
    return (
        f" ; {p.count} iterations of {p.var}, one every {p.interval} cycles (slots need {p.slots},"
        f" chains {p.recurrence}), {p.stages} under way, {p.copies} to a round"
    )


def bundle_text(bundle: Bundle) -> str:
    """{ … | … }"""
    return "{ " + " | ".join(map(_operation, bundle)) + " }" if bundle else "{ nop }"


def _operation(x: Issue | LoopControl) -> str:
    if isinstance(x, LoopControl):
        return f"loop {x.count}" if x.name == "loop" else x.name
    call = x.operation.call
    pairs = list(zip(x.operation.operands, x.registers, strict=True))
    ordered = sorted(pairs, key=lambda pair: not pair[0].writes)
    parts = [_operand(o, register, x.values) for o, register in ordered]
    for f, value in zip(call.instruction.fields, fields_of(x), strict=True):
        parts.append(f"{f.name}={value}")
    return f"{call.instruction.name} {', '.join(parts)}"


def fields_of(x: Issue) -> tuple[int, ...]:
    """The numbers in an operation's fields: other ones where its iteration is special."""
    values = {v: constant_value(e) for v, e in x.values.items()}
    if any(n is None or n >= x.operation.special for n in values.values()):
        return x.operation.fields
    env: Mapping[Expr, np.int64] = {v: np.int64(n or 0) for v, n in values.items()}
    return tuple(int(evaluate_expr(e, env, {})) for e in x.operation.call.fields)


def _operand(o: Operand, register: int | None, values: Values) -> str:
    if register is None:
        place = str(Simplifier()(substitute(to_expr(o.start), values)))
        return f"[{o.buffer.name}{'' if place == '0' else f' + {place}'}]"
    name, offset = o.buffer.memory, o.first % o.row
    if offset:
        return f"{name}{register}+{offset}"
    count = len(o.cells)
    return f"{name}{register}" if count == 1 else f"{name}{register}:{register + count - 1}"
