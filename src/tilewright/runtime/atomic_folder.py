"""Folders that are either whole or not there: made beside their place under another name, and put
there at one stroke. A folder with something in it is never replaced."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

from tilewright.base.errors import ArtifactError
from tilewright.runtime.atomic import BESIDE, check_parent

HINT = "name one that is not there, or is empty"


def write_folder(path: Path, files: Iterable[tuple[str, bytes | memoryview]]) -> int:
    """Puts a folder with these files at `path`, by their paths in it, and returns how many bytes
    they have. ArtifactError says why that cannot be done."""
    check_folder(path)
    beside = path.parent / f"{BESIDE}{secrets.token_hex(8)}.part"
    try:
        beside.mkdir()
        try:
            size = sum(_write_file(beside / name, data) for name, data in files)
            os.rename(beside, path)  # over nothing, or an empty folder
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}", hint=HINT) from None
    return size


def check_folder(path: Path) -> None:
    """ArtifactError if something is at `path` that is no empty folder, or there is no folder for
    it."""
    try:
        check_parent(path)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise ArtifactError(f"cannot write {path}: it is there, and no folder", hint=HINT)
        if path.is_dir() and any(path.iterdir()):
            raise ArtifactError(f"cannot write {path}: the folder is not empty", hint=HINT)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:  # a name with a zero byte
        raise ArtifactError(f"cannot write {str(path)!r}: {error}") from None


def _write_file(path: Path, data: bytes | memoryview) -> int:
    path.parent.mkdir(exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return memoryview(data).nbytes
