"""Where boxes of a graph lie: none over another, each below all that it follows."""

import itertools
import random

import pytest

from tilewright.report.layout import lay_out

SIZE = (100.0, 40.0)


def is_sound(sizes, edges, laid):
    """Boxes do not overlap, arrows point down, and everything lies in the picture."""
    boxes = {n: (*laid.corners[n], *size) for n, size in sizes.items()}
    for x, y, w, h in boxes.values():
        assert x >= -1e-6
        assert y >= -1e-6
        assert x + w <= laid.width + 1e-6
        assert y + h <= laid.height + 1e-6
    for (x0, y0, w0, h0), (x1, y1, w1, h1) in itertools.combinations(boxes.values(), 2):
        apart = x0 + w0 <= x1 + 1e-6 or x1 + w1 <= x0 + 1e-6
        assert apart or y0 + h0 <= y1 + 1e-6 or y1 + h1 <= y0 + 1e-6
    for a, b in edges:
        if a != b:
            assert boxes[a][1] + boxes[a][3] < boxes[b][1]
            ys = [boxes[a][1], *(y for _, y in laid.bends[a, b]), boxes[b][1]]
            assert ys == sorted(ys)


def test_a_chain_is_straight():
    names = [str(k) for k in range(5)]
    laid = lay_out(dict.fromkeys(names, SIZE), list(itertools.pairwise(names)))
    assert {x for x, _ in laid.corners.values()} == {0.0}
    assert laid.width == 100
    assert not any(laid.bends.values())


def test_an_arrow_that_passes_a_box_goes_around_it():
    sizes = dict.fromkeys("abc", SIZE)
    edges = [("a", "b"), ("b", "c"), ("a", "c")]
    laid = lay_out(sizes, edges)
    is_sound(sizes, edges, laid)
    left = laid.corners["b"][0]
    assert all(not left <= x <= left + SIZE[0] for x, _ in laid.bends["a", "c"])


def test_nothing_and_boxes_without_arrows():
    assert lay_out({}, []).corners == {}
    sizes = dict.fromkeys("abc", SIZE)
    is_sound(sizes, [], lay_out(sizes, []))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 40)
    sizes = {str(k): (rng.uniform(20, 200), rng.uniform(10, 300)) for k in range(count)}
    edges = [
        (str(a), str(b))
        for b in range(count)
        for a in rng.sample(range(b), min(b, rng.randint(0, 3)))
    ]
    is_sound(sizes, edges, lay_out(sizes, edges))
