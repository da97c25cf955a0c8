"""What is written where: files at one stroke, devices and pipes through, and the rest refused."""

import io
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from tilewright.base.errors import ArtifactError
from tilewright.runtime.atomic import is_same_file, write_atomically

DATA = bytes(range(256)) * 1000


def write(path, data=DATA):
    return write_atomically(path, lambda sink: sink.write(data))


def refusal(path, data=DATA):
    with pytest.raises(ArtifactError) as caught:
        write(path, data)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["nameless", "beside"])
def path(folder, request, monkeypatch):
    """A new file, on systems of both kinds."""
    if request.param == "beside":
        monkeypatch.delattr(os, "O_TMPFILE")
    return folder / "file"


def test_a_new_file(path):
    assert write(path) == len(DATA)
    assert path.read_bytes() == DATA
    assert os.listdir() == ["file"]


def test_a_replaced_file_keeps_its_permissions(path):
    path.write_bytes(b"old")
    path.chmod(0o604)
    before = path.stat()
    write(path)
    after = path.stat()
    assert path.read_bytes() == DATA
    assert stat.S_IMODE(after.st_mode) == 0o604
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(path):
    path.write_bytes(b"old")
    os.chown(path, 12345, 54321)
    path.chmod(0o4755)
    write(path)
    after = path.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (12345, 54321, 0o4755)


def test_a_link_stays_and_its_file_is_replaced(path, folder):
    (folder / "deep").mkdir()
    real = folder / "deep" / "real"
    real.write_bytes(b"old")
    (folder / "middle").symlink_to("deep/real")
    path.symlink_to("middle")
    number = real.stat().st_ino
    write(path)
    assert path.is_symlink()
    assert (folder / "middle").is_symlink()
    assert real.read_bytes() == DATA
    assert real.stat().st_ino != number
    assert sorted(os.listdir("deep")) == ["real"]


def test_a_link_to_nothing_makes_what_it_points_at(path, folder):
    path.symlink_to("new")
    write(path)
    assert path.is_symlink()
    assert (folder / "new").read_bytes() == DATA


def test_other_hard_links_keep_what_was_there(path, folder):
    path.write_bytes(b"old")
    os.link(path, folder / "other")
    write(path)
    assert path.read_bytes() == DATA
    assert (folder / "other").read_bytes() == b"old"


def test_a_pipe_is_written_through(folder):
    os.mkfifo("pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_bytes()))
    reader.start()
    assert write(folder / "pipe") == len(DATA)
    reader.join()
    assert got == [DATA]
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_an_array_goes_through_a_pipe(folder):
    os.mkfifo("pipe")
    array = np.arange(100_000.0)
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_bytes()))
    reader.start()
    write_atomically(folder / "pipe", lambda sink: np.save(sink, array))
    reader.join()
    np.testing.assert_array_equal(np.load(io.BytesIO(got[0])), array)


def test_a_pipe_whose_reader_leaves(folder):
    os.mkfifo("pipe")
    reader = threading.Thread(target=lambda: os.close(os.open("pipe", os.O_RDONLY)))
    reader.start()
    assert refusal(folder / "pipe") == f"cannot write {folder / 'pipe'}: Broken pipe"
    reader.join()


def test_devices_are_written_through(folder):
    for name in ("/dev/null", "/dev/full"):
        link = folder / os.path.basename(name)
        link.symlink_to(name)
    before = os.stat("null"), os.stat("full")
    assert write(folder / "null") == len(DATA)
    problem = f"cannot write {folder / 'full'}: No space left on device"
    assert refusal(folder / "full") == problem
    assert [s.st_rdev for s in before] == [os.stat(n).st_rdev for n in ("null", "full")]
    assert sorted(os.listdir()) == ["full", "null"]


OPEN = """
import sys
from pathlib import Path
from tilewright.runtime.atomic import write_atomically
write_atomically(Path(sys.argv[1]), lambda sink: sink.write(b"new"))
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_file_is_written_from_where_it_stands(folder, name):
    with open("log", "wb") as log:
        log.write(b"old ")
        log.flush()
        before = os.fstat(log.fileno()).st_ino
        subprocess.run([sys.executable, "-c", OPEN, name], stdout=log, check=True)
        log.write(b" more")
    assert (folder / "log").read_bytes() == b"old new more"
    assert os.stat("log").st_ino == before
    done = subprocess.run([sys.executable, "-c", OPEN, name], capture_output=True, check=True)
    assert done.stdout == b"new"


def test_an_open_file_that_is_only_read(folder):
    (folder / "file").write_bytes(b"old")
    with open("file", "rb") as file:
        name = f"/dev/fd/{file.fileno()}"
        with pytest.raises(ArtifactError) as caught:
            write_atomically(type(folder)(name), lambda sink: sink.write(DATA))
    assert str(caught.value) == f"cannot write {name}: Bad file descriptor"
    assert (folder / "file").read_bytes() == b"old"


def test_what_is_refused(folder):
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "file").write_bytes(b"old")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        listed = sorted(os.listdir())
        for name, why in (
            ("folder", "Is a directory"),
            ("loop", "Too many levels of symbolic links"),
            ("socket", "it is a socket, and neither a file, a pipe, nor a terminal"),
            ("no/file", "No such file or directory"),
            ("file/file", "Not a directory"),
            ("f" * 256, "File name too long"),
        ):
            assert refusal(folder / name) == f"cannot write {folder / name}: {why}"
        assert sorted(os.listdir()) == listed
    assert (folder / "file").read_bytes() == b"old"
    zero = folder / "a\0b"
    assert refusal(zero) == f"cannot write {str(zero)!r}: embedded null byte"


def test_a_longest_name_can_be_replaced(path, folder):
    longest = folder / ("n" * 255)
    write(longest, b"old")
    write(longest)
    assert longest.read_bytes() == DATA


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from tilewright.base.errors import ArtifactError
from tilewright.runtime.atomic import write_atomically
if os.geteuid() == 0:
    os.setuid(65534)
for name in sys.argv[1:]:
    try:
        write_atomically(Path(name), lambda sink: sink.write(b"new"))
        print("written")
    except ArtifactError as error:
        print(error)
"""


def test_permissions_are_kept(folder):
    """Neither a file that may not be written, nor one in such a folder."""
    folder.chmod(0o777)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_bytes(b"old")
    (folder / "closed" / "file").chmod(0o666)
    (folder / "read_only").write_bytes(b"old")
    (folder / "read_only").chmod(0o444)
    (folder / "closed").chmod(0o555)
    names = ["read_only", "closed/new", "closed/file"]
    command = [sys.executable, "-c", UNPRIVILEGED, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"cannot write {n}: Permission denied" for n in names]
    assert (folder / "read_only").read_bytes() == b"old"
    assert (folder / "closed" / "file").read_bytes() == b"old"
    assert os.listdir("closed") == ["file"]
    (folder / "closed").chmod(0o755)


def test_a_file_that_grows_too_large(path, folder):
    """As when the disk is full: what was there stays, and nothing beside it."""
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(DATA) // 2, hard))
    try:
        assert refusal(path) == f"cannot write {path}: File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert os.listdir() == ["file"]


def test_writers_at_the_same_time(path):
    """Whoever comes last wins, with a whole file."""
    writers = [
        threading.Thread(target=lambda k=k: [write(path, bytes([k]) * 5000) for _ in range(20)])
        for k in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    data = path.read_bytes()
    assert len(data) == 5000
    assert len(set(data)) == 1
    assert os.listdir() == ["file"]


def test_same_file(folder):
    with open("out", "w") as out:
        assert is_same_file(folder / "out", out)
        assert not is_same_file(folder / "other", out)
        assert not is_same_file(folder / "out", io.StringIO())
