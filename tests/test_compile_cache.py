"""What was compiled before is found again, and what differs is not."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import failure, run_commands  # noqa: F401 (a fixture)
from leaks import make_model

import tilewright as tw
from tilewright import Options, compile_cache
from tilewright.base.passes import Recorder
from tilewright.runtime.cache import Cache
from tilewright.runtime.module import Module
from tilewright.targets import cpu

Made = list[str]
Run = Callable[..., Any]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """The kernels that were made, not found."""
    from tilewright.compiler import backends

    names: Made = []
    original = backends.to_llvm

    def counted(kernel, target):
        names.append(kernel.name)
        return original(kernel, target)

    monkeypatch.setattr(backends, "to_llvm", counted)
    return names


def compiled(model: Any, folder: Path, **named: Any) -> Module:
    options: Any = Options(cache=folder, **named)
    return tw.compile(model, target=cpu.host(threads=1), options=options)


def called(module: Module) -> np.ndarray:
    width = module.inputs[0].shape[1]
    found = module(np.linspace(-1, 1, 4 * width, dtype=np.float32).reshape(4, -1))
    assert isinstance(found, np.ndarray)
    return found


def kinds(folder: Path) -> list[str]:
    return sorted(e.kind for e in Cache(folder).entries())


def test_a_model_is_compiled_once(tmp_path: Path, made: Made) -> None:
    model = make_model(13)
    first = called(compiled(model, tmp_path))
    count = len(made)
    assert count > 1
    assert kinds(tmp_path) == ["kernel"] * count + ["tw"]
    second = compiled(model, tmp_path)
    assert len(made) == count
    np.testing.assert_array_equal(called(second), first)
    plain = tw.compile(model, target=cpu.host(threads=1))  # no cache in tests
    np.testing.assert_array_equal(called(plain), first)


def test_models_share_kernels(tmp_path: Path, made: Made) -> None:
    one = make_model(13)
    compiled(one, tmp_path)
    count = len(made)
    other = make_model(13)
    other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    found = compiled(other, tmp_path)
    assert len(made) == count
    assert kinds(tmp_path).count("tw") == 2
    assert not np.array_equal(called(found), called(compiled(one, tmp_path)))
    plain = tw.compile(other, target=cpu.host(threads=1))
    np.testing.assert_array_equal(called(found), called(plain))


def test_what_a_model_is_given_as_does_not_matter(tmp_path: Path, made: Made) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model(13).SerializeToString(deterministic=True))
    for model in (path, path.read_bytes(), onnx.load(path), str(path)):
        compiled(model, tmp_path / "cache")
    assert len(set(made)) == len(made)
    assert kinds(tmp_path / "cache").count("tw") == 1


def test_a_changed_file_is_compiled_again(tmp_path: Path, made: Made) -> None:
    path = tmp_path / "model.onnx"
    results = []
    for number in (10, 20, 10):
        path.write_bytes(make_model(number).SerializeToString())
        results.append(called(compiled(path, tmp_path / "cache")))
    np.testing.assert_array_equal(results[0], results[2])
    assert kinds(tmp_path / "cache").count("tw") == 2
    assert len(set(made)) == len(made)


def test_weights_in_other_files_count(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(make_model(13), path, **save)
    before = called(compiled(path, tmp_path / "cache"))
    weights = np.fromfile(tmp_path / "weights.bin", np.float32)
    (-weights).tofile(tmp_path / "weights.bin")
    after = called(compiled(path, tmp_path / "cache"))
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, called(tw.compile(path, target=cpu.host(threads=1))))
    assert kinds(tmp_path / "cache").count("tw") == 2
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(tw.ModelError, match="which cannot be read"):
        compiled(path, tmp_path / "cache")


def test_a_file_that_changes_while_it_is_compiled_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model(13).SerializeToString())
    original = compile_cache.CachedModel.write

    def write(place, program):
        path.write_bytes(make_model(20).SerializeToString())
        return original(place, program)

    monkeypatch.setattr(compile_cache.CachedModel, "write", write)
    compiled(path, tmp_path / "cache")
    assert "tw" not in kinds(tmp_path / "cache")


def test_options_and_targets_count(tmp_path: Path, made: Made) -> None:
    model = make_model(13)
    compiled(model, tmp_path)
    variants = (
        ({"dims": {"batch": 4}}, cpu.host(threads=1)),
        ({"checks": True}, cpu.host(threads=1)),
        ({"rounding": "half_up"}, cpu.host(threads=1)),
        ({}, cpu.host(threads=2)),
        ({}, cpu.cpu("avx2")),
        ({}, cpu.cpu("avx2", l1=1 << 14)),
    )
    for number, (given, target) in enumerate(variants):
        options = Options(cache=tmp_path, **given)  # type: ignore[arg-type]
        for _ in range(2):
            tw.compile(model, target=target, options=options)
        assert kinds(tmp_path).count("tw") == number + 2
    assert len(set(made)) == len(made)


def test_another_version_compiles_anew(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(make_model(13), tmp_path)
    count = len(made)
    monkeypatch.setattr(compile_cache, "compiler_version", lambda: bytes(32))
    compiled(make_model(13), tmp_path)
    assert len(made) == 2 * count


def test_the_clock_of_this_machine_does_not_matter(tmp_path: Path, made: Made) -> None:
    model, options = make_model(13), Options(cache=tmp_path)
    host = cpu.host(threads=1)
    for clock in (1e9, 2e9):
        module = tw.compile(model, target=replace(host, clock=clock), options=options)
        rate = module.target.operations_per_second
        assert rate is not None
        assert rate / clock == pytest.approx(rate // clock)
    assert len(set(made)) == len(made)
    assert kinds(tmp_path).count("tw") == 1


def test_who_wants_to_see_the_steps_sees_them(tmp_path: Path, made: Made) -> None:
    model = make_model(13)
    compiled(model, tmp_path)
    count = len(made)
    recorder = Recorder()
    options = Options(cache=tmp_path)
    module = tw.compile(model, target=cpu.host(threads=1), options=options, recorder=recorder)
    assert len(made) == 2 * count
    assert module.source("graph") == compiled(model, tmp_path).source("graph")
    texts = tw.compile(model, target=cpu.host(threads=1), options=options, until="lowered")
    assert compiled(model, tmp_path).source("lowered", next(iter(texts))) == str(
        next(iter(texts.values()))
    )


def test_the_steps_of_a_file_that_is_another_now_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model(13).SerializeToString())
    monkeypatch.chdir(tmp_path)
    modules = [compiled("model.onnx", tmp_path / "cache") for _ in range(3)]
    monkeypatch.chdir("/")
    assert "model13" in modules[0].source("graph")
    path.write_bytes(make_model(20).SerializeToString())
    with pytest.raises(tw.CompileError) as caught:
        modules[1].source("graph")
    assert str(caught.value) == (
        f"{path} was changed or removed since it was compiled\n"
        "  hint: compile it again to see its steps"
    )
    path.unlink()
    with pytest.raises(tw.CompileError):
        modules[2].source("graph")


def test_damaged_models_are_compiled_again(tmp_path: Path) -> None:
    model = make_model(13)
    expected = called(compiled(model, tmp_path))
    (entry,) = [e.path for e in Cache(tmp_path).entries() if e.kind == "tw"]
    whole = entry.read_bytes()
    for at in (3, 30, 70, len(whole) // 2, len(whole) - 1):
        entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        np.testing.assert_array_equal(called(compiled(model, tmp_path)), expected)
    assert entry.read_bytes() == whole


def test_descriptions_with_functions_are_not_kept(tmp_path: Path, made: Made) -> None:
    options = Options(cache=tmp_path, assign=lambda n: "cpu-avx2")
    for _ in range(2):
        tw.compile(make_model(13), target=cpu.cpu("avx2"), options=options)
    assert len(set(made)) == len(made)  # its kernels are
    assert "tw" not in kinds(tmp_path)


def test_shapes_that_depend_on_contents(tmp_path: Path, made: Made) -> None:
    node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 6]),
            onnx.helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [2]),
        ],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for shape in ([3, 4], [4, 3], [3, 4]):
        y = compiled(model, tmp_path)(x, np.array(shape))
        np.testing.assert_array_equal(y, x.reshape(shape))
    assert len(set(made)) == len(made)


def test_other_processes_find_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model(13).SerializeToString())
    script = (
        "import sys, tilewright\n"
        "from tilewright.compiler import backends\n"
        "made = []\n"
        "original = backends.to_llvm\n"
        "backends.to_llvm = lambda *given: made.append(1) or original(*given)\n"
        "tilewright.compile(sys.argv[1], options=tilewright.Options(cache=sys.argv[2]))\n"
        "print(len(made))\n"
    )
    command = [sys.executable, "-c", script, str(path), str(tmp_path / "cache")]
    counts = [
        int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(2)
    ]
    assert counts[0] > 1
    assert counts[1] == 0


def test_the_command(tilewright: Run, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    here = {"TILEWRIGHT_CACHE": str(folder)}
    model = tmp_path / "model.onnx"
    model.write_bytes(make_model(13).SerializeToString())
    assert tilewright("cache", **here)[1] == (
        f"{folder}: 0 models (0 bytes), 0 kernels (0 bytes)\n"
        "limit: 4.0 GiB (TILEWRIGHT_CACHE_SIZE sets another)\n"
    )
    tilewright("compile", str(model), "-o", str(tmp_path / "model.tw"), **here)
    state = json.loads(tilewright("cache", "--json", **here)[1])
    assert state["model"]["entries"] == 1
    assert state["kernel"]["entries"] > 1
    cleared = tilewright("cache", "--clear", **here)[1].splitlines()
    assert cleared[0] == f"{folder}: 0 models (0 bytes), 0 kernels (0 bytes)"
    assert cleared[1].startswith("removed: ")
    off = {"TILEWRIGHT_CACHE": "off"}
    assert (
        tilewright("cache", **off)[1]
        == "nothing is kept: TILEWRIGHT_CACHE is off, or another user's folder\n"
    )
    assert json.loads(tilewright("cache", "--json", **off)[1]) == {"folder": None}
    assert failure(tilewright("cache", "--keep", "much", **here)) == (
        "error: 'much' is no size of a cache\n"
        "  hint: a whole number, with K, M, G or T for powers of 1024: 4G\n"
    )


def test_wrong_options() -> None:
    options = Options(cache=3)  # type: ignore[arg-type]
    with pytest.raises(tw.CompileError) as caught:
        tw.compile(make_model(1), options=options)
    assert str(caught.value) == (
        "cache is 3, and must be a folder or False\n"
        '  hint: for example options=Options(cache="build/cache", or cache=False)'
    )
