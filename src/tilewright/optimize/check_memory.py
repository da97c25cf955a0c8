"""Whether a host program fits the memory there is, asked before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import TargetError
from tilewright.program.host_program import HostProgram, Memory
from tilewright.program.size import evaluate_size

SHOWN = 3  # of the largest values


def check_memory(
    program: HostProgram,
    available_bytes: int | Mapping[str, int],
    symbols: Mapping[str, int] | None = None,
) -> None:
    """TargetError when the program's memories take more than there is: of each device's (a
    mapping, in which a device may be missing), or of the host's (a number)."""
    limits = {"": available_bytes} if isinstance(available_bytes, int) else available_bytes
    symbols = symbols or {}
    for device, limit in limits.items():
        memories = [m for m in program.memories if m.device == device]
        sizes = {m: evaluate_size(m.size, symbols) for m in memories}
        if sum(sizes.values()) > limit:
            raise _too_large(program, device, limit, sizes, symbols)


def _too_large(
    program: HostProgram,
    device: str,
    limit: int,
    sizes: Mapping[Memory, int],
    symbols: Mapping[str, int],
) -> TargetError:
    kinds: dict[str, int] = {}
    for memory, size in sizes.items():
        kinds[memory.kind.value] = kinds.get(memory.kind.value, 0) + size
    parts = ", ".join(f"{kind} {show_bytes(size)}" for kind, size in kinds.items())
    given = ", ".join(f"{name} = {value}" for name, value in symbols.items())
    names = {m.name for m in sizes}
    values = [(evaluate_size(s.bytes, symbols), s) for s in program.slots if s.memory in names]
    values.sort(key=lambda pair: (-pair[0], pair[1].name))
    largest = ", ".join(f"{s.name} {s.type} {show_bytes(size)}" for size, s in values[:SHOWN])
    total = sum(sizes.values())
    return TargetError(
        f"{program.name} needs {show_bytes(total)} of {device or 'host'} memory"
        f"{f' for {given}' if given else ''}, and {show_bytes(limit)} are available: {parts}",
        hint=f"the largest values are {largest}; use a smaller batch or input, or a smaller type",
    )


def show_bytes(size: int) -> str:
    """1536 -> "1.5 KiB"."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
