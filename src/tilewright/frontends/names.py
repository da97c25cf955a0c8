"""Names: unique, printable, and otherwise the model's own (the text form escapes what it must)."""

from __future__ import annotations

import keyword
import re

LONGEST = 120


def identifier(text: str, otherwise: str = "value") -> str:
    """`text` as a Python identifier (dimensions stand in formulas, which people read): what cannot
    stand in one becomes an underscore."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text)[:LONGEST] or otherwise
    if name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


class Names:
    """Hands out each name once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def fresh(self, wish: str, otherwise: str = "value") -> str:
        """`wish` (made printable), with a number behind it if it is taken."""
        stem = shown(wish) or otherwise
        name, n = stem, self._next.get(stem, 1)
        while name in self._taken:
            name, n = f"{stem}_{n}", n + 1
        self._next[stem] = n
        self._taken.add(name)
        return name


def shown(text: str) -> str:
    """A name from a file for an error text: printable, and not too long."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
