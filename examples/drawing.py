"""Small grey images as lines of text: blocks of four shades, or colours where there are any."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.text import Text

SHADES = " ░▒▓█"
WIDE = 2  # characters for a pixel: about square
GAP = "   "
PER_ROW = 4


def draw_digits(
    images: np.ndarray, found: Sequence[int], truth: Sequence[int], colours: bool
) -> Iterator[Text]:
    """Images [n, rows, columns] of 0 … 1 in rows of four, with what was read under each."""
    for start in range(0, len(images), PER_ROW):
        part = slice(start, start + PER_ROW)
        for row in range(images.shape[1]):
            yield Text(GAP).join(_pixels(image[row], colours) for image in images[part])
        width = WIDE * images.shape[2]
        labels = zip(found[part], truth[part], strict=True)
        yield Text(GAP).join(_caption(int(f), int(t), width) for f, t in labels)
        yield Text("")


def _pixels(row: np.ndarray, colours: bool) -> Text:
    line = Text()
    for value in row:
        if colours:
            grey = round(20 + 235 * float(value))
            line.append(" " * WIDE, style=f"on rgb({grey},{grey},{grey})")
        else:
            line.append(SHADES[min(len(SHADES) - 1, int(value * len(SHADES)))] * WIDE)
    return line


def _caption(found: int, truth: int, width: int) -> Text:
    if found == truth:
        return Text(f"{found} ✓".center(width), style="green")
    return Text(f"{found} ✗ it is {truth}".center(width), style="red")
