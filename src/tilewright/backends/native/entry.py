"""Functions that call a kernel with what lies in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.loop import Kernel, symbols


def emit_entry(kernel: Kernel, name: str, arrays: Mapping[str, Sequence[str]]) -> str:
    """LLVM's text of `void name(ptr array …)`, which takes the kernel's parameters (pointers) and
    symbols (64-bit numbers) from arrays: each array has these, by their names, in this order. It
    goes behind the kernel's own text, and the kernel's loops run on the calling thread."""
    places = {n: (array, k) for array, names in arrays.items() for k, n in enumerate(names)}
    lines, arguments = [], ["ptr null"]
    wanted = [
        *((b.name, "ptr") for b in kernel.params),
        *((s.name, "i64") for s in symbols(kernel)),
    ]
    for argument, kind in wanted:
        array, k = places[argument]
        place = f"%{array}{k}"
        lines.append(f"  {place}p = getelementptr {kind}, ptr %{array}, i64 {k}")
        lines.append(f"  {place} = load {kind}, ptr {place}p")
        arguments.append(f"{kind} {place}")
    head = f"\ndefine void @{name}({', '.join(f'ptr %{array}' for array in arrays)}) {{"
    call = f"  call void @{kernel.name}({', '.join(arguments)})"
    return "\n".join([head, *lines, call, "  ret void", "}", ""])
