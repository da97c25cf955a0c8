"""Names, strings and numbers in the text forms, which are Python syntax.

A record's name may be anything a model says ("and", "Conv/1:0"); in text it is an identifier. A
plain name stands as it is. A name that Python or a scalar type has taken gets an underscore behind
it (`and_`); a character that cannot stand in an identifier is written as its code point (`_x2f_`),
and `_x_` is an escape for nothing. `name_of` undoes `identifier` exactly.
"""

from __future__ import annotations

import functools
import json
import keyword
import re

from tilewright.base.dtype import DTYPES, DType, f64

RESERVED = frozenset({*keyword.kwlist, *DTYPES, "inf", "nan"})

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ESCAPE = re.compile(r"_x([0-9a-f]*)_")
_HARMLESS = re.compile(r"[A-Za-z0-9]|_(?!x)")  # an underscore before an x could start an escape


@functools.lru_cache(maxsize=1 << 14)
def identifier(name: str) -> str:
    """The identifier that stands for `name`."""
    if name.rstrip("_") in RESERVED:
        return f"{name}_"
    if _PLAIN.match(name) and not _ESCAPE.search(name):
        return name
    escaped = "".join(
        c if _HARMLESS.match(name, at) else f"_x{ord(c):x}_" for at, c in enumerate(name)
    )
    return escaped if _PLAIN.match(escaped) else f"_x_{escaped}"


def name_of(text: str) -> str:
    """The name that the identifier `text` stands for."""
    name = _ESCAPE.sub(_character, text) if "_x" in text else text
    return name[:-1] if name.endswith("_") and name.rstrip("_") in RESERVED else name


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1], 16) if escape[1] else None
    return "" if code is None else chr(code) if code <= 0x10FFFF else escape[0]


def quote(text: str) -> str:
    """`text` as a Python string literal, in double quotes where that is readable."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)


def format_number(value: object, dtype: DType) -> str:
    """A number of type `dtype`: the shortest text that gives exactly this value."""
    if not dtype.is_float or dtype is f64:
        return repr(value)
    for digits in range(1, 18):
        short = float(f"{value:.{digits}g}")
        if repr(dtype.round(short)) == repr(value):
            return min(repr(value), repr(short), key=len)
    return repr(value)
