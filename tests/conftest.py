"""For all tests: the same random examples in every run; `make fuzz` is for new ones."""

import gc
import os
import sys
import zlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest

os.environ["TILEWRIGHT_CACHE"] = "off"  # what is compiled is to be seen

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

TESTS = Path(__file__).parent
# What helps tests, and what is tested beside the package.
FOLDERS = ("tests/support", "tools", "benchmarks", "examples")
sys.path[:0] = [str(TESTS.parent / folder) for folder in FOLDERS]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of tests that are `sampled(n)` the first case stays, and those whose name falls to them, one
    of n: which they are depends on no other case. The others become `long`."""
    seen = set()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None or item.get_closest_marker("long") is not None:
            continue
        (every,) = mark.args
        of_all = item.nodeid.partition("[")[0]
        if of_all in seen and zlib.crc32(item.nodeid.encode()) % every:
            item.add_marker(pytest.mark.long)
        seen.add(of_all)


def pytest_collection_finish():
    """What is loaded stays: the collector of garbage went through it again and again, an eighth of
    the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def share_of_cores():
    """Workers that test at the same time leave each other their cores: a process that compiles
    forks others for its own share."""
    from tilewright.runtime import processes

    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = max(1, processes.available_cpus() // workers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "available_cpus", lambda: share)
        yield


@pytest.fixture(scope="session")
def digit_images():
    """The held-out digits, [360, 1, 8, 8]."""
    with np.load(TESTS.parent / "examples" / "digits" / "held_out.npz") as file:
        return file["images"]


@pytest.fixture(scope="session")
def digits(digit_images, tmp_path_factory):
    """The digits network in int8, calibrated on 64 of them, as a file."""
    import tilewright

    path = tmp_path_factory.mktemp("digits") / "digits_int8.onnx"
    floats = TESTS.parent / "examples" / "digits" / "digits.onnx"
    tilewright.quantize(floats, {"image": digit_images[:64]}, scheme="pow2").save(path)
    return path
