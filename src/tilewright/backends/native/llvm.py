"""Loop programs to LLVM IR: one module of text for each kernel.

The function is `void name(ptr pool, ptr for each parameter …, i64 for each symbol …)`. A parallel
loop becomes a function of its own that does a range of iterations; the runtime calls it from its
workers (runtime/native/tilewright_runtime.h). What it needs from outside is handed over in a
record; an inner function takes the pointers as `noalias` parameters, so that LLVM knows that
buffers do not overlap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewright.analyze.linear import Linear
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.native.call import emit_call
from tilewright.backends.native.convert import broadcast, constant
from tilewright.backends.native.expr import ExprEmitter, Lanes
from tilewright.backends.native.hints import (
    METADATA,
    alignment,
    begin_at_lines,
    emit_prefetch,
    nontemporal_buffers,
)
from tilewright.backends.native.operators import emit_binary, emit_lanes_reduction, emit_unary
from tilewright.backends.native.text import Function, LLVMValue, memory_type
from tilewright.backends.native.transpose import emit_columns
from tilewright.base.dtype import bool_, index
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Buffer,
    Dim,
    Expr,
    Load,
    Symbol,
    UnaryOp,
    Var,
    as_expr,
    constant_value,
)
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    symbols,
    walk_statements,
)
from tilewright.ir.tensor import neutral
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
        loops = (s for s in walk_statements(kernel.body) if isinstance(s, For))
        self.simplifier = Simplifier({s.var: s.extent for s in loops})
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
        tail = [attributes, METADATA] if nontemporal_buffers(self.kernel.body) else [attributes]
        return "\n\n".join(["\n".join(head), *bodies, "\n".join(declared.values()), *tail, ""])


class StmtEmitter:
    """Emits statements into one function."""

    def __init__(self, module: LLVMModule, function: Function) -> None:
        self.module = module
        self.f = function
        self.e = ExprEmitter(function, module.simplifier)
        self.level = 0

    def block(self, block: Block) -> None:
        for stmt in block:
            _EMIT[type(stmt)](self, stmt)

    def scoped(self, block: Block) -> None:
        self.e.push()
        self.block(block)
        self.e.pop()

    def scalar(self, dim: Dim) -> LLVMValue:
        value = self.e(as_expr(dim))
        if value.lanes != 1:
            raise CompileError(f"{dim} differs from lane to lane", program=self.module.kernel)
        return value

    # ---------------------------------------------------------- loops

    def emit_for(self, s: For) -> None:
        if s.kind is LoopKind.PARALLEL and self.module.target.cores > 1:
            emit_parallel(self, s)
        elif s.kind is LoopKind.VECTORIZE and isinstance(s.extent, int) and s.extent > 1:
            before, self.e.lanes = self.e.lanes, Lanes(s.var, s.extent)
            self.level += 1
            self.e.depth[s.var] = self.level
            self.e.columns = emit_columns(self.e, s.body, self.module.target.vectors.bytes)
            self.scoped(s.body)
            self.e.columns = {}
            self.level -= 1
            self.e.lanes = before
        else:
            self.emit_range(s, constant(0, index), self.scalar(s.extent))

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
        self.level += 1
        self.e.depth[s.var] = self.level
        self.e.push()
        self.e.bind(s.var, LLVMValue(i, index))
        self.block(s.body)
        self.e.pop()
        self.level -= 1
        step = f.let(f"add nuw nsw i64 {i}, 1")
        f.lines.insert(
            position, f"  {i} = phi i64 [ {begin.ref}, %{before} ], [ {step}, %{f.block} ]"
        )
        f.branch(head)
        f.start(done)

    # ---------------------------------------------------------- other statements

    def emit_if(self, s: If) -> None:
        cond = self.e(s.cond)
        self.e.end_statement()
        if cond.lanes > 1:
            self._masked(cond, s.body)
            if s.orelse:
                self._masked(emit_unary(self.f, UnaryOp.NOT, cond), s.orelse)
            return
        f = self.f
        yes, no, join = f.label("then"), f.label("else"), f.label("join")
        f.emit(f"br {cond}, label %{yes}, label %{no if s.orelse else join}")
        for label, block in ((yes, s.body), (no, s.orelse)):
            if block or label == yes:  # the condition branches there
                f.start(label)
                self.scoped(block)
                f.branch(join)
        f.start(join)

    def _masked(self, cond: LLVMValue, block: Block) -> None:
        before, self.e.mask = self.e.mask, self.e.and_mask(cond)
        self.scoped(block)
        self.e.mask = before

    def emit_alloc(self, s: Alloc) -> None:
        count = 1
        for n in s.buffer.shape:
            if not isinstance(n, int):
                raise CompileError(f"{s.buffer} has no constant size", program=s)
            count *= n
        name = self.f.fresh("a")
        kind = memory_type(s.buffer.dtype)
        self.f.entry.append(f"  {name} = alloca [{max(count, 1)} x {kind}], align {ALIGN}")
        self.e.pointers[s.buffer] = name

    def emit_call(self, s: Call) -> None:
        emit_call(self.f, self.e, s)

    def emit_prefetch(self, s: Prefetch) -> None:
        emit_prefetch(self.f, self.e, s)

    def emit_store(self, s: Store) -> None:
        value = self.e(s.value)
        self._write(s.buffer, s.indices, value, nontemporal=s.nontemporal)
        self.e.end_statement()

    def _write(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        value: LLVMValue,
        *,
        nontemporal: bool = False,
    ) -> None:
        e = self.e
        at = e.position(buffer, indices)
        parts = None if e.reads_lanes(at) else e.split_lanes(at)
        if e.lanes is None:
            assert parts is not None
            self._store(e.to_memory(value), e.address(buffer, parts[1]), buffer)
        elif parts is not None and parts[0] == 1:
            vector = e.to_memory(broadcast(self.f, value, e.lanes.count))
            past = nontemporal and e.mask is None and buffer in self.module.aligned
            align = alignment(buffer, parts[1], e.lanes.count, self.module.line) if past else None
            pointer = e.address(buffer, parts[1])
            if align is not None:
                self.f.emit(f"store {vector}, ptr {pointer}, align {align}, !nontemporal !0")
            else:
                self._store_lanes(vector, pointer, buffer)
        elif parts is not None and parts[0] == 0 and e.mask is None:
            self._store(e.to_memory(self._last(value)), e.address(buffer, parts[1]), buffer)
        else:
            self._scatter(buffer, at, value)

    def _last(self, value: LLVMValue) -> LLVMValue:
        """The last lane's: iterations store in order, and the last one stays."""
        if value.lanes == 1:
            return value
        ref = self.f.let(f"extractelement {value}, i64 {value.lanes - 1}")
        return LLVMValue(ref, value.dtype)

    def _store(self, typed: str, pointer: str, buffer: Buffer) -> None:
        self.f.emit(f"store {typed}, ptr {pointer}, align {buffer.dtype.bytes}")

    def _store_lanes(self, typed: str, pointer: str, buffer: Buffer) -> None:
        if self.e.mask is None:
            self._store(typed, pointer, buffer)
            return
        name = f"llvm.masked.store.{_vector_suffix(typed)}.p0"
        align = f"i32 {buffer.dtype.bytes}"
        self.f.call("void", name, self._fenced(typed), f"ptr {pointer}", align, self.e.mask)

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

    def _scatter(self, buffer: Buffer, at: Linear, value: LLVMValue) -> None:
        """Lanes store to places of their own; where two meet, the later lane's value stays."""
        assert self.e.lanes is not None
        count = self.e.lanes.count
        typed = self.e.to_memory(broadcast(self.f, value, count))
        pointers = self.e.lane_pointers(buffer, at)
        mask = self.e.mask or LLVMValue("splat (i1 true)", bool_, count)
        kind = _vector_suffix(typed)
        name = f"llvm.masked.scatter.{kind}.v{count}p0"
        align = f"i32 {buffer.dtype.bytes}"
        self.f.call("void", name, typed, f"<{count} x ptr> {pointers}", align, mask)

    def emit_accumulate(self, s: Accumulate) -> None:
        e = self.e
        value = e(s.value)
        at = e.position(s.buffer, s.indices)
        parts = None if e.reads_lanes(at) else e.split_lanes(at)
        if e.lanes is not None and (parts is None or parts[0] == 0):
            if parts is None:
                self._accumulate_each(s, at, value)
                return
            self._update_once(s, self._combined(s, value))
        else:
            self._update(s, value)
        e.end_statement()

    def _update_once(self, s: Accumulate, value: LLVMValue) -> None:
        """Adds what all lanes contribute to one element, if that is there."""
        e = self.e
        before_lanes, before_mask = e.lanes, e.mask
        if e.mask is None or e.in_bounds(Load(s.buffer, s.indices)):
            e.lanes, e.mask = None, None
            self._update(s, value)
        else:
            with self._only_if(e.any_lane()):
                e.lanes, e.mask = None, None
                self._update(s, value)
        e.lanes, e.mask = before_lanes, before_mask

    @contextlib.contextmanager
    def _only_if(self, cond: str) -> Iterator[None]:
        """What is emitted here runs where a bit is set."""
        f = self.f
        yes, join = f.label("then"), f.label("join")
        f.emit(f"br i1 {cond}, label %{yes}, label %{join}")
        f.start(yes)
        self.e.push()
        yield
        self.e.pop()
        f.branch(join)
        f.start(join)

    def _update(self, s: Accumulate, value: LLVMValue) -> None:
        e = self.e
        old = e.emit_load_at(s.buffer, s.indices)
        old, value = e.same_lanes(old, value)
        self._write(s.buffer, s.indices, emit_binary(self.f, s.op, old, value))

    def _combined(self, s: Accumulate, value: LLVMValue) -> LLVMValue:
        """The lanes' contributions to one element, as one value."""
        e = self.e
        assert e.lanes is not None
        value = broadcast(self.f, value, e.lanes.count)
        if e.mask is not None:
            nothing = neutral(s.op, value.dtype)
            other = constant(nothing.value, value.dtype, value.lanes)
            ref = self.f.let(f"select {e.mask}, {value}, {other}")
            value = LLVMValue(ref, value.dtype, value.lanes)
        return emit_lanes_reduction(self.f, s.op, value)

    def _accumulate_each(self, s: Accumulate, at: Linear, value: LLVMValue) -> None:
        """Lanes that may meet at one element: one after the other."""
        e, f = self.e, self.f
        assert e.lanes is not None
        value = broadcast(f, value, e.lanes.count)
        pointers = e.lane_pointers(s.buffer, at)
        for lane in range(e.lanes.count):
            with contextlib.ExitStack() as stack:
                if e.mask is not None:
                    bit = f.let(f"extractelement {e.mask}, i64 {lane}")
                    stack.enter_context(self._only_if(bit))
                kind = f"<{e.lanes.count} x ptr>"
                pointer = f.let(f"extractelement {kind} {pointers}, i64 {lane}")
                one = LLVMValue(f.let(f"extractelement {value}, i64 {lane}"), value.dtype)
                new = emit_binary(f, s.op, e.read(s.buffer, pointer, 1), one)
                self._store(e.to_memory(new), pointer, s.buffer)
        e.end_statement()


def _vector_suffix(typed: str) -> str:
    """v16f32 for `<16 x float> …`."""
    count, kind = typed[1 : typed.index(">")].split(" x ")
    letters = {"float": "f32", "double": "f64", "half": "f16"}
    return f"v{count}{letters.get(kind, kind)}"


# ---------------------------------------------------------------- parallel loops


def emit_parallel(outer: StmtEmitter, s: For) -> None:
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
    count = outer.scalar(s.extent)
    grain = _grain(outer, s.extent, count)
    f.call("void", "tw_parallel", "ptr %pool", f"ptr @{name}", f"ptr {context}", count, grain)
    outer.e.end_statement()


def _grain(outer: StmtEmitter, extent: Dim, count: LLVMValue) -> LLVMValue:
    """Iterations handed out at a time."""
    pieces = outer.module.target.tasks
    known = constant_value(extent)
    if known is not None:
        return constant(max(1, int(known) // pieces), index)
    f = outer.f
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
    inner.e.depth = dict(outer.e.depth)
    inner.level = outer.level
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
