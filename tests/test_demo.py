"""examples/demo.py, with a small network in place of ResNet-18 and little time."""

import json
from pathlib import Path

import demo
import onnx
import pytest
from arithmetic import fix_dimensions


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    def small():
        return fix_dimensions(onnx.load(demo.DIGITS), batch=1)

    monkeypatch.setattr(demo, "SECONDS", 0.01)
    monkeypatch.setattr(demo, "WARM_UP", 0.0)
    monkeypatch.setattr(demo, "resnet18", small)
    monkeypatch.setattr(demo, "REPORT", tmp_path / "build" / "page.html")

    def run(*arguments):
        assert demo.main(list(arguments)) == 0
        return capsys.readouterr()

    return run


def test_plain_lines(run):
    out, err = run()
    lines = out.splitlines()
    assert lines[0].startswith("tilewright ")
    assert "355 of 360 held-out digits are read right: 98.6%" in lines
    assert any(line.split() == ["0", "✓", "1", "✓", "2", "✓", "3", "✓"] for line in lines)
    assert any("✗ it is" in line for line in lines)
    assert any(": the same class for 360 of 360," in line for line in lines)
    assert any(line.startswith("where the time goes") for line in lines)
    assert any(line.startswith("threads ") for line in lines)
    assert any("are read right, as on the host, to the bit" in line for line in lines)
    assert any(line.endswith(" cycles a digit, by the timed simulator of vta") for line in lines)
    assert any(line.startswith("see it: open ") and "page.html" in line for line in lines)
    assert "\x1b" not in out + err
    assert max(map(len, lines)) <= 110
    assert "… compiling digits.onnx" in err.splitlines()


@pytest.mark.long
def test_json(run):
    out, err = run("--json")
    found = json.loads(out)
    assert err == ""
    assert found["digits"]["right"] == 355
    assert found["digits"]["agreement"]["same_class"] == 360
    assert found["digits"]["file_bytes"] > 10_000
    chip = found["chip"]
    assert (chip["right"], chip["exact"]) == (355, True)
    assert Path(chip["report"]).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    # Three convolutions, a pool and the linear layer.
    assert sum(s["cycles"] is not None for s in chip["steps"]) == 5
    runs = found["resnet18"]["runs"]
    assert runs[0]["threads"] == 1
    for one in runs:
        assert 0 < one["latency"]["fastest"] <= one["latency"]["median"]
        assert one["share_of_peak"] == pytest.approx(one["gflops"] / one["peak_gflops"])
    assert sum(s["share"] for s in found["digits"]["steps"]) == pytest.approx(1)
