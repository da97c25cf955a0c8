"""What a kernel's author decides of its schedule on a chip; the rest is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Var

SHOWN = 12  # sizes that an error lists


@dataclass(frozen=True)
class Control:
    """By the names of the contraction's loops: `tile` has how many iterations a tile holds, `whole`
    the loops that tiles do not cut (True: none). Without `overlap` one tile is done after another.
    With `rings`, what a tile has in common with the next stays in local memory. `serial` makes
    every instruction wait until all before it are done."""

    tile: Mapping[str, int] = field(default_factory=dict)
    whole: Sequence[str] | bool = ()
    overlap: bool = True
    rings: bool | None = None
    serial: bool = False

    def sizes(
        self, kernel: str, extents: Mapping[Var, int], free: Mapping[Var, Sequence[int]]
    ) -> dict[Var, list[int]]:
        """What is left to choose of the sizes that tiles may have along each loop."""
        by_name = {v.name: v for v in free}
        whole = self._whole(list(by_name))
        found = {v: list(sizes) for v, sizes in free.items()}
        for name in (*self.tile, *whole):
            if name not in by_name:
                known = ", ".join(f"{n} of {extents[v]}" for n, v in by_name.items())
                raise ScheduleError(
                    f"{name!r} is no loop of the contraction of {kernel} that has tiles",
                    hint=f"those are {known}",
                )
            if name in self.tile and name in whole:
                raise ScheduleError(
                    f"{name} is to be whole, and to have tiles of {self.tile[name]}",
                    hint="take it out of one of whole and tile",
                )
            var = by_name[name]
            size = extents[var] if name in whole else self.tile[name]
            if size not in found[var]:
                raise ScheduleError(
                    f"tiles of {kernel} cannot hold {size} iterations of {name}",
                    hint=f"they can hold {_listed(free[var])}",
                )
            found[var] = [size]
        return found

    def _whole(self, names: Sequence[str]) -> Sequence[str]:
        if isinstance(self.whole, bool):
            return names if self.whole else ()
        return (self.whole,) if isinstance(self.whole, str) else self.whole

    def __str__(self) -> str:
        """ "tiles of 32 for i, and k whole": what is pinned; "" for nothing."""
        parts = [f"tiles of {n} for {name}" for name, n in self.tile.items()]
        names = self._whole(["all loops"])
        parts += [f"{', '.join(names)} whole"] if names else []
        return ", and ".join(parts)


CHOSEN = Control()  # nothing is decided: all is chosen


def _listed(sizes: Sequence[int]) -> str:
    """ "16, 32 or 64"."""
    shown = [str(n) for n in sizes]
    if len(shown) > SHOWN:
        shown = [*shown[: SHOWN - 1], "…", shown[-1]]
    *most, last = shown or ["none"]
    return f"{', '.join(most)} or {last}" if most else last
