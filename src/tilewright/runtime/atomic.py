"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tilewright.base.errors import ArtifactError

Fill = Callable[[BinaryIO], None]


def write_atomically(path: Path, fill: Fill) -> None:
    """Puts what `fill` writes at `path`, replacing what was there, once all of it is on the disk.

    Until then the file has no name, so that nothing stays behind even if the process is killed.
    Where the system cannot do that it is written beside its final place, since a file can only be
    moved at one stroke within one file system, and removed if something goes wrong.
    """
    try:
        if not _write_nameless(path, fill):
            _write_beside(path, fill)
        _flush_folder(path.parent)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from None


def _write_nameless(path: Path, fill: Fill) -> bool:
    """Whether the system could do it so."""
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
    except (OSError, AttributeError):
        return False
    with os.fdopen(handle, "wb") as file:
        _write(file, fill)
        try:
            _give_name(file, path)
        except FileExistsError:
            _replace(path, lambda beside: _give_name(file, beside))
        except OSError:
            return False
    return True


def _write_beside(path: Path, fill: Fill) -> None:
    def write(beside: Path) -> None:
        with open(beside, "xb") as file:
            _write(file, fill)

    _replace(path, write)


def _write(file: BinaryIO, fill: Fill) -> None:
    fill(file)
    file.flush()
    os.fsync(file.fileno())


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    """Makes a file beside `path` and moves it there."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        make(beside)
        os.replace(beside, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)


def _give_name(file: BinaryIO, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # naming a folder makes Python use the call that follows the link in /proc
        source = f"/proc/self/fd/{file.fileno()}"
        os.link(source, path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _flush_folder(folder: Path) -> None:
    """The new name is on the disk only once the folder is."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
