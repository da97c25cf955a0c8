"""Host programs, as compiling meets them."""

from __future__ import annotations

from tilewright.base.errors import CompileError
from tilewright.base.identifiers import identifier
from tilewright.program.check import BrokenRule, check_program
from tilewright.program.host_program import HostProgram, format_host_line


def verify_host(program: HostProgram) -> None:
    """CompileError, with the line, where the host program breaks a rule."""
    try:
        check_program(program)
    except BrokenRule as broken:
        line = "..." if broken.line is None else format_host_line(broken.line)
        inputs = ", ".join(map(identifier, program.inputs))
        shown = f"def {identifier(program.name)}({inputs}):\n    {line}"
        raise CompileError(broken.what, program=shown, hint=broken.hint) from None
