"""Names and strings in the text forms, which are Python syntax.

A record's name may be anything a model says ("and", "Conv/1:0"); in text it is an identifier. A
plain name stands as it is. Of any other, each character that cannot stand is written `_x2f_` (its
code point), and a name that Python or a type has taken is closed by the empty escape: `and_x_`.
`name_of` undoes `identifier` exactly.
"""

from __future__ import annotations

import functools
import json
import keyword
import re

from tilewright.base.dtype import DTYPES

# What a bare name means in an expression; no variable, symbol or buffer is printed like that.
RESERVED = frozenset({*keyword.kwlist, *DTYPES, "inf", "nan"})

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ESCAPE = re.compile(r"_x([0-9a-f]*)_")
_HARMLESS = re.compile(r"[A-Za-z0-9]|_(?!x)")  # an underscore before an x could start an escape


@functools.lru_cache(maxsize=1 << 14)
def identifier(name: str) -> str:
    """The identifier that stands for `name`."""
    if name in RESERVED:
        return f"{name}_x_"
    if _PLAIN.match(name) and not _ESCAPE.search(name):
        return name
    escaped = "".join(
        c if _HARMLESS.match(name, at) else f"_x{ord(c):x}_" for at, c in enumerate(name)
    )
    return escaped if _PLAIN.match(escaped) else f"_x_{escaped}"


def name_of(text: str) -> str:
    """The name that the identifier `text` stands for."""
    return _ESCAPE.sub(_character, text) if "_x" in text else text


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1], 16) if escape[1] else None
    return "" if code is None else chr(code) if code <= 0x10FFFF else escape[0]


def quote(text: str) -> str:
    """`text` as a Python string literal, in double quotes where that is readable."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)
