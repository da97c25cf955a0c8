"""The graph of a call as a picture: a box for each step, in its device's colour, arrows for values.
Kernels that a device does in one step stand in a frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tilewright.base.words import nanoseconds, quantity, shorten
from tilewright.report.facts import PIECE, Item, Report
from tilewright.report.flow import INPUT, OUTPUT, Edge
from tilewright.report.layout import Laid, lay_out
from tilewright.report.svg import escape, label, tag

BOX, SMALL, PILL = (228.0, 54.0), (160.0, 22.0), (160.0, 22.0)
PAD, HEAD = 12.0, 40.0  # of a frame
LETTERS, NODES = 30, 34  # of the lines in a box
EDGE_OF = 12.0  # around the picture


def draw_graph(report: Report) -> str:
    """The picture, as an SVG element."""
    steps = {i.id: i for i in report.items if i.kind not in (PIECE, "wait")}
    pieces: dict[int, list[Item]] = {}
    for item in report.items:
        if item.kind == PIECE:
            pieces.setdefault(item.step, []).append(item)
    inner = {
        str(step): lay_out({p.id: BOX for p in found}, [(a, p.id) for p in found for a in p.after])
        for step, found in pieces.items()
    }
    arrows = [e for e in report.edges if _drawn(e.source, steps) and _drawn(e.target, steps)]
    sizes = {e.source: PILL for e in arrows if e.source.startswith(INPUT)}
    sizes |= {name: _size(item, inner.get(name)) for name, item in steps.items()}
    sizes |= {e.target: PILL for e in arrows if e.target.startswith(OUTPUT)}
    laid = lay_out(sizes, [(e.source, e.target) for e in arrows])
    colours = report.colours
    parts = [*_arrows(arrows, laid, sizes)]
    for name, size in sizes.items():
        x, y = laid.corners[name]
        if name not in steps:
            parts.append(_pill(name, x, y))
        elif name in inner:
            parts += _frame(
                steps[name], pieces[steps[name].step], inner[name], (x, y), size, colours
            )
        else:
            parts.append(_box(steps[name], (x, y), size, colours))
    width, height = laid.width + 2 * EDGE_OF, laid.height + 2 * EDGE_OF
    head = tag("defs", _ARROW_HEAD)
    moved = tag("g", "".join(parts), transform=f"translate({EDGE_OF:g},{EDGE_OF:g})")
    return tag(
        "svg", head + moved, class_="graph", width=width, height=height,
        viewBox=f"0 0 {width:.0f} {height:.0f}", role="img",
        aria_label="the steps of a call and the values that pass between them",
    )  # fmt: skip


_ARROW_HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0,0 L8,4 L0,8 z" class="arrow-head"/></marker>'
)


def _drawn(end: str, steps: Mapping[str, Item]) -> bool:
    return end in steps or end.startswith((INPUT, OUTPUT))


def _size(item: Item, inner: Laid | None) -> tuple[float, float]:
    if inner is not None:
        return max(inner.width, BOX[0]) + 2 * PAD, inner.height + HEAD + PAD
    return SMALL if is_small(item) else BOX


def is_small(item: Item) -> bool:
    """What moves and arranges data stands back."""
    return item.kind == "copy" or (item.kind == "call" and not item.nodes)


# ---------------------------------------------------------------- boxes


def _pill(name: str, x: float, y: float) -> str:
    kind, _, own = name.partition(":")
    words = ("input " if kind == "in" else "output ") + own
    width, height = PILL
    shape = tag("rect", x=x, y=y, width=width, height=height, rx=height / 2)
    text = label(x + width / 2, y + 15, shorten(words, 22), text_anchor="middle")
    return tag("g", tag("title", escape(words)) + shape + text, class_="pill")


def _box(
    item: Item,
    corner: tuple[float, float],
    size: tuple[float, float],
    colours: Mapping[str, str],
) -> str:
    (x, y), (width, height) = corner, size
    colour = "copy" if item.kind == "copy" else colours[item.device]
    shape = tag("rect", x=x, y=y, width=width, height=height, rx=4)
    if is_small(item):
        text = label(x + width / 2, y + 15, shorten(item.title, 22), text_anchor="middle")
    else:
        text = label(x + 8, y + 15, shorten(f"{item.id} · {item.title}", LETTERS), class_="name")
        text += label(x + 8, y + 29, shorten(", ".join(item.nodes), NODES), class_="nodes")
        text += label(x + 8, y + 43, _figures(item), class_="figures")
        if item.of_bound is not None:
            text += _gauge(x, y + height - 6, width, item.of_bound)
    return tag("g", shape + text, class_=f"box {colour}", data_item=item.id, tabindex=0)


def _figures(item: Item) -> str:
    taken = nanoseconds(item.span.nanoseconds)
    cycles = "" if item.cycles is None else f" · {item.cycles:,} cycles"
    return f"{item.device} · {taken}{cycles}"


def _gauge(x: float, y: float, width: float, share: float) -> str:
    """How near a box is to the least that it can take."""
    part = max(0.0, min(share, 1.0)) * width
    whole = tag("rect", x=x, y=y, width=width, height=5, class_="gauge")
    return whole + tag("rect", x=x, y=y, width=part, height=5, class_="gauge-part")


def _frame(
    item: Item,
    pieces: Sequence[Item],
    inner: Laid,
    corner: tuple[float, float],
    size: tuple[float, float],
    colours: Mapping[str, str],
) -> Iterator[str]:
    """Yields a step that is several kernels, with a box for each."""
    (x, y), (width, height) = corner, size
    shape = tag("rect", x=x, y=y, width=width, height=height, rx=8)
    text = label(x + PAD, y + 17, f"{item.id} · {item.title}", class_="name")
    text += label(x + PAD, y + 32, _figures(item), class_="figures")
    yield tag(
        "g", shape + text, class_=f"frame {colours[item.device]}", data_item=item.id, tabindex=0
    )
    left = x + (width - inner.width) / 2
    places = {name: (left + dx, y + HEAD + dy) for name, (dx, dy) in inner.corners.items()}
    for piece in pieces:
        for before in piece.after:
            bends = [(left + px, y + HEAD + py) for px, py in inner.bends[before, piece.id]]
            yield _arrow(places[before], BOX, bends, places[piece.id], BOX, "")
    for piece in pieces:
        yield _box(piece, places[piece.id], BOX, colours)


# ---------------------------------------------------------------- arrows


def _arrows(
    edges: Sequence[Edge], laid: Laid, sizes: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    """Yields an arrow for all the values that pass between two boxes."""
    passed: dict[tuple[str, str], list[Edge]] = {}
    for e in edges:
        passed.setdefault((e.source, e.target), []).append(e)
    for (a, b), values in passed.items():
        words = "\n".join(f"{e.value}: {quantity(e.bytes, 'B')}" for e in values)
        corner = laid.corners
        yield _arrow(corner[a], sizes[a], laid.bends[a, b], corner[b], sizes[b], words)


def _arrow(
    source: tuple[float, float],
    source_size: tuple[float, float],
    bends: Sequence[tuple[float, float]],
    target: tuple[float, float],
    target_size: tuple[float, float],
    words: str,
) -> str:
    """From the lower side of one box to the upper side of another, in curves between layers."""
    points = [
        (source[0] + source_size[0] / 2, source[1] + source_size[1]),
        *bends,
        (target[0] + target_size[0] / 2, target[1]),
    ]
    path = "M{:.0f},{:.0f}".format(*points[0])
    for k, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        middle = (y0 + y1) / 2
        curve = f"C{x0:.0f},{middle:.0f} {x1:.0f},{middle:.0f} {x1:.0f},{y1:.0f}"
        path += curve if k % 2 == 0 and x0 != x1 else f"L{x1:.0f},{y1:.0f}"
    title = tag("title", escape(words)) if words else ""
    return tag("path", title, class_="arrow", d=path, marker_end="url(#head)")
