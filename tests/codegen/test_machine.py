"""LLVM's part: what it refuses, and that nothing of a compilation stays in the process."""

import subprocess
import sys

import pytest

from tilewright.backends.native.object_code import compile_assembly, compile_object
from tilewright.base.errors import CompileError
from tilewright.target.target import Native

NATIVE = Native("x86_64-unknown-linux-gnu", "x86-64", ())
GOOD = "define i64 @f(i64 %x) {\n  ret i64 %x\n}\n"


def refusal(what, text, native=NATIVE):
    with pytest.raises(CompileError) as caught:
        what(text, native)
    return caught.value.what


def test_a_module_becomes_code():
    assert compile_object(GOOD, NATIVE)[:4] == b"\x7fELF"
    assert "movq\t%rdi, %rax" in compile_assembly(GOOD, NATIVE)


def test_what_llvm_refuses():
    bad = refusal(compile_object, "define i64 @f(\n")
    assert bad.startswith("LLVM refused the generated code: LLVM IR parsing error\n")
    twice = "define void @f() {\n  %a = add i64 %b, 1\n  %b = add i64 %a, 1\n  ret void\n}\n"
    assert refusal(compile_object, twice) == (
        "LLVM refused the generated code: Instruction does not dominate all uses!\n"
        "  %b = add i64 %a, 1\n  %a = add i64 %b, 1\n"
    )
    nowhere = refusal(compile_object, GOOD, Native("pdp11-unknown-none", "", ()))
    assert nowhere.startswith("LLVM has no code generator for pdp11-unknown-none: ")


GROWTH = """
from pathlib import Path
from tilewright.backends.native.object_code import compile_object
from tilewright.target.target import Native

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

def compile_many(numbers):
    for n in numbers:
        body = "".join(f"  %v{i} = add i64 %v{i - 1}, {n * 1000 + i}\\n" for i in range(1, 200))
        compile_object(f"define i64 @f{n}(i64 %v0) {{\\n{body}  ret i64 %v199\\n}}\\n", NATIVE)

NATIVE = Native("x86_64-unknown-linux-gnu", "x86-64", ())
compile_many(range(20))
before = resident()
compile_many(range(20, 120))
print(resident() - before)
"""


def test_nothing_stays_in_the_process():
    """A pass manager that is not freed is a tenth of a megabyte for each module, and constants stay
    in LLVM's global context: 16 MB in all here."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 3000, "kilobytes in 100 modules"
