"""The text forms, read back: what prints parses, and prints the same again (docs/text-form.md).

The printers stand beside the records (ir/loop.py, tensor.py, graph.py; program/host_program.py).
All text is Python syntax and read through Python's own parser; a mistake in it is a CompileError
with the line.
"""

from __future__ import annotations

from tilewright.ir.text.graph import parse_graph
from tilewright.ir.text.host import parse_host
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.text.tensor import parse_program

__all__ = ["parse_graph", "parse_host", "parse_kernel", "parse_program"]
