"""Reading tensor programs back from their text form."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilewright.base.identifiers import name_of
from tilewright.ir.expr import Expr
from tilewright.ir.tensor import Axis, Item, Scan, Stage, TensorProgram
from tilewright.ir.text.expr import ExprReader
from tilewright.ir.text.source import reads_text


@reads_text
def parse_program(text: str) -> TensorProgram:
    """The tensor program that prints as `text`."""
    return _ProgramReader(text).program()


class _ProgramReader(ExprReader):
    def program(self) -> TensorProgram:
        *body, last = self.symbols(self.function.body) or [self.function]
        if not isinstance(last, ast.Return):
            raise self.error(last, "the function does not end here", "return x, …")
        inputs, finite = [], []
        for param in self.parameters(self.function):
            role, kind = self.role(param, "finite")
            inputs.append(self.buffer(param, param.arg, kind))
            finite += [inputs[-1].name] * (role == "finite")
        items = self.items_of(body)
        outputs = []
        for node in returned(last):
            text = self.identifier(node, "a buffer")
            if text not in self.buffers:
                raise self.unknown(node, "buffer", name_of(text), list(self.buffers))
            outputs.append(self.buffers[text])
        name = name_of(self.function.name)
        return TensorProgram(name, tuple(inputs), items, tuple(outputs), tuple(finite))

    def items_of(self, body: list[ast.stmt]) -> tuple[Item, ...]:
        return tuple(item for node in body for item in self.item(node))

    def item(self, node: ast.stmt) -> tuple[Item, ...]:
        read = _ITEMS.get(type(node))
        if read is None:
            raise self.error(node, "this is not a statement of the text form", _KNOWN)
        return read(self, node)

    def axes(self, call: ast.Call, form: str) -> tuple[Axis, ...]:
        """Keyword arguments i=4, j=n as axes; their variables stay defined."""
        given = self.keywords(call, form)
        extents = [self.dim(extent) for extent in given.values()]
        named = [(k, self.scalar(call, k)) for k in given]
        return tuple(Axis(var, extent) for (_, var), extent in zip(named, extents, strict=True))


def returned(node: ast.Return) -> list[ast.expr]:
    """What a return statement gives."""
    if node.value is None:
        return []
    return node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]


_KNOWN = "x = tensor(type), define(element, value, i=extent, …), or for t in scan(extent)"
_DEFINE = "define(element, value, i=extent, …)"
_REDUCE = "reduce(operator, init, value, k=extent, …)"
_SCAN = "for t in scan(extent)"


def _read_tensor(r: _ProgramReader, node: ast.Assign) -> tuple[Item, ...]:
    form = "x = tensor(type)"
    text, call = r.call(node.value, form)
    if text != "tensor" or len(node.targets) > 1:
        raise r.error(node, "this is not a statement of the text form", _KNOWN)
    r.no_keywords(call, form)
    target = node.targets[0]
    r.buffer(target, r.identifier(target, "a buffer"), *r.arguments(call, form, 1, 1))
    return ()


def _read_define(r: _ProgramReader, node: ast.Expr) -> tuple[Item, ...]:
    text, call = r.call(node.value, _KNOWN)
    if text != "define":
        raise r.error(node, "this is not a statement of the text form", _KNOWN)
    place, value = r.arguments(call, _DEFINE, 2, 2)
    outside = dict(r.scalars)
    axes = r.axes(call, _DEFINE)
    buffer, indices = r.place(place)
    stage = _stage(r, value, lambda *rest: Stage(buffer, axes, indices, *rest))
    r.scalars = outside
    return (stage,)


def _stage(r: _ProgramReader, value: ast.expr, make: Callable[..., Stage]) -> Stage:
    """The stage with its value, or with value, reduction axes, operator and first value."""
    called = value.func if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or not isinstance(called, ast.Name) or called.id != "reduce":
        return make(r.expr(value))
    op, init, inner = r.arguments(value, _REDUCE, 3, 3)
    none = isinstance(init, ast.Constant) and init.value is None
    first: Expr | None = None if none else r.expr(init)
    over = r.axes(value, _REDUCE)
    return make(r.expr(inner), over, r.operator(op), first)


def _read_scan(r: _ProgramReader, node: ast.For) -> tuple[Item, ...]:
    text, call = r.call(node.iter, _SCAN)
    if text != "scan" or node.orelse:
        raise r.error(node, "this is not a statement of the text form", _SCAN)
    r.no_keywords(call, _SCAN)
    extent = r.dim(*r.arguments(call, _SCAN, 1, 1))
    outside = dict(r.scalars)
    step = Axis(r.scalar(node.target, r.identifier(node.target, "a variable")), extent)
    items = r.items_of(node.body)
    r.scalars = outside
    return (Scan(step, items),)


_ITEMS: dict[type, Callable[[_ProgramReader, Any], tuple[Item, ...]]] = {
    ast.Assign: _read_tensor,
    ast.Expr: _read_define,
    ast.For: _read_scan,
    ast.Pass: lambda r, node: (),
}
