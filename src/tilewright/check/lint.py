"""What can be said of a description without running anything: each rule finds problems of one kind.

Rules about costs, sizes and encodings evaluate the description, and so are asked only when its
parts fit together.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.check import codes, costs, data_flow, parts
from tilewright.check.problem import Problem, Problems, Severity
from tilewright.target.target import Target

Rule = Callable[[Target], Problems]

STRUCTURE: tuple[Rule, ...] = (
    parts.names,
    parts.host_memory,
    parts.clock,
    parts.instructions,
    parts.queues,
    parts.registers,
    parts.tokens,
    data_flow.operands,
    data_flow.micro_operations,
    data_flow.subscripts,
    costs.fields,
    costs.limits,
)
CONTENTS: tuple[Rule, ...] = (
    parts.order,
    data_flow.flow,
    data_flow.sizes,
    data_flow.contraction,
    costs.costs,
    costs.monotone,
    codes.missing,
    codes.narrow,
    codes.ambiguity,
    codes.addresses,
    codes.lists,
    codes.waits,
)
RULES = STRUCTURE + CONTENTS


def lint(target: Target) -> list[Problem]:
    """Everything that is wrong with the description of a chip that has queues, errors first."""
    found = [p for rule in STRUCTURE for p in rule(target)]
    if not any(p.severity is Severity.ERROR for p in found):
        found += [p for rule in CONTENTS for p in rule(target)]
    return sorted(found, key=lambda p: p.severity is not Severity.ERROR)


def is_sound(target: Target) -> bool:
    """Whether the parts of a description fit together, so that it can be tried."""
    return not any(p.severity is Severity.ERROR for rule in STRUCTURE for p in rule(target))
