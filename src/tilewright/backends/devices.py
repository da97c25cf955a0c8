"""The devices of a model: what `compile(…, target=…)` takes, by name."""

from __future__ import annotations

import types
from collections.abc import Mapping

from tilewright.backends.table import Unit, unit_of
from tilewright.base.errors import CompileError
from tilewright.target.target import Target
from tilewright.targets.names import NAMED, find_target


def find_devices(target: object) -> dict[str, Unit]:
    """The devices that `target` stands for, by name: a Target, a name, or a mapping of names of
    devices to either. Raises CompileError or TargetError for anything else."""
    if not isinstance(target, Mapping):
        found = _find_one(target, "target")
        return {found.target.name: found}
    if not target:
        raise CompileError("target is an empty mapping", hint=f'target="host"; {NAMED}')
    for device in target:
        if not isinstance(device, str):
            raise CompileError(
                f"target has the device {device!r}, and devices' names are texts",
                hint='for example target={"first": "host"}',
            )
    return {d: _find_one(t, f"target[{d!r}]") for d, t in target.items()}


def _find_one(given: object, where: str) -> Unit:
    if isinstance(given, str):
        return unit_of(find_target(given))
    if not isinstance(given, (Target, Unit)):
        raise CompileError(f"{where} is {_described(given)}", hint=_way_out(given))
    return unit_of(given)


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
