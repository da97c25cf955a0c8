"""What fits into a terminal: tables whose numbers stay whole, and sentences that are not broken
between a number and its unit. What does not go to a terminal keeps whole lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from tilewright.base.words import shorten

ENDLESS = 1 << 14  # columns, where nobody's terminal limits them
GAP = 2  # columns between those of a table
LEAST = 12  # columns that a name needs to be told from others
SPACE = "\N{NO-BREAK SPACE}"


def make_console(*, stderr: bool = False) -> Console:
    """A console that colours terminals and leaves files plain, with whole lines."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = ENDLESS
    return console


def make_table(title: str, *columns: str) -> Table:
    """A table; columns that begin with ">" are numbers, which stay on one line."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


@dataclass(frozen=True)
class Column:
    """A column of a table that is fitted. `is_name`: it may be shortened in the middle; `folds`: it
    may go on in the next line. Where there is no room, columns go whose `spare` is highest; those
    of 0 stay."""

    title: str
    is_name: bool = False
    folds: bool = False
    spare: int = 0

    @property
    def is_elastic(self) -> bool:
        return self.is_name or self.folds


def fit_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of at most `width` columns: what is needed least is left out, names are shortened."""
    natural = [
        max(cell_len(text) for text in (c.title.lstrip(">"), *(row[i] for row in rows)))
        for i, c in enumerate(columns)
    ]
    shown = list(range(len(columns)))

    def least() -> int:
        sizes = (min(natural[i], LEAST) if columns[i].is_elastic else natural[i] for i in shown)
        return sum(sizes) + GAP * (len(shown) - 1)

    while least() > width and any(columns[i].spare for i in shown):
        shown.remove(max(shown, key=lambda i: columns[i].spare))
    fixed = sum(natural[i] for i in shown if not columns[i].is_elastic)
    room = max(0, width - fixed - GAP * (len(shown) - 1))
    elastic = sorted((i for i in shown if columns[i].is_elastic), key=lambda i: natural[i])
    widths = list(natural)
    for left, i in zip(range(len(elastic), 0, -1), elastic, strict=True):
        widths[i] = max(1, min(natural[i], room // left))
        room -= widths[i]

    def cells(row: Sequence[str]) -> list[str]:
        return [_cell(columns[i], row[i], widths[i]) for i in shown]

    table = make_table("", *cells([c.title for c in columns]))
    for column in table.columns:
        column.no_wrap, column.overflow = True, "crop"
    for row in rows:
        table.add_row(*cells(row))
    return table


def _cell(column: Column, text: str, width: int) -> str:
    if column.folds:
        return wrap(text, width, indent=0)
    return shorten(text, width) if column.is_name else text


def wrap(text: str, width: int, indent: int = GAP) -> str:
    """Lines of at most `width` columns where that can be, broken between words, but not between a
    number and its unit. What is continued is indented: in a table, to its last column."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width, indent))


def _wrapped(line: str, width: int, indent: int) -> list[str]:
    if cell_len(line) <= width:
        return [line]
    last = max((m.end() for m in re.finditer(r"\S {2,}(?=\S)", line)), default=0)
    in_table = 0 < last <= width - LEAST
    indent = last if in_table else len(line) - len(line.lstrip()) + indent
    whole = re.sub(r"(?<=\d) (?=\w)|(?<=\w) (?=[\d.,]+%)", SPACE, line)
    if in_table:
        whole = whole[:last].replace(" ", SPACE) + whole[last:]
    parts = textwrap.wrap(
        whole,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(SPACE, " ") for part in parts]
