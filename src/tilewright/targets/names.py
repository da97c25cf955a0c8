"""Targets by name: one table for `compile(…, target="avx2")` and for the command line.

"host" is this machine; the others are instruction-set levels (`cpu.LEVELS`), whose code can be made
anywhere. Chips (`CHIPS`) go by the names of the functions that describe them.
"""

from __future__ import annotations

from tilewright.base.errors import TargetError, did_you_mean
from tilewright.target.target import Target
from tilewright.targets import cpu
from tilewright.targets.chips import CHIPS

HOST = "host"
PROCESSORS = (HOST, *cpu.LEVELS)
NAMED = f"names: {', '.join((*PROCESSORS, *CHIPS))}"


def find_target(name: str, threads: int | None = None) -> Target:
    """The processor or chip called `name`; a processor with `threads` cores (by default all of this
    machine, one of any other). Raises TargetError for an unknown name."""
    if name in CHIPS:
        return CHIPS[name]()
    if name not in PROCESSORS:
        raise TargetError(
            f"there is no target called {name!r}",
            hint=did_you_mean(name, (*PROCESSORS, *CHIPS)),
        )
    if name == HOST:
        return cpu.host(threads=threads)
    return cpu.cpu(name, cores=threads or 1)
