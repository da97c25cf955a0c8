"""From LLVM IR text to machine code: optimise for the target, emit an object file.

What LLVM makes of a text goes with it: each has a context of its own, since types and constants
stay in a context as long as it lives.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import llvmlite.binding as llvm

from tilewright.base.errors import CompileError
from tilewright.target.target import Native

_lock = threading.RLock()  # of LLVM, which runs in one thread at a time and is whole in a fork
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target_machine(native: Native) -> llvm.TargetMachine:
    """LLVM's description of the machine to generate code for."""
    with _lock:
        _initialize()
    try:
        found = llvm.Target.from_triple(native.triple)
    except RuntimeError as error:
        raise CompileError(f"LLVM has no code generator for {native.triple}: {error}") from None
    features = ",".join(f"+{name}" for name in native.features)
    return found.create_target_machine(
        cpu=native.processor, features=features, opt=3, reloc="pic", codemodel="default"
    )


@contextmanager
def optimized_module(text: str, machine: llvm.TargetMachine) -> Iterator[llvm.ModuleRef]:
    """Parses, verifies and optimises a module, which is there until the block ends."""
    with closing(llvm.create_context()) as context:
        try:
            module = llvm.parse_assembly(text, context)
        except RuntimeError as error:
            raise _refused(text, error) from None
        with closing(module):
            try:
                module.verify()
            except RuntimeError as error:
                raise _refused(text, error) from None
            _run_passes(module, machine)
            yield module


def _refused(text: str, error: RuntimeError) -> CompileError:
    return CompileError(f"LLVM refused the generated code: {error}", program=text)


def _run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    with closing(llvm.create_pipeline_tuning_options(speed_level=2)) as options:
        options.loop_vectorization = False  # vector loops are the schedule's
        options.slp_vectorization = False
        with closing(llvm.create_pass_builder(machine, options)) as builder:
            passes = builder.getModulePassManager()
            try:
                passes.run(module, builder)
            finally:  # `close` alone frees nothing: of two inherited ways it finds the empty one
                llvm.newpassmanagers.NewPassManager._dispose(passes)
                passes.detach()


def compile_object(text: str, native: Native) -> bytes:
    """The object file of a module."""
    with (
        _lock,
        closing(target_machine(native)) as machine,
        optimized_module(text, machine) as module,
    ):
        return bytes(machine.emit_object(module))


def compile_assembly(text: str, native: Native) -> str:
    """The assembly text of a module, as a person reads it."""
    with (
        _lock,
        closing(target_machine(native)) as machine,
        optimized_module(text, machine) as module,
    ):
        return str(machine.emit_assembly(module))
