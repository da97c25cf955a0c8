"""tilewright: a deep-learning compiler that any chip team can retarget.

    import tilewright

    module = tilewright.compile("model.onnx")      # for this machine; target="avx2" for others
    y = module(x)                                  # numpy arrays in, numpy arrays out
    print(module.profile(x))                       # where the time goes
    module.save("model.tw")
    module = tilewright.load("model.tw")

PyTorch, TensorFlow and Keras models are exported to ONNX first: docs/pytorch.md. Kernels are
written as functions under `@tilewright.kernel`: docs/kernels.md. Every public name: docs/api.md.

A program that only loads compiled models does not need the compiler. So the names in `COMPILER`,
and nothing else, are imported when they are first used; all other names are there at once.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tilewright.base.dtype import (
    bf16,
    bool_,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.base.errors import (
    ArtifactError,
    CheckError,
    CompileError,
    InputError,
    MemoryShortage,
    ModelError,
    ScheduleError,
    TargetError,
    TilewrightError,
)
from tilewright.base.passes import Recorder
from tilewright.base.version import VERSION as __version__
from tilewright.compiled import load
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitcast,
    cast,
    ceil,
    cos,
    cosh,
    div,
    erf,
    erfc,
    exp,
    expm1,
    floor,
    gelu,
    grid,
    isinf,
    isnan,
    local,
    log,
    log1p,
    opaque,
    out,
    parallel,
    popcount,
    reduce,
    rem,
    select,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    unroll,
    vectorize,
)
from tilewright.options import Options
from tilewright.runtime.module import Module
from tilewright.runtime.profile import Profile, StepTime
from tilewright.target.target import Target

if TYPE_CHECKING:
    from tilewright.compiler import compile
    from tilewright.kernels import BuiltKernel, KernelFunction, Schedule, build, kernel
    from tilewright.quantization.post_training import QuantizedModel, quantize
    from tilewright.report.page import write_report

COMPILER = {
    "BuiltKernel": "kernels",
    "KernelFunction": "kernels",
    "QuantizedModel": "quantization.post_training",
    "Schedule": "kernels",
    "build": "kernels",
    "compile": "compiler",
    "kernel": "kernels",
    "quantize": "quantization.post_training",
    "write_report": "report.page",
}  # public names to the modules that are imported when they are first used

__all__ = [
    "ArtifactError",
    "BuiltKernel",
    "CheckError",
    "CompileError",
    "InputError",
    "KernelFunction",
    "MemoryShortage",
    "ModelError",
    "Module",
    "Options",
    "Profile",
    "QuantizedModel",
    "Recorder",
    "Schedule",
    "ScheduleError",
    "StepTime",
    "Target",
    "TargetError",
    "TilewrightError",
    "__version__",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bf16",
    "bitcast",
    "bool_",
    "build",
    "cast",
    "ceil",
    "compile",
    "cos",
    "cosh",
    "dims",
    "div",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "f16",
    "f32",
    "f64",
    "floor",
    "gelu",
    "grid",
    "i4",
    "i8",
    "i16",
    "i32",
    "i64",
    "isinf",
    "isnan",
    "kernel",
    "load",
    "local",
    "log",
    "log1p",
    "opaque",
    "out",
    "parallel",
    "popcount",
    "quantize",
    "reduce",
    "rem",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "u4",
    "u8",
    "u16",
    "u32",
    "u64",
    "unroll",
    "vectorize",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """The public names in COMPILER, at their first use."""
    if name not in COMPILER:
        what = f"module 'tilewright' has no attribute {name!r}"
        raise AttributeError(what, name=name, obj=sys.modules[__name__])
    found = getattr(importlib.import_module(f"tilewright.{COMPILER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """What a shell completes: the public names, and not what they are made of."""
    return list(__all__)
