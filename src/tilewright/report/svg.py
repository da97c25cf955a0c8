"""Pieces of SVG and HTML as text. Everything that comes from a model goes through `escape`."""

from __future__ import annotations

import html

BLANK = "\N{REPLACEMENT CHARACTER}"


def escape(text: object) -> str:
    """Text as it stands in HTML, between tags or in quoted attributes. Characters that pages may
    not have (NUL and its like, halves of surrogate pairs) become a sign for that."""
    plain = "".join(c if _is_shown(c) else BLANK for c in str(text))
    return html.escape(plain, quote=True)


def _is_shown(c: str) -> bool:
    return (c >= " " or c in "\t\n") and not "\x7f" <= c <= "\x9f" and not "\ud800" <= c <= "\udfff"


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element; `content` is HTML already. Names of attributes are written with - for _."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def _plain(value: object) -> object:
    """Numbers with as many digits as a picture needs."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def label(x: float, y: float, text: object, **attributes: object) -> str:
    return tag("text", escape(text), x=x, y=y, **attributes)
