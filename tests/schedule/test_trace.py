"""Traces: as Python, as JSON, on other shapes; steps from outside; decisions."""

from __future__ import annotations

import json
import re

import pytest
from convolution import CONV, convolution
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import check_same, schedule
from schedule_programs import LOCAL, MATMUL, MATRIX, ROWS, STAGES, SUM, TWO
from strategies_schedule import applications

from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Instruction
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.loop import parse_kernel
from tilewright.schedule.core.state import Loop, State, primitive, refuse
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Reference, ReferenceKind, leaves
from tilewright.schedule.trace.trace import Trace
from tilewright.target.target import Target
from tilewright.targets import tiny


def run(program: str, s: Schedule, **names: object) -> Schedule:
    exec(program, {"s": s, **names})
    return s


def round_trip(s: Schedule) -> None:
    """What the trace prints, saves and replays gives the same program, and the same trace."""
    values = [x for step in s.trace for _, value in step.arguments for _, x in leaves(value)]
    used = tuple(dict.fromkeys(x for x in values if isinstance(x, Instruction)))
    target = Target("any", 1, 1e9, instructions=used)
    found = [
        run(s.trace.python(), Schedule(s.original), target=target),
        s.trace.replay(s.original),
        Schedule.read_trace(s.trace.json(), target=target).replay(s.original),
    ]
    for other in found:
        assert str(other.kernel) == str(s.kernel)
        assert other.kernel == s.kernel
        assert other.trace == s.trace


# ---------------------------------------------------------------- Python


def test_python():
    s = schedule(MATMUL)
    s.split(s.loop("i"), 2, Tail.CUT)
    s.pack_layout(s.buffer("b"), Layout((1, 0), ((1, 4),)))
    c = s.cache_write(s.buffer("c"), "sram")
    s.set_memory(memory="register", buffer=c)
    s.unroll(s.loop("i_i"))
    assert (
        s.trace.python()
        == """\
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.primitives.loops import Tail

i_o, i_i = s.split(s.loop("i"), 2, Tail.CUT)
b = s.pack_layout(s.buffer("b"), Layout((1, 0), ((1, 4),)))
c_local = s.cache_write(s.buffer("c"), "sram")
c_local = s.set_memory(c_local, "register")
s.unroll(i_i)"""
    )
    assert str(s.trace) == s.trace.python()
    round_trip(s)


def test_convolution():
    s = convolution(schedule(CONV))
    assert len(s.trace) == 15
    round_trip(s)


def test_names_that_python_has_taken():
    s = schedule("""
def k(x: f32[8, 8], y: out(f32[8, 8])):
    for s in range(8):
        for Tail in range(8):
            y[s, Tail] = x[s, Tail]
""")
    outer, inner = s.split(s.loop("Tail"), 4, Tail.SHIFT)
    s.fuse(s.loop("s"), outer)
    s.split(inner, 2)
    assert s.trace.python().splitlines()[2:] == [
        'Tail_o, Tail_i = s.split(s.loop("Tail"), 4, Tail.SHIFT)',
        's_Tail_o = s.fuse(s.loop("s"), Tail_o)',
        "Tail_i_o, Tail_i_i = s.split(Tail_i, 2)",
    ]
    round_trip(s)


def test_results_in_lists_and_buffers_in_sequences():
    s = schedule(SUM)
    (init,) = s.split_init(s.buffer("y"))
    s.unroll(init)
    assert s.trace.python() == '(i_init,) = s.split_init(s.buffer("y"))\ns.unroll(i_init)'.replace(
        "(i_init,)", "i_init,"
    )
    round_trip(s)
    s = schedule(LOCAL)
    s.multi_buffer(s.buffer("t"), [s.loop("i")], 2)
    assert s.trace.python() == 't = s.multi_buffer(s.buffer("t"), (s.loop("i"),), 2)'
    round_trip(s)


def test_a_buffer_that_changed_is_found_by_its_name():
    s = schedule(STAGES)
    old = s.compute_at(s.buffer("t"), s.loop("j"))
    new = s.set_memory(old, "sram")
    s.set_memory(new, "register")
    assert s.trace[2].arguments[0][1] == Reference(ReferenceKind.BUFFER, "t", 1, ())
    s.trace = s.trace[:1]
    s.kernel = s.trace.replay(s.original).kernel
    s.set_memory(s.buffer("t"), "register")
    assert len(s.trace) == 2
    round_trip(s)


TRACED = (CONV, MATMUL, MATRIX, ROWS, STAGES, SUM, TWO, LOCAL)


@settings(max_examples=100, deadline=None)
@given(text=st.sampled_from(TRACED), data=st.data())
def test_random_traces(text, data):
    s = schedule(text)
    for _ in range(data.draw(st.integers(1, 8))):
        step = data.draw(applications(s))
        if step is not None:
            try:
                step(s)
            except ScheduleError:
                continue
    round_trip(s)


# ---------------------------------------------------------------- rolling back


def test_prefixes():
    s = schedule(MATRIX)
    s.split(s.loop("i"), 2)
    kernel, steps = s.kernel, len(s.trace)
    s.split(s.loop("j"), 2)
    s.kernel, s.trace = kernel, s.trace[:steps]
    assert list(map(str, s.trace)) == ["split(loop=i, factor=2, tail=guard)"]
    assert s.trace[-1].primitive == "split"
    round_trip(s)
    with pytest.raises(ScheduleError):
        s.trace[1:]


# ---------------------------------------------------------------- other programs


def test_replay_on_another_shape():
    trace = convolution(schedule(CONV)).trace
    other = parse_kernel(CONV.strip().replace("28", "56").replace("30", "58").replace("29", "57"))
    s = trace.replay(other)
    assert s.original == other
    assert "for b_o in range(14):" in str(s.kernel)
    s = trace.with_decisions({"2.factor": 7}).replay(other)
    assert "for b_o in range(8):" in str(s.kernel)


def test_replay_refused():
    s = schedule(MATRIX)
    s.split(s.loop("i"), 2)
    s.vectorize(s.loop("j"))
    text = """
def k(x: f32[4, 6], y: out(f32[5, 6])):
    for i in range(5):
        y[i, 0] = f32(1.0)
    for i_1 in range(5):
        for j in range(5):
            y[i_1, j + 1] = y[i_1, j]
"""
    with pytest.raises(ScheduleError) as caught:
        s.trace.replay(parse_kernel(text.strip()))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("the lanes of j are not independent: read after write")
    assert lines[1] == "  while applying vectorize(loop=j)"
    assert lines[2] == '  while replaying step 2: s.vectorize(s.loop("j"))'


def test_replay_without_the_loop():
    s = schedule(MATRIX)
    s.unroll(s.loop("j"))
    with pytest.raises(ScheduleError) as caught:
        s.trace.replay(schedule(ROWS).kernel)
    lines = str(caught.value).splitlines()
    assert lines[0] == "there is no loop called 'j'"
    assert lines[1] == '  while replaying step 1: s.unroll(s.loop("j"))'


# ---------------------------------------------------------------- JSON


def test_json():
    s = schedule(MATRIX)
    outer, _ = s.split(s.loop("i"), 2)
    s.unroll(outer)
    assert (
        s.trace.json()
        == """\
{"format": "tilewright.trace", "version": 1, "steps": [
  {"primitive": "split", "arguments": {"loop": {"loop": "i"}, "factor": 2, "tail": "guard"}, \
"gives": [{"loop": "i_o", "place": [0]}, {"loop": "i_i", "place": [1]}]},
  {"primitive": "unroll", "arguments": {"loop": {"loop": "i_o", "step": 1, "place": [0]}}}
]}
"""
    )
    assert Trace.from_json(s.trace.json(), Schedule) == s.trace
    assert Schedule.read_trace(Trace((), Schedule).json()) == Trace()


SPLIT = {"primitive": "split", "arguments": {"loop": {"loop": "i"}, "factor": 2}}


def said(**changes: object) -> str:
    """A trace with one step, changed."""
    return json.dumps({"format": "tilewright.trace", "version": 1, "steps": [SPLIT | changes]})


def argued(**arguments: object) -> str:
    return said(arguments=SPLIT["arguments"] | arguments)


LOOP = {"loop": "i", "step": 1, "place": [0]}
BAD = [
    ("{", "a trace is not JSON: Expecting property name enclosed in double quotes"),
    ("[" * 100_000, "a trace is not JSON"),
    ("[]", "a trace is [], not an object"),
    ("{}", "a trace has no field 'format'"),
    ('{"format": "x", "format": "x"}', "a trace says 'format' twice in one object"),
    ('{"format": "x", "version": 1, "steps": []}', "this is no trace: its format is 'x'"),
    (
        '{"format": "tilewright.trace", "version": 2, "steps": []}',
        "the trace has version 2; this program reads 1",
    ),
    ('{"format": "tilewright.trace", "version": NaN, "steps": []}', "NaN is no value of a trace"),
    ('{"format": "tilewright.trace", "version": 1, "steps": {}}', "the steps of a trace are a"),
    ('{"format": "tilewright.trace", "version": 1, "steps": [3]}', "a step is 3, not an object"),
    (said(primitive="splat"), "there is no primitive 'splat'"),
    (said(primitive=["split"]), "there is no primitive ['split']"),
    (said(primitive="os:system"), "the primitive os:system is not one of tilewright's"),
    (said(primitive="__init__"), "there is no primitive '__init__'"),
    (said(primitive="show"), "there is no primitive 'show'"),
    (said(extra=1), "a step has a field 'extra'"),
    (said(arguments=[]), "the arguments of split are an object"),
    (said(arguments={"factor": 2}), "split needs its argument 'loop'"),
    (argued(factr=2), "split has no argument 'factr'"),
    (argued(factor="2"), 'factor of split is "2", not a whole number'),
    (argued(factor=True), "factor of split is true, not a whole number"),
    (argued(factor=2.0), "factor of split is 2.0, not a whole number"),
    (argued(tail="none"), 'tail of split is "none"'),
    (argued(tail=[]), "tail of split is []"),
    (argued(loop="i"), 'loop of split is "i", not a loop'),
    (argued(loop={"buffer": "i"}), 'loop of split is {"buffer": "i"}, not a loop'),
    (argued(loop={"loop": 3}), "3 is no name"),
    (argued(loop={"loop": "i", "extra": 3}), "loop of split has a field 'extra'"),
    (argued(loop={"loop": "i", "step": 1}), "loop of split has no field 'place'"),
    (argued(loop=LOOP), "loop of split comes from step 1, which is not one before"),
    (argued(loop=LOOP | {"place": [-1]}), "[-1] is no place in a result"),
    (said(gives=[{"place": []}]), 'what a step gives is {"place": []}, neither a loop nor a'),
    (said(gives=3), "what a step gives is a list"),
    (
        said(primitive="reorder", arguments={"loops": {"loop": "i"}}),
        'loops of reorder is {"loop": "i"}, not a list',
    ),
    (
        said(primitive="pack_layout", arguments={"buffer": {"buffer": "x"}, "layout": [1, 0]}),
        "layout of pack_layout is [1, 0], not an object",
    ),
    (
        said(
            primitive="pack_layout",
            arguments={"buffer": {"buffer": "x"}, "layout": {"order": [0], "blocks": [[1]]}},
        ),
        'layout of pack_layout is {"order": [0], "blocks": [[1]]}, which is no layout',
    ),
    (
        said(primitive="tensorize", arguments={"loop": {"loop": "i"}, "instruction": "gemm"}),
        'instruction of tensorize is "gemm", not an object',
    ),
    (
        said(
            primitive="tensorize",
            arguments={"loop": {"loop": "i"}, "instruction": {"instruction": "gemm"}},
        ),
        "instruction of tensorize is the instruction 'gemm' of a target",
    ),
]


@pytest.mark.parametrize("text, error", BAD, ids=range(len(BAD)))
def test_bad_json(text, error):
    with pytest.raises(ScheduleError) as caught:
        Schedule.read_trace(text)
    assert str(caught.value).splitlines()[0].startswith(error)


def test_hints():
    with pytest.raises(ScheduleError) as caught:
        Schedule.read_trace(said(primitive="splt"))
    assert str(caught.value) == (
        "there is no primitive 'splt'\n"
        "  while reading step 1 of a trace\n"
        "  hint: did you mean 'split'?"
    )


def test_results_that_a_step_does_not_give():
    s = schedule(MATRIX)
    outer, _ = s.split(s.loop("i"), 2)
    s.unroll(outer)
    text = s.trace.json().replace('"step": 1, "place": [0]', '"step": 1, "place": [2]')
    with pytest.raises(ScheduleError) as caught:
        Schedule.read_trace(text)
    assert str(caught.value) == (
        "loop of unroll: step 1 gives no loop at [2]\n"
        "  while reading step 2 of a trace\n"
        "  hint: it gives i_o, i_i"
    )


def test_values_that_json_cannot_hold():
    s = schedule(MATRIX)
    s.apply(noted, object())
    with pytest.raises(ScheduleError, match=r"note of step 1, .* is a object, which JSON cannot"):
        s.trace.json()


# ---------------------------------------------------------------- from outside


@primitive
def noted(state: State, note: object) -> None:
    """Does nothing."""


@primitive
def tile(state: Schedule, first: Loop, second: Loop, size: int = 2) -> tuple[Loop, Loop]:
    """Cuts two loops, and puts the tiles outside."""
    if size < 2:
        refuse(f"tiles of {size}", state, "2 or more")
    first_o, first_i = state.split(first, size)
    second_o, second_i = state.split(second, size)
    state.reorder(first_o, second_o, first_i, second_i)
    return first_o, second_o


NAME = f"{tile.__module__}:tile"


def test_external():
    s = schedule(MATRIX)
    i, _ = s.apply(tile, s.loop("i"), s.loop("j"), size=2)
    s.parallel(i)
    assert [step.primitive for step in s.trace] == [NAME, "parallel"]  # one step, not three
    check_same(s.original, s.kernel)
    text = s.trace.json()
    again = Schedule.read_trace(text, {NAME: tile})
    assert again == s.trace
    assert again.replay(s.original).kernel == s.kernel
    assert s.trace.python().splitlines()[-2] == 'i_o, j_o = s.apply(tile, s.loop("i"), s.loop("j"))'
    with pytest.raises(ScheduleError) as caught:
        Schedule.read_trace(text)
    assert caught.value.what == f"the primitive {NAME} is not one of tilewright's"
    assert caught.value.hint == (
        f"pass it: primitives={{{NAME!r}: …}}; nothing is imported by its name"
    )


def test_external_refused():
    s = schedule(MATRIX)
    kernel = s.kernel
    with pytest.raises(ScheduleError) as caught:
        s.apply(tile, s.loop("i"), s.loop("j"), size=1)
    assert "  while applying tile(first=i, second=j, size=1)" in str(caught.value)
    with pytest.raises(ScheduleError) as caught:  # its first steps are taken back
        s.apply(tile, s.loop("i"), s.loop("i"))
    assert "while applying tile(first=i, second=i, size=2)" in str(caught.value)
    assert s.kernel is kernel
    assert len(s.trace) == 0


def test_what_fails_otherwise_is_taken_back_too():
    @primitive
    def broken(state: Schedule, loop: Loop) -> None:
        state.split(loop, 2)
        raise KeyError("oops")

    s = schedule(MATRIX)
    kernel = s.kernel
    with pytest.raises(KeyError):
        s.apply(broken, s.loop("i"))
    assert s.kernel is kernel
    assert len(s.trace) == 0


def test_no_primitive():
    s = schedule(MATRIX)
    with pytest.raises(ScheduleError) as caught:
        s.apply(len)
    assert str(caught.value).splitlines()[0] == "len is no primitive"


def test_arguments_that_do_not_fit():
    s = schedule(MATRIX)
    with pytest.raises(ScheduleError) as caught:
        s.split(s.loop("i"))
    assert caught.value.what == "split: missing a required argument: 'factor'"
    assert re.match(r"split\(loop: .*, factor: .*, tail: .*\)", caught.value.hint)


# ---------------------------------------------------------------- instructions


def test_instructions_by_name():
    target = tiny.tiny()
    instruction = target.instructions[0]

    @primitive
    def use(state: State, instruction: Instruction) -> None:
        """Does nothing."""

    s = schedule(MATRIX)
    s.apply(use, instruction)
    assert f'instructions["{instruction.name}"]' in s.trace.python()
    functions = {s.trace[0].primitive: use}
    again = Schedule.read_trace(s.trace.json(), functions, target)
    assert again == s.trace
    with pytest.raises(ScheduleError) as caught:
        Schedule.read_trace(s.trace.json().replace(instruction.name, "none"), functions, target)
    assert caught.value.what == "the target has no instruction 'none'"


# ---------------------------------------------------------------- decisions


def test_decisions():
    s = convolution(schedule(CONV))
    assert [str(d) for d in s.trace.decisions()] == [
        "1.factor = 8",
        "2.factor = 4",
        "3.factor = 14",
        "5.clip = False",
        "6.clip = False",
        "8.factor = 8",
        "10.slack = 0",
    ]
    other = s.trace.with_decisions({"2.factor": 7})
    assert other.line(1) == 'b_o, b_i = s.split(s.loop("b"), 7)'
    assert other[0] == s.trace[0]
    assert "range(7)" in str(other.replay(s.original).kernel)


def test_decisions_in_sequences():
    s = schedule(LOCAL)
    s.pipeline(s.loop("i"), (0, 1))
    assert [str(d) for d in s.trace.decisions()] == ["1.stages.0 = 0", "1.stages.1 = 1"]
    assert s.trace.with_decisions({"1.stages.1": 0}).line(0) == (
        'i = s.pipeline(s.loop("i"), (0, 0))'
    )


def test_decisions_refused():
    s = schedule(MATRIX)
    s.split(s.loop("i"), 2)
    with pytest.raises(ScheduleError) as caught:
        s.trace.with_decisions({"1.faktor": 3})
    assert str(caught.value) == (
        "the trace has no decision '1.faktor'\n  hint: did you mean '1.factor'?"
    )
    with pytest.raises(ScheduleError) as caught:
        s.trace.with_decisions({"1.factor": True})
    assert str(caught.value) == "1.factor = 2 is decided by True, which is no int"


def test_handles_are_not_values():
    s = schedule(MATRIX)
    s.split(s.loop("i"), 2)
    values = [value for _, value in s.trace[0].arguments]
    assert not any(isinstance(v, (Loop, Buffer)) for v in values)
