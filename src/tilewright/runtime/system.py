"""What this machine has: memory to spare, CPUs this process may use, and its instruction sets.

Everything asks the system anew, since other programs and containers come and go.
"""

from __future__ import annotations

import functools
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm

from tilewright.base.errors import MemoryShortage

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")
PAGES = Path("/proc/self/statm")
MORE_MEMORY = (
    "run it where there is more memory, or raise the limit of the process (ulimit -v) or container"
)


def available_memory() -> int | None:
    """Bytes that this process can still use: of the machine, of each control group that it is in,
    and of its own address space. None where the system does not say."""
    room = [_machine_memory(), *_group_memory(), _address_space()]
    known = [n for n in room if n is not None]
    return min(known) if known else None


def require_memory(needed: int, purpose: str) -> None:
    """MemoryShortage if fewer bytes can be had. Asked before libraries are called that end the
    process when they get no memory."""
    room = available_memory()
    if room is not None and room < needed:
        raise MemoryShortage(
            f"{purpose} takes up to {format_bytes(needed)} of memory, and {format_bytes(room)} are"
            " available",
            hint=MORE_MEMORY,
        )


def out_of_memory(purpose: str) -> MemoryShortage:
    """For a MemoryError of somebody else's: it says what was being done, and what there is."""
    room = available_memory()
    left = "" if room is None else f": {format_bytes(room)} are available"
    return MemoryShortage(f"there is not enough memory for {purpose}{left}", hint=MORE_MEMORY)


def available_cpus() -> int:
    """CPUs that this process may keep busy."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min([count, *_group_cpus()]))


@functools.cache
def host_triple() -> str:
    return str(llvm.get_process_triple())


@functools.cache
def host_features() -> frozenset[str]:
    """LLVM's names of the instruction sets of this CPU."""
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


def format_bytes(count: int) -> str:
    """ "1.5 GiB", with the unit in which it is easiest to read."""
    if count < 1024:
        return f"{count} bytes"
    power = min(int(math.log(count, 1024)), 5)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power - 1]}"


# ---------------------------------------------------------------- memory


def _machine_memory() -> int | None:
    """Free memory, what caches would give up, and swap."""
    try:
        lines = MEMORY.read_text().splitlines()
    except OSError:
        return _free_pages()
    values = {name: int(rest.split()[0]) for name, _, rest in (s.partition(":") for s in lines)}
    if "MemAvailable" not in values:
        return _free_pages()
    return (values["MemAvailable"] + values.get("SwapFree", 0)) * 1024


def _free_pages() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _address_space() -> int | None:
    """What the process's own limit leaves."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _read(PAGES).split()
    if limit == resource.RLIM_INFINITY or not pages or not pages[0].isdecimal():
        return None
    return max(0, limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE"))


def _group_memory() -> Iterator[int | None]:
    """What each enclosing control group has left; its file cache counts as free."""
    for group in _groups(""):
        limit, used = _number(group / "memory.max"), _number(group / "memory.current")
        if limit is not None and used is not None:
            yield max(0, limit - used + _statistic(group / "memory.stat", "inactive_file"))
    for group in _groups("memory"):
        limit = _number(group / "memory.limit_in_bytes")
        used = _number(group / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            cache = _statistic(group / "memory.stat", "total_inactive_file")
            yield max(0, limit - used + cache)


def _group_cpus() -> Iterator[int]:
    """The CPU quota of each enclosing control group, rounded up."""
    for group in _groups(""):
        words = _read(group / "cpu.max").split()
        if len(words) == 2 and words[0].isdecimal() and int(words[1]) > 0:
            yield math.ceil(int(words[0]) / int(words[1]))
    for group in _groups("cpu"):
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if quota is not None and period:
            yield math.ceil(quota / period)


def _groups(controller: str) -> Iterator[Path]:
    """The control groups that this process is in, innermost first: version 2 for "", or those of
    a version 1 controller."""
    root = CGROUPS / controller if controller else CGROUPS
    for line in _read(MEMBERSHIP).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            place = root / path.lstrip("/")
            inner = place.is_relative_to(root) and ".." not in place.parts
            yield from (p for p in (place, *place.parents) if inner and p.is_relative_to(root))
            if not inner:  # a container that sees its own group as the root
                yield root
            return


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none ("max", or -1)."""
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


def _statistic(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
