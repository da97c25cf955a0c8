"""docs/primitives.md is what tools/primitive_docs.py writes; writing it runs all its examples."""

import primitive_docs as tool
import pytest

from tilewright import Schedule


def test_page():
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.page(), "the primitives have changed: run `make docs`"


def test_every_primitive_has_a_section():
    sections = tool.PAGE.read_text(encoding="utf-8")
    primitives = Schedule.primitives()
    assert len(primitives) >= 20
    for name in primitives:
        assert f"\n## {name}\n" in sections


def test_every_primitive_has_a_picture_and_says_what_is_legal():
    for name, function in Schedule.primitives().items():
        said = function.__doc__
        assert "->" in said or name in ("unroll", "vectorize", "parallel", "set_memory"), name
        assert "egal" in said, f"{name}: when is it legal?"


def test_a_primitive_without_an_example_is_said(monkeypatch):
    monkeypatch.delitem(tool.EXAMPLES, "split")
    with pytest.raises(SystemExit) as caught:
        tool.page()
    assert str(caught.value) == "tools/primitive_examples.py has no example of split"


def test_an_example_must_use_its_primitive(monkeypatch):
    program, _ = tool.EXAMPLES["split"]
    monkeypatch.setitem(tool.EXAMPLES, "split", (program, 's.unroll(s.loop("i"))'))
    with pytest.raises(SystemExit) as caught:
        tool.page()
    assert str(caught.value) == "the example of split does not use it"


def test_every_example_is_traced():
    """As Python, as JSON, replayed: the same program again."""
    target = tool.tiny()
    names = {"Tail": tool.Tail, "Layout": tool.Layout, "target": target}
    for name in Schedule.primitives():
        program, steps = tool.EXAMPLES[name]
        s = Schedule(tool.parse_kernel(program.strip()))
        exec(steps, names | {"s": s})
        printed = Schedule(s.original)
        exec(s.trace.python(), {"s": printed, "target": target})
        saved = Schedule.read_trace(s.trace.json(), target=target).replay(s.original)
        for other in (printed, saved, s.trace.replay(s.original)):
            assert other.kernel == s.kernel, name
            assert other.trace == s.trace, name
            assert other.show() == s.show(), name
        assert s.trace.space(s.original).prove().kernel == s.kernel, name
