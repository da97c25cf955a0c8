"""What `tilewright cache` shows of the folder with what was compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.compile_cache import KERNEL, MODEL
from tilewright.runtime.cache import FOLDER, SIZE, find_cache, parse_size
from tilewright.runtime.system import format_bytes

_NAMES = {MODEL: "model", KERNEL: "kernel"}


def cache_state(keep: str | None) -> dict[str, Any]:
    """The folder, its limit, and what is in it, by kind: how many entries, and bytes. At most
    `keep` bytes ("500M") are left, where given."""
    cache = find_cache(None)
    if cache is None:
        return {"folder": None}
    removed = [] if keep is None else cache.trim(parse_size(keep))
    left = list(cache.entries())
    kinds = {
        name: {"entries": len(found), "bytes": sum(e.size for e in found)}
        for kind, name in _NAMES.items()
        for found in [[e for e in left if e.kind == kind]]
    }
    state = {"folder": str(cache.folder), "limit": cache.limit, **kinds}
    return state | {"removed": {"entries": len(removed), "bytes": sum(e.size for e in removed)}}


def cache_lines(state: Mapping[str, Any]) -> Iterator[str]:
    """The same in words."""
    if state["folder"] is None:
        yield f"nothing is kept: {FOLDER} is off, or another user's folder"
        return
    shown = [_shown(state[name], name) for name in _NAMES.values()]
    yield f"{state['folder']}: {', '.join(shown)}"
    if state["removed"]["entries"]:
        yield f"removed: {_shown(state['removed'], 'entry')}"
    yield f"limit: {format_bytes(state['limit'])} ({SIZE} sets another)"


def _shown(found: Mapping[str, int], name: str) -> str:
    count = found["entries"]
    many = "entries" if name == "entry" else f"{name}s"
    return f"{count} {name if count == 1 else many} ({format_bytes(found['bytes'])})"
