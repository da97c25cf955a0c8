"""What `explain` does with a kernel on a chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base.errors import InputError, TargetError
from tilewright.check.load import load_kernel
from tilewright.chip_kernel import ChipKernel
from tilewright.cli.find_target import find_description
from tilewright.explain.explanation import Explanation
from tilewright.ir.loop import symbols
from tilewright.kernels import build
from tilewright.targets.chips import CHIPS


def explain_kernel(
    name: str, targets: Sequence[str], dims: Mapping[str, int], inputs: Sequence[str]
) -> Explanation:
    """The explanation of the kernel FILE.py:NAME, with these dimensions, on a chip or the
    description FILE.py:FUNCTION of one."""
    if inputs:
        raise InputError("a kernel is explained without its inputs", hint="leave out --input")
    if len(targets) > 1:
        raise InputError("a kernel is explained on one target", hint=f"--target {targets[-1]}")
    (target,) = targets
    found = find_description(target, None)
    if found.native is not None:
        raise TargetError(
            f"{target} is a processor, and kernels are explained on chips with queues",
            hint=f"--target FILE.py, or one of {', '.join(CHIPS)}",
        )
    kernel = load_kernel(name).bind(**dims)
    missing = [s.name for s in symbols(kernel.kernel)]
    if missing:
        raise InputError(
            f"no --dim says how large {', '.join(missing)} of {kernel.kernel.name}"
            f" {'are' if len(missing) > 1 else 'is'}, and instructions are for certain sizes",
            hint=" ".join(f"--dim {n}=…" for n in missing),
        )
    built = build(kernel, found)
    assert isinstance(built, ChipKernel)
    return built.explain()
