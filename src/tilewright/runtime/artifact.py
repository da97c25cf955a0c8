"""Compiled models on disk: save one, load it, see what is in it. See docs/artifact.md.

A .tw file holds native code. Loading one is running a program: trust it as much.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.base.errors import ArtifactError
from tilewright.runtime.container import read_program, write_program
from tilewright.runtime.devices import DeviceTable
from tilewright.runtime.host_functions import HostTable, check_table
from tilewright.runtime.module import CONCURRENCY, Module
from tilewright.runtime.pool import ThreadPool
from tilewright.runtime.processor import check_machine


def save(path: str | Path, module: Module) -> None:
    """Writes a module to a file: all of it, or nothing."""
    write_program(path, module.program)


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    pool: ThreadPool | None = None,
    host: HostTable | None = None,
    concurrency: int = CONCURRENCY,
    devices: DeviceTable | None = None,
    verify: bool = True,
) -> Module:
    """The module in a file, ready to run here; ArtifactError if it cannot.

    Its constants stay in the file, which all processes that load it share. `verify` reads them once
    to check them. `host` has the operators that run outside compiled code, `devices` makes devices
    of kinds of the caller's, of their parts of the program.
    """
    program = read_program(path, verify=verify)
    try:
        check_machine(program.target)
        check_table(program.host, host)
        return Module(
            program,
            threads=threads,
            pool=pool,
            host=host,
            concurrency=concurrency,
            devices=devices,
        )
    except ArtifactError as error:
        error.add_context(f"loading {path}")
        raise
