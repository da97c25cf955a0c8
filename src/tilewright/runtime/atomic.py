"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tilewright.base.errors import ArtifactError


def write_atomically(path: Path, fill: Callable[[BinaryIO], None]) -> None:
    """Puts what `fill` writes at `path`, replacing what was there, once all of it is on the disk.

    It is written beside its final place first, since a file can only be moved at one stroke within
    one file system. Whatever goes wrong, nothing of it stays behind.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(beside, "xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _flush_folder(path.parent)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)


def _flush_folder(folder: Path) -> None:
    """The new name is on the disk only once the folder is."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
