"""Compiled models on disk, ready to be called, with the operators that they run on the host."""

from __future__ import annotations

import os

from tilewright.backends.host.functions import host_table
from tilewright.ops.table import OPS
from tilewright.runtime import artifact
from tilewright.runtime.atomic import as_path
from tilewright.runtime.devices import DeviceTable
from tilewright.runtime.module import Module


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    verify: bool = True,
    devices: DeviceTable | None = None,
) -> Module:
    """The Module that `module.save(path)` or `tilewright compile` wrote, ready to be called here.

    The file holds machine code: load only what you would run. It is mapped, and shared with other
    processes that load it. `threads` is how many the model runs on (by default, all CPUs). With
    `verify` the weights' checksums are tested as well. `devices` makes devices of kinds of one's
    own, by the kind, of their parts (docs/new-device-kind.md). Raises ArtifactError if the file is
    damaged, of another format, or for another machine.
    """
    path = as_path(path, 'load("model.tw")')
    return artifact.load(
        path, threads=threads, host=host_table(OPS), verify=verify, devices=devices
    )
