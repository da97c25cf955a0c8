"""Targets as the command line names them."""

from __future__ import annotations

from tilewright.base.errors import TargetError, did_you_mean
from tilewright.check.load import is_file, load_target
from tilewright.target.target import Target
from tilewright.targets.chips import CHIPS
from tilewright.targets.names import PROCESSORS, find_target


def find_description(name: str, threads: int | None) -> Target:
    """The target that is called so, or that a file describes."""
    if name in PROCESSORS or name in CHIPS:
        return find_target(name, threads)
    if is_file(name):
        return load_target(name)
    raise TargetError(
        f"there is no target called {name!r}, and a file's name would be FILE.py[:FUNCTION]",
        hint=did_you_mean(name, (*PROCESSORS, *CHIPS)),
    )
