"""The ways to execute a kernel: the ordered passes that take scheduled loops to code.

Native: LLVM machine code for a processor, run in this process.
"""

from __future__ import annotations

from functools import partial

from tilewright.backends.native.llvm import emit_kernel
from tilewright.backends.native.object_code import compile_object
from tilewright.base.passes import Pass, Recorder, run_passes
from tilewright.ir.loop import Kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.lower.block_sums import block_sums
from tilewright.lower.expand_f8 import expand_f8
from tilewright.lower.expand_math import expand_math
from tilewright.lower.place_storage import place_storage
from tilewright.lower.run_in_order import run_in_order
from tilewright.lower.split_accumulators import split_accumulators
from tilewright.lower.unroll import unroll
from tilewright.lower.vectorize import vectorize
from tilewright.runtime.system import require_memory
from tilewright.target.target import Target


def native_passes(target: Target) -> tuple[Pass, ...]:
    """From scheduled loops to loops that are code but for their spelling."""
    return (
        run_in_order,  # first: to the others a bound loop is one like any
        expand_f8,
        partial(expand_math, table=target.vectors.table),  # after expand_f8: it sees those as f32
        split_accumulators,  # before unroll: it looks for loops
        block_sums,  # after split_accumulators: what a lane adds up counts
        unroll,
        partial(place_storage, workers=target.cores),  # after unroll: no buffer is in a copied body
        partial(vectorize, target=target),  # last: what it leaves is spelled as it stands
    )


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
