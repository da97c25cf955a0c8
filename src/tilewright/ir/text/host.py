"""Reading host programs back from their text form."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tilewright.base.identifiers import name_of
from tilewright.ir.dims import size_of
from tilewright.ir.expr import Symbol
from tilewright.ir.text.graph import TypeReader
from tilewright.ir.text.source import reads_text
from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostProgram,
    HostStep,
    KernelCall,
    MemoryKind,
    MemorySpec,
    Slot,
    Submit,
    SymbolSpec,
    Wait,
)
from tilewright.program.size import Size


@reads_text
def parse_host(text: str) -> HostProgram:
    """The host program that prints as `text`."""
    return _HostReader(text).host()


class _HostReader(TypeReader):
    def host(self) -> HostProgram:
        *body, last = self.symbols(self.function.body) or [self.function]
        symbols = tuple(
            SymbolSpec(s.name, s.lower, s.upper)
            for s in self.scalars.values()
            if isinstance(s, Symbol)
        )
        if not isinstance(last, ast.Return):
            raise self.error(last, "the function does not end here", "return y, …")
        self.memories: list[MemorySpec] = []
        self.slots: list[Slot] = []
        self.steps: list[HostStep] = []
        for node in body:
            self.statement(node)
        inputs = tuple(name_of(p.arg) for p in self.parameters(self.function))
        outputs, named = self.outputs(last.value)
        name = name_of(self.function.name)
        parts = tuple(self.memories), tuple(self.slots), tuple(self.steps)
        return HostProgram(name, symbols, inputs, outputs, *parts, named)

    def outputs(self, node: ast.AST | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """x, named(y, "probabilities"): slots, and the model's names if any is another."""
        parts = node.elts if isinstance(node, ast.Tuple) else [] if node is None else [node]
        slots, names = [], []
        for part in parts:
            place, name = part, None
            if isinstance(part, ast.Call):
                _, call = self.call(part, _NAMED)
                self.no_keywords(call, _NAMED)
                place, text = self.arguments(call, _NAMED, 2, 2)
                name = self.string(text, "an output's name")
            slots.append(self.name(place, "a slot"))
            names.append(slots[-1] if name is None else name)
        return tuple(slots), () if names == slots else tuple(names)

    def size(self, node: ast.AST) -> Size:
        return size_of(self.dim(node))

    def names(self, node: ast.AST | None) -> tuple[str, ...]:
        """x, y: the names of slots"""
        if node is None:
            return ()
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.name(p, "a slot") for p in parts)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AnnAssign):
            self.slots.append(self.slot(node))
            return
        if not isinstance(node, (ast.Assign, ast.Expr)):
            raise self.error(node, "this is not a statement of the text form", _KNOWN)
        text, call = self.call(node.value, _KNOWN)
        read = _STEPS.get(text)
        if read is None:
            raise self.unknown(node.value, "step", text, list(_STEPS))
        read(self, call, self.names(node.targets[0]) if isinstance(node, ast.Assign) else ())

    def slot(self, node: ast.AnnAssign) -> Slot:
        """x: f32[4] = arena[0]"""
        if not isinstance(node.value, ast.Subscript):
            raise self.error(node, "this is not a slot", "name: type = memory[offset]")
        name = self.name(node.target, "a slot")
        memory = self.name(node.value.value, "a memory")
        dtype, shape = self.shaped(node.annotation)
        return Slot(name, memory, self.size(node.value.slice), dtype, tuple(map(size_of, shape)))

    def origin(self, call: ast.Call, form: str, *others: str) -> tuple[tuple[str, ...], list[str]]:
        """The model's nodes that a step computes; and the other keywords' texts, or ""."""
        given = self.keywords(call, form)
        found = given.pop("nodes", None)
        texts = [self.string(given.pop(k), "a text") if k in given else "" for k in others]
        if given:
            raise self.error(next(iter(given.values())), "this argument is unknown", form)
        parts = [] if found is None else self.items(found, "a list of the model's nodes")
        return tuple(self.string(p, "a node's name") for p in parts), texts


_KNOWN = "a memory, slot, call, host_call, copy, submit or wait"
_MEMORY = 'm = memory("arena", "device", bytes)'
_CALL = 'call(kernel(slots, …, n=n), "device", nodes=[…])'
_HOST_CALL = "y, … = host_call(op(slots, …), attrs='{…}', nodes=[…])"
_COPY = "y = copy(x)"
_SUBMIT = 'y, … = submit(kernel(slots, …), "device", nodes=[…])'
_WAIT = 'wait("device")'
_NAMED = 'return x, named(y, "name")'
_KINDS = {kind.value: kind for kind in MemoryKind}


def _read_memory(r: _HostReader, call: ast.Call, targets: tuple[str, ...]) -> None:
    r.no_keywords(call, _MEMORY)
    kind, device, size = r.arguments(call, _MEMORY, 3, 3)
    word = r.string(kind, "a kind of memory")
    if word not in _KINDS or len(targets) != 1:
        raise r.error(call, f"this is not a memory; the kinds are {', '.join(_KINDS)}", _MEMORY)
    name = r.string(device, "a device")
    r.memories.append(MemorySpec(targets[0], name, _KINDS[word], r.size(size)))


def _read_call(r: _HostReader, call: ast.Call, targets: tuple[str, ...]) -> None:
    kernel, device = r.arguments(call, _CALL, 2, 2)
    text, inner = r.call(kernel, _CALL)
    if targets:
        raise r.error(call, "a call of a kernel gives nothing", _CALL)
    slots = tuple(r.name(a, "a slot") for a in inner.args)
    symbols = []
    for value in r.keywords(inner, _CALL).values():
        symbol = r.expr(value)
        if not isinstance(symbol, Symbol):
            raise r.error(value, "this is not a symbol", _CALL)
        symbols.append(symbol.name)
    where = r.string(device, "a device")
    nodes, _ = r.origin(call, _CALL)
    r.steps.append(KernelCall(name_of(text), where, slots, tuple(symbols), nodes))


def _read_host_call(r: _HostReader, call: ast.Call, targets: tuple[str, ...]) -> None:
    (function,) = r.arguments(call, _HOST_CALL, 1, 1)
    text, inner = r.call(function, _HOST_CALL)
    r.no_keywords(inner, _HOST_CALL)
    inputs = tuple(r.name(a, "a slot") for a in inner.args)
    nodes, (attrs,) = r.origin(call, _HOST_CALL, "attrs")
    r.steps.append(HostCall(name_of(text), attrs or "{}", inputs, targets, nodes))


def _read_copy(r: _HostReader, call: ast.Call, targets: tuple[str, ...]) -> None:
    r.no_keywords(call, _COPY)
    (source,) = r.arguments(call, _COPY, 1, 1)
    if len(targets) != 1:
        raise r.error(call, "a copy has one target", _COPY)
    r.steps.append(Copy(r.name(source, "a slot"), targets[0]))


def _read_submit(r: _HostReader, call: ast.Call, targets: tuple[str, ...]) -> None:
    kernel, device = r.arguments(call, _SUBMIT, 2, 2)
    text, inner = r.call(kernel, _SUBMIT)
    r.no_keywords(inner, _SUBMIT)
    inputs = tuple(r.name(a, "a slot") for a in inner.args)
    where, (nodes, _) = r.string(device, "a device"), r.origin(call, _SUBMIT)
    r.steps.append(Submit(name_of(text), where, inputs, targets, nodes))


def _read_wait(r: _HostReader, call: ast.Call, targets: tuple[str, ...]) -> None:
    r.no_keywords(call, _WAIT)
    (device,) = r.arguments(call, _WAIT, 1, 1)
    if targets:
        raise r.error(call, "waiting gives nothing", _WAIT)
    r.steps.append(Wait(r.string(device, "a device")))


_STEPS: dict[str, Callable[[_HostReader, ast.Call, tuple[str, ...]], None]] = {
    "memory": _read_memory,
    "call": _read_call,
    "host_call": _read_host_call,
    "copy": _read_copy,
    "submit": _read_submit,
    "wait": _read_wait,
}
