"""tilewright: a deep-learning compiler that any chip team can retarget.

import tilewright
from tilewright.targets import cpu

module = tilewright.compile("model.onnx", target=cpu.host())
y = module(x)
"""

from tilewright.base.errors import (
    ArtifactError,
    CompileError,
    InputError,
    ModelError,
    ScheduleError,
    TargetError,
    TilewrightError,
)
from tilewright.base.passes import Recorder
from tilewright.compile import compile, load
from tilewright.options import Options
from tilewright.runtime.module import Module
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

__all__ = [
    "ArtifactError",
    "CompileError",
    "InputError",
    "ModelError",
    "Module",
    "Options",
    "Recorder",
    "Schedule",
    "ScheduleError",
    "Target",
    "TargetError",
    "TilewrightError",
    "compile",
    "load",
]
