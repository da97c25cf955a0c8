"""Numbers and names for people: times, quantities, names that fit into a column."""

from __future__ import annotations

NEARLY = 0.9995  # of a unit: with three digits, that is one


def nanoseconds(count: float) -> str:
    """ "1.23 ms": three digits, in the unit that suits them."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if count >= NEARLY * size:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:.0f} ns"


def quantity(count: float | None, unit: str) -> str:
    """ "1.5 Gop"; a dash for what is not known."""
    if count is None:
        return "–"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= NEARLY * size:
            return f"{_three_digits(count / size)} {prefix}{unit}"
    return f"{_three_digits(count)} {unit}"


def _three_digits(count: float) -> str:
    """Never with an exponent."""
    return f"{count:.3g}" if count < 1000 * NEARLY else f"{count:.0f}"


def shorten(text: str, width: int) -> str:
    """At most `width` (1 or more) columns: of a longer text both ends, for names that are alike
    differ at either."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return text[: width - 1 - end] + "…" + (text[-end:] if end else "")
