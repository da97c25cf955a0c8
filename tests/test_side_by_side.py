"""Kernels that forked processes compile are those compiled alone, whatever befalls them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from branch_networks import Network
from onnx import TensorProto as T
from onnx import helper as h
from stream_cases import CASES

import tilewright as tw
from tilewright import Options, chip, compiler
from tilewright.backends.stream.boxes import Boxes, boxes, dependences
from tilewright.base.errors import CompileError
from tilewright.base.node import cached_property
from tilewright.base.passes import Recorder
from tilewright.runtime import processes
from tilewright.runtime.module import Module
from tilewright.targets import cpu
from tilewright.targets.chips import CHIPS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")
COUNT = 6


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "available_cpus", lambda: 2)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that this process compiles."""
    names: list[str] = []
    original = compiler.backends.to_llvm

    def noted(kernel, target):
        names.append(kernel.name)
        return original(kernel, target)

    monkeypatch.setattr(compiler.backends, "to_llvm", noted)
    return names


def model() -> onnx.ModelProto:
    """Products of six shapes, one after another: six kernels."""
    nodes, weights, width = [], [], 8
    rng = np.random.default_rng(0)
    for k in range(COUNT):
        array = rng.standard_normal((width, width + 8), np.float32)
        weights.append(onnx.numpy_helper.from_array(array, f"w{k}"))
        nodes.append(h.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]))
        width += 8
    graph = h.make_graph(
        nodes,
        "products",
        [h.make_tensor_value_info("x0", T.FLOAT, (4, 8))],
        [h.make_tensor_value_info(f"x{COUNT}", T.FLOAT, (4, width))],
        weights,
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)


def compiled(recorder: Recorder | None = None) -> Module:
    options = Options(cache=False)
    return tw.compile(model(), target=cpu.cpu("avx2"), options=options, recorder=recorder)


def code(module: Module) -> tuple[object, ...]:
    return module.program.host, tuple(part.image for part in module.program.parts)


def test_they_are_the_kernels_that_are_compiled_alone(
    monkeypatch: pytest.MonkeyPatch, here: list[str]
) -> None:
    found = compiled()
    assert here == []
    monkeypatch.setattr(processes, "available_cpus", lambda: 1)
    alone = compiled()
    assert len(here) == COUNT
    assert code(found) == code(alone)


def test_who_keeps_steps_sees_them_made(here: list[str]) -> None:
    recorder = Recorder()
    compiled(recorder)
    assert len(here) == COUNT == len(recorder.of("llvm", None))


def test_progress_is_told_from_none_to_all() -> None:
    told: list[tuple[str, int, int]] = []
    compiled(Recorder(keeps=False, watch=lambda *what: told.append(what)))
    assert told == [("kernels compiled", k, COUNT) for k in range(COUNT + 1)]


def in_child(monkeypatch: pytest.MonkeyPatch, happens: Callable[[str], object]) -> None:
    """Has it happen in forked processes before they compile a kernel."""
    parent, original = os.getpid(), compiler.fused_schedule

    def schedule(loops, target, layouts):
        if os.getpid() != parent:
            happens(loops.name)
        return original(loops, target, layouts)

    monkeypatch.setattr(compiler, "fused_schedule", schedule)


def test_a_killed_process_loses_nothing(monkeypatch: pytest.MonkeyPatch, here: list[str]) -> None:
    alone = code(compiled())
    in_child(monkeypatch, lambda _: os.kill(os.getpid(), signal.SIGKILL))
    assert code(compiled()) == alone
    assert len(here) == COUNT


def test_an_error_is_that_of_compiling_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(loops, target, layouts):
        raise CompileError(f"{loops.name} is not wanted", hint="ask for another")

    monkeypatch.setattr(compiler, "fused_schedule", refuse)
    with pytest.raises(CompileError, match="is not wanted") as error:
        compiled()
    assert error.value.hint == "ask for another"


def test_a_kernel_that_fails_there_alone_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch, here: list[str]
) -> None:
    def run_short(name: str) -> None:
        if name.startswith("k0_"):
            raise MemoryError

    in_child(monkeypatch, run_short)
    compiled()
    assert [name[:3] for name in here] == ["k0_"]


def test_where_no_process_can_be_started_all_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch, here: list[str]
) -> None:
    def fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    compiled()
    assert len(here) == COUNT


@pytest.mark.parametrize("room, expected", [(None, 2), (4 << 30, 2), (200 << 20, 1), (0, 0)])
def test_there_are_as_many_as_memory_has_room_for(
    monkeypatch: pytest.MonkeyPatch, room: int | None, expected: int
) -> None:
    monkeypatch.setattr(processes, "available_memory", lambda: room)
    assert processes.processes_for(100) == expected


def test_a_process_of_a_pool_compiles_alone(here: list[str]) -> None:
    """It may have no children."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)

    def compile_there() -> None:
        send.send_bytes(repr(code(compiled())).encode())

    expected = repr(code(compiled())).encode()
    child = fork.Process(target=compile_there, daemon=True)
    child.start()
    assert receive.poll(60)
    assert receive.recv_bytes() == expected
    child.join()


def test_there_is_work_for_each_of_them() -> None:
    assert [processes.processes_for(n) for n in range(6)] == [0, 0, 1, 1, 2, 2]


class Slow:
    """Whose value takes as long as somebody else says."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()

    @cached_property
    def value(self) -> int:
        """What is computed once."""
        self.begun.set()
        self.end.wait()
        return 1


def test_a_property_that_another_thread_computes_while_one_forks() -> None:
    """functools.cached_property of Python 3.11 holds a lock meanwhile, and in the fork for ever."""
    slow, quick = Slow(), Slow()
    quick.end.set()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    slow.begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        forked = os.fork()
    if not forked:
        signal.alarm(10)
        os._exit(quick.value + 2)
    _, status = os.waitpid(forked, 0)
    slow.end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 3
    assert slow.__dict__["value"] == 1
    assert Slow.value.__doc__ == "What is computed once."


def test_other_threads_compile_as_well() -> None:
    expected, found = code(compiled()), []
    threads = [threading.Thread(target=lambda: found.append(code(compiled()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_it_warns_of_nothing() -> None:
    """Python 3.12 warns of a fork beside threads."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled()
    stop.set()
    thread.join()


WAITING = """
import os
import sys
import time

sys.path[:0] = {paths!r}  # of the tests
import test_side_by_side as t
from tilewright import compiler
from tilewright.runtime import processes
processes.available_cpus = lambda: 2
def wait(*_):
    os.write(1, b"forked\\n")
    time.sleep(100)
compiler.fused_schedule = wait
t.compiled()
"""


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    """A process whose forked ones wait in the middle of a kernel."""
    here = Path(__file__).parent
    text = WAITING.format(paths=[str(here), str(here / "support")])
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", text], stdout=pipe, stderr=pipe, text=True) as p:
        assert p.stdout is not None
        try:
            assert [p.stdout.readline() for _ in range(2)] == ["forked\n"] * 2
            yield p
        finally:
            p.kill()


def children(process: int) -> list[int]:
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def is_there(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(processes: list[int]) -> bool:
    for _ in range(500):
        if not any(map(is_there, processes)):
            return True
        time.sleep(0.01)
    return False


def test_they_end_with_the_process_that_forked_them(waiting: subprocess.Popen[str]) -> None:
    forked = children(waiting.pid)
    assert len(forked) == 2
    waiting.kill()
    assert gone(forked)


def test_ctrl_c_ends_them_at_once(waiting: subprocess.Popen[str]) -> None:
    forked = children(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    _, told = waiting.communicate(timeout=20)
    assert told.rstrip().endswith("KeyboardInterrupt")
    assert told.count("Traceback") == 1
    assert not any(map(is_there, forked))


def on_chip(name: str = "vta", recorder: Recorder | None = None) -> Module:
    """Two convolutions of bytes on a chip with queues; with sums of two before and behind them on
    one that takes what these read as one array."""
    network, x = Network(16, side=4), "x"
    if name == "vta":
        x = network.conv(network.conv(x, 16, 16), 16, 16, 3)
    else:
        for _ in range(2):
            first = network.conv(x, 16, 16)
            x = network.op("Add", first, network.conv(x, 16, 16, 3))
    quantised, _ = network.quantised(x)
    options = Options(cache=False, rounding="half_up")
    target = {"npu": CHIPS[name](), "host": cpu.cpu("avx2")}
    return tw.compile(quantised, target=target, options=options, recorder=recorder)


def streams(module: Module) -> tuple[object, ...]:
    return module.program.host, tuple(part.files for part in module.program.parts)


@pytest.mark.parametrize("name", ["vta", pytest.param("conv_engine", marks=pytest.mark.long)])
def test_streams_of_chips_are_those_that_one_process_builds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of their forms are modelled and built ahead; some are, as an array was made otherwise,
    where it is known how."""
    parent, here = os.getpid(), list[str]()
    original = chip.build_choice

    def noted(*given, **named):
        if os.getpid() == parent:
            here.append(given[0].name)
        return original(*given, **named)

    monkeypatch.setattr(chip, "build_choice", noted)
    found = on_chip(name)
    left = len(here)
    monkeypatch.setattr(processes, "available_cpus", lambda: 1)
    alone = on_chip(name)
    assert left < (len(here) - left) / 2
    assert streams(found) == streams(alone)


def test_progress_of_a_chip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What forked processes find as well, where there are some."""
    told: list[tuple[str, int, int]] = []
    recorder = Recorder(keeps=False, watch=lambda *what: told.append(what))
    on_chip(recorder=recorder)
    shown = [("kernels shown to npu", k, 3) for k in range(4)]
    planned = [("kernels planned for npu", k, 2) for k in range(3)]
    assert told[:7] == shown + planned
    alone = told[7:]
    built = [("kernels built for npu", k, 2) for k in range(3)]
    assert alone[:4] == [*built, ("streams proven for npu", 0, 1)]
    assert {what for what, _, _ in alone[4:]} == {"kernels compiled"}
    told.clear()
    monkeypatch.setattr(processes, "available_cpus", lambda: 1)
    on_chip(recorder=recorder)
    assert told == [shown[0], planned[0], *alone]


def test_who_watches_may_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that somebody keeps: others can fork then."""

    def stop(what: str, done: int, total: int) -> None:
        if what == "kernels planned for npu" and done:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        on_chip(recorder=Recorder(keeps=False, watch=stop))
    assert kept.value is not None
    assert dict(processes.in_processes(str.upper, ["a", "b"], 1)) == {"a": "A", "b": "B"}


@pytest.mark.parametrize("beginning", ["shown", "planned", "built"])
def test_what_a_watch_raises_is_no_refusal(beginning: str) -> None:
    """A chip's refusal would leave the kernel to the host."""

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith(f"kernels {beginning}") and done:
            raise CompileError("enough")

    with pytest.raises(RuntimeError) as raised:
        on_chip(recorder=Recorder(keeps=False, watch=stop))
    assert str(raised.value) == "the watch of a compilation raised CompileError: enough"
    assert isinstance(raised.value.__cause__, CompileError)


def test_what_they_find_is_sent_as_it_is() -> None:
    """Read-only mappings, and boxes, which point to memory of their process."""
    stream = CASES["tiny"].build().stream
    found = boxes(stream)

    def find(name: str) -> object:
        return MappingProxyType({"a": 1}) if name == "mapping" else found

    results = dict(processes.in_processes(find, ["mapping", "boxes"], 1))
    assert results.keys() == {"mapping", "boxes"}
    assert results["mapping"] == {"a": 1}
    again = results["boxes"]
    assert isinstance(again, Boxes)
    for mine, sent in ((dependences(stream, b), b.granules) for b in (found, again)):
        assert np.array_equal(mine, dependences(stream, found))
        assert np.array_equal(sent, found.granules)


def test_where_results_cannot_be_sent_no_more_are_waited_for(tmp_path: Path) -> None:
    def find(name: str) -> object:
        (tmp_path / name).touch()
        time.sleep(0.2)
        return threading.Lock()

    assert [*processes.in_processes(find, [str(k) for k in range(50)], 1)] == []
    assert len([*tmp_path.iterdir()]) < 25
