"""The tiles that are left when a kernel's author has decided some, and what to say if there are
none."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

from tilewright.base.errors import TargetError
from tilewright.ir.loop import Kernel
from tilewright.plan.choose_tiles import Choice, choose_tiles
from tilewright.plan.control import Control
from tilewright.plan.step_times import Run
from tilewright.plan.tile_model import TileModel, tile_sizes
from tilewright.target.target import Target
from tilewright.target.vary import with_memory

LARGEST = 1 << 40  # bytes


def controlled_tiles(
    kernel: Kernel, model: TileModel, control: Control, run: Run | None
) -> list[Choice]:
    """The tiles that fit the memories and are as the author says, the fastest first."""
    extents = {x.var: int(x.extent) for x in model.loops}
    sizes = control.sizes(kernel.name, extents, tile_sizes(model))
    return choose_tiles(model, run, overlap=control.overlap, rings=bool(control.rings), sizes=sizes)


def no_tile(kernel: Kernel, model: TileModel, control: Control) -> TargetError:
    """The error where no tile fits: which memory is too small."""
    target = model.target
    for name, size in _sizes(target).items():
        need = _least(size, partial(_fits, kernel, model, control, name))
        if need is not None:
            what = (
                f"{_what(kernel, control)} fits {name} of {target.name}, which has {size:,} bytes"
            )
            return TargetError(f"{what}: the smallest takes {need:,}", hint=_hint(control))
    return no_tile_fits(kernel, target, control)


def no_tile_fits(kernel: Kernel, target: Target, control: Control) -> TargetError:
    """The error where no tile fits, and no memory alone is to blame."""
    held = ", ".join(f"{name} {size:,}" for name, size in _sizes(target).items())
    several = ": several are too small" if len(_sizes(target)) > 1 else ""
    return TargetError(
        f"{_what(kernel, control)} fits the memories of {target.name}, in bytes ({held}){several}",
        hint=_hint(control),
    )


def _sizes(target: Target) -> dict[str, int]:
    return {m.name: m.size for m in target.memories if m.size is not None}


def _what(kernel: Kernel, control: Control) -> str:
    return f"no tile of {kernel.name}" + (f" with {control}" if str(control) else "")


def _hint(control: Control) -> str:
    ways = ["smaller tiles, or fewer loops whole"] * bool(str(control))
    ways += ["overlap=False, which needs no second place for operands"] * control.overlap
    return ", or ".join(ways) or "that is one step of the unit"


def _fits(kernel: Kernel, model: TileModel, control: Control, memory: str, size: int) -> bool:
    """Whether some tile would, were a memory of this size."""
    other = copy(model)
    banks = model.target.memory(memory).banks
    other.target = with_memory(model.target, memory, size=size // banks * banks)
    return bool(controlled_tiles(kernel, other, control, None))


def _least(size: int, fits: Callable[[int], bool]) -> int | None:
    """The least size that fits, which is more than this one; None if there is none."""
    low = high = size
    while not fits(high):
        low, high = high, 2 * high
        if high > LARGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
