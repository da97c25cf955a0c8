"""A page that shows where a model's time goes on all of its devices: one file, which needs nothing
else. Pictures are made here; the timeline is drawn by the page's script, from the figures in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilewright.base.errors import InputError
from tilewright.base.version import VERSION
from tilewright.report.facts import COPIES, PIECE, Item, Report, gather
from tilewright.report.graph import draw_graph
from tilewright.report.limits import Limits, measure_limits
from tilewright.report.memory_chart import draw_memories
from tilewright.report.roofline import draw_roofline
from tilewright.report.svg import escape, tag
from tilewright.report.table import host_reasons, make_table
from tilewright.report.words import (
    ROOFLINE_WORDS,
    graph_words,
    memory_words,
    shares,
    summary,
    table_words,
    timeline_words,
)
from tilewright.runtime.atomic import as_path, write_atomically
from tilewright.runtime.device_run import DeviceRun, as_steps
from tilewright.runtime.profile import Profile

GROUPS = 40_000  # of instructions in a page


def write_report(profile: Profile, path: str | Path, limits: Limits | None = None) -> int:
    """Writes a page that shows a profile: what runs where and when, how near each step is to what
    its device could do, how full memories are. It is one file of HTML that loads nothing. What this
    machine can do at best is measured, which takes half a second, unless `limits` are given.
    Returns the page's size in bytes; ArtifactError if it cannot be written."""
    path = as_path(path, 'write_report(module.profile(x), "report.html")')
    if not isinstance(profile, Profile):
        raise InputError(
            f"{type(profile).__name__} is given where a profile is needed",
            hint='write_report(module.profile(x), "report.html")',
        )
    if limits is None:
        used = (s.instruction for s in profile.steps if s.instruction is not None)
        limits = measure_limits(profile.threads, used)
    text = page(gather(profile, limits)).encode()
    return write_atomically(path, lambda file: file.write(text))


def page(report: Report) -> str:
    """The whole page."""
    parts = {
        "title": escape(f"{report.model}: where the time goes"),
        "heading": escape(f"{report.model}: where the time goes"),
        "css": _file("page.css"),
        "js": _file("page.js"),
        "summary": summary(report),
        "shares": shares(report),
        "graph_words": escape(graph_words(report)),
        "graph": draw_graph(report),
        "timeline_words": escape(timeline_words(report)),
        "roofline": _section("How near to the limits", ROOFLINE_WORDS, draw_roofline(report)),
        "memory": _section("Memory", memory_words(report), draw_memories(report), "memories"),
        "table_words": escape(table_words(report)),
        "table": make_table(report),
        "reasons": _section(
            "Why the host runs what it runs",
            "A device is asked for every kernel; what it cannot run, the host does.",
            host_reasons(report),
        ),
        "footer": escape(f"Written by tilewright {VERSION}. The host is {report.target}."),
        "data": _as_script(_data(report)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], _file("page.html"))


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _section(title: str, words: str, content: str, name: str | None = None) -> str:
    """A section of the page; none where there is nothing to show."""
    if not content:
        return ""
    head = tag("h2", escape(title)) + tag("p", escape(words), class_="how")
    return tag("section", head + tag("div", content, id=name))


def _as_script(data: object) -> str:
    """JSON that may stand between script tags, whatever texts are in it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# ---------------------------------------------------------------- what the script is given


def _data(report: Report) -> dict[str, Any]:
    rows, numbers = _rows(report)
    several = {i.step for i in report.items if i.kind == PIECE}
    return {
        "total": round(report.nanoseconds, 3),
        "simulated": report.simulated,
        "rows": rows,
        "items": [_item(i, numbers, i.step in several) for i in report.items],
        "runs": _runs(report, numbers),
    }


def _rows(report: Report) -> tuple[list[dict[str, Any]], dict[tuple[str, str], int]]:
    """The timeline's rows, and their numbers: by device and queue ("" for its kernels)."""
    rows: list[dict[str, Any]] = []
    numbers: dict[tuple[str, str], int] = {}

    def add(device: str, queue: str, label: str, colour: str) -> None:
        numbers[device, queue] = len(rows)
        rows.append({"label": label, "colour": colour, "queue": bool(queue)})

    for device in report.devices:
        colour = report.colours[device]
        add(device, "", device, colour)
        if device == report.host and any(i.kind == "copy" for i in report.items):
            add(COPIES, "", "copies", "copy")
        runs = [run for (d, _), run in report.runs.items() if d == device]
        for queue in dict.fromkeys(q for run in runs for q in run.facts.queues):
            add(device, queue, queue, colour)
    return rows, numbers


def _item(item: Item, rows: Mapping[tuple[str, str], int], is_several: bool) -> dict[str, Any]:
    row = rows[COPIES, ""] if item.kind == "copy" else rows[item.device, ""]
    return {
        "id": item.id,
        "kind": item.kind,
        "row": row,
        "title": item.title,
        "kernel": "" if item.kind in ("copy", "wait") else item.kernel,
        "device": item.device,
        "nodes": list(item.nodes),
        "begin": round(item.span.begin, 3),
        "ns": round(item.span.nanoseconds, 3),
        "here": item.here,
        "least": None if item.least is None else round(item.least, 3),
        "limit": item.limit,
        "model": None if item.model is None else round(item.model, 3),
        "operations": item.operations,
        "bytes": item.bytes,
        "cycles": item.cycles,
        "why": list(item.why),
        "fallback": item.fallback,
        "pieces": is_several and item.kind != PIECE,
    }


def _runs(report: Report, rows: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """The queues of each kernel that is submitted, with the steps that submit it: so many groups of
    instructions that all of them together are not too many."""
    queues = sum(len(run.facts.queues) for run in report.runs.values())
    found = []
    for (device, kernel), run in report.runs.items():
        steps = [
            i.id
            for i in report.items
            if i.kind == "submit" and (i.device, i.kernel) == (device, kernel)
        ]
        found.append(
            {
                "items": steps,
                "rows": [rows[device, queue] for queue in run.facts.queues],
                "instructions": list(run.facts.instructions),
                "cycle": 1e9 / run.facts.clock,
                "groups": _groups(run, max(1, GROUPS // queues)),
            }
        )
    return found


def _groups(run: DeviceRun, bins: int) -> list[int]:
    """Six numbers for each group, as steps."""
    numbers: list[int] = as_steps(run.in_bins(bins)).T.reshape(-1).tolist()
    return numbers
