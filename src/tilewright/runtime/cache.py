"""A folder of what was made once, by keys that say what it was made from.

An entry is a file of its own, whole or not there, with a digest of what is in it: processes may
write and remove the same ones at any time, and be killed. Nothing depends on an entry: what is
missing, damaged or cannot be written is made again. The entries used last stay when the folder
grows beyond its limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tilewright.base.errors import ArtifactError, InputError
from tilewright.runtime.atomic import BESIDE, write_atomically

T = TypeVar("T")

FOLDER, SIZE = "TILEWRIGHT_CACHE", "TILEWRIGHT_CACHE_SIZE"  # of the environment
OFF = "off"
LIMIT = 4 << 30  # bytes
_MAGIC = b"\x89TWC\r\n\x1a\n"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Entry:
    """A file of the cache: what kind of thing is in it, its bytes, when it was used last (seconds
    since 1970)."""

    path: Path
    kind: str
    size: int
    used: float


@dataclass(frozen=True)
class Cache:
    """`limit` is in bytes; an entry of more than half of it is not kept."""

    folder: Path
    limit: int = LIMIT

    def path(self, kind: str, key: bytes) -> Path:
        """Where an entry is, or would be."""
        name = key.hex()
        return self.folder / name[:2] / f"{name[2:]}.{kind}"

    def read(self, kind: str, key: bytes) -> bytes | None:
        """What was written by this name; None if it is not there, or not what was written."""
        path = self.path(kind, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + hashlib.sha256().digest_size
        if data[:start] != _MAGIC + hashlib.sha256(key + data[start:]).digest():
            self.drop(path)
            return None
        self.touch(path)
        return data[start:]

    def write(self, kind: str, key: bytes, data: bytes) -> None:
        """Keeps an entry, if that can be done."""
        whole = _MAGIC + hashlib.sha256(key + data).digest() + data
        if len(whole) <= self.limit // 2:
            self.place(kind, key, lambda path: write_atomically(path, _filler(whole), flush=False))

    def load(self, kind: str, key: bytes, read: Callable[[Path], T]) -> T | None:
        """What `read` makes of an entry's file that checks itself, and was written by `place`; None
        if there is none that is whole."""
        path = self.path(kind, key)
        if not path.exists():
            return None
        try:
            found = read(path)
        except (ArtifactError, OSError):
            self.drop(path)
            return None
        self.touch(path)
        return found

    def place(self, kind: str, key: bytes, write: Callable[[Path], object]) -> Path | None:
        """Has `write` make the file of an entry; None if it could not."""
        path = self.path(kind, key)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            write(path)
        except (ArtifactError, OSError):
            return None
        return path

    def entries(self) -> Iterator[Entry]:
        """All of them, in no order. What other processes remove meanwhile is left out."""
        with contextlib.suppress(OSError):
            for folder in os.scandir(self.folder):
                if re.fullmatch("[0-9a-f]{2}", folder.name):
                    with contextlib.suppress(OSError):
                        yield from map(_entry, filter(_is_file, os.scandir(folder.path)))

    def trim(self, size: int | None = None) -> list[Entry]:
        """Removes the entries that were not used for the longest time, until at most `size` bytes
        are left (by default, the limit), and returns them."""
        left = self.limit if size is None else size
        removed = []
        for entry in sorted(self.entries(), key=lambda e: -e.used):
            left -= entry.size
            if left < 0:
                self.drop(entry.path)
                removed.append(entry)
        return removed

    def drop(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def touch(self, path: Path) -> None:
        """It was used now."""
        with contextlib.suppress(OSError):
            os.utime(path)


def find_cache(given: str | os.PathLike[str] | bool | None) -> Cache | None:
    """The cache in a folder, or for None and True the one that the environment names: the folder
    in TILEWRIGHT_CACHE ("off" is none) or tilewright below the user's folder for caches. None for
    False, and for a folder of another user's, who could have put any code there. InputError for a
    size that is none."""
    if given is False:
        return None
    if given is None or given is True:
        given = os.environ.get(FOLDER, "")
        if given == OFF:
            return None
    folder = Path(given) if given else _users()
    limit = parse_size(os.environ.get(SIZE) or LIMIT)
    return Cache(folder, limit) if _is_ours(folder) else None


def _is_ours(folder: Path) -> bool:
    """Whether a folder is this user's, or not there yet."""
    try:
        return not hasattr(os, "geteuid") or os.stat(folder).st_uid == os.geteuid()
    except OSError:
        return True


def parse_size(given: str | int) -> int:
    """A number of bytes, of "512M", "4GiB" or 1000."""
    found = re.fullmatch(r"(\d+) ?([KMGT]?)(i?B)?", str(given).strip(), re.IGNORECASE)
    if found is None:
        hint = "a whole number, with K, M, G or T for powers of 1024: 4G"
        raise InputError(f"{given!r} is no size of a cache", hint=hint)
    return int(found[1]) * _UNITS[found[2].upper()]


def _users() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "tilewright"


def _filler(data: bytes) -> Callable[..., object]:
    return lambda sink: sink.write(data)


def _is_file(found: os.DirEntry[str]) -> bool:
    return found.is_file(follow_symlinks=False)


def _entry(found: os.DirEntry[str]) -> Entry:
    status = found.stat(follow_symlinks=False)
    kind = "part" if found.name.startswith(BESIDE) else found.name.partition(".")[2]
    return Entry(Path(found.path), kind, status.st_size, status.st_mtime)
