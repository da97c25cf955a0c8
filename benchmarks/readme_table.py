"""The README's table and picture of latencies, from what `cpu.py --json` wrote: no number is typed.

python benchmarks/readme_table.py build/bench.json           print the table
python benchmarks/readme_table.py build/bench.json --write   put it into README.md, and draw
                                                             docs/images/latency.svg
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from latency_chart import draw

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "latency.svg"
BEGIN = "<!-- latencies: made by benchmarks/readme_table.py, not by hand -->"
END = "<!-- end of latencies -->"
OURS = "tilewright"

Json = dict[str, Any]


def make_table(report: Json) -> str:
    """Markdown: what it was measured on, and a row for each model and number of threads."""
    cases = report["cases"]
    engines = list(dict.fromkeys(m["engine"] for c in cases for m in c["measurements"]))
    names = [f"{e} {_version(cases, e)}" for e in engines]
    head = ["model", "threads", *names, "ours / best other", "arithmetic at peak"]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for case in cases:
        found = {m["engine"]: m for m in case["measurements"]}
        ratio = "–" if case["ratio"] is None else f"**{case['ratio']:.2f}**"
        times = [_time(found.get(e)) for e in engines]
        lines.append(
            _line([case["model"], str(case["threads"]), *times, ratio, f"{case['bound_ms']:.3g}"])
        )
    return "\n".join([_caption(report), "", *lines])


def _caption(report: Json) -> str:
    machine = report["machine"]
    cores = f"{machine['cores']} core{'s' if machine['cores'] != 1 else ''}"
    return (
        f"Milliseconds for one inference: median (fastest). {machine['cpu']}, {cores},"
        f" {_simd(machine['simd'])}; float32, batch 1; the engines were measured in turn."
        f" *Arithmetic at peak*: direct algorithms at {report['peak']['gflops_per_core']:.0f}"
        " GFLOP/s a core, measured."
    )


def _simd(flags: list[str]) -> str:
    return "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else ", ".join(flags)


def _version(cases: list[Json], engine: str) -> str:
    found = [m["version"] for c in cases for m in c["measurements"] if m["engine"] == engine]
    return found[0].split("-")[0]


def _time(measurement: Json | None) -> str:
    if measurement is None or measurement["failure"] or not measurement.get("min_ms"):
        return "–"
    times = [t for times in measurement["rounds_ms"] for t in times]
    return f"{median(times):.3g} ({min(times):.3g})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---------------------------------------------------------------- the command


def put_between(text: str, table: str) -> str:
    """The text with what stands between the marks replaced."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"README.md has no lines {BEGIN!r} and {END!r}")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END, 1)[1]}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        prog="readme_table.py", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("report", type=Path, help="what cpu.py --json wrote")
    parser.add_argument("--write", action="store_true", help="change README.md and the picture")
    options = parser.parse_args(arguments)
    try:
        report = json.loads(options.report.read_text())
        table = make_table(report)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"{options.report} is not what cpu.py --json writes: {error}")
    if not options.write:
        print(table)
        return 0
    README.write_text(put_between(README.read_text(encoding="utf-8"), table), encoding="utf-8")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(report), encoding="utf-8")
    print(f"wrote {README.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
