"""The benchmark of hand-scheduled kernels, on sizes that take no time: verdicts and records."""

import json

import pytest

pytest.importorskip("threadpoolctl")

import kernels
from kernels import MISSED, WRONG, Entry, main


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(kernels, "PEAK_S", 0.01)
    monkeypatch.setattr(kernels, "TURN_S", 0.0)
    monkeypatch.setattr(kernels, "busy_cores", lambda: 0.0)


def entries(monkeypatch, *some):
    monkeypatch.setattr(kernels, "ENTRIES", some)


def small_gemm(ratio):
    return Entry("gemm", "small", kernels.gemm.case, (16, 64, 16), kernels.blas, ratio)


def small_softmax(ratio):
    return Entry("softmax", "small", kernels.softmax.case, (8, 64), kernels.copy, ratio)


def test_bars_are_passed_or_missed(monkeypatch, tmp_path, capsys):
    entries(monkeypatch, small_gemm(0.0), small_softmax(1e9))
    path = tmp_path / "kernels.json"
    assert main(["--rounds", "2", "--json", str(path)]) == MISSED
    shown = capsys.readouterr().out
    assert "pass" in shown
    assert "miss" in shown
    found = json.loads(path.read_text())
    assert [k["passed"] for k in found["kernels"]] == [True, False]
    assert found["kernels"][0]["share"] > 0
    assert found["kernels"][1]["rival"] == "copy"


def test_a_wrong_result_is_told(monkeypatch, capsys):
    def wrong():
        case = kernels.softmax.case(8, 64)
        return kernels.Case(case.schedule, case.target, case.arrays, lambda: case.arrays[0])

    entries(monkeypatch, Entry("softmax", "small", wrong, ()))
    assert main(["--rounds", "1"]) == WRONG
    assert "softmax small: wrong result: " in capsys.readouterr().out


def test_unknown_kernels_are_answered_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "gem"])
    expected = "no 'gem'; there are gemm, conv3x3, softmax, layer_norm, transpose, gemm_int8\n"
    assert capsys.readouterr().err.endswith(expected)
