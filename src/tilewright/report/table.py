"""The steps as a table, and the reasons why the host runs what it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.base.words import nanoseconds, quantity
from tilewright.report.facts import PIECE, Item, Report
from tilewright.report.svg import escape, tag

COLUMNS = (  # heading, what it means, whether it holds numbers
    ("step", "in the order in which the host goes through them; 3.1 is a kernel of step 3", True),
    ("kernel", "what is computed", False),
    ("device", "what runs it", False),
    ("time", "on the device", True),
    ("share", "of the call", True),
    ("cycles", "of the device's clock, by its timed simulator", True),
    ("least", "the time that it takes at best: see below", True),
    ("of bound", "the least time by the time: 100 % cannot be faster", True),
    ("operations", "a multiply-add counts as two", True),
    ("bytes", "of its operands and results; of a chip's step, that its instructions move", True),
    ("rate", "operations a second", True),
    ("nodes", "of the model", False),
)


def make_table(report: Report) -> str:
    heads = "".join(
        tag("th", tag("button", escape(name), title=meaning), class_="n" if number else None)
        for name, meaning, number in COLUMNS
    )
    rows = "".join(_row(i, report) for i in report.items)
    whole = tag("thead", tag("tr", heads)) + tag("tbody", rows)
    return tag("table", whole, id="steps")


def _row(item: Item, report: Report) -> str:
    taken = item.span.nanoseconds
    rate = item.operations / taken * 1e9 if item.operations and taken > 0 else None
    share = taken / report.nanoseconds if report.nanoseconds else 0.0
    nodes = ", ".join(item.nodes)
    step, _, piece = item.id.partition(".")
    chip = tag("i", class_="copy" if item.kind == "copy" else report.colours[item.device])
    cells = [
        (item.id, int(step) + int(piece or 0) / 1e6),
        (item.title, None),
        (item.device, None),
        (nanoseconds(taken), taken),
        ("" if item.kind == "wait" else f"{share:.1%}", share),
        ("" if item.cycles is None else f"{item.cycles:,}", item.cycles),
        ("" if item.least is None else nanoseconds(item.least), item.least),
        ("" if item.of_bound is None else f"{item.of_bound:.0%}", item.of_bound),
        (quantity(item.operations, "op") if item.operations else "", item.operations),
        (quantity(item.bytes, "B") if item.bytes else "", item.bytes),
        ("" if rate is None else quantity(rate, "op/s"), rate),
        (nodes, None),
    ]
    found = []
    for k, (text, value) in enumerate(cells):
        content = (chip if k == 2 else "") + escape(text)
        number = COLUMNS[k][2]
        whole = text if k in (1, 11) else None
        found.append(
            tag("td", content, class_="n" if number else None, data_v=_value(value), title=whole)
        )
    kind = "piece" if item.kind == PIECE else None
    return tag("tr", "".join(found), data_item=item.id, class_=kind)


def _value(value: float | None) -> str | None:
    return None if value is None else f"{value:.9g}"


def host_reasons(report: Report) -> str:
    """Why the host runs steps though there are other devices: a line for each reason."""
    found: dict[tuple[str, ...], list[Item]] = {}
    for item in report.items:
        if item.why:
            found.setdefault(item.why, []).append(item)
    rows = "".join(tag("li", _reason(why, items)) for why, items in found.items())
    return tag("ul", rows) if rows else ""


def _reason(why: Sequence[str], items: Sequence[Item]) -> str:
    return "".join(_links(items)) + escape(": " + "; ".join(why))


def _links(items: Sequence[Item]) -> Iterator[str]:
    for k, item in enumerate(items):
        if k:
            yield ", "
        yield tag("a", escape(f"{item.id} {item.title}"), href="#steps", data_item=item.id)
