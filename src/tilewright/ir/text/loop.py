"""Reading kernels back from their text form."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.identifiers import identifier, name_of
from tilewright.ir.expr import BinaryOp, Buffer, Expr
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Bound,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Pieces,
    Prefetch,
    Store,
)
from tilewright.ir.text.expr import ExprReader
from tilewright.ir.text.source import reads_text


@reads_text
def parse_kernel(text: str, instructions: Sequence[Instruction] = ()) -> Kernel:
    """The kernel that prints as `text`, which may call these instructions."""
    return _KernelReader(text, instructions).kernel()


class _KernelReader(ExprReader):
    def __init__(self, text: str, instructions: Sequence[Instruction]) -> None:
        super().__init__(text)
        self.instructions = {identifier(i.name): i for i in instructions}
        self.parts: dict[str, Expr | None] = {}  # named for the next statement: what was called so

    def kernel(self) -> Kernel:
        self.scalars[identifier(WORKER.name)] = WORKER
        body = self.symbols(self.function.body)
        params: dict[str, list[Buffer]] = {"in": [], "out": [], "scratch": []}
        finite = []
        for param in self.parameters(self.function):
            role, kind = self.role(param, "finite", "out", "scratch")
            if role == "finite":
                finite.append(name_of(param.arg))
                role = "in"
            later = [r for r in list(params)[list(params).index(role) + 1 :] if params[r]]
            if later:
                raise self.error(param, "a parameter is out of order", "inputs, outputs, scratch")
            params[role].append(self.buffer(param, param.arg, kind))
        inputs, outputs, scratch = map(tuple, params.values())
        name = name_of(self.function.name)
        return Kernel(name, inputs, outputs, self.block(body), scratch, tuple(finite))

    def block(self, body: list[ast.stmt]) -> Block:
        """Statements; what they allocate is forgotten behind them."""
        outside = set(self.buffers)
        out = tuple(s for node in body for s in self.named(node))
        if self.parts:
            raise self.error(body[-1], "no statement has this part", "a store or an accumulation")
        for text in [t for t in self.buffers if t not in outside]:
            del self.buffers[text]
        return out

    def named(self, node: ast.stmt) -> Block:
        """A statement, or a line that names a part for the next one that is none."""
        if isinstance(node, ast.Assign) and _is_let(node):
            self.name_part(node)
            return ()
        if self.parts and not isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)):
            raise self.error(node, "no statement has this part", "a store or an accumulation")
        out = self.statement(node)
        for text, before in self.parts.items():
            if before is None:
                del self.scalars[text]
            else:
                self.scalars[text] = before
        self.parts = {}
        return out

    def name_part(self, node: ast.Assign) -> None:
        """name = let(expr)"""
        form = "name = let(expression)"
        if len(node.targets) > 1:
            raise self.error(node, "this is not a name for a part", form)
        text = self.identifier(node.targets[0], "a name")
        call = self.call(node.value, form)[1]
        self.no_keywords(call, form)
        part = self.expr(*self.arguments(call, form, 1, 1))
        self.parts.setdefault(text, self.scalars.get(text))
        self.scalars[text] = part

    def statement(self, node: ast.stmt) -> Block:
        read = _STATEMENTS.get(type(node))
        if read is None:
            raise self.error(node, "this is not a statement of the text form", _KNOWN)
        return read(self, node)


def _is_let(node: ast.Assign) -> bool:
    call = node.value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "let"


_KNOWN = "a loop, if, alloc, =, +=, accumulate(…), barrier(…) or an instruction"
_LOOP = 'for i in range(n), parallel(n), vectorize(n), unroll(n) or bind(n, "axis")'
_KINDS = {kind.value: kind for kind in LoopKind}
_BIND = "bind"


def _read_for(r: _KernelReader, node: ast.For) -> Block:
    text, call = r.call(node.iter, _LOOP)
    if (text != _BIND and text not in _KINDS) or node.orelse:
        raise r.error(node.orelse[0] if node.orelse else node.iter, "this is not a loop", _LOOP)
    r.no_keywords(call, _LOOP)
    most = 2 if text in (_BIND, LoopKind.PARALLEL.value) else 1
    count, *more = r.arguments(call, _LOOP, 2 if text == _BIND else 1, most)
    extent = r.dim(count)
    kind: LoopKind | Bound | Pieces = _KINDS.get(text, LoopKind.PARALLEL)
    if more and text == _BIND:
        kind = Bound(_read_axis(r, more[0], _LOOP))
    elif more:
        kind = Pieces(r.integer(more[0], "a number of pieces"))
    name = r.identifier(node.target, "a loop variable")
    var = r.scalar(node.target, name)
    body = r.block(node.body)
    del r.scalars[name]
    return (For(var, extent, body, kind),)


def _read_axis(r: _KernelReader, node: ast.expr, form: str) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise r.error(node, "this is not the name of an axis", form)
    return node.value


def _read_if(r: _KernelReader, node: ast.If) -> Block:
    return (If(r.expr(node.test), r.block(node.body), r.block(node.orelse)),)


def _read_assign(r: _KernelReader, node: ast.Assign) -> Block:
    if len(node.targets) > 1:
        raise r.error(node, "this is not a statement of the text form", "one target")
    (target,) = node.targets
    if isinstance(target, ast.Name):
        form = "an allocation such as t = alloc(f32[16])"
        text, call = r.call(node.value, form)
        if text != "alloc":
            raise r.error(node, "this is not an allocation", form)
        r.no_keywords(call, form)
        return (Alloc(r.buffer(target, target.id, *r.arguments(call, form, 1, 1))),)
    return (Store(*r.place(target), r.expr(node.value)),)


def _read_increment(r: _KernelReader, node: ast.AugAssign) -> Block:
    if not isinstance(node.op, ast.Add):
        raise r.error(node, "this is not a statement of the text form", "+= or accumulate(…)")
    buffer, indices = r.place(node.target)
    return (Accumulate(buffer, indices, BinaryOp.ADD, r.expr(node.value)),)


def _read_call(r: _KernelReader, node: ast.Expr) -> Block:
    text, call = r.call(node.value, _KNOWN)
    if text in _WORDS:
        return _WORDS[text](r, call)
    if text not in r.instructions:
        known = [*_WORDS, *r.instructions]
        raise r.unknown(node, "statement or instruction", name_of(text), known)
    return _read_instruction(r, call, r.instructions[text])


def _read_accumulate(r: _KernelReader, call: ast.Call) -> Block:
    form = "accumulate(operator, element, value)"
    r.no_keywords(call, form)
    op, place, value = r.arguments(call, form, 3, 3)
    buffer, indices = r.place(place)
    return (Accumulate(buffer, indices, r.operator(op), r.expr(value)),)


def _read_barrier(r: _KernelReader, call: ast.Call) -> Block:
    form = 'barrier("axis")'
    r.no_keywords(call, form)
    (axis,) = r.arguments(call, form, 1, 1)
    return (Barrier(_read_axis(r, axis, form)),)


def _read_nontemporal(r: _KernelReader, call: ast.Call) -> Block:
    form = "nontemporal(element, value)"
    r.no_keywords(call, form)
    place, value = r.arguments(call, form, 2, 2)
    return (Store(*r.place(place), r.expr(value), nontemporal=True),)


def _read_masked(r: _KernelReader, call: ast.Call) -> Block:
    form = "masked(mask, element, value)"
    r.no_keywords(call, form)
    mask, place, value = r.arguments(call, form, 3, 3)
    return (Store(*r.place(place), r.expr(value), mask=r.expr(mask)),)


def _read_prefetch(r: _KernelReader, call: ast.Call) -> Block:
    form = "prefetch(element, level)"
    r.no_keywords(call, form)
    place, level = r.arguments(call, form, 2, 2)
    if not isinstance(level, ast.Constant) or type(level.value) is not int:
        raise r.error(level, "this is not the number of a cache", form)
    return (Prefetch(*r.place(place), level.value),)


def _read_instruction(r: _KernelReader, call: ast.Call, instruction: Instruction) -> Block:
    fields = [identifier(f.name) for f in instruction.fields]
    parts = [b.name for b in instruction.operands] + [f"{f}=…" for f in fields]
    form = f"{instruction.name}({', '.join(parts)})"
    count = len(instruction.operands)
    places = r.arguments(call, form, count, count)
    regions = [
        _read_region(r, place, operand)
        for place, operand in zip(places, instruction.operands, strict=True)
    ]
    given = r.keywords(call, form)
    if list(given) != fields:
        raise r.error(call, "the instruction's fields do not fit", form)
    return (Call(instruction, tuple(regions), tuple(map(r.expr, given.values()))),)


def _read_region(r: _KernelReader, place: ast.expr, operand: Buffer) -> Region:
    """Subscripts of the operand's own axes _0, _1, …"""
    axes = [axis(k) for k in range(len(operand.shape))]
    for var in axes:
        r.scalar(place, identifier(var.name))
    region = Region(*r.place(place))
    for var in axes:
        del r.scalars[identifier(var.name)]
    return region


_WORDS: dict[str, Callable[[_KernelReader, ast.Call], Block]] = {
    "accumulate": _read_accumulate,
    "barrier": _read_barrier,
    "masked": _read_masked,
    "nontemporal": _read_nontemporal,
    "prefetch": _read_prefetch,
}

_STATEMENTS: dict[type, Callable[[_KernelReader, Any], Block]] = {
    ast.For: _read_for,
    ast.If: _read_if,
    ast.Assign: _read_assign,
    ast.AugAssign: _read_increment,
    ast.Expr: _read_call,
    ast.Pass: lambda r, node: (),
}
