"""Compiled files: what is written is what is read, and every kind of damage has its own words."""

import errno
import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from handmade_programs import (
    N,
    affine,
    build,
    call,
    facts,
    host_program,
    tensor,
    times_factor,
    with_host,
)

from tilewright.backends.host.functions import host_table
from tilewright.base.errors import ArtifactError
from tilewright.program.host_program import Copy
from tilewright.runtime import artifact, atomic, container, system
from tilewright.runtime import processor as machine
from tilewright.runtime.container import read_program, write_program
from tilewright.runtime.module import Module

X = np.array([1, 2, 3], np.float32)
HERE = system.host_triple().split("-")[0]


def with_weights(count=3):
    """y = x + w."""
    weights = {"w": np.arange(count, dtype=np.float32)}
    kind = tensor(count)
    steps = [call("add", "x", "w", "y", symbols=[N])]
    program = host_program({"x": kind, "size": tensor(N)}, {"y": kind}, steps, constants=weights)
    return build(program, weights)


def refusal(what, *args, **named):
    with pytest.raises(ArtifactError) as caught:
        what(*args, **named)
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    """A file of a small model."""
    write_program(tmp_path / "model.tw", affine())
    return tmp_path / "model.tw"


@pytest.fixture
def weighty(tmp_path):
    """A file with 2.5 MiB of weights."""
    write_program(tmp_path / "weighty.tw", with_weights(5 << 17))
    return tmp_path / "weighty.tw"


def change(path, at, new):
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def rewrite_header(path, edit):
    """Changes the header, and all that depends on it, as a program that means it would."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[64 : 64 + size])
    edit(header)
    new = json.dumps(header).encode()
    old_start, new_start = (-(-(64 + n) // 4096) * 4096 for n in (size, len(new)))
    total = new_start + len(data) - old_start
    prefix = data[:12] + struct.pack("<IQ", len(new), total)
    head = prefix + hashlib.sha256(prefix + new).digest()
    path.write_bytes((head.ljust(64, b"\0") + new).ljust(new_start, b"\0") + data[old_start:])


# ---------------------------------------------------------------- there and back


def test_a_module_is_the_same_after_saving_and_loading(tmp_path):
    module = Module(affine(), threads=1)
    artifact.save(tmp_path / "a.tw", module)
    module.save(tmp_path / "b.tw")
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()
    loaded = artifact.load(tmp_path / "a.tw", threads=2)
    assert loaded.program.host == module.program.host
    assert loaded.target == module.target
    assert loaded.threads == 2
    np.testing.assert_array_equal(loaded(X, X), module(X, X))


@pytest.mark.parametrize("count", [0, 1, 3, 5 << 17])
def test_weights_are_mapped_from_the_file(tmp_path, count):
    path = tmp_path / "m.tw"
    write_program(path, with_weights(count))
    loaded = artifact.load(path)
    size = np.zeros(count, np.float32)
    x = np.ones(count, np.float32)
    np.testing.assert_array_equal(loaded(x, size), 1 + np.arange(count, dtype=np.float32))
    (weights,) = loaded.program.constants
    assert not weights.flags.writeable
    assert weights.ctypes.data % 64 == 0
    if Path("/proc/self/maps").exists() and count:
        maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "m.tw" in line]
        assert all(line.split()[1] == "r--s" for line in maps)
        assert maps
        assert loaded._executor._constants[0].ctypes.data == weights.ctypes.data  # not a copy


def test_the_file_may_go_while_it_is_in_use(weighty):
    loaded = artifact.load(weighty)
    weighty.unlink()
    zeros = np.zeros(5 << 17, np.float32)
    np.testing.assert_array_equal(loaded(zeros, zeros), np.arange(5 << 17))
    del loaded


def test_saving_over_a_file_in_use(weighty):
    loaded = artifact.load(weighty)
    write_program(weighty, affine())
    zeros = np.zeros(5 << 17, np.float32)
    np.testing.assert_array_equal(loaded(zeros, zeros), np.arange(5 << 17))
    np.testing.assert_array_equal(artifact.load(weighty)(X, X), 3 * X)


def test_a_loaded_module_can_be_saved_again(weighty, tmp_path):
    artifact.load(weighty).save(tmp_path / "again.tw")
    assert (tmp_path / "again.tw").read_bytes() == weighty.read_bytes()
    artifact.load(weighty).save(weighty)
    artifact.load(weighty)


def test_the_same_program_is_the_same_file(path):
    first = path.read_bytes()
    write_program(path, affine())
    assert path.read_bytes() == first


def test_sections_lie_where_they_can_be_mapped(weighty):
    data = weighty.read_bytes()
    (size,) = struct.unpack_from("<I", data, 12)
    header = json.loads(data[64 : 64 + size])
    start = -(-(64 + size) // 4096) * 4096
    kinds = {s["name"]: (s["kind"], (start + s["offset"]) % 4096) for s in header["sections"]}
    assert kinds["weights"] == ("constants", 0)
    assert all((start + s["offset"]) % 64 == 0 for s in header["sections"])
    assert len(header["sections"][-1]["crc32"]) == 3


def test_loading_needs_nothing_but_the_runtime(path):
    """It ships alone: no module of the compiler is imported."""
    text = (
        "import sys, types, numpy\n"
        "package = types.ModuleType('tilewright')\n"  # what stands in __init__ does not ship
        f"package.__path__ = [{str(Path(system.__file__).parents[1])!r}]\n"
        "sys.modules['tilewright'] = package\n"
        "from tilewright.runtime import artifact\n"
        f"m = artifact.load({str(path)!r})\nx = numpy.ones(3, 'f4')\nassert m(x, x)[0] == 3\n"
        "parts = {n.split('.')[1] for n in sys.modules if n.startswith('tilewright.')}\n"
        "print(sorted(parts), 'onnx' in sys.modules, 'islpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (out.stdout, out.stderr) == ("['base', 'program', 'runtime'] False False\n", "")


# ---------------------------------------------------------------- damage


def test_what_is_not_a_compiled_model(tmp_path):
    path = tmp_path / "x.tw"
    for content in (b"", b"\x08\x09ONNX", b"\x7fELF" * 100):
        path.write_bytes(content)
        assert refusal(artifact.load, path) == (
            f"{path} is not a compiled model\n  hint: `tilewright compile` makes .tw files"
        )


def test_a_file_that_is_not_there_or_not_readable(tmp_path):
    path = tmp_path / "x.tw"
    assert refusal(artifact.load, path) == f"cannot read {path}: No such file or directory"
    assert refusal(artifact.load, tmp_path) == f"cannot read {tmp_path}: Is a directory"


def test_a_newer_format(path):
    change(path, 8, struct.pack("<I", 4))
    assert refusal(artifact.load, path) == (
        f"{path} has format 4, and this version of tilewright reads format 3\n"
        "  hint: load it with a newer tilewright, or compile the model again"
    )


def test_an_older_format_that_is_not_read(path, monkeypatch):
    """format_1.tw was made by the first tilewright with that format."""
    old = Path(__file__).with_name("format_1.tw")
    assert refusal(artifact.load, old) == (
        f"{old} has format 1, and this version of tilewright reads format 3\n"
        "  hint: compile the model again, or load it with the tilewright that made it"
    )
    monkeypatch.setattr(container, "OLDEST", 4)
    monkeypatch.setattr(container, "VERSION", 5)
    assert refusal(artifact.load, path) == (
        f"{path} has format 3, and this version of tilewright reads formats 4 to 5\n"
        "  hint: compile the model again, or load it with the tilewright that made it"
    )


def damaged(path, how):
    return f"{path} is damaged: {how}\n  hint: copy or compile it again"


def test_a_transfer_as_text(path):
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))
    assert refusal(artifact.load, path) == damaged(path, "a transfer has changed its line ends")


def test_a_file_that_is_cut_short(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    assert refusal(artifact.load, path) == damaged(path, "it ends after 40 bytes")
    for size in (64, 100, 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert refusal(artifact.load, path) == damaged(path, f"it has {size} of {len(whole)} bytes")
    path.write_bytes(whole + b"\0")
    assert refusal(artifact.load, path) == damaged(
        path, f"it has {len(whole) + 1} of {len(whole)} bytes"
    )


def test_a_damaged_start(path):
    whole = path.read_bytes()
    change(path, 8, struct.pack("<I", 0))
    assert refusal(artifact.load, path) == damaged(path, "it has no format version")
    path.write_bytes(whole)
    change(path, 12, struct.pack("<I", len(whole)))
    assert refusal(artifact.load, path) == damaged(path, "its header is larger than the file")
    path.write_bytes(whole)
    change(path, 12, struct.pack("<I", 7))
    assert refusal(artifact.load, path) == damaged(path, "its header is not what was written")


def test_a_damaged_header(path):
    change(path, 200, b"?")
    assert refusal(artifact.load, path) == damaged(path, "its header is not what was written")


def test_damaged_code(path):
    change(path, path.read_bytes().rindex(b"\x7fELF") + 100, b"????")
    assert refusal(artifact.load, path) == damaged(path, "object 'entry' is not what was written")
    assert refusal(artifact.load, path, verify=False) == damaged(
        path, "object 'entry' is not what was written"
    )


def test_damaged_weights(weighty):
    change(weighty, weighty.stat().st_size - (1 << 20) - 9, b"\xff")
    assert refusal(artifact.load, weighty) == damaged(
        weighty, "MiB 1 of constants 'weights' is not what was written"
    )
    artifact.load(weighty, verify=False)


def test_every_byte_matters_or_does_not(path):
    """Whatever byte is changed, the file is refused, or was only padding."""
    whole = path.read_bytes()
    wanted = affine().host
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            program = read_program(path)
        except ArtifactError:
            continue
        assert whole[at] == 0
        assert program.host == wanted


@pytest.mark.parametrize(
    "edit, text",
    [
        (lambda h: h.pop("host"), "header.host is missing"),
        (lambda h: h["host"].update(inputs=7), "header.host.inputs is not a list"),
        (lambda h: h["sections"][0].update(kind="magic"), "section 'kernels' is of kind 'magic'"),
        (
            lambda h: h["sections"][0].update(offset=1 << 40),
            "object 'kernels' lies outside the file",
        ),
        (
            lambda h: h["sections"][0].update(size=-1),
            "object 'kernels' lies outside the file",
        ),
        (
            lambda h: h["sections"][2].update(name="w"),
            "constants 'weights' are missing or of another size",
        ),
        (
            lambda h: h["sections"][2].update(crc32=[]),
            "constants 'weights' have 0 checksums for 1 MiB",
        ),
    ],
)
def test_headers_that_make_no_sense(tmp_path, edit, text):
    path = tmp_path / "m.tw"
    write_program(path, with_weights())
    rewrite_header(path, edit)
    assert refusal(artifact.load, path) == damaged(path, text)


def test_another_byte_order(path):
    rewrite_header(path, lambda h: h.update(byte_order="middle"))
    assert refusal(artifact.load, path) == (
        f"{path} is for machines whose numbers are middle-endian"
    )


def test_an_entry_that_is_not_there(path):
    rewrite_header(path, lambda h: h.update(entry="zz"))
    assert refusal(artifact.load, path) == (
        f"the model's code has no function zz\n  while loading {path}"
    )


@pytest.mark.parametrize("header", [b"[" * 100_000, b"{", b"\xff\xfe", b"7", b'{"host": NaN}'])
def test_headers_that_are_no_json(path, header):
    prefix = container.MAGIC + struct.pack("<IIQ", container.VERSION, len(header), 64 + len(header))
    path.write_bytes(prefix + hashlib.sha256(prefix + header).digest() + b"\0" * 8 + header)
    assert refusal(artifact.load, path) in (
        damaged(path, "its header cannot be read"),
        damaged(path, "header is not an object"),
        damaged(path, "header.compiler is missing"),
    )


# ---------------------------------------------------------------- other machines


def saved(tmp_path, **changes):
    program = affine()
    path = tmp_path / "m.tw"
    write_program(
        path,
        type(program)(
            program.host,
            program.steps,
            facts(**changes),
            program.objects,
            program.constants,
            "0.1.0",
        ),
    )
    return path


def test_another_architecture(tmp_path):
    path = saved(tmp_path, triple="sparc-unknown-linux-gnu")
    assert refusal(artifact.load, path) == (
        f"the code is for sparc, and this machine is {HERE}\n"
        f"  while loading {path}\n"
        f"  hint: compile the model for {HERE}"
    )


def test_features_that_this_cpu_does_not_have(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "host_features", lambda: frozenset({"sse2", "avx"}))
    path = saved(tmp_path, features=("avx", "avx512f", "amx-tile"))
    assert refusal(artifact.load, path) == (
        "the code uses amx-tile, avx512f, which this CPU does not have\n"
        f"  while loading {path}\n"
        "  hint: compile the model for this CPU, or for fewer features"
    )
    artifact.load(saved(tmp_path, features=("avx",)))


def test_operators_of_the_host(tmp_path):
    path = tmp_path / "m.tw"
    module = with_host(times_factor, threads=1)
    module.save(path)
    assert refusal(artifact.load, path) == (
        "'model' has an operator that runs on the host and that the caller must supply: scale\n"
        f"  while loading {path}\n"
        "  hint: give host={operator: attributes -> function of arrays}"
    )
    table = {"scale": lambda attrs: lambda inputs: [inputs[0] * np.float32(attrs["factor"])]}
    np.testing.assert_array_equal(artifact.load(path, host=table)(X), module(X))
    assert host_table({}) == {}


# ---------------------------------------------------------------- writing


def entries(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_failed_save_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    assert refusal(write_program, path, with_weights()) == (
        f"cannot write {path}: No space left on device"
    )
    assert path.read_bytes() == before
    assert entries(path.parent) == ["model.tw"]


def test_an_interrupted_save_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    def interrupt(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_program(path, with_weights())
    assert entries(path.parent) == ["model.tw"]


def test_a_system_without_nameless_files(path, monkeypatch):
    monkeypatch.delattr(atomic.os, "O_TMPFILE")
    write_program(path, with_weights())
    assert entries(path.parent) == ["model.tw"]
    artifact.load(path)
    monkeypatch.setattr(atomic.os, "replace", lambda *names: os.strerror(1 / 0))
    with pytest.raises(ZeroDivisionError):
        write_program(path, with_weights())
    assert entries(path.parent) == ["model.tw"]


def test_a_system_that_cannot_name_a_file(path, monkeypatch):
    def refuse(*names, **options):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(atomic.os, "link", refuse)
    write_program(path, with_weights())
    assert entries(path.parent) == ["model.tw"]
    artifact.load(path)


def test_places_that_cannot_be_written(tmp_path):
    path = tmp_path / "no" / "m.tw"
    assert refusal(write_program, path, affine()) == (
        f"cannot write {path}: No such file or directory"
    )
    (tmp_path / "folder").mkdir()
    assert refusal(write_program, tmp_path / "folder", affine()) == (
        f"cannot write {tmp_path / 'folder'}: Is a directory"
    )
    assert entries(tmp_path) == ["folder"]


def test_a_saved_file_has_ordinary_permissions(tmp_path):
    old = os.umask(0o027)
    try:
        write_program(tmp_path / "m.tw", affine())
    finally:
        os.umask(old)
    assert (tmp_path / "m.tw").stat().st_mode & 0o777 == 0o640


def test_saving_is_not_confused_by_odd_values(tmp_path):
    path = tmp_path / "ü m.tw"
    program = host_program(
        {"größe": tensor(N)}, {"y": tensor(N)}, [Copy("größe", "y")], name="模型"
    )
    Module(build(program, features=())).save(str(path))
    loaded = artifact.load(str(path))
    assert loaded.name == "模型"
    np.testing.assert_array_equal(loaded(größe=X), X)
