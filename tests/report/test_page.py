"""The page that shows a profile: all of it is there, nothing of it is loaded from elsewhere, and no
name of a model's becomes a part of the page's code."""

import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper
from pages import Page, is_alone

import tilewright
from tilewright.base.errors import ArtifactError, InputError
from tilewright.options import Options
from tilewright.report.facts import gather
from tilewright.report.page import GROUPS as MOST_GROUPS
from tilewright.report.page import page, write_report
from tilewright.runtime.device_run import GROUPS, DeviceRun
from tilewright.runtime.profile import Profile


@pytest.fixture(scope="module")
def report(profile, limits):
    return gather(profile, limits)


@pytest.fixture(scope="module")
def shown(report):
    return Page(page(report))


# ---------------------------------------------------------------- what is shown


def test_every_step_and_every_piece_is_in_the_table(profile, shown):
    program = profile.program
    ids = [str(k) for k in range(len(program.steps))]
    ids += [f"{k}.{n + 1}" for k, f in enumerate(program.steps) for n in range(len(f.pieces))]
    rows = [given["data-item"] for given in shown.of("tr") if "data-item" in given]
    assert sorted(rows) == sorted(ids)
    assert sorted(i["id"] for i in shown.data["items"]) == sorted(ids)
    assert any("." in name for name in ids)


def test_the_graph_has_a_box_for_each_step_but_waits(report, shown):
    boxes = [g["data-item"] for g in shown.of("g") if "data-item" in g]
    wanted = [i.id for i in report.items if i.kind != "wait"]
    assert sorted(boxes) == sorted(wanted)
    classes = {g["data-item"]: g["class"] for g in shown.of("g") if "data-item" in g}
    for item in report.items:
        if item.kind in ("submit", "piece"):
            assert classes[item.id].split()[1] == report.colours["npu"]


def test_time_goes_from_left_to_right_and_queues_lie_in_their_steps(report, shown):
    data = shown.data
    labels = [row["label"] for row in data["rows"]]
    assert labels == ["cpu", "copies", "npu", "load", "compute", "store"]
    items = {i["id"]: i for i in data["items"]}
    for i in items.values():
        assert 0 <= i["begin"] <= i["begin"] + i["ns"] <= data["total"] + 0.01
    for run in data["runs"]:
        for name in run["items"]:
            at = 0
            for k in range(0, len(run["groups"]), 6):
                queue, instruction, count, step, length, busy = run["groups"][k : k + 6]
                at += step
                assert 0 <= busy <= length
                assert count >= 1
                assert run["instructions"][instruction]
                assert (at + length) * run["cycle"] <= items[name]["ns"] + 1e-3
                assert data["rows"][run["rows"][queue]]["queue"]
    submitted = [i for i in report.items if i.kind == "submit"]
    assert {n for run in data["runs"] for n in run["items"]} == {i.id for i in submitted}


def test_pieces_follow_each_other_and_are_all_of_their_step(report):
    for step in {i.step for i in report.items if i.kind == "piece"}:
        (whole,) = [i for i in report.items if i.id == str(step)]
        pieces = [i for i in report.items if i.step == step and i.kind == "piece"]
        ends = [whole.span.begin, *(p.span.end for p in pieces)]
        assert [p.span.begin for p in pieces] == pytest.approx(ends[:-1])
        assert ends[-1] == pytest.approx(whole.span.end)
        assert sum(p.cycles for p in pieces) == whole.cycles


def test_what_is_predicted_and_why_the_host_runs_the_rest(report, shown):
    (first, *_), words = report.items, " ".join(shown.words)
    assert first.device == "cpu"
    assert "npu: no instruction of vta computes with f32" in words
    for item in report.items:
        if item.kind == "submit":
            assert 0 < item.least <= item.span.nanoseconds
            assert item.model is not None
    bounds = [i.limit for i in report.items if i.kind == "call"]
    assert all(bounds)


def test_words_have_units_and_the_page_stands_alone(shown):
    is_alone(shown)
    words = " ".join(shown.words)
    for text in ("What runs where", "When", "How near to the limits", "Memory", "Step by step"):
        assert text in words
    assert re.search(r"One call takes\s+[\d.]+ (ns|µs|ms)", words)
    assert "npu inp" in words
    assert re.search(r"at most [\d.]+ \w+ of 32.0 KiB", words)


def test_a_model_on_the_host_alone(limits):
    module = tilewright.compile(hostile("plain"), target="host", options=Options(cache=False))
    found = Page(page(gather(module.profile(np.ones((2, 3), np.float32)), limits)))
    is_alone(found)
    words = " ".join(found.words)
    assert "all on this machine" in words
    assert "simulat" not in words
    assert "chip" not in words
    assert [row["label"] for row in found.data["rows"]] == ["host"]


def test_without_limits_there_is_no_least_time_of_the_host(profile):
    report = gather(profile, None)
    assert all(i.least is None for i in report.items if i.device == "cpu")
    Page(page(report))


# ---------------------------------------------------------------- names


HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script ",
    "</script x",
    "]]>&amp;{{data}}\\u003c",
    "' onmouseover='alert(1)",
    "a\u2028b\x07\x1b[31m",
    "k0_" + "long_" * 2000,
)


def hostile(name):
    """y = softmax(x) + x, with everything called so."""
    nodes = [
        helper.make_node("Softmax", [f"x{name}"], [f"h{name}"], name),
        helper.make_node("Add", [f"h{name}", f"x{name}"], [f"y{name}"], f"2{name}"),
    ]
    ends = [helper.make_tensor_value_info(n + name, TensorProto.FLOAT, (2, 3)) for n in "xy"]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_texts(name, limits):
    module = tilewright.compile(hostile(name), target="host", options=Options(cache=False))
    report = gather(module.profile(np.ones((2, 3), np.float32), repeat=1), limits)
    text = page(report)
    found = Page(text)
    is_alone(found)
    assert any(name in i["nodes"] for i in found.data["items"])
    assert not {"<", ">", "\x07", "\x1b", "\u2028"} & set(found.scripts[0])
    assert "\x1b" not in text
    assert len(found.of("svg")) == len(Page(page(gather_plain(limits))).of("svg"))


def gather_plain(limits):
    module = tilewright.compile(hostile("plain"), target="host", options=Options(cache=False))
    return gather(module.profile(np.ones((2, 3), np.float32), repeat=1), limits)


# ---------------------------------------------------------------- sizes


def test_a_page_of_many_long_streams_is_small(report):
    """60 kernels, each with as many groups as are kept of a stream of any length."""
    (run, *_) = report.runs.values()
    submit = next(i for i in report.items if i.kind == "submit")
    rng = np.random.default_rng(0)
    queues = len(run.facts.queues)
    cycles = 20_000_000
    begin = np.sort(rng.integers(0, cycles - 100, (queues, GROUPS)))
    groups = np.stack(
        [
            np.repeat(np.arange(queues), GROUPS),
            np.zeros(queues * GROUPS, np.int64),
            np.full(queues * GROUPS, 25),
            begin.reshape(-1),
            begin.reshape(-1) + 90,
            np.full(queues * GROUPS, 80),
        ]
    )
    long = DeviceRun(replace(run.facts, cycles=cycles), groups)
    items = [replace(submit, id=str(k), step=k, kernel=f"k{k}") for k in range(60)]
    report = replace(
        report, items=tuple(items), edges=(), runs={("npu", f"k{k}"): long for k in range(60)}
    )
    text = page(report)
    found = Page(text)
    assert sum(len(r["groups"]) for r in found.data["runs"]) <= 6 * MOST_GROUPS
    assert len(text.encode()) < 3_000_000
    assert len(found.data["runs"]) == 60


# ---------------------------------------------------------------- writing


def test_it_is_written_whole_or_not_at_all(profile, limits, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")
    size = write_report(profile, path, limits)
    text = path.read_text(encoding="utf-8")
    assert size == len(text.encode())
    assert text.startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    "place, said",
    [
        ("", "cannot write {}: Is a directory"),
        ("none/page.html", "cannot write {}: No such file or directory"),
    ],
)
def test_a_bad_place_is_said_in_words(place, said, profile, limits, tmp_path):
    path = tmp_path / place
    with pytest.raises(ArtifactError) as caught:
        write_report(profile, path, limits)
    assert str(caught.value) == said.format(path)
    assert not list(tmp_path.iterdir())


def test_what_is_no_profile_is_refused(limits, tmp_path):
    hint = '\n  hint: write_report(module.profile(x), "report.html")'
    with pytest.raises(InputError) as caught:
        write_report("model.onnx", tmp_path / "x.html", limits)
    assert str(caught.value) == f"str is given where a profile is needed{hint}"
    with pytest.raises(ArtifactError) as none:
        write_report("model.onnx", None, limits)
    assert str(none.value).startswith("None is no path")
    with pytest.raises(InputError) as made:
        write_report(Profile((), 1, 1, 1), tmp_path / "x.html", limits)
    assert str(made.value) == (
        "this profile does not say what was run\n  hint: profile = module.profile(x)"
    )


def test_it_is_public_and_the_same_for_a_module_that_was_loaded(on_chip, limits, tmp_path):
    module, image = on_chip
    module.save(tmp_path / "model.tw")
    with tilewright.load(tmp_path / "model.tw") as loaded:
        found = gather(loaded.profile(image, repeat=1), limits)
    first = gather(module.profile(image, repeat=1), limits)
    assert [(i.id, i.title, i.cycles, i.why) for i in found.items] == [
        (i.id, i.title, i.cycles, i.why) for i in first.items
    ]
    assert found.edges == first.edges
    assert found.tracks == first.tracks
    for key, run in first.runs.items():
        assert np.array_equal(found.runs[key].groups, run.groups)
        assert found.runs[key].facts == run.facts
    assert tilewright.write_report is write_report
