"""What must be true between passes: one check for each IR, cheap enough to run after every pass.

Each raises CompileError that says what is wrong, shows the place, and says what to do. The rules
are in expr.py (expressions), loop.py, tensor.py, graph.py and
host.py.
"""

from __future__ import annotations

from tilewright.ir.verify.graph import verify_graph
from tilewright.ir.verify.host import verify_host
from tilewright.ir.verify.loop import verify_kernel
from tilewright.ir.verify.tensor import verify_program

__all__ = ["verify_graph", "verify_host", "verify_kernel", "verify_program"]
