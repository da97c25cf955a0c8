"""Every primitive has a rule for the formulas of a trace, or a reason why there is none."""

from tilewright import Schedule
from tilewright.schedule.trace.rules import KEEPS_ORDER, RULES, WITHOUT_RULE


def test_every_primitive_has_a_rule_or_a_reason():
    assert sorted([*RULES, *WITHOUT_RULE]) == sorted(Schedule.primitives())


def test_what_keeps_the_order_of_accesses_has_a_rule():
    assert set(RULES) >= KEEPS_ORDER
