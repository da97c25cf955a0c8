"""Machine code for the runtime's tests: bodies and entries such as a compiled model has."""

import ctypes

import pytest
from llvmlite import binding as llvm

from tilewright.runtime import _native

CODE = """
; Counts every task, and every task of a worker: two arrays behind the context.
%counts = type { ptr, ptr }
define void @count(ptr %context, i64 %begin, i64 %end, i64 %worker) {
entry:
  %tasks = load ptr, ptr %context
  %second = getelementptr %counts, ptr %context, i32 0, i32 1
  %workers = load ptr, ptr %second
  %mine = getelementptr i64, ptr %workers, i64 %worker
  %size = sub i64 %end, %begin
  %old = atomicrmw add ptr %mine, i64 %size seq_cst
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %task = getelementptr i64, ptr %tasks, i64 %i
  %was = atomicrmw add ptr %task, i64 1 seq_cst
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

; Writes the end of each piece at its beginning.
define void @cut(ptr %ends, i64 %begin, i64 %end, i64 %worker) {
  %place = getelementptr i64, ptr %ends, i64 %begin
  store i64 %end, ptr %place
  ret void
}

; A region of two inside each task. In its body, the context says under which worker it was started.
%nested = type { ptr, ptr, ptr, i64 }                        ; tw_parallel, pool, outside, size
define void @outer(ptr %context, i64 %begin, i64 %end, i64 %worker) {
  %parallel = load ptr, ptr %context
  %pool.at = getelementptr %nested, ptr %context, i32 0, i32 1
  %pool = load ptr, ptr %pool.at
  %outside.at = getelementptr %nested, ptr %context, i32 0, i32 2
  %outside = load ptr, ptr %outside.at
  %pair = alloca { i64, ptr }
  store i64 %worker, ptr %pair
  %slot = getelementptr { i64, ptr }, ptr %pair, i32 0, i32 1
  store ptr %outside, ptr %slot
  call void %parallel(ptr %pool, ptr @inner, ptr %pair, i64 2, i64 1)
  ret void
}
; Counts the tasks that run under that worker, then those that do not.
define void @inner(ptr %pair, i64 %begin, i64 %end, i64 %worker) {
  %outer = load i64, ptr %pair
  %slot = getelementptr { i64, ptr }, ptr %pair, i32 0, i32 1
  %outside = load ptr, ptr %slot
  %other = icmp ne i64 %outer, %worker
  %which = zext i1 %other to i64
  %place = getelementptr i64, ptr %outside, i64 %which
  %old = atomicrmw add ptr %place, i64 1 seq_cst
  ret void
}

; Spins in every task until the flag is set; counts who got here.
define void @hold(ptr %flags, i64 %begin, i64 %end, i64 %worker) {
entry:
  %arrived = getelementptr i64, ptr %flags, i64 1
  %old = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %loop
loop:
  %flag = load atomic i64, ptr %flags seq_cst, align 8
  %set = icmp ne i64 %flag, 0
  br i1 %set, label %done, label %loop
done:
  ret void
}

; Writes the worker behind the flags, at the task's place, then holds.
define void @hold_own(ptr %flags, i64 %begin, i64 %end, i64 %worker) {
  %index = add i64 %begin, 2
  %place = getelementptr i64, ptr %flags, i64 %index
  store i64 %worker, ptr %place
  call void @hold(ptr %flags, i64 %begin, i64 %end, i64 %worker)
  ret void
}

%call = type { ptr, ptr, ptr, ptr, ptr, ptr }    ; memories, dims, pool, host_call, host, times

; Copies the call's fields to memory 0, dims[0] and memories[1] behind them; answers 7.
define i32 @report(ptr %call) {
  %memories = load ptr, ptr %call
  %out = load ptr, ptr %memories
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %call, i64 48, i1 0)
  %dims.at = getelementptr %call, ptr %call, i32 0, i32 1
  %dims = load ptr, ptr %dims.at
  %dim = load i64, ptr %dims
  %six = getelementptr i64, ptr %out, i64 6
  store i64 %dim, ptr %six
  %second.at = getelementptr ptr, ptr %memories, i64 1
  %second = load ptr, ptr %second.at
  %seven = getelementptr i64, ptr %out, i64 7
  store ptr %second, ptr %seven
  ret i32 7
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Adds up memories[1:1 + dims[0]] and dims[1:1 + dims[0]], as numbers, into memory 0.
define i32 @sum(ptr %call) {
entry:
  %memories = load ptr, ptr %call
  %out = load ptr, ptr %memories
  %dims.at = getelementptr %call, ptr %call, i32 0, i32 1
  %dims = load ptr, ptr %dims.at
  %count = load i64, ptr %dims
  br label %loop
loop:
  %i = phi i64 [ 1, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %both, %loop ]
  %memory.at = getelementptr i64, ptr %memories, i64 %i
  %memory = load i64, ptr %memory.at
  %dim.at = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dim.at
  %one = add i64 %total, %memory
  %both = add i64 %one, %dim
  %next = add i64 %i, 1
  %more = icmp sle i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  store i64 %both, ptr %out
  ret i32 0
}

; One region of dims[0] tasks, one in each piece: memories are tw_parallel, the body, its context.
define i32 @region(ptr %call) {
  %memories = load ptr, ptr %call
  %parallel = load ptr, ptr %memories
  %body.at = getelementptr ptr, ptr %memories, i64 1
  %body = load ptr, ptr %body.at
  %context.at = getelementptr ptr, ptr %memories, i64 2
  %context = load ptr, ptr %context.at
  %dims.at = getelementptr %call, ptr %call, i32 0, i32 1
  %dims = load ptr, ptr %dims.at
  %count = load i64, ptr %dims
  %pool.at = getelementptr %call, ptr %call, i32 0, i32 2
  %pool = load ptr, ptr %pool.at
  call void %parallel(ptr %pool, ptr %body, ptr %context, i64 %count, i64 1)
  ret i32 0
}

; Answers what host call number 5, given the memories and the dims, answers.
define i32 @ask_host(ptr %call) {
  %memories = load ptr, ptr %call
  %dims.at = getelementptr %call, ptr %call, i32 0, i32 1
  %dims = load ptr, ptr %dims.at
  %function.at = getelementptr %call, ptr %call, i32 0, i32 3
  %function = load ptr, ptr %function.at
  %host.at = getelementptr %call, ptr %call, i32 0, i32 4
  %host = load ptr, ptr %host.at
  %answer = call i32 %function(ptr %host, i32 5, ptr %memories, ptr %dims)
  ret i32 %answer
}
"""

REGION = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


@pytest.fixture(scope="session")
def code():
    """The address of a function above, by its name."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(CODE), machine)
    engine.finalize_object()
    return engine.get_function_address


@pytest.fixture(scope="session")
def parallel():
    """tw_parallel(pool address or None, body, context, count, grain), without the GIL."""
    return REGION(_native.addresses()["tw_parallel"])
