"""Operators given integers wherever their examples have floats: which of them take these."""

from op_cases import prepare
from op_examples import CASES

from tilewright.base.dtype import i32
from tilewright.base.errors import ModelError
from tilewright.ir.tensor_type import TensorType

FLOATS = """
acos acosh asin asinh atan atanh average_pool ceil celu cos cosh deform_columns det elu erf exp
expm1 floor gelu grid_sample gru isinf isnan layer_norm leaky_relu log log1p log_softmax lp_pool
lrn lstm matmul_compact mish reduce_logsumexp rms_norm rnn roi_align round sigmoid sin sinh softmax
softplus sqrt
standardize tan tanh trunc
"""


def test_operators_that_take_no_integers():
    refused = set()
    for case in CASES:
        op, attrs, given, _ = prepare(case, 5)
        types = [TensorType(i32, t.shape) if t.dtype.is_float else t for t in given]
        try:
            op.infer(attrs, types)
        except ModelError:
            refused.add(op.name)
    assert sorted(refused) == FLOATS.split()
