"""The host's kernels, compiled side by side by other processes; those that are kept are taken from
the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tilewright.assemble import CompiledKernel
from tilewright.compile_cache import decode_kernel, encode_kernel, find_kernel
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import Layout
from tilewright.runtime.cache import Cache
from tilewright.runtime.processes import in_processes
from tilewright.target.target import Target

Job = tuple[TensorProgram, dict[str, Layout], Target]  # a kernel to be compiled
Compile = Callable[[str, TensorProgram, dict[str, Layout], Target], CompiledKernel]


def side_by_side(
    jobs: Mapping[str, Job], compile_kernel: Compile, cache: Cache | None
) -> Iterator[tuple[str, CompiledKernel]]:
    """Kernels by their names, as they come: those that were kept, then those that other processes
    compile. Not all of them."""
    left = dict(jobs)
    for name, job in jobs.items():
        kept = None if cache is None else find_kernel(cache, name, *job)
        if kept is not None:
            del left[name]
            yield name, kept

    def work(name: str) -> bytes:
        return encode_kernel(compile_kernel(name, *jobs[name]))

    for name, data in in_processes(work, list(left)):
        program, _, target = jobs[name]
        yield name, decode_kernel(data, name, program, target)
