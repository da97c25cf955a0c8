"""Random kernels of a few nests that belong together.

windows: every iteration of a loop fills a buffer whose elements, or many of them, the next one
fills again: sliding windows, some of them over memory that changes. chains: one nest computes what
another uses, with one in between that may get in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_expr import Draws

from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel


@st.composite
def windows(draw: Callable[..., Any]) -> Kernel:
    """for i: { fill t[0 … extent] from x and z at step*i + a; y[i] = … t …; z[…] = … }"""
    d = Draws(draw)
    step, extent, n = d.int(1, 2), d.int(2, 5), d.int(2, 5)
    size = 16  # of z, more than any subscript
    fill = _fill(d, step, extent)
    use = [f"y[i, b] = {' + '.join(_read(d, extent) for _ in d.times(3))}"]
    change = [f"z[{_place(d, step)}, {{b}}] = f32({d.int(2, 9)}.0)"] if d.chance(2) else []
    around = d.chance(2)
    lines = [
        f"for s in range({size}):",
        *_indented(["for c in range(2):", "    z[s, c] = x[s, c] * f32(3.0)"]),
        *(["for o in range(2):"] if around else []),
    ]
    first, second = (change, []) if d.chance(2) else ([], change)
    body = [
        f"t = alloc(f32[{extent}, 2])",
        *_columns("g", first),
        *fill,
        *_columns("b", [*use, *second]),
    ]
    loop = [f"for i in range({n}):", *_indented(body)]
    lines += _indented(loop) if around else loop
    head = f"def k(x: f32[{size}, 2], y: out(f32[{n}, 2]), z: out(f32[{size}, 2])):"
    return parse_kernel("\n".join([head, *_indented(lines)]))


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _columns(b: str, lines: list[str]) -> list[str]:
    found = [line.replace("{b}", b) for line in lines]
    return [f"for {b} in range(2):", *_indented(found)] if lines else []


def _fill(d: Draws, step: int, extent: int) -> list[str]:
    """The nest that fills t: a copy, a formula, or a sum."""
    at = f"i * {step} + a"
    source = d.pick(("x", "z"))
    if d.chance(3):
        at = d.pick((f"i * {step} + a // 2", f"a * {step} + i % 2", f"i + a * {step}", "a"))
        at = f"({at}) % 16"
    value = f"{source}[{at}, e]"
    form = d.int(0, 3)
    store = [f"t[a, e] = {value}"]
    if form == 1:
        store = [f"t[a, e] = {value} + x[{at}, 1 - e] * f32(2.0)"]
    if form == 2:
        store = ["t[a, e] = f32(1.0)", "for r in range(2):", f"    t[a, e] += {source}[{at}, r]"]
    if form == 3:
        store = [f"t[a, e] = select({at} < {d.int(2, 8)}, {value}, f32(5.0))"]
    lines = [f"for a in range({extent}):", *_indented(["for e in range(2):", *_indented(store)])]
    return lines


def _read(d: Draws, extent: int) -> str:
    return f"t[{d.int(0, extent - 1)}, {d.pick(('b', '1 - b'))}]"


def _place(d: Draws, step: int) -> str:
    """Where z is changed."""
    return d.pick((f"i * {step} + {d.int(0, 3)}", "i", str(d.int(0, 11)), f"11 - i * {step}"))


@st.composite
def chains(draw: Callable[..., Any]) -> Kernel:
    """for i, j: t[…] = …;  perhaps z[…] = …;  for u, v: y[…] = … t[…] …"""
    d = Draws(draw)
    rows, columns = d.int(3, 7), d.int(1, 4)
    size = rows + 2
    head = f"def k(x: f32[{size}, {columns}], y: out(f32[{size}, {columns}]), z: out(f32[{size}])):"
    between = [
        f"for q in range({size}):",
        f"    z[q] = {d.pick(('x[q, 0]', 'f32(7.0)', 'y[q, 0]', f't[q % {rows}, 0]'))}",
    ]
    first = [f"for s in range({size}):", *_indented(["z[s] = f32(1.0)"])]
    first += [f"for e in range({size}):", *_indented(_over("g", columns, ["y[e, g] = f32(2.0)"]))]
    use = d.pick(("t[u, v]", "t[u, v] + t[u, 0]", "t[u + 1, v]", f"t[{rows - 1} - u, v]", "z[u]"))
    at = d.pick(("u", "u + 1", f"{size - 1} - u"))
    users = d.int(rows - 2, rows - 1) if "+ 1" in use else d.int(rows - 1, rows)
    read = f"{use} + {d.pick(('x[u, v]', 't[u, v]', 'y[u, v]', 'z[u]'))}"
    body = [
        *first,
        f"t = alloc(f32[{rows}, {columns}])",
        f"for i in range({rows}):",
        *_indented(_over("j", columns, _value(d))),
        *(between if d.chance(3) else []),
        f"for u in range({users}):",
        *_indented(_over("v", columns, [f"y[{at}, v] = {read}"])),
    ]
    return parse_kernel("\n".join([head, *_indented(body)]))


def _over(var: str, extent: int, body: list[str]) -> list[str]:
    return [f"for {var} in range({extent}):", *_indented(body)]


def _value(d: Draws) -> list[str]:
    """How t is computed."""
    return d.pick(
        (
            ["t[i, j] = x[i, j]"],
            ["t[i, j] = x[i + 1, j] * f32(2.0) + z[i]"],
            ["t[i, j] = f32(0.0)", "for r in range(3):", "    t[i, j] += x[i % 3 + r, j]"],
            ["t[i, j] = select(0 < i, t[i - 1, j], f32(1.0)) + y[i, j]"],
        )
    )
