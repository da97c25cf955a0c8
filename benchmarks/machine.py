"""What this machine is, and whether it is busy with something else."""

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

SIMD = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


@dataclass(frozen=True)
class Machine:
    """A description to print beside measurements."""

    cpu: str
    cores: int
    """That this process may use."""
    simd: tuple[str, ...]
    governor: str | None
    memory_gib: float
    system: str
    python: str

    def __str__(self) -> str:
        """One line."""
        cores = f"{self.cores} core" + ("s" if self.cores > 1 else "")
        parts = [
            f"{self.cpu}, {cores}, {self.memory_gib:.0f} GiB",
            " ".join(self.simd) or "no SIMD flags known",
            f"governor {self.governor or 'unknown'}",
            f"{self.system}, Python {self.python}",
        ]
        return " | ".join(parts)


def describe() -> Machine:
    """This machine; what cannot be found out is left unknown."""
    facts = _cpu_facts()
    flags = facts.get("flags", facts.get("Features", "")).split()
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        cpu=facts.get("model name") or platform.processor() or platform.machine(),
        cores=len(affinity(0)) if affinity else os.cpu_count() or 1,
        simd=tuple(flag for flag in SIMD if flag in flags),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def busy_cores(seconds: float = 0.5) -> float | None:
    """Cores that others keep busy, or take from a virtual machine; None where it is not known."""
    before = _processor_ticks()
    time.sleep(seconds)
    after = _processor_ticks()
    if before is None or after is None:
        return None
    return (after - before) / os.sysconf("SC_CLK_TCK") / seconds


def _cpu_facts() -> dict[str, str]:
    """The first processor's entry in Linux's list; empty elsewhere."""
    first = (_read("/proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _processor_ticks() -> int | None:
    """Ticks that all cores together have worked since the start; Linux only."""
    total = (_read("/proc/stat") or "").split("\n", 1)[0].split()
    if total[:1] != ["cpu"]:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft, stolen, *_ = map(int, total[1:])
    return user + nice + system + interrupts + soft + stolen


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
