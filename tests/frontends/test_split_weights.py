"""Weights stay in the model's file: protobuf sees the rest, and means the same."""

from __future__ import annotations

import mmap
import os

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model, node

import tilewright
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx import split_weights
from tilewright.frontends.onnx.load import import_model, load_model
from tilewright.frontends.onnx.split_weights import LARGE, without_weights

COUNT = LARGE // 4


def weights(count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(count).astype(np.float32)


def two_additions(count: int = COUNT) -> onnx.ModelProto:
    """y = x + a + b with a large and a small constant."""
    nodes = [node("Add", ["x", "a"], ["t"]), node("Add", ["t", "b"], ["y"])]
    return model(nodes, {"x": [count]}, constants={"a": weights(count), "b": np.float32(2)})


@pytest.fixture
def file(tmp_path):
    onnx.save(two_additions(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_large_tensors_are_left_out(file):
    data = file.read_bytes()
    small = without_weights(memoryview(data))
    assert small is not None
    assert len(small) < len(data) - 4 * COUNT + 200
    found = onnx.ModelProto.FromString(small)
    a, b = found.graph.initializer
    assert (a.name, list(a.dims), a.data_location) == ("a", [COUNT], TensorProto.EXTERNAL)
    assert numpy_helper.to_array(b) == 2
    where = {e.key: e.value for e in a.external_data}
    assert where["location"] == split_weights.OWN_FILE
    start = int(where["offset"])
    assert data[start : start + int(where["length"])] == weights().tobytes()
    a.ClearField("external_data")
    a.ClearField("data_location")
    a.raw_data = weights().tobytes()
    assert found == onnx.ModelProto.FromString(data)  # nothing else is changed


def test_they_are_mapped(file):
    graph = import_model(file)
    (array,) = (a for a in graph.constants.values() if a.size == COUNT)
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview)
    assert isinstance(base.obj, mmap.mmap)
    assert not array.flags.writeable
    x = np.ones(COUNT, np.float32)
    np.testing.assert_array_equal(tilewright.compile(file)(x), x + weights() + 2)


def test_the_file_may_change_afterwards(file):
    module = tilewright.compile(file)
    file.write_bytes(b"gone")
    x = np.ones(COUNT, np.float32)
    np.testing.assert_array_equal(module(x), x + weights() + 2)


def test_a_model_that_is_compiled_when_it_is_called(tmp_path):
    """Its shapes depend on what an input holds; its file is gone by then."""
    nodes = [node("Add", ["x", "a"], ["t"]), node("Reshape", ["t", "s"], ["y"])]
    inputs = {"x": (TensorProto.FLOAT, (COUNT,)), "s": (TensorProto.INT64, (2,))}
    onnx.save(model(nodes, inputs, constants={"a": weights()}), tmp_path / "m.onnx")
    module = tilewright.compile(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(b"gone")
    x = np.ones(COUNT, np.float32)
    for rows in (4, 8):
        found = module(x, np.array([rows, COUNT // rows]))
        np.testing.assert_array_equal(found, (x + weights()).reshape(rows, -1))


def test_names_that_need_care(tmp_path):
    """The file's own name is a text in the model; any name of a file will do."""
    for name in ("with space.onnx", "ümlaut.onnx", "a\\b:c.onnx"):
        onnx.save(two_additions(), tmp_path / name)
        x = np.zeros(COUNT, np.float32)
        np.testing.assert_array_equal(tilewright.compile(tmp_path / name)(x), weights() + 2)


def test_through_a_link(tmp_path, file):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(file, tmp_path / "elsewhere" / "link.onnx")
    x = np.zeros(COUNT, np.float32)
    found = tilewright.compile(tmp_path / "elsewhere" / "link.onnx")(x)
    np.testing.assert_array_equal(found, weights() + 2)


def test_a_tensor_of_the_wrong_size(tmp_path):
    source = two_additions()
    source.graph.initializer[0].dims[0] = COUNT - 1
    onnx.save(source, tmp_path / "m.onnx")
    with pytest.raises(ModelError) as error:
        import_model(tmp_path / "m.onnx")
    assert error.value.what == (
        f"the initializer 'a' is f32[{COUNT - 1}], which takes {4 * COUNT - 4} bytes, but has"
        f" {4 * COUNT}"
    )


@pytest.mark.parametrize("offset", ["0", "-1", "x", str(1 << 50)])
def test_a_model_that_names_its_own_file(tmp_path, offset: str):
    """Nothing beyond the file is read."""
    source = two_additions()
    t = helper.make_tensor("b", TensorProto.FLOAT, [], [0.0])
    t.ClearField("float_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in (("location", split_weights.OWN_FILE), ("offset", offset), ("length", "4")):
        t.external_data.add(key=key, value=value)
    source.graph.initializer[1].CopyFrom(t)
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    if offset == "0":
        assert import_model(tmp_path / "m.onnx").constants
        return
    with pytest.raises(ModelError) as error:
        import_model(tmp_path / "m.onnx")
    assert "initializer 'b'" in error.value.what


def test_what_is_left_to_protobuf(monkeypatch):
    """Small models, what lies elsewhere already, typed fields, two graphs, damaged bytes."""
    plain = two_additions(8).SerializeToString()
    assert without_weights(memoryview(plain)) is None
    source = two_additions()
    source.graph.initializer[0].data_location = TensorProto.EXTERNAL
    assert without_weights(memoryview(source.SerializeToString())) is None
    source = two_additions()
    typed = helper.make_tensor("a", TensorProto.FLOAT, [COUNT], weights())
    source.graph.initializer[0].CopyFrom(typed)
    assert without_weights(memoryview(source.SerializeToString())) is None
    data = two_additions().SerializeToString()
    assert without_weights(memoryview(data + data)) is None
    assert without_weights(memoryview(data[:-1])) is None
    assert without_weights(memoryview(b"")) is None


def test_what_has_too_many_fields(monkeypatch):
    """Walking takes no longer than a second or so, whatever the file holds."""
    data = two_additions().SerializeToString()
    assert without_weights(memoryview(bytes(1 << 20))) is None  # fields without a number
    assert without_weights(memoryview(b"\x08\x01" * (split_weights.MOST_FIELDS + 1))) is None
    monkeypatch.setattr(split_weights, "TENSOR_FIELDS", 2)
    assert without_weights(memoryview(data)) is None


def parses(data: bytes) -> bool:
    try:
        onnx.ModelProto.FromString(data)
    except DecodeError:
        return False
    return True


@given(st.data())
def test_damaged_bytes(data: st.DataObject):
    """Whatever the bytes are: None, or what protobuf reads as it reads all of them, or does not."""
    whole = bytearray(two_additions(COUNT + 1).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        head = st.integers(0, min(150, len(whole) - 1))
        at = data.draw(head | head.map(lambda k: len(whole) - 1 - k))
        whole[at] = data.draw(st.integers(0, 255))
    small = without_weights(memoryview(whole))
    if small is not None:
        assert parses(bytes(whole)) == parses(small)


@given(st.integers(0, 1 << 40))
def test_numbers(value: int):
    written = split_weights._varint(value)
    assert split_weights._read_varint(memoryview(written), 0, len(written)) == (
        value,
        len(written),
    )


def test_a_loaded_model_stays_as_it_is(file):
    loaded = load_model(file)
    assert len(loaded.proto.SerializeToString()) < 1000
    assert loaded.files.folder == file.parent
