"""A profile: as a table for people, as a trace for a viewer."""

import json

import numpy as np
import pytest

from tilewright.base.errors import ArtifactError
from tilewright.base.words import nanoseconds, quantity, shorten
from tilewright.runtime.profile import WIDTH, Profile, StepTime


def step(name, nodes, spent, kind="call"):
    return StepTime(kind, name, "host", nodes, spent, spent, 10, None)


LONG = "encoder_layer_11_attention_output_dense_matmul"
STEPS = (
    step("k0_conv_relu", ("conv1", "relu1"), 1_200_000),
    step(f"k1_{LONG}_add", (f"/{LONG}/MatMul", f"/{LONG}/Add"), 612_345),
    step("unique", ("u",), 950, "host_call"),
)
STAMPS = np.array([[5000, 6000, 6500, 6600], [7000, 8500, 9000, 9100]])
PROFILE = Profile(STEPS, 1_900_000, 1_700_000, 2, "net", STAMPS)
TABLE = """\
net: 1.9 ms a call (median of 2; fastest 1.7 ms)
#     time   share              kernel                   nodes
0   1.2 ms   66.2%  ▇▇▇▇▇▇▇▇▇▇  k0_conv_relu             conv1, relu1
1   612 µs   33.8%  ▇▇▇▇▇       k1_encoder_…_matmul_add  /encoder_la…_matmul/Add
2   950 ns    0.1%              unique                   u
   1.81 ms  100.0%              all steps
"""


def test_printed_it_is_a_table():
    assert str(PROFILE) + "\n" == TABLE
    assert max(map(len, TABLE.splitlines())) <= WIDTH
    assert repr(PROFILE) == "Profile(net: 3 steps, 1.9 ms)"


def test_a_model_without_steps():
    assert str(Profile((), 40, 30, 1)) == (
        "the model: 40 ns a call (median of 1; fastest 30 ns)\n"
        "#  time   share              kernel     nodes\n"
        "   0 ns  100.0%              all steps"
    )


@pytest.mark.parametrize("count", [9, 10, 11, 100, 1001])
def test_it_fits_however_many_steps(count):
    lines = str(Profile(STEPS * count, 1, 1, 1, "net")).splitlines()
    assert len(lines) == 3 * count + 3
    assert max(map(len, lines)) <= WIDTH


# ---------------------------------------------------------------- traces


def test_a_trace_has_every_call_and_its_steps(tmp_path):
    PROFILE.save(tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert found["displayTimeUnit"] == "ns"
    names = [
        e["args"]["name"] for e in found["traceEvents"] if e["ph"] == "M" and "name" in e["args"]
    ]
    assert names == ["net", "calls"]
    blocks = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["cat"], e["ts"], e["dur"]) for e in blocks[:4]] == [
        ("call 0", "call", 0.0, 1.6),
        ("k0_conv_relu", "call", 0.0, 1.0),
        (STEPS[1].name, "call", 1.0, 0.5),
        ("unique", "host_call", 1.5, 0.1),
    ]
    assert blocks[1]["args"] == {
        "step": 0, "nodes": ["conv1", "relu1"], "device": "host", "operations": 10,
    }  # fmt: skip
    assert len(blocks) == 2 * 4
    for call in (blocks[:4], blocks[4:]):  # slices of one track lie inside each other
        begin, end = call[0]["ts"], call[0]["ts"] + call[0]["dur"]
        for one, after in zip(call[1:], [*call[2:], None], strict=True):
            assert begin <= one["ts"] <= one["ts"] + one["dur"] <= end + 1e-9
            assert after is None or one["ts"] + one["dur"] <= after["ts"] + 1e-9


def test_a_trace_that_cannot_be_written(tmp_path):
    path = tmp_path / "nowhere" / "t.json"
    with pytest.raises(ArtifactError) as error:
        PROFILE.save(path)
    assert str(error.value) == f"cannot write {path}: No such file or directory"


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    "width, text", [(20, "abcdefghij"), (10, "abcdefghij"), (5, "ab…ij"), (4, "ab…j"), (1, "…")]
)
def test_long_names_keep_both_ends(width, text):
    assert shorten("abcdefghij", width) == text


def test_numbers_for_people():
    times = [0, 999, 1000, 12_345, 9.996e5, 2_500_000_000, 4_000_000_000_000]
    assert [nanoseconds(t) for t in times] == [
        "0 ns", "999 ns", "1 µs", "12.3 µs", "1 ms", "2.5 s", "4000 s",
    ]  # fmt: skip
    assert [quantity(n, "op") for n in (None, 0, 12, 1500, 2e12, 3e15, 999_700)] == [
        "–", "0 op", "12 op", "1.5 kop", "2 Top", "3000 Top", "1 Mop",
    ]  # fmt: skip
