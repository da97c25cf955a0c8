"""The benchmark of the convolution engine, on small pictures: orders, bytes, results."""

import engine
import numpy as np
import pytest
from engine import (
    NARROW,
    Row,
    chained,
    chains,
    convolved,
    four_tiles,
    in_tiles,
    layer,
    padded,
    phases,
    random_arrays,
    run,
    table,
    two_layers,
    windows,
)

from tilewright.backends.stream.boxes import boxes
from tilewright.base.errors import CompileError
from tilewright.chip import build_chip
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Alloc, walk_statements
from tilewright.targets.conv_engine import conv_engine

SIZES = {"C": 4, "F": 6, "H": 12, "W": 12}


def of(rows: list[Row], name: str) -> tuple[Row, Row]:
    """Rings off, and on."""
    off, on = (r for r in rows if r.name == name)
    assert (off.rings, on.rings) == (False, True)
    return off, on


@pytest.fixture(scope="module")
def tiles() -> list[Row]:
    return four_tiles(32)


def test_four_tiles_are_loaded_computed_and_stored_in_turn(tiles: list[Row]):
    assert all(r.exact for r in tiles)
    off, on = of(tiles, "padding in the picture")
    assert off.order == (
        "load1 (18×18)  load2 (18×18)  conv1",
        "load3 (18×18)  conv2  store1  load4 (18×18)  conv3  store2",
        "conv4  store3  store4",
    )
    assert on.order == (
        "load1 (18×18)  load2 (18×16)  conv1",
        "load3 (18×18)  conv2  store1  load4 (18×16)  conv3  store2",
        "conv4  store3  store4",
    )
    _, on = of(tiles, "padding by the engine")
    assert on.order[0] == "load1 (17×17)  load2 (17×15)  conv1"


def test_four_huge_tiles_are_built_without_looking_at_their_bytes():
    program = padded.bind(C=16, F=16, H=2048, W=2048, R=3).kernel
    built = in_tiles(program, conv_engine(memory=128 << 20), 1024, 1024, rings=True)
    assert phases(built)[0] == "load1 (1026×1026)  load2 (1026×1024)  conv1"
    cells = sum(cut.count for cut in boxes(built.stream).cuts)
    assert cells < 500_000
    assert sum(built.stream.sizes.values()) > 200_000_000


@pytest.mark.long
def test_rings_save_bytes_and_energy():
    found = windows(16)
    assert all(r.exact for r in found)
    for name in ("convolution engine", "signal processor"):
        off, on = of(found, name)
        assert on.loaded < off.loaded
        assert on.microjoules < off.microjoules
        assert on.cycles <= 1.01 * off.cycles


@pytest.mark.long
def test_a_chain_moves_no_intermediate(monkeypatch):
    monkeypatch.setitem(NARROW, "memory", 14 << 10)
    found = chains(16)
    assert all(r.exact for r in found)
    single, chain = (of(found, name) for name in ("layer by layer", "in a chain"))
    for one, both in zip(single, chain, strict=True):
        assert both.cycles < one.cycles
        assert both.loaded + both.stored < 0.8 * (one.loaded + one.stored)
    assert chain[1].loaded < chain[0].loaded
    assert chain[1].cycles < chain[0].cycles


@pytest.mark.parametrize(
    "window, rows, lap",
    [(1, 4, 1), (3, 12, 1), (3, 4, 1), (3, 4, 3), (3, 2, 6), (5, 3, 1), (5, 2, 6)],
)
def test_chains_of_all_tiles(window: int, rows: int, lap: int):
    """As numpy has it; in all orders that the waits allow. Around the intermediate there are zeros,
    not what the first convolution makes of zeros."""
    program = two_layers.bind(**SIZES, G=5, R=window).kernel
    inputs = random_arrays(program)
    inputs[1] = np.abs(inputs[1])  # the first convolution of no picture would give something
    inputs[2] = np.full_like(inputs[2], 40_000)
    expected = convolved(convolved(*inputs[:3]), *inputs[3:])
    built = chained(program, conv_engine(), rows, lap)
    np.testing.assert_array_equal(run(built, inputs), expected)
    assert built.replay(*inputs, expected.copy(), orders=4) is None
    assert len(np.unique(expected)) > 10
    allocs = (x.buffer for x in walk_statements(built.kernel.body) if isinstance(x, Alloc))
    assert {b.memory for b in allocs} == {"local"}


@pytest.mark.parametrize("rows, lap", [(2, 1), (1, 6)])
def test_the_interpreter_agrees(rows: int, lap: int):
    program = two_layers.bind(C=2, F=2, G=2, H=6 * rows, W=3, R=3).kernel
    inputs = random_arrays(program)
    expected = convolved(convolved(*inputs[:3]), *inputs[3:])
    built = chained(program, conv_engine(), rows, lap)
    np.testing.assert_array_equal(interpret(built.kernel, inputs)[0], expected)
    np.testing.assert_array_equal(interpret(program, inputs)[0], expected)


def test_a_lap_that_is_too_short_is_refused():
    """The next lap's first tile would be loaded over rows that are still needed."""
    program = two_layers.bind(**SIZES, G=5, R=3).kernel
    with pytest.raises(CompileError, match="the order matters"):
        chained(program, conv_engine(), 2, 2)


def test_the_benchmark_reports_what_is_wrong(monkeypatch, capsys, tmp_path, tiles: list[Row]):
    wrong = [Row(**{**vars(tiles[0]), "exact": False})]
    monkeypatch.setattr(engine, "four_tiles", lambda: wrong)
    monkeypatch.setattr(engine, "windows", lambda: tiles)
    monkeypatch.setattr(engine, "chains", lambda: tiles)
    monkeypatch.setattr("sys.argv", ["engine.py", "--json", str(tmp_path / "f.json")])
    assert engine.main() == 1
    shown = capsys.readouterr().out
    assert "✗" in shown
    assert "prologue  load1 (17×17)  load2 (17×17)  conv1" in shown
    assert (tmp_path / "f.json").read_text().startswith('{\n  "tiles": [')
    assert table(wrong).row_count == 1


@pytest.mark.parametrize("memory", [12 << 10, 16 << 10, 48 << 10, 512 << 10])
def test_as_many_tiles_in_a_lap_as_there_is_room_for(memory: int):
    program = layer.bind(C=8, F=8, H=48, W=64, R=7).kernel
    chip = conv_engine(memory=memory, bus=1)
    inputs = random_arrays(program)
    off, on = (build_chip(program, chip, rings=rings) for rings in (False, True))
    for built in (off, on):
        found = run(built, inputs)
        np.testing.assert_array_equal(found, convolved(*inputs))
        assert built.replay(*inputs, found, orders=4) is None
    assert on.cycles <= off.cycles
    assert abs(on.predicted / on.cycles - 1) < 0.05
    if memory >= 16 << 10:
        assert on.timeline.moved["dram", "local"] < off.timeline.moved["dram", "local"]
