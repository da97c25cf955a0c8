"""Axes of einsum that one operand has and another has once: broadcast, or refused."""

import numpy as np
import pytest
from op_cases import case, run

from tilewright.base.dtype import f32
from tilewright.base.errors import ModelError
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import OPS

SIZES = [
    (("ab", "ab"), "a", (2, 3), (2, 3)), (("ab", "ab"), "a", (2, 3), (2, 1)),
    (("ab", "ab"), "a", (2, 1), (2, 3)), (("ab", "ab"), "ab", (1, 3), (2, 1)),
    (("ab", "bc"), "ac", (2, 1), (4, 3)), (("ab", "bc"), "ca", (2, 4), (1, 3)),
    (("aab", "b"), "a", (2, 2, 3), (3,)), (("aa", "a"), "", (2, 2), (1,)),
]  # fmt: skip


@pytest.mark.parametrize("terms, result, one, other", SIZES)
def test_axes_of_one_element(terms, result, one, other):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (one, other))
    (found,) = run(case("einsum", x, y, expected=None, terms=terms, result=result), False)
    extents = {}
    for term, shape in zip(terms, (one, other), strict=True):
        for letter, n in zip(term, shape, strict=True):
            extents[letter] = max(n, extents.get(letter, 1))
    wide = [np.broadcast_to(a, [extents[c] for c in t]) for a, t in zip((x, y), terms, strict=True)]
    wanted = np.einsum(f"{terms[0]},{terms[1]}->{result}", *wide)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


REFUSED = [
    (("ab", "ab"), "a", (2, 3), (2, 2), "einsum: the axis 'b' has 3 and 2 elements"),
    (("ab", "bc"), "ac", (2, 2), (4, 3), "einsum: the axis 'b' has 2 and 4 elements"),
    (("ab", "b"), "a", (2, 3), (3, 1), "einsum: 'b' for an operand [3, 1]"),
    (("ab",), "a", (2, 3), (3,), "einsum: 2 operands for ('ab',)"),
]


@pytest.mark.parametrize("terms, result, one, other, what", REFUSED)
def test_sizes_that_differ(terms, result, one, other, what: str):
    op = OPS["einsum"]
    with pytest.raises(ModelError) as error:
        op.infer(
            op.make_attrs(terms=terms, result=result), [TensorType(f32, s) for s in (one, other)]
        )
    assert error.value.what == what
