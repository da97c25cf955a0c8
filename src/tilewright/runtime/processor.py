"""Whether compiled code can run on this machine."""

from __future__ import annotations

from tilewright.base.errors import ArtifactError
from tilewright.runtime.program import TargetFacts
from tilewright.runtime.system import host_features, host_triple


def check_machine(target: TargetFacts) -> None:
    """ArtifactError if code for `target` cannot run on this machine."""
    here = host_triple().split("-")[0]
    if target.architecture != here:
        raise ArtifactError(
            f"the code is for {target.architecture}, and this machine is {here}",
            hint=f"compile the model for {here}",
        )
    missing = sorted(set(target.features) - host_features())
    if missing:
        raise ArtifactError(
            f"the code uses {', '.join(missing)}, which this CPU does not have",
            hint="compile the model for this CPU, or for fewer features",
        )


def runs_here(target: TargetFacts) -> bool:
    """Whether `check_machine` has nothing against it."""
    try:
        check_machine(target)
    except ArtifactError:
        return False
    return True
