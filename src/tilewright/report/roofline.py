"""A roofline as a picture: of each kernel how much arithmetic it does for a byte, and how fast it
does it, below what its device could do at best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.base.words import quantity
from tilewright.report.facts import PIECE, Item, Report, Roof
from tilewright.report.svg import escape, label, tag

WIDTH, HEIGHT = 1100.0, 430.0
LEFT, RIGHT, TOP, BOTTOM = 74.0, 230.0, 14.0, 46.0
ROOM = 1.6  # beyond the outermost dots
LINE = 13.0  # between words on the right


@dataclass(frozen=True)
class _Scale:
    """Numbers as places along an axis of powers of ten."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        step = max(1, (last - first) // 6)
        return [10.0**k for k in range(first, last + 1, step)]


def dots(report: Report) -> list[tuple[Item, float, float]]:
    """Kernels with operations a byte and operations a second; of a step that is several kernels,
    these."""
    whole = {i.step for i in report.items if i.kind == PIECE}
    found = []
    for i in report.items:
        shown = i.kind in ("call", "submit", PIECE) and (i.kind == PIECE or i.step not in whole)
        if shown and i.operations and i.bytes and i.span.nanoseconds > 0:
            speed = i.operations / i.span.nanoseconds * 1e9
            found.append((i, i.operations / i.bytes, speed))
    return found


def draw_roofline(report: Report) -> str:
    """The picture, as an SVG element; empty where there is no kernel to show."""
    points = dots(report)
    if not points:
        return ""
    used = {i.device for i, _, _ in points}
    roofs = [r for r in report.roofs if r.device in used]
    peaks = [rate for r in roofs for _, rate in r.rates]
    across = [x for _, x, _ in points]
    upwards = [y for _, _, y in points] + peaks
    ridges = [p / m for r in roofs for _, p in r.rates[-1:] for _, m in r.memories[-1:]]
    x = _Scale(min(across) / ROOM, max(across + ridges) * ROOM, LEFT, WIDTH - RIGHT)
    y = _Scale(min(upwards) / ROOM, max(upwards) * ROOM, HEIGHT - BOTTOM, TOP)
    colours = report.colours
    parts = [*_axes(x, y)]
    words: list[tuple[float, str, str]] = []  # where, what, and in whose colour, on the right
    for roof in roofs:
        colour = colours[roof.device]
        parts += _roof(roof, x, y, colour, words)
    parts += _words_beside(words)
    for item, at, speed in points:
        parts.append(
            tag(
                "circle",
                cx=x.place(at),
                cy=y.place(speed),
                r=5,
                class_=f"dot {colours[item.device]}",
                data_item=item.id,
                tabindex=0,
            )
        )
    return tag(
        "svg", "".join(parts), class_="chart", width=WIDTH, height=HEIGHT,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img",
        aria_label="operations a second of each kernel by its operations a byte",
    )  # fmt: skip


def _axes(x: _Scale, y: _Scale) -> Iterator[str]:
    for value in x.ticks():
        at = x.place(value)
        yield tag("line", x1=at, x2=at, y1=y.start, y2=y.end, class_="grid")
        yield label(at, y.start + 15, f"{value:g}", text_anchor="middle", class_="tick")
    for value in y.ticks():
        at = y.place(value)
        yield tag("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid")
        words = quantity(value, "op/s")
        yield label(x.start - 6, at + 4, words, text_anchor="end", class_="tick")
    yield label(
        (x.start + x.end) / 2, y.start + 34, "operations for each byte moved (op/B)",
        text_anchor="middle", class_="axis",
    )  # fmt: skip


def _roof(
    roof: Roof, x: _Scale, y: _Scale, colour: str, words: list[tuple[float, str, str]]
) -> Iterator[str]:
    """Yields a device's lines: level at its peaks, rising where a memory's rate is what limits."""
    top = max((rate for _, rate in roof.rates), default=y.high)
    for name, rate in roof.rates:
        yield tag(
            "line", x1=x.start, x2=x.end, y1=y.place(rate), y2=y.place(rate),
            class_=f"roof {colour}",
        )  # fmt: skip
        words.append((y.place(rate), f"{roof.device} {name} {quantity(rate, 'op/s')}", colour))
    for k, (name, rate) in enumerate(roof.memories):
        low, high = max(x.low, y.low / rate), min(x.high, top / rate)
        if low >= high:
            continue
        ends = {"x1": x.place(low), "y1": y.place(low * rate)}
        ends |= {"x2": x.place(high), "y2": y.place(high * rate)}
        title = tag("title", escape(f"{roof.device} {name}: {quantity(rate, 'B/s')}"))
        yield tag("line", title, class_=f"roof slope {colour}", **ends)
        share = 0.15 + 0.12 * k
        at = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        turn = math.degrees(math.atan2(ends["y2"] - ends["y1"], ends["x2"] - ends["x1"]))
        place = f"translate({x.place(at):.1f},{y.place(at * rate) - 4:.1f}) rotate({turn:.1f})"
        yield label(0, 0, f"{name} {quantity(rate, 'B/s')}", transform=place, class_=f"on {colour}")


def _words_beside(words: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """Yields words on the right, none over another."""
    last = -math.inf
    for at, text, colour in sorted(words):
        last = max(at + 4, last + LINE)
        yield label(WIDTH - RIGHT + 6, last, text, class_=f"on {colour}")
