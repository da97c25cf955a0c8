"""What a kind of device is: one record, of which there is a table (table.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.backends.option import Option
from tilewright.ir.tensor import TensorProgram
from tilewright.runtime.devices import Device
from tilewright.runtime.program import Part
from tilewright.target.target import Target


@dataclass(frozen=True)
class Backend:
    """One kind of device. `options` says how a target of the kind can run a kernel, or what is in
    the way. `part` makes what one device is given before the first call, of its name, the `built`
    of its kernels' options by name, and the host's target; `device` runs it, and `kind` is what the
    part is called. A kind whose kernels the host program calls itself has no part: they are linked
    into the host's code."""

    name: str
    options: Callable[[TensorProgram, Target], list[Option]]
    part: Callable[[str, Mapping[str, Any], Target], Part] | None = None
    kind: str = ""
    device: Callable[[Part], Device] | None = None


@dataclass(frozen=True)
class Unit:
    """A device of a model: a target, and the backend that makes its kernels."""

    target: Target
    backend: Backend

    @property
    def is_host(self) -> bool:
        """Whether the host program calls its kernels itself."""
        return self.backend.part is None
