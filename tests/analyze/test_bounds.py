"""Faults of kernels: what is found is wrong when it runs, and what is wrong is found."""

import hypothesis
import numpy as np
from hypothesis import strategies as st
from strategies import array, kernels

from tilewright.analyze.bounds import faults
from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Buffer, Load, Symbol, Var, as_expr
from tilewright.ir.interpret import scalar
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    For,
    If,
    Kernel,
    Store,
    map_block,
    map_inner_blocks,
    symbols,
    walk_statements,
)

SIZES = range(1, 7)


class Run:
    """A run that notes what is wrong: subscripts outside, elements without a value."""

    def __init__(self, kernel, sizes):
        self.sizes, self.wrong = sizes, set()
        self.memory, self.known = {}, {}
        for seed, buffer in enumerate(kernel.inputs):
            self.allocate(buffer)
            shape = self.memory[buffer].shape
            self.memory[buffer] = array(seed, buffer.dtype, shape)
            self.known[buffer] |= True
        for buffer in kernel.outputs:
            self.allocate(buffer)
        self.env = {s: np.int64(sizes[s.name]) for s in symbols(kernel)} | {WORKER: np.int64(0)}
        self.block(kernel.body)
        if any(not np.all(self.known[b]) for b in kernel.outputs):
            self.wrong.add("never written")

    def allocate(self, buffer):
        shape = tuple(max(0, evaluate_dim(d, self.sizes)) for d in buffer.shape)
        self.memory[buffer] = np.zeros(shape, buffer.dtype.numpy)
        self.known[buffer] = np.zeros(shape, bool)

    def value(self, e):
        try:
            return scalar(e, self.env, Checked(self))
        except CompileError:  # a subscript below 0
            self.wrong.add("is outside of")
            return e.dtype.numpy.type(0)

    def block(self, block):
        for s in block:
            if isinstance(s, For):
                for i in range(int(self.value(as_expr(s.extent)))):
                    self.env[s.var] = np.int64(i)
                    self.block(s.body)
            elif isinstance(s, If):
                self.block(s.body if self.value(s.cond) else s.orelse)
            elif isinstance(s, Alloc):
                self.allocate(s.buffer)
            else:
                self.write(s)

    def write(self, s):
        value = self.value(s.value)
        at = tuple(int(self.value(i)) for i in s.indices)
        if not self.inside(s.buffer, at):
            return
        if isinstance(s, Accumulate) and not self.known[s.buffer][at]:
            self.wrong.add("before it has a value")
        self.known[s.buffer][at] = True
        self.memory[s.buffer][at] = value

    def inside(self, buffer, at):
        shape = self.memory[buffer].shape
        found = all(0 <= i < n for i, n in zip(at, shape, strict=True))
        if not found:
            self.wrong.add("is outside of")
        return found


class Checked:
    """The memory of a run, as the interpreter sees it."""

    def __init__(self, run):
        self.run = run

    def __getitem__(self, buffer):
        return Elements(self.run, buffer)


class Elements:
    def __init__(self, run, buffer):
        self.run, self.buffer = run, buffer
        self.shape = (1 << 62,) * len(buffer.shape)  # what is too large is noted here

    def __getitem__(self, at):
        if not self.run.inside(self.buffer, at):
            return self.buffer.dtype.numpy.type(0)
        if not self.run.known[self.buffer][at]:
            self.run.wrong.add("before it has a value")
        return self.run.memory[self.buffer][at]


def kinds_of(found):
    """What is wrong, without where."""
    return {k for k in KINDS for fault in found if k in fault.what}


KINDS = ("is outside of", "before it has a value", "never written")


# ---------------------------------------------------------------- random programs


@hypothesis.given(kernels())
@hypothesis.settings(max_examples=100)
def test_right_programs_have_none(kernel):
    assert list(faults(kernel)) == []


def shifted(kernel, which, by):
    """One subscript of the program moved."""
    count = iter(range(1 << 30))

    def move(indices):
        return tuple(i + by if next(count) == which else i for i in indices)

    def read(e):
        e = e.map(lambda x: read(x) if hasattr(x, "dtype") and hasattr(x, "map") else x)
        return Load(e.buffer, move(e.indices)) if isinstance(e, Load) else e

    def visit(s):
        s = map_inner_blocks(s, lambda b: map_block(b, visit))
        if isinstance(s, (Store, Accumulate)):
            return s.with_(indices=move(s.indices), value=read(s.value))
        return s

    return kernel.with_(body=map_block(kernel.body, visit)), next(count)


def without(kernel, which):
    """The program without one of its stores."""
    stores = [s for s in walk_statements(kernel.body) if isinstance(s, Store)]
    gone = stores[which % len(stores)] if stores else None

    def visit(s):
        s = map_inner_blocks(s, lambda b: map_block(b, visit)) if s is not gone else s
        return None if s is gone else s

    return kernel.with_(body=map_block(kernel.body, visit))


@hypothesis.given(kernels(), st.integers(0, 99), st.sampled_from([-1, 1, None]))
@hypothesis.settings(max_examples=200)
def test_what_is_found_happens(kernel, which, by):
    if by is None:
        wrong = without(kernel, which)
    else:
        _, count = shifted(kernel, -1, by)
        wrong, _ = shifted(kernel, which % max(1, count), by)
    for fault in faults(wrong):
        sizes = {s.name: fault.example.get(s.name, s.lower) for s in symbols(wrong)}
        if max(sizes.values(), default=0) < 20:
            (kind,) = kinds_of([fault])
            assert kind in Run(wrong, sizes).wrong


# ---------------------------------------------------------------- all that is wrong is found

N = Symbol("n", 1, 6)
X, Y = Buffer("x", f32, (N,)), Buffer("y", f32, (N,))
SMALL = st.integers(-1, 2)


@st.composite
def affine(draw):
    """Two loops over an output and a local buffer, with conditions; often wrong."""
    i, j = Var("i"), Var("j")
    size = as_expr(N) + draw(st.integers(0, 1))
    t = Buffer("t", f32, (size,))

    def at(v):
        forms = (v, v + draw(SMALL), N - 1 - v, v * 2 + draw(SMALL), v // 2, as_expr(0))
        return draw(st.sampled_from(forms))

    def guarded(stmt, v):
        if draw(st.booleans()):
            return stmt
        cond = draw(st.sampled_from((v > 0, v < N - 1, v * 2 < N, (v > 0) & (v + 1 < N))))
        return If(cond, (stmt,))

    first = guarded(Store(t, (at(i),), Load(X, (at(i),))), i)
    reads = Load(draw(st.sampled_from((t, Y))), (at(j),))
    kind = draw(st.sampled_from((Store, Accumulate)))
    value = reads + 1.0
    last = Store(Y, (at(j),), value)
    if kind is Accumulate:
        last = Accumulate(Y, (at(j),), value.op, reads)
    inner = (Alloc(t), For(i, N, (first,)))
    start = For(Var("k"), N, (Store(Y, (Var("k"),), as_expr(0.0)),))
    body = (*inner, For(j, N, (guarded(last, j),)))
    if draw(st.booleans()):  # the buffer begins anew in each iteration
        body = (For(j, N, (*inner, guarded(last, j))),)
    if draw(st.booleans()):
        body = (start, *body)
    return Kernel("affine", (X,), (Y,), body)


@hypothesis.given(affine())
@hypothesis.settings(max_examples=300)
def test_everything_is_found(kernel):
    found = list(faults(kernel))
    happened = set()
    for n in SIZES:
        happened |= Run(kernel, {"n": n}).wrong
    assert kinds_of(found) == happened
    for fault in found:
        (kind,) = kinds_of([fault])
        assert kind in Run(kernel, {"n": fault.example["n"]}).wrong
