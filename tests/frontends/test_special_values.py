"""A slice of `make special-values`: models of one operator, on NaN, infinities and extremes."""

from special_values import UNIFORM, made_models, run
from special_values_explained import EXPLAINED


def test_no_difference_is_unexplained():
    report = run(every=23)
    assert not report.unexplained, "\n".join(report.unexplained)
    assert report.compared >= 30


def test_every_explanation_names_operators_that_are_tried():
    for row in EXPLAINED:
        assert row.reason
        assert row.ops


def test_600_models():
    assert len({p.name for p in made_models()}) >= 600 - 120
    assert {p.op for p in made_models()} == {*UNIFORM, "Cast"}
