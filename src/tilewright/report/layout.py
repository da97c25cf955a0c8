"""Where boxes of a graph lie: in layers from top to bottom, each box below all that it follows,
ordered so that arrows cross little. Arrows that pass layers get a place in each of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP, LAYER = 22.0, 26.0  # between boxes of a layer, and between layers
PASSING = 10.0  # width of the place that a passing arrow gets
ROUNDS = 6


@dataclass(frozen=True)
class Laid:
    """The left upper corner of each box, the points that each arrow goes through between its ends,
    and how large all of it is."""

    corners: Mapping[str, tuple[float, float]]
    bends: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]
    width: float
    height: float


Cell = Hashable  # a box's name, or an arrow and the layer that it passes


def lay_out(sizes: Mapping[str, tuple[float, float]], edges: Sequence[tuple[str, str]]) -> Laid:
    """Places boxes of these sizes; they are given in an order in which arrows point forward."""
    arrows = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    layer = _layers(sizes, arrows)
    rows: list[list[Cell]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, k in layer.items():
        rows[k].append(name)
    links: list[tuple[Cell, Cell]] = []  # between neighbouring layers
    for a, b in arrows:
        passed: list[Cell] = [((a, b), k) for k in range(layer[a] + 1, layer[b])]
        for cell, k in zip(passed, range(layer[a] + 1, layer[b]), strict=True):
            rows[k].append(cell)
        chain = [a, *passed, b]
        links += pairwise(chain)
    up, down = _neighbours(links)
    _order(rows, up, down)

    def width(cell: Cell) -> float:
        return sizes[cell][0] if isinstance(cell, str) else PASSING

    centre = _centres(rows, width, up, down)
    left = min((x - width(c) / 2 for c, x in centre.items()), default=0.0)
    centre = {c: x - left for c, x in centre.items()}
    corners, tops, y = {}, [], 0.0
    for row in rows:
        tall = max((sizes[c][1] for c in row if isinstance(c, str)), default=0.0)
        for c in row:
            if isinstance(c, str):
                corners[c] = (centre[c] - width(c) / 2, y + (tall - sizes[c][1]) / 2)
        tops.append((y, y + tall))
        y += tall + LAYER
    bends = {
        (a, b): tuple(
            (centre[(a, b), k], end) for k in range(layer[a] + 1, layer[b]) for end in tops[k]
        )
        for a, b in arrows
    }
    right = max((x + width(c) / 2 for c, x in centre.items()), default=0.0)
    return Laid(corners, bends, right, max(y - LAYER, 0.0))


def _layers(sizes: Mapping[str, object], arrows: Sequence[tuple[str, str]]) -> dict[str, int]:
    """One more than the deepest of what a box follows; what follows nothing is just above the first
    that follows it."""
    before: dict[str, list[str]] = {name: [] for name in sizes}
    after: dict[str, list[str]] = {name: [] for name in sizes}
    for a, b in arrows:
        before[b].append(a)
        after[a].append(b)
    layer: dict[str, int] = {}
    for name in sizes:
        layer[name] = max((layer[a] + 1 for a in before[name]), default=0)
    for name in sizes:
        if not before[name] and after[name]:
            layer[name] = min(layer[b] for b in after[name]) - 1
    return layer


def _neighbours(
    links: Sequence[tuple[Cell, Cell]],
) -> tuple[dict[Cell, list[Cell]], dict[Cell, list[Cell]]]:
    up: dict[Cell, list[Cell]] = {}
    down: dict[Cell, list[Cell]] = {}
    for a, b in links:
        up.setdefault(b, []).append(a)
        down.setdefault(a, []).append(b)
    return up, down


def _order(
    rows: list[list[Cell]], up: Mapping[Cell, list[Cell]], down: Mapping[Cell, list[Cell]]
) -> None:
    """Sorts each layer by the mean place of its neighbours, from above and from below in turn."""
    place = {c: k for row in rows for k, c in enumerate(row)}
    for turn in range(ROUNDS):
        near = up if turn % 2 == 0 else down
        for row in rows if turn % 2 == 0 else reversed(rows):
            row.sort(key=lambda c: _mean([place[o] for o in near.get(c, [])], place[c]))
            place |= {c: k for k, c in enumerate(row)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _centres(
    rows: Sequence[Sequence[Cell]],
    width: Callable[[Cell], float],
    up: Mapping[Cell, list[Cell]],
    down: Mapping[Cell, list[Cell]],
) -> dict[Cell, float]:
    """Where the middle of each cell is: near those of its neighbours, with room between."""
    centre: dict[Cell, float] = {}
    for row in rows:
        x = 0.0
        for c in row:
            centre[c] = x + width(c) / 2
            x += width(c) + GAP
    for turn in range(2 * ROUNDS):
        near = up if turn % 2 == 0 else down
        for row in rows if turn % 2 == 0 else reversed(rows):
            wanted = [_mean([centre[o] for o in near.get(c, [])], centre[c]) for c in row]
            for c, x in zip(row, _apart(wanted, [width(c) for c in row]), strict=True):
                centre[c] = x
    return centre


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The middles of boxes in a row that lie as near as can be to where they are wanted: those that
    would overlap move as one."""
    groups: list[tuple[float, int]] = []  # where the first one's middle is wanted, how many
    offset = [0.0]
    for a, b in pairwise(widths):
        offset.append(offset[-1] + (a + b) / 2 + GAP)
    for x, at in zip(wanted, offset, strict=True):
        groups.append((x - at, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (x1, n1), (x2, n2) = groups[-2:]
            groups[-2:] = [((x1 * n1 + x2 * n2) / (n1 + n2), n1 + n2)]
    starts = [x for x, n in groups for _ in range(n)]
    return [x + at for x, at in zip(starts, offset, strict=True)]
