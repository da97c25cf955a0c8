"""Files that are either whole or not there; and what is no file, but can be written to.

| what is at the path       | what is done                                                        |
|---------------------------|---------------------------------------------------------------------|
| nothing, a file           | written without a name, then put there at one stroke                |
| a symbolic link           | followed: the link stays, and what it points at is written          |
| a device, a pipe          | written through, front to back                                      |
| an open file of ours      | (/dev/stdout, /dev/fd/N) written through, from where it stands      |
| a folder, socket, or disk | refused                                                             |

A file that is replaced hands its permissions on, and its owner where the system lets us. Its other
hard links keep what was there before. A file that may not be written is not replaced either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TextIO

from tilewright.base.errors import ArtifactError


class Sink(Protocol):
    """What bytes are written to, in order: not every place can go back."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Takes all of the data."""
        ...


Fill = Callable[[Sink], object]

LINKS = 40  # as many as Linux follows
BESIDE = ".tilewright."  # how names of files begin that are not whole yet


def write_atomically(path: Path, fill: Fill, *, flush: bool = True) -> int:
    """Puts what `fill` writes at `path`, and returns how many bytes that are. A file is replaced
    once all of it is on the disk; ArtifactError says why that cannot be done.

    Until then the new file has no name, so that nothing stays behind even if the process is killed.
    Where the system cannot do that it is written beside its final place, since a file can only be
    moved at one stroke within one file system, and removed if something goes wrong. Without `flush`
    it may be lost, or parts of it, if the machine goes down soon afterwards.
    """
    try:
        return _write(path, fill, flush)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from None
    except ValueError as error:  # a name with a zero byte
        raise ArtifactError(f"cannot write {str(path)!r}: {error}") from None


def as_path(path: object, example: str) -> Path:
    """What a caller gave as the path of a file: ArtifactError, with an `example`, if it is none."""
    if not isinstance(path, (str, os.PathLike)) or path == "":
        raise ArtifactError(f"{path!r} is no path", hint=f"for example {example}")
    return Path(path)


def check_place(path: Path) -> None:
    """Raises the ArtifactError that writing a file would raise later because of where that is: a
    folder, or a place in a folder that there is not."""
    if os.path.isdir(path):
        raise ArtifactError(f"cannot write {path}: {os.strerror(errno.EISDIR)}")
    check_parent(path)


def check_parent(path: Path) -> None:
    """The same for what would be put in a folder that there is not."""
    if not os.path.isdir(path.parent):
        problem = errno.ENOTDIR if os.path.exists(path.parent) else errno.ENOENT
        raise ArtifactError(f"cannot write {path}: {os.strerror(problem)}")


def is_same_file(path: Path, stream: TextIO) -> bool:
    """Whether `path` leads to what the stream writes to."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(stream.fileno()))
    except (OSError, ValueError):  # gone, or a stream that is no file
        return False


def _write(path: Path, fill: Fill, flush: bool) -> int:
    place = _follow(path)
    if isinstance(place, int):
        return _write_through(os.dup(place), fill)
    old = _status(place)
    if old is None or stat.S_ISREG(old.st_mode):
        return _write_file(place, old, fill, flush)
    if stat.S_ISCHR(old.st_mode) or stat.S_ISFIFO(old.st_mode):
        return _write_through(os.open(place, os.O_WRONLY), fill)
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kind = "a disk" if stat.S_ISBLK(old.st_mode) else "a socket"
    raise OSError(f"it is {kind}, and neither a file, a pipe, nor a terminal")


def _follow(path: Path) -> Path | int:
    """Where symbolic links lead: a path that is none, or the number of an open file of ours."""
    for _ in range(LINKS):
        if not path.is_symlink():
            return path
        folder = path.parent.resolve()
        if folder == Path(f"/proc/{os.getpid()}/fd"):
            return int(path.name)
        path = folder / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


class _Counted:
    """A sink that knows how much it took."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.bytes = 0

    def write(self, data: bytes | memoryview, /) -> int:
        size = memoryview(data).nbytes
        self._sink.write(data)
        self.bytes += size
        return size


def _write_through(handle: int, fill: Fill) -> int:
    with os.fdopen(handle, "wb") as file:
        sink = _Counted(file)
        fill(sink)
        file.flush()
    return sink.bytes


# ---------------------------------------------------------------- files


def _write_file(path: Path, old: os.stat_result | None, fill: Fill, flush: bool) -> int:
    if old is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    size = _write_nameless(path, old, fill, flush)
    if size is None:
        size = _write_beside(path, old, fill, flush)
    if flush:
        _flush_folder(path.parent)
    return size


def _write_nameless(path: Path, old: os.stat_result | None, fill: Fill, flush: bool) -> int | None:
    """The file's size; None where the system cannot do it so."""
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
    except (OSError, AttributeError):
        return None
    size = _fill(handle, old, fill, flush)
    with _closing(handle):
        try:
            _give_name(handle, path)
        except FileExistsError:
            _replace(path, lambda beside: _give_name(handle, beside))
        except OSError:
            return None
    return size


def _write_beside(path: Path, old: os.stat_result | None, fill: Fill, flush: bool) -> int:
    sizes = []

    def write(beside: Path) -> None:
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        sizes.append(_fill(handle, old, fill, flush))
        os.close(handle)

    _replace(path, write)
    return sizes[0]


def _fill(handle: int, old: os.stat_result | None, fill: Fill, flush: bool) -> int:
    """Writes a new file to the disk; closes it if that fails."""
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, handle)
        if old is not None:
            _take_over(handle, old)
        with open(handle, "wb", closefd=False) as file:
            sink = _Counted(file)
            fill(sink)
        if flush:
            os.fsync(handle)
        undo.pop_all()
    return sink.bytes


def _take_over(handle: int, old: os.stat_result) -> None:
    """The owner first: a change of owner takes special permissions away."""
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(OSError):
            os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


@contextlib.contextmanager
def _closing(handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(handle)


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    """Makes a file beside `path` and moves it there."""
    beside = path.with_name(f"{BESIDE}{secrets.token_hex(8)}.part")
    try:
        make(beside)
        os.replace(beside, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)


def _give_name(handle: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    with _closing(folder):  # naming a folder makes Python use the call that follows links of /proc
        source = f"/proc/self/fd/{handle}"
        os.link(source, path, src_dir_fd=folder, follow_symlinks=True)


def _flush_folder(folder: Path) -> None:
    """The new name is on the disk only once the folder is."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with _closing(handle):
        os.fsync(handle)
