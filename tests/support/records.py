"""Records made anew, and constants of which no two are the same."""

import math

from tilewright.base.dtype import bool_, f32, f64, index
from tilewright.base.node import field_names
from tilewright.ir.expr import Const

DIFFERENT = [
    Const(0.0, f32),
    Const(-0.0, f32),
    Const(0.0, f64),
    Const(math.nan, f32),
    Const(math.nan, f64),
    Const(1.0, f32),
    Const(1, index),
    Const(0, index),
    Const(True, bool_),
    Const(False, bool_),
    Const(math.inf, f32),
    Const(-math.inf, f32),
]


def rebuilt(node):
    """The same record, made anew."""

    def value(v):
        if type(v) is tuple:
            return tuple(value(item) for item in v)
        return rebuilt(v) if hasattr(v, "map") else v

    return type(node)(*(value(getattr(node, n)) for n in field_names(type(node))))
