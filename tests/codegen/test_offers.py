"""What devices offer for a kernel: time by operations or by bytes, layouts, the best of several."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest

from tilewright.backends.chips import BUNDLES, STREAM, chip_options
from tilewright.backends.devices import Devices, find_devices
from tilewright.backends.processors import NATIVE, native_options
from tilewright.backends.table import DeviceSpec, Option, best, options, spec_of
from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.tensor import TensorProgram
from tilewright.ops.table import OPS
from tilewright.target.target import Memory, Target
from tilewright.targets import cpu
from tilewright.targets.dsp import dsp
from tilewright.targets.tiny import tiny

N = Symbol("n")


def program(name: str, *shapes: tuple, **attrs: object) -> TensorProgram:
    op = OPS[name]
    inputs = [Buffer(f"x{i}", f32, shape) for i, shape in enumerate(shapes)]
    return op_program(op, op.make_attrs(**attrs), inputs)


def processor(bandwidth: float | None) -> Target:
    """Two cores; its outermost memory moves so many bytes a cycle."""
    target = cpu.cpu("avx2", cores=2)
    return replace(target, memories=(Memory("dram", None, bandwidth=bandwidth),))


PRODUCTS = 2 * 64 * 32 * 16  # operations of a product of 64 x 16 and 16 x 32
MOVED = 4 * (64 * 16 + 16 * 32 + 64 * 32)


@pytest.mark.parametrize("bandwidth", [None, 0.001, 1e9])
def test_the_time_of_a_product(bandwidth: float | None):
    target = processor(bandwidth)
    (found,) = native_options(program("matmul", (64, 16), (16, 32)), target)
    transfer = MOVED / (bandwidth * target.clock) if bandwidth else 0.0
    assert found.seconds == max(PRODUCTS / (2 * target.peak(f32)), transfer)
    assert (transfer > PRODUCTS / (2 * target.peak(f32))) == (bandwidth == 0.001)
    assert found.bytes == MOVED
    assert [t.shape for t in (*found.operands, *found.results)] == [(64, 16), (16, 32), (64, 32)]
    assert (found.obstacle, found.cycles) == ("", None)


def test_layouts_that_a_product_prefers():
    """Weights in tiles of whole vectors; operands of others as they are."""
    (found,) = native_options(program("matmul", (64, 16), (16, 32)), processor(None))
    layouts = [None if t.layout is None else str(t.layout) for t in found.operands]
    assert layouts == LAYOUTS
    (plain,) = native_options(program("relu", (8, 8)), processor(None))
    assert [t.layout for t in (*plain.operands, *plain.results)] == [None, None]


LAYOUTS = [None, "layout[1, 0, 1:16]"]


def test_sizes_without_a_number():
    """They are taken to be 64."""
    target = processor(2.0)
    (found,) = native_options(program("relu", (N, 3)), target)
    (known,) = native_options(program("relu", (64, 3)), target)
    assert (found.seconds, found.bytes) == (known.seconds, known.bytes)
    assert found.bytes == 2 * 4 * 64 * 3


def test_a_processor_without_memories():
    target = replace(cpu.cpu("avx2"), memories=())
    (found,) = native_options(program("relu", (8, 8)), target)
    assert found.seconds == 64 / (2 * target.peak(f32))


# ---------------------------------------------------------------- kinds of devices


def test_kinds():
    kinds = [spec_of(t).backend for t in (cpu.cpu("sse2"), dsp(), tiny())]
    assert kinds == [NATIVE, BUNDLES, STREAM]
    unit = DeviceSpec(tiny(), NATIVE)
    assert spec_of(unit) is unit
    with pytest.raises(CompileError) as error:
        spec_of(replace(cpu.cpu("sse2"), native=None))
    assert error.value.what == "cpu-sse2 has neither queues nor bundles, and is no processor"


def test_what_is_asked_of_a_kind():
    made = program("relu", (4, 4))
    (here,) = options(made, cpu.cpu("sse2"))
    assert here.bytes == 128
    (there,) = options(made, tiny())
    assert there.obstacle


def test_symbols_on_a_chip():
    for shape, text in (((N, 4), "n has"), ((N, Symbol("m")), "m, n have")):
        (found,) = chip_options(program("relu", shape), tiny())
        names, verb = text.rsplit(" ", 1)
        assert set(names.split(", ")) == set(found.obstacle.split(f" {verb} ")[0].split(", "))
        assert found.obstacle.endswith(f"{verb} no number (dims={{…}} gives one)")


def test_the_best():
    slow, fast, refused = Option(seconds=3.0), Option(seconds=2.0), Option(obstacle="no")
    assert best([refused, slow, fast]) is fast
    assert best([fast, slow]) is fast
    assert best([refused, Option(obstacle="either")]) is refused


# ---------------------------------------------------------------- devices by name


def test_devices():
    found = find_devices({"a": tiny(), "b": "host", "c": cpu.cpu("sse2"), "d": dsp()})
    assert list(found.targets) == ["a", "b", "c", "d"]
    assert (list(found.called), found.others, found.host) == (["b", "c"], ["a", "d"], "b")
    assert found.host_target == found.targets["b"]
    assert list(found.makers) == [STREAM.kind]
    more = Devices({"a": spec_of(tiny())}).with_host()
    assert list(more.specs) == ["a", "host"]
    assert list(find_devices(tiny()).specs) == ["tiny"]


def a_target() -> None:
    """Looks like one."""


WRONG = [
    (3, "target is 3, not a target", 'this machine is target="host"'),
    (a_target, "target is the function a_target, not a target", "call it: a_target()"),
    (types, "target is the module types, not a target", 'this machine is target="host"'),
    ({}, "target is an empty mapping", 'target="host"'),
    ({"a": 3}, "target['a'] is 3, not a target", 'this machine is target="host"'),
    ({3: "host"}, "target has the device 3, and devices' names are texts", "for example"),
]


@pytest.mark.parametrize("given, what, hint", WRONG, ids=[x[1] for x in WRONG])
def test_no_devices(given: object, what: str, hint: str):
    with pytest.raises(CompileError) as error:
        find_devices(given)
    assert error.value.what == what
    assert error.value.hint.startswith(hint)
