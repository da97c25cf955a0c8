"""The benchmark's bookkeeping: what counts as a wrong result, and the ratio to the best peer."""

import json
import os

import numpy as np
import pytest
from cpu import main
from interleave import compare
from onnx_models import model, node
from report import Measurement, problems, summarize
from zoo import ZOO


def measurement(engine, rounds_ms, failure=None):
    return Measurement(engine, "1.0", failure, None, rounds_ms, 0.0, None)


def test_a_result_is_compared_by_value_and_by_the_largest():
    expected = [np.array([100.0, 1.0, 0.0], np.float32)]
    assert compare(expected, expected) == (0.0, None)
    near = [np.array([100.1, 1.005, 0.005], np.float32)]
    assert compare(near, expected)[1] is None
    error, text = compare([np.array([100.0, 1.5, np.nan], np.float32)], expected)
    assert text == f"wrong result: 2 values differ from onnxruntime's, by up to {error:.1e}"
    _, text = compare([np.zeros((1, 3))], expected)
    assert text == "wrong result: shapes [(1, 3)], onnxruntime gives [(3,)]"


def test_the_ratio_is_taken_round_by_round_against_the_best_peer():
    case = summarize(
        "net", 1, 1000, 0.1, 0.0,
        (
            measurement("tilewright", ((2.0, 3.0), (4.0, 6.0))),
            measurement("onnxruntime", ((9.0,), (9.0,))),
            measurement("openvino", ((1.0, 1.5), (2.0, 3.0))),
        ),
    )  # fmt: skip
    assert (case.best_peer, case.ratio, case.ratio_of_minima) == ("openvino", 2.0, 2.0)
    assert problems([case]) == []


def test_a_failure_leaves_no_ratio_and_is_told():
    ours = measurement("tilewright", (), "NotImplementedError: no such operator")
    case = summarize("net", 2, 1000, 0.1, 0.5, (ours, measurement("openvino", ((1.0,),))))
    assert (case.best_peer, case.ratio) == ("openvino", None)
    assert problems([case]) == [
        "net, threads=2: other programs used 0.5 cores: expect noise",
        "tilewright on net, threads=2: NotImplementedError: no such operator",
    ]


def test_unknown_names_are_answered_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["--peers", "onnxruntim"])
    assert capsys.readouterr().err.endswith(
        "cpu.py: error: --peers: no 'onnxruntim'; there are onnxruntime, openvino\n"
    )


def test_files_are_checked_before_anything_is_measured(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    path.write_bytes(model([node("Relu", ["x"], ["y"])], {"x": ("N", 4)}).SerializeToString())
    for name, said in {
        str(path): f"{path}: input 'x' has the symbolic dimension 'N': say its size, as in "
        "sample_inputs(model, N=1)",
        "none.onnx": "none.onnx: [Errno 2] No such file or directory: 'none.onnx'",
        "resnet": f"no 'resnet'; there are files FILE.onnx and {', '.join(ZOO)}",
    }.items():
        with pytest.raises(SystemExit):
            main(["--models", name])
        assert capsys.readouterr().err.endswith(f"cpu.py: error: --models: {said}\n")
    with pytest.raises(SystemExit):
        main(["--models", str(path), "--batch", "2"])
    said = f"cpu.py: error: --batch: {path} has a batch of its own; 2 is for the zoo\n"
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.skipif(os.name != "posix", reason="workers need pipes that can be waited for")
def test_peers_are_measured_in_worker_processes(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "results.json"
    main(
        [
            "--models",
            "lstm",
            "--peers",
            "onnxruntime",
            "--repeat",
            "2",
            "--quiet",
            "--json",
            str(path),
        ]
    )
    (case,) = json.loads(path.read_text())["cases"]
    peer = next(one for one in case["measurements"] if one["engine"] == "onnxruntime")
    assert peer["failure"] is None
    assert len(peer["rounds_ms"]) == 2
    assert 0 < peer["min_ms"] <= peer["median_ms"]
    assert peer["loaded"]["peak_mib"] >= peer["loaded"]["base_mib"] > 0
