"""Every operator on an example, with numbers and with a symbol for a dimension."""

import re

import numpy as np
import op_cases as oc
import pytest
from op_cases import case, run
from op_examples import CASES, GATES

from tilewright.ir.expr import Load, Select
from tilewright.ir.op import Category, attr_rows
from tilewright.ir.tensor import Stage
from tilewright.ops.table import OPS

FROM_PASSES = {"call", "find_fault", "guard", "relayout"}  # what only our own passes make


def name_of(c) -> str:
    """A case's name without what differs from process to process (functions' addresses)."""
    return re.sub(r"<function.*?at0x[0-9a-f]+>", "f", c.name)


@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbol"])
@pytest.mark.parametrize("c", CASES, ids=name_of)
def test_agrees_with_numpy(c, symbolic):
    results = run(c, symbolic)
    expected = c.expected(*oc.arrays_of(c.operands))
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
        assert result.shape == wanted.shape


def test_every_operator_has_an_example():
    assert {c.op for c in CASES} == set(OPS) - FROM_PASSES


def test_every_operator_and_attribute_is_described():
    for op in OPS.values():
        assert op.doc, op.name
        for row in attr_rows(op):
            assert row["doc"], (op.name, row["name"])


@pytest.mark.parametrize(
    "c", [c for c in CASES if OPS[c.op].category is Category.INJECTIVE], ids=name_of
)
def test_injective_operators_read_each_operand_at_one_place(c):
    op, attrs, types, _ = oc.prepare(c, oc.N)
    for item in oc.program_of(op, attrs, types).items:
        assert isinstance(item, Stage)
        assert not item.reduce
        assert all(places <= 1 for places in _reads(item.value).values()), c.name


def _reads(value):
    """For each buffer, at how many places the value reads it, along the most reading way."""
    places = {}
    for way in _ways(value):
        found = {}
        for e in way:
            if isinstance(e, Load):
                found.setdefault(e.buffer, set()).add(e)
        for buffer, loads in found.items():
            places[buffer] = max(places.get(buffer, 0), len(loads))
    return places


def _ways(value):
    """The expressions evaluated, for each choice of the outermost selections."""
    if isinstance(value, Select):
        for side in (value.a, value.b):
            for way in _ways(side):
                yield [*value.cond.walk(), *way]
    else:
        yield list(value.walk())


# ---------------------------------------------------------------- short floats, odd operands


def test_sums_of_short_floats_are_kept_in_f32():
    ones = np.ones(5000, np.float16)
    (total,) = run(case("reduce_sum", ones, axes=(0,), keepdims=False, expected=None), False)
    assert total == 5000  # in f16 alone it would stop at 2048
    (product,) = run(case("matmul", ones[None], ones[:, None], expected=None), False)
    assert product == 5000


def test_a_row_of_minus_infinity():
    x = np.array([[-np.inf, -np.inf], [0, -np.inf]], np.float32)
    (result,) = run(case("reduce_logsumexp", x, axes=(1,), keepdims=False, expected=None), False)
    np.testing.assert_array_equal(result, [-np.inf, 0])


def test_positions_of_nan_are_found():
    x = np.array([[1, np.nan, 3, np.nan]], np.float32)
    for last, wanted in ((False, 1), (True, 3)):
        (result,) = run(case("argmax", x, axis=1, last=last, expected=None), False)
        assert result.item() == wanted


def test_indices_out_of_range_do_not_leave_the_tensor():
    x, places = np.arange(4, dtype=np.float32), np.array([-9, 9, -4, 3])
    (result,) = run(case("gather", x, places, axis=0, expected=None), False)
    np.testing.assert_array_equal(result, [0, 3, 0, 3])


def test_sequences_of_different_lengths():
    xw, rt = np.ones((3, 2, 2), np.float32), np.zeros((2, 2), np.float32)
    h0, lengths = np.full((2, 2), 7, np.float32), np.array([3, 1], np.int32)
    attrs = {"activations": ("relu",), "alphas": (0.0,), "betas": (0.0,)}
    for reverse in (False, True):
        c = case("rnn", xw, rt, h0, lengths, **attrs, lengths=True, reverse=reverse, expected=None)
        y, h = run(c, False)
        np.testing.assert_array_equal(y[:, 0], 1)
        np.testing.assert_array_equal(y[:, 1], [[1, 1], [0, 0], [0, 0]])
        np.testing.assert_array_equal(h, 1)


def test_lstm_with_peepholes_and_coupled_gates():
    xw, rt = np.zeros((1, 1, 4), np.float32), np.zeros((1, 4), np.float32)
    h0, c0 = np.zeros((1, 1), np.float32), np.full((1, 1), 2, np.float32)
    peepholes = np.array([1, 0, -1], np.float32)
    attrs = {"activations": ("sigmoid", "tanh", "tanh"), **GATES}
    (y, _, c) = run(
        case("lstm", xw, rt, h0, c0, peepholes, **attrs, peepholes=True, expected=None), False
    )
    np.testing.assert_allclose(c, oc.sigmoid(np.float32(-2)) * 2, rtol=1e-6)
    np.testing.assert_allclose(y[0], np.tanh(c) / 2, rtol=1e-6)
    (_, _, c) = run(case("lstm", xw, rt, h0, c0, **attrs, input_forget=True, expected=None), False)
    np.testing.assert_allclose(c, 1.0)
