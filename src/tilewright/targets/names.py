"""Targets by name: one table for `compile(…, target="avx2")` and for the command line.

"host" is this machine; the others are instruction-set levels (`cpu.LEVELS`), whose code can be made
anywhere. Chips (`CHIPS`) have names too, but models cannot be compiled for them yet: kernels can.
"""

from __future__ import annotations

import types
from collections.abc import Mapping

from tilewright.base.errors import CompileError, TargetError, did_you_mean
from tilewright.target.target import Target
from tilewright.targets import cpu
from tilewright.targets.chips import CHIPS

HOST = "host"
PROCESSORS = (HOST, *cpu.LEVELS)
_NAMED = f"names: {', '.join(PROCESSORS)}"


def find_target(name: str, threads: int | None = None) -> Target:
    """The processor called `name`, with `threads` cores (by default all of this machine, one of any
    other). Raises TargetError for an unknown name, CompileError for a chip's."""
    if name in CHIPS:
        raise _no_models(name, name)
    if name not in PROCESSORS:
        raise TargetError(
            f"there is no target called {name!r}", hint=did_you_mean(name, PROCESSORS)
        )
    if name == HOST:
        return cpu.host(threads=threads)
    return cpu.cpu(name, cores=threads or 1)


def find_devices(target: object) -> dict[str, Target]:
    """The devices that `target` stands for, by name: a Target, a name, or a mapping of names of
    devices to either. Raises CompileError or TargetError for anything else."""
    if not isinstance(target, Mapping):
        found = _find_one(target, "target")
        return {found.name: found}
    if not target:
        raise CompileError("target is an empty mapping", hint=f'target="host"; {_NAMED}')
    for device in target:
        if not isinstance(device, str):
            raise CompileError(
                f"target has the device {device!r}, and devices' names are texts",
                hint='for example target={"first": "host"}',
            )
    return {d: _find_one(t, f"target[{d!r}]") for d, t in target.items()}


def _find_one(given: object, where: str) -> Target:
    if isinstance(given, str):
        return find_target(given)
    if not isinstance(given, Target):
        raise CompileError(f"{where} is {_described(given)}", hint=_way_out(given))
    if given.native is None:
        raise _no_models(given.name, f"FILE.py:{given.name}")
    return given


def _no_models(name: str, option: str) -> CompileError:
    return CompileError(
        f"{name} is a chip, and models run on processors: {', '.join(PROCESSORS)}",
        hint=f"kernels run on it: my_kernel.build({name}()) in Python,"
        f" or tilewright explain FILE.py:KERNEL --target {option}",
    )


def _described(given: object) -> str:
    if isinstance(given, types.ModuleType):
        return f"the module {given.__name__}, not a target"
    if callable(given):
        return f"the function {getattr(given, '__name__', given)}, not a target"
    return f"{given!r}, not a target"


def _way_out(given: object) -> str:
    if callable(given):
        return f"call it: {getattr(given, '__name__', 'target')}()"
    return f'this machine is target="host", or leave target out; {_NAMED}'
