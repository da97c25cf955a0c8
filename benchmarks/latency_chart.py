"""A bar chart of how much of the machine's peak each engine reaches, as SVG text."""

from html import escape
from statistics import median
from typing import Any

Json = dict[str, Any]

WIDTH, LEFT, RIGHT, TOP = 760, 128, 64, 74
BAR, GAP, GROUP_GAP = 15, 3, 18
COLOURS = {"tilewright": "#e4572e", "onnxruntime": "#8fa6b8", "openvino": "#c3cdd5"}
OTHER = "#9b8fb8"
INK, PALE, LINE = "#24303a", "#6b7a86", "#e3e8ec"
FONT = "ui-sans-serif, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"


def draw(report: Json) -> str:
    """The picture of the cases with the most threads; each bar is the arithmetic's time at the
    machine's peak by the time measured."""
    threads = max(c["threads"] for c in report["cases"])
    cases = [c for c in report["cases"] if c["threads"] == threads]
    engines = list(dict.fromkeys(m["engine"] for c in cases for m in c["measurements"]))
    group = len(engines) * (BAR + GAP) - GAP + GROUP_GAP
    height = TOP + len(cases) * group + 40
    scale = WIDTH - LEFT - RIGHT
    parts = [*_frame(height, report, threads, engines), *_grid(height, scale)]
    for row, case in enumerate(cases):
        y = TOP + row * group + GROUP_GAP / 2
        middle = y + (group - GROUP_GAP) / 2 + 5
        parts.append(_text(LEFT - 12, middle, case["model"], INK, 14, anchor="end", weight=600))
        for place, engine in enumerate(engines):
            found = next((m for m in case["measurements"] if m["engine"] == engine), None)
            parts += _bar(y + place * (BAR + GAP), engine, found, case["bound_ms"], scale)
    return "\n".join([*parts, "</svg>", ""])


def _frame(height: float, report: Json, threads: int, engines: list[str]) -> list[str]:
    """The sheet, the title and the legend."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"'
            f' width="{WIDTH}" height="{height:.0f}" font-family="{escape(FONT)}" role="img"'
            ' aria-label="Share of the machine\'s peak that each engine reaches">'
        ),
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="#ffffff"/>',
        _text(20, 30, "Share of the machine's arithmetic peak", INK, 17, weight=700),
        _text(
            WIDTH - 20,
            30,
            f"float32, batch 1, {threads} thread{'s' if threads > 1 else ''},"
            f" {report['peak']['gflops_per_core'] * threads:.0f} GFLOP/s",
            PALE,
            13,
            anchor="end",
        ),
    ]
    x = 20.0
    for engine in engines:
        colour = COLOURS.get(engine, OTHER)
        parts.append(f'<rect x="{x}" y="43" width="12" height="12" rx="3" fill="{colour}"/>')
        parts.append(_text(x + 18, 53, engine, INK, 13))
        x += 18 + 8.0 * len(engine) + 18
    return parts


def _grid(height: float, scale: float) -> list[str]:
    parts = []
    for percent in range(0, 101, 25):
        x = LEFT + scale * percent / 100
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 34:.0f}"'
            f' stroke="{LINE}" stroke-width="1"/>'
        )
        parts.append(_text(x, height - 16, f"{percent} %", PALE, 12, anchor="middle"))
    return parts


def _bar(y: float, engine: str, found: Json | None, bound_ms: float, scale: float) -> list[str]:
    times = [t for times in (found or {}).get("rounds_ms", []) for t in times]
    if found is None or found["failure"] or not times:
        return [_text(LEFT + 6, y + BAR - 3, "–", PALE, 12)]
    middle = median(times)
    share = bound_ms / middle
    width = scale * min(share, 1.05)
    colour, ours = COLOURS.get(engine, OTHER), engine == "tilewright"
    label = f"{middle:.3g} ms"
    return [
        f'<rect x="{LEFT}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
        _text(LEFT + width + 7, y + BAR - 3.5, label, INK, 12, weight=700 if ours else 400),
    ]


def _text(
    x: float,
    y: float,
    text: str,
    colour: str,
    size: int,
    *,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )
