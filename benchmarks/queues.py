"""What queues of few commands and few tokens cost: ResNet-18's layers on VTA, in simulated cycles.

    python benchmarks/queues.py             two minutes
    python benchmarks/queues.py --json FILE

Commands are instructions that a queue holds before they begin: in-order fetch stands still when the
next one's queue is full. Tokens are those of one queue for another that are untaken: a queue that
has no room for one stands still. VTA's Chisel core holds 512 commands, and its HLS core has
FIFOs of 8 for both; the description is of the first, with the tokens of the second. Results are
compared with numpy, to the bit.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from chip_kernels import FIRST, RESNET18
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tilewright.chip import build_chip
from tilewright.target.vary import with_depths
from tilewright.targets.vta import vta

ANY = 1 << 20
DEPTHS: list[tuple[int, int | None]] = [
    (ANY, None), (512, None), (512, 8), (16, None), (8, None), (16, 16), (8, 8), (8, 4),
]  # fmt: skip


def heading(commands: int, tokens: int | None) -> str:
    """ "8, 4"."""
    return ", ".join("any" if n in (ANY, None) else str(n) for n in (commands, tokens))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows, exact = [], True
    for conv in track([FIRST, *RESNET18], "layers", console=Console(stderr=True)):
        case, cycles = conv.case(), []
        arguments = case.arguments()
        wanted = case.reference(*arguments[:-1])
        for commands, tokens in DEPTHS:
            built = build_chip(case.kernel, with_depths(vta(), commands, tokens))
            exact &= np.array_equal(built(*arguments), wanted)
            cycles.append(built.cycles)
        rows.append((case.name, cycles))
    shown = Table("layer", *(heading(*d) for d in DEPTHS), box=None)
    sums = [sum(column) for column in zip(*(c for _, c in rows), strict=True)]
    for name, cycles in [*rows, ("all", sums)]:
        shown.add_row(name, *(f"{n:,}" for n in cycles))
    Console(width=130).print(shown)
    if options.json is not None:
        names = [heading(*d) for d in DEPTHS]
        table = {name: dict(zip(names, cycles, strict=True)) for name, cycles in rows}
        options.json.write_text(json.dumps(table, indent=2))
    return int(not exact)


if __name__ == "__main__":
    sys.exit(main())
