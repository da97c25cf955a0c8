"""The README's table and picture, from a report."""

import json

import pytest
import readme_table
from latency_chart import draw
from readme_table import BEGIN, END, main, make_table, put_between


def measurement(engine, times, failure=None):
    found = {"engine": engine, "version": "1.2-3", "failure": failure, "rounds_ms": times}
    return found | ({"min_ms": 1.0} if times else {})


REPORT = {
    "machine": {"cpu": "A CPU", "cores": 2, "simd": ["avx2", "avx512f"]},
    "peak": {"gflops_per_core": 100.4},
    "cases": [
        {
            "model": "net",
            "threads": 2,
            "bound_ms": 1.2345,
            "ratio": 0.5,
            "measurements": [
                measurement("tilewright", [[2.0, 3.0], [2.5]]),
                measurement("onnxruntime", [[5.0]]),
                measurement("openvino", [], "died <here>"),
            ],
        }
    ],
}


def test_the_table():
    caption, empty, *lines = make_table(REPORT).splitlines()
    assert empty == ""
    assert caption == (
        "Milliseconds for one inference: median (fastest). A CPU, 2 cores, AVX-512; float32, batch"
        " 1; the engines were measured in turn. *Arithmetic at peak*: direct algorithms at 100"
        " GFLOP/s a core, measured."
    )
    head = "| model | threads | tilewright 1.2 | onnxruntime 1.2 | openvino 1.2 |"
    assert lines == [
        f"{head} ours / best other | arithmetic at peak |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| net | 2 | 2.5 (2) | 5 (5) | – | **0.50** | 1.23 |",
    ]


def test_the_picture_is_xml_with_a_bar_for_each_result():
    ElementTree = pytest.importorskip("xml.etree.ElementTree")
    root = ElementTree.fromstring(draw(REPORT))
    space = "{http://www.w3.org/2000/svg}"
    bars = [r for r in root.iter(f"{space}rect") if r.get("height") == "15"]
    assert len(bars) == 2
    texts = [t.text for t in root.iter(f"{space}text")]
    assert {"net", "2.5 ms", "5 ms", "–", "0 %", "100 %"} <= set(texts)


def test_only_what_stands_between_the_marks_changes():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put_between(text, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    with pytest.raises(ValueError):
        put_between("nothing here", "new")


def test_the_command(tmp_path, capsys, monkeypatch):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(REPORT))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == make_table(REPORT) + "\n"
    monkeypatch.setattr(readme_table, "ROOT", tmp_path)
    monkeypatch.setattr(readme_table, "README", tmp_path / "README.md")
    monkeypatch.setattr(readme_table, "PICTURE", tmp_path / "docs" / "images" / "latency.svg")
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}\n")
    assert main([str(path), "--write"]) == 0
    assert "| net | 2 |" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "docs" / "images" / "latency.svg").read_text().startswith("<svg ")
    path.write_text("{}")
    with pytest.raises(SystemExit):
        main([str(path)])
