"""What `targets`, `check-target` and `new-target` print: manuals, problems, what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from tilewright.base.words import quantity
from tilewright.check.conformance import ConformanceReport, InstructionReport
from tilewright.check.hazards import HazardReport
from tilewright.check.manual import manual, stored
from tilewright.check.problem import Problem, Severity
from tilewright.cli.layout import Column, fit_table, make_table
from tilewright.cli.show import target_json
from tilewright.runtime.system import format_bytes
from tilewright.target.target import Target

# ---------------------------------------------------------------- the list


def listed_json(name: str, target: Target) -> dict[str, Any]:
    """One row of the list of targets: what is not there is null."""
    facts = {"name": name, "kind": "chip" if target.native is None else "processor"}
    if target.native is not None:
        return facts | target_json(name, target) | {"queues": None, "instructions": None}
    sizes = {m.name: m.size for m in target.memories if m.size is not None}
    none = dict.fromkeys(("triple", "processor", "features", "vector_bytes", "vector_registers"))
    return facts | none | {
        "cores": target.cores,
        "clock": target.clock,
        "memories": sizes,
        "queues": [q.name for q in target.queues],
        "instructions": [i.name for i in target.instructions],
    }  # fmt: skip


CHIP_COLUMNS = (
    Column("chip"),
    Column(">clock"),
    Column(">instructions", spare=1),
    Column("queues", folds=True),
    Column("memories", folds=True),
)


def chips_table(chips: Mapping[str, Target], width: int) -> Table:
    rows = []
    for name, t in chips.items():
        queues = ", ".join(q.name for q in t.queues)
        sizes = ((m.name, m.size) for m in t.memories if m.size is not None)
        memories = ", ".join(f"{m} {format_bytes(size)}" for m, size in sizes)
        rows.append([name, quantity(t.clock, "Hz"), str(len(t.instructions)), queues, memories])
    return fit_table(CHIP_COLUMNS, rows, width)


# ---------------------------------------------------------------- the manual


def manual_parts(target: Target) -> Iterator[str | Table]:
    """The manual as a person reads it."""
    facts = manual(target)
    yield f"{facts['name']}, {quantity(facts['clock'], 'Hz')}\n"
    yield _memories(facts["memories"])
    if facts["queues"]:
        yield ""
        yield _queues(facts)
        yield "\n".join(["", *_waits(facts), TIME])
    slots = facts["slots"] or {}
    for i in facts["instructions"]:
        kind = "slot" if i["queue"] in slots else "queue"
        queue = f" ({kind} {i['queue']})" if i["queue"] else ""
        doc = f": {i['doc']}" if i["doc"] else ""
        yield "\n".join([f"\n{i['name']}{queue}{doc}", *_instruction(i)])


TIME = """An instruction keeps its queue for setup + max(busy, bytes / bytes a cycle)
cycles; its results are there latency cycles later, and what reads them in the
same queue stands still until then."""


def _memories(memories: Sequence[Mapping[str, Any]]) -> Table:
    columns = (">bytes", ">banks", ">bytes a cycle", ">latency", ">address unit")
    table = make_table("", "memory", *columns)
    for m in memories:
        name = m["name"] + (" (cache)" if m["cached"] else "")
        numbers = (m["bytes"], m["banks"], m["bandwidth"], m["latency"] or None, m["unit"])
        table.add_row(name, *("–" if n is None else str(n) for n in numbers))
    return table


def _queues(facts: Mapping[str, Any]) -> Table:
    table = make_table("", "queue", ">depth", "tokens with", "instructions")
    for q in facts["queues"]:
        beside = [n for pair in facts["tokens"] if q["name"] in pair for n in pair]
        others = dict.fromkeys(n for n in beside if n != q["name"])
        names = ", ".join(q["instructions"]) or "–"
        table.add_row(q["name"], str(q["depth"]), ", ".join(others) or "–", names)
    return table


def _waits(facts: Mapping[str, Any]) -> Iterator[str]:
    """How queues wait for each other, and how fast instructions come."""
    depth = "" if facts["token_depth"] is None else f" ({facts['token_depth']} untaken at most)"
    ways = [f"tokens{depth}"] * bool(facts["tokens"])
    ways += [_count(facts["events"], "event")] * bool(facts["events"])
    ways += ["barriers"] * facts["barriers"]
    if facts["slots"] is not None:
        slots = ", ".join(f"{n} of {name}" for name, n in facts["slots"].items())
        yield f"Operations are issued in bundles: {slots}. They run as the compiler places them."
    if facts["interlock"]:
        yield "The chip itself makes instructions wait for what they depend on."
    elif ways:
        yield f"Queues wait for each other by {', '.join(ways)}."
    if facts["issue"] != 1:
        yield f"An instruction is issued every {facts['issue']} cycles."
    fetch = facts["fetch"]
    if fetch is not None:
        each = f"{_count(fetch['burst'], 'instruction')} of {_count(fetch['bytes'], 'byte')}"
        room = f"there is room for {fetch['ahead']}"
        yield f"Instructions are fetched from {fetch['memory']}, {each} at a time; {room}."
    if facts["end"] is not None:
        yield f"A program ends with {facts['end']}."
    if facts["most_submitted"] is not None:
        yield f"The host hands over {facts['most_submitted']} instructions at a time."
    for m in facts["memories"]:
        if m["capacity"] is not None:
            yield f"Arrays of a submit take {m['capacity']:,} bytes of {m['name']} at most."


def _instruction(i: Mapping[str, Any]) -> Iterator[str]:
    """What an instruction takes, means and costs, and where its bits are: a line each."""
    yield from _section("operands", [(o["name"], _operand(o)) for o in i["operands"]])
    yield from _section("fields", [(f["name"], _field(f)) for f in i["fields"]])
    yield from _section("limits", [("", text) for text in i["limits"]])
    apart = "iterations between two that touch an element, at least"
    distances = [(d["operand"], f"{d['iterations']} {apart}") for d in i["distances"]]
    yield from _section("distance", distances)
    nothing = (
        "sets its registers" if i["fields"] else "does nothing: it waits, and lets others wait"
    )
    yield from _section("meaning", [("", line) for line in i["meaning"] or [nothing]])
    yield from _section("cost", [(name, _cost(name, v)) for name, v in i["cost"].items()])
    if i["native"]:
        yield from _section("native", [("", i["native"])])
    if i["encoding"] is not None:
        yield from _section("bits", list(_bits(i["encoding"])))
    lists = i["micro_operations"]
    if lists is not None:
        where = f"entries of {lists['bytes']} bytes in {lists['memory']}"
        yield from _section("list", [("", where)])
        if lists["encoding"] is not None:
            yield from _section("its bits", list(_bits(lists["encoding"])))


LABEL = 10  # columns of a section's title


def _section(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max((len(name) for name, _ in rows), default=0)
    for k, (name, text) in enumerate(rows):
        names = f"{name:<{width}}  " if width else ""
        yield f"  {title * (k == 0):<{LABEL}}{names}{text}".rstrip()


def _operand(o: Mapping[str, Any]) -> str:
    """ "i8[64, 16] in dram; step of axis 0: stride"."""
    steps = [f"step of axis {d}: {by}" for d, by in enumerate(o["strides"]) if by is not None]
    where = o["type"] + (f" in {o['memory']}" if o["memory"] else "")
    return "; ".join([where + (", written" if o["written"] else ""), *steps])


def _field(f: Mapping[str, Any]) -> str:
    steps = f", multiples of {f['multiple']}" if f["multiple"] > 1 else ""
    register = f"; in a register, set by {f['register']}" if f["register"] else ""
    return f"{f['low']} … {f['high']}{steps}{register}"


def _cost(name: str, value: object) -> str:
    unit = {"bytes": "", "energy": " pJ"}.get(name, " cycle" if value == 1 else " cycles")
    if name.startswith("bytes of"):
        unit = ""
    since = {"forward": " from its beginning, and its queue has the result",
             "exposed": " from its beginning; its queue does not wait for that"}  # fmt: skip
    return f"{value}{unit}{since.get(name, '')}"


def _bits(encoding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for p in encoding["parts"]:
        first, last = p["first"], p["last"]
        yield f"{first}" if first == last else f"{first} … {last}", stored(p)


# ---------------------------------------------------------------- check-target


def problem_json(p: Problem) -> dict[str, Any]:
    facts = {"what": p.what, "where": p.where or None, "why": p.why, "hint": p.hint}
    return {"severity": p.severity.value} | facts


def report_json(report: ConformanceReport) -> dict[str, Any]:
    h = report.hazards
    return {
        "conforms": report.conforms,
        "instructions": [
            {
                "name": i.name,
                "queue": i.queue,
                "cases": i.cases,
                "passed": i.passed,
                "encoding": i.encoding,
                "failure": i.failure or None,
            }
            for i in report.instructions
        ],
        "hazards": {
            "ordered": h.ordered,
            "left_out": h.left_out,
            "caught": h.caught,
            "unordered": list(h.unordered),
            "filled": h.filled,
            "failures": list(h.failures),
        },
        "missing": list(report.missing),
    }


def check_parts(
    problems: Sequence[Problem], report: ConformanceReport | None
) -> Iterator[str | Table]:
    """What check-target prints."""
    yield "\n".join(problem_lines(problems))
    if report is None:
        yield "failed: nothing was tried, for the parts do not fit together"
        return
    yield ""
    yield tried_table(report.instructions)
    yield "\n".join(["", *report_lines(report)])
    cases, passed = (
        sum(getattr(i, name) for i in report.instructions) for name in ("cases", "passed")
    )
    verdict = "failed" if errors_of(problems) or not report.conforms else "passed"
    yield f"{verdict}: {_count(errors_of(problems), 'error')}, {passed} of {_count(cases, 'case')}"


def errors_of(problems: Sequence[Problem]) -> int:
    return sum(p.severity is Severity.ERROR for p in problems)


def problem_lines(problems: Sequence[Problem]) -> list[str]:
    """Every problem, under one line that counts them."""
    errors = errors_of(problems)
    counts = f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}"
    return [f"lint: {counts if problems else 'nothing to say'}", *map(str, problems)]


def tried_table(rows: Sequence[InstructionReport]) -> Table:
    table = make_table("", "instruction", "queue", ">cases", ">passed", "encoding")
    for i in rows:
        table.add_row(i.name, i.queue, str(i.cases), str(i.passed), i.encoding)
    return table


def report_lines(report: ConformanceReport) -> list[str]:
    """What went wrong, and what is missing."""
    failed = [f"failed: {i.failure}" for i in report.instructions if i.failure]
    return [*failed, *_hazard_lines(report.hazards), *(f"missing: {m}" for m in report.missing)]


def _hazard_lines(h: HazardReport) -> Iterator[str]:
    if not h.ordered and not h.failures:
        return
    pairs = f"hazards: {_count(h.ordered, 'pair')} of instructions ordered"
    waits = f"{_count(h.left_out, 'wait')} left out, {h.caught} caught"
    yield f"{pairs} by the chip itself" if h.interlock else f"{pairs} by their waits; {waits}"
    yield f"queues: {_count(h.filled, 'pair')} filled beyond their depth"
    for failure in h.failures:
        yield f"failed: {failure}"
    if h.unordered:
        shown = ", ".join(h.unordered[:SHOWN]) + (", …" if len(h.unordered) > SHOWN else "")
        yield f"nothing makes one wait for the other directly: {shown}"


SHOWN = 4  # pairs that nothing orders


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
