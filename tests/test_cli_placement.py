"""What `run` and `explain` say of chips: what runs there, why not more, and what would help."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import run_commands  # noqa: F401 (a fixture)
from typer.testing import CliRunner

import tilewright as tw
from tilewright.cli.main import app
from tilewright.runtime.device_work import DeviceWork, DividedWork, divided_work
from tilewright.targets import cpu

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
CALIBRATE = ["--calibrate", str(DIGITS / "calibration.npz"), "--samples", "16"]
CHIP = ["--target", "gemmini", "--target", "host"]


def said(result) -> list[str]:
    """What stands below the outputs, one line for each sentence."""
    code, _, err = result
    assert code == 0, err
    return [line for line in err.splitlines() if not line.startswith("target: ")]


@pytest.fixture(scope="module", name="quantised")
def quantise(tmp_path_factory):
    """The digits with scales of any size, and with powers of two."""

    folder = tmp_path_factory.mktemp("models")
    found = {}
    for scheme in ("int8", "pow2"):
        found[scheme] = str(folder / f"{scheme}.onnx")
        arguments = ["quantize", MODEL, "--scheme", scheme, *CALIBRATE, "-o", found[scheme], "-q"]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    return found


def test_each_hint_leads_to_the_next(tilewright, quantised):
    """From a float model to one that the chip runs but for its ends."""
    wide, one = {"COLUMNS": "300"}, ["--dim", "batch=1", *CHIP]
    none = "gemmini runs none of 5 kernels; it refuses k1_conv_add_relu: "
    refused, hint = said(tilewright("run", MODEL, *CHIP, **wide))
    assert refused == none + "batch has no number (dims={…} gives one)"
    assert hint == "hint: chips want sizes that are numbers: --dim batch=1"
    refused, hint = said(tilewright("run", MODEL, *one, **wide))
    assert refused == (
        none + "conv is a sum of products of f32, and the units of gemmini multiply i8"
    )
    assert hint == (
        "hint: a chip that multiplies integers wants a quantised model:"
        f" tilewright quantize {MODEL} --scheme pow2 --calibrate DATA.npz"
    )
    _, hint = said(tilewright("run", quantised["int8"], *one, **wide))
    assert hint == (
        "hint: a chip that shifts wants scales that are powers of two: quantize --scheme pow2"
    )
    _, out, _ = tilewright("explain", quantised["pow2"], *one, "--repeat", "1", **wide)
    hint = out.splitlines()[-1]
    assert hint == "hint: a chip that shifts rounds halves up, and ONNX to even: --rounding half_up"
    up = [*one, "--rounding", "half_up"]
    (line,) = said(tilewright("run", quantised["pow2"], *up, **wide))
    assert line.startswith("gemmini runs 4 of 7 kernels, 99% of the operations, in ")
    assert line.endswith(" µs)")


def test_devices_in_json(tilewright, quantised):
    up = ["--dim", "batch=1", *CHIP, "--rounding", "half_up", "--json"]
    _, out, _ = tilewright("run", quantised["pow2"], *up)
    found = json.loads(out)
    chip, host = found["devices"]
    assert (chip["device"], chip["kernels"], host["device"], host["kernels"]) == (
        ("gemmini", 4, "host", 3)
    )
    assert chip["cycles"] > 0
    assert host["cycles"] is None
    assert found["refused"][-1].endswith(" on gemmini: no instruction of gemmini computes with f32")


def test_a_host_alone_says_nothing(tilewright):
    assert said(tilewright("run", MODEL, "--target", "host")) == []
    assert said(tilewright("run", MODEL, *CHIP, "-q")) == []


def test_a_processor_is_no_chip(tilewright):
    """Whatever it is called, alone and beside a chip, which comes first."""
    assert said(tilewright("run", MODEL, "--target", "avx2")) == []
    both = ["--target", "avx2", "--target", "gemmini"]
    (chip, *_) = said(tilewright("run", MODEL, *both))
    assert chip.startswith("gemmini runs none of ")
    _, out, _ = tilewright("run", MODEL, *both, "--json")
    devices = [(d["device"], d["cycles"]) for d in json.loads(out)["devices"]]
    assert devices == [("gemmini", 0), ("avx2", None)]


def test_sizes_that_were_given_are_those_that_are_proposed(tilewright, tmp_path):
    images = np.zeros((3, 1, 8, 8), np.float32)
    np.save(tmp_path / "images.npy", images)
    given = ["--input", f"image={tmp_path / 'images.npy'}"]
    assert said(tilewright("run", MODEL, *CHIP, *given))[-1].endswith("--dim batch=3")


def test_a_share_of_nothing():
    work = (DeviceWork("npu", is_chip=True), DeviceWork("host", kernels=2))
    assert DividedWork(work, ()).share("npu") == 0


def test_operations_of_sizes_known_late():
    module = tw.compile(MODEL, target=cpu.host(1))
    work = [divided_work(module.program, {"batch": n}).work for n in (1, 4)]
    (one,), (four,) = work
    assert one.kernels == four.kernels
    assert four.operations == 4 * one.operations
