"""Limits of real devices: instructions of a submit, bytes of the memory outside, short queues. The
digits network in int8 on VTA, beside the host and the published machine."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from byte_kernels import layer
from random_chips import random_chip, random_stream
from vta_beside import Beside
from vta_published import Dump

import tilewright
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.parts import part_ends, part_lengths
from tilewright.backends.stream.waits import synchronise
from tilewright.base.errors import CompileError, TargetError
from tilewright.chip import build_chip
from tilewright.options import Options
from tilewright.program.host_program import Submit
from tilewright.target.describe import TargetBuilder, cost
from tilewright.target.vary import with_depths, with_memory
from tilewright.targets.vta import vta

HALF_UP = Options(dims={"batch": 1}, rounding="half_up")
SHORT = replace(with_depths(vta(), 8, 8), most_submitted=64)


@pytest.fixture(scope="session")
def wanted(digits, digit_images):
    """The host's results."""
    module = tilewright.compile(digits, options=HALF_UP)
    return np.concatenate([module(x[None]) for x in digit_images[:3]])


def on(chip, digits, **more):
    return tilewright.compile(digits, target={"host": "host", "npu": chip}, options=HALF_UP, **more)


def submits(module):
    return [s for s in module.program.host.steps if isinstance(s, Submit)]


def reasons(module):
    return [why for s in module.program.steps for why in s.obstacles]


# ---------------------------------------------------------------- instructions of a submit


def arguments():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (2, 96, 96)).astype(np.int8)
    return a, b, rng.integers(-999, 999, 96).astype(np.int32), np.zeros((96, 96), np.int8)


LAYER = layer.bind(M=96, K=96, N=96).kernel


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "most", [7, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 32, 512))]
)
def test_a_long_stream_is_in_parts(most):
    """Each ends with FINISH, all before it being done; tokens do not cross from one to another."""
    whole = build_chip(LAYER, vta())
    built = build_chip(LAYER, replace(vta(), most_submitted=most))
    lengths = part_lengths(built.stream)
    assert lengths.max() <= most
    assert lengths.sum() == len(built.stream)
    assert len(lengths) == max(1, -(-(len(built.stream) - len(lengths)) // (most - 1)))
    assert list(np.cumsum(lengths) - 1) == list(part_ends(built.stream))
    a, b, bias, y = arguments()
    expected = whole(a, b, bias, y).copy()
    assert np.array_equal(built(a, b, bias, np.zeros_like(y)), expected)
    assert check_waits(built.stream, None, built.waits) is None
    assert built.replay(a, b, bias, expected, orders=4) is None
    begins = np.cumsum(lengths)[:-1]
    for begin in begins:
        assert built.timeline.begin[begin:].min() >= built.timeline.end[:begin].max()
        balance = built.waits.pushes[:begin] != 0
        assert (
            np.bitwise_count(built.waits.pushes[:begin]).sum()
            == np.bitwise_count(built.waits.pops[:begin]).sum()
        ), balance
    assert (built.cycles > whole.cycles) == (len(lengths) > 1)


def test_instructions_that_hand_on_waits_count():
    """A stream that just fits does not, once queues wait for each other through a third."""
    tried = 0
    for seed in range(1, 200):
        random = np.random.default_rng(seed)
        chip = random_chip(random)
        names = [q.name for q in chip.target.queues]
        if chip.target.end is None or len(names) < 3:
            continue
        chain = tuple(p for a, b in pairwise(names) for p in ((a, b), (b, a)))
        stream = random_stream(chip, random, 12)
        linked = {"tokens": chain, "events": 0, "barriers": False, "interlock": False}
        try:
            target = replace(chip.target, most_submitted=len(stream) + 1, **linked)
            done = synchronise(replace(stream, target=target))
        except (CompileError, TargetError):  # its end does not reach all queues
            continue
        tried += 1
        assert part_lengths(done.stream).max() <= target.most_submitted
    assert tried > 5


@pytest.mark.long
def test_parts_are_handed_over_one_by_one(digits, digit_images, wanted, tmp_path):
    """The published machine, with queues of eight, is handed no more than there is room for."""
    on(SHORT, digits).save(tmp_path / "digits.tw")
    on(SHORT, digits, until="stream").save(tmp_path / "dump")
    dump = Dump(tmp_path / "dump")
    parts = [s["instructions"]["parts"] for s in dump.submits]
    assert max(map(len, parts)) > 2
    assert max(n for p in parts for n in p) <= 64
    made = []

    def beside(part):
        made.append(Beside(part, dump, commands=8, tokens=8))
        return made[-1]

    module = tilewright.load(tmp_path / "digits.tw", devices={"simulator": beside})
    for image, scores in zip(digit_images[:2], wanted, strict=False):
        assert np.array_equal(module(image[None])[0], scores)
    assert [r.counts["finish"] for r in made[0].reports] == list(map(len, parts))


def test_parts_need_an_end():
    t = TargetBuilder("endless", clock=1e9)
    t.memory("m", 64)
    (queue,) = t.queues("q", depth=4)

    @t.instruction(queue)
    def nothing():
        cost(busy=1)

    t.submits(16)
    with pytest.raises(TargetError) as caught:
        t.build()
    assert str(caught.value) == (
        "endless: what is handed over in parts has no instruction that ends one\n"
        "  hint: say which it is: t.end(…)"
    )


@pytest.mark.parametrize("most", [1, 0, -5, 2.5, True])
def test_a_submit_takes_a_whole_number_of_instructions(most):
    with pytest.raises(TargetError) as caught:
        replace(vta(), most_submitted=most)
    assert str(caught.value) == (
        f"vta: {most!r} instructions are handed over at a time\n"
        "  hint: a whole number from 2 on: t.submits(512)"
    )


# ---------------------------------------------------------------- bytes of the memory outside


def test_subgraphs_are_halved_until_they_fit(digits, digit_images, wanted):
    module = on(with_memory(vta(), "dram", capacity=9000), digits)
    assert len(submits(module)) > 1
    assert not any("bytes of dram" in why for why in reasons(module))
    found = np.concatenate([module(x[None]) for x in digit_images[:3]])
    assert np.array_equal(found, wanted)


@pytest.mark.long
def test_what_does_not_fit_at_all_is_the_hosts(digits, digit_images, wanted):
    module = on(with_memory(vta(), "dram", capacity=2000), digits)
    assert len(submits(module)) == 1  # the largest of windows
    assert "npu: conv_add_shr_cast needs 2,656 bytes of dram at a time, and vta has 2,000" in (
        reasons(module)
    )
    found = np.concatenate([module(x[None]) for x in digit_images[:3]])
    assert np.array_equal(found, wanted)


def test_a_kernel_that_does_not_fit_is_refused_with_numbers():
    """Before anything is built: its arrays alone are more."""
    with pytest.raises(TargetError) as caught:
        build_chip(LAYER, with_memory(vta(), "dram", capacity=20_000))
    assert str(caught.value) == (
        "layer needs 28,032 bytes of dram at a time, and vta has 20,000\n"
        "  hint: cut the operator in two, leave it to the host, or describe a chip with more"
    )


@pytest.mark.parametrize(
    "memory, capacity, why",
    [
        ("dram", 0, "which is no whole number from 1 on"),
        ("dram", 1.5, "which is no whole number from 1 on"),
        ("inp", 1000, "and a size"),
    ],
)
def test_a_capacity_is_of_a_memory_without_a_size(memory, capacity, why):
    with pytest.raises(TargetError) as caught:
        with_memory(vta(), memory, capacity=capacity)
    assert str(caught.value) == (
        f"vta: memory {memory} has a capacity of {capacity!r} bytes, {why}\n"
        "  hint: a capacity is what there is of a memory that nothing is tiled for"
    )
