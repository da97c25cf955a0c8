"""What a page says to those who have never seen one, as HTML where that is said."""

from __future__ import annotations

from tilewright.base.words import nanoseconds
from tilewright.report.facts import PIECE, Report, busy
from tilewright.report.svg import escape, tag


def summary(report: Report) -> str:
    """The first sentences, as HTML."""
    count = sum(i.kind not in (PIECE, "wait") for i in report.items)
    taken = tag("b", escape(nanoseconds(report.nanoseconds)))
    steps = f"{count} step{'s' if count != 1 else ''}"
    calls = f"median of {report.calls} call{'s' if report.calls != 1 else ''}"
    if not any(i.kind == "submit" for i in report.items):
        return f"One call takes {taken} ({escape(calls)}), in {steps}, all on this machine."
    where = escape(f"{steps} on {' and '.join(report.devices)}")
    if not report.simulated:
        return f"One call takes {taken}: {where}, each in its own time ({escape(calls)})."
    here = escape(nanoseconds(report.here))
    return (
        f"One call takes {taken}: {where}, each in its own time. The host's steps are measured on"
        f" this machine ({escape(calls)}); chips are simulated, and their time is that of the"
        f" timed simulator. The call took {here} here, simulation included."
    )


def shares(report: Report) -> str:
    """A bar with the parts of the call, and whose they are, as HTML."""
    spent = busy(report)
    total = sum(spent.values()) or 1.0
    bars, words = [], []
    for device, ns in spent.items():
        name, colour = device or "copies", report.colours.get(device, "copy")
        text = f"{name} {nanoseconds(ns)}, {ns / total:.1%}"
        shown = tag("span", escape(name)) if ns / total > 0.06 else ""
        style = f"flex-grow: {ns / total:.4f}"
        bars.append(tag("div", shown, class_=colour, style=style, title=text))
        words.append(tag("span", tag("i", class_=colour) + escape(text)))
    return tag("div", "".join(bars), id="shares") + tag("div", "".join(words), class_="legend")


def graph_words(report: Report) -> str:
    text = (
        "Each box is a kernel, in the colour of the device that runs it; arrows are values, and"
        " small boxes move or arrange data. The bar below a box is full where the kernel takes no"
        " longer than it must."
    )
    if any(i.kind == PIECE for i in report.items):
        text += " A dashed frame is one stream of instructions that does several kernels in a row."
    return text


def timeline_words(report: Report) -> str:
    text = (
        "One call, from left to right. A pale bar is what a step takes; the dark bar below it is"
        " the least that it can take."
    )
    if report.simulated:
        text += (
            " A hollow bar is what the model that chose a chip's tiles expected. Below each chip"
            " are its queues, which work side by side: dark where they work all the time, pale"
            " where they often wait."
        )
    return text


ROOFLINE_WORDS = (
    "Each dot is a kernel: the further to the right, the more arithmetic it does for a byte that it"
    " moves; the higher, the faster. The lines are what its device can do at best: level ones are"
    " its arithmetic, sloping ones its memories. A dot on a line cannot be faster; below a sloping"
    " line memory holds it back, below a level one arithmetic. (Bytes are those of distinct"
    " elements, each moved once.)"
)


def memory_words(report: Report) -> str:
    text = (
        "Bytes in use in each step. An arena holds what passes between steps, and the working"
        " memory of kernels; the dashed line is what was set aside. Weights, inputs and outputs are"
        " not in it."
    )
    if report.simulated:
        text += " Of a chip's own memories: what the kernel that runs there uses, of what there is."
    return text


def table_words(report: Report) -> str:
    text = (
        "Click a heading to sort. The least time is the longest of three: the operations at the"
        " highest rate that this machine reaches, the bytes at the rate of the nearest memory that"
        " holds them, and a step that does nothing."
    )
    if report.simulated:
        text += (
            " Of a chip it is counted from what its instructions do in a cycle at best and from"
            " bytes that are moved once. A kernel in a stream can be above 100 %: its transfers go"
            " along with another's, and its time here is only what it adds."
        )
    return text
