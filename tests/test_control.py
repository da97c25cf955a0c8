"""What a kernel's author decides of its schedule on a chip, and what is refused."""

import numpy as np
import pytest
from byte_kernels import K, M, N, dots

from tilewright import cast, grid, i8, i32, kernel, out, reduce
from tilewright.backends.stream.boxes import queue_numbers
from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.chip import build_choice
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.loop import For, walk_statements
from tilewright.kernels import Schedule
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.find_mappings import find_mappings
from tilewright.plan.unit_plan import Plan
from tilewright.schedule.core.state import Loop
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Target
from tilewright.targets import cpu
from tilewright.targets.dsp import dsp
from tilewright.targets.tiny import tiny


@kernel
def product(C: out(i32[M, N]), A: i8[M, K], B: i8[K, N]):
    """Its result is its first parameter."""
    for i, j in grid(M, N):
        C[i, j] = 0
        for k in reduce(K):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])


GEMM = product.bind(M=128, N=128, K=256)


def check(built: ChipKernel) -> None:
    """Runs it; and in other orders that its waits allow."""
    rng = np.random.default_rng(0)
    _, a, b = (rng.integers(-128, 128, x).astype(np.int8) for x in ((1,), (128, 256), (256, 128)))
    c = np.zeros((128, 128), np.int32)
    assert built(c, a, b) is c
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
    assert built.replay(c, a, b, orders=4) is None


# ---------------------------------------------------------------- build


def test_dimensions_without_a_number():
    for target in (tiny(), dsp()):
        with pytest.raises(CompileError) as error:
            product.bind(K=64).build(target)
        assert error.value.what == (
            f"M, N of product have no number, and the instructions of {target.name} are for certain"
            " sizes"
        )
        assert error.value.hint == "bind(M=…, N=…) gives one"
    with pytest.raises(CompileError, match=r"(M, N, K|K, M, N) of product have no number"):
        Schedule(product).build(tiny())


def test_the_order_of_the_parameters():
    check(GEMM.build(tiny()))


def test_processors_have_no_tiles_to_decide():
    with pytest.raises(ScheduleError) as error:
        GEMM.build(cpu.host(), serial=True)
    assert "is a processor: tile, whole, overlap, rings, serial are for chips" in str(error.value)


# ---------------------------------------------------------------- tiles


@pytest.mark.parametrize(
    "control",
    [
        {"tile": {"i": 32}},
        {"tile": {"i": 64, "j": 16, "k": 64}},
        {"whole": ("k",)},
        {"whole": ("i", "k"), "tile": {"j": 32}},
        {"whole": True},
        {"whole": True, "overlap": False},
    ],
    ids=str,
)
def test_tiles_are_as_the_author_says(control: dict):
    built = GEMM.build(tiny(spad=128 << 10, acc=128 << 10), **control)
    check(built)
    extents = {"i": 128, "j": 128, "k": 256}
    whole = extents if control.get("whole") is True else control.get("whole", ())
    wanted = {n: extents[n] for n in whole} | control.get("tile", {})
    assert {n: built.tile[n] for n in wanted} == wanted
    places = {b.name: int(np.prod(b.shape)) for b in built.stream.places}
    for name, (p, q) in (("A_local", "ik"), ("B_local", "kj"), ("C_local", "ij")):
        turns, rest = divmod(places[name], built.tile[p] * built.tile[q])
        assert (1 <= turns <= 5, rest) == (True, 0)


def test_what_was_chosen_can_be_said():
    """`tile` of a built kernel gives it again."""
    chosen = GEMM.build(tiny())
    again = GEMM.build(tiny(), tile=chosen.tile)
    assert (again.tile, again.cycles) == (chosen.tile, chosen.cycles)


def test_tiles_of_whole_operators_and_of_bundles():
    assert dots.bind(M=64, N=64, K=256).build(dsp(), tile={"i": 32}, whole=("j",)).tile == {
        "i": 32,
        "j": 64,
    }


@pytest.mark.parametrize(
    "control, what, hint",
    [
        (
            {"tile": {"q": 16}},
            "'q' is no loop of the contraction of product that has tiles",
            "those are i of 128, j of 128, k of 256",
        ),
        (
            {"tile": {"i": 24}},
            "tiles of product cannot hold 24 iterations of i",
            "they can hold 16, 32, 64 or 128",
        ),
        (
            {"tile": {"k": 16}, "whole": ("k",)},
            "k is to be whole, and to have tiles of 16",
            "take it out of one of whole and tile",
        ),
    ],
)
def test_what_is_refused(control: dict, what: str, hint: str):
    with pytest.raises(ScheduleError) as error:
        GEMM.build(tiny(), **control)
    assert (error.value.what, error.value.hint) == (what, hint)


def test_the_memory_that_is_too_small_is_named():
    """One place for 64 x 256 bytes of A, which the outer loop brings, and two for 256 x 16 of B."""
    with pytest.raises(TargetError) as error:
        GEMM.build(tiny(spad=8 << 10), tile={"i": 64}, whole=("k",))
    assert error.value.what == (
        "no tile of product with tiles of 64 for i, and k whole fits spad of tiny, which has 8,192"
        " bytes: the smallest takes 24,576"
    )
    assert error.value.hint == (
        "smaller tiles, or fewer loops whole, or overlap=False, which needs no second place for"
        " operands"
    )
    least = GEMM.build(tiny(spad=24_576), tile={"i": 64}, whole=("k",))
    assert least.stream.sizes["spad"] == 24_576
    with pytest.raises(TargetError, match=r"in bytes \(spad 4,096, acc 4,096\): several are too"):
        GEMM.build(tiny(spad=4 << 10, acc=4 << 10), whole=True, overlap=False)


# ---------------------------------------------------------------- schedules by hand


def test_a_schedule_that_goes_on_by_hand():
    """From what accelerate makes, with a plan of one's own, and a step behind it."""
    s = Schedule(GEMM)
    _, nest, mapping = next(find_mappings(s.kernel, tiny()))
    i, j, k = (x.var for x in (*nest.axes, *nest.reduce))
    plan = Plan(nest, mapping, {i: 32, j: 64, k: 256}, (j, i, k), prefetch_distance=2)
    layouts = tile_for_unit(s, tiny(), plan)
    tiles = next(x for x in walk_statements(s.kernel.body) if isinstance(x, For))
    s.annotate(Loop(tiles.var), "mine")
    check(stream_kernel(s, tiny(), GEMM.parameters, layouts))
    chosen = build_choice(GEMM.kernel, tiny(), Choice(plan, 0.0), parameters=GEMM.parameters)
    check(chosen)
    assert chosen.tile == {"i": 32, "j": 64, "k": 256}


# ---------------------------------------------------------------- one after another


def with_pause(chip: Target) -> Target:
    """With an instruction of the queue between the others that does nothing."""
    t = TargetBuilder.extend(chip, chip.name)

    @t.instruction("compute")
    def pause():
        pass

    return t.build()


def overlaps(built: ChipKernel) -> set[tuple[str, str]]:
    """Queues of which an instruction begins before an earlier one of another is done."""
    t, queue = built.timeline, queue_numbers(built.stream)
    names = [q.name for q in built.stream.target.queues]
    found = set()
    for a in range(len(names)):
        done = np.maximum.accumulate(np.where(queue == a, t.end, 0))
        for b in range(len(names)):
            if a != b and (t.begin[1:] < done[:-1])[queue[1:] == b].any():
                found.add((names[a], names[b]))
    return found


def test_serial_is_one_after_another():
    """Where every queue can wait for every other, even through a third."""
    fast = GEMM.build(with_pause(tiny()))
    slow = GEMM.build(with_pause(tiny()), serial=True)
    assert overlaps(slow) == set()
    assert ("load", "compute") in overlaps(fast)
    assert slow.cycles > 1.3 * fast.cycles
    check(slow)


def test_serial_where_nothing_links_two_queues():
    """All but these wait for each other."""
    slow = GEMM.build(tiny(), serial=True)
    assert overlaps(slow) <= {("store", "load"), ("load", "store")}
    check(slow)


def test_serial_on_other_chips():
    """Bundles are in order anyhow."""
    with pytest.raises(TargetError) as error:
        dots.bind(M=64, N=64, K=256).build(dsp(), serial=True)
    assert error.value.hint == "overlap=False lets transfers and bundles take turns"
