"""Makes functions of object files, in this process.

Each model has a linker session of its own, so that the names in one model cannot meet another's.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from tilewright.base.errors import ArtifactError
from tilewright.runtime import _native
from tilewright.runtime.elf import ObjectFacts, read_object
from tilewright.runtime.system import host_triple, require_memory

# What compiled code may call besides the C runtime, where Python itself does not have it loaded.
_LIBRARIES = ("libm.so.6", "libgcc_s.so.1", "libSystem.dylib")

# LLVM ends the process when it gets no memory: so much must be there before it links.
LINK_BYTES, LINK_TIMES = 32 << 20, 8

# LLVM's lists of symbols and libraries are the process's. Code may be unloaded by the garbage
# collector while this thread loads some: the lock must let it.
_lock = threading.RLock()


class LoadedCode:
    """Linked code. `addresses` are valid as long as this object lives and is not closed."""

    def __init__(self, session: llvm.LLJIT, library: llvm.ResourceTracker, names: Sequence[str]):
        self.addresses = {name: library[name] for name in names}
        self._unload = weakref.finalize(self, _unload, library, session)
        self._unload.atexit = False  # other threads may still run it then

    def close(self) -> None:
        """Unload the code. Nothing may be running in it."""
        self._unload()


def _unload(library: llvm.ResourceTracker, session: llvm.LLJIT) -> None:
    with _lock:
        library.close()
        session.close()


def load_code(
    objects: Sequence[tuple[str, bytes]],
    exports: Sequence[str],
    symbols: Mapping[str, int] | None = None,
) -> LoadedCode:
    """Links `objects` with the C runtime, `symbols` (addresses by name) and the C library."""
    code = sum(len(data) for _, data in objects)
    require_memory(LINK_BYTES + LINK_TIMES * code, "linking the model's code")
    provided = {**_native.addresses(), **(symbols or {})}
    facts = [(name, read_object(name, data)) for name, data in objects]
    with _lock:
        _prepare_llvm()
        _check_architecture(facts)
        _check_symbols(facts, exports, provided)
        builder = llvm.JITLibraryBuilder().add_current_process()
        for _, data in objects:
            builder.add_object_img(data)
        for name, address in provided.items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        # JITLink, unlike the older linker, reports what it cannot link as an error.
        session = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        try:
            library = builder.link(session, "model")
        except RuntimeError as error:
            session.close()
            raise ArtifactError(f"the model's code cannot be linked: {error}") from None
        return LoadedCode(session, library, exports)


@functools.cache
def _prepare_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _check_architecture(facts: Sequence[tuple[str, ObjectFacts]]) -> None:
    here = host_triple().split("-")[0]
    for name, found in facts:
        if here not in found.architectures:
            there = found.architectures[0] if found.architectures else "another architecture"
            raise ArtifactError(f"object {name!r} is code for {there}, and this machine is {here}")


def _check_symbols(
    facts: Sequence[tuple[str, ObjectFacts]], exports: Sequence[str], provided: Mapping[str, int]
) -> None:
    """Every name that is exported or needed must be somewhere."""
    defined = frozenset().union(*(found.defined for _, found in facts))
    for symbol in exports:
        if symbol not in defined:
            raise ArtifactError(f"the model's code has no function {symbol}")
    for name, found in facts:
        missing = [s for s in sorted(found.undefined - defined - provided.keys()) if _lost(s)]
        if missing:
            raise ArtifactError(
                f"object {name!r} calls what this machine does not have: {', '.join(missing)}"
            )


def _lost(symbol: str) -> bool:
    return llvm.address_of_symbol(symbol) is None and not _found_in_libraries(symbol)


def _found_in_libraries(symbol: str) -> bool:
    _load_libraries()
    return llvm.address_of_symbol(symbol) is not None


@functools.cache
def _load_libraries() -> None:
    for library in _LIBRARIES:
        try:
            llvm.load_library_permanently(library)
        except RuntimeError:  # this system does not have it, or calls it otherwise
            continue
