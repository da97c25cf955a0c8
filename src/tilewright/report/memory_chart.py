"""How full each memory is in each step, as pictures: one for each memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.report.facts import Report
from tilewright.report.flow import MemoryTrack
from tilewright.report.svg import escape, label, tag
from tilewright.runtime.system import format_bytes

WIDTH, HEIGHT = 372.0, 92.0
LEFT, RIGHT, TOP, BOTTOM = 6.0, 6.0, 22.0, 18.0


def draw_memories(report: Report) -> str:
    """An SVG element for each memory that is used."""
    colours = report.colours
    return "".join(
        _draw(t, colours.get(t.device, "d0")) for t in report.tracks if max(t.values, default=0)
    )


def _draw(track: MemoryTrack, colour: str) -> str:
    most, count = max(track.values), len(track.values)
    top = max(track.size or 0, most, 1)
    wide, tall = (WIDTH - LEFT - RIGHT) / count, HEIGHT - TOP - BOTTOM
    base = HEIGHT - BOTTOM
    bars = [
        tag(
            "rect",
            tag("title", escape(f"step {k}: {format_bytes(value)}")),
            x=LEFT + k * wide,
            y=base - tall * value / top,
            width=max(wide, 0.6),
            height=tall * value / top,
            data_item=k,
        )
        for k, value in enumerate(track.values)
        if value
    ]
    of = "" if track.size is None else f" of {format_bytes(track.size)}"
    parts = [
        label(LEFT, 14, f"{track.device} {track.name}", class_="name"),
        label(WIDTH - RIGHT, 14, f"at most {format_bytes(most)}{of}", text_anchor="end"),
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=TOP, y2=TOP, class_="limit"),
        tag("g", "".join(bars), class_=f"bars {colour}"),
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=base, y2=base, class_="base"),
        *_ticks(count, wide, base),
    ]
    return tag(
        "svg", "".join(parts), class_="chart memory", width=WIDTH, height=HEIGHT,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img",
        aria_label=f"bytes in use in {track.device} {track.name}, step by step",
    )  # fmt: skip


def _ticks(count: int, wide: float, base: float) -> Sequence[str]:
    ends = [(0, "start"), (count - 1, "end")] if count > 1 else [(0, "start")]
    return [
        label(
            LEFT + (k * wide if anchor == "start" else (k + 1) * wide),
            base + 13,
            f"step {k}",
            text_anchor=anchor,
            class_="tick",
        )
        for k, anchor in ends
    ]
