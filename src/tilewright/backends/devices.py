"""The devices of a model: what `compile(…, target=…)` takes, by name."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.backends.binary import Binary
from tilewright.backends.table import DeviceSpec, spec_of
from tilewright.base.errors import CompileError
from tilewright.runtime.devices import DeviceTable
from tilewright.target.target import Target
from tilewright.targets.names import HOST, NAMED, find_target


@dataclass(frozen=True)
class Devices:
    """The devices of a model by name, in the caller's order."""

    specs: Mapping[str, DeviceSpec]

    @property
    def called(self) -> dict[str, Target]:
        """Those whose kernels the host program calls itself."""
        return {name: s.target for name, s in self.specs.items() if s.is_host}

    @property
    def others(self) -> list[str]:
        """Those that are given kernels."""
        return [name for name, s in self.specs.items() if not s.is_host]

    @property
    def host(self) -> str:
        """The first whose kernels are called: it runs what no other does."""
        return next(iter(self.called))

    @property
    def host_target(self) -> Target:
        return self.called[self.host]

    @property
    def targets(self) -> dict[str, Target]:
        return {name: s.target for name, s in self.specs.items()}

    @property
    def makers(self) -> DeviceTable:
        """What makes the devices that run parts of a program, by the parts' kinds."""
        backends = (s.backend for s in self.specs.values())
        return {b.kind: b.device for b in backends if b.device is not None}

    def binary(self, device: str, built: Any) -> Binary:
        """A kernel as a device is given it; CompileError if its kind does not say."""
        backend = self.specs[device].backend
        if backend.binary is None:
            raise CompileError(
                f"backend {backend.name!r} does not say what {device!r} is given for a kernel",
                hint="give the Backend a `binary`: see docs/new-device-kind.md",
            )
        return backend.binary(built)

    def with_host(self) -> Devices:
        """These, and this machine."""
        return Devices({**self.specs, HOST: spec_of(find_target(HOST))})


def find_devices(target: object) -> Devices:
    """The devices that `target` stands for, by name: a Target, a name, or a mapping of names of
    devices to either. Raises CompileError or TargetError for anything else."""
    if not isinstance(target, Mapping):
        found = _find_one(target, "target")
        return Devices({found.target.name: found})
    if not target:
        raise CompileError("target is an empty mapping", hint=f'target="host"; {NAMED}')
    for device in target:
        if not isinstance(device, str):
            raise CompileError(
                f"target has the device {device!r}, and devices' names are texts",
                hint='for example target={"first": "host"}',
            )
    return Devices({d: _find_one(t, f"target[{d!r}]") for d, t in target.items()})


def _find_one(given: object, where: str) -> DeviceSpec:
    if isinstance(given, str):
        return spec_of(find_target(given))
    if not isinstance(given, (Target, DeviceSpec)):
        raise CompileError(f"{where} is {_described(given)}", hint=_way_out(given))
    return spec_of(given)


def _described(given: object) -> str:
    if isinstance(given, types.ModuleType):
        return f"the module {given.__name__}, not a target"
    if callable(given):
        return f"the function {getattr(given, '__name__', given)}, not a target"
    return f"{given!r}, not a target"


def _way_out(given: object) -> str:
    if callable(given):
        return f"call it: {getattr(given, '__name__', 'target')}()"
    return f'this machine is target="host", or leave target out; {NAMED}'
