"""The host program as LLVM: its text, and that it computes places as dimensions mean them."""

import ctypes

import numpy as np
import pytest
from handmade_programs import object_code, slot, tensor
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.backends.host.llvm import KernelSignature, emit_host
from tilewright.base.dtype import i64
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import BinaryOp, Symbol, as_expr, binary
from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostProgram,
    KernelCall,
    MemoryKind,
    MemorySpec,
    SymbolSpec,
)
from tilewright.runtime import _native
from tilewright.runtime.loader import load_code

N, M = Symbol("n", 0), Symbol("m", 0)
KERNELS = {"k": KernelSignature("k", 2, 1), "where": KernelSignature("where", 2, 0)}

# Writes the address of its first slot into its second.
WHERE = """
define void @where(ptr %pool, ptr %slot, ptr %out) {
  %address = ptrtoint ptr %slot to i64
  store i64 %address, ptr %out
  ret void
}
"""


def program(*steps, slots=(), symbols=("n", "m"), memories=("a", "b")):
    kinds = [MemorySpec(name, "", MemoryKind.ARENA, 1 << 20) for name in memories]
    return HostProgram(
        "model", tuple(SymbolSpec(s, 0) for s in symbols), (), (), tuple(kinds), tuple(slots), steps
    )


def kernel_call(kernel, *slots, symbols=()):
    return KernelCall(kernel, "", slots, symbols)


def body(text):
    """The lines of the entry after what all of them begin with."""
    lines = text[text.index("define i32 @tw_entry") :].splitlines()
    return [line.strip() for line in lines[14 : lines.index("}")]]


def test_the_text_of_a_program():
    steps = [
        kernel_call("k", "x", "y", symbols=("m",)),
        Copy("y", "z"),
        HostCall("op", "{}", ("z",), ("x",)),
        kernel_call("k", "x", "y", symbols=("m",)),
    ]
    slots = [
        slot("x", "a", tensor(N)),
        slot("y", "a", tensor(N), N * 4 // 64 * 64),
        slot("z", "b", tensor(N), 128),
    ]
    text = emit_host(program(*steps, slots=slots), KERNELS, triple="x86_64-unknown-linux-gnu")
    assert 'target triple = "x86_64-unknown-linux-gnu"' in text
    found = body(text)
    assert found == [
        "call void @stamp(ptr %times, i64 0)",
        "%v13 = getelementptr ptr, ptr %memories, i64 0",
        "%v14 = load ptr, ptr %v13",
        "%v15 = getelementptr i64, ptr %dims, i64 0",
        "%v16 = load i64, ptr %v15",
        "%v17 = mul i64 %v16, 4",
        "%v18 = srem i64 %v17, 64",
        "%v19 = xor i64 %v18, 64",
        "%v20 = icmp slt i64 %v19, 0",
        "%v21 = icmp ne i64 %v18, 0",
        "%v22 = and i1 %v20, %v21",
        "%v23 = sdiv i64 %v17, 64",
        "%v24 = sext i1 %v22 to i64",
        "%v25 = add i64 %v23, %v24",
        "%v26 = mul i64 %v25, 64",
        "%v27 = getelementptr i8, ptr %v14, i64 %v26",
        "%v28 = getelementptr i64, ptr %dims, i64 1",
        "%v29 = load i64, ptr %v28",
        'call void @"k"(ptr %pool, ptr %v14, ptr %v27, i64 %v29)',
        "call void @stamp(ptr %times, i64 1)",
        "%v32 = getelementptr ptr, ptr %memories, i64 1",
        "%v33 = load ptr, ptr %v32",
        "%v34 = getelementptr i8, ptr %v33, i64 128",
        "call void @llvm.memcpy.p0.p0.i64(ptr %v34, ptr %v27, i64 %v17, i1 false)",
        "call void @stamp(ptr %times, i64 2)",
        "%v37 = getelementptr ptr, ptr %buffers2, i64 0",
        "store ptr %v34, ptr %v37",
        "%v39 = getelementptr ptr, ptr %buffers2, i64 1",
        "store ptr %v14, ptr %v39",
        "%v41 = call i32 %host_call(ptr %host, i32 0, ptr %buffers2, ptr %dims)",
        "%v42 = icmp ne i32 %v41, 0",
        "br i1 %v42, label %failed2, label %after2",
        "failed2:",
        "ret i32 3",
        "after2:",
        "call void @stamp(ptr %times, i64 3)",
        'call void @"k"(ptr %pool, ptr %v14, ptr %v27, i64 %v29)',
        "call void @stamp(ptr %times, i64 4)",
        "ret i32 0",
    ]
    object_code(text)


ARITHMETIC = [
    BinaryOp.ADD,
    BinaryOp.SUB,
    BinaryOp.MUL,
    BinaryOp.DIV,
    BinaryOp.FLOORDIV,
    BinaryOp.MOD,
    BinaryOp.REM,
    BinaryOp.MIN,
    BinaryOp.MAX,
]
DIMS = st.recursive(
    st.integers(-9, 9).map(as_expr) | st.sampled_from([N, M]),
    lambda inner: st.builds(binary, st.sampled_from(ARITHMETIC), inner, inner),
    max_leaves=6,
)
DIVISIONS = {BinaryOp.DIV, BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.REM}


@settings(max_examples=60)
@given(DIMS, st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=5))
def test_places_are_where_their_dimensions_say(dim, values):
    slots = [slot("x", "a", tensor(1), dim), slot("y", "b", tensor(1, dtype=i64))]
    text = emit_host(program(kernel_call("where", "x", "y"), slots=slots), KERNELS)
    code = load_code([("host", object_code(text)), ("k", object_code(WHERE))], ["tw_entry"])
    base, out = 1 << 40, np.zeros(1, np.int64)
    memories, entry = [base, out.ctypes.data], code.addresses["tw_entry"]
    divisors = [e.b for e in dim.walk() if getattr(e, "op", None) in DIVISIONS]
    for n, m in values:
        symbols = {"n": n, "m": m}
        with np.errstate(all="ignore"):
            zero = any(evaluate_dim(d, symbols) == 0 for d in divisors)
        assume(not zero)
        assert _native.call(entry, memories, [n, m], 0, 0, 0, 0) == 0
        assert out[0] - base == evaluate_dim(dim, symbols)


def test_times_are_stamped_in_order():
    slots = [slot("x", "a", tensor(1)), slot("y", "b", tensor(1, dtype=i64))]
    steps = [kernel_call("where", "x", "y")] * 3
    text = emit_host(program(*steps, slots=slots), KERNELS)
    code = load_code([("host", object_code(text)), ("k", object_code(WHERE))], ["tw_entry"])
    out, times = np.zeros(1, np.int64), np.zeros(5, np.int64)
    _native.call(
        code.addresses["tw_entry"], [64, out.ctypes.data], [1, 1], 0, 0, 0, times.ctypes.data
    )
    assert 0 < times[0] <= times[1] <= times[2] <= times[3]
    assert times[4] == 0


def test_a_failing_host_call_ends_the_call():
    slots = [slot("x", "a", tensor(1)), slot("y", "b", tensor(1, dtype=i64))]
    steps = [
        HostCall("first", "{}", (), ()),
        HostCall("second", "{}", ("x",), ("y",)),
        kernel_call("where", "x", "y"),
    ]
    text = emit_host(program(*steps, slots=slots), KERNELS)
    code = load_code([("host", object_code(text)), ("k", object_code(WHERE))], ["tw_entry"])
    calls, out = [], np.zeros(1, np.int64)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_int64),
    )

    def answer(host, function, buffers, dims):
        calls.append((host, function, dims[0], dims[1]))
        if function == 1:
            assert (buffers[0], buffers[1]) == (64, out.ctypes.data)
        return answers[function]

    callback = kind(answer)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    for pair, status, written in (((0, 0), 0, 64), ((0, 9), 2, 0), ((9, 0), 1, 0)):
        answers, out[0] = pair, 0
        arguments = ([64, out.ctypes.data], [5, 6], 0, address, 77, 0)
        assert _native.call(code.addresses["tw_entry"], *arguments) == status
        assert out[0] == written
    assert calls == [(77, f, 5, 6) for f in (0, 1, 0, 1, 0)]


@pytest.mark.parametrize(
    "steps, slots, text",
    [
        ([kernel_call("zz")], [], "there is no kernel 'zz'"),
        (
            [kernel_call("k", "x")],
            [],
            ("kernel 'k' takes 2 buffers and 1 dimensions, and is called with 1 and 0"),
        ),
    ],
)
def test_programs_that_cannot_be(steps, slots, text):
    with pytest.raises(CompileError) as caught:
        emit_host(program(*steps, slots=slots), KERNELS)
    assert caught.value.what == text
