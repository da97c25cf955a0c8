"""What the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from tilewright.base.words import nanoseconds, quantity
from tilewright.cli.check import CheckReport, Comparison
from tilewright.cli.layout import Column, fit_table, make_table
from tilewright.cli.measure import PieceRow, StepRow, Timing, costliest, totals
from tilewright.ir.op import Op, attr_rows
from tilewright.program.host_program import Slot
from tilewright.program.size import format_size
from tilewright.report.limits import Limits
from tilewright.runtime.module import Module
from tilewright.runtime.system import format_bytes
from tilewright.target.target import Target

FIRST = 4  # elements of an output that are shown


def to_json(value: object) -> str:
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> Any:
    """JSON has no infinities and no NaN: they become texts."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return str(value)


# ---------------------------------------------------------------- run


def tensor_json(tensor: Slot) -> dict[str, Any]:
    shape = [d if isinstance(d, int) else format_size(d) for d in tensor.shape]
    return {"name": tensor.name, "dtype": tensor.dtype.name, "shape": shape}


def result_json(tensor: Slot, array: np.ndarray, file: Path | None) -> dict[str, Any]:
    numbers = array.astype(np.float64)
    found = (
        {"min": numbers.min(), "mean": numbers.mean(), "max": numbers.max()} if array.size else {}
    )
    return {
        "name": tensor.name,
        "dtype": tensor.dtype.name,
        "shape": list(array.shape),
        **{k: float(v) for k, v in found.items()},
        "first": [_number(v) for v in array.reshape(-1)[:FIRST]],
        "file": None if file is None else str(file),
    }


def _number(value: Any) -> Any:
    return value.item() if value.dtype.kind in "biu" else float(value)


RESULT_COLUMNS = (
    Column("output", is_name=True),
    Column("type"),
    Column(">min"),
    Column(">mean"),
    Column(">max"),
    Column("first elements", spare=1),
    Column("file"),
)


def results_table(results: Sequence[Mapping[str, Any]], width: int) -> Table:
    rows = []
    for r in results:
        numbers = [f"{r[k]:.6g}" if k in r else "–" for k in ("min", "mean", "max")]
        first = ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in r["first"])
        shape = ", ".join(map(str, r["shape"]))
        rows.append([r["name"], f"{r['dtype']}[{shape}]", *numbers, first, r["file"] or ""])
    return fit_table(RESULT_COLUMNS, rows, width)


# ---------------------------------------------------------------- check


def report_json(report: CheckReport) -> dict[str, Any]:
    culprit = None
    if report.culprit is not None:
        culprit = {
            "nodes": report.culprit.nodes,
            "stage": report.culprit.stage,
            **_comparison_json(report.culprit.comparison),
        }
    return {
        "reference": report.reference,
        "agrees": report.agrees,
        "outputs": [_comparison_json(c) for c in report.outputs],
        "first_difference": culprit,
    }


def _comparison_json(c: Comparison) -> dict[str, Any]:
    return {
        "name": c.name,
        "difference": c.difference,
        "allowed": c.allowed,
        "problem": c.problem,
    }


def report_lines(report: CheckReport) -> list[str]:
    """The comparison in words."""
    if report.agrees:
        worst = max((c.difference for c in report.outputs), default=0.0)
        return [f"check: agrees with {report.reference} (largest difference {worst:.2g})"]
    lines = [f"check: differs from {report.reference}"]
    for c in report.outputs:
        if c.problem is not None:
            lines.append(
                f"  output {c.name}: {c.problem}; off by {c.difference:.3g},"
                f" {c.allowed:.3g} is allowed"
            )
    if report.culprit is None:
        lines.append("  every intermediate value agrees: only the outputs' own step is left")
        return lines
    nodes, c = ", ".join(report.culprit.nodes), report.culprit.comparison
    how = {
        "compiled": "the compiled step differs from what the model means",
        "imported": "the model was read otherwise than the reference reads it",
    }
    lines.append(f"  first at {nodes}: {how[report.culprit.stage]}")
    lines.append(f"  value {c.name}: {c.problem}; off by {c.difference:.3g}")
    return lines


# ---------------------------------------------------------------- bench and explain


def timing_json(timing: Timing) -> dict[str, Any]:
    return {
        "calls": timing.calls,
        "nanoseconds": {
            "fastest": timing.fastest,
            "median": timing.median,
            "slowest_tenth": timing.slowest_tenth,
        },
        "calls_per_second": timing.per_second,
    }


def timing_line(timing: Timing) -> str:
    return (
        f"{nanoseconds(timing.median)} a call (fastest {nanoseconds(timing.fastest)}, slowest tenth"
        f" from {nanoseconds(timing.slowest_tenth)} on), {_rate(timing.per_second)} calls a second,"
        f" over {timing.calls} calls"
    )


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def step_json(row: StepRow) -> dict[str, Any]:
    return {
        "step": row.number,
        "kind": row.kind,
        "kernel": row.name,
        "device": row.device or "host",
        "nodes": row.nodes,
        "nanoseconds": row.nanoseconds,
        "share": row.share,
        "operations": row.operations,
        "bytes": row.bytes,
        "bound_nanoseconds": None if row.bound is None else row.bound.nanoseconds,
        "bound_by": None if row.bound is None else row.bound.limit,
        "memory": None if row.bound is None else row.bound.memory,
        "of_bound": row.of_bound,
        "cycles": row.cycles,
        "device_nanoseconds": row.device_nanoseconds,
        "obstacles": list(row.obstacles),
        "fallback": row.fallback or None,
        "cycle_bound": row.cycle_bound,
        "pieces": [asdict(p) | {"of_bound": p.of_bound} for p in row.pieces],
    }


DEVICE_COLUMNS = (Column(">cycles"), Column(">on device"))
STEP_COLUMNS = (
    Column(">step"),
    Column("kernel", is_name=True),
    Column("device", spare=5),
    Column(">time"),
    Column(">share"),
    Column(">operations", spare=4),
    Column(">bytes", spare=3),
    Column(">of bound"),
    Column("bound by", spare=1),
    Column("nodes", is_name=True, spare=2),
)


def steps_table(rows: Sequence[StepRow], width: int, worst: int | None = None) -> Table:
    """A row for each step, or for the `worst` that take longest, and the sums over all."""
    shown = costliest(rows, worst)
    cells, device_cells = [], []
    for r in shown:
        cells += [_step_cells(r), *(_piece_cells(r, k) for k in range(len(r.pieces)))]
        device_cells += [_device_cells(r), *map(_device_cells, r.pieces)]
    numbers = {r.number for r in shown}
    left = [r for r in rows if r.number not in numbers]
    if left:
        spent, share = (sum(getattr(r, name) for r in left) for name in ("nanoseconds", "share"))
        others = f"{len(left)} other{'s' if len(left) > 1 else ''}"
        cells.append(["", others, "", nanoseconds(spent), f"{share:.1%}", "", "", "", "", ""])
        device_cells.append(["", ""])
    sums = totals(rows)
    bound = sums["bound"] / sums["nanoseconds"] if sums["nanoseconds"] else 0
    cells.append(
        ["", "all", "", nanoseconds(sums["nanoseconds"]), "100.0%",
         quantity(sums["operations"] or None, "op"), quantity(sums["bytes"], "B"),
         f"{bound:.0%}", "", ""]
    )  # fmt: skip
    if not any(r.cycles for r in rows):
        return fit_table(STEP_COLUMNS, cells, width)
    cycles = sum(r.cycles or 0 for r in rows)
    there = sum(r.device_nanoseconds or 0 for r in rows)
    device_cells.append([f"{cycles:,}", nanoseconds(round(there))])
    columns = (*STEP_COLUMNS[:5], *DEVICE_COLUMNS, *STEP_COLUMNS[5:])
    pairs = zip(cells, device_cells, strict=True)
    return fit_table(columns, [[*c[:5], *d, *c[5:]] for c, d in pairs], width)


def _device_cells(r: StepRow | PieceRow) -> list[str]:
    if r.cycles is None or r.device_nanoseconds is None:
        return ["", ""]
    return [f"{r.cycles:,}", nanoseconds(round(r.device_nanoseconds))]


def _step_cells(r: StepRow) -> list[str]:
    return [
        str(r.number),
        r.name,
        r.device or "host",
        nanoseconds(r.nanoseconds),
        f"{r.share:.1%}",
        quantity(r.operations, "op"),
        quantity(r.bytes, "B"),
        _share_of_bound(r.of_bound),
        _bound_by(r),
        ", ".join(r.nodes),
    ]


def _piece_cells(r: StepRow, k: int) -> list[str]:
    """One of the kernels of a step."""
    p = r.pieces[k]
    name, nodes = f"  {p.name}", ", ".join(p.nodes)
    operations, bound = quantity(p.operations, "op"), _share_of_bound(p.of_bound)
    return [f"{r.number}.{k + 1}", name, r.device, "", "", operations, "", bound, "", nodes]


def _share_of_bound(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _bound_by(row: StepRow) -> str:
    """ "memory (l2)"."""
    if row.bound is None:
        return {"host_call": "Python", "submit": "simulated"}.get(row.kind, "–")
    return row.bound.limit + (f" ({row.bound.memory})" if row.bound.memory else "")


def limits_json(limits: Limits) -> dict[str, Any]:
    return {
        "operations_per_second": limits.operations_per_second,
        "instructions": [{"name": n, "operations_per_second": r} for n, r in limits.rates],
        "step_nanoseconds": limits.step_nanoseconds,
        "memories": [
            {"name": m.name, "bytes": m.bytes, "bytes_per_second": m.bytes_per_second}
            for m in limits.levels
        ],
    }


def limits_line(limits: Limits) -> str:
    """What the bounds are made of."""
    rates = ", ".join(f"{m.name} {quantity(m.bytes_per_second, 'B/s')}" for m in limits.levels)
    threads = f"{limits.threads} thread{'s' if limits.threads != 1 else ''}"
    peaks = limits.rates or (("float32", limits.operations_per_second),)
    arithmetic = ", ".join(f"{quantity(rate, 'op/s')} ({name})" for name, rate in peaks)
    return (
        f"at best, measured here with {threads}:"
        f" {arithmetic}, reading from {rates};"
        f" an empty step takes {nanoseconds(limits.step_nanoseconds)}"
    )


def host_lines(rows: Sequence[StepRow]) -> list[str]:
    """Steps that are not compiled code deserve a word, and those that could be elsewhere."""
    names = dict.fromkeys(r.name for r in rows if r.kind == "host_call")
    found = [f"runs outside compiled code, in Python: {', '.join(names)}"] if names else []
    if any(r.kind == "submit" for r in rows):
        found.append("the time of what is submitted is that of its simulation, here")
    for r in rows:
        found += [f"step {r.number}, {r.name}, is not on {why}" for why in r.obstacles]
        if r.fallback:
            found.append(f"step {r.number}, {r.name}, has a plain schedule: {r.fallback}")
    return found


# ---------------------------------------------------------------- compile, ops, targets


def module_json(module: Module) -> dict[str, Any]:
    program = module.program
    return {
        "name": module.name,
        "target": module.target.name,
        "triple": module.target.triple,
        "inputs": [tensor_json(t) for t in module.inputs],
        "outputs": [tensor_json(t) for t in module.outputs],
        "steps": len(program.steps),
        "kernels": len(program.objects) - 1,
        "code_bytes": sum(len(data) for _, data in program.objects),
        "constant_bytes": sum(c.size for c in program.constants),
    }


def module_line(module: Module) -> str:
    m = module_json(module)
    inputs, outputs = (", ".join(map(str, ts)) for ts in (module.inputs, module.outputs))
    return (
        f"{m['name']}: {inputs} -> {outputs}\n"
        f"{m['kernels']} kernels in {m['steps']} steps, {format_bytes(m['code_bytes'])} of code,"
        f" {format_bytes(m['constant_bytes'])} of constants"
    )


def op_json(op: Op) -> dict[str, Any]:
    return {
        "name": op.name,
        "doc": op.doc,
        "category": op.category.value,
        "inputs": list(op.arity),
        "types": op.types,
        "attributes": attr_rows(op),
    }


def ops_table(ops: Sequence[Op]) -> Table:
    table = make_table("", "operator", "category", "types", "meaning")
    for op in ops:
        table.add_row(op.name, op.category.value, op.types, op.doc)
    return table


def onnx_lines(names: Mapping[str, Sequence[str]]) -> list[str]:
    """One operator a line."""
    found = [f"{domain}.{name}" for domain in names for name in names[domain]]
    return [*found, "and what ONNX, or the model itself, defines by these"]


def op_tables(op: Op) -> list[Any]:
    """One operator, with its attributes."""
    least, most = op.arity
    arity = str(least) if least == most else f"{least} or more" if most > 99 else f"{least}–{most}"
    lines = f"{op.name}: {op.doc}\ninputs {arity}, types {op.types}, category {op.category.value}"
    rows = attr_rows(op)
    if not rows:
        return [lines, "no attributes"]
    table = make_table("", "attribute", "type", "default", "legal", "meaning")
    for row in rows:
        table.add_row(row["name"], row["type"], str(row["default"]), _legal(row), row["doc"])
    return [lines, table]


def _legal(row: Mapping[str, Any]) -> str:
    if row["choices"] is not None:
        return ", ".join(map(repr, row["choices"]))
    low, high = row["low"], row["high"]
    if low is None and high is None:
        return ""
    return f"{'' if low is None else low} … {'' if high is None else high}".strip()


def target_json(name: str, target: Target) -> dict[str, Any]:
    native, vector = target.llvm, target.vectors
    return {
        "name": name,
        "triple": native.triple,
        "processor": native.processor,
        "cores": target.cores,
        "clock": target.clock,
        "vector_bytes": vector.bytes,
        "vector_registers": vector.registers,
        "memories": {m.name: m.size for m in target.memories if m.size is not None},
        "features": list(native.features),
    }


def target_line(name: str, target: Target) -> str:
    if target.native is None:
        return f"{name} (a chip of {target.clock / 1e6:,.0f} MHz, simulated)"
    t = target_json(name, target)
    return (
        f"{name} ({t['triple'].split('-')[0]} {t['processor']}, {t['cores']}"
        f" core{'s' if t['cores'] != 1 else ''}, vectors of {t['vector_bytes']} bytes)"
    )


TARGET_COLUMNS = (
    Column("target"),
    Column("processor", is_name=True),
    Column(">cores", spare=1),
    Column(">vector"),
    Column(">registers", spare=2),
    Column("caches", folds=True),
)


def targets_table(targets: Mapping[str, Target], width: int) -> Table:
    rows = []
    for name, target in targets.items():
        t = target_json(name, target)
        caches = ", ".join(f"{k} {format_bytes(v)}" for k, v in t["memories"].items())
        kind = f"{t['triple'].split('-')[0]} {t['processor']}"
        size, count = f"{t['vector_bytes']} bytes", str(t["vector_registers"])
        rows.append([name, kind, str(t["cores"]), size, count, caches])
    return fit_table(TARGET_COLUMNS, rows, width)
