"""Initializers in files beside the model, and only there."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import model, node, refusal

from tilewright.frontends.onnx.load import import_model

WEIGHT = np.arange(4, dtype=np.float32)


@pytest.fixture
def folder(tmp_path):
    inner = tmp_path / "model"
    inner.mkdir()
    (inner / "w.bin").write_bytes(b"\0" * 8 + WEIGHT.tobytes())
    (tmp_path / "outside.bin").write_bytes(WEIGHT.tobytes())
    return inner


def saved(folder, **entries):
    """A model whose weight lies where the entries say."""
    source = model([node("Add", ["x", "w"], ["y"])], {"x": (4,)})
    w = source.graph.initializer.add()
    w.name, w.data_type, w.data_location = "w", TensorProto.FLOAT, TensorProto.EXTERNAL
    w.dims.append(4)
    for key, value in entries.items():
        entry = w.external_data.add()
        entry.key, entry.value = key, str(value)
    path = folder / "m.onnx"
    onnx.save(source, path)
    return path


def test_data_beside_the_model(folder):
    graph = import_model(saved(folder, location="w.bin", offset=8, length=16))
    np.testing.assert_array_equal(next(iter(graph.constants.values())), WEIGHT)
    (folder / "sub").mkdir()
    (folder / "w.bin").rename(folder / "sub" / "w.bin")
    import_model(saved(folder, location="sub/w.bin", offset=8))


def test_a_link_within_the_folder(folder):
    os.symlink("w.bin", folder / "link.bin")
    import_model(saved(folder, location="link.bin", offset=8))


REFUSED = [
    (
        {"location": "missing.bin"},
        (
            "the initializer 'w' lies in 'missing.bin', which cannot be read: "
            "No such file or directory\n"
            "  hint: put the data file beside the model file"
        ),
    ),
    (
        {"location": "../outside.bin"},
        (
            "the initializer 'w' lies in '../outside.bin', which is not inside the model's folder\n"
            "  hint: external data must be a relative path without '..'"
        ),
    ),
    (
        {"location": "/outside.bin"},
        (
            "the initializer 'w' lies in '/outside.bin', which is not inside the model's folder\n"
            "  hint: external data must be a relative path without '..'"
        ),
    ),
    (
        {"location": "link.bin"},
        (
            "the initializer 'w' lies in 'link.bin', a link that leads out of the model's folder\n"
            "  hint: copy the data file beside the model file"
        ),
    ),
    (
        {"location": "loop.bin"},
        (
            "the initializer 'w' lies in 'loop.bin', which cannot be read: "
            "Too many levels of symbolic links\n"
            "  hint: put the data file beside the model file"
        ),
    ),
    ({"location": "folder"}, "the initializer 'w' lies in 'folder', which is not a file"),
    (
        {"location": ""},
        (
            "the initializer 'w' lies in '', which is not inside the model's folder\n"
            "  hint: external data must be a relative path without '..'"
        ),
    ),
    (
        {"location": "w.bin", "offset": 12},
        (
            "the initializer 'w' lies at bytes 12 … 28 of 'w.bin', which has 24\n"
            "  hint: the data file is damaged, cut short, or belongs to another model"
        ),
    ),
    (
        {"location": "w.bin", "offset": -8},
        "the initializer 'w': the external data's offset is '-8', not a number",
    ),
    (
        {"location": "w.bin", "length": 8},
        "the initializer 'w' takes 16 bytes, but its external data has 8",
    ),
    (
        {"location": "w.bin", "length": "9" * 30},
        f"the initializer 'w': the external data's length is '{'9' * 30}', not a number",
    ),
]


@pytest.mark.parametrize("entries, text", REFUSED, ids=lambda v: str(v)[:50])
def test_refused(folder, entries, text):
    os.symlink("../outside.bin", folder / "link.bin")
    os.symlink("loop.bin", folder / "loop.bin")
    (folder / "folder").mkdir()
    assert refusal(saved(folder, **entries)) == text


def test_a_model_in_memory_has_no_folder(folder):
    data = saved(folder, location="w.bin", offset=8).read_bytes()
    assert refusal(data) == (
        "the initializer 'w' lies in the file 'w.bin', "
        "but the model was given in memory, without a folder to look in\n"
        "  hint: give the path of the model file instead"
    )
