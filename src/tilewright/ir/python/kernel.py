"""The Python front end: a function under `@kernel` is read from its source, and never run.

    M, N = dims("M N", min=1)

    @kernel
    def double(A: f32[M, N], B: f32[M, N]):
        for i, j in grid(M, N):
            B[i, j] = A[i, j] * 2.0

docs/kernels.md is the language on one page.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tilewright.base.dtype import BufferType, DType
from tilewright.base.errors import CompileError, TilewrightError
from tilewright.ir.arguments import check_arguments
from tilewright.ir.bind_symbols import bind_symbols
from tilewright.ir.expr import DRAM, Buffer, Dim, Expr, Load, Symbol, Var, as_dim
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols, walk_statements
from tilewright.ir.python.block import written_names
from tilewright.ir.python.check import check_defined
from tilewright.ir.python.lines import SourceLines
from tilewright.ir.python.source import MISSING, outside_names
from tilewright.ir.python.stmt import KernelStmtReader
from tilewright.ir.python.words import Output
from tilewright.ir.text.source import reads_text
from tilewright.ir.verify.loop import verify_kernel

F = TypeVar("F", bound="KernelFunction")
ParameterType = tuple[DType, tuple[Dim, ...], str, bool]  # the last: whether it says out(…)


@dataclass(frozen=True, eq=False)
class KernelFunction:
    """A kernel that was written in Python. `parameters` are the names of its parameters in the
    order of the function's; `lines` knows where its statements stand."""

    kernel: Kernel
    parameters: tuple[str, ...]
    lines: SourceLines

    @property
    def name(self) -> str:
        """The function's."""
        return self.kernel.name

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The dimensions that have no number yet."""
        return symbols(self.kernel)

    def bind(self: F, **sizes: int) -> F:
        """The same for these sizes: bind(M=64)."""
        return replace(self, kernel=bind_symbols(self.kernel, sizes))

    def interpret(self, *inputs: object) -> Any:
        """What the kernel means, computed one scalar at a time: its output (a tuple of several)
        for its inputs, in the order of the parameters. Slow; sizes come from the inputs."""
        order = [b for name in self.parameters for b in self.kernel.inputs if b.name == name]
        arrays, sizes = check_arguments(self.name, order, inputs)
        by_name = {b.name: a for b, a in zip(order, arrays, strict=True)}
        missing = [s.name for s in self.symbols if s.name not in sizes]
        if missing:
            what = f"the inputs of {self.name} do not tell its dimension {missing[0]}"
            raise CompileError(what, hint=f"give it a number first: bind({missing[0]}=…)")
        ordered = [by_name[b.name] for b in self.kernel.inputs]
        try:
            results = interpret(self.kernel, ordered, sizes)
        except TilewrightError as error:
            error.add_context(f"interpreting {self.locate(error) or self.name}")
            raise
        return results[0] if len(results) == 1 else tuple(results)

    def locate(self, error: TilewrightError) -> str | None:
        """The line of this kernel that an error speaks of: "file.py:12: C[i] = …"; None if it
        does not tell."""
        return self.lines.locate(self.kernel, error)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Is refused, in words: Python does not run kernels."""
        raise CompileError(
            f"{self.name} is a kernel, which Python does not run",
            hint=f"{self.name}.build(target)(…) calls machine code, {self.name}.interpret(…) "
            "computes its outputs slowly",
        )

    def __str__(self) -> str:
        return str(self.kernel)

    __repr__ = __str__


def kernel(function: Callable[..., object]) -> KernelFunction:
    """Reads a kernel from the source of a Python function; CompileError at what it may not say."""
    return KernelFunction(*read_kernel(function))


def dims(names: str, *, min: int = 1, max: int | None = None) -> Any:
    """Symbolic dimensions, each between `min` and `max`: M, N = dims("M N"); N = dims("N")."""
    found = tuple(Symbol(name, min, max) for name in names.replace(",", " ").split())
    for symbol in found:
        if not symbol.name.isidentifier():
            raise CompileError(f"{symbol.name!r} is no name", hint='M, N = dims("M N")')
    if not found or not 0 <= min <= (min if max is None else max):
        raise CompileError(
            f"dims({names!r}, min={min}, max={max}) makes no dimension",
            hint='names, and 0 <= min <= max: dims("N")',
        )
    return found[0] if len(found) == 1 else found


# ---------------------------------------------------------------- reading


@reads_text
def read_kernel(function: Callable[..., object]) -> tuple[Kernel, tuple[str, ...], SourceLines]:
    """What a KernelFunction is made of."""
    r = _KernelReader(function)
    found, names = r.kernel()
    lines = tuple(r.node_of(s).lineno + r.first - 1 for s in walk_statements(found.body))
    start = r.function.lineno + r.first - 1
    text = dict(enumerate(r.lines, r.first))
    source = SourceLines(r.file, start, lines, text)
    try:
        verify_kernel(found)
    except CompileError as error:
        error.add_context(f"reading {source.locate(found, error) or source.place(start)}")
        raise
    return found, names, source


class _KernelReader(KernelStmtReader):
    def kernel(self) -> tuple[Kernel, tuple[str, ...]]:
        params = self.parameters(self.function)
        kinds = [self.parameter_type(param) for param in params]
        self.take_symbols(params, kinds)
        written = written_names(self.function)
        buffers: list[Buffer] = []
        for param, (dtype, shape, memory, is_out) in zip(params, kinds, strict=True):
            buffer = Buffer(self.fresh(param.arg), dtype, shape, memory)
            buffers.append(buffer)
            self.declare(param, buffer, is_out, param.arg in written)
        inputs = tuple(b for b in buffers if b in self.read_only)
        outputs = tuple(b for b in buffers if b not in self.read_only)
        body = self.block(self.function.body)
        if not outputs:
            hint = "results are elements of a parameter: C[i, j] = …"
            raise self.refuse(self.function, f"{self.function.name} writes no parameter", hint)
        check_defined(self, body, set(inputs), set(outputs))
        found = Kernel(self.function.name, inputs, outputs, body)
        return found, tuple(b.name for b in buffers)

    def declare(self, param: ast.arg, buffer: Buffer, is_out: bool, is_written: bool) -> None:
        """Brings a parameter into scope: one of a plain type is a value, not an array."""
        name, kind = param.arg, self.annotation(param)
        if is_out and not is_written:
            raise self.refuse(
                param,
                f"{name} is an output and is not written",
                "store its elements, or take out() away",
            )
        if isinstance(kind, DType):
            self.variables[name] = buffer
        else:
            self.buffers[name] = buffer
        if not is_written or isinstance(kind, DType):
            self.read_only.add(buffer)

    def parameter_type(self, param: ast.arg) -> ParameterType:
        kind = self.annotation(param)
        form = f"write {param.arg}: f32[M, N], or {param.arg}: f32 for one value"
        if kind is MISSING:
            raise self.refuse(param, f"{param.arg} has no type", form)
        is_out = isinstance(kind, Output)
        kind = kind.type if is_out else kind
        if isinstance(kind, DType):
            return kind, (), DRAM, is_out
        if not isinstance(kind, BufferType):
            raise self.refuse(param, f"the type of {param.arg} is {kind!r}", form)
        shape = tuple(self.parameter_dim(param, d) for d in kind.shape)
        return kind.dtype, shape, kind.memory or DRAM, is_out

    def parameter_dim(self, param: ast.arg, dim: Any) -> Dim:
        dim = dim.item() if isinstance(dim, np.integer) else dim
        known = isinstance(dim, Expr) and not any(isinstance(e, (Var, Load)) for e in dim.walk())
        if known or (type(dim) is int and dim >= 0):
            return as_dim(dim)
        raise self.refuse(
            param,
            f"{dim!r} is no dimension of {param.arg}",
            "write a number, or a name from dims()",
        )

    def take_symbols(self, params: Sequence[ast.arg], kinds: Sequence[ParameterType]) -> None:
        """Keeps the names of all symbols for them; each name must be one dimension's."""
        found: list[tuple[ast.AST, Any]] = []
        for param, (_, shape, _, _) in zip(params, kinds, strict=True):
            found += [(param, dim) for dim in shape]
        found += [(node, self.captured(node)) for node in outside_names(self.function)]
        known: dict[str, Symbol] = {}
        for node, value in found:
            for s in value.walk() if isinstance(value, Expr) else ():
                if isinstance(s, Symbol) and known.setdefault(s.name, s) != s:
                    what = f"{s.name} is the name of two dimensions, with different bounds"
                    raise self.refuse(node, what, "make it once, by dims(), and use that")
        self.taken |= set(known)
