"""What `dump --binary` does: the folder with all that a model's devices are handed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.base.errors import InputError
from tilewright.cli.progress import Progress
from tilewright.cli.session import Request, submissions
from tilewright.runtime.atomic_folder import check_folder
from tilewright.runtime.system import format_bytes

STAGE = "stream"


def dump_binary(
    request: Request, progress: Progress, stage: str, kernel: str | None, output: Path | None,
    *, binary: bool,
) -> dict[str, Any]:  # fmt: skip
    """Writes the folder, and says what is in it, as JSON."""
    if not binary:
        raise InputError(
            "--output is where --binary writes, and dump prints to stdout without it",
            hint=f"add --binary --stage {STAGE}, or write what is printed to a file: > FILE",
        )
    if stage != STAGE or kernel is not None:
        what = f"--stage {stage}" if stage != STAGE else "--kernel"
        raise InputError(
            f"--binary writes all that devices are handed, and {what} asks for something else",
            hint=f"--stage {STAGE} --binary -o FOLDER",
        )
    if output is None:
        raise InputError("--binary writes a folder, and none is named", hint="-o FOLDER")
    check_folder(output)
    with progress.working("compiling"):
        found = submissions(request)
    with progress.working("writing"):
        size = found.save(output, lambda done, total: progress.count("submits", done, total))
    return {
        "model": str(request.model),
        "stage": stage,
        "folder": str(output),
        "bytes": size,
        "submits": len(found.submits),
        "instructions": sum(sum(s.binary.parts) for s in found.submits),
    }


def binary_line(found: Mapping[str, Any]) -> str:
    """The same in words."""
    submits = found["submits"]
    return (
        f"wrote {found['folder']}: {submits} submit{'s' if submits > 1 else ''} of"
        f" {found['instructions']:,} instructions, {format_bytes(found['bytes'])}"
    )
