"""ONNX's own operator tests, all of them, by the reference evaluator (tools/conformance.py)."""

import collections
import warnings

import pytest
from conformance import ENGINES, KINDS, run_case
from onnx.backend.test.loader import load_model_tests

LEAST = {  # how many are right, at least: for all contents of inputs, and for given ones
    "node": (1429, 313),
    "simple": (3, 4),
    "pytorch-converted": (82, 0),
    "pytorch-operator": (35, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wrong_and_every_refusal_says_what_to_do(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [run_case(c, ENGINES["evaluate"]) for c in load_model_tests(kind=kind)]
    bad = [o.name for o in outcomes if o.outcome in ("wrong", "crashed")]
    assert not bad
    counts = collections.Counter(o.outcome for o in outcomes)
    plain, contents = LEAST[kind]
    assert counts["compiled"] + counts["host"] >= plain
    assert counts["contents"] >= contents
    assert all("\n  hint: " in o.why for o in outcomes if o.outcome == "refused")
