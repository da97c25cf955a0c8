"""Lowered kernels in LLVM IR: one module of text for each.

The function is `void name(ptr pool, ptr for each parameter …, i64 for each symbol …)`. A parallel
loop becomes a function of its own that does a range of iterations; the runtime calls it from its
workers (runtime/native/tilewright_runtime.h). What it needs from outside is handed over in a
record; an inner function takes the pointers as `noalias` parameters, so that LLVM knows that
buffers do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.backends.native.call import emit_call
from tilewright.backends.native.convert import broadcast, constant
from tilewright.backends.native.expr import ExprEmitter
from tilewright.backends.native.hints import (
    METADATA,
    begin_at_lines,
    emit_prefetch,
    nontemporal_buffers,
)
from tilewright.backends.native.operators import emit_binary
from tilewright.backends.native.text import Function, LLVMValue, memory_type
from tilewright.base.dtype import bool_, index
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Buffer,
    Dim,
    Expr,
    Load,
    Symbol,
    Var,
    as_expr,
    constant_value,
)
from tilewright.ir.lanes import consecutive, lanes_of
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    Kernel,
    Pieces,
    Prefetch,
    Stmt,
    Store,
    symbols,
    walk_statements,
)
from tilewright.target.target import Target

ALIGN = 64
FLOATS = {32: "float", 16: "half"}  # by their bits


def emit_kernel(kernel: Kernel, target: Target) -> str:
    """The LLVM module of one lowered kernel, as text."""
    module = LLVMModule(kernel, target)
    return module.text()


class LLVMModule:
    """The functions of one kernel: itself and its parallel loops' bodies."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.line = max(m.line for m in target.memories)  # of the caches
        self.functions: list[Function] = []
        self.symbols = symbols(kernel)
        self.aligned: frozenset[Buffer] = frozenset()  # what goes past the caches, from lines on
        self._emit_entry()

    def _emit_entry(self) -> None:
        params = ["ptr %pool"]
        params += [f"ptr noalias %p{i}" for i in range(len(self.kernel.params))]
        params += [f"i64 %d{i}" for i in range(len(self.symbols))]
        f = Function(self.kernel.name, params)
        outputs = nontemporal_buffers(self.kernel.body) & set(self.kernel.outputs)
        if outputs:
            places = [f"%p{i}" for i, b in enumerate(self.kernel.params) if b in outputs]
            yes, no, join = f.label("aligned"), f.label("unaligned"), f.label("join")
            f.emit(f"br i1 {begin_at_lines(f, places, self.line)}, label %{yes}, label %{no}")
            for label, self.aligned in ((yes, outputs), (no, frozenset())):
                f.start(label)
                self._emit_body(f)
                f.branch(join)
            f.start(join)
        else:
            self._emit_body(f)
        self.functions.append(f)

    def _emit_body(self, function: Function) -> None:
        emitter = StmtEmitter(self, function)
        for i, buffer in enumerate(self.kernel.params):
            emitter.e.pointers[buffer] = f"%p{i}"
        for i, symbol in enumerate(self.symbols):
            emitter.e.bind(symbol, LLVMValue(f"%d{i}", index))
        emitter.e.bind(WORKER, constant(0, index))
        emitter.block(self.kernel.body)
        self.finish(function, self.kernel.body)

    def finish(self, function: Function, body: Block) -> None:
        """Other threads are to see what was stored past the caches."""
        if nontemporal_buffers(body) & self.aligned:
            function.emit("fence seq_cst")

    def text(self) -> str:
        declared: dict[str, str] = {}
        for function in self.functions:
            declared |= function.declared
        head = [
            f"; {self.kernel.name}, for {self.target.name}",
            f'target triple = "{self.target.llvm.triple}"',
        ]
        width = self.target.vectors.bytes * 8
        attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" }}'
        bodies = [function.text() for function in self.functions]
        tail = [attributes, "\n".join(METADATA)]
        return "\n\n".join(["\n".join(head), *bodies, "\n".join(declared.values()), *tail, ""])


class StmtEmitter:
    """Emits statements into one function."""

    def __init__(self, module: LLVMModule, function: Function) -> None:
        self.module = module
        self.f = function
        self.e = ExprEmitter(function, module.target)

    def block(self, block: Block) -> None:
        for stmt in block:
            _EMIT[type(stmt)](self, stmt)

    def scoped(self, block: Block) -> None:
        self.e.push()
        self.block(block)
        self.e.pop()

    def emit_for(self, s: For) -> None:
        self.e.repeat(s.body)
        if isinstance(s.kind, Pieces):
            emit_parallel(self, s, s.kind.count)
        else:
            self.emit_range(s, constant(0, index), self.e(as_expr(s.extent)))

    def emit_range(self, s: For, begin: LLVMValue, end: LLVMValue) -> None:
        """for (var = begin; var < end; var++) body"""
        f = self.f
        head, body, done = f.label("loop"), f.label("body"), f.label("done")
        before = f.block
        f.branch(head)
        f.start(head)
        i = f.fresh("i")
        position = len(f.lines)
        test = f.let(f"icmp slt i64 {i}, {end.ref}")
        f.emit(f"br i1 {test}, label %{body}, label %{done}")
        f.start(body)
        self.e.push()
        self.e.bind(s.var, LLVMValue(i, index))
        self.block(s.body)
        self.e.pop()
        step = f.let(f"add nuw nsw i64 {i}, 1")
        f.lines.insert(
            position, f"  {i} = phi i64 [ {begin.ref}, %{before} ], [ {step}, %{f.block} ]"
        )
        # LLVM unrolls innermost loops alone. Copies of these would be further loads for the
        # processor's prefetcher, which goes by instructions: half as fast, where it has too many.
        around = any(isinstance(x, For) for x in walk_statements(s.body))
        f.emit(f"br label %{head}{', !llvm.loop !1' if around else ''}")
        f.start(done)

    def emit_if(self, s: If) -> None:
        f, cond = self.f, self.e(s.cond)
        yes, no, join = f.label("then"), f.label("else"), f.label("join")
        f.emit(f"br {cond}, label %{yes}, label %{no if s.orelse else join}")
        for label, block in ((yes, s.body), (no, s.orelse)):
            if block or label == yes:  # the condition branches there
                f.start(label)
                self.scoped(block)
                f.branch(join)
        f.start(join)

    def emit_alloc(self, s: Alloc) -> None:
        (count,) = s.buffer.shape
        if not isinstance(count, int):
            raise CompileError(f"{s.buffer} has no constant size", program=s)
        name = self.f.fresh("a")
        kind = memory_type(s.buffer.dtype)
        self.f.entry.append(f"  {name} = alloca [{max(count, 1)} x {kind}], align {ALIGN}")
        self.e.pointers[s.buffer] = name

    def emit_call(self, s: Call) -> None:
        emit_call(self.f, self.e, s)

    def emit_prefetch(self, s: Prefetch) -> None:
        emit_prefetch(self.f, self.e, s)

    # ---------------------------------------------------------- writes

    def emit_store(self, s: Store) -> None:
        mask = None if s.mask is None else self.e(s.mask)
        self._write(s.buffer, s.indices[0], self.e(s.value), mask, nontemporal=s.nontemporal)

    def emit_accumulate(self, s: Accumulate) -> None:
        value = self.e(s.value)
        old, value = self.e.same_lanes(self.e(Load(s.buffer, s.indices)), value)
        self._write(s.buffer, s.indices[0], emit_binary(self.f, s.op, old, value), None)

    def _write(
        self,
        buffer: Buffer,
        at: Expr,
        value: LLVMValue,
        mask: LLVMValue | None,
        *,
        nontemporal: bool = False,
    ) -> None:
        e, count, first = self.e, lanes_of(at), consecutive(at)
        if first is not None:
            typed = e.to_memory(broadcast(self.f, value, count))
            pointer = e.address(buffer, first, surely=mask is None)
            if mask is not None:
                self._store_masked(typed, pointer, buffer, broadcast(self.f, mask, count))
            else:
                past = nontemporal and buffer in self.module.aligned
                self._store(typed, pointer, buffer, count if past else 0)
        elif count == 1 and mask is None:
            self._store(e.to_memory(value), e.address(buffer, at), buffer)
        else:
            self._scatter(buffer, at, value, mask)
        e.written(buffer)

    def _store(self, typed: str, pointer: str, buffer: Buffer, past: int = 0) -> None:
        """Stores a value; past the caches, where it is so many elements of an aligned part of a
        line."""
        size = past * buffer.dtype.bytes
        align = min(self.module.line, size & -size) if past else buffer.dtype.bytes
        more = ", !nontemporal !0" if past else ""
        self.f.emit(f"store {typed}, ptr {pointer}, align {align}{more}")

    def _store_masked(self, typed: str, pointer: str, buffer: Buffer, mask: LLVMValue) -> None:
        name = f"llvm.masked.store.{_vector_suffix(typed)}.p0"
        align = f"i32 {buffer.dtype.bytes}"
        self.f.call("void", name, self._fenced(typed), f"ptr {pointer}", align, mask)

    def _fenced(self, typed: str) -> str:
        """Lanes that LLVM does not see to be the low parts of wider ones: of those, a store of one
        lane alone would write the whole (LLVM 22, where a store can truncate)."""
        kind = typed[: typed.index(">") + 1]
        count, element = kind[1:-1].split(" x ")
        bits = int(count) * int(element[1:]) if element.startswith("i") else 0
        size = next((n for n in FLOATS if bits % n == 0), 0) if bits else 0
        if not size:
            return typed
        held = f"<{bits // size} x {FLOATS[size]}>"
        same = self.f.let(f"bitcast {typed} to {held}")
        name = f"llvm.arithmetic.fence.{_vector_suffix(held)}"
        fenced = self.f.call(held, name, f"{held} {same}")
        return f"{kind} {self.f.let(f'bitcast {held} {fenced} to {kind}')}"

    def _scatter(self, buffer: Buffer, at: Expr, value: LLVMValue, mask: LLVMValue | None) -> None:
        """Lanes store to places of their own; where two meet, the later lane's value stays."""
        count = lanes_of(at) if mask is None else mask.lanes
        typed = self.e.to_memory(broadcast(self.f, value, count))
        pointers = self.e.lane_pointers(buffer, at, count, surely=mask is None)
        every = LLVMValue("splat (i1 true)", bool_, count) if mask is None else mask
        kind = _vector_suffix(typed)
        name = f"llvm.masked.scatter.{kind}.v{count}p0"
        align = f"i32 {buffer.dtype.bytes}"
        self.f.call("void", name, typed, f"<{count} x ptr> {pointers}", align, every)


def _vector_suffix(typed: str) -> str:
    """v16f32 for `<16 x float> …`."""
    count, kind = typed[1 : typed.index(">")].split(" x ")
    letters = {"float": "f32", "double": "f64", "half": "f16"}
    return f"v{count}{letters.get(kind, kind)}"


# ---------------------------------------------------------------- parallel loops


def emit_parallel(outer: StmtEmitter, s: For, pieces: int) -> None:
    """Calls the runtime with a function that does iterations [begin, end) of the loop."""
    module, f = outer.module, outer.f
    version = ".aligned" if module.aligned else ""
    name = f"{module.kernel.name}.{s.var.name}{version}"
    pointers = dict(outer.e.pointers)
    scalars = {e: v for e, v in outer.e.bound().items() if e != WORKER and v.lanes == 1}
    _emit_body(outer, s, name, pointers, scalars)
    _emit_wrapper(module, name, len(pointers), len(scalars))
    words = len(pointers) + len(scalars)
    context = f.fresh("context")
    f.entry.append(f"  {context} = alloca [{max(words, 1)} x i64], align {ALIGN}")
    for i, pointer in enumerate(pointers.values()):
        place = f.let(f"getelementptr i64, ptr {context}, i64 {i}")
        f.emit(f"store ptr {pointer}, ptr {place}, align 8")
    for i, value in enumerate(scalars.values(), len(pointers)):
        place = f.let(f"getelementptr i64, ptr {context}, i64 {i}")
        f.emit(f"store {value}, ptr {place}, align 8")
    count = outer.e(as_expr(s.extent))
    grain = _grain(f, s.extent, count, pieces)
    f.call("void", "tw_parallel", "ptr %pool", f"ptr @{name}", f"ptr {context}", count, grain)
    outer.e.repeat(s.body)


def _grain(f: Function, extent: Dim, count: LLVMValue, pieces: int) -> LLVMValue:
    """Iterations handed out at a time."""
    known = constant_value(extent)
    if known is not None:
        return constant(max(1, int(known) // pieces), index)
    share = LLVMValue(f.let(f"udiv {count}, {pieces}"), index)
    return LLVMValue(f.call("i64", "llvm.umax.i64", share, "i64 1"), index)


def _emit_body(
    outer: StmtEmitter,
    s: For,
    name: str,
    pointers: Mapping[Buffer, str],
    scalars: Mapping[Expr, LLVMValue],
) -> None:
    """The loop over [begin, end), with the record's fields as parameters."""
    params = [f"ptr noalias %p{i}" for i in range(len(pointers))]
    params += [f"i64 %s{i}" for i in range(len(scalars))]
    params += ["i64 %begin", "i64 %end", "i64 %worker"]
    function = Function(f"{name}.range", params, linkage="internal ")
    inner = StmtEmitter(outer.module, function)
    inner.e.pointers = {buffer: f"%p{i}" for i, buffer in enumerate(pointers)}
    for i, e in enumerate(scalars):
        assert isinstance(e, (Var, Symbol))
        inner.e.bind(e, LLVMValue(f"%s{i}", index))
    inner.e.bind(WORKER, LLVMValue("%worker", index))
    inner.emit_range(s, LLVMValue("%begin", index), LLVMValue("%end", index))
    outer.module.finish(function, s.body)
    outer.module.functions.append(function)


def _emit_wrapper(module: LLVMModule, name: str, pointers: int, scalars: int) -> None:
    """The runtime's side: takes the record apart."""
    function = Function(
        name, ["ptr %context", "i64 %begin", "i64 %end", "i64 %worker"], linkage="internal "
    )
    arguments = []
    for i in range(pointers + scalars):
        kind = "ptr" if i < pointers else "i64"
        place = function.let(f"getelementptr i64, ptr %context, i64 {i}")
        arguments.append(f"{kind} {function.let(f'load {kind}, ptr {place}, align 8')}")
    arguments += ["i64 %begin", "i64 %end", "i64 %worker"]
    function.emit(f"call void @{name}.range({', '.join(arguments)})")
    module.functions.append(function)


_EMIT: dict[type[Stmt], Callable[[StmtEmitter, Any], None]] = {
    For: StmtEmitter.emit_for,
    If: StmtEmitter.emit_if,
    Alloc: StmtEmitter.emit_alloc,
    Store: StmtEmitter.emit_store,
    Accumulate: StmtEmitter.emit_accumulate,
    Prefetch: StmtEmitter.emit_prefetch,
    Call: StmtEmitter.emit_call,
}
