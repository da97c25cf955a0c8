"""A network on a chip and the host, profiled once for all tests of pages."""

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.options import Options
from tilewright.report.limits import Limits, MemoryLevel
from tilewright.targets.vta import vta

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@pytest.fixture(scope="session")
def limits():
    """What a machine can do at best, in round figures."""
    levels = (MemoryLevel("l1", 1 << 16, 4e11), MemoryLevel("dram", None, 4e10))
    return Limits(1, 2e11, levels, 20.0)


@pytest.fixture(scope="session")
def on_chip():
    """The digits network in int8, on VTA and the host, and an image."""
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["images"]
    model = tilewright.quantize(DIGITS / "digits.onnx", {"image": images[:64]}, scheme="pow2").model
    options = Options(dims={"batch": 1}, rounding="half_up")
    module = tilewright.compile(model, target={"npu": vta(), "cpu": "host"}, options=options)
    return module, images[:1]


@pytest.fixture(scope="session")
def profile(on_chip):
    module, image = on_chip
    return module.profile(image, repeat=2)
