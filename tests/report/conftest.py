"""A network on a chip and the host, profiled once for all tests of pages."""

import pytest

import tilewright
from tilewright.options import Options
from tilewright.report.limits import Limits, MemoryLevel
from tilewright.targets.vta import vta


@pytest.fixture(scope="session")
def limits():
    """What a machine can do at best, in round figures."""
    levels = (MemoryLevel("l1", 1 << 16, 4e11), MemoryLevel("dram", None, 4e10))
    return Limits(1, 2e11, levels, 20.0)


@pytest.fixture(scope="session")
def on_chip(digits, digit_images):
    """The digits network in int8, on VTA and the host, and an image."""
    options = Options(dims={"batch": 1}, rounding="half_up")
    module = tilewright.compile(digits, target={"npu": vta(), "cpu": "host"}, options=options)
    return module, digit_images[:1]


@pytest.fixture(scope="session")
def profile(on_chip):
    module, image = on_chip
    return module.profile(image, repeat=2)
