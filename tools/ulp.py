"""How exact functions are: `make ulp`, or `python tools/ulp.py [NAME …]`.

Every function of one f32 is compiled for this machine (or `--level`) and compared with a library's
f64 on all 2**32 floats; functions of f16 and bf16 on all 2**16, and functions of two operands on
samples. What is found is kept in a file (`--state`), so that a run that was cut off goes on where
it was; `--json` writes the table. `--every 50` takes one block of floats in fifty.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from function_cases import (
    CASES,
    Case,
    compiled,
    exact_results,
    padded,
    samples,
)
from native import NativeKernel

from tilewright.base.dtype import DType, bf16, f16, f32
from tilewright.target.target import Target
from tilewright.targets import cpu

BLOCK = 1 << 14  # floats at once: operands and results stay in the caches
SAVE_SECONDS = 5.0


@dataclass
class Row:
    """The most that results were off, in units of the last place, and where; `blocks` are done."""

    function: str
    dtype: str
    worst: float = 0.0
    at: str = ""
    found: str = ""
    exact: str = ""
    values: int = 0
    blocks: int = 0
    seconds: float = 0.0

    def add(self, off: np.ndarray, operands: list[np.ndarray], found: np.ndarray, exact) -> None:
        """Takes in one block's results."""
        k = int(off.argmax())
        self.values += off.size
        if off[k] > self.worst:
            self.worst = float(off[k])
            self.at = ", ".join(repr(float(a[k])) for a in operands)
            self.found, self.exact = repr(float(found[k])), repr(float(exact[k]))


class Sweep:
    """One function over all floats, block by block."""

    def __init__(self, case: Case, dtype: DType, target: Target) -> None:
        self.case = case
        self.size = min(BLOCK, 1 << dtype.bits)
        self.dtype = dtype
        self.code: NativeKernel = compiled(case, dtype, self.size, target)
        self.row = Row(case.name, dtype.name)
        self.codes = np.arange(self.size, dtype=f"u{dtype.bits // 8}")

    def _call(self, x: np.ndarray) -> np.ndarray:
        found = np.empty_like(x)
        self.code.fill([x], [found])
        return found

    def block(self, index: int) -> None:
        """Floats whose bits begin at index * BLOCK. Of a function that is its own mirror image the
        negative half must be that, to the bit, and has the same errors."""
        first = index * self.size
        x = (self.codes + self.codes.dtype.type(first)).view(self.dtype.numpy)
        found = self._call(x)
        negative = first >= 1 << (self.dtype.bits - 1)
        if negative and self.case.mirror:
            image = self._call(-x)
            image = -image if self.case.mirror < 0 else image
            same = (found == image) | (np.isnan(found) & np.isnan(image))
            same &= np.isnan(found) | (np.signbit(found) == np.signbit(image))
            off = np.where(same, 0.0, np.inf)
            self.row.add(off, [x], found, image)
            return
        exact = exact_results(self.case, (x,))
        self.row.add(self.case.off((x,), found, exact), [x], found, exact)


def sampled(case: Case, dtype: DType, target: Target) -> Row:
    """A function of two operands, on samples."""
    row = Row(case.name, dtype.name)
    operands = padded(samples(case, dtype, mantissas=2000))
    found = np.empty_like(operands[0])
    compiled(case, dtype, found.size, target).fill(operands, [found])
    exact = exact_results(case, operands)
    row.add(case.off(operands, found, exact), list(operands), found, exact)
    return row


# ---------------------------------------------------------------- keeping what is done


class State:
    """The rows found so far, in a file."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        kept = json.loads(path.read_text()) if path.exists() else {}
        rows = kept["rows"] if kept.get("key") == key else []
        self.rows = {(r["function"], r["dtype"]): Row(**r) for r in rows}
        self.saved = time.monotonic()

    def put(self, row: Row, *, now: bool) -> None:
        """Keeps a row; writes the file now, or when some seconds have gone by."""
        self.rows[row.function, row.dtype] = row
        if now or time.monotonic() - self.saved > SAVE_SECONDS:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            rows = [asdict(r) for r in self.rows.values()]
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps({"key": self.key, "rows": rows}, indent=1))
            part.replace(self.path)
            self.saved = time.monotonic()


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text:<79}")
        sys.stderr.flush()


def sweep(case: Case, dtype: DType, target: Target, state: State, every: int) -> Row:
    """All floats of a type, or one block in `every`; goes on where the state says."""
    run = Sweep(case, dtype, target)
    kept = state.rows.get((case.name, dtype.name))
    run.row = kept or run.row
    total = (1 << dtype.bits) // run.size
    blocks = range(0, total, every if total > 1 else 1)
    begun, first = time.monotonic(), run.row.blocks
    spent = run.row.seconds
    for done in range(first, len(blocks)):
        run.block(blocks[done])
        run.row.blocks = done + 1
        run.row.seconds = spent + time.monotonic() - begun
        state.put(run.row, now=False)
        if done % 1024 == 0:
            left = (time.monotonic() - begun) / (done + 1 - first) * (len(blocks) - done - 1)
            progress(f"{case.name} of {dtype}: {(done + 1) / len(blocks):4.0%}, {left:.0f} s left")
    state.put(run.row, now=True)
    return run.row


# ---------------------------------------------------------------- the table


def rows(names: list[str], target: Target, state: State, every: int) -> Iterator[Row]:
    for name in names:
        case = CASES[name]
        if case.operands == 2:
            yield sampled(case, f32, target)
            continue
        for dtype in (f32, f16, bf16):
            yield sweep(case, dtype, target, state, every)


def line(row: Row, bound: float) -> str:
    kept = "" if row.worst <= bound else f"  beyond the bound of {bound}"
    where = f"{row.function}({row.at}) = {row.found}, not {row.exact}"
    return f"{row.function:9} {row.dtype:5} {row.worst:8.4f}  {row.values:>13,}  {where}{kept}"


def markdown(found: list[Row]) -> str:
    """The table of docs/accuracy.md: a line for each function."""
    lines = ["| function | promised | f32 | at | f16 | bf16 |", "|---|---:|---:|---|---:|---:|"]
    by_name: dict[str, dict[str, Row]] = {}
    for row in found:
        by_name.setdefault(row.function, {})[row.dtype] = row
    for name, rows in by_name.items():
        worst = [f"{rows[t].worst:.4f}" if t in rows else "" for t in ("f32", "f16", "bf16")]
        cells = [f"`{name}`", CASES[name].promised, worst[0], rows["f32"].at, *worst[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def bound_of(row: Row) -> float:
    """What docs/semantics.md promises."""
    return CASES[row.function].bound if row.dtype == "f32" else 0.501


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}")
    parser.add_argument("--level", default="host", help="host, or an instruction-set level (avx2)")
    parser.add_argument("--every", type=int, default=1, help="take one block of floats in so many")
    parser.add_argument("--json", type=Path, help="write the table here")
    parser.add_argument("--markdown", type=Path, help="write the table of docs/accuracy.md here")
    parser.add_argument("--state", type=Path, default=Path("build/ulp-state.json"))
    options = parser.parse_args()
    unknown = [n for n in options.names if n not in CASES]
    if unknown:
        parser.error(f"there is no function called {unknown[0]}; there are {', '.join(CASES)}")
    level = options.level
    target = cpu.host(threads=1) if level == "host" else cpu.cpu(level)
    state = State(options.state, f"{level} every {options.every}")
    found = []
    for row in rows(options.names or list(CASES), target, state, options.every):
        progress("")
        sys.stdout.write(("\r" if sys.stderr.isatty() else "") + line(row, bound_of(row)) + "\n")
        sys.stdout.flush()
        found.append(row)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in found], indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(found))
    return int(any(r.worst > bound_of(r) for r in found))


if __name__ == "__main__":
    sys.exit(main())
