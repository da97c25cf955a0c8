"""From LLVM IR text to machine code: optimise for the target, emit an object file."""

from __future__ import annotations

import functools
import threading

import llvmlite.binding as llvm

from tilewright.base.errors import CompileError
from tilewright.target.target import Native

_lock = threading.Lock()


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


def optimize_module(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Parses, verifies and optimises a module."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the generated code: {error}", program=text) from None
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False  # vector loops are the schedule's
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(text: str, native: Native) -> bytes:
    """The object file of a module."""
    machine = target_machine(native)
    return machine.emit_object(optimize_module(text, machine))


def compile_assembly(text: str, native: Native) -> str:
    """The assembly text of a module, as a person reads it."""
    machine = target_machine(native)
    return machine.emit_assembly(optimize_module(text, machine))
