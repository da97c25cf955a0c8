"""The ways to execute a kernel: the ordered passes that take scheduled loops to code.

Native: LLVM machine code for a processor, run in this process.
"""

from __future__ import annotations

from tilewright.backends.native.llvm import emit_kernel
from tilewright.backends.native.object_code import compile_object
from tilewright.base.passes import Recorder, run_passes
from tilewright.ir.loop import Kernel
from tilewright.ir.verify.programs import verify_kernel
from tilewright.lower.native import native_passes
from tilewright.runtime.system import require_memory
from tilewright.target.target import Target

LLVM_BYTES = 64 << 20  # that LLVM takes for any kernel, with room for what runs beside it
LLVM_BYTES_EACH = 512  # for a character of its text; 400 were seen


def lower(kernel: Kernel, target: Target, recorder: Recorder | None, *, verify: bool) -> Kernel:
    """A scheduled kernel ready for code generation."""
    check = verify_kernel if verify else None
    return run_passes(
        kernel,
        native_passes(target),
        stage="lowered",
        subject=kernel.name,
        recorder=recorder,
        check=check,
    )


def to_llvm(kernel: Kernel, target: Target) -> str:
    """The LLVM module of a lowered kernel."""
    return emit_kernel(kernel, target)


def to_object(text: str, target: Target) -> bytes:
    """Machine code. LLVM ends the process when it gets no memory: there must be some to spare."""
    require_memory(LLVM_BYTES + LLVM_BYTES_EACH * len(text), "making machine code of a kernel")
    return compile_object(text, target.llvm)
