"""Programs of sections and transfers: what waits for what, how long it takes, what it costs."""

import dataclasses

import numpy as np
from bundle_programs import DRAM, LANES, LOCAL, SIZE, V, X, Y, small

from tilewright.backends.bundles.assembly import assembly
from tilewright.backends.bundles.program import (
    BundleProgram,
    TransferWait,
    check_core_waits,
    make_program,
    run_timed,
)
from tilewright.backends.bundles.resource_bound import program_bound
from tilewright.backends.bundles.run_bundles import run_cycles
from tilewright.backends.stream.boxes import dependences
from tilewright.base.dtype import i8
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import Alloc, Call, For, Kernel
from tilewright.sim.data import run_stream
from tilewright.target.target import Target
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
CHIP = small(ls=2)
TILES = 8
TILE = SIZE // TILES


def doubled(chip: Target) -> Kernel:
    """Y = X + X: tiles come and go while another one is worked on."""
    by_name = {i.name: i for i in chip.instructions}
    tile, k = Var("tile"), Var("k")
    inside = Buffer("In", i8, (2, TILE), LOCAL)
    outside = Buffer("Out", i8, (2, TILE), LOCAL)
    register = Buffer("R", i8, (LANES,), V)
    total = Buffer("S", i8, (LANES,), V)
    e, size = axis(0), (const(TILE),)

    def get(number, place):
        return Call(by_name["get"], (Region(X, (number * TILE + e,)), Region(inside, (place, e))),
                    size)  # fmt: skip

    def put(number, place):
        return Call(by_name["put"], (Region(outside, (place, e)), Region(Y, (number * TILE + e,))),
                    size)  # fmt: skip

    def work(place):
        at = k * LANES + e
        whole = Region(register, (e,))
        return For(
            k,
            TILE // LANES,
            (
                Alloc(register),
                Alloc(total),
                Call(by_name["ld"], (Region(inside, (place, at)), whole)),
                Call(by_name["add"], (whole, whole, Region(total, (e,)))),
                Call(by_name["st"], (Region(total, (e,)), Region(outside, (place, at)))),
            ),
        )

    last = const(TILES - 1)
    turns = (get(tile + 1, (tile + 1) % 2), work(tile % 2), put(tile, tile % 2))
    body = (
        Alloc(inside), Alloc(outside), get(const(0), const(0)), For(tile, TILES - 1, turns),
        work(last % 2), put(last, last % 2),
    )  # fmt: skip
    return Kernel("doubled", (X,), (Y,), body)


def program() -> BundleProgram:
    return make_program(doubled(CHIP), CHIP)


def test_it_computes():
    p = program()
    x = np.random.default_rng(0).integers(-128, 128, SIZE).astype(np.int8)
    (y,) = run_stream(p.stream, HOST, {X: x}, [Y])
    np.testing.assert_array_equal(y, x + x)
    (y,), _ = run_cycles(p, CHIP, HOST, {X: x}, [Y])
    np.testing.assert_array_equal(y, x + x)


def test_what_waits_for_what():
    """Work waits for its own tile, while the next is brought; all are in one queue, so that the
    results that are sent off count, too."""
    p = program()
    waits = dict(zip([s.call for s in p.stream.sites], p.waits, strict=True))
    found = {c.instruction.name: w for c, w in waits.items() if w}
    assert found == {"section0": (TransferWait("dma", 1),), "section1": (TransferWait("dma", 1),)}


def test_every_wait_is_needed():
    p = program()
    need = dependences(p.stream, p.boxes)
    assert check_core_waits(p.stream, need, p.waits, p.boxes) is None
    for k, mine in enumerate(p.waits):
        for wait in mine:
            rest = tuple(w for w in mine if w is not wait)
            for other in (rest, (*rest, TransferWait(wait.queue, wait.left + 1))):
                changed = (*p.waits[:k], other, *p.waits[k + 1 :])
                assert check_core_waits(p.stream, need, changed, p.boxes) is not None


def test_a_race_is_reported():
    p = program()
    need = dependences(p.stream, p.boxes)
    nothing = tuple(() for _ in p.waits)
    fault = check_core_waits(p.stream, need, nothing, p.boxes)
    assert str(fault) == (
        "instruction 2, section0(tile=0) of bundles, may begin before instruction 0, get(n=64) of"
        " dma, is done, and both touch byte 0 of local\n"
        "  instruction 2 reads it: operand In\n"
        f"  instruction 0 writes it: operand dst, {file_of('get')}"
    )


def file_of(name: str) -> str:
    instruction = next(i for i in CHIP.instructions if i.name == name)
    return f"{instruction.file}:{instruction.lines[2]}"


def test_time():
    """Waits take a cycle at least, starts take one; work takes as many as it has bundles."""
    p = program()
    t = p.timeline
    assert t.cycles == run_timed(p.stream, p.waits).cycles
    core = len(p.stream.target.queues) - 1
    assert p.stream.target.queues[core].name == "bundles"
    first = p.stream.sites[0].instruction
    assert (first.name, t.begin[0], t.end[0]) == ("get", 1, 1 + 8 + TILE // 8 + 20)
    assert t.begin[2] == t.end[0]  # the first work waits for the first tile
    assert t.busy["dma"] == 2 * TILES * (8 + TILE // 8)
    assert t.energy.sum() == 2 * SIZE * 10 + SIZE // LANES * (3 + 2 + 3)
    assert t.moved == {(DRAM, LOCAL): SIZE, (LOCAL, DRAM): SIZE}


def test_the_bound_is_counted_by_hand():
    bound = program_bound(program())
    assert bound.slots == {"ls": 2 * SIZE // LANES // 2, "alu": SIZE // LANES}
    assert bound.moves == 2 * SIZE // 8
    assert (bound.cycles, bound.bottleneck) == (2 * SIZE // 8, "moves")


def test_longer_waits_change_nothing_but_time():
    p = program()
    strict = tuple(tuple(TransferWait(w.queue, 0) for w in mine) for mine in p.waits)
    assert run_timed(p.stream, strict).cycles > p.timeline.cycles
    assert dataclasses.replace(p, waits=strict).tokens.count >= p.tokens.count


def test_as_text():
    shown = assembly(program()).split("\n")
    assert shown[0] == f"; doubled on small: {program().timeline.cycles} cycles"
    begin = next(i for i, line in enumerate(shown) if line.startswith("for "))
    assert shown[begin : begin + 4] == [
        "for tile in 7:",
        "    { start dma: get(X[(tile + 1) * 64 + _0], In[(tile + 1) % 2, _0], n=64) }",
        "    { wait dma, 1 }",
        "    ; section0: 9 cycles",
    ]
    assert shown[-1] == "{ start dma: put(Out[1, _0], Y[448 + _0], n=64) }"
