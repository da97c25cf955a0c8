"""Short programs before and after primitives, and the errors of those that are refused, whole."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

import pytest
from executor import run_concurrently
from strategies import array, same

from tilewright.base.errors import ScheduleError
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.schedule.schedule import Schedule

SYMBOL = 5  # the value of every symbol


def schedule(text: str) -> Schedule:
    kernel = parse_kernel(text.strip())
    verify_kernel(kernel)
    return Schedule(kernel)


def rewritten(before: str, steps: Callable[[Schedule], object], after: str) -> None:
    """`steps` make `after` of `before`, and it computes the same."""
    s = schedule(before)
    steps(s)
    verify_kernel(s.kernel)
    assert str(s.kernel) == textwrap.dedent(after).strip()
    if [b.shape for b in s.kernel.params] == [b.shape for b in s.original.params]:
        check_same(s.original, s.kernel)


def check_same(a: Kernel, b: Kernel) -> None:
    values = {x.name: SYMBOL for x in symbols(a)}
    inputs = [
        array(2 * i, x.dtype, [evaluate_dim(d, values) for d in x.shape])
        for i, x in enumerate(a.inputs)
    ]
    wanted = interpret(a, inputs, values)
    for found in (interpret(b, inputs, values), run_concurrently(b, inputs, values)):
        assert all(same(x, y) for x, y in zip(wanted, found, strict=True))


def refused(before: str, steps: Callable[[Schedule], object], error: str) -> None:
    """The last of `steps` is refused with this text (in which lines may break behind commas, and
    `in: …` stands for the program), and leaves the kernel as the steps before it made it."""
    s = schedule(before)
    with pytest.raises(ScheduleError) as caught:
        steps(s)
    assert s.kernel == s.trace.replay(s.original).kernel
    program = "  in: " + textwrap.indent(str(s.kernel), " " * 6).lstrip()
    wanted = re.sub(r",\n +", ", ", textwrap.dedent(error).strip())
    assert str(caught.value) == wanted.replace("  in: …", program)
