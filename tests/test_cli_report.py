"""--report and --trace: files of the calls that a command times."""

import json
from pathlib import Path

import pytest
import schemas
from command_line import failure, run_commands  # noqa: F401  (a fixture: `tilewright`)

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "digits"
DIGITS = str(FOLDER / "digits.onnx")


def test_run_writes_a_page_and_a_trace_of_a_model_on_a_chip(tilewright, digits, tmp_path):
    page, trace = tmp_path / "report.html", tmp_path / "trace.json"
    code, out, err = tilewright(
        "run", str(digits), "--dim", "batch=1", "--target", "host", "--target", "gemmini",
        "--rounding", "half_up", "--report", str(page), "--trace", str(trace), "--json",
    )  # fmt: skip
    found = json.loads(out)
    schemas.validate("run", found)
    assert (code, err) == (0, "")
    assert (found["report"], found["trace"]) == (str(page), str(trace))
    assert "gemmini" in page.read_text(encoding="utf-8")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ours = {name: key for key, name in tracks.items() if key[0] == 1}
    assert {"host", "gemmini", "gemmini load", "gemmini execute", "gemmini store"} <= set(ours)
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    submits = [e for e in slices if e["cat"] == "submit"]
    for submit in submits:
        begin, end = submit["ts"], submit["ts"] + submit["dur"]
        inside = [e for e in slices if begin - 1e-6 <= e["ts"] and e["ts"] + e["dur"] <= end + 1e-3]
        queues = [e for e in inside if e["cat"] == "instructions"]
        assert {e["tid"] for e in queues} == {ours[f"gemmini {q}"][1] for q in QUEUES}
    counted = sum(e["args"]["instructions"] for e in slices if e["cat"] == "instructions")
    assert counted > 0
    for track in {e["tid"] for e in slices if e["cat"] == "instructions"}:
        of_track = [e for e in slices if e["tid"] == track]
        ends = [e["ts"] + e["dur"] for e in of_track]
        assert all(e["ts"] >= end - 1e-6 for e, end in zip(of_track[1:], ends, strict=False))


QUEUES = ("load", "execute", "store")


def test_explain_writes_the_page_of_the_calls_that_it_times(tilewright, tmp_path):
    page = tmp_path / "report.html"
    code, out, err = tilewright(
        "explain", DIGITS, "--dim", "batch=2", "--repeat", "3", "--report", str(page)
    )
    assert code == 0
    assert "kernel" in out
    assert f"wrote {page}: " in err
    assert "median of 3 calls" in page.read_text(encoding="utf-8")


def test_explain_names_the_page_in_json(tilewright, tmp_path):
    page = str(tmp_path / "report.html")
    code, out, _ = tilewright("explain", DIGITS, "--dim", "batch=2", "--report", page, "--json")
    assert code == 0
    found = json.loads(out)
    schemas.validate("explain", found)
    assert found["report"] == page


def test_without_them_json_has_null(tilewright):
    code, out, _ = tilewright("run", DIGITS, "--dim", "batch=2", "--json")
    assert code == 0
    assert json.loads(out)["report"] is json.loads(out)["trace"] is None


@pytest.mark.parametrize("option", ["--report", "--trace"])
def test_a_bad_place_is_refused_before_anything_is_compiled(tilewright, option, tmp_path):
    said = failure(tilewright("run", "no such model.onnx", option, str(tmp_path)))
    assert said == f"error: cannot write {tmp_path}: Is a directory\n"
    path = tmp_path / "none" / "file"
    said = failure(tilewright("run", "no such model.onnx", option, str(path)))
    assert said == f"error: cannot write {path}: No such file or directory\n"
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "inside"
    said = failure(tilewright("run", "no such model.onnx", option, str(path)))
    assert said == f"error: cannot write {path}: Not a directory\n"


def test_a_kernel_has_no_page(tilewright, tmp_path):
    said = failure(tilewright("explain", "kernel.py", "--report", str(tmp_path / "x.html")))
    assert said == "error: --report shows models, and this is a kernel\n  hint: leave it out\n"
