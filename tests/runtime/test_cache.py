"""The folder of what was made once."""

import os
from pathlib import Path

import pytest

from tilewright.base.errors import ArtifactError, InputError
from tilewright.runtime.cache import Cache, find_cache, parse_size

KEY, OTHER = bytes(32), bytes([1] * 32)


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "folder")
    assert cache.read("kernel", KEY) is None
    cache.write("kernel", KEY, b"one")
    cache.write("kernel", OTHER, b"")
    assert cache.read("kernel", KEY) == b"one"
    assert cache.read("kernel", OTHER) == b""
    assert cache.read("other kind", KEY) is None
    cache.write("kernel", KEY, b"another")
    assert cache.read("kernel", KEY) == b"another"
    assert sorted(e.kind for e in cache.entries()) == ["kernel", "kernel"]


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("kernel", KEY, b"contents")
    path = cache.path("kernel", KEY)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        spoiled = bytearray(whole)
        spoiled[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoiled)
        assert cache.read("kernel", KEY) is None
        assert not path.exists()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert cache.read("kernel", KEY) is None


def test_an_entry_by_another_name_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("kernel", KEY, b"contents")
    place = cache.path("kernel", OTHER)
    place.parent.mkdir()
    place.write_bytes(cache.path("kernel", KEY).read_bytes())
    assert cache.read("kernel", OTHER) is None


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    keys = [bytes([n] * 32) for n in range(4)]
    for age, key in enumerate(keys):
        cache.write("kernel", key, bytes(1000))
        os.utime(cache.path("kernel", key), (0, 1e9 - age))
    assert cache.read("kernel", keys[3]) is not None  # it was the oldest
    removed = cache.trim(2500)
    assert {e.path for e in removed} == {cache.path("kernel", keys[k]) for k in (1, 2)}
    assert [cache.read("kernel", k) is None for k in keys] == [False, True, True, False]
    assert len(cache.trim(0)) == 2
    assert list(cache.entries()) == []


def test_what_a_killed_process_left_is_removed_as_well(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    part = tmp_path / "00" / ".tilewright.0123.part"
    part.parent.mkdir()
    part.write_bytes(bytes(100))
    assert [(e.kind, e.size) for e in cache.entries()] == [("part", 100)]
    cache.trim(0)
    assert not part.exists()


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(bytes(100))
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "mine").write_bytes(bytes(100))
    cache = Cache(tmp_path)
    assert list(cache.entries()) == []
    assert cache.trim(0) == []
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "abc" / "mine").exists()


def test_large_entries_are_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1000)
    cache.write("kernel", KEY, bytes(501))
    assert cache.read("kernel", KEY) is None
    cache.write("kernel", KEY, bytes(400))
    assert cache.read("kernel", KEY) is not None


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    cache = Cache(blocked)
    cache.write("kernel", KEY, b"contents")
    assert cache.read("kernel", KEY) is None
    assert list(cache.entries()) == []
    assert cache.trim() == []


def test_files_that_check_themselves_are_dropped_if_they_are_damaged(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def read(path: Path) -> str:
        text = path.read_text()
        if text == "damaged":
            raise ArtifactError("damaged")
        return text

    assert cache.load("text", KEY, read) is None
    path = cache.place("text", KEY, lambda p: p.write_text("whole"))
    assert path is not None
    assert cache.load("text", KEY, read) == "whole"
    path.write_text("damaged")
    assert cache.load("text", KEY, read) is None
    assert not path.exists()


def test_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    assert find_cache(None) == Cache(tmp_path / ".cache/tilewright", 4 << 30)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the standard says to ignore
    assert find_cache(True) == Cache(tmp_path / ".cache/tilewright")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert find_cache(None) == Cache(Path("/caches/tilewright"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "/mine")
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "512M")
    assert find_cache(None) == Cache(Path("/mine"), 512 << 20)
    assert find_cache("given") == Cache(Path("given"), 512 << 20)
    assert find_cache(False) is None
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    assert find_cache(None) is None
    assert find_cache("given") == Cache(Path("given"), 512 << 20)


def test_a_folder_of_another_user_is_not_looked_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_cache(tmp_path) is not None
    assert find_cache(tmp_path / "new") is not None
    Cache(tmp_path / "new").write("kernel", KEY, b"")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert find_cache(tmp_path) is None
    assert find_cache(tmp_path / "other") is not None


def test_sizes() -> None:
    given = ("0", "1000", "4K", "2 MB", "3GiB", "1t", " 5g ")
    found = [0, 1000, 4096, 2 << 20, 3 << 30, 1 << 40, 5 << 30]
    assert [parse_size(text) for text in given] == found
    for text in ("", "-1", "1.5G", "G", "4P", "1 000"):
        with pytest.raises(InputError) as caught:
            parse_size(text)
        assert str(caught.value) == (
            f"{text!r} is no size of a cache\n"
            "  hint: a whole number, with K, M, G or T for powers of 1024: 4G"
        )
