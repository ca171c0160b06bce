"""Numbers as they are shown: rounded so that what adds up, adds up as printed; and as bars, colours and lines."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from c2fa.structure import FloatArray, IntArray, Structure

Units: TypeAlias = FloatArray
"""Whole numbers of the last digit that is shown; NaN where there is no number."""

_DIGITS = 3  # decimals of a number like most: 0.250
_PLAIN = range(-4, 9)  # powers of ten that are written out: 0.000250 to 999,999,999


def digits_for(size: float) -> int:
    """How many decimals numbers up to this size are shown with; for very large and very small ones, three digits.

    >>> [digits_for(size) for size in (0.0, 0.25, 12.0, 0.0025, 1234.5, 1000108.0, 2.5e-9)]
    [3, 3, 3, 5, 1, 0, 11]
    """
    if size < 1e-290 or not math.isfinite(size):
        return _DIGITS
    power = math.floor(math.log10(size))
    if power < -2 or power not in _PLAIN:
        return 2 - power
    return max(_DIGITS - max(power - 1, 0), 0)


def written(units: float, digits: int, *, sign: bool = False) -> str:
    """A number of units of its last digit, in words of figures.

    >>> written(-250, 3), written(250, 3, sign=True), written(0, 3, sign=True), written(1000108, 0), written(3, 11)
    ('-0.250', '+0.250', '0.000', '1,000,108', '0.03e-09')
    """
    if not math.isfinite(units):
        return "–"
    power = 2 - digits
    plain = digits >= 0 and power >= _PLAIN[0]
    size = abs(round(units))
    text = f"{size / 10**digits:,.{digits}f}" if plain else f"{size / 100:.2f}e{power:+03d}"
    if not size:
        return text
    before = "+" if sign else ""
    return f"-{text}" if units < 0 else before + text


def number(value: float) -> str:
    """A number for the eye, by itself.

    >>> number(0.25), number(2.5e-9), number(1000108), number(-3e12)
    ('0.250', '2.50e-09', '1,000,108', '-3.00e+12')
    """
    digits = digits_for(abs(value))
    return written(value * 10.0**digits, digits)


def minuses(text: str) -> str:
    """Numbers in a sentence with a sign that is as wide as a plus.

    >>> minuses("-1.2 nats, a re-run")
    '−1.2 nats, a re-run'
    """
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


@dataclass(frozen=True, eq=False)
class Rounded:
    """Attributions as every text, picture and page shows them.

    They are whole numbers of one unit, the last digit. The units of a part's children add up to the part's, and base
    and parts to what they make together, wherever the exact numbers do; each is less than one unit from the exact
    number. Where a method's levels do not add up, each level is rounded by itself.

    Attributes
    ----------
    values
        The attributions of each level, coarse to fine, in units.
    base
        What the surrogate says of an empty input, in units.
    digits
        The decimals that they are shown with.
    """

    values: tuple[Units, ...]
    base: float
    digits: int

    @classmethod
    def of(
        cls, structure: Structure, values: tuple[FloatArray, ...], base: float, errors: tuple[FloatArray, ...] = ()
    ) -> Rounded:
        """Round the attributions of an input; its largest number, be it an error, says with how many digits."""
        digits = digits_for(max(map(largest, (*values, *errors))))
        start, *exact = (_in_units(v, digits) for v in (np.array([base]), *values))
        everything = np.concatenate([start, exact[0]])
        base_units, *parts = _shared_out(everything, np.zeros(len(everything), dtype=np.intp), np.array([np.nan]))
        units = [np.array(parts)]
        for parents, own in zip(structure.parents, exact[1:], strict=True):
            units.append(_shared_out(own, parents, units[-1]))
        return cls(tuple(units), float(base_units), digits)

    @property
    def total(self) -> float:
        return float(self.values[0].sum())

    @property
    def made(self) -> float:
        """What base and parts add up to, in units."""
        return self.base + self.total

    def text(self, units: float, *, sign: bool = True) -> str:
        return written(units, self.digits, sign=sign)

    def signed(self, units: float, error: float | None = None) -> str:
        """A number of units with its sign, and its standard error where it has one, as it stands beside a bar."""
        text = minuses(self.text(units))
        return text if error is None or not np.isfinite(error) else f"{text} ± {self.plain(error)}"

    def plain(self, value: float) -> str:
        """Another number, such as a standard error, with as many digits."""
        return written(value * 10.0**self.digits, self.digits)


def _in_units(values: FloatArray, digits: int) -> FloatArray:
    with np.errstate(over="ignore"):  # beside tiny attributions a base may be too large to be counted in their units
        found = np.round(values * 10.0**digits, 9)
    return np.where(np.isfinite(found), found, np.nan)


def _shared_out(exact: FloatArray, parents: IntArray, totals: Units) -> Units:
    """Round numbers up or down so that those of each parent add up to its total, if they nearly do.

    Those with the largest remainders are rounded up. A total of NaN, or one that is a unit or more away from their sum,
    is replaced by their sum, rounded.
    """
    sums = np.bincount(parents, exact, minlength=len(totals))
    finite = np.isfinite(sums)
    there = np.where(finite, sums, 0.0)
    nearly = np.abs(totals - there) < 1.0
    wanted = np.where(nearly, totals, np.rint(there))
    down = np.floor(exact)
    lacking = wanted - np.where(finite, np.bincount(parents, down, minlength=len(totals)), 0.0)
    order = np.lexsort((down - exact, parents))
    starts = np.searchsorted(parents[order], np.arange(len(totals)))
    rank = np.empty(len(exact))
    rank[order] = np.arange(len(exact)) - starts[parents[order]]
    up = np.where(finite[parents], rank < lacking[parents], exact - down >= 0.5)
    return np.where(np.isfinite(exact), down + up, np.nan)


def largest(values: FloatArray) -> float:
    """The largest absolute value among those that are finite; 0 where there is none.

    >>> largest(np.array([-2.0, 1.0, np.nan, np.inf])), largest(np.array([]))
    (2.0, 0.0)
    """
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def shares(values: FloatArray, most: float) -> FloatArray:
    """Values as shares of the largest, from −1 to 1; what is not a number has none.

    >>> shares(np.array([-1.0, np.nan, np.inf]), 2.0).tolist()
    [-0.5, 0.0, 1.0]
    """
    with np.errstate(over="ignore"):  # the largest may be as small as a number can be
        return np.clip(np.nan_to_num(values / most), -1.0, 1.0)


def settled(values: FloatArray) -> FloatArray:
    """Numbers without what is only rounding, which a picture would shade as if it were something.

    >>> settled(np.array([1e-13, -0.5])).tolist()
    [0.0, -0.5]
    """
    return np.where(np.abs(values) <= 1e-12, 0.0, values)


def of_largest(values: FloatArray) -> FloatArray:
    """Values as shares of the largest of them, from −1 to 1; all 0 where they are only rounding.

    >>> of_largest(np.array([-1.0, 2.0])).tolist(), of_largest(np.array([1e-14])).tolist()
    ([-0.5, 1.0], [0.0])
    """
    return shares(settled(values), largest(settled(values)) or 1.0)


def scaled(lines: FloatArray) -> FloatArray:
    """Each line of (lines, steps) from 0 to 1, a constant one at 0.5; what is not finite is a gap, NaN.

    >>> scaled(np.array([[1.0, np.inf, 3.0], [7.0, 7.0, np.nan], [np.nan] * 3])).tolist()
    [[0.0, nan, 1.0], [0.5, 0.5, nan], [nan, nan, nan]]
    """
    there = np.isfinite(lines)
    halves = np.where(there, lines / 2, np.nan)  # because the spread of finite numbers need not be finite
    low = halves.min(axis=1, keepdims=True, where=there, initial=np.inf)
    spread = halves.max(axis=1, keepdims=True, where=there, initial=-np.inf) - low
    varied = np.where(spread > 0, (halves - low) / np.where(spread > 0, spread, 1.0), 0.5)
    return np.where(there, varied, np.nan)
