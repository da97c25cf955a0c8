"""Fits the polynomials of lower/math_*.py: `python tools/fit_functions.py [NAME]` prints them.

Each is fitted to the least greatest weighted error by Lawson's method (least squares on Chebyshev
points, whose weights are multiplied by the error until it is level; C. L. Lawson, 1961), on values
that mpmath computes with 60 digits. Coefficients are rounded to the type one by one, the lowest
power first, and the others are fitted again to what is left.

Functions by tables have a polynomial for each of 16 pieces of the operand's range, which the bits
of operand + offset number: pieces of one size near 0, from there growing as the numbers do. It is
one of the distance from a centre, next to the middle of the piece, at which the function is almost
a number of the type (S. Gal, 1986), so that the constant's rounding does not show.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 60
POINTS, ROUNDS = 300, 150


@dataclass(frozen=True)
class Fit:
    """`terms` coefficients of a polynomial near `target` on [low, high]; its error counts times
    `weight`: how much of it is seen in the function's units of the last place."""

    target: Callable[[mp.mpf], mp.mpf]
    weight: Callable[[mp.mpf], mp.mpf]
    low: float
    high: float
    terms: int
    dtype: type = np.float32


def lawson(x: np.ndarray, y: np.ndarray, weight: np.ndarray, powers: list[int]) -> np.ndarray:
    """Coefficients of `powers` with the least greatest |weight * error| at the points x."""
    basis = np.stack([x**p for p in powers], axis=1).astype(np.float64)
    size = np.abs(basis).max(axis=0)
    level = np.full(x.size, 1 / x.size)
    best, least = None, np.inf
    for _ in range(ROUNDS):
        scale = weight * np.sqrt(level)
        found = np.linalg.lstsq(basis / size * scale[:, None], y * scale, rcond=None)[0] / size
        error = np.abs(weight * (basis @ found - y))
        if error.max() < least:
            best, least = found, error.max()
        level = level * (error + 1e-30)
        level /= level.sum()
    return best


class Points:
    """Chebyshev points of a fit's interval, and what there is to approximate."""

    def __init__(self, f: Fit) -> None:
        turn = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
        self.exact_x = [mp.mpf(f.low + (f.high - f.low) * (t + 1) / 2) for t in turn]
        self.x = np.array([float(p) for p in self.exact_x])
        self.weight = np.array([float(f.weight(p)) for p in self.exact_x])
        self.target = [f.target(p) for p in self.exact_x]

    def left(self, coefficients: list[float]) -> np.ndarray:
        """The target without the polynomial, whose lowest power stands first."""
        made = [mp.fsum(c * p**k for k, c in enumerate(coefficients)) for p in self.exact_x]
        return np.array([float(t - m) for t, m in zip(self.target, made, strict=True)])


def error_of(f: Fit, coefficients: list[float]) -> float:
    """The greatest weighted error of a polynomial, its lowest power first, rounded to the type."""
    points = Points(f)
    rounded = [float(f.dtype(c)) for c in coefficients]
    return float(np.abs(points.weight * points.left(rounded)).max())


def fit(f: Fit) -> list[float]:
    """Coefficients, the lowest power first."""
    points = Points(f)
    fixed: list[float] = []
    while len(fixed) < f.terms:
        powers = list(range(len(fixed), f.terms))
        found = lawson(points.x, points.left(fixed), points.weight, powers)
        fixed.append(float(f.dtype(found[0])))
    return fixed


def odd(function: Callable[[mp.mpf], mp.mpf], head: float = 1.0) -> Callable[[mp.mpf], mp.mpf]:
    """P(s) with f(x) = head * x + x**3 * P(x**2), as a function of s = x**2."""
    return lambda s: (function(mp.sqrt(s)) / mp.sqrt(s) - head) / s


def odd_weight(function: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    return lambda s: s * mp.sqrt(s) / function(mp.sqrt(s))


def erfc_of_u(u: mp.mpf) -> mp.mpf:
    """P(u) = e**(x**2) * erfc(x) / u where u = 1 / (x + 2)"""
    x = 1 / u - 2
    return mp.exp(x * x) * mp.erfc(x) / u


TINY = 1e-9
ONE = 0.2420453578233719  # the f32 next to where P(u) = 1, from which erfc's polynomial goes
FITS = {
    "exp": Fit(
        lambda r: (mp.exp(r) - 1 - r) / r**2 if r else mp.mpf(0.5), lambda r: r**2,
        -0.3476, 0.3476, 5,
    ),
    "log": Fit(
        lambda m: (mp.log1p(m) - m + m**2 / 2) / m**3 if m else mp.mpf(1) / 3,
        lambda m: abs(m**3 / mp.log1p(m)) if m else mp.mpf(0),
        -0.2930, 0.4143, 9,
    ),
    "sin": Fit(odd(mp.sin), odd_weight(mp.sin), TINY, 0.618, 3),
    "cos": Fit(
        lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2,
        lambda s: s**2 / mp.cos(mp.sqrt(s)), TINY, 0.618, 3,
    ),
    "atan": Fit(odd(mp.atan), odd_weight(mp.atan), TINY, 1.0, 9),
    "asin": Fit(odd(mp.asin), odd_weight(mp.asin), TINY, 0.25, 5),
    "sinh": Fit(odd(mp.sinh), odd_weight(mp.sinh), TINY, 1.0, 4),
    "tanh": Fit(odd(mp.tanh), odd_weight(mp.tanh), TINY, 0.3025, 4),
    "erf": Fit(
        lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1, lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)),
        TINY, 1.0, 6,
    ),
    "erf_far": Fit(  # at the end no error may show: erf has to arrive at 1
        lambda t: mp.erfc(t + 1.25) ** 0.25,
        lambda t: 4 * mp.erfc(t + 1.25) ** 0.75 * (1 + 2 * ((t + 0.25) / 3.05) ** 6),
        -0.25, 2.8, 8,
    ),
    "erfc": Fit(  # Q(t) where u = t + ONE and P(u) = 1 + t Q(t); t comes near 0, and never is it
        lambda t: (erfc_of_u(t + ONE) - 1) / t, lambda t: abs(t) / erfc_of_u(t + ONE),
        1 / 12.1 - ONE, 0.5 - ONE, 9,
    ),
    "exp2_f32": Fit(
        lambda f: (mp.mpf(2) ** f - 1) / f if f else mp.log(2), lambda f: f * mp.mpf(2) ** -f,
        -0.5, 0.5, 6,
    ),
    "exp2_short": Fit(
        lambda f: (mp.mpf(2) ** f - 1) / f if f else mp.log(2), lambda f: f * mp.mpf(2) ** -f,
        -0.5, 0.5, 5,
    ),
    "log2": Fit(
        lambda z: mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z)), 2) / mp.sqrt(z),
        lambda z: 1 / (mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z)), 2) / mp.sqrt(z)),
        TINY, 0.02945, 5, np.float64,
    ),
    "exp2": Fit(lambda f: mp.mpf(2) ** f, lambda f: mp.mpf(2) ** -f, -0.5, 0.5, 8, np.float64),
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """`function` from 0 to `end` by `terms` coefficients a piece, an odd one without a constant in
    its first piece. `low` is what that one's slope lacks in its type."""

    function: Callable[[mp.mpf], mp.mpf]
    offset: float
    end: float
    terms: int
    odd: bool = False
    low: float = 0.0


SLOPE = 2 / mp.sqrt(mp.pi)  # of erf at 0
HALF_LOG2_E = float(np.float32(0.5 / np.log(2)))
TABLES = {
    "tanh_pieces": Table(mp.tanh, 0.64, 9.3, 6, odd=True),
    "erf_pieces": Table(
        mp.erf, 0.375, 3.95, 6, odd=True, low=float(SLOPE - float(np.float32(SLOPE)))
    ),
    "erfc_pieces": Table(lambda x: mp.exp(x * x) * mp.erfc(x), 0.75, 10.1, 6),
    "normal_pieces": Table(  # without the bell, as machine code computes that
        lambda x: mp.ncdf(-x) * mp.mpf(2) ** (HALF_LOG2_E * x * x), 1.0, 14.5, 6
    ),
}
PIECES, SHIFT = 16, 21  # of f32's 23 bits below the exponent, 2 number pieces
NEAR = 400  # floats on either side of a piece's middle, of which one is its centre


def edges(t: Table) -> list[float]:
    """Where the pieces begin, and the last one ends."""
    bits = [int(np.float32(x).view(np.int32)) >> SHIFT for x in (t.offset, t.offset + t.end)]
    begin = [np.int32(k << SHIFT).view(np.float32) for k in range(bits[0] + 1, bits[1] + 1)]
    return [0.0, *(float(x) - t.offset for x in begin), t.end]


def centre(t: Table, middle: float) -> tuple[float, float]:
    """A float near the middle, and the function's value there, almost without rounding."""
    near = np.float32(middle).view(np.int32) + np.arange(-NEAR, NEAR + 1, dtype=np.int32)
    floats = [float(x) for x in near.view(np.float32)]
    values = [t.function(mp.mpf(x)) for x in floats]
    off = [abs(y - mp.mpf(float(np.float32(float(y))))) / y for y in values]
    best = off.index(min(off))
    return floats[best], float(np.float32(float(values[best])))


def pieces(t: Table) -> list[tuple[int, float, float]]:
    """Each piece's entry in the table, where it begins and where it ends."""
    first = int(np.float32(t.offset).view(np.int32)) >> SHIFT
    found = [((first + k), *part) for k, part in enumerate(itertools.pairwise(edges(t)))]
    assert len(found) <= PIECES, f"{len(found)} pieces: start further from 0, or end before"
    return [(k % PIECES, low, high) for k, low, high in found]


def fit_of_piece(t: Table, low: float, high: float, middle: float, constant: float) -> Fit:
    """Of the coefficients but the constant, from a piece's centre; errors are relative ones."""
    at = mp.mpf(middle)
    return Fit(
        lambda d: (t.function(at + d) - constant) / d - (t.low if middle == 0 else 0),
        lambda d: abs(d / t.function(at + d)),
        TINY if middle == low else low - middle, high - middle, t.terms - 1,
    )  # fmt: skip


def fit_table(t: Table) -> list[list[float]]:
    """Centres, then coefficients, the highest power first; of an entry without a piece, 0."""
    columns = [[0.0] * (t.terms + 1) for _ in range(PIECES)]
    for entry, low, high in pieces(t):
        from_zero = t.odd and low == 0
        middle, constant = (0.0, 0.0) if from_zero else centre(t, (low + high) / 2)
        rest = fit(fit_of_piece(t, low, high, middle, constant))
        columns[entry] = [middle, *reversed(rest), constant]
    return [list(row) for row in zip(*columns, strict=True)]


def error_of_table(t: Table, rows: Sequence[Sequence[float]]) -> float:
    """The greatest relative error of a table's polynomials."""
    rounded = [[float(np.float32(x)) for x in row] for row in rows]
    worst = 0.0
    for entry, low, high in pieces(t):
        middle, *rest, constant = (row[entry] for row in rounded)
        fitted = fit_of_piece(t, low, high, middle, constant)
        worst = max(worst, error_of(fitted, rest[::-1]))
    return worst


def print_table(name: str) -> None:
    rows = fit_table(TABLES[name])
    off = error_of_table(TABLES[name], rows)
    sys.stdout.write(f"{name}: off by 2**{np.log2(off):.1f}, centres, then highest power first\n")
    for row in rows:
        digits = [str(np.float32(x)) for x in row]
        lines = [", ".join(digits[k : k + 4]) for k in range(0, PIECES, 4)]
        sys.stdout.write("        (" + ",\n         ".join(lines) + "),\n")


def main() -> None:
    for name in sys.argv[1:] or (*FITS, *TABLES):
        if name in TABLES:
            print_table(name)
            continue
        coefficients = fit(FITS[name])
        error = error_of(FITS[name], coefficients)
        digits = "\n".join(f"    {c!r}," for c in reversed(coefficients))
        sys.stdout.write(f"{name}: off by 2**{np.log2(error):.1f}\n{digits}\n")


if __name__ == "__main__":
    main()
